"""What "auto" chooses by: costs that are measured once, kept in the journal, and sites' policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.cli.site_settings import read_policy
from eigenpact.engines import measuring
from eigenpact.errors import JournalError, PolicyError
from eigenpact.estimators.choices import costs_from, describe_solver
from eigenpact.numerics.rates import Rates
from eigenpact.runtime import Costs, Driver
from tests.attacks.guarded import Guarded

RNG = np.random.default_rng(0)
SITES = {name: RNG.normal(size=(250, 400)) * np.linspace(4, 1, 400) for name in ("A", "B")}
SLOW, FAST = Rates(square=1e6, narrow=1e6), Rates(square=1e15, narrow=1e15)
"""Where products take longest, krylov's are fewer; where nothing but rounds does, gram has one."""


@pytest.fixture(autouse=True)
def _measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does unless told otherwise."""
    monkeypatch.delenv(measuring.VARIABLE)


def on(monkeypatch: pytest.MonkeyPatch, rates: Rates) -> None:
    """As on a machine with these rates."""
    monkeypatch.setattr(measuring, "measured_rates", lambda: rates)


def fitted(**options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(1, random_state=0, **options).fit(SITES)


def stopped(path: Path, after: int, **options: Any) -> None:
    """A run with a journal that is stopped after so many rounds."""

    def interrupt(record: Any) -> None:
        if record.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(journal=path, callback=interrupt, **options)


def test_the_machine_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, SLOW)
    slow = fitted()
    on(monkeypatch, FAST)
    fast = fitted()
    assert (slow.solver_, fast.solver_) == ("krylov", "gram")
    for pca in (slow, fast):
        assert pca.solver_ == min(pca.solver_choice_, key=lambda row: row["seconds"])["solver"]


def test_given_costs_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measured_rates", lambda: pytest.fail("measured"))
    costs = Costs(latency=1e-4, bandwidth=5e9, flops=1e6)
    assert fitted(solver=ep.solvers.Auto(costs=costs)).solver_ == "krylov"
    assert fitted(solver=ep.solvers.Auto(costs=replace(costs, flops=1e15))).solver_ == "gram"
    assert fitted(solver="gram").solver_ == "gram"


def test_a_resumed_run_chooses_as_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a fresh one would now take the other solver."""
    on(monkeypatch, SLOW)
    whole = fitted()
    stopped(tmp_path / "run", 2)
    on(monkeypatch, FAST)
    resumed = fitted(journal=tmp_path / "run")
    assert (resumed.solver_, fitted().solver_) == ("krylov", "gram")
    assert resumed.components_.tobytes() == whole.components_.tobytes()
    assert resumed.solver_choice_ == whole.solver_choice_
    again = fitted(journal=tmp_path / "run")  # of a run that has ended
    assert again.components_.tobytes() == whole.components_.tobytes()


def test_a_journal_tells_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another choice of the user's is another run; what an earlier release did not write is not missed."""
    on(monkeypatch, FAST)
    stopped(tmp_path / "run", 1)
    other = ep.solvers.Auto(costs=Costs(latency=1.0, bandwidth=1.0, flops=1.0))
    with pytest.raises(JournalError, match=r"belongs to another run .*'latency': 1\.0"):
        fitted(journal=tmp_path / "run", solver=other)
    earlier = {"name": "auto", "costs": {"latency": 1e-4, "bandwidth": 5e9, "flops": 1e6}, "start": "random"}
    assert describe_solver(ep.solvers.Auto(costs=Costs(**earlier["costs"]))) == earlier
    stopped(tmp_path / "earlier", 1, solver=ep.solvers.Auto(costs=Costs(**earlier["costs"])))
    assert fitted(journal=tmp_path / "earlier").solver_ == "krylov"


@pytest.mark.parametrize(
    "written",
    [
        None,
        3,
        {},
        {"latency": 1.0},
        {"latency": -1.0, "bandwidth": 1.0, "flops": 1.0},
        {"latency": "1", "bandwidth": 1.0, "flops": 1.0},
        {"latency": 1.0, "bandwidth": 1.0, "flops": 1.0, "more": 1.0},
    ],
)
def test_costs_that_no_run_writes_are_refused(written: Any) -> None:
    with pytest.raises(JournalError, match="run: the journal's description is damaged"):
        costs_from(written, "run")


def test_one_site_that_is_now_elsewhere_is_another_run(tmp_path: Path) -> None:
    """What was factorized in this process is not asked of a site with a policy."""
    X = RNG.normal(size=(40, 500)) * np.linspace(3, 1, 500)
    ep.FederatedPCA(2, random_state=0, journal=tmp_path / "run").fit({"A": X})
    with pytest.raises(JournalError, match=r"belongs to another run .*'alone': 'A'"):
        ep.FederatedPCA(2, random_state=0, journal=tmp_path / "run", engine=Guarded()).fit({"A": X})


def test_one_site_is_the_same_run_when_it_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = RNG.normal(size=(40, 500)) * np.linspace(3, 1, 500)
    path = tmp_path / "run"
    whole = ep.FederatedPCA(2, random_state=0, journal=path).fit(X)
    monkeypatch.setattr(measuring, "measured_rates", lambda: pytest.fail("measured"))
    again = ep.FederatedPCA(2, random_state=0, journal=path).fit(X)
    assert again.components_.tobytes() == whole.components_.tobytes()
    assert again.solver_choice_ == whole.solver_choice_


# -- policies -----------------------------------------------------------------------------------

FEW = {name: X[:, :30] for name, X in SITES.items()}


def guarded(rules: Any, monkeypatch: pytest.MonkeyPatch, k: int = 2, **options: Any) -> tuple[ep.FederatedPCA, list[Any]]:
    """A fit behind gates with these rules, and the plans that were told."""
    plans: list[Any] = []
    begin = Driver.__init__

    def told(self: Any, *args: Any, **given: Any) -> None:
        begin(self, *args, **given)
        plans.append(self._plan)

    monkeypatch.setattr(Driver, "__init__", told)
    pca = ep.FederatedPCA(k, engine=Guarded(rules), random_state=0, max_rounds=300, **options).fit(FEW)
    return pca, plans


@pytest.mark.parametrize("allowed", ["gram", "krylov"])
def test_the_solver_that_sites_allow_is_taken(allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pca, plans = guarded({"solvers": (allowed,)}, monkeypatch)
    assert (pca.solver_, pca.converged_, plans[0].solver) == (allowed, True, allowed)
    assert pca.solver_choice_[0] == {"solver": "auto", "allowed": False}
    assert [row["solver"] for row in pca.solver_choice_ if row["allowed"]] == [allowed]


@pytest.mark.parametrize(("unlisted", "left"), [("scatter_triangle", "krylov"), ("scatter_action", "gram")])
def test_functions_that_are_not_listed_leave_the_other_solver(unlisted: str, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules name auto, gram and krylov, but one of the functions was struck out."""
    rules = {"functions": tuple(name for name in read_policy(None).functions if f":{unlisted}/" not in name)}
    pca, plans = guarded(rules, monkeypatch)
    assert pca.solver_ == left
    assert plans[-1].solver == left


def test_where_both_are_refused_the_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyError, match="rule solvers: 'auto' is not allowed here; allowed are lanczos"):
        guarded({"solvers": ("lanczos",)}, monkeypatch)


def test_sites_with_policies_are_never_asked_for_one_reply() -> None:
    """Also where there is one site: its rows are not in the coordinator's process."""
    wide = RNG.normal(size=(30, 300))
    pca = ep.FederatedPCA(2, engine=Guarded(), random_state=0, max_rounds=300).fit({"A": wide})
    assert pca.solver_ in ("gram", "krylov")
    assert {row["solver"] for row in pca.solver_choice_} == {"gram", "krylov"}


def test_a_block_wider_than_a_rule_allows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan tells components, not columns: gram sends no block, and krylov's first one is refused by the rule's name."""
    rules = {"max_components": 3}
    gram, _ = guarded(rules | {"solvers": ("auto", "gram", "krylov")}, monkeypatch, k=2)
    assert gram.solver_ == "gram"
    with pytest.raises(ep.errors.EigenpactError, match="max_components = 3"):
        guarded(rules, monkeypatch, k=2, solver="krylov")


def test_secured_sums_take_the_same_candidates() -> None:
    three = {name: RNG.normal(size=(40, 12)) * np.linspace(4, 1, 12) for name in "ABC"}
    pca = ep.FederatedPCA(2, secure=True, random_state=0).fit(three)
    assert pca.solver_ == "gram"
    assert {row["solver"] for row in pca.solver_choice_} == {"gram", "krylov"}
