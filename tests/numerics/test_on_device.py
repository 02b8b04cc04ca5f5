"""Rows that pass over a device: the CPU of torch here, a GPU where there is one.  Skipped without torch."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError
from eigenpact.numerics import device_rows, device_work, on_device, site_rows
from eigenpact.numerics.on_device import OnDevice
from eigenpact.numerics.site_rows import SiteRows, own_mean
from eigenpact.numerics.sources import ArraySource

torch = pytest.importorskip("torch")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(on_device, "CHUNK_BYTES", 7 * 12 * 4)
    monkeypatch.setattr(device_work, "PROGRAMS", 3)


def made(n=90, d=12, kind="float64", offset=3.0):
    rng = np.random.default_rng(0)
    return (rng.normal(size=(n, d)) * np.geomspace(1, 20, d) + offset * np.arange(d)).astype(kind)


def streamed(X, pieces=4):
    """As much memory as makes pieces of this many."""
    n, d = X.shape
    return OnDevice(X, DEVICE, memory=on_device.PIECES * -(-n // pieces) * d * 8)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("memory", [None, 600, 3000, 6000])
def test_all_rows_come_by_in_their_order(kind, memory, tmp_path):
    X = made(kind=kind)
    np.save(tmp_path / "X.npy", X)
    for rows in (X, np.asfortranarray(X), np.load(tmp_path / "X.npy", mmap_mode="r"), ArraySource(X)):
        source = OnDevice(rows, DEVICE, memory=memory)
        for _ in range(2):
            found = [piece.cpu().numpy().copy() for piece in source.there()]
            assert np.concatenate(found).tobytes() == X.tobytes()
            assert (len(found) == 1) == (X.nbytes <= (memory or X.nbytes))
        assert source[3:7].tobytes() == X[3:7].tobytes()


def test_what_fits_is_copied_once(monkeypatch):
    source, filled = OnDevice(made(), DEVICE), []
    fill = OnDevice._fill
    monkeypatch.setattr(OnDevice, "_fill", lambda *args: (filled.append(args), fill(*args))[1])
    assert next(source.there()) is next(source.there())
    assert len(filled) == 1


def test_the_next_piece_is_read_while_one_is_used(monkeypatch):
    """And never into the memory of the one in use."""
    X = made()
    source, readers, coming = OnDevice(X, DEVICE, memory=6000), [], threading.Event()
    fill = OnDevice._fill

    def watched(self, pool, piece, first):
        readers.append(threading.current_thread().name)
        if first:
            coming.set()
        return fill(self, pool, piece, first)

    monkeypatch.setattr(OnDevice, "_fill", watched)
    pieces = source.there()
    first = next(pieces)
    assert coming.wait(30)
    assert all(name.startswith("read-ahead") for name in readers)
    np.testing.assert_array_equal(first.cpu().numpy(), X[: len(first)])
    pieces.close()


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("scaled", [False, True])
def test_sums_and_products_are_those_of_numpy(kind, scaled):
    X = made(kind=kind)
    rows = streamed(X)
    (own, within), (there, within_there) = own_mean(X), own_mean(rows)
    np.testing.assert_allclose(there.sum(axis=0), own.sum(axis=0), rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(within_there, within, rtol=1e-13)
    mean, scale = own[0] + 0.5, np.linspace(1, 2, 12) if scaled else None
    Z = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 3)))[0]
    here, passing = SiteRows(X, mean, scale, own, within), SiteRows(rows, mean, scale, own, within)
    np.testing.assert_allclose(passing.scatter_action(Z), here.scatter_action(Z), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(passing.scatter_triangle(), here.scatter_triangle(), rtol=1e-12, atol=1e-10)
    assert passing.scatter_action(Z).tobytes() == passing.scatter_action(Z).tobytes()


@pytest.mark.parametrize("solver", ["gram", "krylov", "auto"])
def test_a_fit_is_that_of_numpy(solver):
    sites = {"A": made(90), "B": made(70, kind="float32")}
    there = {name: streamed(X) for name, X in sites.items()}
    engine = ep.engines.InProcess(threads=1)  # Triton's interpreter knows one grid at a time
    one, other = (ep.FederatedPCA(3, solver=solver, random_state=0, engine=engine).fit(given) for given in (sites, there))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-8)
    np.testing.assert_allclose(other.explained_variance_, one.explained_variance_, rtol=1e-8)


def test_every_family_takes_such_rows(monkeypatch):
    if DEVICE == "cpu":  # else Triton's interpreter, where it is there, takes minutes
        monkeypatch.setattr(device_rows, "on_gpu", lambda _: None)
        monkeypatch.setattr(site_rows, "on_gpu", lambda _: None)
    rng = np.random.default_rng(1)
    sites = {name: rng.normal(size=(60, 4)) @ rng.normal(size=(4, 12)) + 0.1 * rng.normal(size=(60, 12)) for name in "ABC"}
    there, engine = {name: streamed(X) for name, X in sites.items()}, ep.engines.InProcess(threads=1)
    for make in (
        lambda: ep.FederatedPCA(2, scale="pooled", random_state=0, engine=engine),
        lambda: ep.FederatedPCA(2, missing="em", random_state=0, engine=engine),
        lambda: ep.PersonalizedPCA(1, 1, random_state=0, engine=engine),
        lambda: ep.RobustPCA(2, random_state=0, engine=engine),
        lambda: ep.GraphPCA(2, random_state=0, engine=engine),
    ):
        np.testing.assert_allclose(make().fit(there).components_, make().fit(sites).components_, atol=1e-8)


def test_products_are_made_there(monkeypatch):
    """Not in numpy, which would give the same."""
    rows = streamed(made())
    own, _ = own_mean(rows)
    monkeypatch.setattr(OnDevice, "read", lambda *_: pytest.fail("rows were read to be multiplied in numpy"))
    SiteRows(rows, own[0], None, own).scatter_action(np.eye(12, 2))
    SiteRows(rows, own[0], None, own).scatter_triangle()
    own_mean(rows)


def test_bad_entries_are_named():
    X = made()
    X[80, 5] = np.nan
    with pytest.raises(InputError, match="column 5 has 1 NaN"):
        ep.FederatedPCA(2).fit({"A": streamed(X)})


def test_rows_that_cannot_pass_are_refused():
    with pytest.raises(InputTypeError, match="dense"):
        OnDevice(scipy.sparse.csr_array(made()), DEVICE)
    with pytest.raises(InputTypeError, match="Tensor"):
        OnDevice(torch.ones(3, 2), DEVICE)
    with pytest.raises(InputError, match="memory=0"):
        OnDevice(made(), DEVICE, memory=0)


def test_what_lies_on_the_device_does_not_travel():
    source = streamed(made())
    list(source.there())
    again = pickle.loads(pickle.dumps(source))
    assert again._pieces == []
    assert np.concatenate([piece.cpu().numpy().copy() for piece in again.there()]).tobytes() == made().tobytes()
