"""Threads inside BLAS calls, set for the length of a run."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def limited_blas(threads: int | None) -> Any:
    """A context in which BLAS uses this many threads; None leaves it as it is."""
    return nullcontext() if threads is None else _controller().limit(limits=threads, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
