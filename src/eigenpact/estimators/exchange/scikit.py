"""A fitted model for programs without eigenpact: scikit-learn's own estimators, in memory, as ONNX and as a skops file."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_array, check_is_fitted

from ...errors import InputError, InputTypeError, MissingExtraError
from ...numerics.kinds import KINDS
from ...numerics.linalg import Array
from ...numerics.preparation import Step, prepared
from ...storage import check_file_target, replacing
from ..pca import FederatedPCA


class Prepared(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A step of preparation that scikit-learn has no estimator for; needs eigenpact to run.

    >>> Prepared(Step("fill", {"values": np.ones(2)})).transform([[np.nan, 3.0]]).tolist()
    [[1.0, 3.0]]
    """

    def __init__(self, step: Step) -> None:
        self.step = step

    def fit(self, X: Any, y: Any = None) -> Prepared:  # noqa: ARG002
        """Nothing is learned: the step is agreed on already."""
        return self

    def transform(self, X: Any) -> Any:
        """Changed rows."""
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        return prepared(check_array(X, **options), (self.step,))

    def __sklearn_is_fitted__(self) -> bool:
        return True


def to_sklearn(pca: FederatedPCA) -> Any:
    """A fitted scikit-learn ``PCA`` with the same scores, or a ``Pipeline`` where rows are scaled or prepared first.

    >>> import eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(50, 4)) * [4, 3, 2, 1] + 7
    >>> pca = ep.FederatedPCA(2, scale="pooled").fit({"A": X[:20], "B": X[20:]})
    >>> other = ep.export.to_sklearn(pca)
    >>> other, bool(np.allclose(other.transform(X), pca.transform(X)))
    (Pipeline(steps=[('scale', StandardScaler()), ('pca', PCA(n_components=2))]), True)
    """
    check_exportable(pca)
    steps = list(_prepare(pca))
    scaled = bool(np.any(pca.scale_ != 1))
    if scaled:
        steps.append(("scale", _scaler(pca, pca.mean_, pca.scale_)))
    steps.append(("pca", _plain_pca(pca, centred=scaled)))
    if len(steps) == 1:
        return steps[0][1]
    names = getattr(pca, "feature_names_in_", None)
    if names is not None and not isinstance(steps[0][1], Prepared):
        steps[0][1].feature_names_in_ = names
    return Pipeline(steps)


def check_exportable(pca: Any) -> None:
    """Refuse what is no fitted FederatedPCA: other estimators have more than a mean and components."""
    if not isinstance(pca, FederatedPCA):
        raise InputTypeError(f"{type(pca).__name__} cannot be exported, only a fitted FederatedPCA can; pickle it instead")
    check_is_fitted(pca)


def _prepare(pca: FederatedPCA) -> Iterator[tuple[str, Any]]:
    """scikit-learn's estimators for the steps of preparation, named after their kinds.

    Columns that were taken out need no estimator, since components are zero there, unless a later step looks at whole rows.
    """
    by_rows = [step.kind not in MAKERS for step in pca.preparation_]
    if pca.dropped_features_ and any(by_rows):
        kept = ~np.isin(np.arange(pca.n_features_in_), pca.dropped_features_)
        yield "dropped", Prepared(Step("columns", {"kept": kept}))
    for i, step in enumerate(pca.preparation_):
        drops = KINDS[step.kind].drops
        matters = drops is not None and bool(np.any(drops(step.arrays))) and any(by_rows[i + 1 :])
        made = None if matters else _made(pca, step)
        for part, estimator in [("", Prepared(step))] if made is None else made:
            yield "-".join(word for word in (f"prepare{i}", step.kind, part) if word), estimator


Made = list[tuple[str, Any]]
"""Estimators, each with a word for its name."""


def _made(pca: FederatedPCA, step: Step) -> Made | None:
    """scikit-learn's estimators that do what a step does; None where there are none."""
    return MAKERS[step.kind](pca, step.arrays) if step.kind in MAKERS else None


def _fill(pca: FederatedPCA, arrays: Mapping[str, Array]) -> Made:
    return [("", _imputer(pca, arrays["values"]))]


def _genotypes(pca: FederatedPCA, arrays: Mapping[str, Array]) -> Made:
    scale = np.where(arrays["scale"] == 0, 1.0, arrays["scale"])  # where components are zero
    return [("impute", _imputer(pca, arrays["centre"])), ("scale", _scaler(pca, arrays["centre"], scale))]


def _scale(pca: FederatedPCA, arrays: Mapping[str, Array]) -> Made | None:
    if arrays["limit"]:
        return None
    centre = np.zeros_like(arrays["centre"]) if arrays["zeros"] else arrays["centre"]
    return [("", _scaler(pca, centre, arrays["scale"]))]


def _columns(pca: FederatedPCA, arrays: Mapping[str, Array]) -> Made:  # noqa: ARG001
    return []  # components are zero where columns are taken out


MAKERS: dict[str, Callable[[FederatedPCA, Mapping[str, Array]], Made | None]] = {
    "fill": _fill,
    "genotypes": _genotypes,
    "scale": _scale,
    "columns": _columns,
}
"""Kind of step -> scikit-learn's estimators that do the same; those of ``scale`` do not cut."""


def _imputer(pca: FederatedPCA, values: Array) -> Any:
    dtype = pca.components_.dtype
    imputer = SimpleImputer(keep_empty_features=True)
    imputer.statistics_ = np.asarray(values, dtype=dtype)
    imputer.n_features_in_, imputer._fit_dtype, imputer._fill_dtype = pca.n_features_in_, dtype, dtype
    imputer.indicator_ = None
    return imputer


def _scaler(pca: FederatedPCA, centre: Array, scale: Array) -> Any:
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_, scaler.var_ = centre, scale, scale**2
    scaler.n_features_in_, scaler.n_samples_seen_ = pca.n_features_in_, pca.n_samples_seen_
    return scaler


def _plain_pca(pca: FederatedPCA, centred: bool) -> Any:
    plain = PCA(n_components=pca.n_components_, whiten=pca.whiten)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "n_components_"):
        setattr(plain, name, getattr(pca, name))
    plain.mean_ = np.zeros_like(pca.mean_) if centred else pca.mean_
    plain.noise_variance_, plain.n_features_in_, plain.n_samples_ = pca.noise_variance_, pca.n_features_in_, pca.n_samples_seen_
    plain._fit_svd_solver = "full"
    if hasattr(pca, "feature_names_in_") and not (centred or pca.preparation_):
        plain.feature_names_in_ = pca.feature_names_in_
    return plain


def to_onnx(pca: FederatedPCA, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write an ONNX model: float32 rows "rows" (n x d) in, "scores" (n x k) out.  Needs ``eigenpact[export]``."""
    target = Path(path)
    check_file_target(target, (".onnx",), overwrite=overwrite)
    skl2onnx = _extra("skl2onnx", "writing ONNX files")
    types = importlib.import_module("skl2onnx.common.data_types")
    model = _standing_alone(pca, "ONNX")
    found = skl2onnx.convert_sklearn(
        model,
        "eigenpact",
        initial_types=[("rows", types.FloatTensorType([None, pca.n_features_in_]))],
        final_types=[("scores", types.FloatTensorType([None, pca.n_components_]))],
        doc_string=f"Scores on {pca.n_components_} principal components of {pca.n_samples_seen_} rows of {len(pca.sites_)} sites",
    )
    with replacing(target) as part:
        part.write_bytes(found.SerializeToString())


def to_skops(pca: FederatedPCA, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the model of :func:`to_sklearn` as a skops file: ``skops.io.load(path)`` reads it.  Needs ``eigenpact[export]``."""
    target = Path(path)
    check_file_target(target, (".skops",), overwrite=overwrite)
    skops = _extra("skops.io", "writing skops files")
    model = _standing_alone(pca, "skops")
    with replacing(target) as part:
        part.write_bytes(skops.dumps(model))


def _standing_alone(pca: FederatedPCA, what: str) -> Any:
    """The model as scikit-learn's own estimators alone; an InputError names steps that these cannot do."""
    check_exportable(pca)
    others = [step.kind for step in pca.preparation_ if _made(pca, step) is None]
    if others:
        raise InputError(
            f"rows of this model are prepared by {', '.join(others)}, which cannot be written as {what}; "
            f"only {', '.join(MAKERS)} can (scale without a limit): prepare rows with eigenpact, or export with to_json"
        )
    return to_sklearn(pca)


def _extra(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {name.partition('.')[0]} ({error}); run: pip install 'eigenpact[export]'"
        ) from error
