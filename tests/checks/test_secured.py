"""Every solver that only sums, with secured sums: the same rounds and the same answer; the others are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError, PolicyError, TooFewSitesError
from eigenpact.estimators.plans import plan_of
from eigenpact.estimators.registry import solvers_for
from eigenpact.numerics.metrics import largest_sine
from tests.engines.faulty import FaultyEngine, Schedule

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(300, 24)) * np.geomspace(5, 0.2, 24) @ RNG.normal(size=(24, 24)) + np.linspace(-3, 3, 24)
SITES = {name: TABLE[i::5] + 0.1 * i for i, name in enumerate("ABCDE")}
JOINT = solvers_for("FederatedPCA")
SHOWN = {name: sorted(set(plan_of(solver(), 9, 3).kinds) - {"sum", "local"}) for name, solver in JOINT.items()}
ONLY_SUMS = [name for name, shown in SHOWN.items() if not shown or name == "faps"]


def pair(estimator: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
    """Plain and secured, from the same start."""
    fitted = (estimator(*args, random_state=0, secure=secure, **options).fit(SITES) for secure in (False, True))
    return tuple(fitted)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ONLY_SUMS)
@pytest.mark.parametrize("center", ["pooled", "site", False])
def test_rounds_and_answer_are_those_of_plain_sums(name: str, center: Any) -> None:
    solver = ep.solvers.FAPS(start="random") if name == "faps" else name
    plain, secured = pair(ep.FederatedPCA, 3, solver=solver, center=center, scale="pooled" if center == "site" else None)
    assert secured.n_rounds_ == plain.n_rounds_
    assert secured.n_setup_rounds_ == plain.n_setup_rounds_ + 2  # keys, roster
    assert secured.converged_
    assert largest_sine(plain.components_.T, secured.components_.T) <= 1e-10
    np.testing.assert_allclose(secured.explained_variance_, plain.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(secured.mean_, plain.mean_, rtol=1e-13)
    assert secured.n_samples_seen_ == 300


@pytest.mark.parametrize("name", sorted(set(JOINT) - set(ONLY_SUMS)))
def test_solvers_that_show_single_replies_are_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"secure=True: solver '{name}' uses '{SHOWN[name][0]}', which shows single .*; use "):
        ep.FederatedPCA(3, solver=name, secure=True).fit(SITES)


def test_what_is_asked_for_besides_is_refused_too() -> None:
    for solver in (ep.solvers.Krylov(start="one-shot"), ep.solvers.Krylov(proxy="A")):
        with pytest.raises(InputError, match=r"shows single replies; use (start='random'|public rows as proxy)"):
            ep.FederatedPCA(3, solver=solver, secure=True).fit(SITES)
    with pytest.raises(InputError, match="'max', which shows single replies; use solver='varpro'"):
        ep.PersonalizedPCA(1, 1, solver=ep.solvers.PerPCA(start="random"), secure=True).fit(SITES)
    with pytest.raises(InputError, match="tell_shares=False"):
        ep.RobustPCA(2, tell_shares=True, secure=True).fit(SITES)
    with pytest.raises(InputError, match=r"secure='yes' must be True, False or an instance"):
        ep.FederatedPCA(3, secure="yes").fit(SITES)
    with pytest.raises(InputError, match="min_apart=-1 must be a whole number >= 0"):
        ep.Secured(min_apart=-1)


def test_a_default_start_that_shows_replies_is_replaced() -> None:
    secured = ep.FederatedPCA(3, solver="faps", secure=True, random_state=0).fit(SITES)
    assert {m.function for m in secured.ledger_}.isdisjoint({"leading_directions", "leading_part"})
    assert largest_sine(secured.components_.T, ep.FederatedPCA(3, solver="gram").fit(SITES).components_.T) < 1e-5


def test_personalized_and_robust_pca() -> None:
    start = ep.solvers.VarPro(start="random")
    plain, secured = pair(ep.PersonalizedPCA, 1, 2, solver=start, validation_fraction=0.2)
    assert plain.n_rounds_ == secured.n_rounds_
    assert largest_sine(plain.components_.T, secured.components_.T) <= 1e-8
    assert secured.misalignment_ == pytest.approx(plain.misalignment_, rel=1e-9)
    assert secured.validation_error_ == pytest.approx(plain.validation_error_, rel=1e-9)
    for options in ({}, {"solver": "dcf", "max_rounds": 20}, {"rank": "upper", "scale": "robust"}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # twenty rounds are not enough, which is not the point
            plain, secured = pair(ep.RobustPCA, 3, **options)
        assert plain.n_rounds_ == secured.n_rounds_
        assert largest_sine(plain.components_.T, secured.components_.T) <= 1e-10


def test_one_and_two_sites_are_refused() -> None:
    for few in ({"A": SITES["A"]}, {name: SITES[name] for name in "AB"}):
        with pytest.raises(
            PolicyError,
            match=rf"rule min_participants = 3: the roster has {len(few)} site.*give three sites or more, or leave out --secure",
        ):
            ep.FederatedPCA(3, secure=True).fit(few)


def test_sums_are_exact_whatever_the_order_of_sites() -> None:
    """Other names, other order: the same bits."""
    one = ep.FederatedPCA(3, secure=True, random_state=0, solver="krylov").fit(SITES)
    renamed = dict(zip("ZYXWV", SITES.values(), strict=True))
    other = ep.FederatedPCA(3, secure=True, random_state=0, solver="krylov").fit(renamed)
    assert one.components_.tobytes() == other.components_.tobytes()
    assert one.mean_.tobytes() == other.mean_.tobytes()


def test_uneven_units_are_right_or_told() -> None:
    """Fixed numbers are a share of the trace: beside a feature 1e9 times larger few digits are left, which is told."""
    units = np.ones(24)
    units[0] = 1e9
    sites = {name: X * units for name, X in SITES.items()}
    exact = ep.FederatedPCA(3, solver="gram").fit(sites)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        for solver in ("gram", "krylov"):
            secured = ep.FederatedPCA(3, solver=solver, secure=True, random_state=0).fit(sites)
            sine = largest_sine(exact.components_.T, secured.components_.T)
            assert sine < 1e-7 or secured.angle_estimate_ is None or secured.angle_estimate_ > sine / 3


def test_ledger_says_what_was_secured_and_never_holds_a_plain_reply() -> None:
    secured = ep.FederatedPCA(3, solver="krylov", secure=True, random_state=0).fit(SITES)
    replies = [m for m in secured.ledger_ if m.receiver == "coordinator" and not m.function.startswith("session_")]
    assert replies
    assert all("secured" in m.note and set(m.dtypes) == {"uint64"} for m in replies)


def test_a_lost_site_stops_the_run_unless_that_was_agreed() -> None:
    def engine() -> FaultyEngine:
        return FaultyEngine(schedule=Schedule(fates={"C": ("dies", 6, 1.0)}))

    options = {"solver": "krylov", "random_state": 0}
    with pytest.raises(TooFewSitesError, match=r"lost C .*: sums are secured, and going on without C would show what only C has"):
        ep.FederatedPCA(3, secure=True, engine=engine(), **options).fit(SITES)
    rest = ep.FederatedPCA(3, secure=ep.Secured(min_apart=1), engine=engine(), **options).fit(SITES)
    assert rest.sites_ == tuple("ABDE")
    assert "from here on the part of C can be computed, as a difference of sums" in {m.note for m in rest.ledger_}
    exact = ep.FederatedPCA(3, solver="gram").fit({name: SITES[name] for name in "ABDE"})
    assert largest_sine(exact.components_.T, rest.components_.T) < 1e-8
    with pytest.raises(TooFewSitesError, match="sums are secured"):
        ep.FederatedPCA(3, secure=ep.Secured(min_apart=2), engine=engine(), **options).fit(SITES)
