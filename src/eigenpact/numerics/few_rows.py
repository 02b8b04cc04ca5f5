"""Principal directions of rows that are fewer than their features, from the inner products of the rows."""

from __future__ import annotations

from .blas import limited_blas
from .few_of_inner_products import leading_of_inner_products
from .linalg import Array, orthonormalize, top_eigenpairs
from .rows import Rows


def leading_of_few_rows(rows: Rows, k: int) -> Array:
    """The leading k eigenvectors of Y^T Y (d x k), k at most the n rows of Y (n x d).

    Y Y^T = U L U^T (n x n) is factorized, and the columns of Y^T U are made orthonormal: n^2 d flops where products with Y^T Y
    take 4 n d for every column of every round.  Eigenvalues below a share of about 1e-16 of the trace are lost.  BLAS uses one
    thread, so that results have the same bits however many there are.
    """
    with limited_blas(1):
        K = rows.row_products()
        U = leading_of_inner_products(K, k)
        U = top_eigenpairs(K, k)[1] if U is None else U
        return orthonormalize(rows.transposed_action(U))
