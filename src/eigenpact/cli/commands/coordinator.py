"""``eigenpact coordinator``: the server that sites connect to, and runs over them."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ...engines import Flower, NVFlare
from ...engines.flare.kits import Kit
from ...engines.flower.engine import serving
from ...engines.flower.kits import HERE, FlowerKit
from ...errors import EigenpactError, FileError, InputError, NotConvergedWarning, NotIdentifiableWarning
from ...estimators import FederatedPCA
from ...estimators.choices import find_joint_solver
from ...estimators.model_files import check_model_target, save_model
from .. import tables
from ..consoles import stderr, stdout, tell
from ..kits import ENGINES, check_installed, find_kit
from ..progress import shown_rounds
from ..site_files import Center, Scale, parse_components
from .site import become

app = typer.Typer(no_args_is_help=True, help="Serve a federation, and run joint PCAs over its sites.")


@app.command("start", epilog="Example: eigenpact coordinator start heart/coordinator")
def start(kit: Annotated[Path, typer.Argument()]) -> None:
    """Serve: let sites connect, until stopped with Ctrl-C.

    KIT is the coordinator's folder, made by eigenpact federation init.
    """
    owned = find_kit(kit, "coordinator")
    check_installed(owned)
    until = owned.expires()
    federation = owned.federation
    _check_port(HERE if isinstance(owned, FlowerKit) else federation.host, federation.port)
    serves = f"Serving federation {federation.name} at {federation.host}:{federation.port}; stop with Ctrl-C"
    known = f"Sites: {', '.join(federation.sites)}; certificate valid until {until:%Y-%m-%d}"
    if isinstance(owned, FlowerKit):
        with _ended_in_order(), serving(owned) as superlink:
            tell(stdout(), f"{serves}\n{known}")
            if owned.needs_proxy:
                tell(stdout(), owned.needs_proxy, "yellow")
            assert superlink is not None  # nothing listened
            raise typer.Exit(superlink.wait())
    tell(stdout(), f"{serves}\n{known}")
    become(owned.command(), {})


@dataclass(frozen=True)
class Run:
    """What was asked for; kept in the run's folder, so that a resumed run asks for the same."""

    components: str
    output: str
    solver: str
    center: str
    scale: str
    tol: float | None
    max_rounds: int
    seed: int
    sites: list[str]
    min_sites: int
    round_timeout: float
    overwrite: bool

    @classmethod
    def read(cls, folder: Path) -> Run:
        """From the folder of a run that was begun."""
        try:
            return cls(**json.loads((folder / "run.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise FileError(f"{folder} is not the folder of a run; see the folder runs in the coordinator's kit") from error

    def write(self, folder: Path) -> None:
        """Into a new folder."""
        try:
            folder.mkdir(parents=True, mode=0o700)
            (folder / "run.json").write_text(json.dumps(asdict(self), indent=1) + "\n")
        except OSError as error:
            raise FileError(f"{folder} cannot be written: {error.strerror}; the kit must be in a folder of your own") from error


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
    center: Annotated[Center, typer.Option(help="Subtract the pooled mean, each site's own, or nothing.")] = Center.pooled,
    scale: Annotated[Scale, typer.Option(help="Divide by the pooled standard deviations, or not.")] = Scale.none,
    tol: Annotated[
        float | None, typer.Option(help="Stop at this scaled KKT residual; by default, at a small estimated angle.")
    ] = None,
    max_rounds: Annotated[int, typer.Option(help="Stop after this many rounds.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of random starts.")] = 0,
    sites: Annotated[str | None, typer.Option(help="Names separated by commas; all sites by default.")] = None,
    min_sites: Annotated[int, typer.Option(help="Begin and go on with this many sites; 0 stands for all.")] = 0,
    round_timeout: Annotated[float, typer.Option(help="Seconds until a silent site is left out.")] = 60.0,
    resume: Annotated[str | None, typer.Option(help="Go on with a run that was cut short: its name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier model in the output folder.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Run a joint PCA over the sites that are connected, and write the model.

    It blocks, shows rounds, and keeps a journal in KIT/runs: if it or the server is killed, start the server again and repeat
    with --resume RUN, which ends the stale job, starts a new one and goes on where it stopped.  With engine flower no server need
    be started before: one that is not up is started for the run.

    Exit code: 0 converged, 1 not converged (the model is still written), 2 error.
    """
    owned = find_kit(kit, "coordinator", engine)
    if resume is not None:
        folder = owned.folder / "runs" / resume
        asked = Run.read(folder)
    else:
        if components is None or output is None:
            raise InputError("a new run needs -k and -o; to go on with an earlier one give --resume RUN")
        folder = owned.folder / "runs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
        named = [name.strip() for name in sites.split(",")] if sites else list(owned.federation.sites)
        asked = Run(
            components, str(output.absolute()), solver, center.value, scale.value, tol, max_rounds, seed, named, min_sites,
            round_timeout, overwrite,
        )  # fmt: skip
    pca = _estimator(asked, folder, owned)
    check_model_target(asked.output, overwrite=asked.overwrite)
    if resume is None:
        asked.write(folder)
    with _logged(folder / "log.txt", asked), _ended_in_order():
        _fit(pca, asked, folder, owned, quiet)
    raise typer.Exit(0 if pca.converged_ else 1)


def _estimator(asked: Run, folder: Path, kit: Kit | FlowerKit) -> FederatedPCA:
    options: dict[str, Any] = {
        "sites": tuple(asked.sites),
        "min_sites": asked.min_sites,
        "round_timeout": asked.round_timeout,
    }
    flower = isinstance(kit, FlowerKit)
    engine = Flower(kit.folder, **options) if flower else NVFlare(kit.folder, **options, job_file=folder / "job")
    find_joint_solver(asked.solver, engine)
    return FederatedPCA(
        parse_components(asked.components),
        solver=asked.solver,
        center=False if asked.center == "none" else asked.center,  # type: ignore[arg-type]
        scale=None if asked.scale == "none" else asked.scale,  # type: ignore[arg-type]
        tol=asked.tol,
        max_rounds=asked.max_rounds,
        random_state=asked.seed,
        engine=engine,
        journal=folder / "journal",
    )


def _fit(pca: FederatedPCA, asked: Run, folder: Path, kit: Kit | FlowerKit, quiet: bool) -> None:
    if not quiet:
        tell(stderr(), f"run {folder.name}: waiting for {', '.join(asked.sites)}")
        if isinstance(kit, FlowerKit) and kit.needs_proxy:
            tell(stderr(), kit.needs_proxy, "yellow")
    with shown_rounds(stderr(), quiet=quiet) as callback, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # told below
        warnings.simplefilter("ignore", NotIdentifiableWarning)  # told by the reason
        pca.set_params(callback=callback).fit()
    features = kit.federation.features
    if not isinstance(features, int):
        pca.feature_names_in_ = np.array(features, dtype=object)
    save_model(pca, asked.output, overwrite=asked.overwrite)
    for message in pca.ledger_:
        if message.note.startswith(("lost", "joined", "refused")):
            tell(stderr(), f"{message.sender} {message.note}", "yellow")
    if not quiet:
        _report(pca, asked)
    if not pca.converged_:
        tell(stderr(), f"not converged: {pca.stop_reason_}; the model was written to {asked.output} all the same", "yellow")


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a request to end (SIGTERM) end what was started here too, as Ctrl-C does."""

    def end(*_: object) -> None:
        raise typer.Exit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _logged(path: Path, asked: Run) -> Iterator[None]:
    """Write what the engine tells of sites, and how the run ended, to a log in the run's folder."""
    log = logging.getLogger("eigenpact")
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    try:
        log.info("solver %s, %s components, sites %s", asked.solver, asked.components, ", ".join(asked.sites))
        yield
        log.info("the model is in %s", asked.output)
    except EigenpactError as error:
        log.error("%s", error)
        raise
    finally:
        log.level, log.propagate = before
        log.removeHandler(handler)
        handler.close()


def _report(pca: FederatedPCA, asked: Run) -> None:
    console = stdout()
    parts: list[Any] = [tables.facts(pca), tables.variance(pca), tables.left(pca.ledger_)]
    for part in parts:
        console.print(part)
        console.print()
    shown = os.path.relpath(asked.output)
    tell(console, f"The model, with the ledger, is in {asked.output if shown.startswith('..') else shown}")


def _check_port(host: str, port: int) -> None:
    """Refuse to serve where something else listens already."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex((host, port)) == 0:
            raise InputError(f"something listens at {host}:{port} already; stop it, or make kits with another port")
