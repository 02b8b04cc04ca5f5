"""Honest runs behind gates: nobody is refused, the answer is that of runs without gates, and what rounding costs is told."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.missing.mean import MeanFill
from eigenpact.cli.site_settings import ALL_SOLVERS, SHIPPED
from eigenpact.estimators.plans import functions_to_prepare
from eigenpact.numerics.metrics import largest_sine
from tests.attacks.guarded import Guarded
from tests.attacks.honest import PROBLEMS, REAL, ROUNDS, fitted
from tests.engines import conformance
from tests.engines.problems import problem_sites

OPEN = {
    "solvers": list(ALL_SOLVERS),
    "functions": functions_to_prepare([MeanFill()]),
    "min_rows": 5,
    "max_rounds": 3000,
} | dict.fromkeys(("allow_gather", "allow_at", "allow_max", "allow_chain"), True)
"""The rules of a new kit for arguments and replies, with every solver listed: the smallest site of the suite has seven rows."""

CASES = [case for case in conformance.CASES if case.program is None and case.graph is None and case.own is None]

needs_data = pytest.mark.skipif(not os.environ.get("EIGENPACT_DATA"), reason="needs EIGENPACT_DATA")


def problems() -> list[Any]:
    return [*PROBLEMS, *(pytest.param(name, marks=needs_data) for name in REAL)]


@pytest.mark.parametrize("solver", SHIPPED)
@pytest.mark.parametrize("problem", problems())
def test_the_policy_of_a_new_kit_refuses_no_honest_run(problem: str, solver: str) -> None:
    """And the answer is within ten times what rounding does, which is what the run estimates itself."""
    plain, engine = fitted("inprocess", solver, problem), Guarded()
    behind = fitted(engine, solver, problem)
    assert engine.refusals == []
    assert behind.converged_
    assert behind.n_rounds_ <= plain.n_rounds_ + 1
    turned = largest_sine(behind.components_.T, plain.components_.T)
    assert turned <= 10 * (behind.angle_estimate_ or 1e-7)
    assert turned <= 1e-5


@pytest.mark.parametrize("solver", SHIPPED)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_with_all_digits_the_answer_has_the_same_bits_as_without_a_gate(problem: str, solver: str) -> None:
    engine = Guarded({"exact_replies": True})
    plain, behind = fitted("inprocess", solver, problem), fitted(engine, solver, problem)
    assert engine.refusals == []
    assert behind.n_rounds_ == plain.n_rounds_
    np.testing.assert_array_equal(behind.components_, plain.components_)


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning", "ignore::eigenpact.errors.NotIdentifiableWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_rules_on_arguments_and_replies_refuse_no_case_of_the_conformance_suite(case: conformance.Case) -> None:
    """A robust threshold may leave few entries of a site with seven rows: then it must refuse, so that site takes no part."""
    engine, sites = Guarded(OPEN), problem_sites()
    if case.estimator is conformance.ROBUST_MODEL:
        del sites["accra"]
    conformance.model(case, engine).fit(sites)
    assert engine.refusals == []


def test_a_component_that_rounding_swallows_has_no_angle() -> None:
    """Its variance is a billionth of what the largest feature has: fixed point of 2^-20 does not see it, and says so."""
    X = np.random.default_rng(0).normal(size=(400, 12)) * np.r_[1e5, np.linspace(3, 1, 11)]
    engine = Guarded({"reply_bits": 20})
    pca = ep.FederatedPCA(2, solver="gram", random_state=0, max_rounds=ROUNDS, engine=engine)
    with pytest.warns(ep.errors.NotIdentifiableWarning):
        pca.fit({"a": X[:200], "b": X[200:]})
    assert engine.refusals == []
    assert pca.angle_estimate_ is None or pca.angle_estimate_ > 1e-2
