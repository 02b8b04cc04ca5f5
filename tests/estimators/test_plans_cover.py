"""What a solver sends is in the plan that sites with a policy admit: the ledger of a real run against the plan."""

from __future__ import annotations

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.estimators.choices import SOLVERS
from eigenpact.estimators.plans import plan_of


@pytest.mark.parametrize("name", SOLVERS)
def test_every_function_of_a_run_is_planned(name: str) -> None:
    """Also those that a shared loop or a confirmation asks for."""
    X = np.random.default_rng(0).normal(size=(90, 12)) * np.linspace(3, 1, 12)
    pca = ep.FederatedPCA(2, solver=name, random_state=0).fit({"a": X[:40], "b": X[40:]})
    planned = {function.rpartition(":")[2] for function in plan_of(SOLVERS[name](), 3000, 2).functions}
    assert {message.function for message in pca.ledger_} <= planned
