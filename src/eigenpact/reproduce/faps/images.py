"""Figure 3 and Table 3: sets of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np

from ...algorithms.setup import Center
from ...data import files
from ...datasets import load, partition
from ...errors import DataUnavailableError
from ...numerics.linalg import Array
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch, paper_numbers, problem_of
from . import race
from .race import Measured, Problem, real

IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
CIFAR100 = "cifar100_train.npz"
"""A file that users may have: an array "images", 50000 x 32 x 32 x 3 uint8."""


def _images(name: str) -> Array:
    """Rows (n x d, uint8) of an image set; raises a DataUnavailableError if it is not here."""
    if name != "cifar100":
        return np.asarray(load(name).X)
    path = files.find(CIFAR100)
    if path is None:
        raise files.unavailable(
            CIFAR100, 'eigenpact does not fetch it (a file with an array "images", 50000 x 32 x 32 x 3 uint8)'
        )
    images = files.read_npz(path)["images"]
    return images.reshape(len(images), -1)


def _problems(size: Size, seed: int, centers: Sequence[Center], remarks: list[str]) -> Iterator[Problem]:
    """Every image set that is here, dealt to sites at random; what is not here is added to ``remarks``."""
    paper, error, here = paper_numbers("faps")["fig3"], None, False
    for name, title in IMAGES.items():
        try:
            X = _images(name)
        except DataUnavailableError as caught:
            error = caught
            remarks.append(f"{title} was left out: {caught}.")
            continue
        here = True
        if size is Size.small:
            X = X[: problem_of("faps", "fig3", size, instead=True)["rows"]]
        elif len(X) < paper["rows"][name]:
            remarks.append(f"{title}: {len(X)} rows are here, the paper has {paper['rows'][name]}.")
        sites = partition.random(X.astype(np.float64), paper["sites"], seed=seed)
        for center in centers:
            how = "" if len(centers) == 1 else ", centred" if center else ", not centred"
            yield real(f"{title}{how}", sites, paper["components"], center)
    if error is not None and not here:
        raise error


def _races(
    size: Size, seed: int, watch: Watch, centers: Sequence[Center]
) -> tuple[dict[str, str], dict[str, list[Measured]], list[str]]:
    """Problem -> its shape; problem -> all runs; and what is to be said of both the figure and the table."""
    printed, said = paper_numbers("faps")["table3"], list[str]()
    shapes, found = dict[str, str](), dict[str, list[Measured]]()
    for problem in _problems(size, seed, centers, said):
        shapes[problem.name], found[problem.name] = race.shape_of(problem), race.run(problem, printed, seed, watch)
    if size is Size.small:
        rows = problem_of("faps", "fig3", size, instead=True)["rows"]
        said.insert(0, f"This is the small size: the first {rows} images of each set.")
    return shapes, found, [*said, race.COUNTED, race.LITERAL, race.LOCALPOWER]


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 3: rounds on image sets; at paper size also without taking the pooled mean off, because the paper does not say."""
    shapes, found, said = _races(size, seed, watch, ("pooled",) if size is Size.small else ("pooled", False))
    rounds = {name: [run.rounds for run in runs] for name, runs in race.by_solver(found.values()).items()}
    p = paper_numbers("faps")["fig3"]
    title = f"FAPS paper, Figure 3: rounds on image sets, {p['sites']} sites, {p['components']} components"
    counts: list[list[Cell]] = [[name, *(run.rounds for run in runs)] for name, runs in found.items()]
    seconds: list[list[Cell]] = [[name, *(round(run.seconds, 1) for run in runs)] for name, runs in found.items()]
    columns = ["images", *rounds]
    grids = [Grid(title, columns, counts), Grid("Seconds on this machine, not comparable with the paper's", columns, seconds)]
    remarks = [
        CURVE_ONLY + "  Its average errors are in faps-table3.",
        "The paper does not say whether it takes the mean off; here the pooled one is, and --size paper shows both.  Rows "
        "are dealt to the sites at random.",
        *said,
    ]
    figure = drawing.bars(title, "rounds", [name.replace(", ", "\n") for name in found], rounds, {}, counts=True)
    numbers = {"problems": shapes, "runs": [asdict(run) for runs in found.values() for run in runs]}
    return Reproduced(title, grids, remarks, figure, numbers)


def table3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 3: KKT and relative error of singular values, averaged over the image sets."""
    printed = paper_numbers("faps")["table3"]
    _, races, said = _races(size, seed, watch, ("pooled",))
    found = list(races.values())
    by_solver = race.by_solver(found)
    title = f"FAPS paper, Table 3: averages over {len(found)} image sets, the pooled mean taken off"
    grid = Grid(title, race.AVERAGED, [race.averages(runs, printed) for runs in by_solver.values()])
    told = "KKT and relative error are those after the last of these rounds, averaged.  The paper averages over four sets."
    errors = {name: [*(run.relative_error for run in runs), race.mean_error(runs)] for name, runs in by_solver.items()}
    paper = {name: [float("nan")] * len(found) + value for name, value in race.paper_errors(found[0], [printed]).items()}
    figure = drawing.bars(title, "relative error of singular values", [*races, "average"], errors, paper)
    numbers = {"runs": [asdict(run) for runs in found for run in runs]}
    return Reproduced(title, [grid], [told, race.CLOSING, *said], figure, numbers)
