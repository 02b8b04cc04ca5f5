"""``eigenpact audit``: what could be computed about single sites from what a run sends, tried on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..consoles import harmless, stderr, stdout, tell
from ..options import SOLVERS, Center, CenterOption, JsonFile, NoProgress, Scale, ScaleOption, Seed, preprocessing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ...privacy.findings import Audit, Finding

COMPONENTS, MAX_ROUNDS = 10, 500
PICTURE = Path("eigenpact-audit.png")
MODEL_HELP = "Instead of a simulation, count equations in the ledger of this model; nothing is attacked."
ROWS_HELP = "Without files: rows of every site, such as 200,150,100."
REAL_HELP = "Attack a run on the rows of the files themselves, not on made-up rows of their shapes."
SECURED_HELP = "Secure the sums of the run that is attacked: what remains for somebody who sees sums only."


def command(
    files: Annotated[list[str] | None, typer.Argument()] = None,
    rows: Annotated[str | None, typer.Option(help=ROWS_HELP)] = None,
    features: Annotated[int | None, typer.Option(min=1, help="Without files: number of features.")] = None,
    model: Annotated[Path | None, typer.Option(help=MODEL_HELP)] = None,
    real_rows: Annotated[bool, typer.Option("--real-rows", help=REAL_HELP)] = False,
    components: Annotated[
        int, typer.Option("-k", "--components", min=1, help="Components, or as many as there are.")
    ] = COMPONENTS,
    solver: Annotated[str, typer.Option(help=f"auto, {', '.join(SOLVERS)}.")] = "auto",
    center: CenterOption = Center.pooled,
    scale: ScaleOption = Scale.none,
    max_rounds: Annotated[int, typer.Option(help="Stop the run after this many rounds.")] = MAX_ROUNDS,
    seed: Seed = 0,
    secured: Annotated[bool, typer.Option("--secure", help=SECURED_HELP)] = False,
    picture: Annotated[Path, typer.Option(help="Draw errors by round: .png, .pdf or .svg.")] = PICTURE,
    json_file: JsonFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture and JSON file.")] = False,
    quiet: NoProgress = False,
) -> None:
    """Attack a run like yours, and tell what could be computed about single sites and rows.

    The run is simulated on this machine.  FILES are tables, one per site, as for
    eigenpact fit; only their shapes are used, with made-up rows, unless
    --real-rows is given.  Or give --rows and --features.

    An attack that fails says something of that attack, not of your data: no line
    of the table is a promise.

    Exit code: 0 whatever was found, 2 error.
    """
    from ...estimators import FederatedPCA
    from ...estimators.model_files import load_model
    from ...report.auditing import audit
    from ..outputs import check_json, check_picture
    from ..progress import shown_status

    _check(files, rows, features, model, solver, real_rows)
    check_picture(picture, overwrite=overwrite or picture == PICTURE)
    check_json(json_file, overwrite=overwrite)
    if model is not None:
        told, what = audit(load_model(model)), "Counted in the ledger of a run; nothing was attacked."
    else:
        sites, what = _sites(files or [], rows, features, real_rows, seed)
        wanted = min(components, sum(X.shape[0] for X in sites.values()), _width(sites))
        options = preprocessing(center, scale) | {"max_rounds": max_rounds, "random_state": seed}
        with shown_status(stderr(), "running and attacking", quiet=quiet):
            told = audit(FederatedPCA(wanted, solver=solver, secure=secured, **options), sites)
    _write(told, what, picture, json_file)


def _check(
    files: list[str] | None, rows: str | None, features: int | None, model: Path | None, solver: str, real_rows: bool
) -> None:
    """Refuse what does not go together."""
    from ...estimators.choices import joint_solvers

    given = [bool(files), rows is not None or features is not None, model is not None]
    if sum(given) != 1:
        raise InputError("give files, or --rows with --features, or --model: exactly one of these")
    if given[1] and (rows is None or features is None):
        raise InputError("--rows and --features go together, such as --rows 200,150,100 --features 30")
    if real_rows and not files:
        raise InputError("--real-rows needs files; without them rows are made up")
    if solver != "auto" and solver not in joint_solvers():
        raise InputError(f"unknown solver {solver!r}; allowed are auto, {', '.join(joint_solvers())}")


def _sites(files: list[str], rows: str | None, features: int | None, real_rows: bool, seed: int) -> tuple[Mapping[str, Any], str]:
    """Rows to attack, and a sentence on where they are from."""
    from ...engines.ranks import Alone
    from ...report.auditing import made_up
    from ..site_files import read_together

    if rows is not None and features is not None:
        counts = {f"site{i}": _count(part) for i, part in enumerate(rows.split(","))}
        return made_up(counts, features, seed), "Rows were made up; your own may be told better or worse."
    read = read_together(files, Alone(), None, lambda: None).held
    if real_rows:
        return read, "Attacked was a run on the rows of the files."
    shapes = {name: int(X.shape[0]) for name, X in read.items()}
    return made_up(shapes, _width(read), seed), "Rows of the files' shapes were made up; your own may be told better or worse."


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise InputError(f"--rows {text!r} is no number of rows; give one for every site, such as 200,150,100")
    return int(text)


def _width(sites: Mapping[str, Any]) -> int:
    return int(next(iter(sites.values())).shape[1])


# -- the report -------------------------------------------------------------------------------------


def _write(told: Audit, what: str, picture: Path, json_file: Path | None) -> None:
    from importlib.metadata import version

    from ...storage import write_json

    console = stdout()
    _report(told, what, console)
    if json_file is not None:
        write_json(json_file, {"eigenpact": version("eigenpact"), "what": what, **told.to_dict()})
        tell(console, f"The numbers are in {json_file}")
    if told.mode == "recorded":
        from ...report import audit_pictures, pictures

        pictures.save_picture(audit_pictures.errors_by_round(told, _title(told)), picture)
        tell(console, f"The picture is in {picture}")


def _report(told: Audit, what: str, console: Console) -> None:
    console.print(_table(told))
    console.print()
    for one in told.findings:
        console.print(harmless(f"{one.site}, {one.attack}: {one.sentence}"), highlight=False, markup=False)
    console.print()
    for line in (what, "Replies were masked." if told.secured else "", *REMARKS):
        if line:
            console.print(line, highlight=False, markup=False)


REMARKS = (
    "Error: relative, of what the attack looks for.  Energy: share of its squares recovered.  Guess: error of a guess without the"
    " site's replies.",
    "An attack that fails says something of that attack, not of the data: another one, or more messages, may succeed.",
)


def _title(told: Audit) -> str:
    sites = len(told.sites)
    solver = f" by {told.solver}" if told.solver else ""
    rounds = f"{told.n_rounds} round{'s' * (told.n_rounds != 1)}"
    return f"What {rounds}{solver} tell about {sites} site{'s' * (sites > 1)} with {told.n_features} features"


def _table(told: Audit) -> Table:
    from .. import tables

    table = tables.compact(_title(told))
    for column in ("site", "attack", "looks for"):
        table.add_column(column, overflow="fold")
    table.add_column("verdict")
    for column in ("error", "energy", "guess", "rounds"):
        table.add_column(column, justify="right", no_wrap=True)
    before = ""
    for one in told.findings:
        if one.site != before and before:
            table.add_section()
        table.add_row("" if one.site == before else harmless(one.site), one.attack, one.wanted, one.verdict, *_numbers(one))
        before = one.site
    return table


def _numbers(one: Finding) -> list[str]:
    return [
        "-" if one.error is None else f"{one.error:.1e}",
        "-" if one.energy is None else f"{100 * one.energy:.1f} %",
        "-" if one.baseline is None else f"{one.baseline:.2g}",
        "-" if one.rounds is None else str(one.rounds),
    ]
