"""LAPACK's Cholesky factor and leading eigenpairs, made while other threads go on: scipy's functions have them wait, and numpy's
copy the matrix, or give all eigenpairs.

scipy gives out its LAPACK for compiled code, by name and by address (``scipy.linalg.cython_lapack``).  A call by ctypes lets
go of Python's lock.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char, c_double, c_int
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

Array = NDArray[np.float64]

_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _address(name: str) -> int:
    """Where a function of LAPACK is."""
    capsule = cython_lapack.__pyx_capi__[name]
    return int(_api.PyCapsule_GetPointer(capsule, _api.PyCapsule_GetName(capsule)))


_letter, _number, _array = POINTER(c_char), POINTER(c_int), ctypes.c_void_p
_dpotrf = ctypes.CFUNCTYPE(None, _letter, _number, _array, _number, _number)(_address("dpotrf"))
_dsyevr = ctypes.CFUNCTYPE(
    None,
    *(_letter, _letter, _letter),  # vectors, which ones, triangle
    *(_number, _array, _number),  # the matrix
    *(POINTER(c_double), POINTER(c_double), _number, _number, POINTER(c_double)),  # between which values, numbers, tolerance
    *(_number, _array, _array, _number, _array),  # what is found
    *(_array, _number, _array, _number),  # memory to work in
    _number,
)(_address("dsyevr"))


def cholesky_in_place(lower: Array) -> bool:
    """Whether the symmetric matrix (d x d) with this lower triangle has a Cholesky factor, which then stands in its place.

    It must be in Fortran order, in float64.  What is above the diagonal is left as it is.

    >>> import numpy as np
    >>> S = np.array([[4.0, 9.0], [2.0, 5.0]], order="F")
    >>> cholesky_in_place(S), S.tolist(), cholesky_in_place(np.array([[1.0, 0.0], [2.0, 1.0]], order="F"))
    (True, [[2.0, 9.0], [1.0, 2.0]], False)
    """
    d = len(lower)
    _check_square(lower)
    if d == 0:
        return True
    info = c_int()
    _dpotrf(byref(c_char(b"L")), byref(c_int(d)), lower.ctypes.data, byref(c_int(d)), byref(info))
    return info.value == 0


def largest_in_place(lower: Array, k: int) -> tuple[Array, Array] | None:
    """The k largest eigenvalues, ascending, and their eigenvectors (d x k) of the symmetric matrix (d x d) with this lower
    triangle, which is overwritten; None where LAPACK does not find so many, as of equal ones it may.

    The matrix is as for :func:`cholesky_in_place`.

    >>> import numpy as np
    >>> values, vectors = largest_in_place(np.array([[2.0, 9.0], [1.0, 2.0]], order="F"), 1)
    >>> float(values[0].round(12)), np.abs(vectors[:, 0]).round(3).tolist()
    (3.0, [0.707, 0.707])
    """
    d = len(lower)
    _check_square(lower)
    if not 1 <= k <= d:
        raise ValueError(f"from 1 to {d} eigenvalues can be asked for, not {k}")
    values, vectors, support = np.empty(d), np.empty((d, k), order="F"), np.empty(2 * k, dtype=np.intc)
    found, info, nothing = c_int(), c_int(), c_double(0.0)

    def call(work: NDArray[Any], size: int, whole: NDArray[Any], whole_size: int) -> None:
        _dsyevr(
            *(byref(c_char(letter)) for letter in (b"V", b"I", b"L")),
            *(byref(c_int(d)), lower.ctypes.data, byref(c_int(d))),
            *(byref(nothing), byref(nothing), byref(c_int(d - k + 1)), byref(c_int(d)), byref(nothing)),
            *(byref(found), values.ctypes.data, vectors.ctypes.data, byref(c_int(d)), support.ctypes.data),
            *(work.ctypes.data, byref(c_int(size)), whole.ctypes.data, byref(c_int(whole_size))),
            byref(info),
        )

    work, whole = np.empty(1), np.empty(1, dtype=np.intc)
    call(work, -1, whole, -1)  # tells how much memory it needs
    work, whole = np.empty(int(work[0])), np.empty(int(whole[0]), dtype=np.intc)
    call(work, len(work), whole, len(whole))
    return (values[:k], vectors) if info.value == 0 and found.value == k else None


def _check_square(matrix: Array) -> None:
    """Refuse what LAPACK would read as something else, or beyond its end."""
    d = len(matrix)
    if matrix.shape != (d, d) or matrix.dtype != float or not (matrix.flags.f_contiguous and matrix.flags.writeable):
        raise ValueError(f"a square matrix of float64 in Fortran order is needed, not one of {matrix.dtype}, {matrix.shape}")
