"""Threads inside BLAS calls, set for the length of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The environment of processes that compute with one thread, as ``InProcess(threads=1)`` does."""

_lock = threading.Lock()
_limits: list[Any] = []  # what restores the old number of threads, once for every run under way


@contextmanager
def limited_blas(threads: int | None) -> Iterator[None]:
    """A context in which BLAS uses this many threads; None leaves it as it is.

    The limit belongs to the whole process.  Of runs that overlap, the first one sets it and the last one to end restores it.
    """
    if threads is None:
        yield
        return
    with _lock:
        if not _limits:
            _let_any_thread_set()
        _limits.append(_limits[0] if _limits else _controller().limit(limits=threads, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                _let_any_thread_set()
                limit.restore_original_limits()
                _let_any_thread_set()


def _let_any_thread_set() -> None:
    """Newer threadpoolctl lets only the thread that set a limit first set it again, and ignores others without a word.

    Runs that overlap end in any order, so the thread that restores may not be the one that set; our lock keeps them apart.
    """
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
