"""The command ``eigenpact``: one file per subcommand, imported when it is called.

What needs no subcommand - help, the version, a name that there is not - is answered here, before anything else is imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .application import app as app


class Command(NamedTuple):
    """A subcommand, or a group of them: its module in ``commands/``, its line in the list of commands, an example for its own
    help; of a group, the commands that have modules of their own."""

    module: str
    summary: str
    example: str = ""
    more: tuple[tuple[str, Command], ...] = ()


COMMANDS = {
    "demo": Command("demo", "Joint PCA of ten sites of handwritten digits, by every solver, beside pooling all rows.", "demo"),
    "fit": Command(
        "fit",
        "Fit the joint PCA of several sites, one file each, and write the model to a folder.",
        "fit north.csv south.csv west=w.npy -k 10 -o model/",
    ),
    "describe": Command(
        "describe",
        "Look through a text table: print what is wrong and where, and suggest a description.",
        "describe north.csv --like south.csv -o north.csv.toml",
    ),
    "compare": Command(
        "compare",
        "Compare all solvers on your own files: rounds, bytes, seconds, accuracy, what sites reveal.",
        "compare north.csv south.csv west=w.npy -k 10",
    ),
    "suggest": Command(
        "suggest",
        "Suggest how many components to ask for, by the rows of all files together.",
        "suggest north.csv south.csv --picture suggested.png",
    ),
    "audit": Command(
        "audit",
        "Attack a run like yours, and tell what could be computed about single sites and rows.",
        "audit --rows 200,150,100 --features 30 --solver krylov",
    ),
    "reproduce": Command(
        "reproduce",
        "Compute a table or figure of a paper again, and print our numbers beside the paper's.",
        "reproduce faps-table4 --json numbers.json",
    ),
    "transform": Command(
        "transform",
        "Write the scores of a table's rows on a model's components.  Nothing leaves this machine.",
        "transform model/ north.csv -o scores.csv",
    ),
    "export": Command(
        "export",
        "Write a model for programs without eigenpact, or a card that says what it is.",
        'export model/ --to card -o card.md --use "Members of the study"',
    ),
    "show": Command(
        "show",
        "Show a model: sites, rows, solver, convergence, explained variance, and what left each site.",
        "show model/ --ledger --picture scree.png",
    ),
    "rehearse": Command(
        "rehearse",
        "Play all parties of a federation on this machine, and write what each of them would see.",
        "rehearse consortium.toml -o rehearsal",
    ),
    "federation": Command("federation", "Make the start-up kits of a federation between institutions."),
    "coordinator": Command("coordinator", "Serve a federation, and run joint PCAs over its sites."),
    "site": Command(
        "site",
        "Take part in a federation with a table that stays here.",
        more=(
            ("budget", Command("site_budget", "What is left of a site's budget.", "site budget heart/cleveland")),
            ("check", Command("site_check", "Check a site's settings.", "site check heart/cleveland/site.toml")),
        ),
    ),
}
"""Subcommands by name, in the order of the help."""

ABOUT = "Principal components across sites that cannot, or would rather not, pool their data."
START = "Start with: eigenpact demo.  Help on one command: eigenpact fit --help"
VERSION_HELP = "Print the version and exit."
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def help_text() -> str:
    """What ``eigenpact --help`` prints."""
    options = [f"  {'--version':11}  {VERSION_HELP}", f"  {'--help':11}  Show this message and exit."]
    commands = [f"  {name:11}  {command.summary}" for name, command in COMMANDS.items()]
    usage = "Usage: eigenpact [OPTIONS] COMMAND [ARGS]..."
    return "\n".join([usage, "", ABOUT, "", "Options:", *options, "", "Commands:", *commands, "", START, ""])


def version_text() -> str:
    """What ``eigenpact --version`` prints."""
    from .. import __version__

    return f"eigenpact {__version__}\n"


def unknown_text(word: str) -> str:
    """What is said of a first word that is no command and no option."""
    import difflib

    known = ["--version", "--help"] if word.startswith("-") else list(COMMANDS)
    near = difflib.get_close_matches(word, known, 1)
    advice = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in word)
    return f"error: eigenpact has no {'option' if word.startswith('-') else 'command'} {printable!r}; {advice}\n"


def main() -> None:
    """Entry point of the command ``eigenpact``."""
    first = sys.argv[1] if len(sys.argv) > 1 else None
    if first in (None, "--help"):
        sys.stdout.write(help_text())
        sys.exit(2 if first is None else 0)
    elif first == "--version":
        sys.stdout.write(version_text())
    elif first not in COMMANDS:
        sys.stderr.write(unknown_text(str(first)))
        sys.exit(2)
    else:
        _call()


def _call() -> None:
    try:
        from .application import app

        app(prog_name="eigenpact")
    except KeyboardInterrupt:  # while modules were imported
        sys.stderr.write("stopped by Ctrl-C; nothing was written\n")
        sys.exit(INTERRUPTED)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .application import app

    return app
