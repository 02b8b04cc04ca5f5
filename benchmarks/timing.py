"""Fits of ours and of others, run in turn: wall and processor seconds, memory, accuracy; what rows of the speed table share."""

from __future__ import annotations

import gc
import os
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from benchmarks.table import Row, load_told
from eigenpact.numerics.metrics import largest_sine

REPEATS = {"small": 3, "paper": 5}

PATIENCE = 8.0
"""A run that takes longer, in seconds, is repeated at most once."""


class Spent(NamedTuple):
    """Medians of wall and processor seconds, and the most memory in bytes that a run had beyond what there was before it."""

    wall: float
    cpu: float
    peak: float


def in_turn(runs: Mapping[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, Spent], dict[str, Any]]:
    """What each run spent, one after the other ``repeats`` times, slow ones at most twice; and what they gave last."""
    spent: dict[str, list[Spent]] = {name: [] for name in runs}
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(repeats):
            for name, run in runs.items():
                if turn > 1 and spent[name][0].wall > PATIENCE:
                    continue
                found.pop(name, None)
                gc.collect()
                before = _begin_peak()
                wall, cpu = time.perf_counter(), time.process_time()
                found[name] = run()
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                spent[name].append(Spent(wall, cpu, max(0.0, _memory("VmHWM") - before)))
    return {name: Spent(*map(statistics.median, zip(*of_one, strict=True))) for name, of_one in spent.items()}, found


def _begin_peak() -> float:
    """Forget this process's highest memory, where Linux allows it; its memory in bytes now."""
    refs = Path("/proc/self/clear_refs")
    if refs.exists() and os.access(refs, os.W_OK):
        refs.write_text("5")
    return _memory("VmRSS")


def _memory(which: str) -> float:
    """A line of this process's status in bytes; not a number where there is none."""
    status = Path("/proc/self/status")
    found = [line for line in status.read_text().splitlines() if line.startswith(f"{which}:")] if status.exists() else []
    return 1024.0 * float(found[0].split()[1]) if found else np.nan


def megabytes(peak: float) -> str:
    """Memory in words."""
    return "unknown" if np.isnan(peak) else f"{peak / 1e6:.0f} MB"


def ratio_row(
    what: str, bar: float | None, ours: str, peer: str, spent: Mapping[str, Spent], told: str, good: bool = True, why: str = ""
) -> Row:
    """Ours over the peer's; met if the ratio of wall times is at most the bar and the answer is ``good``.  No bar: reported.

    ``why`` explains a miss; by default, what else the machine did does.
    """
    mine, other = spent[ours], spent[peer]
    wall, cpu = mine.wall / other.wall, mine.cpu / other.cpu
    reached = f"{wall:.3g} (processor time {cpu:.3g}): {mine.wall:.2f} s and {other.wall:.2f} s by {peer}; {told}"
    if bar is None:
        return Row(what, "reported", reached, True)
    met = wall <= bar and good
    return Row(what, f"<= {bar:g}", reached, met, "" if met else why or load_told())


def exact_basis(X: Any, k: int) -> Any:
    """The leading k components (d x k) of rows X (n x d), by numpy's eigenvectors of the scatter matrix in float64."""
    Y = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0, dtype=np.float64)
    d = X.shape[1]
    if len(Y) < d:
        left = scipy.linalg.eigh(Y @ Y.T, subset_by_index=(len(Y) - k, len(Y) - 1))[1]
        return np.linalg.qr(Y.T @ left)[0]
    return scipy.linalg.eigh(Y.T @ Y, subset_by_index=(d - k, d - 1))[1]


def sine_to(pca: Any, exact: Any) -> float:
    """Sine of the largest angle between a fit's components and exact ones (d x k)."""
    return largest_sine(np.asarray(pca.components_, dtype=np.float64).T, exact)


def parts_of(X: Any, sites: int) -> dict[str, Any]:
    """Rows in equal parts, by site."""
    return {f"site{i:02d}": part for i, part in enumerate(np.array_split(X, sites))}
