"""LAPACK's Cholesky factor, made while other threads go on: scipy's function has them wait, and numpy's copies the matrix.

scipy gives out its LAPACK for compiled code, by name and by address (``scipy.linalg.cython_lapack``).  A call by ctypes lets
go of Python's lock.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char, c_int

from scipy.linalg import cython_lapack

from .linalg import Array

_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _address(name: str) -> int:
    """Where a function of LAPACK is."""
    capsule = cython_lapack.__pyx_capi__[name]
    return int(_api.PyCapsule_GetPointer(capsule, _api.PyCapsule_GetName(capsule)))


_dpotrf = ctypes.CFUNCTYPE(None, POINTER(c_char), POINTER(c_int), ctypes.c_void_p, POINTER(c_int), POINTER(c_int))(
    _address("dpotrf")
)


def cholesky_in_place(lower: Array) -> bool:
    """Whether the symmetric matrix (d x d) with this lower triangle has a Cholesky factor, which then stands in its place.

    It must be in Fortran order, in float64.  What is above the diagonal is left as it is.

    >>> import numpy as np
    >>> S = np.array([[4.0, 9.0], [2.0, 5.0]], order="F")
    >>> cholesky_in_place(S), S.tolist(), cholesky_in_place(np.array([[1.0, 0.0], [2.0, 1.0]], order="F"))
    (True, [[2.0, 9.0], [1.0, 2.0]], False)
    """
    d = len(lower)
    if lower.shape != (d, d) or lower.dtype != float or not (lower.flags.f_contiguous and lower.flags.writeable):
        raise ValueError(f"a square matrix of float64 in Fortran order is needed, not one of {lower.dtype}, {lower.shape}")
    if d == 0:
        return True
    info = c_int()
    _dpotrf(byref(c_char(b"L")), byref(c_int(d)), lower.ctypes.data, byref(c_int(d)), byref(info))
    return info.value == 0
