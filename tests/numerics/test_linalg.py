"""Bases, the sign rule, packed triangles, angles, Krylov spaces - against numpy and by their properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eigenpact.numerics.directions import new_directions
from eigenpact.numerics.krylov_space import KrylovSpace, leading_eigenpairs
from eigenpact.numerics.linalg import (
    fix_signs,
    orthonormalize,
    pack_triangle,
    random_orthonormal,
    top_eigenpairs,
    unpack_triangle,
)
from eigenpact.numerics.metrics import kkt, largest_sine


def test_orthonormalize_a_rank_deficient_block() -> None:
    """The basis is full although the block is not, and contains the block."""
    A = np.outer(np.arange(1.0, 6.0), [1, 2, 0])
    Q = orthonormalize(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(Q @ (Q.T @ A), A, atol=1e-13)


def test_new_directions_when_almost_nothing_is_new() -> None:
    """A part of 1e-9 outside span(Q) is found, orthogonal to Q to rounding; parts below the floor are not."""
    Q = random_orthonormal(50, 4, seed=0)
    fresh = new_directions(random_orthonormal(50, 2, seed=1), Q, 0.0)
    A = Q[:, :2] + np.column_stack([1e-9 * fresh[:, 0], 1e-17 * fresh[:, 1]])
    found = new_directions(A, Q, 1e-14)
    assert found.shape == (50, 1)
    assert np.abs(Q.T @ found).max() < 1e-15
    assert largest_sine(found, fresh[:, :1]) < 1e-6


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 4)),
        elements=st.floats(-1, 1).filter(lambda x: abs(x) > 1e-6),
    )
)
def test_sign_rule(basis: Any) -> None:
    """Invariant under flips, idempotent, changes nothing but signs, and the decisive entry is positive."""
    fixed = fix_signs(basis)
    np.testing.assert_array_equal(np.abs(fixed), np.abs(basis))
    np.testing.assert_array_equal(fix_signs(-basis), fixed)
    np.testing.assert_array_equal(fix_signs(fixed), fixed)
    assert (fixed.max(axis=0) >= (1 - 1e-8) * np.abs(fixed).max(axis=0)).all()


def test_sign_rule_does_not_let_rounding_decide() -> None:
    """Two entries that tie up to rounding: the first one decides, whichever is larger."""
    a = np.array([[-0.5], [0.5 + 1e-15], [0.1]])
    b = np.array([[-0.5 - 1e-15], [0.5], [0.1]])
    assert fix_signs(a)[0, 0] > 0
    assert fix_signs(b)[0, 0] > 0


@given(st.integers(1, 8))
def test_packed_triangle(d: int) -> None:
    """Packing loses nothing and halves the square."""
    S = np.random.default_rng(d).normal(size=(d, d))
    S = S + S.T
    packed = pack_triangle(S)
    assert packed.shape == (d * (d + 1) // 2,)
    np.testing.assert_array_equal(unpack_triangle(packed, d), S)


@pytest.mark.parametrize("k", [1, 3, 10, None])
def test_top_eigenpairs(k: int | None) -> None:
    """Descending, orthonormal, and eigenpairs, whether a subset or all are computed."""
    A = np.random.default_rng(0).normal(size=(10, 10))
    S = A @ A.T
    values, vectors = top_eigenpairs(S, k)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(S)[::-1][:k], rtol=1e-12)
    np.testing.assert_allclose(S @ vectors, vectors * values, atol=1e-12)


@pytest.mark.parametrize("angle", [1e-12, 1e-8, 1e-3, 1.0])
def test_angles_from_sines(angle: float) -> None:
    """Angles far below 1e-8 are told apart, which a cosine cannot do."""
    a, b = np.eye(4)[:, :1], (np.cos(angle) * np.eye(4)[:, 0] + np.sin(angle) * np.eye(4)[:, 2])[:, None]
    assert largest_sine(a, b) == pytest.approx(np.sin(angle), rel=1e-3)


def test_kkt_is_zero_at_eigenvectors_and_scales() -> None:
    """Zero for an invariant subspace, unchanged when the matrix is scaled, zero for the zero matrix."""
    C = np.diag([3.0, 2.0, 1.0])
    Z = random_orthonormal(3, 1, seed=0)
    assert kkt(C[:, :2], np.eye(3)[:, :2], 6.0) == 0
    assert kkt(5 * C @ Z, Z, 30.0) == pytest.approx(kkt(C @ Z, Z, 6.0))
    assert kkt(np.zeros((3, 1)), Z, 0.0) == 0


def test_krylov_space_keeps_exact_products_when_shrunk() -> None:
    """Thick restart rotates basis and products together."""
    A = np.random.default_rng(0).normal(size=(30, 30))
    C = A @ A.T
    Q = random_orthonormal(30, 6, seed=0)
    space = KrylovSpace(Q, C @ Q).shrunk(3)
    np.testing.assert_allclose(space.CQ, C @ space.Q, atol=1e-11)
    T = space.projected()
    np.testing.assert_allclose(T, np.diag(np.diag(T)), atol=1e-11)
    np.testing.assert_allclose(np.diag(T), np.linalg.eigvalsh(Q.T @ C @ Q)[::-1][:3], rtol=1e-12)


@pytest.mark.parametrize(("d", "k"), [(200, 5), (12, 5), (6, 6)])
def test_leading_eigenpairs_by_products_alone(d: int, k: int) -> None:
    """Block Krylov with restarts, also where the space fills up."""
    lam = 0.9 ** np.arange(d)
    U = random_orthonormal(d, d, seed=1)
    values, vectors = leading_eigenpairs(
        lambda B: U @ (lam[:, None] * (U.T @ B)), random_orthonormal(d, k, 0), k, lam.sum(), 1e-12
    )
    np.testing.assert_allclose(values, lam[:k], rtol=1e-10)
    assert largest_sine(U[:, :k], vectors) < 1e-9
