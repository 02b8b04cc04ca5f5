"""``eigenpact fit``: the joint PCA of files, one per site."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from ...algorithms.solution import Algorithm
from ...data.budgets import parse_memory
from ...errors import EigenpactError, InputError
from ...estimators.choices import find_engine, find_joint_solver, joint_solvers
from ...runtime import Engine
from ..consoles import stderr, tell
from ..options import (
    Center,
    CenterOption,
    Describe,
    Features,
    FeaturesOption,
    Files,
    GoOnWithout,
    Memory,
    Missing,
    MissingOption,
    Prepare,
    Quiet,
    Scale,
    ScaleOption,
    Secure,
    Seed,
    Tol,
)  # fmt: skip
from ..running import Settings, run
from ..site_files import communicator, parse_components, parse_descriptions, read_together


def command(
    files: Files,
    components: Annotated[str, typer.Option("-k", "--components", help="A number, a share of the variance (0.95), or all.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write the model to.")],
    solver: Annotated[str, typer.Option(help=f"One of: auto, {', '.join(joint_solvers())}.")] = "auto",
    center: CenterOption = Center.pooled,
    scale: ScaleOption = Scale.none,
    prepare: Prepare = None,
    missing: MissingOption = Missing.refuse,
    tol: Tol = None,
    max_rounds: Annotated[int, typer.Option(help="Stop after this many rounds.")] = 3000,
    seed: Seed = 0,
    journal: Annotated[Path | None, typer.Option(help="File that lets a killed run go on: repeat the same command.")] = None,
    start: Annotated[str, typer.Option(help="random, or one-shot: saves rounds, shows each site's directions.")] = "random",
    proxy: Annotated[str | None, typer.Option(help="The coordinator's own site, whose rows speed up krylov or davidson.")] = None,
    engine: Annotated[
        str, typer.Option(help="inprocess, or mpi under mpiexec: rank r reads files r, r + size, ...")
    ] = "inprocess",
    describe: Describe = None,
    features: FeaturesOption = Features.strict,
    memory: Memory = None,
    secure: Secure = False,
    go_on_without: GoOnWithout = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier model in the output folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Fit the joint PCA of several sites, one file each, and write the model to a folder.

    FILES are tables with samples as rows: text (.csv, .tsv), .parquet, arrays (.npy, .npz, .zarr, .h5), genotypes (.bed, .pgen,
    .vcf) or cells (.h5ad); file.h5:/path names a table within a file.  A site is named after its file, or as in name=path.
    Columns are matched by name where files have names; --features says what to do where they differ.  A file may be described
    by a TOML: see eigenpact describe.

    Exit code: 0 converged, 1 not converged (the model is still written), 2 error.
    """
    asked = Settings(
        components, str(output), solver, center, scale, tol, max_rounds, seed, overwrite,
        secure=secure, go_on_without=go_on_without, prepare=tuple(prepare or ()), missing=missing, features=str(features),
    )  # fmt: skip
    where = find_engine(engine)
    comm = communicator(engine)
    leads = comm.rank == 0
    try:
        parse_components(components)  # told before files are read
        limit = None if memory is None else parse_memory(memory)
        descriptions = parse_descriptions(describe)
        plain = missing == Missing.em and start == "random" and proxy is None  # the estimator finds what goes with it
        chosen = solver if plain else _solver(solver, where, start, proxy)
        pca = asked.estimator(solver=chosen, engine=engine, journal=journal)
        asked_for: dict[str, Any] = {"missing": pca.takes_gaps, "features": asked.features, "weights": True, "quiet": quiet}
        read = read_together(files, comm, proxy, asked.check_output, descriptions, limit, **asked_for)
        if leads and not quiet and not read.report.nothing_changed:
            tell(stderr(), "\n".join(read.report.lines()), "yellow")
        pca.set_params(prepare=pca.preparers(read.names))
        code = run(asked, pca, read.held, read.names, report=read.report, weights=read.weights, leads=leads, quiet=quiet)
    except EigenpactError:
        if not leads:  # rank 0 tells it
            raise typer.Exit(2) from None
        raise
    raise typer.Exit(code)


def _solver(name: str, engine: Engine, start: str, proxy: str | None) -> str | Algorithm:
    """The solver asked for, with its start and proxy; "auto" with one of these is krylov."""
    options = {"start": None if start == "random" else start, "proxy": proxy}
    given = {option: value for option, value in options.items() if value is not None}
    if not given:
        find_joint_solver(name, engine)
        return name
    algorithm = find_joint_solver("krylov" if name == "auto" else name, engine)
    for option in given:
        if not hasattr(algorithm, option):
            raise InputError(f"--{option} does not go with --solver {name}; use --solver krylov, or leave --{option} out")
    return dataclasses.replace(algorithm, **given)  # type: ignore[type-var]
