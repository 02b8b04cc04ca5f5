"""Ctrl-C in ``fit``: one line, exit code 130, and the same command goes on to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import eigenpact as ep

EIGENPACT = Path(sys.executable).with_name("eigenpact")


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # where tests run in the background of a script, it is ignored
    return subprocess.Popen([EIGENPACT, *words], cwd=cwd, env=os.environ | one, text=True, preexec_fn=heeded, **streams)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(40000, 60)))
    words = ["fit", "a.npy", "b.npy", "-k", "5", "--solver", "subspace", "--tol", "1e-14", "--max-rounds", "250", "-q"]
    with start(*words, "-o", "model", "--journal", "journal", cwd=tmp_path) as process:
        journal = tmp_path / "journal"
        while process.poll() is None and not (journal.exists() and journal.stat().st_size > 10_000):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert told == "stopped by Ctrl-C; no model was written; repeat the same command to go on where it stopped\n"
    assert not (tmp_path / "model").exists()
    for more in (["-o", "model", "--journal", "journal"], ["-o", "whole"]):
        with start(*words, *more, cwd=tmp_path) as process:
            process.communicate(timeout=120)
        assert process.returncode == 1  # so many rounds are too few
    resumed, whole = (ep.load_model(tmp_path / name) for name in ("model", "whole"))
    assert np.array_equal(resumed.components_, whole.components_)
    assert np.array_equal(resumed.explained_variance_, whole.explained_variance_)
    assert resumed.n_rounds_ == whole.n_rounds_ == 250


@pytest.mark.parametrize("place", ["eigenpact.cli.fitting.read_together", "eigenpact.cli.fitting.run"])
def test_without_a_journal_it_says_what_would_have_helped(run, monkeypatch, snapshot, place):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(place, stop)
    before = snapshot()
    result = run("fit", "west.npy", "-k", 2, "-o", "model", "-q")
    assert (result.exit_code, result.stdout) == (130, "")
    told = "nothing was written; with --journal FILE the same command would go on where it stopped"
    assert result.stderr == f"stopped by Ctrl-C; {told}\n"
    assert snapshot() == before


def test_other_commands_stop_in_a_line_too(run, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("eigenpact.estimators.model_files.load_model", stop)
    result = run("show", "model")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "stopped by Ctrl-C\n")
