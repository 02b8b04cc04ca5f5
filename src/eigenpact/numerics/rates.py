"""How fast this process computes: measured once, in some milliseconds, on matrices of its own.

Each rate is the best of a few tries by the processor time of one thread, so that other work on the machine hardly shows.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any

import numpy as np

from .blas import limited_blas
from .machine_code import processor

SIDE, ROWS, FEATURES, NARROW = 384, 1024, 512, 14
"""Side of the square matrices; and rows, features and columns of the narrow product."""

COMPILED = 0.75
"""Share of the rate of squares that compiled loops reach with a narrow block; not measured, since compiling one takes longer."""

TRIES = 5
"""The fastest of so many counts."""

LONG_ENOUGH, LARGEST_SIDE = 2e-3, 6144
"""Seconds that a product on a device takes at least where it is measured, and the largest side of its matrices."""

STEP = 4.0
"""A rate that was measured counts as the nearest of its usual value times a power of this: within a factor of two it is the usual
one."""


@dataclass(frozen=True)
class Rates:
    """Flops a second of one thread: of a product of two square matrices, and of B^T (B Z) with ``NARROW`` columns."""

    square: float
    narrow: float


@cache
def measured_rates() -> Rates:
    """The rates of this process in float64.

    >>> rates = measured_rates()
    >>> min(rates.square, rates.narrow) > 0
    True
    """
    A, B, Z = (np.full(shape, 0.5) for shape in ((SIDE, SIDE), (ROWS, FEATURES), (FEATURES, NARROW)))
    with limited_blas(1):
        square = 2.0 * SIDE**3 / _seconds(lambda: A @ A)
        if processor() is not None:
            return Rates(square, COMPILED * square)
        narrow = 4.0 * ROWS * FEATURES * NARROW / _seconds(lambda: B.T @ (B @ Z))
    return Rates(square, narrow)


@cache
def device_rates(device: str) -> Rates:
    """The rates of a device in float64, by torch: of matrices so large that starting the product hardly counts.

    Pieces double until a product takes a millisecond; the fastest of some tries counts, by the clock.
    """
    torch = importlib.import_module("torch")

    def seconds(make: Callable[[int], tuple[Any, Any]]) -> tuple[float, int]:
        side, least = SIDE, 0.0
        while least < LONG_ENOUGH and side < LARGEST_SIDE:
            side *= 2
            A, B = make(side)
            least = min(_waited(lambda A=A, B=B: float((A.mT @ (A @ B))[0, 0])) for _ in range(TRIES))  # type: ignore[misc]
        return least, side

    def full(*shape: int) -> Any:
        return torch.full(shape, 0.5, dtype=torch.float64, device=device)

    square, side = seconds(lambda side: (full(side, side), full(side, side)))
    narrow, rows = seconds(lambda side: (full(4 * side, FEATURES), full(FEATURES, NARROW)))
    return Rates(4.0 * side**3 / square, 16.0 * rows * FEATURES * NARROW / narrow)


def _waited(work: Callable[[], object]) -> float:
    """Seconds by the clock."""
    begin = time.perf_counter()
    work()
    return max(time.perf_counter() - begin, 1e-9)


def near(usual: float, measured: float) -> float:
    """A measured rate, coarse enough that noise seldom changes it: the usual one times a power of ``STEP``.

    >>> near(3.0, 2.0), near(3.0, 5.5), near(3.0, 13.0)
    (3.0, 3.0, 12.0)
    """
    return usual * STEP ** round(log(measured / usual, STEP))


def _seconds(work: Callable[[], object]) -> float:
    """Processor time of this thread in the fastest of some tries."""
    best = np.inf
    for _ in range(TRIES):
        begin = time.thread_time()
        work()
        best = min(best, time.thread_time() - begin)
    return max(float(best), 1e-9)
