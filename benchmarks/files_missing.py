"""Missing values: scores, held-out entries, sites that lack features, and rounds, on real rows with entries hidden at random.

Scores can be no better than what is left of a row allows.  So rows on scores count the components that allow the bar: whose
variance differs from those beside it by at least ``GAP`` of itself, and whose scores reach the bar where holes are filled in by
the model of the whole rows, which nobody has.  They are named, with that best correlation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

import eigenpact as ep
from benchmarks.table import Row, pytest_row
from eigenpact.errors import FileError
from eigenpact.numerics.holes import filled, loadings
from eigenpact.numerics.linalg import Array
from eigenpact.numerics.ppca import Model, em_step, likelihood

SHARES = {0.02: 0.999, 0.1: 0.995, 0.3: 0.97}
"""Of the entries that are missing, and the least correlation of scores with those of whole rows."""

GAP = 0.1

ALIKE = 1.001
"""With few entries missing, components of filled rows predict what was hidden as well as those of em, but for chance."""

PLAIN_ROUNDS = 300


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    warnings.simplefilter("ignore")
    yield pytest_row(
        "maximum of the likelihood: the plainest EM, row by row, to 1e-8", "pass", "tests/estimators/test_missing.py"
    )
    for name, (X, k) in _sets(size).items():
        for share, least in SHARES.items():
            if size != "small" or name != "1000 Genomes" or share == 0.1:
                yield from _hidden(name, X, k, share, least)
    yield _rounds()
    yield _lacking()
    yield from _real(size)


def _sets(size: str) -> dict[str, tuple[Array, int]]:
    """Whole rows, and how many components are sought."""
    try:
        images = np.asarray(ep.datasets.load("mnist_test").X, dtype=np.float64)[: 1000 if size == "small" else None] / 255
        people = np.asarray(ep.datasets.load("genomes").X, dtype=np.float64)[:, :: 12 if size == "small" else 1]
    except FileError:
        return {"digits": (_digits(), 6)}
    people = people[:, (people >= 0).all(axis=0) & ~np.isnan(people).any(axis=0)]
    return {"MNIST": (images[:, images.std(axis=0) > 0.02], 6), "1000 Genomes": (people[:, people.std(axis=0) > 0.1], 4)}


def _digits() -> Array:
    return np.asarray(ep.datasets.load("digits").X, dtype=np.float64)


def _sites(X: Array) -> dict[str, Array]:
    cuts = (np.array([0, 0.1, 0.3, 0.6, 1]) * len(X)).astype(int)
    return {name: X[a:b] for name, a, b in zip("ABCD", cuts[:-1], cuts[1:], strict=True)}


def _hidden(name: str, X: Array, k: int, share: float, least: float) -> Iterator[Row]:
    hidden = np.random.default_rng(int(100 * share)).random(X.shape) < share
    holed = np.where(hidden, np.nan, X)
    whole = ep.FederatedPCA(k + 1, random_state=0).fit(X)
    em, mean, pooled = (
        ep.FederatedPCA(k, missing=missing, random_state=0).fit(rows)
        for missing, rows in (("em", _sites(holed)), ("mean", _sites(holed)), ("em", holed))
    )
    label, truth = f"{name}, {len(X)} x {X.shape[1]}, {100 * share:.0f} % of the entries missing", whole.transform(X)[:, :k]
    reached, filled, best = (
        _correlations(truth, pca) for pca in (em.transform(holed), mean.transform(holed), _best(whole, holed, k))
    )
    gaps = np.append(1.0, 1 - whole.explained_variance_[1:] / whole.explained_variance_[:-1])
    clear = [i for i in range(k) if min(gaps[i], gaps[i + 1]) >= GAP and best[i] >= least]
    told = "; ".join(f"{i + 1}: {reached[i]:.4f} (best {best[i]:.4f}, mean fill {filled[i]:.4f})" for i in clear)
    met = all(reached[i] >= least for i in clear) if clear else None
    why = "" if met else "no component allows it" if met is None else "too few rows to find the components from what is left"
    yield Row(f"{label}: EM scores correlate with those of whole rows", f">= {least}", told or "none", met, why)
    off = float(np.abs(em.components_ - pooled.components_).max())
    good = off <= 1e-8 and em.converged_ and pooled.converged_
    yield Row(f"{label}: EM of 4 sites is EM of pooled rows", "<= 1e-8", f"{off:.1e}, in {em.n_rounds_} rounds", good)
    expected = em.preparation_[0].apply(holed)
    rebuilt = mean.inverse_transform(mean.transform(holed))
    errors = [
        float(np.sqrt(np.mean((found - X)[hidden] ** 2))) for found in (expected, rebuilt, np.broadcast_to(mean.mean_, X.shape))
    ]
    told = "em {:.5f}, components of rows filled with means {:.5f}, means {:.5f}".format(*errors)
    good = errors[0] <= errors[2] and errors[0] <= ALIKE * errors[1]
    what = f"{label}: root mean square error of hidden entries"
    yield Row(what, f"em below means, and at most {ALIKE} times their components", told, good)


def _best(whole: ep.FederatedPCA, holed: Array, k: int) -> Array:
    """Scores of rows whose holes are filled in by the model of the whole rows."""
    W = loadings(whole.components_[:k].T, whole.explained_variance_[:k], whole.noise_variance_)
    return np.asarray(whole.transform(filled(holed - whole.mean_, W, whole.noise_variance_) + whole.mean_)[:, :k])


def _correlations(A: Array, B: Array) -> list[float]:
    return [abs(float(np.corrcoef(a, b)[0, 1])) for a, b in zip(A.T, B.T, strict=True)]


def _rounds() -> Row:
    """Beside plain EM, which sends the same."""
    told = []
    for share in SHARES:
        X = _digits()
        holed = np.where(np.random.default_rng(0).random(X.shape) < share, np.nan, X)
        pca = ep.FederatedPCA(10, missing="em", random_state=0).fit(_sites(holed))
        told.append(f"{100 * share:.0f} %: {pca.n_rounds_} and {_plain_rounds(holed, 10, pca)}")
    return Row(
        "digits, 10 components: rounds of em, and steps of plain EM to 1e-10 of the likelihood", "reported", "; ".join(told), True
    )


def _plain_rounds(holed: Array, k: int, em: ep.FederatedPCA) -> str:
    """Steps of plain EM until the likelihood is as near to the maximum as 1e-10 of it, from PCA of rows filled with means."""
    n, d = holed.shape
    seen, mean = ~np.isnan(holed), np.nanmean(holed, axis=0)
    start = ep.FederatedPCA(k, missing="mean").fit(holed)
    W = start.components_.T * np.sqrt(np.maximum(start.explained_variance_ - start.noise_variance_, 1e-6))
    model, best = Model(W, np.zeros(d), float(np.log(start.noise_variance_))), em.history_[-1].objective
    for i in range(PLAIN_ROUNDS):
        told, s = likelihood(holed - mean - model.mean, seen, model.W, model.noise), model.noise
        if best is not None and told.value >= best - 1e-10 * abs(best):
            return f"{i}"
        gradient = Model(told.W / s, told.mean / s, (told.squares - s * seen.sum()) / (2 * s))
        model = em_step(model, gradient, n, True)
    return f"more than {PLAIN_ROUNDS}"


def _lacking() -> Row:
    """A site that has no entry of a third of the features; there, and at others, entries of these were hidden."""
    X = _digits()
    X = X[np.random.default_rng(0).permutation(len(X))]
    first, d = len(X) // 3, X.shape[1]
    lacked = np.random.default_rng(1).permutation(d)[: d // 3]
    hidden = np.random.default_rng(2).random(X.shape) < 0.1
    there, errors = np.zeros(X.shape, dtype=bool), []
    there[:first, lacked] = True
    holed = np.where(hidden | there, np.nan, X)
    pca = ep.FederatedPCA(10, missing="em", random_state=0).fit({"A": holed[:first], "B": holed[first:]})
    alone = holed.copy()  # the other site's rows as they would be predicted without these features, in the same way
    alone[:, lacked] = np.nan
    for part in (slice(0, first), slice(first, None)):
        rebuilt = pca.inverse_transform(pca.transform(alone[part]))
        errors.append(float(np.sqrt(np.mean((rebuilt - X[part])[:, lacked] ** 2))))
    ratio = errors[0] / errors[1]
    told = f"{errors[0]:.4f} where they are lacking, {errors[1]:.4f} at the other site: {ratio:.3f} times"
    return Row(
        "a site lacks a third of the features (digits): error of rebuilding them there", "<= 1.1 times", told, ratio <= 1.1
    )


def _real(size: str) -> Iterator[Row]:
    """Sets that lack entries as they are: a tenth of the others is hidden, and predicted."""
    for name, k in (("heart_disease", 3), ("beijing_air", 3)):
        try:
            data = ep.datasets.load(name)
        except FileError:
            yield Row(f"{name}: real missing entries", "reported", "not run", None, "needs EIGENPACT_DATA")
            continue
        labels = next(iter(data.groups.values()))
        step = 1 if name == "heart_disease" else 100 if size == "small" else 10
        X, labels = np.asarray(data.X, dtype=np.float64)[::step], np.asarray(labels)[::step]
        hidden = (np.random.default_rng(0).random(X.shape) < 0.1) & ~np.isnan(X)
        holed = np.where(hidden, np.nan, X)
        told = []
        for missing in ("em", "mean"):
            pca = ep.FederatedPCA(k, missing=missing, scale="pooled", random_state=0).fit(holed, sites=labels)
            found = pca.preparation_[0].apply(holed) if missing == "em" else pca.inverse_transform(pca.transform(holed))
            wrong = (found - X) / pca.scale_
            rounds = f"{pca.n_rounds_} rounds, converged: {pca.converged_}"
            told.append(f"{missing} {np.sqrt(np.mean(wrong[hidden] ** 2)):.4f} ({rounds})")
        share = float(np.isnan(X).mean())
        what = f"{name}, {len(X)} rows, {len(set(labels.tolist()))} sites, {share:.1%} missing: error of hidden entries, scaled"
        yield Row(what, "reported", "; ".join(told), True)
