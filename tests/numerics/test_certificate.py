"""What a random block excludes: the identity and the theorem against dense truth, the probability by trial, ties and ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from eigenpact.numerics.certificate import Behind, certify, certify_again, least_share, may_be_rounding, rounding_errors
from eigenpact.numerics.krylov_space import KrylovSpace, Ritz
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import largest_sine

Matrix = np.ndarray[Any, Any]


def grown(C: Matrix, blocks: int, k: int, first: Matrix, omega: Matrix) -> tuple[KrylovSpace, Ritz]:
    """Plain block Krylov from [first, omega]."""
    B = np.linalg.qr(np.concatenate([first, omega], axis=1))[0]
    space = KrylovSpace(B, C @ B, B.shape[1])
    for _ in range(blocks - 1):
        B = space.next_block(omega.shape[1])
        space = space.add(B, C @ B) if B.shape[1] else space
    return space, space.ritz(lambda _: k)


def test_the_identity() -> None:
    """v^T Omega = v^T Z Z^T Omega + v^T F(lambda) for every eigenpair of C, whatever the space."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 20))
    C = X.T @ X
    omega = random_orthonormal(20, 4, 1)
    space, ritz = grown(C, 2, 2, rng.normal(size=(20, 2)), omega)
    behind = Behind(space, ritz, omega)
    values, V = np.linalg.eigh(C)
    for lam, v in zip(values.tolist(), V.T, strict=True):
        expected = v @ ritz.Z @ (ritz.Z.T @ omega) + v @ behind._left([lam])
        np.testing.assert_allclose(v @ omega, expected, atol=1e-9)


def test_a_space_that_has_nothing_of_the_leading_direction_is_found_out() -> None:
    """Z is an invariant subspace, residual zero, but not the leading one: only the random block tells."""
    values = np.concatenate([[5.0, 4.0, 3.0], np.linspace(2, 0.1, 47)])
    C = np.diag(values)
    wrong = np.eye(50)[:, 1:3]  # components 2 and 3
    omega = random_orthonormal(50, 4, 0)
    narrow = KrylovSpace(wrong, C @ wrong)
    assert np.linalg.norm(narrow.ritz(lambda _: 2).residual) == 0.0
    space, ritz = grown(C, 1, 2, wrong, omega)
    assert certify(space, ritz, omega).missed
    for blocks in range(2, 12):
        space, ritz = grown(C, blocks, 2, wrong, omega)
        if not certify(space, ritz, omega).missed:
            break
    assert blocks < 11
    assert largest_sine(ritz.Z, np.eye(50)[:, :2]) < 1e-3


@pytest.mark.parametrize("seed", range(20))
def test_never_certain_of_a_wrong_answer(seed: int) -> None:
    """Random spectra, starts in invariant subspaces, small gaps: where there is a bound, it holds."""
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(8, 60)), int(rng.integers(1, 4))
    values = np.sort(rng.uniform(0.1, 1, d))[::-1]
    values[k:] *= 1 - 10.0 ** rng.uniform(-3, -0.5)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    C = (turn * values) @ turn.T
    first = turn[:, rng.choice(d, k, replace=False)]
    omega = random_orthonormal(d, min(d, k + 2), seed)
    answered = False
    for blocks in range(1, 40):
        space, ritz = grown(C, blocks, k, first, omega)
        found = certify(space, ritz, omega)
        if found.angle is not None:
            answered = True
            assert found.bound is not None
            assert found.bound >= values[k] - 1e-13
            assert largest_sine(ritz.Z, turn[:, :k]) <= 1.001 * found.angle + 1e-12
        if space.size == d:
            break
    assert answered


def test_least_share_is_exceeded() -> None:
    """The smallest singular value of a corner falls below the bound at most as often as promised."""
    rng = np.random.default_rng(0)
    bound = least_share(40, 3, 5, failure=0.05)
    smallest = [np.linalg.svd(np.linalg.qr(rng.normal(size=(40, 5)))[0][:3], compute_uv=False)[-1] for _ in range(400)]
    assert np.mean(np.array(smallest) < bound) <= 0.05
    assert np.mean(np.array(smallest) < 6 * bound) > 0.05  # and not by far


def test_a_tie_is_told_and_a_small_gap_is_not_one() -> None:
    """Equal values at the cut are a tie once residuals are rounding errors; a relative gap of 1e-9 is none."""
    omega = random_orthonormal(12, 4, 0)
    for gap, tied in ((0.0, True), (1e-9, False)):
        C = np.diag(np.concatenate([[3.0, 2.0, 2.0 - 2 * gap], np.linspace(1, 0.1, 9)]))
        space, ritz = grown(C, 3, 2, omega[:, :0], omega)
        found = certify(space, ritz, omega)
        assert found.cut == ("tied" if tied else "clear")
        assert (found.angle is None) is tied
        assert not found.missed


def test_directions_without_variance_have_no_angle() -> None:
    """Of rank 2 and k = 4: the rank is told, and nothing is missed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 15))
    omega = random_orthonormal(15, 6, 0)
    space, ritz = grown(X.T @ X, 1, 4, omega[:, :0], omega)
    found = certify(space, ritz, omega)
    assert found.rank == 2
    assert not found.missed
    assert found.cut != "tied"


def test_a_bound_that_was_proved_holds_for_larger_spaces() -> None:
    """Where it leaves half of the gap; the angle that it tells is true, and nothing is told without one."""
    values = np.concatenate([[9.0, 8.0], np.linspace(3, 0.1, 118)])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(120, 120)))[0]
    C, k, width = (turn * values) @ turn.T, 2, 6
    omega = random_orthonormal(120, width, 0)
    space = KrylovSpace(omega, C @ omega, width)
    found, angles = certify(space, space.ritz(lambda _: k), omega), []
    assert found.bound is None
    for _ in range(12):
        B = space.next_block(width)
        space = space.add(B, C @ B)
        ritz = space.ritz(lambda _: k)
        again = certify_again(space, ritz, found)
        if again is None:
            found = certify(space, ritz, omega)
            continue
        assert again.bound is not None
        assert again.bound == found.bound >= values[k]
        assert again.angle is not None
        assert largest_sine(ritz.Z, turn[:, :k]) <= again.angle + 1e-13
        assert certify_again(space, ritz, dataclasses.replace(found, bound=float(ritz.values[k - 1]) - 1e-3)) is None
        assert certify_again(space, ritz, dataclasses.replace(found, bound=None)) is None
        angles.append(again.angle)
    assert len(angles) > 5
    assert angles[-1] < 1e-9 < angles[0]


def test_a_bound_is_as_low_as_the_space_shows_but_not_within_errors() -> None:
    """A hundredth of the gap is left once the next pair is known that well; more where products are off by as much."""
    omega, values = random_orthonormal(12, 4, 0), np.concatenate([[3.0, 2.0, 1.5], np.linspace(1, 0.1, 9)])
    space, ritz = grown(np.diag(values), 3, 2, omega[:, :0], omega)
    for coarse, left in ((0.0, 0.01), (0.003, 0.01), (0.004, 0.1), (0.03, 0.1)):
        found = certify(space, ritz, omega, coarse)
        assert found.bound is not None
        assert (found.bound - values[2]) / (values[1] - values[2]) == pytest.approx(left)


def test_that_a_proof_would_show_rounding_errors_is_known_before() -> None:
    """Whenever a certificate says so, and not because one of the vectors is exact."""
    values = np.concatenate([[900.0, 12.0], np.linspace(5, 0.1, 198)])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(200, 200)))[0]
    C, k, width = (turn * values) @ turn.T, 2, 6
    omega = random_orthonormal(200, width, 0)
    space, told, exact = KrylovSpace(omega, C @ omega, width), [], []
    for _ in range(20):
        B = space.next_block(width)
        space = space.add(B, C @ B)
        ritz = space.ritz(lambda _: k)
        noise, found = rounding_errors(space, ritz), certify(space, ritz, omega)
        at_rounding = found.angle is not None and found.angle <= 4 * found.rounding
        told.append((may_be_rounding(ritz, noise, 4.0), at_rounding))
        exact.append(bool(ritz.off[0] <= 4 * noise[0]))
    assert all(may for may, is_ in told if is_)
    assert any(is_ for _, is_ in told)
    assert any(one and not may for one, (may, _) in zip(exact, told, strict=True))
