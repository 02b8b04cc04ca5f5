"""Products in the rows' own precision, where the tolerance allows it: float32 at twice the speed.

Single precision knows a product to 3e-5 of the trace, mostly to 1e-7 (``numerics/single.py``).  Where a scaled residual of
``ALLOWED`` or more is asked for (``tol=``), krylov has all of its products made so, and gram its triangle.  Without a ``tol``,
gram asks for a triangle in single precision and one product in double, which takes its errors away (``consensus/gram.py``).
Where that does not give an answer that is as certain as it would be in double precision, the work is done again in double.

Only sites on machines of whoever runs the coordinator are asked (in one process, under MPI, on Dask), and only where sums are
not secured: between institutions a round takes longer than the arithmetic, and policies need not know these functions.  All
rows must be float32, and dense.  Those that would overflow in single precision are multiplied in double all the same.  Of rows
on a GPU, krylov's products are made so, and no triangle, which takes as long there in either precision.

Leaves the site
    What ``scatter_action`` and ``scatter_triangle`` send, to five digits or more.
"""

from __future__ import annotations

from ..numerics.linalg import Array
from ..runtime import Site, Sum, local
from .method import Part
from .products import scatter_action
from .setup import CENTRE, Setup, rows_of
from .told import doubt_rough_product, doubt_rough_triangle

ALLOWED = 1e-4
"""The least ``tol`` for which products in single precision will do: three times what they may be off by."""


@local(takes={"Z": "d k"}, sends={"G": "d k"}, reads=CENTRE, bound="trace", means={"Z": "orthonormal"}, doubt=doubt_rough_product)
def rough_action(site: Site, Z: Array) -> Array:
    """Y_i^T (Y_i Z), in single precision where the rows are."""
    rows = rows_of(site)
    product = rows.single_action(Z)
    return rows.scatter_action(Z) if product is None else product


@local(sends={"S": "d*(d+1)//2"}, reads=CENTRE, bound="trace", doubt=doubt_rough_triangle)
def rough_triangle(site: Site) -> Array:
    """Upper triangle of Y_i^T Y_i, in single precision where the rows are."""
    rows = rows_of(site)
    triangle = rows.single_triangle()
    return rows.scatter_triangle() if triangle is None else triangle


def tolerance_allows(setup: Setup) -> bool:
    """Whether single precision is good enough for the residual that was asked for, and sites may be asked for it."""
    return setup.in_house and setup.single and setup.tol is not None and setup.tol >= ALLOWED


def product(setup: Setup, Z: Array) -> Sum:
    """The sum of the sites' products with a block Z (d x k), as precise as the set-up says."""
    return Sum(rough_action, Z) if setup.rough else Sum(scatter_action, Z)


ROUGH = Part(
    "Products in single precision",
    {Sum: (rough_action, rough_triangle, scatter_action)},
    "Of krylov, gram and auto, in one process, under MPI and on Dask: with `tol=` of 1e-4 or more in place of "
    "`scatter_action` and `scatter_triangle`, and of gram without it, before one `scatter_action`.",
)
