"""A growing space: what it knows of itself without a pass over all of it, and that growing never changes what was there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenpact.algorithms.expansion import space_of
from eigenpact.numerics import directions, krylov_space, tall
from eigenpact.numerics.certificate import LOOKED_AT, Behind
from eigenpact.numerics.krylov_space import KrylovSpace
from eigenpact.numerics.linalg import orthonormalize, random_orthonormal, without
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.tall import PART, inner, times

Matrix = np.ndarray[Any, Any]


def scatter(d: int, seed: int = 0) -> Matrix:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (turn * np.linspace(3, 0.1, d) ** 3) @ turn.T


def grown(C: Matrix, width: int, blocks: int) -> KrylovSpace:
    B = random_orthonormal(len(C), width, 1)
    space = KrylovSpace(B, C @ B, width)
    for _ in range(blocks - 1):
        B = space.next_block(width)
        space = space.add(B, C @ B)
    return space


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_residuals_of_a_krylov_space_are_those_of_its_newest_block(blocks: int) -> None:
    """||E X|| of E = C Q - Q T, without a pass over Q, for any X; and what random blocks leave, F, is judged alike."""
    C, width, k = scatter(60), 6, 2
    space = grown(C, width, blocks)
    assert space.is_krylov
    X = np.random.default_rng(2).normal(size=(space.size, 3))
    E = C @ space.Q - space.Q @ (space.Q.T @ (C @ space.Q))
    found, lacking = space.residuals(X[space.size - space.fresh :]), space.lacking(X)
    np.testing.assert_allclose(found.T @ found, (E @ X).T @ (E @ X), atol=1e-10)
    assert lacking <= space.lacking_at_most(float(np.linalg.norm(X))) < 1e-9
    ritz = space.ritz(lambda _: k)
    behind = Behind(space, ritz, space.Q[:, :width])
    lam = 1.1 * ritz.values[k - 1]
    lams = [lam + step * lam for step in LOOKED_AT]
    short = space.residuals(ritz.turn[space.size - space.fresh :, k:] @ behind._weights(lams))
    np.testing.assert_allclose(np.linalg.norm(short, 2), np.linalg.norm(behind._left(lams), 2), rtol=1e-8)


def test_other_directions_make_no_krylov_space() -> None:
    """What products of older blocks have outside is then not known without a look, so nobody relies on it."""
    C = scatter(60)
    space = grown(C, 4, 2)
    B = orthonormalize(np.random.default_rng(3).normal(size=(60, 4)))
    B = orthonormalize(B - space.Q @ (space.Q.T @ B))
    other = space.add(B, C @ B)
    assert space.is_krylov
    assert not other.is_krylov
    B = other.next_block(4)
    assert not other.add(B, C @ B).is_krylov
    assert not space.shrunk(5).is_krylov


def test_a_block_that_is_cut_short_makes_no_krylov_space() -> None:
    """The directions that were left out are still open."""
    C = scatter(60)
    space = grown(C, 4, 3)
    B = np.ascontiguousarray(space.next_block(4)[:, :2])
    assert not space.add(B, C @ B).is_krylov


def test_two_spaces_that_grow_from_one_do_not_write_over_each_other() -> None:
    C = scatter(40)
    space = grown(C, 3, 2)
    before = space.Q.copy()
    B = space.next_block(3)
    first = space.add(B, C @ B)
    second = space.add(-B, -(C @ B))
    for one, sign in ((first, 1), (second, -1)):
        np.testing.assert_array_equal(one.Q[:, :6], before)
        np.testing.assert_array_equal(one.Q[:, 6:], sign * B)
        np.testing.assert_allclose(one.CQ, C @ one.Q, atol=1e-12)
        np.testing.assert_allclose(one.inner, one.Q.T @ one.CQ, atol=1e-12)
        np.testing.assert_allclose(one.lengths, np.eye(9), atol=1e-12)


@pytest.mark.parametrize(("most", "moves"), [(1 << 25, 2), (0, 4)])
def test_a_space_is_copied_to_other_memory_twice_unless_that_took_too_much(
    most: int, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for 5 blocks, then for 45; else for 5, 10, 20 and 40."""
    monkeypatch.setattr(krylov_space, "MOST", most)
    d, blocks = 120, 40
    B = np.eye(d)
    space = KrylovSpace(B[:, :3], 2 * B[:, :3], 3)
    places = []
    for i in range(1, blocks):
        space = space.add(np.ascontiguousarray(B[:, 3 * i : 3 * i + 3]), 2 * B[:, 3 * i : 3 * i + 3])
        places.append(space.Q.ctypes.data)
    assert len(set(places)) == moves
    np.testing.assert_array_equal(space.Q, B)
    np.testing.assert_array_equal(space.CQ, 2 * B)


def test_a_large_block_is_put_into_a_space_by_threads_and_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    B, CB, more, product = (rng.normal(size=(200, 3)) for _ in range(4))

    def larger() -> KrylovSpace:
        return KrylovSpace(B, CB, 3).add(more, product)

    alone = larger()
    monkeypatch.setattr(krylov_space, "TOUCHED", 1)
    with threads_for_rows(2):
        by_threads = larger()
    for name in ("Q", "CQ", "inner", "lengths", "spilt"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(by_threads, name))
    np.testing.assert_array_equal(by_threads.Q, np.hstack([B, more]))
    np.testing.assert_array_equal(by_threads.CQ, np.hstack([CB, product]))


def test_threads_are_handed_several_parts_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the sum over parts is still that of one thread, to the bit."""
    rng, handed = np.random.default_rng(0), []
    Q, A = rng.normal(size=(40 * PART, 20)), rng.normal(size=(40 * PART, 20))
    original = tall.side_by_side

    def counted(function: Any, parts: Any) -> Any:
        handed.append(len(parts))
        return original(function, parts)

    monkeypatch.setattr(tall, "side_by_side", counted)
    monkeypatch.setattr(tall, "WORTH_THREADS", 1)
    alone = inner(Q, A)
    with threads_for_rows(2):
        together = inner(Q, A)
    assert handed == [8]
    np.testing.assert_array_equal(alone, together)


def test_small_values_that_nobody_asked_for_cost_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a value of 1e6 those of 1 lose digits, so a wanted one is found again; one behind the wanted is not."""
    C = np.diag(np.concatenate([[1e6, 5e5, 4e5], np.linspace(1, 0.5, 37)]))
    space, turned = grown(C, 5, 2), []
    original = KrylovSpace._rotated
    monkeypatch.setattr(KrylovSpace, "_rotated", lambda self, Y: turned.append(Y.shape) or original(self, Y))
    space.ritz(lambda _: 2)
    assert not turned
    space.ritz(lambda _: 3)
    assert turned


def test_products_with_many_rows_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    Q, A, Y = (
        np.asfortranarray(rng.normal(size=(3 * PART + 5, 80))),
        rng.normal(size=(3 * PART + 5, 30)),
        rng.normal(size=(80, 30)),
    )
    one = inner(Q, A), times(Q, Y)
    with threads_for_rows(3):
        several = inner(Q, A), times(Q, Y)
    np.testing.assert_allclose(one[0], Q.T @ A, atol=1e-9)
    np.testing.assert_allclose(one[1], Q @ Y, atol=1e-11)
    for a, b in zip(one, several, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_state_of_an_older_release_is_read() -> None:
    """Its columns are there as such, and nothing is known of what was spilt: everything is looked at."""
    C = scatter(30)
    space = grown(C, 3, 2)
    old = space_of({"Q": space.Q, "CQ": space.CQ, "fresh": np.array(3), "inner": space.inner, "lengths": space.lengths})
    assert not old.is_krylov
    np.testing.assert_array_equal(old.Q, space.Q)
    np.testing.assert_allclose(old.next_block(3), space.next_block(3), atol=1e-12)


def passes(monkeypatch: pytest.MonkeyPatch, m: int) -> list[str]:
    """Names of products with all of a space of m columns or nearly so, as they are made."""
    made: list[str] = []

    def watched(function: Any) -> Any:
        def product(Q: Matrix, *others: Any) -> Matrix:
            if m <= Q.shape[1] < Q.shape[0]:
                made.append(function.__name__)
            found: Matrix = function(Q, *others)
            return found

        return product

    for function in (inner, times):
        for module in (krylov_space, directions):
            monkeypatch.setattr(module, function.__name__, watched(function))
    return made


def test_a_krylov_space_grows_by_three_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its structure tells is not made anew, and is what would be made: inner products, and what a block leaves outside."""
    C, width = scatter(60), 4
    space = grown(C, width, 6)
    made = passes(monkeypatch, space.size)
    B = space.next_block(width)
    larger = space.add(B, C @ B)
    assert sorted(made) == ["inner", "inner", "times"]
    assert larger.is_krylov
    np.testing.assert_allclose(larger.inner, larger.Q.T @ larger.CQ, atol=1e-13)
    np.testing.assert_allclose(larger.lengths, larger.Q.T @ larger.Q, atol=1e-14)
    np.testing.assert_allclose(
        larger.outside, larger.CQ[:, -width:] - larger.Q @ (larger.Q.T @ larger.CQ[:, -width:]), atol=1e-13
    )
    monkeypatch.undo()
    made = passes(monkeypatch, space.size)
    space.add(-B, -(C @ B))  # a block that it did not give
    assert sorted(made) == ["inner", "inner", "inner"]


def test_beside_one_large_value_inner_products_are_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """There rounding errors of the large one are not small for the others."""
    C = scatter(60)
    C[0, 0] += 1e6
    space = grown(C, 4, 4)
    B = space.next_block(4)
    made = passes(monkeypatch, space.size)
    space.add(B, C @ B)
    assert sorted(made) == ["inner", "inner", "inner"]


def test_leading_pairs_and_lengths_of_their_residuals_need_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of all pairs, and of the vectors; in another space lengths are those of the vectors."""
    C = scatter(80)
    space = grown(C, 5, 6)
    whole = space.ritz(lambda _: 3)
    made = passes(monkeypatch, space.size)
    some = space.glimpse(3)
    assert some is not None
    off, lengths = some.off, some.lengths
    assert not made
    np.testing.assert_allclose(some.values, whole.values[:4], rtol=1e-12)
    np.testing.assert_allclose(off, np.linalg.norm(whole.residual, axis=0), rtol=1e-9)
    np.testing.assert_allclose(lengths, np.linalg.norm(C @ whole.Z, axis=0), rtol=1e-12)
    assert grown(C, 5, 2).glimpse(3) is None
    B = orthonormalize(without(np.random.default_rng(3).normal(size=(80, 5)), space.Q))
    other = space.add(B, C @ B)
    assert other.glimpse(3) is None
    found = other.ritz(lambda _: 3)
    np.testing.assert_array_equal(replace(found, measured=False).off, np.linalg.norm(found.residual, axis=0))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_next_block_is_made_beside_leading_pairs_where_there_are_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It and the pairs have the same bits, it is made once, and a block of another width is not taken for it."""
    C = scatter(80)
    alone, space, other = (grown(C, 5, 6) for _ in range(3))
    pairs, B = alone.glimpse(3), alone.next_block(5)
    with threads_for_rows(threads):
        some = space.glimpse(3, ahead=5)
        made = passes(monkeypatch, space.size)
        found = space.next_block(5)
        assert bool(made) == (threads == 1)
        other.glimpse(3, ahead=5)
        narrower = other.next_block(4)
    assert pairs is not None
    assert some is not None
    for one, same in ((pairs.values, some.values), (pairs.turn, some.turn), (B, found)):
        np.testing.assert_array_equal(one, same)
    assert narrower.shape == (80, 4)
    np.testing.assert_array_equal(space.add(B, C @ B).inner, alone.add(B, C @ B).inner)


def test_residuals_as_small_as_what_was_spilt_are_measured() -> None:
    """Where the structure cannot tell a length from rounding errors, the vectors do."""
    C = np.diag([5.0, 4.0, 3.0] + [1e-9] * 57)
    ritz = grown(C, 6, 2).ritz(lambda _: 2)
    np.testing.assert_array_equal(replace(ritz, measured=False).off, np.linalg.norm(ritz.residual, axis=0))


def test_residuals_at_rounding_beside_later_ones_that_are_not_need_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading vector that is exact is not measured for its own sake: the size of all residuals is that of the vectors."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(400, 400)))[0]
    C = (turn * np.concatenate([[50.0], np.linspace(3, 0.1, 399)])) @ turn.T
    space = grown(C, 8, 14)
    truth = np.linalg.norm(space.ritz(lambda _: 4).residual, axis=0)
    made = passes(monkeypatch, space.size)
    some = space.glimpse(4)
    assert some is not None
    off = some.off
    assert not made
    assert truth[0] < 1e-12 < 1e-6 < truth[3]
    assert np.linalg.norm(off) == pytest.approx(np.linalg.norm(truth), rel=1e-6)
    assert replace(some, k=1).off == pytest.approx(truth[:1], rel=1e-6)  # with nothing behind it, it is
    assert made
