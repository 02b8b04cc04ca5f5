"""Steps of a computation that is written once for rows of numpy and for rows of another library, where those lie.

For numpy they are as they were tuned, in memory that is used again; for other libraries they are the array API's.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .elsewhere import is_elsewhere, like, namespace, to_numpy
from .linalg import Array


def there(a: NDArray[Any], X: Any) -> Any:
    """The numpy array ``a`` where rows X lie: itself, unless they are another library's."""
    return like(a, X) if is_elsewhere(X) else a


def zeros(shape: tuple[int, ...], X: Any) -> Any:
    """Zeros in double precision where rows X lie."""
    return full(shape, 0.0, X)


def full(shape: tuple[int, ...], value: float, X: Any) -> Any:
    """An array of one number in double precision where rows X lie."""
    if not is_elsewhere(X):
        return np.full(shape, value)
    xp = namespace(X)
    return xp.full(shape, value, dtype=xp.float64, device=array_api_compat.device(X))


def numbers(n: int, X: Any) -> Any:
    """The numbers from 0 to before n where rows X lie."""
    if not is_elsewhere(X):
        return np.arange(n)
    xp = namespace(X)
    return xp.arange(n, dtype=xp.int64, device=array_api_compat.device(X))


def by_rows(A: Any) -> Any:
    """A with the entries of a row one behind the other, where that makes products faster."""
    return np.ascontiguousarray(A) if isinstance(A, np.ndarray) else A


def product(A: Any, B: Any, into: Any) -> Any:
    """A B, which may overwrite the memory of ``into``.

    >>> product(np.eye(2), np.ones((2, 2)), np.empty((2, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return np.matmul(A, B, out=into) if isinstance(into, np.ndarray) else A @ B


def quotient(a: Any, b: Any, where: Any) -> Any:
    """a / b where b may divide, and 0 elsewhere.

    >>> quotient(np.array([1.0, 2.0]), np.array([0.0, 4.0]), np.array([False, True])).tolist()
    [0.0, 0.5]
    """
    if isinstance(a, np.ndarray):
        return np.divide(a, b, out=np.zeros_like(a), where=where)
    xp = namespace(a)
    return xp.where(where, a / xp.where(where, b, 1.0), 0.0)


def cut_back(M: Any, bound: Any, into: Any = None) -> Any:
    """The entries of M (n x d) cut back to [-bound, bound], a number or one per row (n x 1); ``into`` may be overwritten.

    >>> cut_back(np.array([[-3.0, 1.0], [-3.0, 1.0]]), np.array([[2.0], [0.5]])).tolist()
    [[-2.0, 1.0], [-0.5, 0.5]]
    """
    if isinstance(M, np.ndarray):
        return np.clip(M, -bound, bound, out=into)
    xp = namespace(M)
    raised = xp.where(-bound > M, -bound, M)
    return xp.where(raised > bound, bound, raised)


def kept_where(M: Any, mask: Any) -> Any:
    """M with 0 where the mask (None for no mask) is false; M may be overwritten.

    >>> kept_where(np.array([[2.0, 3.0]]), np.array([[True, False]])).tolist()
    [[2.0, 0.0]]
    """
    if mask is None:
        return M
    if isinstance(M, np.ndarray):
        M *= mask
        return M
    return namespace(M).where(mask, M, 0.0)


def up_to(sizes: Any, place: int) -> Any:
    """Numbers (n x d), of which each row has, at this place, what it would have there in order, and no larger ones before it.

    ``sizes`` may be overwritten.

    >>> up_to(np.array([[3.0, 1.0, 2.0]]), 1)[:, 1].tolist()
    [2.0]
    """
    if isinstance(sizes, np.ndarray):
        sizes.partition(place, axis=1)
        return sizes
    return namespace(sizes).sort(sizes, axis=1)


def only_seen(sizes: Any, seen: Any) -> Any:
    """Sizes (n x d), which may be overwritten, that are infinite where nothing is seen (None: everything is)."""
    if seen is None:
        return sizes
    if isinstance(sizes, np.ndarray):
        sizes[~seen] = np.inf
        return sizes
    return namespace(sizes).where(seen, sizes, np.inf)


def in_order(sizes: Any) -> Any:
    """The numbers of each row (n x d), which may be overwritten, in ascending order.

    >>> in_order(only_seen(np.array([[3.0, 1.0, 2.0]]), np.array([[True, False, True]]))).tolist()
    [[2.0, 3.0, inf]]
    """
    if isinstance(sizes, np.ndarray):
        sizes.sort(axis=1)
        return sizes
    return namespace(sizes).sort(sizes, axis=1)


def rows_where(mask: Any) -> Any:
    """The numbers of the rows where the mask (n,) is true."""
    return namespace(mask).nonzero(mask)[0]


def take(A: Any, index: Any) -> Any:
    """The rows of A, or the entries if it has one dimension, by their numbers; None of None."""
    return None if A is None else namespace(A).take(A, index, axis=0)


def with_rows(A: Any, index: Any, B: Any) -> Any:
    """A with the rows B in place of those of these numbers, which differ; A may be overwritten.

    >>> import array_api_strict as strict
    >>> A, index, B = np.zeros((3, 1)), np.array([2, 0]), np.array([[5.0], [6.0]])
    >>> elsewhere = with_rows(*(strict.asarray(a) for a in (A, index, B)))
    >>> with_rows(A, index, B).tolist(), np.asarray(elsewhere).tolist()
    ([[6.0], [0.0], [5.0]], [[6.0], [0.0], [5.0]])
    """
    if isinstance(A, np.ndarray):
        A[index] = B
        return A
    xp, rows = namespace(A), numbers(A.shape[0], A)
    named = xp.concat([rows, index])
    order = xp.argsort(named, stable=True)  # what comes in its place stands behind a row
    last = xp.searchsorted(take(named, order), rows, side="right") - 1
    return take(xp.concat([A, B]), take(order, last))


def action_there(F: Any, B: Array, shift: Array) -> tuple[Array, Array]:
    """The products F^T T (m x b) and 1^T T (b,), T = F B - 1 shift^T, as arrays of numpy, of F (n x m), where it lies.

    >>> [a.tolist() for a in action_there(np.eye(2), np.ones((2, 1)), np.array([3.0]))]
    [[[-2.0], [-2.0]], [-4.0]]
    """
    T = F @ there(B, F) - there(shift, F)
    return to_numpy(F.T @ T), to_numpy(namespace(T).sum(T, axis=0))


def ridge_solution(gram: Any, B: Any, ridge: float) -> Any:
    """(gram + ridge I)^-1 B of a matrix gram (k x k) that is not negative, and may be overwritten, and B (k x n).

    >>> ridge_solution(np.eye(2), np.ones((2, 1)), 1.0).round(9).tolist()
    [[0.5], [0.5]]
    """
    if isinstance(gram, np.ndarray):
        gram[np.diag_indices_from(gram)] += ridge
        return scipy.linalg.solve(gram, B, assume_a="pos", check_finite=False)
    return namespace(gram).linalg.solve(gram + full((gram.shape[0],), ridge, gram) * like(np.eye(gram.shape[0]), gram), B)


def length(V: Any) -> float:
    """The root of the sum of squares of V (n x k).

    >>> length(np.array([[3.0], [4.0]]))
    5.0
    """
    return float(np.linalg.norm(V)) if isinstance(V, np.ndarray) else float(namespace(V).sum(V * V)) ** 0.5


def spectral_norm(V: Any) -> float:
    """The largest singular value of V (n x k).

    >>> spectral_norm(np.diag([3.0, 4.0]))
    4.0
    """
    if isinstance(V, np.ndarray):
        return float(np.linalg.norm(V, 2))
    return float(np.sqrt(max(0.0, np.linalg.eigvalsh(to_numpy(V.T @ V))[-1])))
