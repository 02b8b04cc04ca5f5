"""The next component: remove an agreed direction from every node's kernel matrix.

With t(x) = <u, phi(x)> the Gram matrix of phi(x) - t(x) u is G - t t^T.  Nodes have only estimates of t: node j takes the mean of
the values that its neighbours' copies of u have at its rows, and sends it to them, so that a row has the same t everywhere.  It
may be that no direction of length 1 has these values; then G - t t^T is not positive semidefinite.  So s t t^T is removed, with
s = 1 / max(1, the largest over nodes of t^T G_j^{-1} t).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime import Exchange, Local, Max, Reply, Site, local
from ..method import Part
from .neighbourhood import SLACK, square_in


@local(sends={"scores": "n"}, reads=("z values",), keeps=("own shadow",))
def send_scores(site: Site) -> Reply:  # line 8
    """t of the node's rows: the mean over the neighbourhood of the z_l's values."""
    t = site.kept["z values"].mean(axis=1)
    return Reply(send=t, keep={"own shadow": t})


@local(sends={"square": ""}, reads=("shadow", "own shadow", "gram", "order"), keeps=("shadow",))
def score_square(site: Site) -> Reply:
    """t^T G_j^{-1} t: the least square of a direction with these scores; at most 1 if they were exact.  Keeps t."""
    t = np.concatenate([site.kept["own shadow"], *(site.inbox[name][0] for name in site.kept["order"][1:])])
    earlier = site.kept.get("shadow", np.zeros((len(t), 0)))
    return Reply(send=SLACK * square_in(site.kept["gram"], t), keep={"shadow": np.column_stack([*earlier.T, t])})


@local(takes={"square": ""}, reads=("shadow", "gram", "shares"), keeps=("gram", "shares"))
def deflate(site: Site, square: Any) -> Reply:
    """G_j - s t t^T, s = 1 / max(1, square)."""
    share, t = 1.0 / max(1.0, float(square)), site.kept["shadow"][:, -1]
    return Reply(
        keep={"gram": site.kept["gram"] - share * np.outer(t, t), "shares": np.append(site.kept.get("shares", ()), share)}
    )


async def remove_direction() -> float:
    """Remove the direction whose values nodes keep as "z values"; s."""
    await Exchange(send_scores)
    square = await Max(score_square)
    await Local(deflate, square)
    return 1.0 / max(1.0, float(square))


DEFLATION = Part("Graph: further components", {Exchange: (send_scores,), Max: (score_square,), Local: (deflate,)})
