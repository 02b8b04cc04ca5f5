"""``solver="auto"``: the exact solver with the least modelled time on the engine at hand.

The model is rounds x latency + bytes / bandwidth + flops / rate, with the engine's constants; products with a narrow block reach
a part of the rate only.  Only exact solvers that reveal nothing but sums are considered, unless a one-shot start is allowed
(``ep.solvers.Auto(start="one-shot")``), which shows the coordinator every site's leading directions.  The table of estimates is
kept with the answer.
"""

from __future__ import annotations

from typing import Any

from ..numerics.certificate import OVERSAMPLING
from ..numerics.linalg import Array
from ..runtime import Costs
from .consensus.gram import Gram
from .consensus.krylov import Krylov
from .goal import EXACT_ANGLE
from .method import method
from .parameters import check, check_choice
from .setup import Setup
from .solution import Algorithm, Solution, State
from .stand import SHARE_BLOCK
from .start import Start

GRAM_FEATURES = 5000
"""Beyond this many features the sum of scatter matrices is not considered: it would take the coordinator d^2 numbers."""

HALF_RATE = 10
"""Columns of a block with which products run at half the rate of a scatter matrix, measured with 50 to 6000 features."""

TYPICAL_ROUNDS: dict[Start, int] = {"random": 12, "one-shot": 9}
"""Rounds of block Krylov on the problems of the results table, by its start, for the estimate."""


@method("consensus", includes=(Gram, Krylov), role="choice")
class Auto:
    """Choose between ``gram`` and ``krylov`` once counts are known.

    Parameters
    ----------
    costs : Costs, optional
        Seconds a round, bytes a second and flops a second; None takes the engine's.
    start : "random" or "one-shot"
        "one-shot" allows krylov to begin with the sites' own leading directions, which shows them to the coordinator.
    """

    costs: Costs | None = None
    start: Start = "random"

    name = "auto"
    default_angle = EXACT_ANGLE

    def __post_init__(self) -> None:
        check_choice("start", self.start, Start)
        known = self.costs is None or isinstance(self.costs, Costs)
        check("costs", self.costs, known, "an engine's Costs, or None to take those of the engine in use")

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Solve with the cheapest candidate, and note the table it was chosen from."""
        assert self.costs is not None, "an engine's costs are filled in before the run"
        table = estimates(setup, self.costs, self.start)
        chosen = min((row for row in table if row["allowed"]), key=lambda row: row["seconds"])
        algorithm: Algorithm = Gram() if chosen["solver"] == "gram" else Krylov(start=self.start)
        solution = await algorithm.fit(setup, start, state)
        solution.notes.update(choice=table, solver=chosen["solver"])
        return solution


def estimates(setup: Setup, costs: Costs, start: Start = "random") -> list[dict[str, Any]]:
    """One row per candidate: rounds, bytes, flops, modelled seconds, and whether it is allowed."""
    d, n, sites = setup.n_features, setup.n_samples, setup.n_sites
    k = setup.n_components if isinstance(setup.n_components, int) else min(SHARE_BLOCK, d)
    width = min(d, k + OVERSAMPLING if start == "random" else 2 * k + OVERSAMPLING)
    rounds = min(TYPICAL_ROUNDS[start], -(-d // width))
    size, coordinator = 16.0 * d * width * sites * rounds, 8.0 * d * (width * rounds) ** 2
    flops, narrow = 4.0 * n * d * width * rounds, 1.0 + HALF_RATE / width
    candidates = [
        ("gram", 1, 4.0 * d * (d + 1) * sites, float(n) * d * d + 10.0 * d**3, 1.0, d <= GRAM_FEATURES),
        ("krylov", rounds, size, flops + coordinator, (narrow * flops + coordinator) / (flops + coordinator), True),
    ]
    return [
        {
            "solver": solver,
            "rounds": rounds,
            "bytes": size,
            "flops": flops,
            "seconds": rounds * costs.latency + size / costs.bandwidth + slower * flops / costs.flops,
            "allowed": allowed,
        }
        for solver, rounds, size, flops, slower, allowed in candidates
    ]
