"""``eigenpact coordinator``: the server that sites connect to, and runs over them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ...errors import InputError
from ..consoles import stdout, tell
from ..options import (
    BETWEEN,
    Center,
    CenterOption,
    CheckUnits,
    Features,
    FeaturesOption,
    GoOnWithout,
    Missing,
    MissingOption,
    Prepare,
    Quiet,
    Scale,
    ScaleOption,
    Secure,
    Seed,
    Tol,
    Weights,
)  # fmt: skip

app = typer.Typer(no_args_is_help=True, help="Serve a federation, and run joint PCAs over its sites.")


@app.command("start", epilog="Example: eigenpact coordinator start heart/coordinator")
def start(kit: Annotated[Path, typer.Argument()]) -> None:
    """Serve: let sites connect, until stopped with Ctrl-C.

    KIT is the coordinator's folder, made by eigenpact federation init.

    Exit code: 130 after Ctrl-C, 143 after SIGTERM, 2 error.
    """
    from ...engines.flower.engine import serving
    from ...engines.flower.kits import HERE, FlowerKit
    from ..coordinating import tell_proxy
    from ..kits import check_installed, find_kit
    from ..stopping import ended_in_order
    from .site import become

    with ended_in_order("sites that were connected wait until it is started again"):
        owned = find_kit(kit, "coordinator")
        check_installed(owned)
        until = owned.expires()
        federation = owned.federation
        _check_port(HERE if isinstance(owned, FlowerKit) else federation.host, federation.port)
        serves = (
            f"Serving federation {federation.name} at {federation.host}:{federation.port}; stop with Ctrl-C\n"
            f"Sites: {', '.join(federation.sites)}; certificate valid until {until:%Y-%m-%d}"
        )
        if isinstance(owned, FlowerKit):
            with serving(owned) as superlink:
                tell(stdout(), serves)
                tell_proxy(owned, stdout())
                assert superlink is not None  # nothing listened
                raise typer.Exit(superlink.wait())
        tell(stdout(), serves)
        become(owned.command(), {})


@app.command("run", epilog="Example: eigenpact coordinator run -k 10 --solver auto -o model/")
def run(
    components: Annotated[
        str | None, typer.Option("-k", "--components", help="A number, a share of the variance (0.95), or all.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write the model to.")] = None,
    kit: Annotated[Path, typer.Option(envvar="EIGENPACT_KIT", help="The coordinator's kit.")] = Path("coordinator"),
    engine: Annotated[
        str | None, typer.Option(help=f"{' or '.join(BETWEEN)}: the one the kit was made for, and the default.")
    ] = None,
    solver: Annotated[str, typer.Option(help="auto, or a solver by name; sites must allow it.")] = "auto",
    center: CenterOption = Center.pooled,
    scale: ScaleOption = Scale.none,
    prepare: Prepare = None,
    missing: MissingOption = Missing.refuse,
    tol: Tol = None,
    max_rounds: Annotated[int, typer.Option(help="Stop after this many rounds.")] = 300,
    seed: Seed = 0,
    sites: Annotated[str | None, typer.Option(help="Names separated by commas; all sites by default.")] = None,
    min_sites: Annotated[int, typer.Option(help="Begin and go on with this many sites; 0 stands for all.")] = 0,
    round_timeout: Annotated[float, typer.Option(help="Seconds until a silent site is left out.")] = 60.0,
    features: FeaturesOption = Features.strict,
    check_units: CheckUnits = False,
    weights: Weights = False,
    secure: Secure = False,
    go_on_without: GoOnWithout = 0,
    resume: Annotated[str | None, typer.Option(help="Go on with a run that was cut short: its name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier model in the output folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a joint PCA over the sites that are connected, and write the model.

    It blocks, shows rounds, and keeps a journal in KIT/runs: if it or the server is killed, start the server again and repeat
    with --resume RUN, which ends the stale job, starts a new one and goes on where it stopped.  With engine flower no server need
    be started before: one that is not up is started for the run.

    Exit code: 0 converged, 1 not converged (the model is still written), 2 error, 130 after Ctrl-C, 143 after SIGTERM.
    """
    from ..coordinating import Run, carried_out, taking_part
    from ..kits import find_kit

    owned = find_kit(kit, "coordinator", engine)
    owned.expires()  # before anything is written
    if resume is not None:
        folder = owned.folder / "runs" / resume
        asked = Run.read(folder)
    else:
        if components is None or output is None:
            raise InputError("a new run needs -k and -o; to go on with an earlier one give --resume RUN")
        folder = owned.folder / "runs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
        named, target = taking_part(owned, sites), str(output.absolute())
        asked = Run(
            components, target, solver, center, scale, tol, max_rounds, seed, overwrite, named, min_sites, round_timeout,
            secure=secure, go_on_without=go_on_without, prepare=prepare or [], missing=missing,
            features=str(features), check_units=check_units, weights=weights,
        )  # fmt: skip
    raise typer.Exit(carried_out(asked, folder, owned, new=resume is None, quiet=quiet))


def _check_port(host: str, port: int) -> None:
    """Refuse to serve where something else listens already."""
    from ...engines.flower.engine import listens

    if listens(host, port):
        raise InputError(f"something listens at {host}:{port} already; stop it, or make kits with another port")
