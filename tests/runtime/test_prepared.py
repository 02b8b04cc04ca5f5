"""Rows that sites prepare by agreed steps: the same bits by message, after a resume, in a new process; and what a site allows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.algorithms.preparing import Preparer
from eigenpact.cli.site_settings import read_policy
from eigenpact.errors import InputError, PolicyError
from eigenpact.estimators.plans import functions_of
from eigenpact.numerics.preparation import KINDS, Step, flat, prepared, unflat
from eigenpact.runtime.memory import pack_memory, unpack_memory
from eigenpact.runtime.prepared import SeenRows, kept_as, steps_of
from tests.attacks.coordinator import Coordinator, Refused, Victim
from tests.attacks.lasting import Lasting
from tests.engines.faulty import FaultyEngine, Schedule

D = 8
TABLES = {
    name: np.random.default_rng(i).poisson(np.linspace(1, 9, D) + i, size=(40 + i, D)).astype(float)
    for i, name in enumerate("ABC")
}
GENOTYPES = {name: np.minimum(X, 2.0) for name, X in TABLES.items()}
for _G in GENOTYPES.values():
    _G[::7, 1] = np.nan
WAYS = {
    "cells": (TABLES, (ep.prepare.LogNormalize("median"), ep.prepare.HighlyVariable(6), ep.prepare.Scale(max_value=2.0))),
    "robust": (TABLES, (ep.prepare.Scale("robust"),)),
    "quartiles": (TABLES, (ep.prepare.Scale("iqr"),)),
    "genotypes": (GENOTYPES, (ep.prepare.GenotypeScale(),)),
    "batches": (TABLES, (ep.prepare.BatchAdjust(),)),
    "covariates": (TABLES, (ep.prepare.Residualize([2, 5]),)),
}
EXACT = {"exact_replies": True, "min_rows": 1}


def pca(prepare, **options):
    return ep.FederatedPCA(2, **{"solver": "krylov", "max_rounds": 50, "random_state": 0, "prepare": prepare} | options)


def listed(prepare):
    """The rules of a site that lists what these preparers need."""
    return EXACT | {"functions": [*read_policy(None).functions, *ep.prepare.functions(prepare)]}


def bits(found):
    arrays = [found.components_, found.explained_variance_, found.mean_, *flat(found.preparation_, "p").values()]
    return [np.ascontiguousarray(a).tobytes() for a in arrays]


@pytest.mark.parametrize("way", WAYS)
def test_sites_that_answer_by_message_give_the_same_bits(tmp_path, way):
    tables, prepare = WAYS[way]
    plain = pca(prepare).fit(tables)
    assert bits(pca(prepare, engine=Lasting(tmp_path, listed(prepare))).fit(tables)) == bits(plain)
    assert [step.kind for step in plain.preparation_] == [step.kind for step in pca(prepare).fit(tables).preparation_]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_fit_did_to_rows_transform_does_to_the_bit(way):
    tables, prepare = WAYS[way]
    found = pca(prepare).fit(tables)
    seen = {}

    class Looking:
        """Keeps what local functions see in the end."""

        spread, costs, min_sites = False, ep.engines.InProcess().costs, 1

        def execute(self, held, job, graph=None):  # noqa: ARG002
            from eigenpact.runtime.site import SiteServer

            asked = SiteServer._answer

            def answer(server, request, function, sizes):
                reply = asked(server, request, function, sizes)
                seen[server.name] = server._seen.given(server._kept)
                return reply

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(SiteServer, "_answer", answer)
                return ep.engines.InProcess(threads=1).execute(held, job)

    pca(prepare, engine=Looking()).fit(tables)
    for name, X in tables.items():
        steps = found.for_site(X).preparation_
        assert prepared(X, steps).tobytes() == seen[name].tobytes()
        assert prepared(X[3:4], steps).tobytes() == seen[name][3:4].tobytes()  # alone as beside others
        assert prepared(np.asfortranarray(X), steps).tobytes() == seen[name].tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_secured_sums_give_the_same_steps(way):
    tables, prepare = WAYS[way]
    plain, secured = pca(prepare).fit(tables), pca(prepare, secure=True).fit(tables)
    for one, other in zip(plain.preparation_, secured.preparation_, strict=True):
        assert one.kind == other.kind
        for name, array in one.arrays.items():
            np.testing.assert_allclose(array, other.arrays[name], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(plain.explained_variance_, secured.explained_variance_, rtol=1e-9)


@pytest.mark.parametrize("secure", [False, True])
def test_a_run_that_is_resumed_prepares_them_again(tmp_path, secure):
    def stop(_record):
        raise KeyboardInterrupt

    tables, prepare = WAYS["cells"]
    with pytest.raises(KeyboardInterrupt):
        pca(prepare, journal=tmp_path / "journal", callback=stop, secure=secure).fit(tables)
    found = pca(prepare, journal=tmp_path / "journal", secure=secure).fit(tables)
    assert bits(found) == bits(pca(prepare, secure=secure).fit(tables))


def test_a_journal_of_other_preparation_is_refused(tmp_path):
    tables, prepare = WAYS["cells"]
    pca(prepare, journal=tmp_path / "journal").fit(tables)
    with pytest.raises(ep.errors.JournalError, match="prepare"):
        pca(prepare[:2], journal=tmp_path / "journal").fit(tables)


def test_after_a_site_is_lost_the_steps_are_those_of_the_others():
    tables, prepare = WAYS["cells"]
    lost = pca(prepare, engine=FaultyEngine(schedule=Schedule(fates={"B": ("hangs for good", 12, 0.0)}), min_sites=2)).fit(tables)
    assert lost.sites_ == ("A", "C")
    alone = pca(prepare).fit({name: tables[name] for name in "AC"})
    assert bits(lost)[3:] == bits(alone)[3:]


# -- what a site allows -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_site_that_does_not_list_the_functions_refuses_by_name(tmp_path, way):
    tables, prepare = WAYS[way]
    with pytest.raises(PolicyError, match=r"rule prepare: rows of this site may not be prepared by '[a-z-]+'; leave it out"):
        pca(prepare, engine=Lasting(tmp_path, EXACT)).fit(tables)


def test_no_solver_brings_them_into_a_policy():
    own = {name for preparer in (w for _, some in WAYS.values() for w in some) for name in ep.prepare.functions([preparer])}
    assert own
    shared = {"eigenpact:count_parts/1"}  # RobustPCA's too, which has them in its set-up
    for solver in ("gram", "krylov", "auto", "shrinking", "varpro"):
        assert not (own - shared) & set(functions_of(solver))
    assert not own & set(read_policy(None).functions) - shared


def test_with_a_rule_for_few_rows_the_rest_is_agreed_on_all_the_same(tmp_path):
    tables, prepare = WAYS["genotypes"]
    rare = {name: np.array(G) for name, G in tables.items()}
    rare["B"][:, 4] = np.nan
    rare["B"][:3, 4] = 1.0
    rules = listed(prepare) | {"min_rows": 10}
    found = pca(prepare, engine=Lasting(tmp_path, rules)).fit(rare)
    others = np.concatenate([rare["A"][:, 4], rare["C"][:, 4]])  # what B has is too little to tell of
    assert np.isclose(found.preparation_[0].arrays["centre"][4], np.nanmean(others))
    (tmp_path / "m").mkdir()
    median = pca(WAYS["cells"][1], engine=Lasting(tmp_path / "m", listed(WAYS["cells"][1]) | {"min_rows": 10})).fit(TABLES)
    exact = np.median(np.concatenate([X.sum(axis=1) for X in TABLES.values()]))
    assert abs(float(median.preparation_[0].arrays["target"]) / exact - 1) < 0.2


def hostile(tmp_path, way, **rules):
    tables, prepare = WAYS[way]
    return Coordinator(Victim(tables["B"], tmp_path, listed(prepare) | rules))


def test_a_step_is_agreed_on_once_in_an_epoch(tmp_path):
    c = hostile(tmp_path, "cells")
    c.call("keep_target", np.float64(10.0), kind="local")
    with pytest.raises(Refused, match="what keep_target tells was agreed in this epoch already"):
        c.call("keep_target", np.float64(1e9), kind="local")
    c.begin_anew()
    c.call("keep_target", np.float64(20.0), kind="local")
    _, _, n, sums = c.call("count_and_sum")
    assert np.allclose(sums / n, np.log1p(TABLES["B"] * 20 / TABLES["B"].sum(axis=1, keepdims=True)).mean(axis=0))


def test_what_was_found_of_the_rows_before_is_not_used_after(tmp_path):
    """A coordinator that leaves the second round out: products are about the mean of the rows as they are."""
    X = TABLES["B"]
    c = hostile(tmp_path, "cells")
    _, _, n, sums = c.call("count_and_sum")
    c.call("spread", sums / n)
    c.call("keep_target", np.float64(10.0), kind="local")
    Y = np.log1p(X * 10 / X.sum(axis=1, keepdims=True))
    Y = Y - Y.mean(axis=0)
    c.call("keep_centre", np.zeros(D), np.ones(D), np.float64(1e6), kind="local")
    (G,) = c.call("scatter_action", np.eye(D)[:, :1])
    whole = np.log1p(X * 10 / X.sum(axis=1, keepdims=True))
    assert np.allclose(G[:, 0], whole.T @ whole[:, 0], rtol=1e-9)


@pytest.mark.parametrize(
    ("way", "function", "args", "said"),
    [
        ("cells", "keep_target", (np.float64(-1.0),), "positive"),
        ("cells", "keep_target", (np.float64(np.nan),), "not finite"),
        ("cells", "keep_scale", (np.zeros(D), np.zeros(D), np.float64(1), np.bool_(False)), "positive"),
        ("genotypes", "keep_genotypes", (np.zeros(D), -np.ones(D)), "negative"),
        ("covariates", "keep_slopes", (np.array([0.5]), np.zeros(1), np.zeros((1, D))), "whole number"),
        ("covariates", "keep_slopes", (np.array([0]), np.zeros(1), np.full((1, D), np.inf)), "not finite"),
    ],
)
def test_numbers_that_cannot_be_what_they_are_said_to_be_are_refused(tmp_path, way, function, args, said):
    with pytest.raises(Refused, match=f"rule arguments.*{said}"):
        hostile(tmp_path, way).call(function, *args, kind="local")


def test_counts_of_totals_go_along_the_digits_alone(tmp_path):
    c = hostile(tmp_path, "cells")
    c.call("count_totals", np.zeros(2, np.uint64), np.int64(0))
    with pytest.raises(Refused, match="rule set-up: entries are counted once in an epoch"):
        c.call("count_totals", np.zeros(2, np.uint64), np.int64(0))
    with pytest.raises(Refused, match="rule set-up"):
        c.call("count_totals", np.array([64 << 8, 64 << 8], np.uint64) + np.uint64(300), np.int64(2))


@pytest.mark.parametrize("column", [np.array([D]), np.array([0.0])])
def test_columns_that_do_not_exist_are_an_error_and_nothing_is_kept(tmp_path, column):
    c = hostile(tmp_path, "covariates")
    with pytest.raises(Refused, match="numbers of columns are to be whole, from 0 to 7"):
        c.call("covariate_pairs", column)
    with pytest.raises(Refused, match="numbers of columns"):
        c.call("keep_slopes", column, np.zeros(1), np.ones((1, D)), kind="local")
    *_, sums = c.call("count_and_sum")
    assert np.allclose(sums, TABLES["B"].sum(axis=0))


# -- steps ------------------------------------------------------------------------------------------


def test_steps_are_seen_in_the_order_in_which_they_were_kept_also_by_another_process():
    kept = {kept_as("columns"): {"kept": np.arange(D) < 5}, kept_as("fill"): {"values": np.ones(D)}, "own": None}
    again = unpack_memory(pack_memory(kept))
    assert [step.kind for step in steps_of(kept)] == [step.kind for step in steps_of(again)] == ["columns", "fill"]
    X = np.where(np.eye(3, D) > 0, np.nan, 2.0)
    assert SeenRows(X).given(kept).tobytes() == SeenRows(X).given(again).tobytes()


def test_rows_are_prepared_once_and_anew_where_steps_are_others():
    rows = SeenRows(np.full((4, D), 2.0))
    first = {kept_as("fill"): {"values": np.ones(D)}}
    assert rows.given(first) is rows.given({**first, "mean": None})
    assert rows.given({}) is rows._X
    second = {kept_as("columns"): {"kept": np.arange(D) < 5}}
    assert rows.given(second)[:, 5:].sum() == 0


def test_a_step_that_failed_and_must_not_tell_changes_nothing():
    assert steps_of({kept_as("fill"): None}) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_refuses_arrays_that_are_not_its_own(kind):
    with pytest.raises(InputError, match=f"{kind!r} has the arrays other; it needs"):
        Step(kind, {"other": np.ones(2)})
    wrong = {name: np.ones((2,) * (len(axes.split()) + 1)) for name, axes in KINDS[kind].axes.items()}
    with pytest.raises(InputError, match="it is to be"):
        Step(kind, wrong)


def test_steps_are_carried_with_their_order_and_kinds():
    steps = (Step("columns", {"kept": np.arange(3) < 2}), Step("fill", {"values": np.ones(3)}))
    again = unflat(flat(steps, "p"), "p", [step.kind for step in steps])
    assert [step.kind for step in again] == ["columns", "fill"]
    assert np.array_equal(again[0].arrays["kept"], steps[0].arrays["kept"])
    with pytest.raises(InputError, match=r"rows cannot be prepared by 'other'; allowed are .*fill"):
        Step("other")


def test_sparse_rows_are_refused_by_a_step_that_would_fill_them():
    with pytest.raises(ep.errors.InputTypeError, match="cannot be prepared by 'genotypes', which would fill them"):
        Step("genotypes", {"centre": np.ones(3), "scale": np.ones(3)}).apply(scipy.sparse.csr_matrix(np.eye(3)))


def test_what_is_no_preparer_is_refused():
    with pytest.raises(InputError, match="prepare holds 'hvg', which prepares no rows"):
        ep.FederatedPCA(2, prepare=["hvg"]).fit(TABLES)
    assert all(isinstance(preparer, Preparer) for _, prepare in WAYS.values() for preparer in prepare)


def test_rows_prepared_by_a_kind_that_this_process_does_not_know_are_refused():
    """Not given out as they were: a site's next process may not have imported the package that a step is of."""
    kept = {kept_as("theirs: double"): {"factor": np.array([2.0])}}
    with pytest.raises(InputError, match="cannot be prepared by 'theirs: double'"):
        SeenRows(np.ones((2, 1))).given(kept)
