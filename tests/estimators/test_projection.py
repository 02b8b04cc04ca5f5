"""``FederatedPCA.project``: new rows with missing features, standard errors, ellipses, shrinkage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.errors import InputError
from eigenpact.numerics.preparation import Step

D, K = 40, 3


class World:
    """Rows m + W t + noise, and a model fitted to 2000 of them."""

    def __init__(self, scale: Any = None) -> None:
        self.random = np.random.default_rng(1)
        self.W = np.linalg.qr(self.random.normal(size=(D, K)))[0] * [6.0, 4.0, 3.0]
        self.mean = self.random.normal(size=D)
        self.pca = ep.FederatedPCA(K, scale=scale, random_state=0).fit(self.draw(2000)[0])

    def draw(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows, and the scores that they have without their noise."""
        t = self.random.normal(size=(n, K))
        rows = self.mean + t @ self.W.T + self.random.normal(size=(n, D))
        return rows, t @ self.W.T @ self.pca.components_.T if hasattr(self, "pca") else t

    def holes(self, rows: np.ndarray, share: float) -> np.ndarray:
        return np.where(self.random.random(rows.shape) < share, np.nan, rows)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.95], ids=lambda share: f"{share:.0%}")
def test_ellipses_cover_the_truth(world: World, share: float):
    """Also where hardly any feature is left, and scores are posterior means."""
    rows, truth = world.draw(3000)
    found = world.pca.project(world.holes(rows, share))
    assert abs(found.covers(truth).mean() - 0.95) <= 0.02
    assert abs(found.covers(truth, (1, 2), level=0.8).mean() - 0.8) <= 0.03
    assert (found.from_prior.mean() > 0.1) == (share >= 0.9)
    if share:
        assert abs(found.covers(world.pca.transform(rows), of="whole").mean() - 0.95) <= 0.02
    off = (found.scores - truth) / found.standard_errors()
    assert np.allclose((off**2).mean(axis=0), 1.0, atol=0.12)


def test_bootstrapped_ellipses_cover_the_truth_and_follow_the_seed(world: World):
    rows, truth = world.draw(1500)
    gaps = world.holes(rows, 0.3)
    found = world.pca.project(gaps, errors="bootstrap", n_draws=200)
    assert abs(found.covers(truth).mean() - 0.95) <= 0.02
    again = world.pca.project(gaps[:20], errors="bootstrap", n_draws=200, random_state=0)
    other = world.pca.project(gaps[:20], errors="bootstrap", n_draws=200, random_state=1)
    assert np.allclose(again.covariance(), found.covariance()[:20], rtol=1e-9)
    assert not np.allclose(again.standard_errors(), other.standard_errors(), rtol=1e-3)


def test_the_bootstrap_sees_rows_that_are_noisier_than_the_model(world: World):
    rows, truth = world.draw(800)
    noisy = rows + 2 * world.random.normal(size=rows.shape)
    assert world.pca.project(noisy).covers(truth).mean() < 0.6
    assert abs(world.pca.project(noisy, errors="bootstrap", n_draws=200).covers(truth).mean() - 0.95) <= 0.03


def test_an_ellipse_is_that_of_the_covariance(world: World):
    found = world.pca.project(world.holes(world.draw(4)[0], 0.5))
    x, y, a, b, angle = found.ellipses((0, 2)).T
    assert np.array_equal(np.column_stack([x, y]), found.scores[:, [0, 2]])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
    squares = np.array([np.diag(row) for row in np.column_stack([a, b]) ** 2])
    expected = found.covariance()[:, [0, 2]][:, :, [0, 2]] * 5.991464547107979  # the 95 % quantile of chi squared, 2 degrees
    assert np.allclose(turn @ squares @ turn.transpose(0, 2, 1), expected)


def test_rows_without_gaps_have_the_scores_of_transform(world: World):
    rows, _ = world.draw(50)
    assert np.allclose(world.pca.project(rows).scores, world.pca.transform(rows), atol=1e-12)
    assert np.all(world.pca.project(rows).standard_errors(of="whole") == 0)


def test_scaled_models_and_blocks_and_sparse_rows():
    world = World(scale="pooled")
    rows, _ = world.draw(500)
    gaps = world.holes(rows, 0.4)
    found = world.pca.project(gaps)
    for i in (0, 499):
        at = ~np.isnan(gaps[i])
        y = ((gaps[i] - world.pca.mean_) / world.pca.scale_)[at]
        assert np.allclose(found.scores[i], np.linalg.lstsq(world.pca.components_.T[at], y, rcond=None)[0])
    assert np.allclose(world.pca.project(scipy.sparse.csr_array(gaps)).scores, found.scores)


def test_transform_refuses_what_project_takes(world: World):
    gaps = world.holes(world.draw(10)[0], 0.3)
    with pytest.raises(InputError, match="NaN"):
        world.pca.transform(gaps)


def test_what_a_step_fills_in_is_not_taken_for_observed(world: World):
    gaps = world.holes(world.draw(10)[0], 0.3)
    expected = world.pca.project(gaps)
    world.pca.preparation_ = (Step("fill", {"values": np.full(D, 1e6)}),)
    try:
        found = world.pca.project(gaps)
        assert np.allclose(found.scores, expected.scores)
        assert np.array_equal(found.n_observed, (~np.isnan(gaps)).sum(axis=1))
    finally:
        world.pca.preparation_ = ()


def test_genotypes_are_prepared_and_missing_ones_are_no_means():
    """``transform`` puts the mean where a genotype is missing, which moves scores towards zero; ``project`` does not."""
    random = np.random.default_rng(0)
    p = np.clip(random.uniform(0.2, 0.8, size=300) + np.array([[-0.15], [0.15]]) * random.choice([-1, 1], size=300), 0.05, 0.95)
    counts = random.binomial(2, np.repeat(p, 60, axis=0)).astype(float)
    pca = ep.FederatedPCA(2, prepare=[ep.prepare.GenotypeScale()], random_state=0).fit({"A": counts[::2], "B": counts[1::2]})
    gaps = np.where(random.random(counts.shape) < 0.5, np.nan, counts)
    whole, found = pca.transform(counts)[:, 0], pca.project(gaps)
    assert np.allclose(pca.project(counts).scores[:, 0], whole)
    slopes = [float(scores @ whole / (whole @ whole)) for scores in (pca.transform(gaps)[:, 0], found.scores[:, 0])]
    assert slopes[0] < 0.6
    assert abs(slopes[1] - 1) < 0.05
    share = counts.mean(axis=0) / 2
    scaled = (gaps - 2 * share) / np.sqrt(share * (1 - share))
    at = ~np.isnan(scaled[7])
    assert np.allclose(found.scores[7], np.linalg.lstsq(pca.components_.T[at], scaled[7, at], rcond=None)[0], atol=1e-8)


def test_a_row_whose_covariate_is_missing_has_nothing_observed():
    random = np.random.default_rng(0)
    rows = random.normal(size=(100, 6)) * [1, 5, 4, 3, 2, 1]
    pca = ep.FederatedPCA(2, prepare=[ep.prepare.Residualize((0,))], random_state=0).fit(rows)
    new = rows[:2].copy()
    new[0, 0] = np.nan
    found = pca.project(new)
    assert found.n_observed.tolist() == [0, 5]
    assert found.from_prior.tolist() == [True, False]
    assert np.allclose(found.scores[1], pca.transform(rows[1:2]))


def test_columns_are_matched_by_name(world: World):
    names = [f"f{j}" for j in range(D)]
    rows = world.draw(300)[0]
    pca = ep.FederatedPCA(K).fit(pd.DataFrame(rows, columns=names))
    gaps = rows.copy()
    gaps[:, [3, 5]] = np.nan
    table = pd.DataFrame(rows, columns=names)[names[::-1]].drop(columns=["f3", "f5"]).assign(other=1.0)
    found = pca.project(table)
    assert np.allclose(found.scores, pca.project(pd.DataFrame(gaps, columns=names)).scores)
    assert (found.lacking_features, found.ignored_features) == (("f3", "f5"), ("other",))
    with pytest.raises(InputError, match="none of the model's features"):
        pca.project(table.rename(columns=str.upper))


def test_shrinkage_is_undone_where_features_outnumber_rows():
    """Held-out rows against the joint fit: plain scores are too small, corrected ones of the right size."""
    random = np.random.default_rng(5)
    d, n = 2000, 215
    W = np.linalg.qr(random.normal(size=(d, 2)))[0] * [14.0, 10.0]
    rows = random.normal(size=(n, 2)) @ W.T + random.normal(size=(n, d))
    pca, joint = (ep.FederatedPCA(4, solver="krylov", random_state=0).fit(rows[:m]) for m in (200, n))
    held, truth = rows[200:], joint.transform(rows[200:])
    truth *= np.sign((joint.components_ * pca.components_).sum(axis=1))
    slopes = {
        how: (pca.project(held, shrinkage=how).scores * truth)[:, :2].sum(axis=0) / (truth**2)[:, :2].sum(axis=0)
        for how in ("none", "corrected")
    }
    assert np.all(slopes["none"] < 0.97)
    assert np.all(np.abs(slopes["corrected"] - 1) < 0.02)
    found = pca.project(held, shrinkage="corrected")
    assert np.all(found.stretched[:, 2:] == 1)  # noise
    assert np.all(found.stretched[:, :2] > 1.02)
    half = pca.project(np.where(random.random(held.shape) < 0.5, np.nan, held), shrinkage="corrected").scores
    assert np.all(np.abs((half * truth)[:, :2].sum(axis=0) / (truth**2)[:, :2].sum(axis=0) - 1) < 0.05)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shrinkage": "yes"}, "shrinkage='yes' must be 'none' or 'corrected'"),
        ({"errors": "t"}, "errors='t' must be 'model' or 'bootstrap'"),
        ({"errors": "bootstrap", "n_draws": 3}, "n_draws=3 must be a whole number >= 10"),
        ({"errors": "bootstrap", "n_draws": "50"}, "n_draws='50' must be a whole number >= 10"),
        ({"errors": "bootstrap", "n_draws": 20.5}, "n_draws=20.5 must be a whole number >= 10"),
    ],
)
def test_other_options_are_refused(world: World, options: dict[str, Any], told: str):
    with pytest.raises(InputError, match=told):
        world.pca.project(np.zeros((1, D)), **options)


def test_other_questions_are_refused(world: World):
    found = world.pca.project(np.zeros((1, D)))
    with pytest.raises(InputError, match="two of the numbers 0 to 2"):
        found.ellipses((0, 3))
    with pytest.raises(InputError, match="level=95 must be a share"):
        found.ellipses(level=95)
    with pytest.raises(InputError, match="of='half' must be 'true' or 'whole'"):
        found.standard_errors(of="half")
    with pytest.raises(InputError, match="infinity"):
        world.pca.project(np.full((1, D), np.inf))
