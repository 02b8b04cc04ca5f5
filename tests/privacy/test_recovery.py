"""Attacks on the single replies of real runs: they recover what the paper and the pages say, and no more than that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eigenpact as ep
from eigenpact.privacy import Eavesdropper, first_message, fit_scatter, fitting, minimum_norm, symmetric
from eigenpact.runtime import COORDINATOR

D, K = 20, 5


def flat_sites() -> dict[str, np.ndarray[Any, Any]]:
    """Three sites whose variances fall slowly, so that subspace iteration turns through all directions."""
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(n, D)) * 1.02 ** -np.arange(D) for name, n in {"A": 30, "B": 60, "C": 40}.items()}


def scatter(sites: dict[str, Any], name: str) -> Any:
    """C_i about the pooled mean, from the rows."""
    Y = sites[name] - np.concatenate(list(sites.values())).mean(axis=0)
    return Y.T @ Y


def overheard(solver: Any, sites: dict[str, Any], k: int, **options: Any) -> Eavesdropper:
    spy = Eavesdropper(ep.engines.InProcess())
    ep.FederatedPCA(k, solver=solver, engine=spy, random_state=0, **options).fit(sites)
    return spy


def error(Phi: Any, C: Any) -> float:
    return float(np.linalg.norm(Phi - C) / np.linalg.norm(C))


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    data = ep.datasets.load("digits")
    return ep.datasets.partition.by_label(data.X, data.y)


@pytest.mark.parametrize("attack", [minimum_norm, symmetric])
@pytest.mark.parametrize("solver", ["subspace", "krylov", "localpower"])
def test_products_give_the_scatter_once_the_blocks_span(solver: str, attack: Any) -> None:
    """Proposition 2 on a real run: C_i to rounding after d / k rounds, and far from it one round before."""
    sites = flat_sites()
    blocks, products = overheard(solver, sites, K, tol=1e-6).side_by_side("A", "scatter_action")
    C, before = scatter(sites, "A"), D - K
    assert error(attack(blocks[:, :before], products[:, :before]), C) > 0.1
    assert error(attack(blocks[:, :D], products[:, :D]), C) <= 1e-10
    assert error(attack(blocks, products), C) <= 1e-10


def test_the_formula_of_proposition_2() -> None:
    """It is what the attack computes, where it is defined."""
    blocks, products = overheard("subspace", flat_sites(), K, tol=1e-6).side_by_side("B", "scatter_action")
    formula = products @ blocks.T @ np.linalg.inv(blocks @ blocks.T)
    np.testing.assert_allclose(minimum_norm(blocks, products), formula, atol=1e-7 * np.abs(formula).max())


@pytest.mark.parametrize("solver", ["subspace", "krylov", "localpower"])
def test_symmetry_makes_the_attack_better(solver: str, digits: dict[str, Any]) -> None:
    """On digits by label, never worse after any round, at most half the error from 4 rounds on, 1 % after ten rounds."""
    blocks, products = overheard(solver, digits, 5, tol=1e-9).side_by_side("label0", "scatter_action")
    C = scatter(digits, "label0")
    errors = {}
    for rounds in (1, 2, 3, 4, 6, 8, 10):
        seen = slice(0, 5 * rounds)
        errors[rounds] = [error(attack(blocks[:, seen], products[:, seen]), C) for attack in (symmetric, minimum_norm)]
        assert errors[rounds][0] <= errors[rounds][1]
    assert all(better <= worse / 2 for rounds, (better, worse) in errors.items() if rounds >= 4)
    assert errors[10][0] <= 0.01


@given(d=st.integers(1, 7), m=st.integers(0, 9), rank=st.integers(1, 7), repeated=st.booleans(), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_smallest_solutions(d: int, m: int, rank: int, repeated: bool, seed: int) -> None:
    """Both solve Phi B = C B with the least norm, the latter among symmetric matrices: as dense least squares say."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(d, min(rank, d)))
    C, B = half @ half.T, rng.normal(size=(d, m))
    if repeated:
        B = np.hstack([B, B, B @ rng.normal(size=(m, m))])
    G = C @ B
    rows, cols = np.triu_indices(d)
    basis = np.zeros((len(rows), d, d))  # an orthonormal basis of the symmetric matrices
    basis[np.arange(len(rows)), rows, cols] = basis[np.arange(len(rows)), cols, rows] = np.where(rows == cols, 1, np.sqrt(0.5))
    everything = np.eye(d * d).reshape(-1, d, d)
    for attack, space in ((minimum_norm, everything), (symmetric, basis)):
        system = np.array([(E @ B).ravel() for E in space]).T
        weights = np.linalg.lstsq(system, G.ravel(), rcond=1e-11)[0] if m else np.zeros(len(space))
        expected = np.tensordot(weights, space, axes=1)
        np.testing.assert_allclose(attack(B, G), expected, atol=1e-7 * max(1.0, np.abs(C).max()))


def test_directions_lost_in_rounding_are_left_out() -> None:
    """A block that adds only rounding must not add a matrix of noise."""
    rng = np.random.default_rng(0)
    C = np.diag([3.0, 2.0, 1.0, 0.0, 0.0])
    B = np.linalg.qr(rng.normal(size=(5, 2)))[0]
    again = np.hstack([B, B + 1e-16 * rng.normal(size=(5, 2))])
    noisy = C @ again + 1e-16 * rng.normal(size=(5, 4))
    for attack in (minimum_norm, symmetric):
        np.testing.assert_allclose(attack(again, noisy), attack(B, C @ B), atol=1e-14)


@pytest.mark.parametrize("start", ["one-shot", "random"])
def test_first_message_of_faps(start: Any, digits: dict[str, Any]) -> None:
    """M_i = beta_i Z + (I - Z Z^T) C_i Z, with beta_i a known multiple of lambda_1(C_i), for every site of a real run."""
    spy = overheard(ep.solvers.FAPS(start=start), digits, 5, tol=1e-3)
    for name in digits:
        C = scatter(digits, name)
        first = spy.replies(name, "consensus_step")[0]
        Z, M = first.args[0], first.arrays[0]
        beta, product = first_message(Z, M)
        assert beta == pytest.approx(fitting.SHARE * np.linalg.eigvalsh(C)[-1], rel=1e-10)
        expected = C @ Z - Z @ (Z.T @ C @ Z)
        assert np.linalg.norm(product - expected) <= 1e-10 * np.linalg.norm(expected)


def test_the_rest_that_faps_shows(digits: dict[str, Any]) -> None:
    """One-shot directions are the best rank-k part; every round tells tr(Z^T C_i Z); the last ones are products."""
    spy = overheard("faps", digits, 5, tol=1e-3)
    C = scatter(digits, "label0")
    values, vectors = np.linalg.eigh(C)
    V = spy.replies("label0", "leading_directions")[0].arrays[0]
    np.testing.assert_allclose(V @ V.T, (vectors[:, -5:] * values[-5:]) @ vectors[:, -5:].T, atol=1e-9 * values[-1])
    for reply in spy.replies("label0", "consensus_step"):
        Z, captured = reply.args[0], reply.arrays[1]
        assert captured == pytest.approx(np.trace(Z.T @ C @ Z), rel=1e-12)
    confirming = spy.replies("label0", "scatter_action")
    assert confirming[0].args[0].shape == (64, 5 + 5 + 4)
    for reply in confirming:
        np.testing.assert_allclose(reply.arrays[0], C @ reply.args[0], atol=1e-12 * values[-1])


def test_products_of_faps_are_not_products_of_the_scatter(digits: dict[str, Any]) -> None:
    """The linear attack alone fails on FAPS' replies: that much the masks do."""
    blocks, replies = overheard("faps", digits, 5, tol=1e-3).side_by_side("label0", "consensus_step")
    assert error(symmetric(blocks, replies), scatter(digits, "label0")) > 1


def faps_run(start: Any, rounds: int) -> tuple[Eavesdropper, Any]:
    """A run of FAPS on 10 features that ends, unfinished, after so many steps and one product; and the truth."""
    rng = np.random.default_rng(2)
    mixing = np.linalg.qr(rng.normal(size=(10, 10)))[0] * 1.2 ** -np.arange(10)
    sites = {name: rng.normal(size=(n, 10)) @ mixing.T for name, n in {"A": 20, "B": 40, "C": 30}.items()}
    with pytest.warns(ep.errors.NotConvergedWarning):
        spy = overheard(ep.solvers.FAPS(start=start), sites, 2, tol=0, max_rounds=rounds + 1 + (start == "one-shot"))
    assert len(spy.replies("A", "consensus_step")) == rounds
    return spy, scatter(sites, "A")


def faps_messages(start: Any, rounds: int) -> tuple[list[Any], Any]:
    """What ``fit_scatter`` takes from FAPS' own messages, those that confirm the answer left out, and the truth."""
    spy, C = faps_run(start, rounds)
    heard = spy.replies("A", "consensus_step")
    blocks = products = np.zeros((10, 0))
    if start == "one-shot":
        V = spy.replies("A", "leading_directions")[0].arrays[0]
        lengths = np.linalg.norm(V, axis=0)
        blocks, products = V / lengths, V * lengths
    arrays = [[one.args[0] for one in heard], [one.arrays[0] for one in heard], [float(one.arrays[1]) for one in heard]]
    return [*arrays, blocks, products], C


@pytest.mark.parametrize("start", ["one-shot", "random"])
def test_the_scatter_is_fitted_to_what_faps_sends(start: Any) -> None:
    """The paper calls it impossible: C_i to 1e-9 from ten rounds, where the linear attack has an error of 10 % or more."""
    messages, C = faps_messages(start, 10)
    bases, replies, _, blocks, products = messages
    assert error(symmetric(blocks, products), C) > 0.1
    assert error(symmetric(np.hstack(bases), np.hstack(replies)), C) > 0.1
    fit = fit_scatter(*messages)
    assert fit.misfit <= 1e-12
    assert error(fit.scatter, C) <= 1e-9


def test_what_confirms_faps_answer_tells_the_scatter_where_it_looks() -> None:
    """Seen singly, the products with [Z, random block] are C_i on their span: here all but a 2 x 2 corner from one round."""
    spy, C = faps_run("random", 1)
    (reply,) = spy.replies("A", "scatter_action")
    B, G = reply.args[0], reply.arrays[0]
    assert B.shape == (10, 2 + 2 + 4)
    P = B @ np.linalg.pinv(B)
    assert np.linalg.matrix_rank(P) == 8
    assert error(minimum_norm(B, G) @ P, C @ P) <= 1e-12
    guess = symmetric(B, G)
    unseen = np.eye(10) - P
    np.testing.assert_allclose(C - guess, unseen @ C @ unseen, atol=1e-12 * np.linalg.norm(C))


def test_too_few_rounds_do_not_determine_the_scatter() -> None:
    """With fewer equations than unknowns there is no fit; with as many that say the same twice a fit is no recovery."""
    messages, C = faps_messages("random", 1)
    with pytest.raises(ep.errors.InputError, match="21 equations do not determine 56 unknowns; give more rounds"):
        fit_scatter(*messages)
    (reply,) = faps_run("random", 1)[0].replies("A", "scatter_action")
    some = [reply.args[0][:, :5], reply.arrays[0][:, :5]]  # 15 entries are left, and at most 9 equations that tell of them
    assert error(fit_scatter(*messages[:3], *some, starts=1).scatter, C) > 0.05


def test_messages_must_be_of_the_same_rounds() -> None:
    messages, _ = faps_messages("random", 2)
    with pytest.raises(ep.errors.InputError, match="2 bases, 1 replies and 2 numbers must be as many"):
        fit_scatter(messages[0], messages[1][:1], *messages[2:])


@pytest.mark.parametrize("solver", ["gram", "krylov", "faps"])
def test_listening_changes_nothing_and_misses_nothing(solver: str) -> None:
    """The same bits as without it; as many replies as the ledger has, each with the ledger's shapes."""
    sites = flat_sites()
    spy = Eavesdropper(ep.engines.InProcess())
    pca = ep.FederatedPCA(2, solver=solver, engine=spy, random_state=0).fit(sites)
    plain = ep.FederatedPCA(2, solver=solver, random_state=0).fit(sites)
    assert pca.components_.tobytes() == plain.components_.tobytes()
    sent = [(m.step, m.function, m.sender, m.shapes) for m in plain.ledger_ if m.sender != COORDINATOR and m.shapes]
    assert [(h.step, h.function, h.site, tuple(a.shape for a in h.arrays)) for h in spy.heard] == sent


def test_what_cannot_be_attacked() -> None:
    with pytest.raises(ep.errors.InputError, match=r"blocks of shape \(3, 2\) and products of shape \(3, 1\).*side by side"):
        minimum_norm(np.eye(3)[:, :2], np.eye(3)[:, :1])
    with pytest.raises(ep.errors.InputError, match="must be finite"):
        symmetric(np.eye(2), np.full((2, 2), np.nan))
    with pytest.raises(ep.errors.InputError, match=r"no reply of 'consensus_step' from site 'A' .*scatter_triangle at A"):
        overheard("gram", flat_sites(), 2).replies("A", "consensus_step")
