"""What a node of a graph knows of its neighbours' rows: the kernel between all of them, centred at one point by all nodes.

Problem
    Node j needs the kernel matrix G_j (N x N) of its own and its neighbours' rows, of phi(x) - mu for one mu that is the same at
    all nodes and close to the mean over all rows.  A mu of each neighbourhood's own lets directions drift: in trials similarity
    fell from .97 to .23 in 40 iterations.

Rounds
    1. every node sends its rows to its neighbours, with normal noise if asked for
    2. nodes average the features of their rows (``features``: random ones, or of public landmarks), sums and counts (``gossip``)
    3. mu is known by its values: m(x) <- <z(x), mean z over all rows> + mean over the neighbourhood's rows y of
       K(x, y) - <z(x), z(y)>, which removes most of the features' error; a row's own node sends it to the neighbours
    4. M <- the largest over nodes of m^T (K + eps I)^{-1} m (max-consensus), m and K of the node's neighbourhood
    5. G_j <- K + eps I - m 1^T - 1 m^T + M

Leaves the site
    The node's rows (n_j x d), to its neighbours: projection consensus needs them, row-free methods do not.  Sums of features (m),
    averaged on.  m of its rows (n_j).  One number, M.

Cost
    8 n_j d bytes per neighbour once, 8 m bytes per neighbour and round of averaging; one Cholesky factorisation of K.

Differences from the paper
    The paper centres each block K_(i,j) by its own means (Section 6.1), so that the same row has a different phi at every node.
    Lines 3 to 5 are ours: m is only an estimate, and with <mu, mu> less than m^T K^{-1} m no vector mu has these values, G_j is
    not positive semidefinite and Algorithm 1 overflows.  A larger M gives all rows the same constant feature, a principal
    direction of its own beside the others; it must stay a small one, and does with eps = 0.01 and the correction of line 3.

References
    F. He, R. Yang, L. Shi, X. Huang, "A decentralized framework for kernel PCA with projection consensus constraints", Alg. 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from ...errors import InputError
from ...kernels import Kernel, landmark_features, random_features
from ...linalg import Array
from ...runtime import Exchange, Local, Max, Reply, Site, local
from .features import dense
from .gossip import NOW, average
from .network import GraphProblem

PRECISION = 1e-8
"""Of the averaged features; their own error is larger."""

NUGGET = 0.01
"""Every row is given a feature of its own of this square, of K(x, x) = 1: an error of m then weighs no more than it should."""

SLACK = 1.01
"""M is so much larger than it must be, so that no G_j is singular."""

JITTER = 1e-8
"""Added to the diagonal of K before it is factorised: equal rows make it singular."""


@local(takes={"noise": "", "seed": ""}, sends={"rows": "n d"})
def send_rows(site: Site, noise: Any, seed: Any) -> Array:  # line 1
    """The node's rows, with noise of this standard deviation."""
    X = dense(site.X)
    return X + float(noise) * site.rng(int(seed)).standard_normal(X.shape) if noise > 0 else X


@local(takes={"kernel": "c"}, keeps=("order", "sizes", "own table", "tables", "gram"))
def keep_rows(site: Site, kernel: Any) -> Reply:
    """Own rows first, then the neighbours' in sorted order; the kernel between all of them."""
    order = (site.name, *sorted(site.inbox))
    tables = [dense(site.X), *(site.inbox[name][0] for name in order[1:])]
    X = np.concatenate(tables)
    gram = Kernel.unpacked(kernel)(X, X)
    sizes = [len(table) for table in tables]
    return Reply(keep={"order": order, "sizes": sizes, "own table": tables[0], "tables": X, "gram": gram})


@local(takes={"kernel": "c", "landmarks": "l d", "count": "", "seed": ""}, keeps=(NOW,))
def sum_features(site: Site, kernel: Any, landmarks: Any, count: Any, seed: Any) -> Reply:
    """Sums of the features of the node's rows, and their number."""
    F = mean_features(Kernel.unpacked(kernel), dense(site.X), landmarks, int(count), int(seed))
    return Reply(keep={NOW: np.append(F.sum(axis=0), len(F))[:, None]})


@local(
    takes={"kernel": "c", "landmarks": "l d", "count": "", "seed": ""},
    sends={"values": "n"},
    keeps=("feature mean", "mean values"),
)
def send_mean_values(site: Site, kernel: Any, landmarks: Any, count: Any, seed: Any) -> Reply:  # line 3
    """m of the node's own rows, for its neighbours."""
    n, mean = site.kept["sizes"][0], site.kept[NOW][:-1, 0] / site.kept[NOW][-1, 0]
    F = mean_features(Kernel.unpacked(kernel), site.kept["tables"], landmarks, int(count), int(seed))
    m = F[:n] @ mean + (site.kept["gram"][:n].mean(axis=1) - F[:n] @ F.mean(axis=0))
    return Reply(send=m, keep={"feature mean": mean, "mean values": m})


@local(sends={"square": ""}, keeps=("mean values",))
def centre_square(site: Site) -> Reply:  # line 4
    """m^T K^{-1} m: the least square that a centre with these values can have."""
    m = np.concatenate([site.kept["mean values"], *(site.inbox[name][0] for name in site.kept["order"][1:])])
    mean = site.kept["feature mean"]
    K = site.kept["gram"] + NUGGET * np.eye(len(m))
    return Reply(send=SLACK * max(square_in(K, m), float(mean @ mean)), keep={"mean values": m})


@local(takes={"square": ""}, keeps=("gram", "centre square"))
def centre_gram(site: Site, square: Any) -> Reply:  # line 5
    """K - m 1^T - 1 m^T + M."""
    m = site.kept["mean values"]
    gram = site.kept["gram"] + NUGGET * np.eye(len(m)) - m - m[:, None] + float(square)
    return Reply(keep={"gram": gram, "centre square": float(square)})


@local(keeps=("gram", "mean values", "centre square"))
def centre_alone(site: Site) -> Reply:
    """Centre at the mean of the only node's rows."""
    m = site.kept["gram"].mean(axis=0)
    gram = site.kept["gram"] - m - m[:, None] + m.mean()
    return Reply(keep={"gram": gram, "mean values": m, "centre square": float(m.mean())})


def square_in(gram: Array, values: Array) -> float:
    """values^T gram^{-1} values: the least square of a vector with these inner products with the rows of a Gram matrix."""
    scale = float(np.trace(gram)) / len(gram)
    lower = scipy.linalg.cholesky(gram + JITTER * scale * np.eye(len(gram)), lower=True, check_finite=False)
    half = scipy.linalg.solve_triangular(lower, values, lower=True, check_finite=False)
    return float(half @ half)


def mean_features(kernel: Kernel, X: Array, landmarks: Array, count: int, seed: int) -> Array:
    """Features (n x m) with which nodes describe the mean: of the landmarks if there are any, else ``count`` random pairs."""
    if len(landmarks):
        return landmark_features(kernel, X, landmarks)
    return random_features(X, kernel.frequencies(X.shape[1], count, seed))


def blocks_of(site: Site) -> dict[str, slice]:
    """Where each node's rows are among those of the neighbourhood."""
    ends = np.cumsum(site.kept["sizes"])
    return {name: slice(end - size, end) for name, size, end in zip(site.kept["order"], site.kept["sizes"], ends, strict=True)}


def own_kernel(site: Site) -> Array:
    """K_j (n_j x n_j): the node's own part of G_j."""
    n = site.kept["sizes"][0]
    K: Array = site.kept["gram"][:n, :n]
    return K


async def meet(problem: GraphProblem, n_features: int, noise: float) -> None:
    """Leave G_j at every node as "gram", its rows as "tables" in "order" and of "sizes"."""
    kernel, seed = problem.kernel.packed(), np.int64(problem.seed)
    landmarks = problem.landmarks if problem.landmarks is not None else np.zeros((0, problem.n_features))
    alone = len(problem.network.graph) == 1
    if problem.center and not alone and not len(landmarks) and problem.kernel.name not in ("rbf", "laplacian"):
        raise InputError(
            f"kernel={problem.kernel.name!r} has no random features to describe the common mean with; "
            "give public rows as landmarks=, or center=False"
        )
    await Exchange(send_rows, np.float64(noise), seed)  # line 1
    await Local(keep_rows, kernel)
    if problem.center and alone:
        await Local(centre_alone)
    elif problem.center:
        about = (kernel, landmarks, np.int64(n_features // 2), seed)
        await Local(sum_features, *about)  # line 2
        await average(problem.network, PRECISION)
        await Exchange(send_mean_values, *about)  # line 3
        square = await Max(centre_square)  # line 4
        await Local(centre_gram, square)  # line 5
