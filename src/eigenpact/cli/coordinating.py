"""A run over the sites of a federation: what was asked for, kept so that it can go on, and how it is carried out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ..engines import Flower, NVFlare
from ..engines.flare.kits import Kit
from ..engines.flower.kits import FlowerKit
from ..errors import EigenpactError, FileError
from ..storage import owner_only, parse_json, read_regular, write_private_json, writing
from . import running
from .consoles import stderr, tell
from .progress import shown_waiting
from .running import Settings
from .stopping import ended_in_order

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


def carried_out(asked: Run, folder: Path, owned: Kit | FlowerKit, *, new: bool, quiet: bool) -> int:
    """Carry a run out, new or resumed; give the exit code."""
    console, engine = stderr(), _engine(asked, folder, owned, shown_waiting(folder.name, quiet=quiet))
    pca = asked.estimator(owned.federation.features, engine=engine, journal=folder / "journal")
    asked.check_solver()
    asked.check_output()
    if new:
        asked.write(folder)
    if not quiet:
        tell(console, f"run {folder.name}: waiting for {', '.join(asked.sites)}")
        tell_proxy(owned, console)
    how = f"go on with: eigenpact coordinator run --kit {owned.folder} --resume {folder.name}"
    with ended_in_order(how), _logged(folder / "log.txt", asked):
        return running.run(asked, pca, features=owned.federation.features, quiet=quiet)


def taking_part(kit: Kit | FlowerKit, sites: str | None) -> list[str]:
    """The sites that are named, separated by commas, or all of the federation's that were not revoked."""
    chosen = tuple(name.strip() for name in sites.split(",")) if sites else None
    return list(kit.federation.taking_part(chosen, 0, kit.revoked())[0])


def _engine(asked: Run, folder: Path, kit: Kit | FlowerKit, waiting: Callable[..., object]) -> Flower | NVFlare:
    given: dict[str, Any] = {"sites": tuple(asked.sites), "min_sites": asked.min_sites, "round_timeout": asked.round_timeout}
    given |= {"run": folder.name, "waiting": waiting}
    return Flower(kit, **given) if isinstance(kit, FlowerKit) else NVFlare(kit, **given, job_file=folder / "job")


def tell_proxy(kit: Kit | FlowerKit, console: Console) -> None:
    """Say that sites on other machines need a proxy, where they do."""
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
