"""What private solvers agree on before their first block: number of rows and mean, both with noise.

Problem
    Site i holds rows x (d).  A public origin o and a bound b are agreed; a cost rho in zCDP may be spent on what follows.

Rounds
    1. Sum over sites of n_i, and of the rows about the origin, none longer than b (``numerics/whole_rows.py``), with noise.
    The mean is their quotient.  Nothing is told to the sites to keep: later functions are given the noisy mean.

Leaves the site
    One (to count the sites, whose names are known), and d + 1 whole numbers with noise, to be summed.

Noise
    One row changes the number by 1 and the sum by at most b.  The two have costs rho_n + rho_s = rho in the ratio 1 : sqrt(d),
    with which the mean's expected error is least: d b^2 / rho_s from the sum, and up to b^2 / rho_n from the number.  Each of H
    honest sites adds an H-th of the variance.

References
    P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete Gaussian mechanism for federated learning", ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.accounting import deviation_for
from ...numerics.linalg import Array
from ...numerics.whole_rows import MOST_FEATURES, STEPS, whole_sum
from ...runtime import Site, Sum, local
from ..method import Part

MEANS = {"bound": "scale", "rho": "scale", "honest": "count"}
"""What the arguments are that all private functions take."""

SHARE_OF_MOMENTS = 0.1
"""Of the budget: the mean is easy, and an error in it counts by its square."""


@local(
    takes={"origin": "d", "bound": "", "rho": "", "honest": ""},
    sends={"sites": "", "n": "", "sums": "d"},
    bound={"sites": "count", "n": "whole", "sums": "whole"},
    means={"origin": "centre"} | MEANS,
    setup=True,
)
def noisy_moments(site: Site, origin: Array, bound: Any, rho: Any, honest: Any) -> Any:
    """One; the number of rows, and their sum about the origin, in steps and with noise."""
    d = len(origin)
    noise = site.noise(float(rho), int(honest), moment_scales(d, float(rho)))
    n = np.int64(STEPS * int(site.X.shape[0]))
    return np.int64(1), n + noise[0], whole_sum(site.X, origin, float(bound)) + noise[1:]


def moment_scales(d: int, rho: float) -> list[tuple[float, int]]:
    """Standard deviations in steps of all noise in the number and in the sum, and how many numbers have them.

    >>> (number, _), (total, d) = moment_scales(100, 0.5)
    >>> round(STEPS**2 / (2 * number**2) + STEPS**2 / (2 * total**2), 12), d
    (0.5, 100)
    """
    of_number = rho / (1 + np.sqrt(d))
    return [(deviation_for(STEPS, of_number), 1), (deviation_for(STEPS, rho - of_number), d)]


@dataclass(frozen=True, eq=False)
class PrivateProblem:
    """What the user asked for.

    Attributes
    ----------
    n_components : int
    rho : float
        What may be spent in all, for one row.
    bound, mean_bound : float
        Lengths that rows are cut to, about the noisy mean and about the origin.
    origin : (d,) array or None
        A public point; None for zeros.
    honest : int
        Sites that are taken to add their noise and to keep it to themselves.
    n_features : int
    seed : int
    """

    n_components: int
    rho: float
    bound: float
    mean_bound: float
    origin: Array | None
    honest: int
    n_features: int
    seed: int


@dataclass(frozen=True, eq=False)
class PrivateSetup:
    """What the sites agreed on, with noise in it, and what is left to spend."""

    n_sites: int
    n_samples: int
    n_features: int
    mean: Array
    n_components: int
    bound: float
    rho: float
    honest: int
    seed: int

    @property
    def step(self) -> float:
        """The length of one step of a whole row, in units of the data."""
        return self.bound / STEPS

    @property
    def surplus(self) -> float:
        """How many times the variance that was asked for the noise has: all sites add their shares, not the honest alone."""
        return self.n_sites / self.honest

    def asks(self, rho: float) -> tuple[Any, ...]:
        """What all private functions are told: bound, cost, honest sites."""
        return np.float64(self.bound), np.float64(rho), np.int64(self.honest)


async def agree_privately(problem: PrivateProblem) -> PrivateSetup:
    """Agree on number and mean, for a tenth of the budget."""
    d = problem.n_features
    if d > MOST_FEATURES:
        raise InputError(f"{d} features are more than private sums are exact for, {MOST_FEATURES}; leave some out")
    origin = np.zeros(d) if problem.origin is None else problem.origin
    rho = SHARE_OF_MOMENTS * problem.rho
    told = np.float64(problem.mean_bound), np.float64(rho), np.int64(problem.honest)
    n_sites, number, sums = await Sum(noisy_moments, origin, *told)  # round 1
    n = max(1, round(int(number) / STEPS))
    mean = origin + sums * (problem.mean_bound / STEPS) / n
    return PrivateSetup(
        n_sites=int(n_sites),
        n_samples=n,
        n_features=d,
        mean=mean,
        n_components=problem.n_components,
        bound=problem.bound,
        rho=problem.rho - rho,
        honest=problem.honest,
        seed=problem.seed,
    )


MOMENTS = Part("Set-up of every solver of PrivatePCA", {Sum: (noisy_moments,)}, "Whole numbers (int64) with noise in them.")
