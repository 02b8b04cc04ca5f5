"""Models as scikit-learn's own estimators, as ONNX and as skops files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import skops.io
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline

import eigenpact as ep
from eigenpact.errors import FileError, InputError, InputTypeError, MissingExtraError
from eigenpact.numerics.kinds import Kind
from eigenpact.numerics.preparation import KINDS, Step

X = np.random.default_rng(0).normal(size=(80, 7)) * [9, 6, 4, 3, 2, 1, 1] + [5, 0, -3, 2, 1, 0, 9]
HOLES = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)


def fitted(**options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(3, random_state=0, **options).fit({"A": X[:30], "B": X[30:]})


def filled(**options: Any) -> ep.FederatedPCA:
    pca = fitted(**options)
    pca.preparation_ = (Step("fill", {"values": X.mean(axis=0)}),)
    return pca


def expected(pca: ep.FederatedPCA, rows: np.ndarray) -> np.ndarray:
    """By hand."""
    rows = np.where(np.isnan(rows), X.mean(axis=0), rows)
    return ((rows - pca.mean_) / pca.scale_) @ pca.components_.T


@pytest.mark.parametrize("scale", [None, "pooled"])
@pytest.mark.parametrize("center", ["pooled", False])
def test_scikit_learn_gives_the_same_scores(scale: Any, center: Any):
    pca = fitted(scale=scale, center=center)
    other = ep.export.to_sklearn(pca)
    assert isinstance(other, PCA if scale is None else Pipeline)
    assert np.allclose(other.transform(X), expected(pca, X), atol=1e-11)
    assert np.allclose(other.inverse_transform(other.transform(X)), pca.inverse_transform(pca.transform(X)), atol=1e-11)


def test_it_is_the_pca_that_scikit_learn_fits():
    other, own = ep.export.to_sklearn(fitted()), PCA(3, svd_solver="full").fit(X)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        assert np.allclose(getattr(other, name), getattr(own, name)), name
    assert np.allclose(np.abs(other.transform(X)), np.abs(own.transform(X)))
    assert np.isclose(other.score(X), own.score(X))
    assert set(vars(own)) <= {*vars(other), "_n_features_out"}


def test_names_of_features_travel():
    names = list("abcdefg")
    table = pd.DataFrame(X, columns=names)
    for scale in (None, "pooled"):
        pca = ep.FederatedPCA(2, scale=scale).fit(table)
        other = ep.export.to_sklearn(pca)
        assert other.feature_names_in_.tolist() == names
        assert np.allclose(other.transform(table), pca.transform(table))
        with pytest.raises(ValueError, match="feature names"):
            other.transform(table[names[::-1]])


@pytest.mark.parametrize("scale", [None, "pooled"])
def test_filling_is_exported(scale: Any):
    pca = filled(scale=scale)
    other = ep.export.to_sklearn(pca)
    assert np.allclose(other.transform(HOLES), expected(pca, HOLES), atol=1e-11)


def test_other_steps_go_to_scikit_learn_but_not_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(KINDS, "double", Kind(lambda rows, _: 2 * rows, {}, True, lambda _: "twice", None))
    pca = fitted()
    pca.preparation_ = (Step("double"),)
    assert np.allclose(ep.export.to_sklearn(pca).transform(X), pca.transform(X))
    for to, name in ((ep.export.to_onnx, "m.onnx"), (ep.export.to_skops, "m.skops")):
        with pytest.raises(InputError, match=r"prepared by double, which cannot be written as \w+; only .*fill"):
            to(pca, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [fitted, filled])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_onnx_gives_the_same_scores_in_single_precision(tmp_path: Path, make: Any, scale: Any):
    pca = make(scale=scale)
    ep.export.to_onnx(pca, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    rows = (HOLES if make is filled else X).astype(np.float32)
    (scores,) = session.run(["scores"], {"rows": rows})
    truth = expected(pca, rows.astype(np.float64))
    assert np.abs(scores - truth).max() <= 1e-6 * np.abs(truth).max()


@pytest.mark.parametrize(("make", "untrusted"), [(fitted, []), (filled, ["numpy.dtype"])])
def test_skops_reads_what_was_written(tmp_path: Path, make: Any, untrusted: list[str]):
    """An imputer of scikit-learn's own keeps a dtype, which skops wants to be told of."""
    pca = make(scale="pooled")
    ep.export.to_skops(pca, tmp_path / "model.skops")
    assert skops.io.get_untrusted_types(file=tmp_path / "model.skops") == untrusted
    other = skops.io.load(tmp_path / "model.skops", trusted=untrusted)
    rows = HOLES if make is filled else X
    assert np.allclose(other.transform(rows), expected(pca, rows), atol=1e-11)


COUNTS = np.random.default_rng(3).binomial(2, [0.1, 0.3, 0.5, 0.6, 0.2, 0.4, 0.0], size=(90, 7)).astype(float)


@pytest.mark.parametrize(
    "prepare",
    [
        [ep.prepare.GenotypeScale()],
        [ep.prepare.Scale()],
        [ep.prepare.Scale(center=False), ep.prepare.HighlyVariable(4)],
    ],
    ids=["genotypes", "scale", "columns"],
)
def test_what_preparers_agreed_on_is_exported(tmp_path: Path, prepare: Any):
    """Against the model's own scores of the same rows, missing genotypes among them."""
    rows = COUNTS.copy()
    if isinstance(prepare[0], ep.prepare.GenotypeScale):
        rows[3, 2] = rows[80, 0] = np.nan
    pca = ep.FederatedPCA(2, prepare=prepare, random_state=0).fit({"A": rows[:40], "B": rows[40:]})
    ep.save_model(pca, tmp_path / "model")
    truth = pca.transform(rows)
    assert ep.load_model(tmp_path / "model").transform(rows).tobytes() == truth.tobytes()
    assert np.allclose(ep.export.to_sklearn(pca).transform(rows), truth, atol=1e-11)
    ep.export.to_onnx(pca, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"rows": rows.astype(np.float32)})
    assert np.abs(scores - truth).max() <= 1e-6 * np.abs(truth).max()


def test_scales_that_cut_are_not_written(tmp_path: Path):
    pca = ep.FederatedPCA(2, prepare=[ep.prepare.Scale(max_value=2.0)], random_state=0).fit(X)
    assert np.allclose(ep.export.to_sklearn(pca).transform(X), pca.transform(X), atol=1e-11)
    with pytest.raises(InputError, match="prepared by scale, which cannot be written as ONNX"):
        ep.export.to_onnx(pca, tmp_path / "model.onnx")


@pytest.mark.parametrize("to", ["to_sklearn", "to_onnx", "to_skops", "to_json", "model_card"])
def test_other_estimators_are_refused_by_name(tmp_path: Path, to: str):
    robust = ep.RobustPCA(1, random_state=0).fit({"A": np.random.default_rng(0).normal(size=(30, 4))})
    where = () if to in ("to_sklearn", "model_card") else (tmp_path / f"a.{to.removeprefix('to_')}",)
    with pytest.raises(InputTypeError, match="RobustPCA cannot be exported, only a fitted FederatedPCA can"):
        getattr(ep.export, to)(robust, *where)
    assert not list(tmp_path.iterdir())


def test_files_are_not_replaced_unless_asked(tmp_path: Path):
    (tmp_path / "model.skops").write_text("mine")
    with pytest.raises(FileError, match="exists already"):
        ep.export.to_skops(fitted(), tmp_path / "model.skops")
    ep.export.to_skops(fitted(), tmp_path / "model.skops", overwrite=True)
    with pytest.raises(FileError, match=r"must end in \.onnx"):
        ep.export.to_onnx(fitted(), tmp_path / "model.skops", overwrite=True)


@pytest.mark.parametrize(("name", "to"), [("skl2onnx", "to_onnx"), ("skops", "to_skops")])
def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, to: str):
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"needs {name} .*pip install 'eigenpact\[export\]'"):
        getattr(ep.export, to)(fitted(), tmp_path / f"model.{'onnx' if to == 'to_onnx' else 'skops'}")
