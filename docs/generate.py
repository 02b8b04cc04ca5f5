"""Write the pages that follow from the source: reference/commands.md and reference/wire-table.md.

Run ``python docs/generate.py`` after changing a command or a local function; a test compares the files with what this writes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import typer

from eigenpact.cli import app
from eigenpact.runtime import LocalFunction, wire_table
from eigenpact.runtime.local import BOUNDS

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py; do not edit. -->\n"

PARTS = {
    "Before the first step (only with a journal)": "eigenpact.runtime.fingerprint",
    "Set-up of every solver": "eigenpact.algorithms.setup",
    "One-shot start (only when asked for)": "eigenpact.algorithms.start",
    "gram": "eigenpact.algorithms.consensus.gram",
    "krylov": "eigenpact.algorithms.consensus.krylov",
    "subspace": "eigenpact.algorithms.consensus.subspace",
    "localpower": "eigenpact.algorithms.consensus.localpower",
    "faps": "eigenpact.algorithms.consensus.faps",
    "one-shot": "eigenpact.algorithms.statistical.one_shot",
    "power, lanczos, davidson, shift-invert": "eigenpact.algorithms.expansion",
    "Preconditioner of davidson and shift-invert": "eigenpact.algorithms.statistical.preconditioner",
    "hot-potato": "eigenpact.algorithms.statistical.hot_potato",
    "Set-up and end of every solver of personalized PCA": "eigenpact.algorithms.personalized.parts",
    "Merged start of personalized PCA": "eigenpact.algorithms.personalized.start",
    "varpro": "eigenpact.algorithms.personalized.varpro",
    "perpca": "eigenpact.algorithms.personalized.perpca",
    "individual, pooled and distpca": "eigenpact.algorithms.personalized.baselines",
    "Set-up of RobustPCA": "eigenpact.algorithms.robust.agreement",
    "shrinking (RobustPCA)": "eigenpact.algorithms.robust.shrinking",
    "dcf (RobustPCA)": "eigenpact.algorithms.robust.dcf",
    "Doubts (RobustPCA, only where a feature has a component to itself)": "eigenpact.algorithms.robust.doubts",
    "Shares of errors (RobustPCA, only when asked for)": "eigenpact.algorithms.robust.shares",
    "Graph: projection consensus": "eigenpact.algorithms.graph.projection_consensus",
    "Graph: rows and the common mean (projection consensus)": "eigenpact.algorithms.graph.neighbourhood",
    "Graph: start (projection consensus)": "eigenpact.algorithms.graph.frames",
    "Graph: signs (projection consensus)": "eigenpact.algorithms.graph.signs",
    "Graph: further components (projection consensus)": "eigenpact.algorithms.graph.deflation",
    "Graph: whether to trust a component (projection consensus)": "eigenpact.algorithms.graph.trust",
    "Graph: features (random features, landmarks, GraphPCA)": "eigenpact.algorithms.graph.features",
    "Graph: tracking (random features, landmarks, GraphPCA)": "eigenpact.algorithms.graph.tracking",
    "Graph: averages by gossip": "eigenpact.algorithms.graph.gossip",
    "Graph: baselines": "eigenpact.algorithms.graph.baselines",
}
"""Heading -> module whose local functions are listed there."""

REMARKS = {
    "Before the first step (only with a journal)": "Bytes (uint8). No round is counted; a session that resumes asks again.\n",
    "Set-up of every solver": '`spread_by_feature` replaces `spread` with `scale="pooled"`; `keep_own_centre` replaces '
    '`keep_centre` with `center="site"`.\n',
    "localpower": "From the round on in which q is 1, `scatter_action` replaces `local_power`.\n",
    "faps": "`literal_step` replaces `consensus_step` with `literal=True`; `scatter_action` confirms the answer in the end.\n",
    "Set-up and end of every solver of personalized PCA": "`local_share` runs unless `misalignment=False`; `settle` only if the "
    "last step tried was refused, or with rows held out.\n",
    "individual, pooled and distpca": "`own_part` is of individual and pooled (after `krylov`), `exact_local_part` of distpca.\n",
    "Set-up of RobustPCA": '`count_parts` runs with `center="pooled"`, and again with `scale="robust"`.\n',
    "shrinking (RobustPCA)": "`clipped_step` in the first rounds, then `threshold_step`; with an uneven spectrum "
    '`turn_scores` sets weak columns aside and `widened_step` finds new ones; `turn_scores` also cuts with `rank="upper"`.\n',
    "Graph: projection consensus": '"From site" means to the neighbours in all parts on graphs, where there is no coordinator. '
    "A single number that nodes agree on goes from neighbour to neighbour as `maximum`.\n",
    "krylov": "`model_directions` runs only with `proxy=` a site's name, and only at that site.\n",
    "one-shot": "Then `scatter_action`, as below, unless `confirm=False`.\n",
    "Preconditioner of davidson and shift-invert": "These run only with `proxy=` a site's name, and only at that site.\n",
    "hot-potato": "Passed from site to site; then `scatter_action`, as above, unless `confirm=False`.\n",
}


def commands_page() -> str:
    """Every command with its arguments and options, from the definitions that ``--help`` prints."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    parts = [
        NOTE,
        "# Commands\n",
        "`eigenpact COMMAND --help` prints the same. Errors are one line on standard error with exit code 2; "
        "`EIGENPACT_DEBUG=1` shows where they were raised.\n",
        *_command("eigenpact", group),
    ]
    for name, command in group.commands.items():
        parts += _command(f"eigenpact {name}", command)
        if isinstance(command, click.Group):
            for inner, part in command.commands.items():
                parts += _command(f"eigenpact {name} {inner}", part)
    return "\n".join(parts)


def wire_page() -> str:
    """Every array that a local function declares to take, send or keep."""
    parts = [
        NOTE,
        "# Wire table\n",
        "Every array that local functions take, send or keep, from their `@local` declarations. Sites and driver check each "
        "message against them; nothing else crosses. `d` is the number of features, `k` and `m` numbers of columns; a shape of "
        '"number" is a single number.\n',
    ]
    for heading, module in PARTS.items():
        remark = [REMARKS[heading]] if heading in REMARKS else []
        parts += [f"## {heading}\n", *remark, *_wire_rows(_local_functions(importlib.import_module(module)))]
    parts += ["## Bounds\n", *(f"- {name}: {meaning}" for name, meaning in BOUNDS.items()), ""]
    return "\n".join(parts)


def _command(title: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=title)
    usage = " ".join([title, *command.collect_usage_pieces(context)])
    parts = [f"## {title}\n", f"```text\n{usage}\n```\n", _paragraphs(command.help)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        parts += ["| option | value | default | meaning |", "|---|---|---|---|", *(_option(p, context) for p in options), ""]
    return [*parts, *([f"{command.epilog}\n"] if command.epilog else [])]


def _paragraphs(text: str | None) -> str:
    joined = [" ".join(part.split()) for part in (text or "").split("\n\n")]
    return "\n\n".join(joined) + "\n"


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else option.make_metavar(context).strip("[]").lower().replace("|", ", ")
    default = "required" if option.required else "" if option.is_flag or option.default is None else f"`{_plain(option.default)}`"
    return f"| {names} | {value} | {default} | {option.help} |"


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _local_functions(module: ModuleType) -> list[LocalFunction]:
    return [value for value in vars(module).values() if isinstance(value, LocalFunction)]


def _wire_rows(functions: Iterable[LocalFunction]) -> list[str]:
    rows = ["| function | way | array | shape | bound |", "|---|---|---|---|---|"]
    for row in wire_table(functions):
        shape = "" if row["way"] == "kept at site" else f"`{row['shape']}`" if row["shape"] else "number"
        rows.append(f"| `{row['function']}` | {row['way']} | {row['array']} | {shape} | {row['bound']} |")
    return [*rows, ""]


def pages() -> dict[Path, str]:
    """Path -> content of every generated page."""
    return {REFERENCE / "commands.md": commands_page(), REFERENCE / "wire-table.md": wire_page()}


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content)
        print(f"wrote {path}")
