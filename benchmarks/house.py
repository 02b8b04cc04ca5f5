"""The house: sizes of files and functions, lines of code, a solver in one file, the README.

A line of code is a line with something on it that is neither a comment nor part of a docstring.  A logical line is a statement as
Python's tokenizer ends it, on however many lines it is written.  "Before" is the commit before solvers declared themselves (ADR
13).  "Bits" compares every answer of the conformance tests of five engines, in that commit and in this one: arrays bit by bit,
rows of the ledger, rounds, reasons (``python -m benchmarks.bits``); it takes minutes, so only ``--size paper`` runs it.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.table import Row, pytest_row

ROOT = Path(__file__).parents[1]
BEFORE = "910a8ba"
FEWER = 800
README_BYTES = 6000

SPACE = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    yield pytest_row("files over 400 lines and functions over 60 under src/", "none", "tests/test_sizes.py")
    yield from _fewer_lines()
    yield pytest_row(
        "a solver in one file outside the package, in each of five families: fits, is compared, in wire table, plan and page",
        "no other file touched",
        "tests/examples/test_installed_solvers.py",
    )
    length = len((ROOT / "README.md").read_bytes())
    yield Row("README", f"<= {README_BYTES} bytes", f"{length} bytes", length <= README_BYTES)
    yield _same_bits(size)


def _fewer_lines() -> Iterator[Row]:
    """Lines of code and logical lines under src/, before and now."""
    now = counted(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    before = _before()
    for what, old, new in zip(("lines of code", "logical lines"), before or (0, 0), now, strict=True):
        title, bar = f"{what} under src/, comments and docstrings not counted", f"{FEWER} fewer than before"
        if before is None:
            yield Row(title, bar, f"{new} now", None, f"commit {BEFORE} is not in this checkout")
        else:
            met = old - new >= FEWER
            why = "" if met else "there are more and smaller files, each with its imports; declarations and typed results are new"
            change = f"{old - new} fewer" if new <= old else f"{new - old} more"
            yield Row(title, bar, f"{old} before, {new} now: {change}", met, why)


def _before() -> tuple[int, int] | None:
    packed = subprocess.run(["git", "-C", ROOT, "archive", BEFORE, "src"], capture_output=True)
    if packed.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        files = [archive.extractfile(member) for member in archive.getmembers() if member.name.endswith(".py")]
        return counted(file.read().decode() for file in files if file is not None)


def counted(texts: Iterable[str]) -> tuple[int, int]:
    """Lines of code and logical lines of several files.

    >>> counted(['\"\"\"Doc.\"\"\"\\n\\nx = (1,\\n     2)  # two\\n# end\\n'])
    (2, 1)
    """
    lines = statements = 0
    for text in texts:
        prose = _docstrings(text)
        used, begun = set(), 0
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                statements += begun not in prose
                begun = 0
            elif token.type not in SPACE:
                begun = begun or token.start[0]
                used.update(range(token.start[0], token.end[0] + 1))
        lines += len(used - prose)
    return lines, statements


def _docstrings(text: str) -> set[int]:
    """Lines of docstrings, also of those below an assignment."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _same_bits(size: str) -> Row:
    what, bar = "bits of all answers on five engines, against before", "all equal"
    if size != "paper":
        return Row(what, bar, "", None, "python -m benchmarks.bits; run with --size paper")
    done = subprocess.run([sys.executable, "-m", "benchmarks.bits", BEFORE], cwd=ROOT, capture_output=True, text=True)
    return Row(what, bar, "; ".join(done.stdout.strip().splitlines()) or done.stderr.strip()[-300:], done.returncode == 0)
