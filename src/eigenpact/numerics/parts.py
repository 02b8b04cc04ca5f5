"""Threads over the rows of one site, for where a site is alone on its cores.

Rows are taken in parts that depend on nothing but the shape of the rows, and what parts give is added up in their order.  So
results have the same bits however many threads there are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import reduce
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from .blas import limited_blas
from .elsewhere import to_numpy
from .linalg import Array

Part = TypeVar("Part")
First = TypeVar("First")
Second = TypeVar("Second")

_allowed = threading.local()


@contextmanager
def threads_for_rows(count: int) -> Iterator[None]:
    """A context in which this thread may share the work on a site's rows with so many threads, itself among them."""
    before, pool_before = allowed_threads(), _pool_here()
    _allowed.count, _allowed.pool = count, None
    try:
        yield
    finally:
        pool = _pool_here()
        _allowed.count, _allowed.pool = before, pool_before
        if pool is not None:
            pool.shutdown()


def allowed_threads() -> int:
    """How many threads may share the work on a site's rows: 1, unless it was said otherwise."""
    return int(getattr(_allowed, "count", 1))


def _pool_here() -> ThreadPoolExecutor | None:
    """The threads that were started in this context, which starting anew for every product would take longer than it."""
    pool: ThreadPoolExecutor | None = getattr(_allowed, "pool", None)
    return pool


def side_by_side(function: Callable[[Part], Any], parts: Iterable[Part]) -> Iterator[Any]:
    """What a function gives for every part, in their order; by as many threads as are allowed.

    >>> with threads_for_rows(2):
    ...     list(side_by_side(lambda part: part**2, range(5)))
    [0, 1, 4, 9, 16]
    """
    count = allowed_threads()
    if count == 1:
        yield from map(function, parts)
        return
    pool, under_way = _started(count), deque[Future[Any]]()
    with limited_blas(1):
        try:
            for part in parts:
                if len(under_way) == 2 * count:  # so that what waits to be added up stays small
                    yield under_way.popleft().result()
                under_way.append(pool.submit(function, part))
            while under_way:
                yield under_way.popleft().result()
        finally:  # also where nobody asks for more: what is under way still reads the rows
            wait([future for future in under_way if not future.cancel()])


def at_once(one: Callable[[], First], other: Callable[[], Second]) -> tuple[First, Second]:
    """What two functions give, made at the same time where threads are allowed: the first by one of them, the others are for the
    second.

    >>> with threads_for_rows(2):
    ...     at_once(lambda: sum(range(5)), lambda: list(side_by_side(abs, [-1, 2])))
    (10, [1, 2])
    """
    count = allowed_threads()
    if count == 1:
        return one(), other()
    with limited_blas(1):
        first = _started(count).submit(one)
        try:
            second = other()
        finally:
            wait([first])
    return first.result(), second


def _started(count: int) -> ThreadPoolExecutor:
    """The threads of this context."""
    pool = _allowed.pool = _pool_here() or ThreadPoolExecutor(count, thread_name_prefix="eigenpact-rows")
    return pool


def sum_of(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The sums of tuples of arrays, which are changed, added up where they lie."""
    return reduce(_plus, parts)


def _plus(sums: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
    added = list(sums)
    for i, part in enumerate(more):
        added[i] += part
    return tuple(added)


def each(function: Callable[[Any], tuple[Any, ...]]) -> Callable[[Iterator[Any]], tuple[Any, ...]]:
    """From a function of one block to the sums of what it gives for several.

    >>> each(lambda block: (2 * block,))(iter([1.0, 2.0]))
    (6.0,)
    """
    return lambda blocks: sum_of(map(function, blocks))


def grouped(blocks: Iterator[Any], count: int) -> Iterator[Iterator[Any]]:
    """So many blocks at a time; a group is to be used up before the next one is asked for.

    >>> [list(group) for group in grouped(iter("abc"), 2)]
    [['a', 'b'], ['c']]
    """
    for first in blocks:
        yield chain([first], islice(blocks, count - 1))


def totals(parts: Iterable[tuple[Any, ...]]) -> tuple[Array, ...]:
    """The sums of tuples of arrays as arrays of numpy."""
    return tuple(map(to_numpy, sum_of(parts)))


def careful_totals(parts: Iterable[tuple[Any, ...]]) -> tuple[Array, ...]:
    """As :func:`totals`, however many parts there are: what rounding takes from a sum is added up beside it (Neumaier).

    >>> (one,) = careful_totals((np.array([0.1]),) for _ in range(100_000))
    >>> float(one[0])
    10000.0
    """
    sums: list[Array] = []
    lost: list[Array] = []
    for part in parts:
        added = [np.asarray(to_numpy(array), dtype=np.float64) for array in part]
        if not sums:
            sums, lost = added, [np.zeros_like(array) for array in added]
            continue
        for i, more in enumerate(added):
            with np.errstate(over="ignore", invalid="ignore"):  # infinite sums stay as they are
                total = sums[i] + more
                rest = np.where(np.abs(sums[i]) >= np.abs(more), (sums[i] - total) + more, (more - total) + sums[i])
            lost[i] += np.where(np.isfinite(rest), rest, 0.0)
            sums[i] = total
    return tuple(one + rest for one, rest in zip(sums, lost, strict=True))


def total(parts: Iterable[Any]) -> Array:
    """The sum of arrays as one of numpy."""
    return totals((part,) for part in parts)[0]
