"""``solver="auto"``: the exact solver with the least modelled time, by rates that were measured before the run.

Problem
    gram, krylov and row-gram (``few_rows.py``) give the same answer; which one is fastest depends on the rows and on the machine.

Model
    seconds = rounds x latency + bytes / bandwidth + flops of sites / (rate x sites at once) + flops of the coordinator / rate.
    Where rows lie on GPUs, the rate of sites is that of these, together.  Products with a narrow block reach a part of the rate
    only.  How many rounds krylov takes depends on the spectrum, which nobody knows beforehand: it is taken to be
    ``TYPICAL_ROUNDS``, or fewer with a coarse ``tol``.  Sparse rows are counted as if they were dense, because sites do not tell
    how many entries are stored: where nearly all are zero, the products of krylov and gram are overestimated.
    The algorithm takes no time itself: ``costs`` come from the engine, which measures them (``numerics/rates.py``) or knows them.
    They are as coarse as powers of four, so that the same rows are solved by the same solver, and stand in the journal, so that a
    resumed run chooses as it did.

Leaves the site
    What the chosen solver sends.  Only exact solvers that reveal nothing but sums are considered, unless a one-shot start is
    allowed (``ep.solvers.Auto(start="one-shot")``), which shows the coordinator every site's leading directions.  row-gram is
    considered only where all rows are one site's in the coordinator's own process: nothing leaves it.

The table of estimates is kept with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log10
from typing import Any

from ..numerics.certificate import spare
from ..numerics.few_of_inner_products import are_few
from ..numerics.linalg import Array
from ..numerics.proved import few_of_many
from ..runtime import At, Costs
from ..runtime.engine import LATER
from .consensus.gram import Gram, single_pays
from .consensus.krylov import Krylov
from .few_rows import fit_few_rows, leading_of_rows
from .goal import EXACT_ANGLE
from .method import method
from .parameters import check, check_choice
from .rough import tolerance_allows
from .setup import Setup
from .solution import Solution, State
from .stand import SHARE_BLOCK
from .start import Start

GRAM_FEATURES = 5000
"""Beyond this many features the sum of scatter matrices is not considered: it would take the coordinator d^2 numbers."""

ROW_GRAM_ENTRIES = 1 << 26
"""Entries of rows, and of their inner products, up to which they may be copied to float64 in memory: twice 512 MB."""

BLOCK, HALF_RATE = 14, 10.0
"""Columns of the block with which ``Costs.narrow`` is measured; and with which products usually run at half the rate of a scatter
matrix, measured with 50 to 6000 features."""

EIGENVECTORS, FEW_EIGENVECTORS = 4.0, 1.2
"""Leading eigenvectors of a symmetric d x d matrix take the time of this many d^3 flops by LAPACK: 7 for 500 features, 3.5 to 4.6
for 1000 to 3000, measured; and few of many by block Krylov (``numerics/proved.py``)."""

FEW_OF_ROWS = 2.5
"""The same for few eigenvectors of inner products of 1000 to 3000 rows (``numerics/few_of_inner_products.py``), measured."""

ALGEBRA = 15.0
"""The coordinator of krylov takes the time of this many d m^2 flops, m columns in all: a guess from 23 that were measured at a
load of 6, with 20000 features and 720 columns."""

SINGLE = 0.5
"""The time of arithmetic in single precision over that in double."""

TYPICAL_ROUNDS: dict[Start, int] = {"random": 12, "one-shot": 9}
"""Rounds of block Krylov on the problems of the results table, by its start, for the estimate."""

TYPICAL_FALL, TINY = 1.0, 1e-300
"""Digits by which a round lowers the residual there: with a ``tol`` that is met earlier, so many rounds fewer."""


@method(
    "consensus",
    {At: (leading_of_rows,)},
    includes=(Gram, Krylov),
    role="choice",
    remark="Then what gram or krylov send. `leading_of_rows` runs only at the one site of a run whose coordinator is there.",
)
class Auto:
    """Choose between ``gram``, ``krylov`` and, for one site that is here, ``row-gram``, once counts are known.

    Parameters
    ----------
    costs : Costs, optional
        Seconds a round, bytes a second and flops a second; None measures them or takes the engine's.
    start : "random" or "one-shot"
        "one-shot" allows krylov to begin with the sites' own leading directions, which shows them to the coordinator.
    alone : str, optional
        The only site, where the coordinator's own process holds its rows.  Who runs the solver finds it.
    """

    costs: Costs | None = None
    start: Start = "random"
    alone: str | None = field(default=None, metadata=LATER)

    name = "auto"
    default_angle = EXACT_ANGLE

    def __post_init__(self) -> None:
        check_choice("start", self.start, Start)
        known = self.costs is None or isinstance(self.costs, Costs)
        check("costs", self.costs, known, "an engine's Costs, or None to measure them or take those of the engine in use")

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Solve with the cheapest candidate, and note the table it was chosen from."""
        assert self.costs is not None, "costs are filled in before the run"
        table = estimates(setup, self.costs, self.start, alone=self.alone is not None)
        chosen = min((row for row in table if row["allowed"]), key=lambda row: row["seconds"])["solver"]
        if chosen == "row-gram":
            assert self.alone is not None
            solution = await fit_few_rows(setup, self.alone, state)
        elif chosen == "gram":
            solution = await Gram().fit(setup, start, state)
        else:
            solution = await Krylov(start=self.start).fit(setup, start, state)
        solution.notes.update(choice=table, solver=chosen)
        return solution


@dataclass(frozen=True)
class _Candidate:
    """What a solver would need: rounds, bytes, flops of all sites and how many times slower than scatter matrices they are, flops
    of the coordinator; how many parts of its work are done at once; and whether it may be taken."""

    solver: str
    rounds: int
    bytes: float
    sites: float
    slower: float
    coordinator: float
    at_once: int
    allowed: bool

    def row(self, costs: Costs) -> dict[str, Any]:
        """A row of the table."""
        waiting = self.rounds * costs.latency + self.bytes / costs.bandwidth
        rate = costs.flops * self.at_once if costs.device is None else costs.device
        working = self.slower * self.sites / rate + self.coordinator / costs.flops
        return {
            "solver": self.solver,
            "rounds": self.rounds,
            "bytes": self.bytes,
            "flops": self.sites + self.coordinator,
            "seconds": waiting + working,
            "allowed": self.allowed,
        }


def _gram(setup: Setup, eigenvectors: float, columns: float, at_once: int) -> _Candidate:
    """gram, in single precision where that pays; then, unless the tolerance allows that, also with eigenvectors once more and a
    product in double precision, which takes the time of so many ``columns`` at the rate of a scatter matrix."""
    d, n = setup.n_features, setup.n_samples
    sent, flops, twice = 4.0 * d * (d + 1) * setup.n_sites, float(n) * d**2, single_pays(setup) and not tolerance_allows(setup)
    sites = (SINGLE * flops if single_pays(setup) else flops) + (4.0 * n * d * columns if twice else 0.0)
    return _Candidate("gram", 1 + twice, sent, sites, 1.0, (1 + twice) * eigenvectors * d**3, at_once, d <= GRAM_FEATURES)


def estimates(setup: Setup, costs: Costs, start: Start = "random", *, alone: bool = False) -> list[dict[str, Any]]:
    """One row per candidate: rounds, bytes, flops, modelled seconds, and whether it is allowed.

    ``alone`` tells that all rows are one site's in the coordinator's own process.
    """
    d, n, sites = setup.n_features, setup.n_samples, setup.n_sites
    at_once = costs.at_once if sites == 1 else min(costs.at_once, sites)
    k = setup.n_components if isinstance(setup.n_components, int) else min(SHARE_BLOCK, d)
    width = min(d, (k if start == "random" else 2 * k) + spare(k))
    usual = TYPICAL_ROUNDS[start]
    usual = usual if setup.tol is None else min(usual, 1 + ceil(-log10(max(setup.tol, TINY)) / TYPICAL_FALL))
    rounds = max(1, min(usual, -(-min(n, d) // width)))
    square, of_block = (costs.flops, costs.narrow) if costs.device is None else (costs.device, costs.device_narrow)
    half_rate = HALF_RATE if of_block is None else BLOCK * max(0.0, square / of_block - 1.0)
    narrow, columns = 1.0 + half_rate / width, width * rounds
    hurry = SINGLE if setup.single and tolerance_allows(setup) else 1.0
    eigenvectors = FEW_EIGENVECTORS if isinstance(setup.n_components, int) and few_of_many(d, k) else EIGENVECTORS
    found = [
        _gram(setup, eigenvectors, narrow * width, at_once),
        _Candidate(
            "krylov",
            rounds,
            16.0 * d * columns * sites,
            4.0 * n * d * columns,
            narrow * hurry,
            ALGEBRA * d * columns**2,
            at_once,
            True,
        ),
    ]
    if alone:
        fits = max(n * d, n * n) <= ROW_GRAM_ENTRIES and setup.max_rounds > 1
        few = isinstance(setup.n_components, int) and k + 1 < n < d and start == "random"
        products = float(n) ** 2 * d + 4.0 * n * d * (k + 1)
        eigenvectors = FEW_OF_ROWS if are_few(n, k + 1) else EIGENVECTORS
        found.append(_Candidate("row-gram", 1, 0.0, products, 1.0, eigenvectors * n**3, at_once, few and fits))
    return [candidate.row(costs) for candidate in found]
