"""Sites whose rows have holes, behind their gates: which runs they take part in, and what they answer before holes are filled."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bed_reader import to_bed

import eigenpact as ep
from eigenpact.algorithms.consensus.gram import scatter_triangle
from eigenpact.algorithms.missing.mean import keep_fill
from eigenpact.algorithms.setup import count_and_sum, keep_centre
from eigenpact.cli.site_settings import read_policy
from eigenpact.errors import EigenpactError, InputError, PolicyError
from eigenpact.estimators.plans import functions_of, functions_of_steps, functions_to_compare, functions_to_fill
from eigenpact.runtime import Gate, Plan, Site, SiteLedger, read_site_ledger
from eigenpact.runtime.holes import Holes
from eigenpact.runtime.local import _registry, own_modules
from eigenpact.runtime.site import Request, SiteServer
from tests.runtime.test_lacking import AGREED, Institutions

FILLS: dict[str, Any] = {
    "fill_missing": True,
    "solvers": (*read_policy(None).solvers, "em"),
    "functions": (
        *{
            *read_policy(None).functions,
            *functions_of("em"),
            *functions_to_fill(),
            *functions_to_compare(),
            *functions_of_steps(["scale", "genotypes"]),
        },
    ),
    "exact_replies": True,
    "min_rows": 5,
}


ONE = ep.engines.InProcess(threads=1)


def fitted(engine, rows=None, **asked):
    return ep.FederatedPCA(2, engine=engine, random_state=0, max_rounds=300, **asked).fit(rows)


@pytest.fixture
def tables(tmp_path):
    """B has holes, C lacks bmi."""
    rng = np.random.default_rng(2)
    mix = rng.normal(size=(2, 6)) * 3
    sizes = {"A": 40, "B": 30, "C": 25}
    rows = {name: np.round(rng.normal(size=(n, 2)) @ mix + rng.normal(size=(n, 6)) + 9, 3) for name, n in sizes.items()}
    rows["B"][rng.random((30, 6)) < 0.1] = np.nan
    return tmp_path, rows


def files(folder, rows, lacking=()):
    at = [j for j in range(6) if j not in lacking]
    paths = {}
    for name, X in rows.items():
        own = at if name == "C" else range(6)
        paths[name] = folder / f"{name}.csv"
        with paths[name].open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([AGREED[j] for j in own])
            writer.writerows([["" if np.isnan(x) else repr(float(x)) for x in row] for row in X[:, own]])
    return paths


@pytest.mark.parametrize(
    "asked",
    [
        {"missing": "mean"},
        {"missing": "mean", "secure": True},
        {"missing": "em"},
        {"missing": "em", "secure": True},
        {"missing": "mean", "prepare": (ep.prepare.Scale(),)},
    ],
)
def test_holes_at_one_site_are_filled_as_in_one_process(tables, asked):
    folder, rows = tables
    rules = FILLS | {"secure": "required" if "secure" in asked else "allowed"}
    there, here = fitted(Institutions(folder, files(folder, rows), **rules), **asked), fitted(ONE, rows, **asked)
    np.testing.assert_array_equal(there.components_, here.components_)
    np.testing.assert_array_equal(there.mean_, here.mean_)
    np.testing.assert_array_equal(there.transform(rows["B"]), here.transform(rows["B"]))


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_a_site_that_lacks_a_column_takes_part_in_a_union(tables, missing):
    folder, rows = tables
    there = fitted(Institutions(folder, files(folder, rows, lacking=[1]), **FILLS), features="union", missing=missing)
    rows["C"][:, 1] = np.nan
    here = fitted(ONE, rows, missing=missing)
    np.testing.assert_array_equal(there.components_, here.components_)


def test_missing_genotypes_of_plink_files_are_filled_by_their_scaling(tmp_path):
    rng = np.random.default_rng(0)
    sites = {name: rng.binomial(2, [0.2, 0.5, 0.4, 0.3], size=(30, 4)).astype(float) for name in "ABC"}
    for G in sites.values():
        G[rng.random(G.shape) < 0.1] = np.nan
    properties = {"sid": ["rs1", "rs2", "rs3", "rs4"], "chromosome": ["1"] * 4, "bp_position": [10, 20, 30, 40]}
    alleles = {"allele_1": ["A"] * 4, "allele_2": ["G"] * 4}
    for name, G in sites.items():
        to_bed(tmp_path / f"{name}.bed", G, properties=properties | alleles)
    agreed = tuple(f"rs{j} 1:{10 * j} A/G" for j in (1, 2, 3, 4))
    paths = {name: tmp_path / f"{name}.bed" for name in sites}
    asked: dict[str, Any] = {"prepare": (ep.prepare.GenotypeScale(),)}
    there = fitted(Institutions(tmp_path, paths, agreed, **FILLS), **asked)
    np.testing.assert_array_equal(there.components_, fitted(ONE, sites, **asked).components_)
    with pytest.raises(EigenpactError, match="rule fill_missing: this site takes part only"):
        fitted(Institutions(tmp_path, paths, agreed, **FILLS), prepare=(ep.prepare.Scale(),))


def test_a_union_that_fills_nothing_is_refused_with_what_helps(tables):
    folder, rows = tables
    whole = {name: np.nan_to_num(X) for name, X in rows.items()}
    with pytest.raises(InputError, match=r"1 of 6 agreed features are not at all 3 sites; .* use missing='mean'"):
        fitted(Institutions(folder, files(folder, whole, lacking=[1]), **FILLS), features="union")


def test_a_plan_that_fills_nothing_is_refused_before_round_1_and_only_the_site_knows_where(tables, caplog):
    folder, rows = tables
    caplog.set_level("INFO", "eigenpact.site")
    engine = Institutions(folder, files(folder, rows), **FILLS)
    missing = int(np.isnan(rows["B"][:, 0]).sum())
    with pytest.raises(EigenpactError, match="refused before round 1 by B: rule fill_missing: this site takes part only") as told:
        fitted(engine)
    assert not [name for name in AGREED if f"'{name}'" in str(told.value)]
    assert " 30 rows" not in str(told.value)
    assert f"column 'age' is missing in {missing} of 30 rows" in caplog.text
    ledger = read_site_ledger(folder / "B.ledger")
    assert [row["what"] for row in ledger] == ["refused"]
    assert f"(column 'age' is missing in {missing} of 30 rows" in ledger[0]["reason"]


def test_by_default_a_table_with_holes_takes_no_part_and_nobody_is_told_why(tables, caplog):
    folder, rows = tables
    rules = FILLS | {"fill_missing": False}
    for asked in ({}, {"missing": "mean"}, {"missing": "em"}):
        with pytest.raises(EigenpactError, match="this site's table or policy cannot be used; its own log says why"):
            ep.FederatedPCA(2, engine=Institutions(folder, files(folder, rows), **rules), max_rounds=300, **asked).fit()
    assert "column 'age' has" in caplog.text
    assert read_policy(None).fill_missing is False


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"missing": "mean"}, "rule fill_missing = false: this site lets no run fill in missing entries"),
        ({"missing": "em"}, "rule solvers: 'em' is not allowed here"),
        ({"prepare": (ep.prepare.HighlyVariable(2),)}, "rule prepare: rows of this site may not be prepared by 'hvg'"),
    ],
)
def test_whole_tables_of_a_new_kit_refuse_by_the_name_of_the_rule(tables, asked, rule):
    folder, rows = tables
    whole = files(folder, {name: np.nan_to_num(X) for name, X in rows.items()})
    rules = {"functions": read_policy(None).functions, "compare_columns": False}
    with pytest.raises(EigenpactError, match=rule):
        ep.FederatedPCA(2, engine=Institutions(folder, whole, **rules), max_rounds=300, **asked).fit()


def served(tmp_path, X, **rules):
    """A site's server behind a gate, with a plan that announces to fill what is missing."""
    policy = replace(read_policy(None), **FILLS | rules)
    holes = Holes.of(X, 2)
    gate = Gate("A", policy, SiteLedger(tmp_path / "ledger"), n_rows=len(X), features=2, holes=holes)
    server = SiteServer("A", X, gate=gate)
    functions = {*functions_of("gram", ["sum", "local"]), *functions_to_fill(), *functions_to_compare()}
    plan = Plan("gram", tuple(sorted(functions)), ("local", "sum"), 10)
    server.admit("r1", plan.to_dict())
    return server


def ask(server, function, *args, step=1, kind="sum"):
    return server.execute(Request("r1", 0, step, kind, function.name, args), step - 1)


def test_what_was_announced_must_be_done_before_anything_reads_the_rows(tmp_path):
    """A coordinator that announces the fill and leaves it out gets no number, and what was filled is answered rightly."""
    X = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0], [7.0, 1.0], [9.0, 2.0]])
    server = served(tmp_path, X)
    for function in (count_and_sum, scatter_triangle):
        with pytest.raises(PolicyError, match=f"rule fill_missing: {function.short_name} does not take rows in which entries"):
            ask(server, function)
    assert ask(server, keep_fill, np.array([5.0, 4.0]), kind="local").arrays == ()
    *_, n, sums = ask(server, count_and_sum, step=2).arrays
    assert (int(n), sums.tolist()) == (5, [25.0, 15.0])


def test_what_the_rule_is_there_for(tmp_path):
    """A value of a coordinator's choice in a row's hole makes the next sum that row: so a policy must allow it."""
    X = np.array([[1.0, 2.0], [3.25, np.nan], [5.0, 6.0], [7.0, 1.0], [9.0, 2.0]])
    server = served(tmp_path, X)
    ask(server, keep_fill, np.array([0.0, 1e9]), kind="local")
    ask(server, keep_centre, np.zeros(2), np.ones(2), np.float64(1e18), step=2, kind="local")
    (triangle,) = ask(server, scatter_triangle, step=3).arrays
    assert triangle[1] / 1e9 == pytest.approx(3.25, abs=1e-6)


def test_columns_that_are_left_out_have_no_holes(tmp_path):
    keep_features = _registry["eigenpact:keep_features/1"]
    lacking = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, np.nan], [6.0, np.nan], [7.0, np.nan]])
    server = served(tmp_path, lacking)
    with pytest.raises(PolicyError, match="rule fill_missing"):
        ask(server, count_and_sum)
    ask(server, keep_features, np.array([2, 1]), np.array(2), kind="local")
    assert ask(server, count_and_sum, step=2).arrays[-1].tolist() == [22.0, 0.0]
    (tmp_path / "union").mkdir()
    server = served(tmp_path / "union", lacking)
    ask(server, keep_features, np.array([2, 1]), np.array(1), kind="local")
    with pytest.raises(PolicyError, match="rule fill_missing"):
        ask(server, count_and_sum, step=2)


def test_what_takes_holes_gives_numbers_on_rows_that_have_some():
    """Of every function that is declared to: else a gate would let it answer with what is no number."""
    own_modules()
    X = np.array([[1.0, 2.0, 1.0], [2.0, np.nan, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, np.nan]] * 3)
    kept = {"mean": np.ones(3), "scale": np.ones(3), "dropped": np.zeros(0, dtype=int), "units in doubt": np.zeros(3)}
    given = {"d": np.full(3, 12.0), "": np.float64(1.0), "d k": np.ones((3, 1)), "d m": np.eye(3)[:, :2]}
    given["32"] = np.zeros(32, dtype=np.uint8)
    taking = [f for f in _registry.values() if f.holes and f.name.startswith("eigenpact:")]
    assert len(taking) >= 18
    for function in taking:
        args = [given[shape.text] for shape in function.takes.values()]
        reply = function(Site("A", X, kept), *args)
        sent = getattr(reply, "send", reply)
        for array in sent if isinstance(sent, tuple) else (sent,):
            assert np.isfinite(np.asarray(array, dtype=float)).all(), function.name


def test_nothing_else_of_a_solver_takes_holes():
    takes = {f.short_name for f in _registry.values() if f.holes}
    assert not takes & {name.split(":")[1].split("/")[0] for name in functions_of("auto")}


def test_whole_rows_are_refused_nothing(tmp_path):
    server = served(tmp_path, np.arange(10.0).reshape(5, 2))
    assert ask(server, count_and_sum).arrays[-1].tolist() == [20.0, 25.0]
