"""From the files of sites to a fitted model in a folder: what ``eigenpact fit`` does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import typer

from ..algorithms.solution import Algorithm
from ..data.budgets import parse_memory
from ..errors import EigenpactError, InputError
from ..estimators import FederatedPCA
from ..estimators.choices import find_joint_solver
from .consoles import stderr, tell
from .options import ColumnOptions
from .outputs import check_json
from .running import Settings, run
from .site_files import communicator, parse_components, parse_descriptions, read_together

ENGINES = ("inprocess", "mpi")


@dataclasses.dataclass(frozen=True)
class FitFiles:
    """What was asked for, in the words of the command line."""

    asked: Settings
    engine: str
    journal: Path | None
    start: str
    proxy: str | None
    describe: list[str] | None
    memory: str | None
    columns: ColumnOptions
    _: dataclasses.KW_ONLY
    json_file: Path | None = None
    quiet: bool = False

    def run(self, files: list[str]) -> int:
        """Read the files, fit, write and tell; give the exit code."""
        if self.engine not in ENGINES:
            raise InputError(f"--engine {self.engine} cannot read files; give {' or '.join(ENGINES)}")
        comm = communicator(self.engine)
        leads = comm.rank == 0
        try:
            return self._fit(files, comm, leads)
        except KeyboardInterrupt as stopped:
            if self.journal is None:
                stopped.add_note("nothing was written; with --journal FILE the same command would go on where it stopped")
            else:
                stopped.add_note("no model was written; repeat the same command to go on where it stopped")
            raise
        except EigenpactError:
            if not leads:  # rank 0 tells it
                raise typer.Exit(2) from None
            raise

    def _fit(self, files: list[str], comm: Any, leads: bool) -> int:
        asked, quiet = self.asked, self.quiet
        parse_components(asked.components)  # told before files are read
        limit = None if self.memory is None else parse_memory(self.memory)
        descriptions = parse_descriptions(self.describe)
        pca = self._estimator()
        asked_for: dict[str, Any] = {"missing": pca.takes_gaps, "features": asked.features, "weights": True, "quiet": quiet}
        read = read_together(files, comm, self.proxy, self._check_outputs, descriptions, limit, self.columns, **asked_for)
        if leads and not quiet and not read.report.nothing_changed:
            tell(stderr(), "\n".join(read.report.lines()), "yellow")
        pca.set_params(prepare=pca.preparers(read.names))
        told: dict[str, Any] = {"report": read.report, "weights": read.weights, "json_file": self.json_file}
        return run(asked, pca, read.held, read.names, leads=leads, quiet=quiet, **told)

    def _estimator(self) -> FederatedPCA:
        plain = self.asked.missing == "em" and self.start == "random" and self.proxy is None  # it finds what goes with it
        chosen = self.asked.solver if plain else _solver(self.asked.solver, self.start, self.proxy)
        return self.asked.estimator(solver=chosen, engine=self.engine, journal=self.journal)

    def _check_outputs(self) -> None:
        self.asked.check_output()
        check_json(self.json_file, overwrite=self.asked.overwrite)


def _solver(name: str, start: str, proxy: str | None) -> str | Algorithm:
    """The solver asked for, with its start and proxy; "auto" with one of these is krylov."""
    options = {"start": None if start == "random" else start, "proxy": proxy}
    given = {option: value for option, value in options.items() if value is not None}
    if not given:
        find_joint_solver(name)
        return name
    algorithm = find_joint_solver("krylov" if name == "auto" else name)
    for option in given:
        if not hasattr(algorithm, option):
            raise InputError(f"--{option} does not go with --solver {name}; use --solver krylov, or leave --{option} out")
    return dataclasses.replace(algorithm, **given)  # type: ignore[type-var]
