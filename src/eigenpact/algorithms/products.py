"""The one product that most solvers ask for: the pooled scatter times a block."""

from __future__ import annotations

from ..numerics.linalg import Array
from ..runtime import Site, Sum, local
from .method import Part
from .setup import CENTRE, rows_of
from .told import doubt_product


@local(takes={"Z": "d k"}, sends={"G": "d k"}, reads=CENTRE, bound="trace", means={"Z": "orthonormal"}, doubt=doubt_product)
def scatter_action(site: Site, Z: Array) -> Array:
    """Y_i^T (Y_i Z): summed over sites it is C Z."""
    return rows_of(site).scatter_action(Z)


PRODUCTS = Part(
    "Products with the pooled scatter",
    {Sum: (scatter_action,)},
    "Of every solver but gram, in most of its rounds; faps, one-shot and hot-potato only have their answer confirmed by it.",
)
