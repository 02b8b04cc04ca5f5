"""Three sites for engines between institutions, and a policy that allows all that the conformance suite does, to the bit."""

from __future__ import annotations

from typing import Any

from eigenpact.algorithms.missing.mean import MeanFill
from eigenpact.estimators.plans import functions_of, functions_to_prepare
from eigenpact.estimators.registry import solvers_for
from tests.engines import conformance
from tests.engines.problems import problem_sites

NAMES = ("accra", "lima", "quito")
"""Three sites; the programs of the conformance suite name two of them."""

ALL_SOLVERS = tuple(solvers_for("FederatedPCA", "FederatedPCA(missing='em')", "PersonalizedPCA", "RobustPCA"))

FUNCTIONS = {*functions_to_prepare([MeanFill()]), *(name for solver in ALL_SOLVERS for name in functions_of(solver))}

OPEN_POLICY: dict[str, Any] = {
    "solvers": [*ALL_SOLVERS, "programs"],
    "functions": sorted({*conformance.PLAN.functions, *FUNCTIONS}),
    "modules": ["tests.engines.functions"],
    "min_rows": 1,
    "exact_replies": True,
    "secret_streams": False,
    "max_rounds": 3000,
    "max_message_bytes": 1 << 20,
    "allow_gather": True,
    "allow_at": True,
    "allow_max": True,
    "allow_chain": True,
}


def three_sites() -> dict[str, Any]:
    sites = problem_sites()
    return {name: sites[name] for name in NAMES}


SOLVERS_POLICY = {key: value for key, value in OPEN_POLICY.items() if key != "modules"} | {"functions": sorted(FUNCTIONS)}
"""The same for solvers alone, without modules of the tests' own: those take seconds to import."""
