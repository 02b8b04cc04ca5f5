"""The common mean: however small the variance about it, the component found is the central one, or said to be wrong."""

from __future__ import annotations

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.graph import neighbourhood
from eigenpact.errors import InputError
from eigenpact.numerics import kernels


def dealt(X, nodes=10):
    return {f"n{j}": part for j, part in enumerate(np.array_split(X, nodes))}


def compared(tables, k=1, **options):
    """A fit, its similarities (nodes x k) with the central fit, and the central variances per row."""
    pca = ep.GraphKernelPCA(k, random_state=0, **options).fit(tables)
    central = ep.GraphKernelPCA(k, solver="central", **options).fit(tables)
    found = np.array([np.diag(cosines) for cosines in pca.similarity(central).values()])
    X = np.concatenate(list(tables.values()))
    return pca, np.abs(found), np.mean(central.transform(X) ** 2, axis=0)


NORMAL = np.random.default_rng(0).normal(size=(500, 5)) * [4, 2, 1, 1, 1]


@pytest.mark.parametrize(("gamma", "variance"), [(1e-2, 0.1), (3e-4, 0.01), (3e-5, 0.001), (1e-7, 3e-6)])
def test_kernels_so_wide_that_rows_hardly_vary(gamma, variance):
    """With a slack of 1 % of <mu, mu> the constant direction won here below a variance of .01, and was called converged."""
    pca, found, variances = compared(dealt(NORMAL), 2, gamma=gamma)
    assert variance / 2 < variances[0] < 2 * variance
    assert found[:, 0].min() > 0.99
    assert found[:, 1].min() > 0.98
    assert max(pca.notes_["constant"]) < 1e-3
    scores = pca.transform(NORMAL)
    assert np.abs(scores.mean(axis=0) / scores.std(axis=0)).max() < 0.05


def test_small_values_with_every_default():
    Z = np.random.default_rng(1).normal(size=(1000, 30)) * np.linspace(3, 0.5, 30) * 0.05
    pca, found, variances = compared(dealt(Z))
    assert variances[0] < 0.002
    assert found.min() > 0.99
    assert pca.converged_


def test_rows_far_from_zero():
    """The linear kernel, normalised, sees shifted rows under nearly one angle; rbf loses their differences if it squares them."""
    public = NORMAL[::7] + 10.3
    _, found, _ = compared(dealt(NORMAL + 10), 2, kernel="linear", landmarks=public)
    assert found.min() > 0.99
    near, far = (compared(dealt(NORMAL + shift), gamma=0.01)[0].transform(NORMAL + shift) for shift in (0.0, 1e6))
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("gamma", "far"), [(1e-2, 0.0), (1e-2, 1e6), (1e-7, 0.0), (1e-10, 0.0)])
def test_single_precision_of_what_describes_the_mean_does_not_show(monkeypatch, gamma, far):
    """Angles of many rows are made in single precision in a fit; scores differ by less than a fit is precise to by far."""
    X, precisions = NORMAL + far, []
    made = kernels.random_features

    def noted(rows, frequencies, *shared):
        precisions.append(frequencies.dtype)
        return made(rows, frequencies, *shared)

    monkeypatch.setattr(kernels, "random_features", noted)
    double = compared(dealt(X), gamma=gamma)[0].transform(X)
    assert np.float32 not in precisions
    monkeypatch.setattr(kernels, "WORTH_ROUNDING", 0)
    single = compared(dealt(X), gamma=gamma)[0].transform(X)
    assert (np.float32 in precisions) == (gamma > 1e-10)  # there angles hardly differ
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-6 * np.abs(double).max())


def test_directions_that_tie_are_not_called_converged():
    """Thirty directions of one variance: small steps say nothing; a smaller tol finds the central one in hundreds."""
    U = np.random.default_rng(0).uniform(size=(1000, 30))
    with pytest.warns(
        ep.errors.NotConvergedWarning, match="component 1 nearly ties with the next .*tol=0.001 and a large max_iterations"
    ):
        pca, found, _ = compared(dealt(U))
    assert pca.notes_["tied"][0] > 0.9
    assert max(pca.notes_["constant"]) < 1e-3
    assert found.max() < 0.95


def test_a_constant_that_wins_is_told(monkeypatch):
    """With the mean put ten times as far away as it is, projections have one: the diagnostic must see it."""
    monkeypatch.setattr(neighbourhood, "SLACK", 1e5)
    with pytest.warns(ep.errors.NotConvergedWarning, match="the mean makes up .* of its projections' squares"):
        pca, found, _ = compared(dealt(NORMAL), gamma=0.01)
    assert not pca.converged_
    assert pca.notes_["constant"][0] > 0.5
    assert found.max() < 0.5


def test_rows_all_alike_are_refused():
    with pytest.raises(ep.errors.EigenpactError, match="all rows look alike to this kernel"):
        ep.GraphKernelPCA(1, gamma=1e-14, random_state=0).fit(dealt(NORMAL))


def test_without_centring_components_are_different_ones():
    """Component 2 was component 1 again, converged, because a singular kernel matrix let nothing of it be removed."""
    pca, found, _ = compared(dealt(NORMAL), 2, gamma=0.01, center=False)
    scores = pca.transform(NORMAL)
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.2
    assert found.min() > 0.98
    assert found.max() <= 1.0
    assert min(pca.notes_["share"]) > 0.8


def test_what_could_not_be_removed_is_told(monkeypatch):
    """Without the nugget, as it was: the component before can hardly be removed, and comes again."""
    monkeypatch.setattr(neighbourhood, "NUGGET", 0.0)
    with pytest.warns(
        ep.errors.NotConvergedWarning, match="component 2 is not to be trusted: .*only 0.[0-7]. of the component before"
    ):
        pca, _, _ = compared(dealt(NORMAL), 2, gamma=0.01, center=False)
    assert pca.notes_["share"][1] < 0.8


# -- every block by its own means, as the paper does ----------------------------------------------------------------------

BLOCK = ep.solvers.ProjectionConsensus(centring="block")


def within(tables, gamma):
    """The kernel of all rows, every block K_(i,j) centred by the paper's formula (Section 6.1), and where nodes' rows are."""
    X, sizes = np.concatenate(list(tables.values())), [len(part) for part in tables.values()]
    K, ends = np.exp(-gamma * ((X[:, None] - X) ** 2).sum(-1)), np.cumsum(sizes)
    places = {name: slice(end - size, end) for name, size, end in zip(tables, sizes, ends, strict=True)}
    for rows in places.values():
        for columns in places.values():
            B = K[rows, columns]
            K[rows, columns] = B - B.mean(axis=0) - B.mean(axis=1, keepdims=True) + B.mean()
    return K, places


def shifted():
    """Nodes whose rows vary most along the first feature, and whose means differ far more along the second."""
    rng = np.random.default_rng(0)
    return {f"n{j}": rng.normal(size=(40 + j, 3)) * [1.5, 0.4, 0.3] + [0, 3.0 * (-1) ** j, 0] for j in range(6)}


@pytest.mark.parametrize("span", ["own", "neighbourhood"])
def test_block_centring_finds_the_direction_within_nodes(span):
    tables = shifted()
    method = ep.solvers.ProjectionConsensus(centring="block", span=span)
    options = {"gamma": 0.05, "graph": "ring:4", "random_state": 0}
    pca = ep.GraphKernelPCA(1, solver=method, **options).fit(tables)
    assert pca.converged_
    K, places = within(tables, 0.05)
    values, vectors = np.linalg.eigh(K)
    exact = vectors[:, -1] * np.sqrt(values[-1])  # scores of all rows, each about its node's mean
    for name, place in places.items():
        scores = pca.transform(tables[name], site=name)[:, 0]
        assert abs(scores.mean()) < 1e-8  # about the node's own mean
        assert abs(np.corrcoef(scores, exact[place])[0, 1]) > 0.99
    common = ep.GraphKernelPCA(1, **options).fit(tables)
    central = ep.GraphKernelPCA(1, solver="central", gamma=0.05, graph="ring:4").fit(tables)
    assert min(abs(c[0, 0]) for c in common.similarity(central).values()) > 0.97
    assert max(abs(c[0, 0]) for c in pca.similarity(central).values()) < 0.3  # what nodes' means differ by is lost


def test_similarity_of_a_block_centred_fit_is_the_papers():
    """Section 6.1: alpha_j K(X_j, X) alpha_gt over the lengths, with K(X_j, X), K_j and K each centred as a matrix."""
    tables = dealt(NORMAL[:200], 5)
    pca = ep.GraphKernelPCA(1, solver=BLOCK, gamma=0.02, graph="ring:2", random_state=0).fit(tables)
    central = ep.GraphKernelPCA(1, solver="central", gamma=0.02, graph="ring:2").fit(tables)
    X = np.concatenate(list(tables.values()))

    def centred(A, B):
        K = np.exp(-0.02 * ((A[:, None] - B) ** 2).sum(-1))
        return K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()

    truth = np.linalg.eigh(centred(X, X))[1][:, -1]
    for name, part in tables.items():
        alpha = pca.models_[name].alpha[:, 0]
        lengths = np.sqrt((alpha @ centred(part, part) @ alpha) * (truth @ centred(X, X) @ truth))
        assert abs(pca.similarity(central)[name][0, 0]) == pytest.approx(
            abs(alpha @ centred(part, X) @ truth) / lengths, rel=1e-8
        )


def test_block_centring_sends_nothing_of_a_mean_and_needs_no_random_features():
    tables = dealt(NORMAL[:200], 5)
    pca = ep.GraphKernelPCA(1, solver=BLOCK, kernel="poly", degree=2, graph="ring:2", random_state=0).fit(tables)
    assert "send_mean_values" not in {message.function for message in pca.ledger_}
    with pytest.raises(InputError, match=r"n_components=2 with centring='block': the paper, .* use centring='common'"):
        ep.GraphKernelPCA(2, solver=BLOCK, graph="ring:2", random_state=0).fit(tables)
