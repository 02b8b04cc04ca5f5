"""One-shot merges: every site sends its own principal directions once, the coordinator merges them.

Problem
    Estimate the leading k eigenvectors of C = sum_i C_i, C_i = Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d),
    or of the population covariance, from the sites' own leading eigenvectors V_i (d x k) alone.

Rounds
    1. every site sends V_i, its columns as long as the square roots of their eigenvalues, each with a random sign, and n_i
    2. merge
         "average"     orth(sum_i n_i V_i): the paper's negative result.  Signs are arbitrary, so terms cancel: the error does not
                       fall with the number of sites (Theorem 3)
         "sign"        orth(sum_i n_i V_i O_i), V_i O_i turned towards one site's basis by orthogonal Procrustes: for k = 1 the
                       paper's sign fixing (7).  The reference is the medoid, the site that agrees best with all, or one given
         "projection"  leading eigenvectors of sum_i n_i V_i V_i^T (Section 5)
         "stack"       the same with every site counted once, whatever its size: distPCA of Fan et al.
         "svd"         leading left singular vectors of all scaled V_i side by side (Liang et al.)
    3. one more round, unless ``confirm=False``: C Z, which gives variances and tells how good the merge is

When it is right
    Exact where every site's leading k-dimensional subspace is the pooled one ("average": for one site).  With rows from one
    distribution and a gap delta, "sign" has error O(1/(delta^2 m n) + 1/(delta^4 n^2)) for m sites of n rows (Theorem 4), and the
    second term stays however many sites there are (Theorem 5): n must grow with m.  Where sites differ, nothing is promised: the
    answer is not consistent for the pooled one.  Line 3 then estimates how far off it is, as far as the directions that sites
    sent and one random direction can show: one that is large for all together and among the first k of none may stay unseen.
    "svd" is also exact when every C_i has rank at most k.

Leaves the site
    V_i (d x k) and n_i, to the coordinator: ``Gather``, because a merge needs every single reply.  These tell most of a site's
    scatter on real data.  Then Y_i^T Y_i [Z, ...] (d x (2k + 1)), to be summed.

Cost
    8 d k bytes up, one local eigenproblem; line 3 costs 8 d (2k + 1) bytes each way.

Differences from the paper
    Sums are weighted by rows (the paper's sites are equally large); k > 1; the medoid.  For k = 1 and sites of one size,
    "average", "sign" with ``reference=0`` and "projection" are the paper's estimators.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Sections 3 and 5; J. Fan, D. Wang, K. Wang, Z. Zhu, Ann. Stat. 47 (2019);
    Y. Liang, M.-F. Balcan, V. Kanchanapally, D. Woodruff, NIPS 2014.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(6000, 4)) * [3, 1, 1, 1]
>>> sites = {"A": X[:2000], "B": X[2000:4000], "C": X[4000:]}
>>> pca = ep.FederatedPCA(1, solver=ep.solvers.OneShot(merge="sign"), random_state=0).fit(sites)
>>> pca.n_rounds_, pca.angle_estimate_ < 0.02
(2, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Literal

import numpy as np
import scipy.linalg

from ...errors import InputError
from ...numerics.linalg import Array, orthonormalize, procrustes, top_eigenpairs, unit_columns
from ...runtime import Gather, Progress, Site, local
from ..method import method
from ..parameters import check, check_choice
from ..products import PRODUCTS
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State
from ..told import doubt_own_directions
from .judgement import judged

Merge = Literal["average", "sign", "projection", "stack", "svd"]


@local(
    takes={"k": "", "seed": ""},
    sends={"V": "d <=k", "n": ""},
    reads=CENTRE,
    bound={"n": "count"},
    means={"k": "count", "seed": "seed"},
    doubt=doubt_own_directions,
)
def own_directions(site: Site, k: Any, seed: Any) -> Any:
    """The own leading eigenvectors, signs at random, times the square roots of their eigenvalues; and the number of rows."""
    rows = rows_of(site)
    values, V = rows.top(int(k))
    signs = site.rng(int(seed)).choice([-1.0, 1.0], size=V.shape[1])
    return V * (signs * np.sqrt(np.maximum(values, 0.0))), np.int64(rows.n)


@method(
    "statistical",
    {Gather: (own_directions,)},
    parts=(PRODUCTS,),
    role="estimate",
    remark="Then `scatter_action`, unless `confirm=False`.",
)
class OneShot:
    """One round: merge the sites' own principal directions.

    Parameters
    ----------
    merge : "projection", "sign", "stack", "svd" or "average"
    reference : str, int or None
        For "sign": the site towards which the others are turned, by name or by place in the sorted names; None for the medoid.
    confirm : bool
        Take a second round that gives the variances and tells how good the merge is.  Without it variances are those that the
        sites' own directions show, too small, and nothing is known of the error.
    """

    merge: Merge = "projection"
    reference: str | int | None = None
    confirm: bool = True

    name = "one-shot"
    default_angle = float("inf")

    def __post_init__(self) -> None:
        check_choice("merge", self.merge, Merge)
        check("confirm", self.confirm, isinstance(self.confirm, bool), "True or False")
        if self.reference is not None and self.merge != "sign":
            raise InputError(f"reference={self.reference!r} is for merge='sign' only; leave it out with merge={self.merge!r}")

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Gather, merge, and confirm."""
        k = setup.whole_components()
        replies = await Gather(own_directions, np.int64(k), np.int64(setup.seed))  # line 1
        scaled = {name: V for name, (V, _) in replies.items()}
        weights = {name: float(n) for name, (_, n) in replies.items()}
        Z = self._merged(scaled, weights, k)  # line 2
        side_by_side = np.concatenate(list(scaled.values()), axis=1)
        if self.confirm and setup.max_rounds > 1:
            await Progress(basis=Z)
            return await judged(setup, Z, side_by_side, f"one-shot merge by {self.merge!r}")  # line 3
        shown = side_by_side.T @ Z
        values, rotation = top_eigenpairs(shown.T @ shown)
        Z = np.ascontiguousarray(Z @ rotation)
        await Progress(basis=Z, objective=setup.share(values))
        why = f" (max_rounds={setup.max_rounds})" if self.confirm else ""
        reason = f"one-shot merge by {self.merge!r}, not confirmed{why}: nothing is known of its error"
        return Solution(Z, np.maximum(values, 0.0), None, None, setup.tol is None, reason)

    def _merged(self, scaled: Mapping[str, Array], weights: Mapping[str, float], k: int) -> Array:
        """The merged basis (d x k)."""
        if self.merge == "svd":
            return leading_left(list(scaled.values()), k)
        units = {name: unit_columns(V) for name, V in scaled.items()}
        if self.merge in ("projection", "stack"):
            rows = weights if self.merge == "projection" else dict.fromkeys(weights, 1.0)
            return leading_left([np.sqrt(rows[name]) * V for name, V in units.items()], k)
        if self.merge == "sign":
            reference = self._reference_site(units, weights)
            towards = units[reference]
            if self.reference is not None and towards.shape[1] < k:
                told = f"site {reference!r} has {towards.shape[1]} directions of its own, too few for n_components={k}"
                raise InputError(f"reference={self.reference!r}: {told}; choose a site with more rows, or None for the medoid")
            units = {name: procrustes(V, towards) for name, V in units.items()}
        total = np.zeros((next(iter(units.values())).shape[0], k))
        for name, V in units.items():
            total[:, : V.shape[1]] += weights[name] * V
        return orthonormalize(total)

    def _reference_site(self, units: Mapping[str, Array], weights: Mapping[str, float]) -> str:
        """The site given, or the medoid among those with the most directions."""
        names = list(units)
        if self.reference is not None:
            known = isinstance(self.reference, Integral) and not isinstance(self.reference, bool)
            if known and -len(names) <= int(self.reference) < len(names):
                return names[int(self.reference)]
            if self.reference in names:
                return str(self.reference)
            raise InputError(f"reference={self.reference!r} is not a site; the sites are {', '.join(names[:10])}")
        most = max(V.shape[1] for V in units.values())
        full = [name for name in names if units[name].shape[1] == most]
        together = np.concatenate([np.sqrt(weights[name]) * V for name, V in units.items()], axis=1)
        return max(full, key=lambda name: float(np.sum((units[name].T @ together) ** 2)))


def leading_left(blocks: list[Array], k: int) -> Array:
    """The k leading left singular vectors (d x k) of blocks (d x any) side by side; any others where they have fewer.

    >>> leading_left([np.diag([1.0, 2.0, 0.0])], 1).T
    array([[0., 1., 0.]])
    """
    side_by_side = np.concatenate([*blocks, np.zeros((blocks[0].shape[0], k))], axis=1)  # the zeros make it wide enough
    return np.ascontiguousarray(scipy.linalg.svd(side_by_side, full_matrices=False, check_finite=False)[0][:, :k])
