"""Whitened scores: those of scikit-learn, back again, kept in files and by exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import FileError, InputError
from eigenpact.estimators.model_checks import wrong_facts
from eigenpact.estimators.model_files import facts_of


@pytest.fixture(scope="module")
def rows() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(4)
    return rng.normal(size=(90, 6)) @ rng.normal(size=(6, 6)) + 3


@pytest.fixture(scope="module")
def pca(rows: np.ndarray[Any, Any]) -> ep.FederatedPCA:
    return ep.FederatedPCA(3, whiten=True).fit({"A": rows[:50], "B": rows[50:]})


def test_whitened_scores_are_those_of_scikit_learn(rows, pca):
    truth = PCA(3, whiten=True, svd_solver="full").fit(rows)
    np.testing.assert_allclose(pca.transform(rows), truth.transform(rows), atol=1e-10)
    np.testing.assert_allclose(pca.transform(scipy.sparse.csr_array(rows)), truth.transform(rows), atol=1e-10)
    np.testing.assert_allclose(pca.transform(rows).std(axis=0, ddof=1), 1, atol=1e-10)
    scores = np.random.default_rng(1).normal(size=(5, 3))
    np.testing.assert_allclose(pca.inverse_transform(scores), truth.inverse_transform(scores), atol=1e-10)
    plain = PCA(3, svd_solver="full").fit(rows)  # scores have a scale, the model of the rows has not
    np.testing.assert_allclose(pca.score_samples(rows), plain.score_samples(rows), atol=1e-8)
    np.testing.assert_allclose(pca.get_covariance(), plain.get_covariance(), atol=1e-9)
    with pytest.raises(InputError, match=r"scores have shape \(5, 2\)"):
        pca.inverse_transform(scores[:, :2])


@pytest.mark.parametrize("options", [{"center": "site", "scale": "pooled"}, {"missing": "mean"}])
def test_whitened_scores_come_back(rows, options):
    """With every component, the rows themselves."""
    fitted = ep.FederatedPCA(6, whiten=True, **options).fit({"A": rows[:50], "B": rows[50:]})
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(rows)), rows, atol=1e-9)


def test_components_without_variance_are_not_divided_by_zero():
    X = np.outer(np.arange(8.0), [1.0, 2.0, 3.0])
    with pytest.warns(ep.errors.NotIdentifiableWarning):
        fitted = ep.FederatedPCA(2, whiten=True).fit(X)
    assert np.all(np.isfinite(fitted.transform(X)))


def test_models_keep_it_and_older_readers_refuse_them(rows, pca, tmp_path: Path):
    ep.save_model(pca, tmp_path / "model")
    ep.export.to_json(pca, tmp_path / "model.json")
    for place in ("model", "model.json"):
        found = ep.load_model(tmp_path / place)
        assert found.whiten is True
        assert found.transform(rows).tobytes() == pca.transform(rows).tobytes()
    facts = facts_of(pca)
    assert facts["format_version"] == 3  # the last release reads up to 2, and would not divide
    assert "versions 1 and 2 do not have" in wrong_facts(facts | {"format_version": 2, "sha256": ""})
    written = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(written.replace('"format_version": 2', '"format_version": 1'))
    with pytest.raises(FileError, match="versions 1 and 2 do not have"):
        ep.load_model(tmp_path / "model.json")
    plain = ep.FederatedPCA(3).fit(rows)
    assert "whiten" not in facts_of(plain)["parameters"]
    assert facts_of(plain)["format_version"] == 1


@pytest.mark.parametrize("scale", [None, "pooled"])
def test_exports_whiten_too(rows, tmp_path: Path, scale):
    fitted = ep.FederatedPCA(3, whiten=True, scale=scale).fit({"A": rows[:50], "B": rows[50:]})
    other = ep.export.to_sklearn(fitted)
    np.testing.assert_allclose(other.transform(rows), fitted.transform(rows), atol=1e-10)
    pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    ep.export.to_onnx(fitted, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"rows": rows.astype(np.float32)})
    np.testing.assert_allclose(scores, fitted.transform(rows), atol=1e-4)


def test_what_does_not_go_with_it_is_refused_by_name(rows, pca):
    with pytest.raises(InputError, match=r"whiten=True: project gives .*set_params\(whiten=False\)"):
        pca.project(rows)
    with pytest.raises(InputError, match="whiten='yes' must be True or False"):
        ep.FederatedPCA(1, whiten="yes").fit(rows)
