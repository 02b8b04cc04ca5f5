"""Block Krylov along a tree: exact PCA of all nodes' features by sums that go up to one node, and blocks that come down from it.

Problem
    Node j holds a table of features F_j (n_j x m).  With mu the mean of all nodes' rows, or 0, find the leading k eigenvectors of
    A = (1/J) sum_j (F_j - 1 mu^T)^T (F_j - 1 mu^T) (m x m), at every node.

Rounds
    1. mu <- sums of features over numbers of rows, along the ``tree``
    2. the root: B <- Omega, a random orthonormal m x b block (b >= k), down the tree with mu
    3. for each iteration: A B <- the mean over nodes of F_j^T F_j B (features centred), up the tree
    4.     the root: Q <- [Q, B], A Q <- [A Q, A B];  Ritz vectors Z of the first k, with the residual ||A Z - Z T||_F over the
           sum of all Ritz values, which is at most tr A
    5.     the root stops if the residual is at most tol **and** Omega proves that no direction was missed
           (``numerics/certificate.py``), or if A adds nothing to span(Q)
    6.     else B <- the next block of the Krylov space, down the tree
    7. components <- Z, down the tree

    Where features are K_j R with one R (m x m) for all, nodes keep K_j: what comes down is R B, and the root multiplies by R^T
    what comes up.  That is as exact, and saves every node a product of n_j m^2.

Leaves the site
    Along the tree alone: sums of features and numbers of rows, and products with the block (m x b), of a node and all that are
    behind it.  A leaf of the tree shows its parent its own, unmixed: each iteration gives b more directions of the node's
    scatter A_j, and ceil(m / b) iterations all of it; a test does this.  Neighbours that are not the parent see nothing of it.
    What comes down - blocks, residual, the answer - is made of sums over all nodes.

Cost
    8 m b bytes per node each way, 2 radius rounds and 4 n_j m b flops per iteration; at the root 8 m times all columns so far.
    Converges as block Krylov does, in about the square root of the iterations that ``tracking`` needs.

Differences from the paper
    The papers on PCA over graphs (DeEPCA, ``tracking``) average by gossip and iterate on one basis, because no node is to be
    special.  Here one is: the middle of the graph does the algebra for all, so that all have the same bits and need not agree on
    when to stop.

References
    C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate singular value decomposition", NIPS
    2015.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(90, 5)) * [9, 4, 1, 1, 1] + 3
>>> options = {"kernel": "linear", "graph": "ring:2", "random_state": 0}
>>> pca = ep.GraphKernelPCA(1, solver="landmarks", landmarks=X[:9], **options).fit([X[:20], X[20:50], X[50:]])
>>> pca.converged_, pca.n_iterations_ <= 2
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...numerics.certificate import certify
from ...numerics.compiled_action import NarrowProducts, worth_compiling
from ...numerics.either import action_there
from ...numerics.elsewhere import is_elsewhere
from ...numerics.krylov_space import KrylovSpace
from ...numerics.linalg import Array, fix_signs, random_orthonormal
from ...numerics.rows import block_rows
from ...numerics.tiles import CACHED, LEAST, UNPACKED, action, tile
from ...runtime import Agreed, Local, Progress, Reply, Site, local
from ..method import Part
from .gossip import NOW
from .network import GraphProblem, GraphSolution, Network
from .tree import from_root, join, to_root

METRIC = "metric"
"""Under this name nodes keep R (m x m) if their features are what they keep as "features" times R."""

OFTEN = 10
"""A node's features are multiplied about so often in a fit, and nodes of one process share a compiled loop."""

FACTS = 3
"""Rows below what comes down: the residual, how the root stands, and eigenvalues."""


class Stand(IntEnum):
    """What the root found."""

    ON = 0
    REACHED = 1
    WHOLE = 2
    SHORT = 3


@local(takes={"b": "", "seed": ""}, reads=(NOW, METRIC), keeps=("block", NOW))
def first_block(site: Site, b: Any, seed: Any) -> Reply:  # line 2
    """At the root: the random block beside the mean that comes down."""
    sums = site.kept[NOW]
    omega = _omega(len(sums) - 1, int(b), int(seed))
    below = np.zeros((1, omega.shape[1]))
    return Reply(keep={"block": omega, NOW: np.column_stack([sums, np.concatenate([_times(site, omega), below])])})


@local(takes={"center": ""}, reads=("features", NOW), keeps=("centre", "rows", NOW))
def first_product(site: Site, center: Any) -> Reply:  # line 3
    """The mean (m) and the first block came down; put the product forward."""
    sums, rows, B = site.kept[NOW][:-1, 0], float(site.kept[NOW][-1, 0]), site.kept[NOW][:-1, 1:]
    centre = sums / rows if center else np.zeros(len(sums))
    return Reply(keep={"centre": centre, "rows": rows, NOW: _product(site.kept["features"], centre, B)})


@local(reads=("features", "centre", NOW), keeps=(NOW,))
def next_product(site: Site) -> Reply:  # line 3
    """Put the product with the block that came down forward."""
    return Reply(keep={NOW: _product(site.kept["features"], site.kept["centre"], site.kept[NOW][:-FACTS])})


def _product(F: Any, centre: Array, B: Array) -> Array:
    """(F - 1 mu^T)^T (F - 1 mu^T) B (m x b), in one pass over the features, without a centred copy.

    They are rounded to the digits of F, of length 1 or so, already; subtracting mu from products loses no more than that did.
    Features of single precision are those of the problem: they are multiplied as they are, in double precision.
    """
    if is_elsewhere(F):
        G, sums = action_there(F, B, centre @ B)
        return np.asarray(G - np.outer(centre, sums))
    if worth_compiling(OFTEN * len(F), *B.shape):
        G, sums = NarrowProducts(B, centre @ B).over(iter([F]))
        return np.asarray(G - centre[:, None] * sums)
    double = F.dtype == np.float64
    rows, width = _tile(*B.shape, double)
    if double and len(F) <= rows and width == len(B):  # many small nodes: one tile each
        T = F @ B - centre @ B
        return np.asarray(F.T @ T - centre[:, None] * np.add.reduce(T, axis=0))
    parts = (F[first : first + rows] for first in range(0, len(F), rows)) if double else _in_double(F, rows)
    G, sums = action(parts, B, centre @ B, width)
    return np.asarray(G - centre[:, None] * sums)


def _in_double(F: NDArray[np.floating[Any]], rows: int) -> Iterator[Array]:
    """So many rows at a time in double precision, each time in the same memory: what was given before is overwritten."""
    memory = np.empty((min(rows, len(F)), F.shape[1]))
    for first in range(0, len(F), rows):
        part = F[first : first + rows]
        double = memory[: len(part)]
        np.copyto(double, part)
        yield double


@lru_cache(maxsize=16)
def _tile(m: int, b: int, double: bool) -> tuple[int, int]:
    """Rows and features that are multiplied at a time.  Where rows are made double first, as many as lie in the cache.

    >>> _tile(2048, 5, double=True), _tile(2048, 5, double=False), _tile(6000, 5, double=False)
    ((128, 683), (61, 2048), (20, 6000))
    """
    rows = min(CACHED, UNPACKED // (-(-b // 8) * 8)) // m
    return tile(m, b, block_rows(m)) if double or rows < LEAST else (rows, m)


@local(
    takes={"k": "", "b": "", "seed": "", "tol": "", "last": ""},
    reads=("centre", "space", "block", NOW, METRIC),
    keeps=("space", "block", NOW),
)
def grow_space(site: Site, k: Any, b: Any, seed: Any, tol: Any, last: Any) -> Reply:  # lines 4 to 7
    """At the root: Rayleigh-Ritz on the space with one more block; then the next block, or the answer."""
    m = len(site.kept["centre"])
    omega = _omega(m, int(b), int(seed))
    space: KrylovSpace = site.kept.get("space", KrylovSpace.empty(m)).add(site.kept["block"], _came_up(site, site.kept[NOW]))
    ritz = space.ritz(lambda _: int(k))
    seen = float(np.maximum(ritz.values, 0.0).sum())
    residual = float(np.linalg.norm(ritz.residual)) / seen if seen > 0 else 0.0
    more = np.ascontiguousarray(space.next_block(int(b)))
    reached = residual <= tol and not certify(space, ritz, omega).missed
    stand = _stand(space.size >= m or not more.size or seen <= 0, reached, last)
    keep = {"space": space, "block": more}
    if stand is Stand.ON:
        return Reply(keep=keep | {NOW: _with_facts(_times(site, more), residual, stand)})
    answer = np.column_stack([fix_signs(ritz.Z), _came_up(site, site.kept["centre"])])
    values = np.append(np.maximum(ritz.values[: int(k)], 0.0), 0.0)
    return Reply(keep=keep | {NOW: _with_facts(answer, residual, stand, values)})


def _times(site: Site, table: Array) -> Array:
    """R times a table (m x c), R the metric of the features that nodes keep; the table itself where they have none."""
    product: Array = site.kept[METRIC] @ table if METRIC in site.kept else table
    return product


def _came_up(site: Site, table: Array) -> Array:
    """R^T times a table (m x c) or a vector (m) of what nodes keep; itself where there is no R."""
    product: Array = site.kept[METRIC].T @ table if METRIC in site.kept else table
    return product


def _stand(whole: bool, reached: bool, last: Any) -> Stand:
    if reached or whole:
        return Stand.REACHED if reached else Stand.WHOLE
    return Stand.SHORT if last else Stand.ON


def _with_facts(table: Array, residual: float, stand: Stand, values: Array | float = 0.0) -> Array:
    facts = np.zeros((FACTS, table.shape[1]))
    facts[0], facts[1], facts[2] = residual, stand, values
    return np.concatenate([table, facts])


@local(sends={"facts": "2"}, reads=(NOW,))
def root_stand(site: Site) -> Array:
    """The residual and how the root stands, as they came down."""
    facts: Array = site.kept[NOW][-FACTS:-1, 0]
    return facts


@local(reads=(NOW,), keeps=("components", "mean", "eigenvalues"))
def take_components(site: Site) -> Reply:  # line 7
    """Keep the answer that came down, and the mean of the features."""
    answer = site.kept[NOW]
    return Reply(keep={"components": answer[:-FACTS, :-1], "mean": answer[:-FACTS, -1], "eigenvalues": answer[-1, :-1]})


@lru_cache(maxsize=4)
def _omega(m: int, b: int, seed: int) -> Array:
    """The random block; nodes of one process need it once."""
    block = random_orthonormal(m, b, seed)
    block.flags.writeable = False  # it is handed out again
    return block


def most_rounds(network: Network, iterations: int) -> int:
    """Rounds after which ``solve`` has ended."""
    return max(1, 2 * network.radius * (iterations + 1))


async def solve(problem: GraphProblem, more_columns: int, default_tol: float, m: int) -> GraphSolution:
    """Run the method on features that every node keeps as "features" (n_j x m), their sums and number kept as ``NOW``."""
    k, tol = problem.n_components, problem.stopping_tol(default_tol)
    if k > m:
        raise InputError(f"n_components={k} must be at most the number of features, {m}; ask for fewer, or give more features")
    network, root = problem.network, problem.network.tree.root
    await join(network)
    b, seed = np.int64(min(k + more_columns, m)), np.int64(problem.seed)
    await to_root(network)  # line 1
    await Local(first_block, b, seed, nodes=root)  # line 2
    await from_root(network)
    await Local(first_product, np.float64(problem.center))  # line 3
    for t in range(1, problem.max_iterations + 1):
        if t > 1:
            await Local(next_product)  # line 3
        await to_root(network)
        last = np.float64(t == problem.max_iterations)
        await Local(grow_space, np.int64(k), b, seed, np.float64(tol), last, nodes=root)  # lines 4, 5
        await from_root(network)  # lines 6, 7
        residual, stand = (float(fact) for fact in await Agreed(root_stand, nodes=root))
        await Progress(kkt=residual)
        if stand != Stand.ON:
            break
    await Local(take_components)
    return GraphSolution(t, stand != Stand.SHORT, _reason(Stand(int(stand)), residual, tol, problem.max_iterations))


def _reason(stand: Stand, residual: float, tol: float, iterations: int) -> str:
    if stand is Stand.REACHED:
        return f"residual {residual:.1e} reached tol {tol:.1e}, and no direction was missed"
    if stand is Stand.WHOLE:
        return f"no direction is left to look at, at residual {residual:.1e}"
    advice = "raise max_iterations, or ask for a number of components after which eigenvalues drop"
    return f"max_iterations={iterations} reached at residual {residual:.1e}, asked for {tol:.1e} and a proof; {advice}"


TREE_KRYLOV = Part(
    "Graph: block Krylov along a tree",
    {Agreed: (root_stand,), Local: (first_block, first_product, next_product, grow_space, take_components)},
)
