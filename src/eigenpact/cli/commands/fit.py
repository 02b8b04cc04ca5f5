"""``eigenpact fit``: the joint PCA of files, one per site."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ...algorithms.solution import Algorithm
from ...errors import EigenpactError, InputError, NotConvergedWarning, NotIdentifiableWarning
from ...estimators import FederatedPCA
from ...estimators.choices import find_engine, find_joint_solver, joint_solvers
from ...estimators.model_files import check_model_target, save_model
from .. import tables
from ..consoles import stderr, stdout, tell
from ..progress import shown_rounds
from ..ranks import Ranks, check_ranks
from ..site_files import Center, CenterOption, Files, Scale, ScaleOption, Seed, parse_components, preprocessing, read_together


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    files: list[str]
    output: Path
    solver: str
    start: str
    proxy: str | None
    engine: str
    overwrite: bool
    quiet: bool
    parameters: dict[str, Any]


def command(
    files: Files,
    components: Annotated[str, typer.Option("-k", "--components", help="A number, a share of the variance (0.95), or all.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write the model to.")],
    solver: Annotated[str, typer.Option(help=f"One of: auto, {', '.join(joint_solvers())}.")] = "auto",
    center: CenterOption = Center.pooled,
    scale: ScaleOption = Scale.none,
    tol: Annotated[
        float | None, typer.Option(help="Stop at this scaled KKT residual; by default, at a small estimated angle.")
    ] = None,
    max_rounds: Annotated[int, typer.Option(help="Stop after this many rounds.")] = 3000,
    seed: Seed = 0,
    journal: Annotated[Path | None, typer.Option(help="File that lets a killed run go on: repeat the same command.")] = None,
    start: Annotated[str, typer.Option(help="random, or one-shot: saves rounds, shows each site's directions.")] = "random",
    proxy: Annotated[str | None, typer.Option(help="The coordinator's own site, whose rows speed up krylov or davidson.")] = None,
    engine: Annotated[
        str, typer.Option(help="inprocess, or mpi under mpiexec: rank r reads files r, r + size, ...")
    ] = "inprocess",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier model in the output folder.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Fit the joint PCA of several sites, one file each, and write the model to a folder.

    FILES are tables with samples as rows: .csv, .tsv, .npy, .npz or .parquet.  A site is named after its file, or as in
    name=path.  Columns are matched by name where files have names.

    Exit code: 0 converged, 1 not converged (the model is still written), 2 error.
    """
    find_engine(engine)
    check_ranks(engine)
    ranks = Ranks.of(engine)
    try:
        parameters = {
            "n_components": parse_components(components),
            **preprocessing(center, scale),
            "tol": tol,
            "max_rounds": max_rounds,
            "random_state": seed,
            "journal": journal,
        }
        converged = _fit(Request(files, output, solver, start, proxy, engine, overwrite, quiet, parameters), ranks)
    except EigenpactError:
        if ranks.rank > 0:  # rank 0 tells it
            raise typer.Exit(2) from None
        raise
    raise typer.Exit(0 if converged else 1)


def _fit(request: Request, ranks: Ranks) -> bool:
    """Read, fit, write; return whether the solver converged."""
    solver = _solver(request)
    held, names = read_together(
        request.files, ranks, request.proxy, lambda: check_model_target(request.output, overwrite=request.overwrite)
    )
    with shown_rounds(stderr(), quiet=request.quiet or ranks.rank > 0) as callback, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # told below
        warnings.simplefilter("ignore", NotIdentifiableWarning)  # told by the reason
        pca = FederatedPCA(
            **request.parameters,
            solver=solver,
            engine=request.engine,
            callback=callback,
        ).fit(held)
    if ranks.rank == 0:
        if names is not None:
            pca.feature_names_in_ = np.array(names, dtype=object)
        save_model(pca, request.output, overwrite=request.overwrite)
        _report(pca, request)
    return bool(pca.converged_)


def _solver(request: Request) -> str | Algorithm:
    """The solver asked for, with its start and proxy; "auto" with one of these is krylov."""
    engine = find_engine(request.engine)
    options = {"start": None if request.start == "random" else request.start, "proxy": request.proxy}
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        find_joint_solver(request.solver, engine)
        return request.solver
    algorithm = find_joint_solver("krylov" if request.solver == "auto" else request.solver, engine)
    for name in given:
        if not hasattr(algorithm, name):
            raise InputError(f"--{name} does not go with --solver {request.solver}; use --solver krylov, or leave --{name} out")
    return dataclasses.replace(algorithm, **given)  # type: ignore[type-var]


def _report(pca: FederatedPCA, request: Request) -> None:
    if not request.quiet:
        console = stdout()
        console.print(tables.facts(pca))
        console.print()
        console.print(tables.variance(pca))
        console.print()
        console.print(tables.left(pca.ledger_))
        tell(console, f"\nThe model is in {request.output}")
    if not pca.converged_:
        tell(stderr(), f"not converged: {pca.stop_reason_}; the model was written to {request.output} all the same", "yellow")
