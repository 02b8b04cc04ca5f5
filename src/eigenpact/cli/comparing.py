"""Every solver on the user's own files, as a rehearsal on one machine: what ``eigenpact compare`` does and prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..engines.ranks import Alone
from ..report.comparison import CONVERGED, Comparison, Revealed, Run, candidates, compare, worth_drawing
from ..report.messages import bytes_text
from ..runtime.ledger import COORDINATOR
from ..storage import write_json
from . import tables
from .consoles import harmless, stderr, stdout, tell
from .outputs import check_json, check_picture
from .progress import shown_status
from .site_files import parse_components, read_together
from .wording import in_options

SOLVER_WIDTH = 12
"""Columns of text that a solver's name keeps on narrow terminals."""


@dataclass(frozen=True)
class Outputs:
    """Where picture and numbers go, and whether what lies there may be replaced."""

    picture: Path
    json_file: Path | None
    new_picture: bool
    new_json: bool

    def check(self) -> None:
        """Refuse targets that cannot be written."""
        check_picture(self.picture, overwrite=self.new_picture)
        check_json(self.json_file, overwrite=self.new_json)


NEEDS = {"sum": "the sum", "gather": "each reply", "max": "the maximum", "at": "one reply", "chain": "the last one"}
"""What the coordinator needs of the replies, by kind of collective."""


def compare_files(
    files: list[str],
    components: str | int,
    solvers: Sequence[str],
    settings: Mapping[str, Any],
    outputs: Outputs,
    *,
    proxy: str | None = None,
    quiet: bool = False,
) -> int:
    """Compare solvers on these files, and report; give the exit code.

    ``components`` are as the user says them, or a number that is cut to what there is; ``settings`` are parameters of the
    estimator that all solvers share.
    """
    candidates("", solvers)  # unknown names are told before files are read
    wanted = parse_components(components) if isinstance(components, str) else components
    sites = read_together(files, Alone(), proxy, outputs.check).held
    if isinstance(components, int):
        rows, columns = sum(X.shape[0] for X in sites.values()), next(iter(sites.values())).shape[1]
        wanted = min(components, rows, columns)
    own = next(iter(sites)) if proxy is None else proxy
    with shown_status(stderr(), "reading all rows once", quiet=quiet) as (show, keep):
        comparison = compare(
            sites,
            wanted,
            solvers=candidates(own, solvers),
            **settings,
            on_round=lambda name, record: show(f"{name}: round {record.round}"),
            on_run=lambda run: keep(f"{run.name}: {_in_short(run)}"),
        )
    try:
        written = _write(comparison, outputs.picture, outputs.json_file)
    finally:  # the table is what matters most
        _report(comparison, own, stdout())
    for what, file in written.items():
        tell(stdout(), f"The {what} in {file}")
    return 0 if any(run.outcome == CONVERGED for run in comparison.runs) else 1


def _in_short(run: Run) -> str:
    if run.rounds is None:
        return f"{run.outcome}: {in_options(run.reason)}"
    return f"{run.outcome}, rounds {run.rounds}, KKT {run.kkt:.1e}, {run.seconds:.2f} s"


# -- the report -------------------------------------------------------------------------------------


def _report(comparison: Comparison, own: str, console: Console) -> None:
    console.print(_costs(comparison))
    console.print()
    for line in _remarks(comparison, own):
        console.print(line, highlight=False, markup=False)
    console.print()
    if not any(run.revealed for run in comparison.runs):
        return
    console.print(_revealed(comparison))
    console.print()
    for name, meaning in dict.fromkeys((row.function, row.meaning) for run in comparison.runs for row in run.revealed):
        console.print(f"{name}: {meaning}", highlight=False, markup=False)
    console.print()
    console.print(_attacked(comparison))
    console.print(
        f'\nSums are not secured: the {COORDINATOR} sees each site\'s reply before it adds them up; "needed" says what would be '
        "enough.\n",
        highlight=False,
    )


def _costs(comparison: Comparison) -> Table:
    """One row per solver: rounds, bytes, seconds, accuracy."""
    table = tables.compact(_title(comparison))
    table.add_column("solver", min_width=SOLVER_WIDTH)
    for column in ("rounds +\nset-up", "bytes up", "bytes\ndown", "seconds", "sine to\ntruth", "KKT"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("outcome")
    for run in comparison.runs:
        table.add_row(run.name, *_numbers(run), run.outcome)
    table.add_section()
    truth = comparison.reference
    table.add_row("all rows sent", "-", bytes_text(comparison.pooled_bytes), "-", f"{truth.seconds:.3f}", "-", "-", "the truth")
    return table


def _title(comparison: Comparison) -> str:
    sites, k = len(comparison.sites), comparison.reference.basis.shape[1]
    return (
        f"Joint PCA of {sites} site{'s' * (sites > 1)}, {comparison.n_samples} rows of {comparison.n_features} features, "
        f"{k} component{'s' * (k > 1)}"
    )


def _numbers(run: Run) -> list[str]:
    if run.rounds is None:
        return ["-"] * 6
    return [
        f"{run.rounds} + {run.setup_rounds}",
        bytes_text(run.bytes_up or 0),
        bytes_text(run.bytes_down or 0),
        f"{run.seconds:.3f}",
        "-" if run.sine is None else f"{run.sine:.1e}",
        f"{run.kkt:.1e}",
    ]


def _remarks(comparison: Comparison, own: str) -> Iterator[str]:
    """What the columns mean, and why a solver has no numbers or poor ones."""
    truth = comparison.reference
    if truth.determined:
        yield (
            f"Truth: {truth.how}.  The sine is that of the largest angle between its components and the solver's; it is known to "
            f"about {truth.uncertainty:.0e}."
        )
    else:
        yield (
            f"Truth: {truth.how}.  The last component wanted and the next one have the same variance up to rounding, so angles "
            "mean nothing here: look at KKT, or ask for another number of components."
        )
    yield (
        "KKT: ||(I - Z Z^T) C Z|| / tr C for the solver's components Z and the pooled scatter C, computed here from all rows; "
        f"solvers are to stop at {comparison.settings['tol']:g}.  "
        "Seconds: computing on this machine alone; between sites every round adds the network's latency."
    )
    if any("proxy" in run.name for run in comparison.runs):
        yield f"The {COORDINATOR}'s own site is taken to be {own}."
    for run in comparison.runs:
        if run.outcome != CONVERGED:
            yield f"{run.name}: {run.outcome}: {in_options(run.reason)}"


def _revealed(comparison: Comparison) -> Table:
    """What left each site, set-up once, then solver by solver."""
    table = tables.compact(f"What each site revealed to the {COORDINATOR}")
    table.add_column("solver")
    table.add_column("times x computed by", no_wrap=True)
    table.add_column("arrays", overflow="fold")
    table.add_column("needed")
    table.add_column("each site", justify="right", no_wrap=True)
    runs = [run for run in comparison.runs if run.revealed]
    common = [row for row in runs[0].revealed if row.setup and all(row in run.revealed for run in runs)]
    _add(table, "set-up, all solvers", common)
    table.add_section()
    for run in runs:
        _add(table, run.name, [row for row in run.revealed if row not in common])
    return table


def _attacked(comparison: Comparison) -> Table:
    """What the audit says in short: how well the last site's scatter followed from its single replies."""
    site = harmless(list(comparison.sites)[-1])
    table = tables.compact(f"Relative error of {site}'s scatter C_i, from its single replies\n(more: eigenpact audit)")
    table.add_column("solver")
    table.add_column("C_i from single replies")
    for run in comparison.runs:
        if run.single_replies:
            table.add_row(run.name, run.single_replies)
    return table


def _add(table: Table, title: str, rows: list[Revealed]) -> None:
    for i, row in enumerate(rows):
        where = "" if row.receiver == COORDINATOR else f" to {row.receiver}"
        needs = ", ".join(NEEDS.get(kind, kind) for kind in row.collective.split(", "))
        computed, size = f"{row.times} x {row.function}{where}", bytes_text(row.bytes_per_site)
        table.add_row("" if i else title, computed, f"{row.arrays}: {row.shapes}", needs, size)


# -- files ------------------------------------------------------------------------------------------


def _write(comparison: Comparison, picture: Path, json_file: Path | None) -> dict[str, Path]:
    """Write numbers and picture; return what is where."""
    written = {}
    if json_file is not None:
        write_json(json_file, {"eigenpact": version("eigenpact"), **comparison.to_dict()})
        written["numbers are"] = json_file
    if any(run.curve for run in comparison.runs):
        _draw(comparison, picture)
        written["picture is"] = picture
    return written


def _draw(comparison: Comparison, picture: Path) -> None:
    from ..report import pictures

    drawn, all_runs = worth_drawing(comparison.runs), [run for run in comparison.runs if run.curve]
    curves = {
        run.name: (
            [point.round for point in run.curve],
            [point.bytes_up + point.bytes_down for point in run.curve],
            [point.kkt for point in run.curve],
        )
        for run in drawn
    }
    left_out = f"\n{len(drawn)} of {len(all_runs)} runs are drawn; the table has all" if len(drawn) < len(all_runs) else ""
    title = _title(comparison) + left_out
    pictures.save_picture(pictures.convergence(curves, comparison.settings["tol"], comparison.pooled_bytes, title), picture)
