"""``eigenpact compare``: every solver on the user's own files, as a rehearsal on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..options import SOLVERS, Center, CenterOption, Files, JsonFile, NoProgress, Scale, ScaleOption, Seed

COMPONENTS = 10
COMPONENTS_HELP = f"A number, a share of the variance (0.95), or all; {COMPONENTS} by default, or as many as there are."
PROXY_HELP = "The coordinator's own site, for krylov, davidson and shift-invert with a proxy; the first file's by default."
PICTURE = Path("eigenpact-compare.png")
TOL, MAX_ROUNDS = 1e-8, 500


def command(
    files: Files,
    components: Annotated[str | None, typer.Option("-k", "--components", help=COMPONENTS_HELP)] = None,
    solver: Annotated[
        list[str] | None, typer.Option(help=f"Only this one, repeat for several: {', '.join(SOLVERS)}.  All by default.")
    ] = None,
    center: CenterOption = Center.pooled,
    scale: ScaleOption = Scale.none,
    tol: Annotated[float, typer.Option(help="Stop at this scaled KKT residual, the same for every solver.")] = TOL,
    max_rounds: Annotated[int, typer.Option(help="Stop a solver after this many rounds.")] = MAX_ROUNDS,
    seed: Seed = 0,
    proxy: Annotated[str | None, typer.Option(help=PROXY_HELP)] = None,
    picture: Annotated[Path, typer.Option(help="Draw residuals by round and by bytes: .png, .pdf or .svg.")] = PICTURE,
    json_file: JsonFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture and JSON file.")] = False,
    quiet: NoProgress = False,
) -> None:
    """Compare all solvers on your own files: rounds, bytes, seconds, accuracy, and what each site revealed.

    ALL FILES ARE READ ON THIS ONE MACHINE.  This is a rehearsal, to be done with
    data that you may hold in one place: public, old or made-up tables that
    resemble the real ones.  Then choose a solver for the run between sites.

    FILES are tables with samples as rows, one per site, as for eigenpact fit:
    .csv, .tsv, .npy, .npz or .parquet, or name=path.

    Exit code: 0 if at least one solver converged, 1 if none did, 2 error.
    """
    from ..comparing import Outputs, compare_files
    from ..options import preprocessing

    settings = preprocessing(center, scale) | {"tol": tol, "max_rounds": max_rounds, "random_state": seed}
    outputs = Outputs(picture, json_file, overwrite or picture == PICTURE, overwrite)  # its own may be drawn again
    wanted = COMPONENTS if components is None else components
    raise typer.Exit(compare_files(files, wanted, solver or (), settings, outputs, proxy=proxy, quiet=quiet))
