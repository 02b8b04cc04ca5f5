"""``eigenpact fit``: the joint PCA of files, one per site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import (
    SOLVERS,
    By,
    Center,
    CenterOption,
    ColumnOptions,
    Describe,
    Drop,
    Features,
    FeaturesOption,
    Files,
    GoOnWithout,
    Memory,
    Missing,
    MissingOption,
    Prepare,
    Quiet,
    RowNames,
    Scale,
    ScaleOption,
    Secure,
    Seed,
    Tol,
)  # fmt: skip


def command(
    files: Files,
    components: Annotated[str, typer.Option("-k", "--components", help="A number, a share of the variance (0.95), or all.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write the model to.")],
    solver: Annotated[str, typer.Option(help=f"One of: auto, {', '.join(SOLVERS)}.")] = "auto",
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
    row_names: RowNames = None,
    drop: Drop = None,
    by: By = None,
    features: FeaturesOption = Features.strict,
    memory: Memory = None,
    secure: Secure = False,
    go_on_without: GoOnWithout = 0,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="PATH", help="Write what is printed as JSON, too.")] = None,
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
    from ..fitting import FitFiles
    from ..running import Settings

    asked = Settings(
        components, str(output), solver, center, scale, tol, max_rounds, seed, overwrite,
        secure=secure, go_on_without=go_on_without, prepare=tuple(prepare or ()), missing=missing, features=str(features),
    )  # fmt: skip
    columns = ColumnOptions(row_names, tuple(drop or ()), by)
    fit = FitFiles(asked, engine, journal, start, proxy, describe, memory, columns, json_file=json_file, quiet=quiet)
    raise typer.Exit(fit.run(files))
