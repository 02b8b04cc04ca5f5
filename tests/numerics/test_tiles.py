"""Products in tiles: which shapes, and that seams between them do not show."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.numerics import tiles
from eigenpact.numerics.rows import block_rows


@pytest.mark.parametrize("d", [0, 1, 7, 784, 6000, 14_079, 100_000, 1_000_000])
@pytest.mark.parametrize("k", [1, 5, 14, 24, 54, 64])
def test_narrow_tiles_are_multiplied_without_a_copy(d: int, k: int) -> None:
    """And are neither too low nor larger than a block, unless rows are very wide."""
    rows, features = tiles.tile(d, k, block_rows(d))
    assert rows * features * k <= tiles.UNPACKED
    assert 1 <= features <= max(1, d)
    assert rows >= tiles.LEAST
    assert rows <= max(block_rows(d), tiles.LEAST)


def test_wide_blocks_of_columns_are_left_to_blas() -> None:
    assert tiles.tile(784, 100, 668) == (668, 784)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [1, 3, 4, 5, 8, 9, 14])
def test_columns_that_fill_no_registers_are_given_back_as_they_were(k: int, dtype: type[np.floating]) -> None:
    """Zeros are added to the block, and what belongs to them is left out; rows may be infinite."""
    rng = np.random.default_rng(1)
    X, A, shift = rng.normal(size=(9, 6)).astype(dtype), rng.normal(size=(6, k)).astype(dtype), rng.normal(size=k)
    G, sums = tiles.action(iter([X[:5], X[5:]]), A, shift, 4)
    T = X.astype(float) @ A - shift
    assert (G.shape, sums.shape, G.dtype, sums.dtype) == ((6, k), (k,), np.float64, np.float64)
    np.testing.assert_allclose(G, X.T @ T, rtol=0, atol=1e-5 if dtype is np.float32 else 1e-13)
    np.testing.assert_allclose(sums, T.sum(axis=0), rtol=0, atol=1e-5 if dtype is np.float32 else 1e-13)
    X[0, 0] = np.inf
    beyond = tiles.action(iter([X]), A, shift, 6)[0]
    assert not np.isfinite(beyond[0]).any()


@pytest.mark.parametrize("features", [1, 3, 6, 7])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_do_not_depend_on_the_seams(features: int, order: str) -> None:
    rng = np.random.default_rng(0)
    X, A, shift = np.asarray(rng.normal(size=(20, 7)), order=order), rng.normal(size=(7, 3)), rng.normal(size=3)
    blocks = [X[:8], X[8:16], X[16:]]
    G, sums = tiles.action(iter(blocks), A, shift, features)
    T = X @ A - shift
    np.testing.assert_allclose(G, X.T @ T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sums, T.sum(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tiles.action(iter(blocks), A, None, features)[0], X.T @ (X @ A), rtol=1e-12, atol=1e-12)
    (S,) = tiles.gram(iter(blocks), 7)
    np.testing.assert_allclose(S, X.T @ X, rtol=1e-12, atol=1e-12)
