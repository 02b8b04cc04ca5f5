"""Decentralized kernel PCA with projection consensus (He, Yang, Shi, Huang, Algorithm 1).

Problem
    Node j holds rows X_j.  With u the first principal direction of all rows in feature space, node j wants its projection on
    span phi(X_j), w_j = phi(X_j) alpha_j: nodes need not have one direction, only projections of one.  ADMM on problem (7), in
    which z_j is node j's copy of u and Omega_j its neighbourhood, j itself included.

Rounds
    1. nodes send rows to neighbours and centre kernels at a common point (``neighbourhood``)
    2. alpha_j <- projection of a direction that all nodes agree on (``frames``); signs are agreed on once around the graph
       (the paper: alpha_j <- random, signs as drawn)
    3. rho <- 2 max_j lambda_1(K_j) (along the ``tree`` beside the start, else max-consensus), half as much again if a node has
       one neighbour only
    4. for each iteration:
    5.     l sends K_l^{-1} phi(X_l)^T eta_lj + rho alpha_l to each j;  z_j <- their sum / (rho |Omega_j|), (10), (11)
    6.     j sends phi(X_l)^T z_j to each l;  alpha_j <- (12);  phi(X_j)^T eta_j <- (13)
    7.     stop if no w_j moved by more than tol of its length (max-consensus, every ``CHECK_EVERY`` iterations)
    8. for a further component: t(x) <- the mean of the z_l's values at x, sent to neighbours;  G_j <- G_j - s t t^T with the
       largest s <= 1 that leaves all G_j positive semidefinite (max-consensus);  from line 2
    9. after every component nodes look for signs that it is wrong, and agree on the worst (``trust``)
    10. the answer is w_j, made of own rows as in the paper, or z_j, made of all rows that the node has seen (``span``)

Leaves the site
    Its rows (n_j x d), to its neighbours; n_j numbers to each neighbour in line 5, n_l in line 6; signs and scores, n_j each;
    20 n_j for the start.

Cost
    8 (n_j + n_l) bytes per neighbour and iteration, diameter x 8 for each agreement; O(N^2) flops per iteration, N the rows of
    the neighbourhood, whatever the number of nodes.

Differences from the paper
    One vector instead of two in line 5: the sum of what the paper sends.  Start and signs are ours.  The paper's random start is
    ``start="random", signs="as drawn"``; it needs tens of iterations, more or fewer as it is drawn: in the small Figure 5
    (``eigenpact reproduce kernel-fig5``, 2 and 6 neighbours) similarity is .64 and .63 after 4 iterations and .96 and .94 after
    30, with signs agreed .67 and .37, then .96 and .77, and from our start .96 after one.  A node's own rows may have the second
    direction first, which takes many iterations to turn round.  The paper centres blocks (``centring="block"``).  rho is constant
    (the paper's schedule, 10, 50, 100 for neighbours and 100 for the node itself, is ``schedule="paper"``; it tells no iterations
    for the steps, here 10 each); rho |Omega_j| <= 2 lambda_1(K_j) overflows and is refused.  A pseudo-inverse for K_j^{-1}.  Own
    stopping rule.  Line 8 (several components) and z_j as an answer are ours.  The augmented Lagrangian (8) is recorded at the
    nodes; Theorem 2 says that it falls, which need not be (tests/theory/test_kernel.py).

References
    F. He, R. Yang, L. Shi, X. Huang, "A decentralized framework for kernel PCA with projection consensus constraints".

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(90, 3)) * [3, 1, 1]
>>> pca = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", random_state=0).fit([X[:30], X[30:60], X[60:]])
>>> bool(pca.agreement_ > 0.9)
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import numpy as np

from ...errors import ProgramError
from ...numerics.linalg import Array
from ...runtime import Exchange, Local, Max, Progress, Reply, Site, local
from ..method import method
from ..parameters import check, check_choice
from .deflation import DEFLATION, remove_direction
from .frames import FRAMES, agree_on_direction, make_frame
from .frames import most_rounds as rounds_to_start
from .neighbourhood import MEETING, SEEN, blocks_of, meet, own_kernel
from .network import GraphProblem, GraphSolution, Network
from .signs import SIGNS, agree_on_signs
from .tree import TREE
from .trust import TRUST, complaints, found_trust, keep_copy

CHECK_EVERY = 5
RANK = 1e-6
"""Eigenvalues of K_j below this share of the largest count as 0."""

STEADY = 3
"""rho |Omega_j| is at least twice this many times lambda_1 for every j."""

TIED, TIED_TOL = 0.9, 1e-3
"""Directions whose variances have a larger ratio turn towards the first so slowly that steps must be this small to tell."""

Span = Literal["own", "neighbourhood"]
Start = Literal["agreed", "own", "random"]
Signs = Literal["agreed", "as drawn"]
Centring = Literal["common", "block"]
PAPER_SCHEDULE = ((10, 10.0), (10, 50.0), (0, 100.0))
"""For how many iterations the paper's rho for neighbours has which value.  The last one stays, and is the node's own always."""

RESULTS = ("rows", "alpha", "lengths", "history", "iterates", "mean values", "basis", "feature mean", "centre square")
"""What nodes keep of the answer."""


@local(
    takes={"start": "", "seed": "", "keep": ""},
    sends={"largest": ""},
    reads=("gram", "sizes"),
    keeps=("values", "vectors", "now", "eta", "z values", "settled", "trail", "copies", "moves", "keeps iterates"),
)
def begin_component(site: Site, start: Any, seed: Any, keep: Any) -> Reply:  # lines 2, 3
    """lambda_1(K_j); begin with the node's own first direction (start 0 or 1) or a random one (2); keep all iterates, or one."""
    G, n = site.kept["gram"], site.kept["sizes"][0]
    values, V = np.linalg.eigh(G[:n, :n])
    kept = values > RANK * values[-1]
    site_values, V = values[kept], V[:, kept]
    now = V @ site.rng(int(seed)).standard_normal(V.shape[1]) if start == 2 else V[:, -1]
    eta = np.zeros((n, len(site.kept["sizes"])))
    reset = {"eta": eta, "z values": (G[:n, :n] @ now)[:, None], "settled": False, "trail": [], "copies": [], "moves": []}
    reset["keeps iterates"] = bool(keep)
    return Reply(send=float(values[-1]), keep={"values": site_values, "vectors": V, "now": now} | reset)


@local(
    takes={"own": "", "others": ""},
    sends={"coefficients": "n"},
    reads=("values", "vectors", "eta", "now", "order"),
    keeps=("own coefficients",),
)
def send_coefficients(site: Site, own: Any, others: Any) -> Reply:  # line 5
    """K_j^{-1} phi(X_j)^T eta_jl + rho alpha_j for each neighbour l, the weights of phi(X_j) in rho |Omega_l| z_l."""
    inverse, eta, alpha = _inverse(site), site.kept["eta"], site.kept["now"]
    messages = {name: inverse(eta[:, i]) + float(own if i == 0 else others) * alpha for i, name in enumerate(site.kept["order"])}
    mine = messages.pop(site.name)
    return Reply(send=messages, keep={"own coefficients": mine})


@local(
    takes={"own": "", "others": ""},
    sends={"values": "n"},
    reads=(*SEEN, "keeps iterates", "own coefficients", "copies"),
    keeps=("own values", "copies"),
)
def send_values(site: Site, own: Any, others: Any) -> Reply:  # lines 5, 6
    """z_j by (10) and (11); its values phi(X_l)^T z_j for each neighbour l."""
    order, blocks, G = site.kept["order"], blocks_of(site), site.kept["gram"]
    c = np.concatenate([site.kept["own coefficients"], *(site.inbox[name][0] for name in order[1:])])
    c = c / (float(own) + float(others) * (len(order) - 1))
    v = G @ c
    long = max(1.0, np.sqrt(max(float(c @ v), 0.0)))
    c, v = c / long, v / long
    keep = {"own values": v[blocks[site.name]], "copies": _with(site, site.kept["copies"], c)}
    return Reply(send={name: v[blocks[name]] for name in order[1:]}, keep=keep)


@local(
    takes={"own": "", "others": ""},
    sends={"moved": ""},
    reads=(*SEEN, "values", "vectors", "eta", "now", "keeps iterates", "own values", "moves", "trail"),
    keeps=("now", "eta", "z values", "trail", "moves"),
)
def update(site: Site, own: Any, others: Any) -> Reply:  # line 6
    """alpha_j by (12), eta_j by (13).

    Records how far w_j moved, the constraint's residual, the node's parts of L(alpha^t, Z^t, eta^t) and L(alpha^(t+1), Z^t,
    eta^(t+1)), and ||w_j||, with L the augmented Lagrangian (8).
    """
    order, K = site.kept["order"], own_kernel(site)
    P = np.stack([site.kept["own values"], *(site.inbox[name][0] for name in order[1:])], axis=1)
    rho = np.array([float(own), *[float(others)] * (len(order) - 1)])
    values, V = site.kept["values"], site.kept["vectors"]
    if rho.sum() <= 2 * values[-1]:
        raise ProgramError(
            f"rho |Omega| = {rho.sum():.3g} must exceed 2 lambda_1(K_j) = {2 * values[-1]:.3g}; use schedule='constant'"
        )
    right = (P * rho - site.kept["eta"]).sum(axis=1)
    alpha = V @ ((V.T @ right) / (values * (rho.sum() - 2 * values)))
    gap = (K @ alpha)[:, None] - P
    eta = site.kept["eta"] + rho * gap
    roots = np.sqrt(values)[:, None]  # from here on in an orthonormal basis of span phi(X_j)
    before, after = (roots * (V.T @ a)[:, None] for a in (site.kept["now"], alpha))
    Z, multipliers = V.T @ P / roots, V.T @ site.kept["eta"] / roots
    first = _lagrangian(values, before, Z, multipliers, rho)
    second = _lagrangian(values, after, Z, multipliers + rho * (after - Z), rho)
    squares = np.sum((after - Z) ** 2, axis=0)
    length = np.sqrt(max(float(alpha @ K @ alpha), np.finfo(float).tiny))
    step = alpha - site.kept["now"]
    moved = float(np.sqrt(max(float(step @ K @ step), 0.0)) / length)
    residual = float(np.sqrt(max(squares.max(), 0.0)) / length)
    record = [*site.kept["moves"], [moved, residual, first, second, length]]
    keep = {"now": alpha, "eta": eta, "z values": P, "trail": _with(site, site.kept["trail"], alpha), "moves": record}
    return Reply(send=moved, keep=keep)


def _lagrangian(values: Array, w: Array, Z: Array, eta: Array, rho: Array) -> float:
    """A node's part of (8): w_j (r x 1), the z_q and eta_jq (r x |Omega_j|) in the basis in which K_j's eigenvalues belong."""
    gap = w - Z
    return float(-values @ w[:, 0] ** 2 + np.sum(eta * gap) + rho @ np.sum(gap**2, axis=0) / 2)


def _with(site: Site, iterates: list[Array], found: Array) -> list[Array]:
    """Iterates with one more, or that one alone."""
    return [*iterates, found] if site.kept["keeps iterates"] else [found]


@local(
    takes={"wide": ""},
    reads=("tables", "wide alpha", "wide iterates", "own table", "alpha", "iterates"),
    keeps=("rows", "alpha", "iterates"),
)
def hand_over(site: Site, wide: Any) -> Reply:  # line 10
    """The rows that the answer is made of, own ones or all seen, and its coefficients."""
    if wide:
        kept = {"rows": site.kept["tables"], "alpha": site.kept["wide alpha"], "iterates": site.kept["wide iterates"]}
    else:
        kept = {"rows": site.kept["own table"], "alpha": site.kept["alpha"], "iterates": site.kept["iterates"]}
    return Reply(keep=kept)


def _inverse(site: Site) -> Callable[[Array], Array]:
    """Product with the pseudo-inverse of K_j."""
    values, V = site.kept["values"], site.kept["vectors"]
    return lambda B: V @ ((V.T @ B).T / values).T


@method(
    "graph",
    {
        Max: (begin_component, update),
        Exchange: (send_coefficients, send_values),
        Local: (begin_component, update, hand_over),
    },
    parts=(MEETING, TREE, FRAMES, SIGNS, DEFLATION, TRUST),
    results=RESULTS,
    remark='"From site" means to the neighbours in all parts on graphs, where there is no coordinator. '
    "Numbers that nodes agree on go from neighbour to neighbour as `pass_on_maximum`.",
)
class ProjectionConsensus:
    """Algorithm 1.

    Parameters
    ----------
    schedule : "constant" or "paper"
        rho = 2 max_j lambda_1(K_j) throughout, or the paper's numbers, which suit its data.
    rho : float, optional
        The constant, if it is to be another.
    start : "agreed", "own" or "random"
        The leading direction of all rows as far as neighbourhoods can tell, that of the node's own rows, or a random one, as in
        the paper.
    signs : "agreed" or "as drawn"
        Whether nodes agree on the signs of what they begin with.  The paper's start is ``start="random", signs="as drawn"``.
    centring : "common" or "block"
        Centre all rows at the mean of all, or, as Section 6.1 of the paper does, every node's rows at the node's own mean.  What
        nodes' means differ by is then lost; one component only.
    span : "own" or "neighbourhood"
        What a node's directions are made of: its own rows, as in the paper, or those of its neighbours, too, which it has seen.
        The second usually come closer to the central ones; a node's model then contains its neighbours' rows.
    noise : float
        Standard deviation of normal noise on rows.  A node draws a noisy copy of its rows once, from the system's entropy, and
        uses the copy itself: fits with noise cannot be repeated, and nobody can take the noise off by knowing a seed.
    centring_features : int
        Random features that describe the common mean, an even number.
    keep_iterates : bool
        Keep every iterate at its node, for ``iterate_similarity``.
    """

    schedule: Literal["constant", "paper"] = "constant"
    rho: float | None = None
    start: Start = "agreed"
    signs: Signs = "agreed"
    centring: Centring = "common"
    span: Span = "own"
    noise: float = 0.0
    centring_features: int = 4096
    keep_iterates: bool = False

    name = "projection-consensus"
    default_tol = 0.02
    default_iterations = 30

    def __post_init__(self) -> None:
        check("schedule", self.schedule, self.schedule in ("constant", "paper"), "'constant' or 'paper'")
        own_rho = self.rho is None or (self.rho > 0 and self.schedule == "constant")
        check("rho", self.rho, own_rho, "a number > 0, or None for the rule; the paper's schedule has its own")
        check_choice("start", self.start, Start)
        check_choice("signs", self.signs, Signs)
        check_choice("centring", self.centring, Centring)
        check("span", self.span, self.span in ("own", "neighbourhood"), "'own' or 'neighbourhood'")
        check("noise", self.noise, self.noise >= 0, "a standard deviation >= 0")
        even = self.centring_features >= 2 and self.centring_features % 2 == 0
        check("centring_features", self.centring_features, even, "an even number >= 2")

    @staticmethod
    def most_rounds(network: Network, iterations: int, k: int) -> int:
        """No fit takes more."""
        wide = network.diameter
        per_component = 2 * iterations + wide * (iterations // CHECK_EVERY + 4) + 2 + 2 * network.radius
        per_component += rounds_to_start(network)
        return 3 + 4 * network.radius + wide + k * per_component

    async def fit(self, problem: GraphProblem) -> GraphSolution:
        """One component after the other."""
        await meet(problem, self.centring_features, self.noise, blockwise=self.centring == "block")  # line 1
        tol = problem.stopping_tol(self.default_tol)
        reasons: list[str] = []
        notes: dict[str, list[Any]] = {"iterations": [], "agreement": [], "coverage": [], "constant": [], "share": [], "tied": []}
        share = 1.0
        for c in range(1, problem.n_components + 1):
            if c > 1:
                share = await remove_direction()  # line 8
            done, moved = await self._component(problem, tol)
            signs = await found_trust(problem)  # line 9
            if self.span == "neighbourhood":
                await Local(keep_copy)
            values = (done, 1.0 - signs["apart"], 1.0 - signs["missing"], signs["constant"], share, signs["tied"])
            for name, value in zip(notes, values, strict=True):
                notes[name].append(value)
            if moved > tol:
                reasons.append(f"component {c} still moved by {moved:.1e} > tol {tol:.1e} after {done} iterations")
            if wrong := complaints(signs, share):
                advice = "use solver='random-features' or 'landmarks'"
                reasons.append(f"component {c} is not to be trusted: {', '.join(wrong)}; {advice}")
            if signs["tied"] > TIED and moved > TIED_TOL:
                reasons.append(
                    f"component {c} nearly ties with the next (their variances' ratio is {signs['tied']:.2f}) and may be any "
                    f"direction that they span; tell them apart by tol={TIED_TOL:g} and a large max_iterations, or use "
                    "solver='random-features'"
                )
        await Local(hand_over, np.float64(self.span == "neighbourhood"))  # line 10
        fine = f"no direction moved by more than {tol:.1e} of its length; neighbours' cosines >= {min(notes['agreement']):.2f}"
        return GraphSolution(sum(notes["iterations"]), not reasons, "; ".join(reasons) or fine, notes)

    async def _component(self, problem: GraphProblem, tol: float) -> tuple[int, float]:
        """Lines 2 to 7: iterations, and how far the last one moved a direction."""
        start = np.float64(get_args(Start).index(self.start)), np.int64(problem.seed), np.float64(self.keep_iterates)
        if self.start == "agreed":
            await Local(begin_component, *start)  # line 2
            await Local(make_frame)
            largest = await agree_on_direction(problem.network)  # line 3
        else:
            largest = float(await Max(begin_component, *start))  # lines 2, 3
            await Local(make_frame)
        smallest = 1 + min(len(others) for others in problem.network.graph.values())
        largest *= max(1.0, STEADY / smallest)  # lengths swing for long where rho |Omega_j| is near 2 lambda_1
        if self.signs == "agreed":
            await agree_on_signs(problem.network)
        t, moved = 0, 0.0
        alone = len(problem.network.graph) == 1  # nobody to agree with: the start is the answer
        for own, others in () if alone else self._penalties(largest, problem.max_iterations):  # line 4
            t += 1
            rho = np.float64(own), np.float64(others)
            await Exchange(send_coefficients, *rho)  # line 5
            await Exchange(send_values, *rho)  # line 6
            if t % CHECK_EVERY and t < problem.max_iterations:
                await Local(update, *rho)
                continue
            moved = float(await Max(update, *rho))
            await Progress(details={"moved": moved})
            if moved <= tol:  # line 7
                break
        return t, moved

    def _penalties(self, largest: float, iterations: int) -> Iterator[tuple[float, float]]:
        """rho for the node itself and for its neighbours, iteration by iteration."""
        steps = [rho for length, rho in PAPER_SCHEDULE for _ in range(length)]
        for t in range(iterations):
            if self.schedule == "constant":
                rho = 2 * largest if self.rho is None else float(self.rho)
                yield rho, rho
            else:
                last = PAPER_SCHEDULE[-1][1]
                yield last, steps[t] if t < len(steps) else last
