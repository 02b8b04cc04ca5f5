"""Rows of another array library, perhaps on a GPU: where they lie, and as copies in numpy, whole or a few at a time."""

from __future__ import annotations

from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np

from .linalg import Array
from .sources import RowSource


class Elsewhere(RowSource):
    """Rows (n x d) of an array of another library, for what computes in numpy alone: a few at a time are copied here.

    >>> import array_api_strict
    >>> rows = Elsewhere(array_api_strict.asarray([[1.0, 2.0], [3.0, 4.0]]))
    >>> rows[1:].tolist(), rows[:, [1]][:].tolist()
    ([[3.0, 4.0]], [[2.0], [4.0]])
    """

    def __init__(self, X: Any) -> None:
        single = str(X.dtype).endswith("float32")
        super().__init__((int(X.shape[0]), int(X.shape[1])), np.float32 if single else np.float64)
        self._X = X

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        return np.array(to_numpy(self._X[first:last, :]), dtype=self.dtype)


def is_elsewhere(x: Any) -> bool:
    """Whether x is an array of another library than numpy (torch, cupy, ...), wherever it lies."""
    return bool(array_api_compat.is_array_api_obj(x)) and not array_api_compat.is_numpy_array(x)


def to_numpy(x: Any) -> Array:
    """An array of any library as one of numpy, copied from its device if need be."""
    for method in ("cpu", "get"):  # torch, cupy
        if not isinstance(x, np.ndarray) and hasattr(x, method):
            x = getattr(x, method)()
    if is_elsewhere(x):
        xp = array_api_compat.array_namespace(x)
        x = array_api_compat.to_device(x, xp.Device("CPU_DEVICE")) if array_api_compat.is_array_api_strict_namespace(xp) else x
    return np.asarray(x)


def on_cpu(x: Any) -> bool:
    """Whether rows are computed with by numpy."""
    return isinstance(x, np.ndarray | RowSource)


def by_row(x: Any) -> bool:
    """Whether the entries of a row lie one behind the other, and rows behind each other, where BLAS reads them without a copy.

    Rows read from a file do; those that another process sent may begin at any byte.  Products round by the order, and by
    whether numpy sees that both factors are the same matrix.

    >>> X = np.ones((2, 3))
    >>> by_row(X), by_row(X.T), by_row(X[::-1]), by_row(np.frombuffer(bytes(49), offset=1).reshape(2, 3))
    (True, False, False, False)
    """
    if not isinstance(x, np.ndarray):
        return True
    (n, d), (rows, entries), size = x.shape, x.strides, x.itemsize
    return x.flags.aligned and (d == 1 or entries == size) and (n <= 1 or (rows >= d * size and rows % size == 0))


def namespace(x: Any) -> Any:
    """The array library of x."""
    return array_api_compat.numpy if on_cpu(x) else array_api_compat.array_namespace(x)


def like(a: Array, x: Any) -> Any:
    """The numpy array ``a`` in the namespace and on the device of ``x``."""
    if on_cpu(x):
        return a
    return namespace(x).asarray(np.array(a), device=array_api_compat.device(x))
