"""What is said of a scatter matrix: no truth is doubted, and what no scatter matrix can say is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.numerics import consistency
from eigenpact.numerics.consistency import Block, Memory, Seen, triangle_doubt
from eigenpact.numerics.parts import threads_for_rows

D, K = 12, 4
SLACK = 1e-11


def scatter(seed: int, rank: int = D, decay: float = 0.5) -> Any:
    """A scatter matrix whose eigenvalues fall over many magnitudes."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(rank, D)) * decay ** np.arange(D)
    return Y.T @ Y


def block(seed: int, k: int = K) -> Any:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(D, k)))[0]


def product_doubt(Z: Any, G: Any, trace: float, slack: float) -> str:
    """What is made of one product, of which nothing is remembered."""
    return Seen(Block(Z, None, np.random.default_rng(0)), G, trace, slack).doubt()


@pytest.mark.parametrize("rank", [1, 3, 40])
@pytest.mark.parametrize("decay", [1.0, 0.5, 0.05])
def test_no_true_product_is_doubted(rank: int, decay: float) -> None:
    for seed in range(20):
        C, Z = scatter(seed, rank, decay), block(seed)
        noise = np.random.default_rng(seed).normal(size=Z.shape) * 1e-14 * np.trace(C)
        top = np.linalg.eigh(C)[1][:, -K:]
        for B in (Z, top, Z[:, :0]):
            assert product_doubt(B, C @ B + noise[:, : B.shape[1]], np.trace(C), SLACK * np.trace(C)) == ""
        assert triangle_doubt(C[np.triu_indices(D)], D, np.trace(C), SLACK * np.trace(C)) == ""
    assert product_doubt(Z, 0 * Z, 0.0, 0.0) == triangle_doubt(np.zeros(D * (D + 1) // 2), D, 0.0, 0.0) == ""


def test_products_that_no_scatter_matrix_has() -> None:
    C, Z = scatter(0, 40), block(1)
    t = float(np.trace(C))
    u, rest = block(2, 1), np.linalg.qr(Z, mode="complete")[0][:, K:]
    cases = {
        "symmetric": C @ Z + 1e-9 * t * np.outer(Z[:, 0], np.ones(K)),
        "negative": C @ Z - 2 * t * u @ (u.T @ Z),
        "needs a trace": (C + t * u @ u.T) @ Z,
        "needs a trace of": C @ Z + 0.5 * t * rest[:, :K],  # Z^T G is as it should be
    }
    for why, G in cases.items():
        assert why in product_doubt(Z, G, t, SLACK * t)


@pytest.mark.parametrize("huge", [1e160, 1e300, np.finfo(float).max])
def test_replies_whose_squares_overflow_are_doubted(huge: float) -> None:
    Z = block(1)
    for trace in (0.0, 1e-300, 1.0):
        assert "needs a trace of" in product_doubt(Z, huge * Z, trace, SLACK * trace)
        assert product_doubt(Z, huge * block(2), trace, SLACK * trace) != ""


@pytest.mark.parametrize("threads", [1, 2])
def test_replies_of_many_features_are_looked_at_in_parts(threads: int) -> None:
    """The words are those of the whole arrays, and squares that overflow in a thread raise no warning there."""
    d, k, rng = 20_000, 24, np.random.default_rng(0)
    Y, Z, lie = rng.normal(size=(30, d)), np.linalg.qr(rng.normal(size=(d, k)))[0], 1e-4 * rng.normal(size=(d, k))
    t, memory = float(np.sum(Y**2)), Memory()
    first, G = Block(Z, None, rng), Y.T @ (Y @ Z)
    with threads_for_rows(threads):
        memory.add(Seen(first, G, t, SLACK * t))
        assert np.abs(memory.V - G @ first.R).max() < SLACK * t
        after = Block(np.linalg.qr(rng.normal(size=(d, k)))[0], memory.asked, rng)
        H = Y.T @ (Y @ after.Z)
        seen, wrong = Seen(after, H, t, SLACK * t), Seen(after, H + t * lie, t, SLACK * t)
        assert seen.doubt() == seen.joint_doubt(memory) == ""
        assert "symmetric" in wrong.doubt()
        assert "contradicts" in wrong.joint_doubt(memory)
        memory.add(seen)
        assert np.abs(memory.V - G @ first.R - H @ after.R).max() < SLACK * t
        for huge in (1e160, 1e300):
            assert "needs a trace of inf" in Seen(first, huge * Z, 1.0, SLACK).doubt()


@pytest.mark.parametrize("panel", [7, 256])
def test_triangles_that_no_scatter_matrix_has(panel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one panel, and in several."""
    monkeypatch.setattr("eigenpact.numerics.tall.PANEL", panel)
    C, at = scatter(0, 40), np.triu_indices(D)
    t, u = float(np.trace(C)), block(2, 1)
    flat = u @ u.T - np.eye(D) / D  # no trace, but a negative eigenvalue
    assert triangle_doubt(C[at], D, t, SLACK * t) == ""
    assert "negative" in triangle_doubt((C - 0.2 * t * flat)[at], D, t, SLACK * t)
    assert "the site told" in triangle_doubt(1.001 * C[at], D, t, SLACK * t)
    assert "zero" in triangle_doubt((np.eye(D)[::-1])[at], D, 0.0, 0.0)


def test_cholesky_factors_decide_as_eigenvalues_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Truth, and lies of all sizes about a threshold, with and without earlier replies: the same words by either way."""
    sure, found = consistency._has_none_below, {}
    for quick in (True, False):
        monkeypatch.setattr(consistency, "_has_none_below", sure if quick else lambda *_: False)
        said = []
        for seed in range(30):
            C, rng = scatter(seed, 5 + seed, 0.9), np.random.default_rng(seed)
            t, u = float(np.trace(C)), block(seed + 100, 1)
            memory, first = Memory(), Block(block(seed + 50), None, rng)
            memory.add(Seen(first, C @ first.Z, t, SLACK * t))
            second = Block(block(seed + 60), first.after, rng)
            for size in (0.0, 1e-12, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0):
                for sign in (1, -1):
                    seen = Seen(second, C @ second.Z + sign * size * t * u @ (u.T @ second.Z), t, SLACK * t)
                    said += [seen.doubt(), seen._of_dependent(*joint(seen, memory))]
        found[quick] = said
    assert found[True] == found[False]
    assert 50 < sum(map(bool, found[True])) < 900


def joint(seen: Seen, memory: Memory) -> tuple[Any, Any]:
    """Inner products of a block and what is remembered, of which [Z, W]^T [G, V] and [G, V]^T [G, V]."""
    assert memory.asked is not None
    W, V = memory.asked.W / np.sqrt(memory.asked.count), memory.V / np.sqrt(memory.asked.count)
    A, B = np.concatenate([seen.block.Z, W], axis=1), np.concatenate([seen.G, V], axis=1)
    return A.T @ B, B.T @ B


def test_a_memory_is_of_all_earlier_products() -> None:
    """A lie that agrees with the newest product, but not with the first, is noticed; truth is not doubted in 500 rounds."""
    C, rng = scatter(0, 40), np.random.default_rng(0)
    t, memory = float(np.trace(C)), Memory()
    for seed in range(500):
        Z = block(seed)
        seen = Seen(Block(Z, memory.asked, rng), C @ Z, t, SLACK * t)
        assert seen.joint_doubt(memory) == ""
        memory.add(seen)
    Z, first = block(1000), block(0)
    lie = 1e-6 * t * first[:, :1] @ np.ones((1, K))
    lie -= block(499) @ (block(499).T @ lie)
    assert np.abs(block(499).T @ lie).max() < 1e-12 * t
    assert "contradicts" in Seen(Block(Z, memory.asked, rng), C @ Z + lie, t, SLACK * t).joint_doubt(memory)


def doubts_of_power(C: Any, t: float, slack: float = SLACK, k: int = 1) -> tuple[str, str]:
    """What is made of honest power steps with C for a told trace t: by each block alone, and by the memory.

    Products are off by all of the slack.  Every 20 rounds vectors begin anew; between, they hardly change in the end.
    """
    rng, memory, alone, joint = np.random.default_rng(0), Memory(), "", ""
    G = np.zeros((D, k))
    for i in range(60):
        Z = np.linalg.qr(G if i % 20 else rng.normal(size=(D, k)))[0]
        noise = rng.normal(size=Z.shape)
        G = C @ Z + slack * t * noise / np.linalg.norm(noise, axis=0)
        seen = Seen(Block(Z, memory.asked, rng), G, t, slack * t)
        alone, joint = alone or seen.doubt(), joint or seen.joint_doubt(memory)
        memory.add(seen)
    return alone, joint


@pytest.mark.parametrize("rank", [1, 3, 40])
@pytest.mark.parametrize("decay", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("slack", [1e-11, 1e-8, 1e-6, 1e-3])
def test_no_truth_is_doubted_beside_earlier_ones(rank: int, decay: float, slack: float) -> None:
    """Vectors that depend on each other, errors as large as they may be, traces near the ends of the range."""
    for seed in range(3):
        C = scatter(seed, rank, decay)
        for unit, k in ((1.0, 1), (1e-140, 1), (1e140, 1), (1.0, 3)):
            assert doubts_of_power(unit * C, unit * float(np.trace(C)), slack, k=k) == ("", "")
    assert doubts_of_power(0 * C, 0.0) == ("", "")


def test_vectors_together_show_what_each_of_them_hides() -> None:
    C, u = scatter(0, 40, 0.8), block(1, 1)
    t = float(np.trace(C))
    for lie in (1.3 * C, C + 0.3 * t * u @ u.T):
        alone, joint = doubts_of_power(lie, t)
        assert alone == ""
        assert "with earlier replies it needs a trace" in joint
    flat = np.diag([1.0, 1.0, *np.zeros(D - 2)])
    flat[0, 1] = flat[1, 0] = 1.5  # a negative eigenvalue between the first two axes
    memory, first, second = Memory(), np.eye(D)[:, :1], np.eye(D)[:, 1:2]
    rng = np.random.default_rng(0)
    memory.add(Seen(Block(first, None, rng), flat @ first, 10.0, SLACK))
    assert product_doubt(second, flat @ second, 10.0, SLACK) == ""
    assert "with earlier replies it has a negative variance" in Seen(
        Block(second, memory.asked, rng), flat @ second, 10.0, SLACK
    ).joint_doubt(memory)
