"""Large arrays stay in their file: the command's own memory does not grow with them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.data import array_readers

EIGENPACT = Path(sys.executable).with_name("eigenpact")
BLOCK, TIMES = 2000, 60


@pytest.fixture
def large(tmp_path):
    """large.npy, 96 MB: a block of rows (2000 x 200) sixty times."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(BLOCK, 200)).astype(np.float32) * np.linspace(5, 1, 200, dtype=np.float32)
    rows = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float32, (BLOCK * TIMES, 200))
    for i in range(TIMES):
        rows[i * BLOCK : (i + 1) * BLOCK] = block
    rows.flush()
    return block.astype(np.float64)


def peak(*words: str, cwd: Path) -> int:
    """The most bytes of its own (not of files) that a process of the command had, by looking again and again."""
    most = 0
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen([EIGENPACT, *words], cwd=cwd, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            text = Path(f"/proc/{process.pid}/status").read_text()
            found = [int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon:")]
            most = max(most, *found, 0)
            time.sleep(0.005)
    assert process.returncode == 0
    return most


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell memory")
def test_a_file_is_read_a_piece_at_a_time(large, tmp_path):
    loaded = peak("fit", "large.npy", "-k", "3", "-o", "loaded", "-q", cwd=tmp_path)
    streamed = peak("fit", "large.npy", "-k", "3", "-o", "streamed", "-q", "--memory", "64MB", cwd=tmp_path)
    assert loaded - streamed > 60e6
    assert streamed < 250e6
    models = [ep.load_model(tmp_path / name) for name in ("loaded", "streamed")]
    assert np.array_equal(models[0].components_, models[1].components_)
    values = np.linalg.eigvalsh(np.cov(large, rowvar=False, ddof=0))[::-1][:3]
    n = BLOCK * TIMES
    assert np.allclose(models[1].explained_variance_ * (n - 1) / n, values, rtol=1e-5)
    scored = peak("transform", "streamed", "large.npy", "-o", "scores.npy", "--memory", "64MB", cwd=tmp_path)
    assert scored < 250e6
    scores = np.load(tmp_path / "scores.npy", mmap_mode="r")
    assert np.allclose(scores[-BLOCK:], (large - large.mean(axis=0)) @ models[1].components_.T, atol=1e-3)


def test_large_arrays_are_mapped_without_being_asked(run, sites, monkeypatch, tmp_path):
    seen = []
    original = array_readers.ArraySource
    monkeypatch.setattr(array_readers, "ArraySource", lambda X: seen.append(X.shape) or original(X))
    assert run("fit", "west.npy", "-k", 2, "-o", "loaded").exit_code == 0
    assert not seen
    monkeypatch.setattr(array_readers, "MAPPED", 100)
    assert run("fit", "west.npy", "-k", 2, "-o", "mapped").exit_code == 0
    assert seen == [sites["west"].shape]
    loaded, mapped = (ep.load_model(tmp_path / name) for name in ("loaded", "mapped"))
    assert np.array_equal(loaded.components_, mapped.components_)


def test_memory_that_runs_out_is_told_with_advice(refused, monkeypatch):
    def none(*_, **__):
        raise MemoryError("Unable to allocate 6.0 GiB")

    monkeypatch.setattr("eigenpact.cli.fitting.read_together", none)
    told = refused("fit", "west.npy", "-k", 2, "-o", "model")
    assert told.startswith("error: there is not enough memory (Unable to allocate 6.0 GiB); give fit or transform for example")
    assert "--memory 1GB" in told


def test_an_array_that_does_not_fit_is_read_from_its_file(run, sites, monkeypatch, tmp_path):
    def none(_):
        raise MemoryError

    monkeypatch.setattr(array_readers, "read_npy", none)
    assert run("fit", "west.npy", "-k", 2, "-o", "model").exit_code == 0
    assert ep.load_model(tmp_path / "model").n_samples_seen_ == len(sites["west"])
