"""``eigenpact demo``: ten sites of handwritten digits, by every solver, beside the pooled answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..consoles import stdout, tell

if TYPE_CHECKING:
    from rich.table import Table

    from ...algorithms.solution import Algorithm
    from ...estimators import FederatedPCA
    from ...numerics.linalg import Array

COMPONENTS = 10
MAX_ROUNDS = 500
FOLDER = Path("eigenpact-demo")
PICTURE = "digits.png"


@dataclass(frozen=True)
class Run:
    """One solver's joint PCA of all sites, and how long it took."""

    name: str
    pca: FederatedPCA
    seconds: float


def command(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the picture.")] = FOLDER,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture.")] = False,
) -> None:
    """Joint PCA of ten sites of handwritten digits, by every solver, compared with pooling all rows; with a picture."""
    import numpy as np

    from ...datasets import digits, partition
    from ...report.comparison import candidates
    from .. import tables
    from ..outputs import picture_in

    picture = picture_in(output, PICTURE, overwrite=overwrite or output == FOLDER)  # its own may be drawn again
    data = digits()
    sites = partition.by_label(data.X, np.asarray(data.y))
    pooled, pooled_seconds = _pooled(data.X)
    solvers: dict[str, str | Algorithm] = {"auto": "auto", **candidates(next(iter(sites)))}
    runs = [_run(name, solver, sites) for name, solver in solvers.items()]
    console = stdout()
    console.print(_comparison(runs, pooled, pooled_seconds, data.X.nbytes))
    console.print()
    console.print(_explanation(runs[0].pca, data.X.shape), highlight=False)
    console.print()
    console.print(tables.left(runs[0].pca.ledger_))
    _draw(picture, runs, sites, data.extra["shape"])
    tell(console, f"\nThe picture is in {picture}")
    tell(console, "Next, with your own tables: eigenpact fit north.csv south.csv -k 10 -o model/")


def _pooled(X: Array) -> tuple[Array, float]:
    """What scikit-learn says of all rows together: components as columns (d x k), and seconds."""
    import numpy as np
    from sklearn.decomposition import PCA

    begin = time.perf_counter()
    pca = PCA(COMPONENTS, svd_solver="full").fit(X)
    return np.asarray(pca.components_).T, time.perf_counter() - begin


def _run(name: str, solver: str | Algorithm, sites: dict[str, Any]) -> Run:
    from ...estimators import FederatedPCA
    from ...report.watching import unwarned

    with unwarned():  # the table tells it
        begin = time.perf_counter()
        pca = FederatedPCA(COMPONENTS, solver=solver, max_rounds=MAX_ROUNDS, random_state=0).fit(sites)
    return Run(name if solver != "auto" else f"auto: {pca.solver_}", pca, time.perf_counter() - begin)


def _comparison(runs: list[Run], pooled: Array, pooled_seconds: float, pooled_bytes: int) -> Table:
    from ...numerics.metrics import largest_sine
    from ...report.messages import bytes_text
    from .. import tables

    title = f"Joint PCA of ten sites, {COMPONENTS} components"
    table = tables.compact(title)
    table.add_column("solver", no_wrap=True)
    for column in ("rounds + set-up", "bytes up", "bytes down", "sine to pooled", "seconds"):
        table.add_column(column, justify="right")
    for run in runs:
        pca = run.pca
        table.add_row(
            run.name + ("" if pca.converged_ else " (not converged)"),
            f"{pca.n_rounds_} + {pca.n_setup_rounds_}",
            bytes_text(pca.ledger_.bytes_up),
            bytes_text(pca.ledger_.bytes_down),
            f"{largest_sine(pca.components_.T, pooled):.1e}",
            f"{run.seconds:.3f}",
        )
    table.add_section()
    table.add_row("all rows sent, scikit-learn", "-", bytes_text(pooled_bytes), "-", "-", f"{pooled_seconds:.3f}")
    return table


def _explanation(pca: FederatedPCA, shape: tuple[int, int]) -> str:
    from ...numerics.certificate import spare

    n, d = shape
    return (
        f"{n} images of handwritten digits, {d} pixels each, were dealt to ten sites: one holds all zeros, one all ones, and "
        "so on, the most uneven split there is.  Every solver looked for the principal components of all rows together while "
        "the rows stayed at their sites.  The sine of the angle says how far its answer is from scikit-learn's PCA of the pooled "
        "rows; 1e-15 is rounding error.  In the set-up rounds sites told their numbers of rows, the sums of their columns and "
        "their spread; then came the products or sums that the solver asked for.  gram sends every site's scatter matrix once, "
        f"which is short for {d} features; krylov sends {d} x {COMPONENTS + spare(COMPONENTS)} numbers a round, subspace "
        f"{d} x {COMPONENTS}, which is far shorter "
        "when there are thousands of features.  The coordinator sees each site's reply before it adds them up.  This is "
        f"everything that left each site with {pca.solver_}:"
    )


def _draw(picture: Path, runs: list[Run], sites: dict[str, Any], image_shape: tuple[int, int]) -> None:
    from ...report import pictures

    pca = runs[0].pca
    figure = pictures.components_and_scores(
        components=pca.components_,
        image_shape=image_shape,
        scores={name: pca.transform(X)[:, :2] for name, X in sites.items()},
        shares=[float(share) for share in pca.explained_variance_ratio_],
        convergence=_convergence(runs),
        title="Joint principal components of ten sites, one per digit",
    )
    pictures.save_picture(figure, picture)


def _convergence(runs: list[Run]) -> dict[str, tuple[list[int], list[float]]]:
    """Rounds and residuals of the solvers that take more than one step."""
    curves = {}
    for run in runs:
        known = [(record.round, record.kkt) for record in run.pca.history_ if record.kkt is not None]
        if len(known) > 1:
            curves[run.name] = [r for r, _ in known], [kkt for _, kkt in known]
    return curves
