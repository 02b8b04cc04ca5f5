"""How a curve looks: a solver has the same colour and marker in every picture, its variants other lines and fillings.

>>> looks(["krylov", "faps"])["krylov"] == looks(["power", "krylov, one-shot start", "krylov"])["krylov"]
True
>>> [look.line for look in looks(["faps", "krylov", "krylov, one-shot start", "krylov, proxy"]).values()]
['-', '-', '--', ':']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # commands that draw nothing do not wait for matplotlib
    from matplotlib.axes import Axes

COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd", "#1f5c34",
)  # fmt: skip
"""Ten colours that people with any colour vision tell apart (M. Petroff, arXiv:2107.02270), and a dark green."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")

FAMILIES = (
    (
        "krylov",
        "faps",
        "subspace",
        "gram",
        "localpower",
        "lanczos",
        "davidson",
        "power",
        "shift-invert",
        "hot-potato",
        "one-shot",
    ),
    ("varpro", "perpca", "distpca", "pooled", "individual"),
    ("shrinking", "dcf", "cf-pca", "apgm", "inexact-alm", "alm"),
    ("noisy-gram", "noisy-subspace"),
    ("em",),
    ("projection-consensus", "random-features", "landmarks", "tracking", "own", "neighbourhood"),
)
"""Solvers that stand in one picture with each other; the place in its family gives a solver its colour and marker."""

OTHER_NAMES = {"dcf-pca": "dcf", "own-rows": "own", "neighbours'-rows": "neighbourhood"}
"""What pictures call a solver besides its own name."""

LINES = (
    *(("-", "full", ""), ("--", "none", "//"), (":", "left", ".."), ("-.", "right", "xx")),
    *(((0, (5, 1, 1, 1, 1, 1)), "bottom", "\\\\"), ((0, (3, 3)), "top", "++")),
)
"""Lines, fillings of markers and hatches of bars of a solver's variants."""

VARIANTS = {"": 0, "one-shot start": 1, "own site as proxy": 2, "proxy": 2, "random start": 3, "literal text": 4}
"""Variants that have the same line in every picture."""

LINE_WIDTH, MARKER_SIZE = 1.6, 5.0
BENEATH, DEEPEST = 2.6, 2
"""How much wider a line and its markers are for each curve that covers it, up to so many."""

NEAR, COVERED = 0.012, 0.6
"""Two curves are one to the eye within this share of the picture's height, at this share of their common places."""


@dataclass(frozen=True)
class Look:
    """Of one curve: what ``Axes.plot`` calls color, marker, linestyle and fillstyle; and of a bar its hatch."""

    colour: str
    marker: str
    line: Any = "-"
    filled: str = "full"
    hatch: str = ""


def solver_of(name: str) -> tuple[str, str]:
    """The solver that a curve's name begins with, and the rest; brackets are remarks.

    >>> solver_of("krylov, one-shot start"), solver_of("subspace (SSI)"), solver_of("Hot potato"), solver_of("DCF-PCA, K = 2")
    (('krylov', 'one-shot start'), ('subspace', ''), ('hot-potato', ''), ('dcf', 'K = 2'))
    """
    head, _, rest = re.sub(r"\s*\([^)]*\)", "", name).partition(",")
    solver = head.strip().lower().replace(" ", "-")
    return OTHER_NAMES.get(solver, solver), rest.strip()


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Name of a curve -> how it is drawn; names of one picture are told apart, and a solver looks the same in all pictures.

    Where three or more curves are of one solver, and no other is there, all but the first have colours that it does not have.
    """
    parts = {name: solver_of(name) for name in names}
    if len(parts) > 2 and len({solver for solver, _ in parts.values()}) == 1:  # a picture of one solver's parameters
        parts = {name: (solver if i == 0 else name, "") for i, (name, (solver, _)) in enumerate(parts.items())}
    places = {solver: i for family in FAMILIES for i, solver in enumerate(family)}
    solvers = dict.fromkeys(solver for solver, _ in parts.values())
    taken = {solver: places[solver] for solver in solvers if solver in places}
    for solver in solvers:
        if solver not in taken:  # a parameter, a baseline, somebody's own solver: what no solver of the picture has
            taken[solver] = next(i for i in range(len(solvers) + 1) if i not in taken.values())
    made: dict[str, Look] = {}
    lines: dict[str, list[int]] = {solver: [] for solver in solvers}
    for name, (solver, variant) in sorted(parts.items(), key=lambda item: item[1][1] not in VARIANTS):  # known variants first
        used = lines[solver]
        wanted = VARIANTS.get(variant, 0)
        line = wanted if wanted not in used else next(i for i in range(len(used) + 1) if i not in used)
        used.append(line)
        made[name] = _look(taken[solver], line)
    return {name: made[name] for name in parts}


def _look(place: int, line: int) -> Look:
    """When all colours are used they meet other markers."""
    marker = MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]
    return Look(COLOURS[place % len(COLOURS)], marker, *LINES[line % len(LINES)])


def draw_curves(
    ax: Axes, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], styles: Mapping[str, Look], marked: int | None = None
) -> None:
    """Draw curves (name -> xs, ys); where one covers another, the lower one is a wide band that stays visible.

    About ``marked`` points of each curve have a marker, None: all.
    """
    logarithmic = ax.get_yscale() == "log"
    seen = {name: np.log10(np.asarray(ys, dtype=float)) if logarithmic else np.asarray(ys) for name, (_, ys) in curves.items()}
    unit = float(np.ptp([y for ys in seen.values() for y in ys if np.isfinite(y)] or [0.0]))
    at = {name: dict(zip(xs, seen[name].tolist(), strict=True)) for name, (xs, _) in curves.items()}
    names = list(curves)
    for i, name in enumerate(names):
        xs, ys = curves[name]
        above = min(DEEPEST, sum(_covers(at[name], at[other], unit) for other in names[i + 1 :]))
        look = styles[name]
        every = 1 if marked is None else max(1, len(xs) // marked)
        (line,) = ax.plot(xs, ys, color=look.colour, marker=look.marker, linestyle=look.line, fillstyle=look.filled, label=name)
        line.set(linewidth=LINE_WIDTH + BENEATH * above, markersize=MARKER_SIZE + BENEATH * above, markevery=every)
        if above:
            line.set_alpha(0.55)


def _covers(lower: Mapping[float, float], upper: Mapping[float, float], unit: float) -> bool:
    """Whether one cannot be seen beneath the other: at many places that they have in common they are the same."""
    both = lower.keys() & upper.keys()
    near = sum(abs(lower[x] - upper[x]) <= NEAR * unit for x in both)
    return near >= max(COVERED * len(both), min(2, len(lower), len(upper)))
