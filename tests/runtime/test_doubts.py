"""A coordinator notices lies: nine solvers against eleven lies, from the first reply, from a later one, or once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError, SiteError, SiteLeftOutWarning, TooFewSitesError
from eigenpact.runtime.doubts import Doubts
from tests.attacks.guarded import Guarded
from tests.attacks.honest import digits
from tests.attacks.lies import ALL_LIES, COMPONENTS, LIAR, SOLVERS, Liar, Lied, against, problem

NOTHING_TO_TELL = {("gram", "replay")}
"""Cases in which no reply could be changed: gram sends one product."""


def fitted(engine: Any, solver: str = "krylov", **options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(COMPONENTS, solver=solver, engine=engine, random_state=0, **options).fit(problem())


@pytest.mark.parametrize("lie", ALL_LIES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_lie_is_noticed_and_the_liar_left_out(solver: str, lie: str) -> None:
    """The answer is then exactly that of the others, and a warning names the site, the function and what is wrong."""
    ending = against(solver, Liar(lie))
    assert ending.what == ("not told" if (solver, lie) in NOTHING_TO_TELL else "left out"), ending.why
    assert ending.what == "not told" or f"site {LIAR!r} was left out: its reply of " in ending.why


@pytest.mark.parametrize("solver", SOLVERS)
def test_lies_after_an_honest_set_up(solver: str) -> None:
    for lie in ALL_LIES:
        for first in (3, 5):
            assert against(solver, Liar(lie, first)).what in ("left out", "not told"), (lie, first)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_lie_in_one_round_alone(solver: str) -> None:
    """Noticed, or of no consequence: what local steps and start say is confirmed by products."""
    for lie in ("flip", "asym", "huge", "replay", "steer"):
        for at in (3, 4, 6):
            ending = against(solver, Liar(lie, at, at))
            assert ending.what in ("left out", "not told", "harmless"), (lie, at, ending)


@pytest.mark.parametrize("solver", [solver for solver in SOLVERS if solver != "gram"])
def test_more_than_the_trace_is_noticed_by_narrow_blocks(solver: str) -> None:
    """Vector by vector all is in order; the vectors together are not."""
    for seed in range(3):
        ending = against(solver, Liar("more"), seed, components=1)
        assert ending.what == "left out", ending
        assert f"site {LIAR!r} was left out: its reply of " in ending.why


@pytest.mark.parametrize("center", ["site", False])
def test_lies_about_other_centres(center: Any) -> None:
    for lie in ALL_LIES:
        for scale in (None, "pooled"):
            assert against("krylov", Liar(lie), center=center, scale=scale).what in ("left out", "not told"), lie


def test_too_few_sites_without_the_liar() -> None:
    with pytest.raises(TooFewSitesError, match=r"lost E .its reply of scatter_action: .*min_sites is 5"):
        fitted(Lied(Liar("nan", first=3), min_sites=5))


def test_a_liar_is_in_the_ledger_and_does_not_come_back() -> None:
    with pytest.warns(SiteLeftOutWarning, match="the answer is that of A, B, C, D alone"):
        pca = fitted(Lied(Liar("flip", first=4, last=4)), "subspace")  # honest again from then on
    assert pca.sites_ == ("A", "B", "C", "D")
    events = [(m.sender, m.note) for m in pca.ledger_ if not m.function]
    assert len(events) == 1
    assert events[0][0] == LIAR
    assert events[0][1].startswith("lost: its reply of scatter_action")


def test_at_a_site_of_the_own_process_it_is_an_error() -> None:
    sites = problem() | {"B": np.full((4, 30), 1e200) * np.arange(4)[:, None]}
    told = "the reply of spread at site 'B': the squares of its values overflow"
    with pytest.raises(InputError, match=told), np.errstate(over="ignore"):
        ep.FederatedPCA(2, solver="gram").fit(sites)


def test_a_journal_remembers_who_lied_and_what_was_told(tmp_path: Path) -> None:
    """Whoever resumes a finished run is warned again; and traces told in the set-up bound what is told after a resume."""
    for _ in range(2):
        with pytest.warns(SiteLeftOutWarning, match="site 'E' was left out"):
            fitted(Lied(Liar("huge", first=4)), journal=tmp_path / "liar")

    def stop(_record: Any) -> None:
        raise KeyboardInterrupt

    engine = Lied(Liar("huge", first=10**6))
    with pytest.raises(KeyboardInterrupt):
        fitted(engine, journal=tmp_path / "stopped", callback=stop)
    engine.liar = Liar("huge")
    with pytest.warns(SiteLeftOutWarning, match="its reply of scatter_action: Z"):
        fitted(engine, journal=tmp_path / "stopped")


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace", "lanczos", "davidson"])
def test_sites_that_round_their_replies_are_not_doubted(solver: str) -> None:
    """Policies that round coarsely; a doubt would be a warning, and warnings are errors."""
    for bits in (24, 40):
        pca = ep.FederatedPCA(COMPONENTS, solver=solver, engine=Guarded({"reply_bits": bits}), random_state=0, max_rounds=100)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # of what such digits cannot tell
            assert pca.fit(problem()).sites_ == tuple("ABCDE")


@pytest.mark.parametrize("solver", ["subspace", "power", "localpower", "shift-invert"])
@pytest.mark.parametrize("bits", [14, 24, 40])
def test_no_honest_site_is_doubted_for_narrow_blocks(solver: str, bits: int) -> None:
    """Images of digits by label: columns without any variance, slow spectra, runs of hundreds of vectors."""
    sites, rules = digits(), {"reply_bits": bits, "solvers": [solver]}
    pca = ep.FederatedPCA(1, solver=solver, engine=Guarded(rules), random_state=0, tol=1e-9, max_rounds=150)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # of what such digits cannot tell
        assert pca.fit(sites).sites_ == tuple(sites)


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_of_sums_that_hide_their_terms_the_sum_is_looked_at(first: int) -> None:
    """Whoever changes a masked reply leaves what cannot be true of the sum; nobody can tell which site it was."""
    seen = 0

    def lie(arrays: Any) -> Any:
        nonlocal seen
        masked = bool(arrays) and all(a.dtype == np.uint64 for a in arrays)
        seen += masked
        return tuple(~a for a in arrays) if masked and seen >= first else arrays

    with pytest.raises(SiteError, match=r"the (secured )?sum of .*(sites|site)"):
        fitted(Lied(lie), secure=True)
    assert seen >= first


def test_secured_sums_of_honest_sites_are_not_doubted() -> None:
    assert fitted(Lied(lambda arrays: arrays), secure=True).converged_


@pytest.fixture
def too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room to remember products of single sites."""
    monkeypatch.setattr("eigenpact.runtime.doubts.FEW", 1)
    monkeypatch.setattr("eigenpact.runtime.doubts.MOST_REMEMBERED", 0)


@pytest.mark.usefixtures("too_many")
@pytest.mark.parametrize("solver", SOLVERS)
def test_of_sites_that_are_too_many_to_remember_the_sum_is_looked_at_too(solver: str) -> None:
    """What one reply alone cannot be is still its site's fault; what only contradicts earlier ones ends the run."""
    for lie in ALL_LIES:
        for first in (1, 4):
            ending = against(solver, Liar(lie, first))
            assert ending.what in ("left out", "refused", "not told"), (lie, first, ending)
            assert ending.what != "refused" or ending.why.startswith("the sum of "), ending


@pytest.mark.usefixtures("too_many")
def test_a_scatter_matrix_that_changes_is_seen_in_the_sum() -> None:
    """Every product is one of a scatter matrix of the trace that was told, but not of one and the same."""
    turned: list[Any] = []

    def other_rows(arrays: Any) -> Any:
        if not arrays or arrays[0].shape[1:] == () or arrays[0].dtype != np.float64:
            return arrays
        turned.append(arrays)
        return arrays if len(turned) % 2 else (turned[-1][0] * 0.5,)

    with pytest.raises(SiteError, match=r"the sum of scatter_action over A, B, C, D, E: it contradicts earlier replies"):
        fitted(Lied(other_rows))
    assert len(turned) > 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_honest_sites_are_not_doubted_however_many(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a coordinator remembers changes no bit of the answer."""
    engine, remembered = Lied(lambda arrays: arrays), []
    for few in (16, 1):
        monkeypatch.setattr("eigenpact.runtime.doubts.FEW", few)
        monkeypatch.setattr("eigenpact.runtime.doubts.MOST_REMEMBERED", 0)
        for scale, center in ((None, "pooled"), ("pooled", "site"), (None, False)):
            pca = ep.FederatedPCA(COMPONENTS, solver=solver, engine=engine, random_state=0, scale=scale, center=center)
            remembered.append((few, pca.fit(problem()).components_.tobytes(), pca.ledger_))
    assert [one[1:] for one in remembered[:3]] == [one[1:] for one in remembered[3:]]


@pytest.mark.usefixtures("too_many")
def test_a_journal_of_many_sites_is_resumed(tmp_path: Path) -> None:
    """The sums in it are looked at again, so that what comes later is held against them."""

    def stop(record: Any) -> None:
        if record.round == 2:
            raise KeyboardInterrupt

    engine = Lied(lambda arrays: arrays)
    with pytest.raises(KeyboardInterrupt):
        fitted(engine, journal=tmp_path / "stopped", callback=stop)
    engine.liar = lambda arrays: tuple(0.5 * a if a.ndim == 2 else a for a in arrays)
    with pytest.raises(SiteError, match="the sum of scatter_action over A, B, C, D, E: it contradicts earlier replies"):
        fitted(engine, journal=tmp_path / "stopped")
    engine.liar = lambda arrays: arrays
    assert fitted(engine, journal=tmp_path / "stopped").converged_


@pytest.mark.usefixtures("too_many")
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_after_set_up_a_coordinator_keeps_numbers_of_a_site_and_no_columns(scale: Any) -> None:
    kept: list[dict[str, Any]] = []
    found = Doubts.about

    def spied(self: Doubts, function: Any, who: str, *rest: Any) -> str:
        wrong = found(self, function, who, *rest)
        if function.short_name == "scatter_action" and who == "A":
            kept.append(self._facts.of(0))
            assert not self._facts.on_disk
        return wrong

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Doubts, "about", spied)
        fitted(ep.engines.InProcess(), scale=scale)
    assert kept
    assert all(isinstance(value, float) for facts in kept for value in facts.values()), kept[-1]
