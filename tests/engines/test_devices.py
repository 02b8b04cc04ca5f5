"""Which device a process or a site gets, with a number of GPUs that is made up; and that engines put rows there."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.engines import dask, devices, inprocess, mpi
from eigenpact.engines.ranks import local_rank
from eigenpact.errors import InputError

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


class Placed:
    """Rows and the device that they were given, instead of copies there."""

    def __init__(self, X: Any, device: str) -> None:
        self.X, self.device, self.shape = X, device, X.shape


def test_gpus_are_taken_in_turn() -> None:
    assert [devices.in_turn("auto", turn, 3) for turn in range(4)] == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    assert devices.in_turn("auto", 1, 0) is None
    assert devices.in_turn("cpu", 7) == "cpu"


def test_names_of_gpus_are_those_that_the_system_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda _: object())
    fake = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    monkeypatch.setattr(devices.importlib, "import_module", lambda _: fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert devices.visible() == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b, GPU-a")
    assert devices.visible() == ("GPU-b", "GPU-a")


@pytest.mark.parametrize("order", [1, -1])
def test_workers_of_one_host_share_its_gpus_fairly(order: int) -> None:
    """Three hosts: one that shows each worker another GPU first, one that shows all the same, one without any."""
    seen = {
        "a0": ("a", ("0", "1")),
        "a1": ("a", ("1", "0")),
        "b0": ("b", ("0", "1")),
        "b1": ("b", ("0", "1")),
        "b2": ("b", ("0", "1")),
        "c0": ("c", ()),
    }
    found = devices.by_worker("auto", dict(list(seen.items())[::order]))
    assert (found["a0"], found["a1"], found["c0"]) == ("cuda:0", "cuda:0", None)
    shared = [found[name] for name in ("b0", "b1", "b2")]
    assert sorted(shared) == ["cuda:0", "cuda:0", "cuda:1"]


@pytest.mark.parametrize("device", ["", 3])
@pytest.mark.parametrize("engine", [ep.engines.InProcess, ep.engines.MPI, ep.engines.Dask])
def test_what_names_no_device_is_refused(engine: Any, device: Any) -> None:
    with pytest.raises(InputError, match="device="):
        engine(device=device)


def test_sites_of_one_process_take_gpus_in_the_order_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse rows stay; so does everything where nobody asks for a device, or there is none."""
    monkeypatch.setattr(devices, "OnDevice", Placed)
    sites = {"B": np.ones((2, 3)), "A": np.zeros((2, 3)), "C": scipy.sparse.csr_array(np.ones((2, 3))), "D": np.ones((1, 3))}

    def held(engine: Any, count: int) -> dict[str, str]:
        monkeypatch.setattr(devices, "visible", lambda: tuple("0123"[:count]))
        seen: dict[str, str] = {}

        def made(name: str, X: Any, **_: Any) -> None:
            seen[name] = X.device if isinstance(X, Placed) else ""

        monkeypatch.setattr(inprocess, "SiteServer", made)
        monkeypatch.setattr(inprocess, "InProcessConnection", _stop)
        with pytest.raises(InterruptedError):
            engine.execute(sites, lambda _: None)
        return seen

    auto = ep.engines.InProcess(device="auto")
    assert held(auto, 2) == {"A": "cuda:0", "B": "cuda:1", "C": "", "D": "cuda:1"}
    assert set(held(auto, 0).values()) == set(held(ep.engines.InProcess(), 2).values()) == {""}


def _stop(*_: Any, **__: Any) -> None:
    raise InterruptedError


def test_a_rank_takes_the_gpu_of_its_number_on_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 5 of a job is the third of its machine."""
    given: list[Any] = []
    comm = SimpleNamespace(rank=5, size=8)
    monkeypatch.setattr(mpi, "world", lambda: comm)
    monkeypatch.setattr(mpi, "local_rank", lambda asked: 2 if asked is comm else -1)
    monkeypatch.setattr(devices, "visible", lambda: ("0", "1", "2", "3"))
    monkeypatch.setattr(devices, "OnDevice", Placed)
    monkeypatch.setattr(mpi, "SiteServer", lambda name, X, **_: given.append((name, X.device)))
    monkeypatch.setattr(mpi, "_owners", _stop)
    with pytest.raises(InterruptedError):
        ep.engines.MPI(device="auto").execute({"A": np.ones((2, 2))}, lambda _: None)
    assert given == [("A", "cuda:2")]


def test_the_number_of_a_rank_on_its_machine_is_asked_of_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[bool] = []
    shared = SimpleNamespace(rank=3, Free=lambda: freed.append(True))
    monkeypatch.setattr("eigenpact.engines.ranks.bring", lambda *_: SimpleNamespace(COMM_TYPE_SHARED="machine"))
    comm = SimpleNamespace(rank=7, size=8, Split_type=lambda kind: shared if kind == "machine" else None)
    assert local_rank(comm) == 3
    assert freed == [True]
    assert local_rank(SimpleNamespace(rank=0, size=1)) == 0


def test_a_cluster_is_asked_what_its_workers_see() -> None:
    seen = {"tcp://10.0.0.1:1": ("0", "1"), "tcp://10.0.0.1:2": ("0", "1"), "tcp://10.0.0.2:1": ()}
    client = SimpleNamespace(run=lambda function: seen if function is devices.visible else {})
    assert dask._devices(client, seen, "auto") == dict(zip(seen, ("cuda:0", "cuda:1", None), strict=True))
    assert dask._devices(client, seen, "cpu") == dict.fromkeys(seen, "cpu")
    assert dask._devices(client, seen, None) == dict.fromkeys(seen)


@needs_torch
def test_a_fit_with_a_device_is_that_without() -> None:
    rng = np.random.default_rng(0)
    sites = {name: rng.normal(size=(40, 6)) * [6, 5, 4, 3, 2, 1] for name in "AB"}
    one, other = (ep.FederatedPCA(2, random_state=0, engine=ep.engines.InProcess(device=d)).fit(sites) for d in (None, "cpu"))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-8)
