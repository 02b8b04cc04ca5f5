"""What a node of a graph knows of its neighbours' rows: the kernel between all of them, centred at one point by all nodes.

Problem
    Node j needs the kernel matrix G_j (N x N) of its own and its neighbours' rows, of phi(x) - mu for one mu that is the same at
    all nodes and close to the mean over all rows.  A mu of each neighbourhood's own lets directions drift: in trials similarity
    fell from .97 to .23 in 40 iterations.

Rounds
    1. every node sends its rows to its neighbours; if noise is asked for, a noisy copy that it uses itself from then on
    2. B <- public landmark rows, or the mean of all nodes' rows (``tree``)
    3. nodes average F(x) = [f(x), g(x)]: f(x) = K(x, B) K(B, B)^(-1/2) describes phi(x) within the span of phi(B) exactly, g(x)
       what is left of random features z(x) beyond z(B) (nothing with landmarks)
    4. v <- the part of the mean within the span of phi(B), of which <phi(x), v> = <f(x), mean f> and <v, v> are known exactly;
       r(x) <- <g(x), mean g> + mean over the neighbourhood's rows y of K(x, y) - <F(x), F(y)>, an estimate of <phi(x), mu - v>;
       a row's own node sends <phi(x), v> + r(x) to the neighbours;  for the mean over y of F(y) they send sums of theirs before
    5. K' <- K - <phi(x), v> - <phi(y), v> + <v, v> + eps I;  R <- the largest over nodes of r^T K'^{-1} r (max-consensus)
    6. G_j <- K' - r 1^T - 1 r^T + R

Leaves the site
    The node's rows (n_j x d), to its neighbours: projection consensus needs them, row-free methods do not.  Sums of rows and of
    features, added up along the tree, and those of features to all neighbours.  The mean's values at its rows (n_j).  One
    number, R.

Cost
    8 (n_j d + m) bytes per neighbour and 16 (d + m) along the tree, once; one Cholesky factorisation of K.

Differences from the paper
    The paper centres each block K_(i,j) by its own means (Section 6.1): a row is centred at the mean of its node's rows.  Nothing
    need be agreed on, and what nodes' means differ by is lost.  That is ``blockwise``, instead of lines 2 to 6.
    Lines 2 to 6 are ours: r is only an estimate, and with R less than r^T K'^{-1} r no vector has these values, G_j is not
    positive semidefinite and Algorithm 1 overflows.  A larger R gives all rows the same constant feature, a principal direction
    of its own.  It must stay a small one beside the variance about the mean, however small that is beside K(x, x) = 1: this is
    why most of the mean is removed exactly first, and eps is a share of the variance that is left then.

References
    F. He, R. Yang, L. Shi, X. Huang, "A decentralized framework for kernel PCA with projection consensus constraints", Alg. 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from ...errors import InputError
from ...numerics.kernels import Kernel
from ...numerics.linalg import Array
from ...numerics.mean_features import MeanFeatures
from ...runtime import Exchange, Local, Max, Reply, Site, local
from ..method import Part
from .features import dense
from .gossip import NOW
from .network import GraphProblem
from .tree import join, mean

NUGGET = 0.01
"""Every row is given a feature of its own of this square, as a share of the mean square of all rows' features about v."""

SLACK = 1.01
"""R is so much larger than it must be, so that no G_j is singular."""

JITTER = 1e-8
"""Added to the diagonal of K before it is factorised: equal rows make it singular."""

ALIKE = 1e-11
"""Rows whose features differ by no more than this share of their square cannot be told apart in double precision."""


SEEN = ("gram", "sizes", "order")
"""Names under which a node keeps the kernel between all rows that it has seen, and whose rows these are, in which order."""


@local(takes={"noise": ""}, sends={"rows": "n d"}, keeps=("own table",))
def send_rows(site: Site, noise: Any) -> Reply:  # line 1
    """The node's rows, with normal noise of this standard deviation, drawn once from the operating system's entropy."""
    X = dense(site.X)
    if noise > 0:
        X = X + float(noise) * site.secret_rng().standard_normal(X.shape)
    return Reply(send=X, keep={"own table": X})


@local(takes={"kernel": "c"}, reads=("own table",), keeps=("order", "sizes", "tables", "gram", NOW))
def keep_rows(site: Site, kernel: Any) -> Reply:
    """Own rows first, then the neighbours' in sorted order; the kernel between all of them; sums of own rows for line 2."""
    order = (site.name, *sorted(site.inbox))
    own = site.kept["own table"]
    tables = [own, *(site.inbox[name][0] for name in order[1:])]
    X = np.concatenate(tables)
    gram = Kernel.unpacked(kernel)(X, X)
    sums = np.append(own.sum(axis=0), len(own))[:, None]
    return Reply(keep={"order": order, "sizes": [len(table) for table in tables], "tables": X, "gram": gram, NOW: sums})


@local(
    takes={"kernel": "c", "landmarks": "l d", "count": "", "seed": ""},
    reads=("own table", NOW),
    keeps=("basis", "features", "feature sum", NOW),
)
def sum_features(site: Site, kernel: Any, landmarks: Any, count: Any, seed: Any) -> Reply:  # lines 2, 3
    """B; the features F of the node's rows, their sums, and their number.

    What is added up over nodes are differences from the features of B's first row, which are small where variances are.
    """
    basis = landmarks if len(landmarks) else (site.kept[NOW][:-1, 0] / site.kept[NOW][-1, 0])[None]
    features = MeanFeatures(Kernel.unpacked(kernel), basis, int(count), int(seed))
    F, origin = features(site.kept["own table"], exact_angles=False)[0], features(basis[:1])[0][0]
    apart = np.add.reduce(F - origin, axis=0)
    sums = np.append(apart, len(F))[:, None]
    return Reply(keep={"basis": basis, "features": F, "feature sum": apart + len(F) * origin, NOW: sums})


@local(sends={"sum": "m"}, reads=("feature sum",))
def send_feature_sums(site: Site) -> Array:  # line 4
    """The sum of the features of the node's rows, for neighbours, who have the rows."""
    total: Array = site.kept["feature sum"]
    return total


@local(
    takes={"kernel": "c", "count": "", "seed": ""},
    sends={"values": "n"},
    reads=("tables", "sizes", "basis", "features", "feature sum", NOW, "gram"),
    keeps=("feature mean", "features", "exact", "mean values"),
)
def send_mean_values(site: Site, kernel: Any, count: Any, seed: Any) -> Reply:  # line 4
    """<phi(x), v> + r(x) of the node's own rows, for its neighbours; keeps <phi(x), v> of all rows seen, and <v, v>."""
    n, features = site.kept["sizes"][0], MeanFeatures(Kernel.unpacked(kernel), site.kept["basis"], int(count), int(seed))
    mean = features(site.kept["basis"][:1])[0][0] + site.kept[NOW][:-1, 0] / site.kept[NOW][-1, 0]
    F, exact = site.kept["features"], features.exact(site.kept["tables"])
    size, total = exact.shape[1], site.kept["feature sum"]
    for name in sorted(site.inbox):
        total = total + site.inbox[name][0]
    m = F @ mean + (site.kept["gram"][:n].mean(axis=1) - F @ (total / len(exact)))
    inside = exact @ mean[:size], float(mean[:size] @ mean[:size])
    return Reply(send=m, keep={"feature mean": mean, "features": None, "exact": inside, "mean values": m})


@local(sends={"square": ""}, reads=("exact", "mean values", "gram", "order"), keeps=("gram", "mean values"))
def centre_square(site: Site) -> Reply:  # line 5
    """K', and r^T K'^{-1} r: the least square that a vector with these values can have."""
    m = np.concatenate([site.kept["mean values"], *(site.inbox[name][0] for name in site.kept["order"][1:])])
    values, square = site.kept["exact"]
    K = site.kept["gram"] - (values - square)
    K -= values[:, None]
    spread = 1.0 - square  # the mean of K'(x, x) over all nodes' rows, because K(x, x) = 1
    if spread < ALIKE:
        raise InputError(
            f"all rows look alike to this kernel (their features differ by {max(spread, 0.0):.0e} of their square); raise gamma, "
            "or give features in smaller units"
        )
    K.flat[:: len(m) + 1] += NUGGET * spread
    return Reply(send=SLACK * square_in(K, m - values), keep={"gram": K, "mean values": m})


@local(takes={"square": ""}, reads=("exact", "mean values", "gram"), keeps=("gram", "centre square"))
def centre_gram(site: Site, square: Any) -> Reply:  # line 6
    """K' - r 1^T - 1 r^T + R."""
    values, exact = site.kept["exact"]
    r = site.kept["mean values"] - values
    gram = site.kept["gram"] - (r - float(square))
    gram -= r[:, None]
    return Reply(keep={"gram": gram, "centre square": exact + float(square)})


@local(reads=("gram",), keeps=("gram",))
def add_nugget(site: Site) -> Reply:
    """K + eps I, where nothing is centred."""
    return Reply(keep={"gram": site.kept["gram"] + NUGGET * np.eye(len(site.kept["gram"]))})


@local(reads=("gram", "sizes"), keeps=("gram", "mean values", "centre square"))
def centre_blocks(site: Site) -> Reply:
    """Every block K_(i,j) less its means: phi(x) less the mean of x's own node.  Keeps this node's mean by its values."""
    K, sizes = site.kept["gram"], site.kept["sizes"]
    means = scipy.linalg.block_diag(*(np.full((1, size), 1.0 / size) for size in sizes))  # nodes x rows
    left = K - np.repeat(means @ K, sizes, axis=0)
    values = K @ means[0]
    gram = left - np.repeat(left @ means.T, sizes, axis=1)
    return Reply(keep={"gram": gram, "mean values": values, "centre square": float(means[0] @ values)})


@local(reads=("gram",), keeps=("gram", "mean values", "centre square"))
def centre_alone(site: Site) -> Reply:
    """Centre at the mean of the only node's rows."""
    m = site.kept["gram"].mean(axis=0)
    gram = site.kept["gram"] - m - m[:, None] + m.mean()
    return Reply(keep={"gram": gram, "mean values": m, "centre square": float(m.mean())})


def square_in(gram: Array, values: Array) -> float:
    """values^T gram^{-1} values: the least square of a vector with these inner products with the rows of a Gram matrix."""
    scale = float(np.trace(gram)) / len(gram)
    jittered = gram.copy()
    jittered.flat[:: len(gram) + 1] += JITTER * scale
    lower = scipy.linalg.cholesky(jittered, lower=True, check_finite=False)
    half = scipy.linalg.solve_triangular(lower, values, lower=True, check_finite=False)
    return float(half @ half)


def blocks_of(site: Site) -> dict[str, slice]:
    """Where each node's rows are among those of the neighbourhood."""
    ends = np.cumsum(site.kept["sizes"])
    return {name: slice(end - size, end) for name, size, end in zip(site.kept["order"], site.kept["sizes"], ends, strict=True)}


def own_kernel(site: Site) -> Array:
    """K_j (n_j x n_j): the node's own part of G_j."""
    n = site.kept["sizes"][0]
    K: Array = site.kept["gram"][:n, :n]
    return K


async def meet(problem: GraphProblem, n_features: int, noise: float, *, blockwise: bool = False) -> None:
    """Leave G_j at every node as "gram", its rows as "tables" in "order" and of "sizes"."""
    kernel, seed = problem.kernel.packed(), np.int64(problem.seed)
    landmarks = problem.landmarks if problem.landmarks is not None else np.zeros((0, problem.n_features))
    alone = len(problem.network.graph) == 1
    common = problem.center and not alone and not blockwise
    if common and not len(landmarks) and problem.kernel.name not in ("rbf", "laplacian"):
        raise InputError(
            f"kernel={problem.kernel.name!r} has no random features to describe the common mean with; "
            "give public rows as landmarks=, or center=False"
        )
    if problem.center and blockwise and problem.n_components > 1:
        raise InputError(
            f"n_components={problem.n_components} with centring='block': the paper, whose centring this is, finds one component; "
            "ask for one, or use centring='common'"
        )
    await join(problem.network)
    await Exchange(send_rows, np.float64(noise))  # line 1
    await Local(keep_rows, kernel)
    if problem.center and alone:
        await Local(centre_alone)
    elif problem.center and blockwise:
        await Local(centre_blocks)
    elif problem.center:
        count = np.int64(0 if len(landmarks) else n_features // 2)
        if not len(landmarks):
            await mean(problem.network)  # line 2
        await Local(sum_features, kernel, landmarks, count, seed)
        await mean(problem.network)  # line 3
        await Exchange(send_feature_sums)  # line 4
        await Exchange(send_mean_values, kernel, count, seed)  # line 4
        square = await Max(centre_square)  # line 5
        await Local(centre_gram, square)  # line 6
    elif not alone and problem.n_components > 1:  # one component needs no inverse of G_j
        await Local(add_nugget)


MEETING = Part(
    "Graph: rows and the common mean",
    {
        Exchange: (send_rows, send_feature_sums, send_mean_values),
        Max: (centre_square,),
        Local: (keep_rows, centre_alone, centre_blocks, sum_features, centre_gram, add_nugget),
    },
)
