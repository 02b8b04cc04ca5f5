"""What engines know before a run: their constants, with rates that were measured where the process computes itself."""

from __future__ import annotations

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.engines import measuring
from eigenpact.engines.inprocess import InProcessConnection
from eigenpact.numerics.rates import Rates
from eigenpact.runtime import Costs, SiteServer

USUAL = Costs(latency=1e-4, bandwidth=5e9, flops=4e10, narrow=2e10)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measured_rates", lambda: Rates(square=5e10, narrow=6e9))
    monkeypatch.delenv(measuring.VARIABLE)


def test_rates_close_to_the_usual_ones_are_the_usual_ones() -> None:
    """The square product is, the narrow one is a quarter; nothing else changes."""
    assert measuring.measured_here(USUAL, 3) == Costs(latency=1e-4, bandwidth=5e9, flops=4e10, narrow=5e9, at_once=3)


def test_who_wants_the_same_choice_everywhere_has_nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the processor nor a device."""
    monkeypatch.setenv("EIGENPACT_RATES", "usual")
    for name in ("measured_rates", "device_rates"):
        monkeypatch.setattr(measuring, name, lambda *_: pytest.fail("measured"))
    assert measuring.measured_here(USUAL, 3, ["cuda:0"]) == Costs(latency=1e-4, bandwidth=5e9, flops=4e10, narrow=2e10, at_once=3)


def test_a_misspelt_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENPACT_RATES", "Usual")
    with pytest.raises(
        ep.errors.InputError, match="EIGENPACT_RATES='Usual' in the environment; 'usual' takes usual rates, unset it"
    ):
        ep.FederatedPCA(1).fit({"A": np.eye(3), "B": np.eye(3)})


def test_an_engine_without_a_narrow_rate_gets_none() -> None:
    assert measuring.measured_here(Costs(1.0, 1.0, 4e10), 1).narrow is None


def test_threads_are_those_of_the_engine() -> None:
    """Also where there is one site, whose rows they share."""
    with InProcessConnection({"A": SiteServer("A", np.eye(3))}, 5) as connection:
        assert connection.measured(USUAL).at_once == 5


def test_devices_that_hold_the_rows_of_all_sites_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, however many sites share it, and in every process; where one site has none, the threads count."""
    monkeypatch.setattr(measuring, "device_rates", lambda device: Rates(3e13, 6e12) if device == "cuda:0" else Rates(1e13, 1e12))
    found = measuring.measured_here(USUAL, 3, ["cuda:0", "cuda:1", "cuda:0"])
    assert (found.device, found.device_narrow) == (4e10 * 4**5, 4e10 * 4**4)
    assert measuring.measured_here(USUAL, 3, ["cuda:0"], processes=16).device == 4e10 * 4**7
    assert measuring.measured_here(USUAL, 3, ["cuda:0", ""]).device is None
    assert measuring.measured_here(USUAL, 3, []).device is None


def test_an_engine_measures_where_its_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "device_rates", lambda device: {"cuda:7": Rates(4e13, 4e12)}[device])
    server = SiteServer("A", np.eye(3))
    server.device = "cuda:7"
    with InProcessConnection({"A": server}, 5) as connection:
        assert connection.measured(USUAL).device == 4e10 * 4**5


def test_sites_that_answer_by_message_compute_at_once() -> None:
    """Nothing is measured: their machines are not this one."""
    sites = {name: np.random.default_rng(0).normal(size=(20, 4)) for name in "ABC"}
    found: list[Costs] = []
    engine = ep.engines.InProcess(round_timeout=30.0)
    with pytest.raises(InterruptedError):
        engine.execute(sites, lambda connection: (found.append(connection.measured(USUAL)), _stop()))
    assert found == [Costs(latency=1e-4, bandwidth=5e9, flops=4e10, narrow=2e10, at_once=3)]


def _stop() -> None:
    raise InterruptedError
