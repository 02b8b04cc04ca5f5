"""What steps of preparation do to rows: counts normalized, columns kept, scaled, genotypes standardized, covariates removed.

Every change treats one row like another, entry by entry or with sums along the row itself.  So the bits of a changed row do not
depend on the rows beside it, and new rows are changed as those of the fit were.  Rows keep their precision; numbers in between
are float64.  Sums of many entries along a row are taken in the order in which they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InputError, InputTypeError
from .columns import with_zeros
from .either import cut_back, there
from .elsewhere import is_elsewhere, namespace
from .holes import filled
from .kinds import kind
from .linalg import Array

Arrays = Mapping[str, Array]

MOST_COPIES = 2.0
"""Of an allele, in one person."""


@kind("fill", sparse=True, fills=True, there=True, tells=lambda _: "missing entries filled in", values="d")
def fill(X: Any, arrays: Mapping[str, Array]) -> Any:
    """Values (d,) where entries are missing (NaN); of sparse rows none is: what they do not store is zero."""
    if scipy.sparse.issparse(X):
        return X
    if is_elsewhere(X):
        xp = namespace(X)
        return xp.where(xp.isnan(X), xp.astype(there(arrays["values"], X), X.dtype), X)
    return np.where(np.isnan(X), arrays["values"].astype(X.dtype), X)


@kind(
    "expect",
    sparse=True,
    fills=True,
    tells=lambda a: f"missing entries filled in as {np.shape(a['W'])[1]} components and noise expect them",
    W="d k",
    mean="d",
    scale="d",
    noise="",
)
def expect(X: Any, arrays: Arrays) -> Any:
    """Where entries are missing (NaN), what a low-rank model (``holes.py``) expects of them, given the others of their row."""
    if scipy.sparse.issparse(X) or not np.isnan(X).any():
        return X
    mean, scale = arrays["mean"], arrays["scale"]
    whole = filled((X - mean) / scale, arrays["W"], float(arrays["noise"])) * scale + mean
    return np.where(np.isnan(X), whole.astype(X.dtype), X)


def row_totals(X: Any) -> Array:
    """Sums (n,) of the entries of each row, which are to be counts.

    >>> row_totals(np.array([[1.0, 2.0], [0.0, 0.0]])).tolist()
    [3.0, 0.0]
    """
    if scipy.sparse.issparse(X):
        X = X.tocsr()
        _check_counts(X.data)
        return np.asarray(np.bincount(_row_numbers(X), weights=X.data, minlength=X.shape[0]), dtype=np.float64)
    _check_counts(X)
    return np.asarray(np.ascontiguousarray(X, dtype=np.float64).sum(axis=1), dtype=np.float64)


@kind("log-normalize", sparse=True, tells=lambda a: f"counts of a row to {float(a['target']):.10g}, then log(1 + x)", target="")
def log_normalize(X: Any, arrays: Arrays) -> Any:
    """Entries of each row in such a unit that they add up to ``target``, then log(1 + x); rows without counts stay zero."""
    totals = row_totals(X)
    divisors = np.where(totals > 0, totals, arrays["target"]) / arrays["target"]
    if scipy.sparse.issparse(X):
        X = X.tocsr()
        data = np.log1p(X.data.astype(np.float64) / divisors[_row_numbers(X)])
        return _sparse_like(X, data)
    return _like(X, np.log1p(np.asarray(X, dtype=np.float64) / divisors[:, None]))


@kind(
    "columns",
    sparse=True,
    tells=lambda a: f"{np.count_nonzero(a['kept'])} of {len(a['kept'])} columns kept",
    drops=lambda a: ~np.asarray(a["kept"], dtype=bool),
    kept="d",
)
def columns(X: Any, arrays: Arrays) -> Any:
    """Zeros in the columns that are not ``kept``."""
    return with_zeros(X, np.flatnonzero(~np.asarray(arrays["kept"], dtype=bool)))


@kind(
    "features",
    sparse=True,
    tells=lambda a: f"{np.count_nonzero(a['having'] >= a['least'])} of {len(a['having'])} features, which enough sites have",
    drops=lambda a: np.asarray(a["having"]) < np.asarray(a["least"]),
    having="d",
    least="",
    doubts="d",
)
def features(X: Any, arrays: Arrays) -> Any:
    """Zeros in the columns that fewer than ``least`` sites have; ``having`` (d,) is how many have each.

    ``doubts`` (d,) is how many sites find a column to be in another unit than at the others, which changes nothing.
    """
    return with_zeros(X, np.flatnonzero(np.asarray(arrays["having"]) < np.asarray(arrays["least"])))


def _scale_told(arrays: Arrays) -> str:
    limit = float(arrays["limit"])
    return "columns centred and scaled" + (f", cut at {limit:g}" if limit else "")


@kind("scale", sparse=True, there=True, tells=_scale_told, centre="d", scale="d", limit="", zeros="")
def scale(X: Any, arrays: Arrays) -> Any:
    """(x - centre) / scale, cut to [-limit, limit] unless that is 0.

    With ``zeros`` each column is moved by a constant such that zero stays zero, and sparse rows stay sparse; components of
    centred rows do not notice.
    """
    centre, divisor, limit = arrays["centre"], arrays["scale"], float(arrays["limit"])
    stays = bool(arrays["zeros"])
    origin = _cut(-centre / divisor, limit) if stays else np.zeros(len(centre))
    if scipy.sparse.issparse(X):
        if not stays:
            raise InputTypeError("sparse rows would be filled by scaling that centres them; use Scale(center=False)")
        X = X.tocsr()
        of = X.indices
        data = _cut((X.data - centre[of]) / divisor[of], limit) - origin[of]
        return _sparse_like(X, data)
    if is_elsewhere(X):
        xp = namespace(X)
        Y = (xp.astype(X, xp.float64) - there(centre, X)) / there(divisor, X)
        return xp.astype((cut_back(Y, limit) if limit else Y) - there(origin, X), X.dtype)
    Y = _cut((np.asarray(X, dtype=np.float64) - centre) / divisor, limit)
    return _like(X, Y - origin if stays else Y)


def _genotypes_told(arrays: Arrays) -> str:
    d, same = len(arrays["scale"]), int(np.count_nonzero(arrays["scale"] == 0))
    return f"genotypes centred and scaled, missing ones at the mean; {d - same} of {d} variants vary"


@kind("genotypes", tells=_genotypes_told, drops=lambda a: np.asarray(a["scale"]) == 0, fills=True, centre="d", scale="d")
def genotypes(X: Any, arrays: Arrays) -> Any:
    """(g - centre) / scale, 0 where g is missing (NaN); a variant of scale 0 becomes zero."""
    check_genotypes(X)
    same = arrays["scale"] == 0
    Y = (np.asarray(X, dtype=np.float64) - arrays["centre"]) / np.where(same, 1.0, arrays["scale"])
    Y[np.isnan(Y)] = 0.0
    Y[:, same] = 0.0
    return _like(X, Y)


def check_genotypes(X: Any) -> None:
    """Refuse what is neither a number of copies from 0 to 2 nor missing (NaN), such as 255 or -1 for missing.

    >>> check_genotypes(np.array([[0.0, 2.0, np.nan]]))
    """
    low, high = np.fmin.reduce(X, axis=None, initial=0.0), np.fmax.reduce(X, axis=None, initial=0.0)
    if low < 0 or high > MOST_COPIES:
        raise InputError(
            "genotypes are to be 0 to 2 copies of an allele, or NaN where missing; "
            f"some are {'below 0' if low < 0 else 'above 2'}: "
            "turn marks of missing ones, such as -1 and 255, into NaN"
        )


def _residualize_told(arrays: Arrays) -> str:
    unused = arrays["columns"][~np.any(arrays["coefficients"], axis=1)]
    n = len(arrays["columns"])
    told = f"{n} covariate{'' if n == 1 else 's'} regressed out"
    return told + (f"; column {', '.join(map(str, unused))} tells nothing beyond the others" if len(unused) else "")


def _covariates(arrays: Arrays) -> Any:
    gone = np.zeros(arrays["coefficients"].shape[1], dtype=bool)
    gone[np.asarray(arrays["columns"], dtype=np.intp)] = True
    return gone


@kind("residualize", tells=_residualize_told, drops=_covariates, columns="c", centre="c", coefficients="c d")
def residualize(X: Any, arrays: Arrays) -> Any:
    """x - sum_c (z_c - centre_c) coefficients_c, where z are the entries of x in ``columns``, which become zero."""
    Y = np.array(X, dtype=np.float64)
    for column, centre, slopes in zip(arrays["columns"], arrays["centre"], arrays["coefficients"], strict=True):
        Y -= (np.asarray(X[:, int(column)], dtype=np.float64) - centre)[:, None] * slopes
    Y[:, np.asarray(arrays["columns"], dtype=np.intp)] = 0.0
    return _like(X, Y)


@kind(
    "batch",
    tells=lambda _: "sites adjusted as batches",
    centre="d",
    scale="d",
    shrink="",
    shift="d",
    spread="d",
    own="",
)
def batch(X: Any, arrays: Arrays) -> Any:
    """centre + scale ((x - centre) / scale - shift) / spread; a column of scale 0 stays as it is.

    Shift and spread are a site's own: where they are not known, nothing is done.
    """
    if not arrays["own"]:
        raise InputError(
            "rows are adjusted by what their site finds of its own rows, which is not in the model: use "
            "pca.for_site(rows).transform(X), with the site's rows that were fitted"
        )
    varies = arrays["scale"] > 0
    unit = np.where(varies, arrays["scale"], 1.0)
    Y = ((np.asarray(X, dtype=np.float64) - arrays["centre"]) / unit - arrays["shift"]) / arrays["spread"]
    return _like(X, np.where(varies, arrays["centre"] + unit * Y, X))


def _cut(x: Array, limit: float) -> Array:
    return np.clip(x, -limit, limit) if limit else x


def _like(X: Any, Y: Array) -> Any:
    """Y in the precision of X, or as it is where X holds whole numbers."""
    return Y.astype(X.dtype, copy=False) if X.dtype.kind == "f" else Y


def _sparse_like(X: Any, data: Array) -> Any:
    """A CSR matrix with these entries where X has its own."""
    return type(X)((_like(X, data), X.indices, X.indptr), shape=X.shape)


def _row_numbers(X: Any) -> Any:
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def _check_counts(values: Any) -> None:
    if not np.all(np.asarray(values) >= 0):
        raise InputError("counts are to be numbers >= 0, and some are not; normalize counts before anything else is done to them")
