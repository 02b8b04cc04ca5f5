"""Private PCA in one round: add up the sites' scatter matrices, with noise that hides any single row.

Problem
    Find the leading eigenvectors of C = sum_i Z_i^T Z_i (d x d) such that nobody who sees the answer, or the sum it is made of,
    can tell whether any one row was there.  Site i holds the rows Z_i: about the noisy mean, none longer than the bound b, in
    whole numbers of S steps (``numerics/whole_rows.py``).

Rounds
    1. Every site sends the upper triangle of Z_i^T Z_i + E_i; the coordinator adds them up and factorizes the sum.

Leaves the site
    d (d + 1) / 2 whole numbers, to be summed.  The sum costs rho if at least H sites add their shares and keep them to
    themselves.  Where sums are not secured, whoever receives a single reply sees it with a share of the noise alone.

Noise
    One row z more or less changes C by z z^T, whose Frobenius norm is ||z||^2 <= S^2, rounding included.  The Frobenius norm
    counts what is off the diagonal twice, the triangle has it once: so entries off the diagonal are counted with weight sqrt 2,
    and need noise of a variance that is half of the diagonal's.  E = sum_i E_i then is, but for rounding, of the Gaussian
    orthogonal ensemble: variance s^2 = S^4 / (2 rho) on the diagonal, s^2 / 2 off it; its norm is about s sqrt(2 d).

Cost
    4 d (d + 1) bytes, n_i d^2 flops and d (d + 1) / 2 draws per site, once; a draw takes some 20 microseconds.

Differences from the paper
    The noise is that of [1], Algorithm 1, whose sensitivity is that of one row exchanged; here a row comes or goes, which for
    rows of length at most 1 gives the same 1 and not sqrt 2.  The paper adds equal noise to all entries of the triangle; with the
    weights, off the diagonal half of that variance does.  Noise is discrete and added at the sites [2]; [1] has one curator.  The
    answer comes with an error bar (``error_bar.py``).

References
    [1] C. Dwork, K. Talwar, A. Thakurta, L. Zhang, "Analyze Gauss: optimal bounds for privacy-preserving principal component
    analysis", STOC 2014, Algorithm 1.
    [2] P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete Gaussian mechanism for federated learning", ICML 2021.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(20000, 3)) * [2, 1, 0.1]
>>> pca = ep.PrivatePCA(1, epsilon=1, delta=1e-6, row_bound=5, solver="noisy-gram").fit({"A": X[:9000], "B": X[9000:]})
>>> bool(abs(pca.components_[0, 0]) > 0.99), round(pca.epsilon_, 6)
(True, 1.0)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.accounting import deviation_for
from ...numerics.linalg import Array, top_eigenpairs, unpack_triangle
from ...numerics.whole_rows import STEPS, whole_triangle
from ...runtime import Progress, Site, Sum, local
from ..method import method
from ..solution import Solution, State
from .error_bar import noise_angle
from .moments import MEANS, PrivateSetup


@local(
    takes={"mean": "d", "bound": "", "rho": "", "honest": ""},
    sends={"S": "d*(d+1)//2"},
    bound="whole",
    means={"mean": "centre"} | MEANS,
)
def noisy_triangle(site: Site, mean: Array, bound: Any, rho: Any, honest: Any) -> Any:
    """Upper triangle of Z_i^T Z_i with this site's share of the noise, in squares of steps."""
    noise = in_place(site.noise(float(rho), int(honest), triangle_scales(len(mean), float(rho))), len(mean))
    return whole_triangle(site.X, mean, float(bound)) + noise


def triangle_scales(d: int, rho: float) -> list[tuple[float, int]]:
    """Standard deviations of all noise on the diagonal and off it, and how many numbers have each."""
    s = deviation_for(STEPS**2, rho)
    return [(s, d), (s / np.sqrt(2), d * (d - 1) // 2)]


def in_place(noise: Any, d: int) -> Any:
    """Noise for the diagonal, then for the rest, in the order of the packed triangle.

    >>> in_place(np.array([1, 2, 3, -1, -2, -3]), 3).tolist()
    [1, -1, -2, 2, -3, 3]
    """
    rows, columns = np.triu_indices(d)
    packed = np.empty_like(noise)
    packed[rows == columns], packed[rows != columns] = noise[:d], noise[d:]
    return packed


@method("private", {Sum: (noisy_triangle,)}, role="estimate")
class NoisyGram:
    """Sum of the scatter matrices with noise; one round."""

    name = "noisy-gram"
    default_angle = np.inf

    async def fit(self, setup: PrivateSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Add up, factorize.  There is nothing to start from."""
        d, k, unit = setup.n_features, setup.n_components, setup.step**2
        packed = await Sum(noisy_triangle, setup.mean, *setup.asks(setup.rho))  # line 1
        C = unpack_triangle(packed * unit, d)
        (diagonal, _), _ = triangle_scales(d, setup.rho)
        noise = diagonal * unit * float(np.sqrt(setup.surplus))
        values, vectors = top_eigenpairs(C)
        Z = np.ascontiguousarray(vectors[:, :k])
        await Progress(basis=Z)
        angle, cut = noise_angle(values, k, noise)
        reason = f"noise as agreed: {noise:.3g} on the diagonal of the scatter, whose eigenvalue {k} is {values[k - 1]:.3g}"
        return Solution(Z, values[:k], None, angle, True, reason, {"trace": float(np.trace(C)), "noise": noise}, cut=cut)
