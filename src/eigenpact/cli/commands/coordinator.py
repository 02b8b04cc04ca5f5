"""``eigenpact coordinator``: the server that sites connect to, and runs over them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ...engines import Flower, NVFlare
from ...engines.federation.kits import ENGINES
from ...engines.flare.kits import Kit
from ...engines.flower.engine import listens, serving
from ...engines.flower.kits import HERE, FlowerKit
from ...errors import EigenpactError, FileError, InputError
from ...storage import owner_only, parse_json, read_regular, write_private_json, writing
from .. import running
from ..consoles import stderr, stdout, tell
from ..kits import check_installed, find_kit
from ..options import (
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
from ..progress import shown_waiting
from ..running import Settings
from ..stopping import ended_in_order
from .site import become

app = typer.Typer(no_args_is_help=True, help="Serve a federation, and run joint PCAs over its sites.")


@app.command("start", epilog="Example: eigenpact coordinator start heart/coordinator")
def start(kit: Annotated[Path, typer.Argument()]) -> None:
    """Serve: let sites connect, until stopped with Ctrl-C.

    KIT is the coordinator's folder, made by eigenpact federation init.

    Exit code: 130 after Ctrl-C, 143 after SIGTERM, 2 error.
    """
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
                _tell_proxy(owned, stdout())
                assert superlink is not None  # nothing listened
                raise typer.Exit(superlink.wait())
        tell(stdout(), serves)
        become(owned.command(), {})


MOST_BYTES = 1 << 20
"""Of a run's settings."""


@dataclass(frozen=True)
class Run(Settings):
    """What was asked for; kept in the run's folder, so that a resumed run asks for the same."""

    sites: list[str]
    min_sites: int
    round_timeout: float

    @classmethod
    def read(cls, folder: Path) -> Run:
        """From the folder of a run that was begun."""
        try:
            return cls(**parse_json(read_regular(folder / "run.json", MOST_BYTES)))
        except (OSError, ValueError, TypeError) as error:
            raise FileError(f"{folder} is not the folder of a run; see the folder runs in the coordinator's kit") from error

    def write(self, folder: Path) -> None:
        """Into a new folder."""
        with writing(folder, "the kit must be in a folder of your own"):
            folder.mkdir(parents=True, mode=0o700)
            write_private_json(folder / "run.json", asdict(self))


@app.command("run", epilog="Example: eigenpact coordinator run -k 10 --solver auto -o model/")
def run(
    components: Annotated[
        str | None, typer.Option("-k", "--components", help="A number, a share of the variance (0.95), or all.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write the model to.")] = None,
    kit: Annotated[Path, typer.Option(envvar="EIGENPACT_KIT", help="The coordinator's kit.")] = Path("coordinator"),
    engine: Annotated[
        str | None, typer.Option(help=f"{' or '.join(ENGINES)}: the one the kit was made for, and the default.")
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
    owned = find_kit(kit, "coordinator", engine)
    owned.expires()  # before anything is written
    if resume is not None:
        folder = owned.folder / "runs" / resume
        asked = Run.read(folder)
    else:
        if components is None or output is None:
            raise InputError("a new run needs -k and -o; to go on with an earlier one give --resume RUN")
        folder = owned.folder / "runs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
        named, target = _taking_part(owned, sites), str(output.absolute())
        asked = Run(
            components, target, solver, center, scale, tol, max_rounds, seed, overwrite, named, min_sites, round_timeout,
            secure=secure, go_on_without=go_on_without, prepare=prepare or [], missing=missing,
            features=str(features), check_units=check_units, weights=weights,
        )  # fmt: skip
    raise typer.Exit(_carried_out(asked, folder, owned, new=resume is None, quiet=quiet))


def _carried_out(asked: Run, folder: Path, owned: Kit | FlowerKit, *, new: bool, quiet: bool) -> int:
    """Carry a run out, new or resumed; give the exit code."""
    console, engine = stderr(), _engine(asked, folder, owned, shown_waiting(folder.name, quiet=quiet))
    pca = asked.estimator(owned.federation.features, engine=engine, journal=folder / "journal")
    asked.check_solver(pca.engine)
    asked.check_output()
    if new:
        asked.write(folder)
    if not quiet:
        tell(console, f"run {folder.name}: waiting for {', '.join(asked.sites)}")
        _tell_proxy(owned, console)
    how = f"go on with: eigenpact coordinator run --kit {owned.folder} --resume {folder.name}"
    with ended_in_order(how), _logged(folder / "log.txt", asked):
        return running.run(asked, pca, features=owned.federation.features, quiet=quiet)


def _taking_part(kit: Kit | FlowerKit, sites: str | None) -> list[str]:
    """The sites that are named, separated by commas, or all of the federation's that were not revoked."""
    chosen = tuple(name.strip() for name in sites.split(",")) if sites else None
    return list(kit.federation.taking_part(chosen, 0, kit.revoked())[0])


def _engine(asked: Run, folder: Path, kit: Kit | FlowerKit, waiting: Callable[..., object]) -> Flower | NVFlare:
    given: dict[str, Any] = {"sites": tuple(asked.sites), "min_sites": asked.min_sites, "round_timeout": asked.round_timeout}
    given |= {"run": folder.name, "waiting": waiting}
    return Flower(kit, **given) if isinstance(kit, FlowerKit) else NVFlare(kit, **given, job_file=folder / "job")


def _tell_proxy(kit: Kit | FlowerKit, console: Console) -> None:
    if isinstance(kit, FlowerKit) and kit.needs_proxy:
        tell(console, kit.needs_proxy, "yellow")


@contextmanager
def _logged(path: Path, asked: Run) -> Iterator[None]:
    """Write what the engine tells of sites, and how the run ended, to a log in the run's folder."""
    log = logging.getLogger("eigenpact")
    stream = open(path, "a", encoding="utf-8", opener=owner_only)  # noqa: SIM115  # closed below, after the last word
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    try:
        sums = "secured" if asked.secure else "plain"
        log.info("solver %s, %s components, %s sums, sites %s", asked.solver, asked.components, sums, ", ".join(asked.sites))
        yield
        log.info("the model is in %s", asked.output)
    except EigenpactError as error:
        log.error("%s", error)
        raise
    finally:
        log.level, log.propagate = before
        log.removeHandler(handler)
        stream.close()


def _check_port(host: str, port: int) -> None:
    """Refuse to serve where something else listens already."""
    if listens(host, port):
        raise InputError(f"something listens at {host}:{port} already; stop it, or make kits with another port")
