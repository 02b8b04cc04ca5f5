"""Kernels, normalised to K(x, x) = 1, in a form that can be sent to nodes by name; and random features for two of them."""

from __future__ import annotations

import functools
import json
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.spatial.distance import cdist

from ..errors import InputError
from .linalg import Array

NAMES = ("rbf", "laplacian", "poly", "linear")
"""Kernels that come with the package."""

CACHED_ENTRIES = 1 << 15
"""Entries on which several operations run at a time: a CPU's cache holds a few tables of that many."""

WORTH_ROUNDING = 1 << 24
"""Angles are looked at, whether single precision will do, where they take so many multiplications."""

NEAR = 10.0
"""The square of the mean of rows over their variance up to which angles in single precision have digits enough as they are."""

UNITS = 1e-36, 1e36
"""Values of gamma between which neither rows nor frequencies overflow in single precision, or lose digits near zero."""

FAR_FROM_SINGULAR = 1e8
"""A condition number with which the inverse of a Cholesky factor has half of all digits at least."""

_given: WeakValueDictionary[str, Given] = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Given:
    """A kernel function that cannot be found by name, and the token for it in this process while a kernel holds it."""

    function: Callable[[Array, Array], Array]
    token: str


@dataclass(frozen=True)
class Kernel:
    """A kernel with its parameters.

    Parameters
    ----------
    name : str
        "rbf" exp(-gamma ||x-y||^2), "laplacian" exp(-gamma ||x-y||_1), "poly" (gamma x.y + coef0)^degree, "linear" x.y, or
        "module:function" for a function of two tables (n x d, m x d) that returns an n x m table, or a token for one that no
        module has.
    gamma : float
    degree, coef0 : float
        Of "poly".
    given : Given, optional
        A function that no module has.

    >>> Kernel("rbf", 0.5)(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])).round(3)
    array([[1.   , 0.368]])
    """

    name: str
    gamma: float
    degree: float = 3.0
    coef0: float = 1.0
    given: Given | None = field(default=None, compare=False)

    def __call__(self, X: Array, Y: Array) -> Array:
        """Kernel between rows of X (n x d) and of Y (m x d), divided by sqrt(K(x, x) K(y, y)): an n x m table."""
        if self.name == "rbf":
            return _gaussian_of_all(X, self.gamma) if X is Y else _gaussian(X, _About.first_of(Y, self.gamma))
        if self.name == "laplacian":
            return np.asarray(np.exp(-self.gamma * cdist(X, Y, "cityblock")))
        if self.name == "linear":
            return _cosines(X @ Y.T, np.sum(X * X, axis=1), np.sum(Y * Y, axis=1))
        if self.name == "poly":
            power = functools.partial(_polynomial, self)
            return _cosines(power(X @ Y.T), power(np.sum(X * X, axis=1)), power(np.sum(Y * Y, axis=1)))
        function = self.given.function if self.given is not None else _find(self.name)
        diagonals = [np.array([_evaluated(function, row[None], row[None])[0, 0] for row in table]) for table in (X, Y)]
        if any(values.min(initial=0.0) < 0 for values in diagonals):
            raise InputError(f"kernel {self.name!r} has K(x, x) < 0; a kernel is an inner product, so it cannot")
        return _cosines(_evaluated(function, X, Y), *diagonals)

    def frequencies(self, n_features: int, count: int, seed: int) -> Array:
        """Frequencies (count x n_features) for random features; orthogonal in blocks for "rbf".  The same for the same seed."""
        if self.name not in ("rbf", "laplacian"):
            raise InputError(
                f"kernel={self.name!r} has no random features; give public rows as landmarks=, or use kernel 'rbf' or 'laplacian'"
            )
        return _frequencies(self.name, self.gamma, n_features, count, seed)

    def random_features(self, X: Array, count: int, seed: int, *, exact: bool = True) -> Array:
        """Features (n x 2 count) of rows X (n x d) by these frequencies, in double precision; if not ``exact``, in single
        precision where that will do.

        It will do if its rounding errors, at their worst, are a quarter of what inner products of features are off by from the
        kernel anyway, as a share of how far angles spread; and if the product is large enough to take longer in double precision.
        Far from zero, for their spread, what all rows share, the angles of their mean, is made in double precision.
        """
        frequencies, (n, d) = self.frequencies(X.shape[1], count, seed), X.shape
        suits = self.name == "rbf" and UNITS[0] <= self.gamma <= UNITS[1]
        if exact or not suits or X.size * count < WORTH_ROUNDING:
            return random_features(X, frequencies)
        rounded, longest = _rounded_frequencies(self.name, self.gamma, d, count, seed)

        def will_do(rows: Array, shared: float) -> bool:
            squares = np.einsum("ij,ij->i", rows, rows)
            error = (longest * float(np.sqrt(squares.max())) * (d + 2) + 2 * np.pi) * np.finfo(np.float32).eps / 2
            varied = max(0.0, float(squares.sum()) / n - shared)
            spread = float(np.sqrt(2 * self.gamma * varied))
            return shared <= NEAR * varied and bool(4 * error * np.sqrt(2 * count) < min(1.0, spread))

        if will_do(X, float(np.einsum("i,i", centre := X.mean(axis=0), centre))):
            return random_features(X, rounded)
        if not will_do(Y := X - centre, 0.0):
            return random_features(X, frequencies)
        shared = np.remainder(frequencies @ centre + np.pi, 2 * np.pi) - np.pi
        return random_features(Y, rounded, shared)

    def packed(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Name and parameters as bytes, to be sent to nodes."""
        return np.frombuffer(json.dumps([self.name, self.gamma, self.degree, self.coef0]).encode(), dtype=np.uint8)

    @classmethod
    def unpacked(cls, data: np.ndarray[Any, Any]) -> Kernel:
        """Inverse of :meth:`packed`."""
        name, gamma, degree, coef0 = json.loads(np.asarray(data).tobytes().decode())
        return cls(name, gamma, degree, coef0, _given.get(name))


def kernel_of(kernel: Any, gamma: float | None, degree: float, coef0: float, n_features: int) -> Kernel:
    """The kernel that an estimator's parameters stand for; ``gamma=None`` is 1 / n_features."""
    scale = 1.0 / n_features if gamma is None else float(gamma)
    if isinstance(kernel, str):
        if kernel not in NAMES:
            raise InputError(f"unknown kernel {kernel!r}; the kernels are {', '.join(NAMES)}, or a function of two tables")
        return Kernel(kernel, scale, float(degree), float(coef0))
    if not callable(kernel):
        raise InputError(f"kernel={kernel!r} must be one of {', '.join(NAMES)} or a function of two tables")
    name = function_name(kernel)
    if name is not None:
        return Kernel(name, scale, float(degree), float(coef0))
    given = Given(kernel, f"function {uuid.uuid4().hex}")
    _given[given.token] = given
    return Kernel(given.token, scale, float(degree), float(coef0), given)


def function_name(function: Any) -> str | None:
    """ "module:name" if that name, looked up, gives this very function; None for closures, lambdas and the like.

    >>> function_name(np.linalg.norm), function_name(lambda X, Y: X @ Y.T)
    ('numpy.linalg:norm', None)
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}:{name}" if name and getattr(sys.modules.get(str(module)), name, None) is function else None


def random_features(X: Array, frequencies: NDArray[np.floating[Any]], shared: Array | None = None) -> Array:
    """Features (n x 2 count) whose inner products approximate the kernel between rows of X (n x d), as precise as frequencies.

    Angles that all rows ``shared`` (count,) before are added to theirs.

    Cosines and sines both follow from the tangent t of half the angle, 2 / (1 + t^2) - 1 and 2 t / (1 + t^2), with errors of an
    eps or two: one function of every angle is computed instead of two.

    >>> random_features(np.array([[np.pi / 3]]), np.array([[1.0], [3.0]])).round(3)
    array([[ 0.354, -0.707,  0.612,  0.   ]])
    """
    angles, count = X.astype(frequencies.dtype, copy=False) @ frequencies.T, len(frequencies)
    if shared is not None:
        angles += shared.astype(angles.dtype)
    features, length = np.empty((len(X), 2 * count), angles.dtype), float(1 / np.sqrt(count))
    step = max(1, CACHED_ENTRIES // max(1, count))
    for first in range(0, len(X), step):
        t, part = angles[first : first + step], features[first : first + step]
        t *= 0.5
        np.tan(t, out=t)
        q = 2 * length / (t * t + 1)
        np.subtract(q, length, out=part[:, :count])
        np.multiply(q, t, out=part[:, count:])
    return features


def landmark_features(kernel: Kernel, X: Array, landmarks: Array) -> Array:
    """Nystrom features K(X, L) R (n x m) of rows X (n x d) on landmarks L (m x d), R R^T the inverse of K(L, L)."""
    K, root = landmark_kernel(kernel, X, landmarks)
    return K @ root


def landmark_kernel(kernel: Kernel, X: Array, landmarks: Array) -> tuple[Array, Array]:
    """The two factors of these features, K(X, L) (n x m) and R (m x m), which is read-only."""
    ready = _prepared(kernel, np.asarray(landmarks, dtype=np.float64))
    return ready.between(X), ready.root


@dataclass(frozen=True, eq=False)
class _Landmarks:
    """Landmarks L with what features of any rows need: R, and for "rbf" the rows about the first of L."""

    kernel: Kernel
    rows: Array
    root: Array
    about: _About | None

    @classmethod
    def of(cls, kernel: Kernel, rows: Array) -> _Landmarks:
        about = _About.first_of(rows, kernel.gamma) if kernel.name == "rbf" else None
        root = _inverse_factor(kernel(rows, rows))
        root.flags.writeable = False  # it is handed out again
        return cls(kernel, rows, root, about)

    def between(self, X: Array) -> Array:
        return self.kernel(X, self.rows) if self.about is None else _gaussian(X, self.about)


_latest: dict[str, _Landmarks] = {}
_one_at_a_time = threading.Lock()


def _prepared(kernel: Kernel, landmarks: Array) -> _Landmarks:
    """Landmarks made ready; nodes of one process, which are given the same table, need it once."""
    with _one_at_a_time:
        latest = _latest.get("landmarks")
        if latest is not None and latest.kernel == kernel and landmarks is latest.rows:
            return latest
        rows = landmarks if _lasting(landmarks) else landmarks.copy()
        same = latest is not None and latest.kernel == kernel and np.array_equal(rows, latest.rows)
        latest = replace(latest, rows=rows) if latest is not None and same else _Landmarks.of(kernel, rows)
        _latest["landmarks"] = latest
    return latest


def _lasting(table: Any) -> bool:
    """Whether nobody can change a table: neither by it nor by what it is a view of."""
    while isinstance(table, np.ndarray):
        if table.flags.writeable:
            return False
        table = table.base
    return table is None or isinstance(table, bytes)


def _inverse_factor(K: Array) -> Array:
    """R with R R^T = K^-1 of a kernel matrix: by Cholesky, a tenth of the work, where K is shown to be far from singular.

    No condition number is larger than tr K times tr K^-1.
    """
    lower, failed = dpotrf(K, lower=1, clean=1)
    if not failed:
        inverse, failed = dtrtri(lower, lower=1)
        if not failed and np.trace(K) * np.vdot(inverse, inverse) < FAR_FROM_SINGULAR:
            return np.ascontiguousarray(inverse.T)
    return inverse_root(K)


def inverse_root(K: Array) -> Array:
    """K^(-1/2) of a kernel matrix, on the span of its eigenvectors that are not rounding errors."""
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-10 * values[-1]
    root: Array = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T
    return root


@functools.lru_cache(maxsize=4)
def _frequencies(name: str, gamma: float, d: int, count: int, seed: int) -> Array:
    rng = np.random.default_rng([seed, count])
    if name == "laplacian":
        return gamma * rng.standard_cauchy((count, d))
    blocks = []
    for _ in range(-(-count // d)):
        Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        blocks.append(np.sqrt(rng.chisquare(d, size=d))[:, None] * Q)
    return np.ascontiguousarray(np.sqrt(2 * gamma) * np.concatenate(blocks)[:count])


@functools.lru_cache(maxsize=4)
def _rounded_frequencies(name: str, gamma: float, d: int, count: int, seed: int) -> tuple[NDArray[np.float32], float]:
    """Frequencies in single precision, and the length of the longest."""
    frequencies = _frequencies(name, gamma, d, count, seed)
    return frequencies.astype(np.float32), float(np.sqrt(np.einsum("ij,ij->i", frequencies, frequencies).max()))


@dataclass(frozen=True, eq=False)
class _About:
    """Rows y (m x d) about a point o, as "rbf" needs them: squares of rows far from 0 would lose the digits of distances.

    ``double`` holds 2 gamma (y - o), ``squares`` gamma ||y - o||^2.
    """

    origin: Any
    gamma: float
    double: Array
    squares: Array

    @classmethod
    def first_of(cls, Y: Array, gamma: float) -> _About:
        """About the first of them."""
        origin = Y[0] if len(Y) else 0.0
        double = Y - origin
        squares = gamma * np.einsum("ij,ij->i", double, double)
        double *= 2 * gamma
        return cls(origin, gamma, double, squares)


def _gaussian(X: Array, about: _About) -> Array:
    """exp(-gamma ||x - y||^2) (n x m)."""
    X = X - about.origin
    K: Array = X @ about.double.T
    K -= (about.gamma * np.einsum("ij,ij->i", X, X))[:, None]
    K -= about.squares
    np.minimum(K, 0.0, out=K)
    return np.exp(K, out=K)


def _gaussian_of_all(X: Array, gamma: float) -> Array:
    """exp(-gamma ||x - y||^2) between all rows of X (n x n), symmetric: half the multiplications of :func:`_gaussian`."""
    X = np.sqrt(2 * gamma) * (X - (X[0] if len(X) else 0.0))  # before it is squared, which may overflow
    K: Array = X @ X.T
    squares = np.diagonal(K) / 2
    K -= squares[:, None]
    K -= squares
    np.minimum(K, 0.0, out=K)
    return np.exp(K, out=K)


def _polynomial(kernel: Kernel, products: Array) -> Array:
    return (kernel.gamma * products + kernel.coef0) ** kernel.degree


def _cosines(K: Array, left: Array, right: Array) -> Array:
    """K divided by the square roots of the diagonals; rows of length 0 have kernel 0 with all."""
    scale = np.sqrt(np.maximum(left, 0.0))[:, None] * np.sqrt(np.maximum(right, 0.0))
    cosines: Array = np.divide(K, scale, out=np.zeros_like(K), where=scale > 0)
    return cosines


def _evaluated(function: Callable[[Array, Array], Array], X: Array, Y: Array) -> Array:
    """A kernel function's table, if it is one."""
    K = np.asarray(function(X, Y), dtype=np.float64)
    if K.shape != (len(X), len(Y)) or not np.isfinite(K).all():
        raise InputError(
            f"the kernel function gave a table of shape {K.shape} for tables of {len(X)} and {len(Y)} rows; it must give a "
            "finite number for every pair of rows"
        )
    return K


def _find(name: str) -> Callable[[Array, Array], Array]:
    """A kernel function in a module that this process has imported."""
    module, _, function = name.partition(":")
    found: Callable[[Array, Array], Array] | None = getattr(sys.modules.get(module), function, None)
    if found is None:
        raise InputError(f"kernel function {name!r} is not known in this process; import its module before fitting")
    return found
