"""The audit: attacks on simulated runs reach the bars, fail where they must, and no verdict calls anything safe."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.privacy import VERDICTS, Recorded, attack_replies, audit_ledger
from eigenpact.privacy.audit import all_secured
from eigenpact.report.auditing import made_up, simulate, true_scatters
from eigenpact.runtime import COORDINATOR, Ledger

D = 12
ROWS = {"A": 30, "B": 25, "C": 20}
SOUNDS_SAFE = re.compile(r"\b(safe|private|anonymous|protected|secure)\b", re.IGNORECASE)


def estimator(solver: Any, k: int = 2, **options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(k, solver=solver, random_state=0, **options)


def of(told: Any, attack: str, site: str | None = None) -> Any:
    (found,) = told.of(attack, site)
    return found


@pytest.mark.parametrize("solver", ["subspace", "krylov", "gram"])
def test_the_scatter_is_computed_once_blocks_span(solver: str) -> None:
    """To 1e-8 for every site, and not before: on the way down the curve there are rounds that are far off."""
    told = ep.audit(estimator(solver, tol=1e-6), made_up(ROWS, D), sums=False)
    for site in ROWS:
        found = of(told, "products, symmetric", site)
        assert found.verdict == "computed"
        assert found.error <= 1e-8
        assert found.baseline > 0.1
        assert found.energy == pytest.approx(1.0)
        if solver != "gram":
            assert found.curve[0][1] > 0.05


def test_too_few_columns_compute_a_part() -> None:
    """One round of 2 + 4 columns for 30 features: neither recovery is near, and the verdict says so."""
    told = ep.audit(estimator("krylov", max_rounds=1), made_up(ROWS, 30), sums=False)
    for attack in ("products, minimum norm", "products, symmetric"):
        found = of(told, attack, "A")
        assert found.verdict == "computed in part"
        assert found.error > 0.1
        assert found.energy == pytest.approx(1 - found.error**2)


def test_faps_is_fitted_with_thirty_features() -> None:
    """To 1e-6, where products alone leave 10 % or more; the first message tells its product."""
    options = {"tol": 0, "max_rounds": 15}
    told = ep.audit(
        estimator(ep.solvers.FAPS(start="random"), 4, **options), made_up({"A": 90, "B": 120, "C": 150}, 30), sums=False
    )
    assert of(told, "FAPS, simulated site", "A").error <= 1e-6
    assert of(told, "products, symmetric", "A").error > 0.1
    assert of(told, "FAPS, first message", "A").error <= 1e-10
    assert of(told, "FAPS, simulated site", "B").verdict == "no attack tried"


def test_faps_is_not_fitted_to_too_few_rounds() -> None:
    """One round gives fewer equations than unknowns: not by this attack, which is all that is said."""
    told = ep.audit(estimator(ep.solvers.FAPS(start="random"), max_rounds=2), made_up(ROWS, 20), sums=False)
    found = of(told, "FAPS, simulated site", "A")
    assert found.verdict == "not by this attack"
    assert found.error is None


def test_one_message_of_a_one_shot_solver_tells_the_leading_part() -> None:
    """The error is that of the best rank-2 approximation, from the singular values of the rows."""
    sites = made_up(ROWS, D)
    found = of(ep.audit(estimator("one-shot"), sites, sums=False), "one-shot truncation", "A")
    values = np.linalg.svd(sites["A"] - np.concatenate(list(sites.values())).mean(axis=0), compute_uv=False) ** 2
    assert found.error == pytest.approx(np.linalg.norm(values[2:]) / np.linalg.norm(values), rel=1e-9)
    assert found.verdict == "computed in part"


@pytest.fixture(scope="module")
def gram_audit() -> Any:
    return ep.audit(estimator("gram"), made_up(ROWS, D))


def test_attacks_on_sums_reach_their_bars(gram_audit: Any) -> None:
    """The smallest site, C: lost 1e-12, one row 1e-10; three sites do not have one another's part."""
    assert of(gram_audit, "lost site", "C").error <= 1e-12
    assert of(gram_audit, "one row more", "C").error <= 1e-10
    assert of(gram_audit, "sums alone").verdict == "computed"
    assert of(gram_audit, "two sites").verdict == "not by this attack"
    assert of(gram_audit, "unequal arguments").verdict == "not by this attack"  # gram is sent no block
    assert of(gram_audit, "rare features").verdict == "no attack tried"  # rows are no counts


def test_a_lost_site_of_a_short_run_is_told_in_part() -> None:
    """Where sums do not tell C, their difference does not tell C_i: but rows and mean remain."""
    told = ep.audit(estimator("krylov", max_rounds=1), made_up(ROWS, 30))
    found = of(told, "lost site", "C")
    assert found.verdict == "computed in part"
    assert found.error > 0.1
    assert "20 rows and its mean" in found.sentence


@pytest.mark.parametrize("options", [{}, {"center": "site"}, {"scale": "pooled"}, {"center": False}])
def test_unequal_arguments_tell_a_product(options: dict[str, Any]) -> None:
    """Measured against the true scatter, however rows are centred and scaled."""
    assert of(ep.audit(estimator("krylov", **options), made_up(ROWS, D)), "unequal arguments", "C").error <= 1e-12


@pytest.mark.parametrize("options", [{}, {"center": "site"}, {"scale": "pooled"}, {"center": False}])
def test_centring_and_scaling_hide_neither_a_row_nor_a_lost_site(options: dict[str, Any]) -> None:
    """A model of rows centred by site publishes its mean, too; where nothing is centred, set-up sums tell the row."""
    told = ep.audit(estimator("gram", **options), made_up(ROWS, D))
    assert of(told, "one row more", "C").error <= 1e-10
    lost = of(told, "lost site", "C")
    assert lost.verdict == "computed"
    assert lost.error <= 1e-12
    assert ("its scatter was not looked for" in lost.sentence) == ("scale" in options)


def test_rows_of_any_kind_are_audited() -> None:
    """Sparse and single precision: the same verdicts, measured against float64."""
    import scipy.sparse

    rng = np.random.default_rng(7)
    dense = {name: rng.normal(size=(n, 6)).astype(np.float32) for name, n in ROWS.items()}
    for sites in (dense, {name: scipy.sparse.csr_array(X) for name, X in dense.items()}):
        told = ep.audit(estimator("gram"), sites)
        assert max(one.error for one in told.of("set-up")) <= 1e-12
        assert max(one.error for one in told.of("products, symmetric")) <= 1e-12


def test_one_site_alone() -> None:
    """Every sum is its own reply."""
    told = ep.audit(estimator("gram"), made_up({"A": 30}, D))
    assert of(told, "two sites").verdict == "could be computed"
    assert of(told, "lost site").verdict == "no attack tried"


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_two_sites_have_no_secrets(solver: str) -> None:
    told = ep.audit(estimator(solver), made_up({"A": 30, "B": 25}, D), secured=True)
    assert of(told, "two sites", "B").error <= 1e-8
    assert of(told, "products, symmetric", "B").error is None


def test_rare_features_of_counts() -> None:
    """Sums of counts hold the rows of those who alone carry a feature; where all are common there are none."""
    rng = np.random.default_rng(6)
    X = rng.integers(0, 3, size=(60, 20)).astype(float)
    common = of(ep.audit(estimator("gram"), {"A": X[:20], "B": X[20:40], "C": X[40:]}), "rare features")
    assert common.verdict == "not by this attack"
    X[:, :3] = 0
    X[[4, 30, 50], [0, 1, 2]] = 1
    rare = of(ep.audit(estimator("gram"), {"A": X[:20], "B": X[20:40], "C": X[40:]}), "rare features")
    assert rare.verdict == "computed"
    assert rare.sentence.startswith("3 columns of rare features hold complete rows, of 3 people")


def test_secured_replies_leave_the_aggregate_only() -> None:
    """Single replies tell nothing; lost site, one row more and the aggregate remain."""
    told = ep.audit(estimator("krylov").set_params(secure=True), made_up(ROWS, D))
    assert told.secured
    for site in ROWS:
        for attack in ("set-up", "products, symmetric", "products, minimum norm"):
            found = of(told, attack, site)
            assert found.verdict == "not by this attack"
            assert "the aggregate only" in found.sentence
            assert found.error is None
    assert of(told, "lost site").verdict == of(told, "one row more").verdict == of(told, "sums alone").verdict == "computed"
    unequal = of(told, "unequal arguments")
    assert unequal.verdict == "not by this attack"
    assert unequal.error > 1


def noted(ledger: Ledger, masked: Any) -> Ledger:
    """The same ledger with the note "secured" on what sites sent, where ``masked`` says so."""
    made = Ledger()
    for m in ledger:
        note = "secured" if m.sender != COORDINATOR and masked(m) else m.note
        made.sent(m.round, m.epoch, m.step, m.function, [m.sender], [m.receiver], (m.shapes, m.dtypes, m.bytes), note)
    return made


def test_what_is_secured_stands_in_the_ledger_message_by_message() -> None:
    """One reply that is not masked is attacked, whatever the rest is."""
    sites = made_up(ROWS, D)
    run = simulate(estimator("krylov"), sites)
    truth = true_scatters(estimator("krylov"), sites)
    whole, but_setup = noted(run.ledger, lambda _: True), noted(run.ledger, lambda m: m.note != "setup")
    assert (all_secured(whole), all_secured(but_setup)) == (True, False)
    for ledger, told in ((whole, "not by this attack"), (but_setup, "computed")):
        found = list(attack_replies(Recorded(run.heard, ledger, D, truth)))
        assert {one.verdict for one in found if one.attack == "set-up"} == {told}
        assert {one.verdict for one in found if one.attack == "products, symmetric"} == {"not by this attack"}
        counted = audit_ledger(ledger)
        expected = "could be computed" if told == "computed" else told
        assert {one.verdict for one in counted.of("set-up")} == {expected}
        assert {one.verdict for one in counted.of("products, symmetric")} == {"not by this attack"}


def test_a_ledger_alone_is_counted() -> None:
    """Columns against features: enough, or a part; nothing was measured."""
    sites = made_up(ROWS, D)
    many = ep.audit(estimator("krylov").fit(sites))
    assert (many.mode, many.n_features, many.sites) == ("ledger", D, ("A", "B", "C"))
    assert {one.verdict for one in many.of("products, symmetric")} == {"could be computed"}
    assert all(one.error is None for one in many.findings)
    with pytest.warns(ep.errors.NotConvergedWarning):
        few = ep.audit(estimator("krylov", max_rounds=1).fit(made_up(ROWS, 30)).ledger_)
    assert few.n_features == 30
    assert {one.verdict for one in few.of("products, symmetric")} == {"could be computed in part"}
    assert of(few, "products, symmetric", "A").sentence.startswith("It answered 6 columns of products with C_i, of 30 features")


def test_rosters_of_a_ledger() -> None:
    """A site that left is the difference of two rosters, also where sums were secured; two that left together are not."""

    def run(*rosters: str) -> Any:
        ledger = Ledger()
        for epoch, roster in enumerate(rosters):
            ledger.sent(
                1, epoch, 1, "count_and_sum", list(roster), [COORDINATOR], (((), (), (), (4,)), ("int64",) * 4, 56), "secured"
            )
        return audit_ledger(ledger)

    assert [one.site for one in run("ABCD", "ABC").of("lost site")] == ["D"]
    assert [one.verdict for one in run("ABCD", "ABC").of("lost site")] == ["could be computed"]
    assert [one.verdict for one in run("ABCD", "AB").of("lost site")] == ["not by this attack"]
    assert [one.verdict for one in run("AB").of("two sites")] == ["could be computed"]
    assert [one.verdict for one in run("ABC").of("two sites")] == ["not by this attack"]


def test_unknown_messages_are_named() -> None:
    """What no attack reads is listed, in both modes: silence would pass for an answer."""
    sites = made_up(ROWS, D)
    simulated = ep.audit(estimator(ep.solvers.LocalPower(q=3), tol=1e-2), sites, sums=False)
    assert of(simulated, "local_power", "A").verdict == "no attack tried"
    other = ep.PersonalizedPCA(1, 1, random_state=0).fit(sites)
    assert "no attack tried" in {one.verdict for one in ep.audit(other).findings}


@pytest.mark.parametrize("solver", ["krylov", "faps", "one-shot", "hot-potato", "localpower"])
def test_no_verdict_sounds_safe(solver: str) -> None:
    """Words are from a short list, sentences use none that promise; JSON holds all of it."""
    told = ep.audit(estimator(solver), made_up(ROWS, 6))
    assert {one.verdict for one in told.findings} <= set(VERDICTS)
    for one in told.findings:
        assert not SOUNDS_SAFE.search(f"{one.verdict} {one.sentence}".replace("secured", "")), one.sentence
        assert one.sentence.endswith(".")
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))["findings"][0]["site"] == "A"


def test_what_cannot_be_audited() -> None:
    with pytest.raises(ep.errors.InputError, match="FederatedPCA is not fitted and has no ledger"):
        ep.audit(ep.FederatedPCA(2))
    with pytest.raises(ep.errors.InputError, match="PersonalizedPCA is not attacked by this audit"):
        ep.audit(ep.PersonalizedPCA(1, 1), made_up(ROWS, D))
    with pytest.raises(ep.errors.InputError, match="does not tell how many features"):
        ep.audit(Ledger())


@pytest.mark.skipif("not __import__('os').environ.get('EIGENPACT_DATA')", reason="needs EIGENPACT_DATA")
def test_rare_features_and_membership_of_genomes() -> None:
    """Three populations of one continent: rows of 20 or more people in columns, and members told by the mean."""
    data = ep.datasets.genomes()
    part = np.asarray(data.y) == "AFR"
    X, names = data.X[part].astype(float), np.asarray(data.groups["population"])[part]
    copies = np.minimum(X.sum(axis=0), 2 * len(X) - X.sum(axis=0))
    kept = np.sort(np.concatenate([np.flatnonzero((copies > 0) & (copies <= 2)), np.flatnonzero(copies > 60)[:200]]))
    told = ep.audit(estimator("gram"), X[:, kept], sites=names)
    rows, people = map(int, re.findall(r"\d+", of(told, "rare features").sentence)[:2])
    assert rows >= 40
    assert people >= 20


def test_the_ledger_of_a_secured_run_is_counted_by_its_rounds_and_replies() -> None:
    """Keys and digests tell nothing of rows, and rounds of set-up are none of the solver's."""
    pca = estimator("gram").set_params(secure=True).fit(made_up(ROWS, D))
    told = ep.audit(pca)
    assert (told.secured, told.n_rounds) == (True, pca.n_rounds_)
    assert not {"session_key", "session_roster"} & {one.attack for one in told.findings}
    assert {one.verdict for one in told.of("set-up")} == {"not by this attack"}
