"""A component in its final form, and what tells whether to trust it: nodes look, and agree on the worst (along the ``tree``).

What nodes look at, all of it without knowing the truth
    apart      1 - the least cosine between a node's direction and a neighbour's
    missing    1 - the length of a node's direction, which is what its rows express of the common one
    too long   that length - 1: no projection of a direction of length 1 is longer
    constant   mean^2 / mean square of the projections of all nodes' rows, by ``tree``: what is left of the mean, and 0 if
               rows are centred; the constant feature of ``neighbourhood`` has 1
    again      the largest absolute cosine between a node's direction and its own of an earlier component
    tied       lambda_2 / lambda_1 of the scatter of all rows (``frames``), or with another start the mean over nodes of the
               neighbourhoods' own: near 1 the two directions nearly tie, it takes hundreds of iterations to tell them apart, and
               small steps do not mean that they have been
All of it is about w_j, also where z_j is the answer (``span``).  Lengths shrink from iteration to iteration where rows are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.linalg import Array
from ...runtime import Agreed, Exchange, Local, Reply, Site, local
from ..method import Part
from .gossip import NOW
from .neighbourhood import SEEN, blocks_of, own_kernel
from .network import GraphProblem
from .tree import MOST, mean_and_most

NAMES = ("apart", "missing", "too long", "constant", "again", "tied")

LIMITS = {"apart": 0.5, "missing": 0.5, "too long": 0.05, "constant": 0.05, "again": 0.3}
"""A component is reported as a failure if a value is larger."""

WORDS = {
    "apart": "the least cosine of neighbours' directions is only {:.2f}",
    "missing": "a node's rows express only {:.2f} of the common direction, as on nodes sorted by label",
    "too long": "a node's projection of the common direction is longer than it, by {:.2f}",
    "constant": "the mean makes up {:.2f} of its projections' squares, so that it is not centred",
    "again": "a node's direction has a cosine of {:.2f} with its own of an earlier component",
}


FOUND = ("units", "alpha", "lengths", "history", "iterates")
"""What a node keeps of all components so far."""


@local(
    sends={"alpha": "n"},
    reads=(*FOUND, "now", "gram", "sizes", "trail", "keeps iterates", "moves", "z values", "ratio", "shadow", "shares"),
    keeps=(*FOUND, NOW),
)
def send_direction(site: Site) -> Reply:
    """Keep the direction, of length 1, and send it to the neighbours; put the projections of the node's rows forward.

    "units" are coefficients in terms of what ``deflation`` left of the rows' features, "alpha" those of the features themselves.
    """
    now, K = site.kept["now"], own_kernel(site)
    length = np.sqrt(max(float(now @ K @ now), np.finfo(float).tiny))
    earlier, units = site.kept.get("alpha", np.zeros((len(K), 0))), site.kept.get("units", np.zeros((len(K), 0)))
    trail = site.kept["trail"] if site.kept["keeps iterates"] else []
    t = site.kept["z values"].mean(axis=1)
    kept = {
        "units": np.column_stack([*units.T, now / length]),
        "alpha": np.column_stack([*earlier.T, _in_features(site, now / length, earlier)]),
        "lengths": np.append(site.kept.get("lengths", ()), length),
        "history": [*site.kept.get("history", ()), np.array(site.kept["moves"]).reshape(-1, 5)],
        "iterates": [*site.kept.get("iterates", ()), _iterates(site, trail, earlier)],
        NOW: np.array([[t.sum()], [t @ t], [float(len(t))], [site.kept["ratio"]]]),
    }
    return Reply(send=now / length, keep=kept)


@local(
    reads=("copies", "wide alpha", "shares", "shadow", "gram", "sizes", "now", "keeps iterates", "wide iterates"),
    keeps=("wide alpha", "wide iterates"),
)
def keep_copy(site: Site) -> Reply:
    """Keep the node's copy z_j of the common direction, of length 1, as coefficients of all rows seen."""
    G, n = site.kept["gram"], site.kept["sizes"][0]
    copies = site.kept["copies"]
    last = copies[-1] if copies else np.append(site.kept["now"], np.zeros(len(G) - n))  # a node alone has none
    length = np.sqrt(max(float(last @ G @ last), np.finfo(float).tiny))
    earlier = site.kept.get("wide alpha", np.zeros((len(G), 0)))
    found = _iterates(site, copies if site.kept["keeps iterates"] else [], earlier)
    kept = {"wide alpha": np.column_stack([*earlier.T, _in_features(site, last / length, earlier)])}
    return Reply(keep=kept | {"wide iterates": [*site.kept.get("wide iterates", ()), found]})


def _iterates(site: Site, found: list[Array], earlier: Array) -> Array:
    """Iterates (iterations x rows) as coefficients of features."""
    return np.array([_in_features(site, coefficients, earlier) for coefficients in found]).reshape(-1, len(earlier))


def _in_features(site: Site, coefficients: Array, earlier: Array) -> Array:
    """Coefficients of features of own rows, or of all seen, given those of what is left of them without earlier directions."""
    m = len(coefficients)
    shadow, shares = site.kept.get("shadow", np.zeros((m, 0)))[:m], site.kept.get("shares", np.zeros(0))
    found: Array = coefficients - earlier @ (shares * (shadow.T @ coefficients))
    return found


@local(reads=(*SEEN, "units", "lengths", "alpha", "first gram"), keeps=("first gram", MOST), version=2)
def judge(site: Site) -> Reply:
    """What the module's text lists and is a matter of this node and its neighbours, whose directions came in."""
    unit, G, blocks = site.kept["units"][:, -1], site.kept["gram"], blocks_of(site)
    cosines = []
    for name in sorted(site.inbox):
        other = site.inbox[name][0]
        length = np.sqrt(max(float(other @ G[blocks[name], blocks[name]] @ other), np.finfo(float).tiny))
        cosines.append(float(unit @ G[blocks[site.name], blocks[name]] @ other) / length)
    length = float(site.kept["lengths"][-1])
    first = site.kept.get("first gram", own_kernel(site))
    most = [1.0 - min(cosines, default=1.0), 1.0 - length, length - 1.0, _again(site, first)]
    return Reply(keep={"first gram": first, MOST: np.array(most)[:, None]})


def _again(site: Site, first: Array) -> float:
    """The largest absolute cosine between the node's last direction and its earlier ones."""
    alpha = site.kept["alpha"]
    products = alpha.T @ first @ alpha
    lengths = np.sqrt(np.maximum(np.diag(products), np.finfo(float).tiny))
    return float(np.max(np.abs(products[-1, :-1]) / (lengths[-1] * lengths[:-1]), initial=0.0))


@local(takes={"center": ""}, sends={"signs": "6"}, reads=(NOW,))
def agreed_signs(site: Site, center: Any) -> Array:
    """What the module's text lists, the worst over nodes, which all have."""
    total, square, rows, ratio, apart, missing, long, again = site.kept[NOW][:, 0]
    constant = total**2 / max(square * rows, np.finfo(float).tiny) if center else 0.0
    return np.array([apart, missing, long, constant, again, ratio])


async def found_trust(problem: GraphProblem) -> dict[str, float]:
    """Finish a component; the worst over nodes of every sign, by name."""
    await Exchange(send_direction)
    await Local(judge)
    await mean_and_most(problem.network)
    worst = await Agreed(agreed_signs, np.float64(problem.center), nodes=problem.network.tree.root)
    return {name: float(value) for name, value in zip(NAMES, worst, strict=True)}


def complaints(signs: dict[str, float], share: float) -> list[str]:
    """What is wrong with a component; ``share`` is how much of the direction before it could be removed."""
    told = {name: 1.0 - value if name in ("apart", "missing") else value for name, value in signs.items()}
    found = [WORDS[name].format(told[name]) for name, limit in LIMITS.items() if not signs[name] <= limit]
    if share < LEAST_SHARE:
        found.append(f"only {share:.2f} of the component before it could be removed (a smaller tol makes nodes agree closer)")
    return found


LEAST_SHARE = 0.8
"""Less of a component removed before the next one is a failure of the next."""


TRUST = Part(
    "Graph: whether to trust a component",
    {Agreed: (agreed_signs,), Exchange: (send_direction,), Local: (keep_copy, judge)},
)
