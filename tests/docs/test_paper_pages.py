"""The pages of the papers: everything in a paper has its row, each row its command or test, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eigenpact.reproduce import PAPERS, REPRODUCTIONS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference" / "papers"
COLUMNS = ["in the paper", "here", "shown by", "our number, the paper's, and why they differ"]
EXPLAINED = ("replaced", "not built")
"""What needs a sentence."""

ALLOWED = ("as printed", "as printed and better beside", *EXPLAINED)
COMMAND = re.compile(r"`eigenpact reproduce ([\w-]+)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)[^`]*`")


def rows(text: str) -> list[list[str]]:
    """The cells of the table below "Everything in it"."""
    below = text.partition("## Everything in it")[2]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert table, "no table"
    assert table[0] == COLUMNS
    return table[2:]


def complaints(paper: str, text: str) -> list[str]:
    """What is wrong with a paper's page."""
    found = []
    for cells in rows(text):
        if len(cells) != len(COLUMNS) or not all(cells):
            found.append(f"a cell is missing or empty: {cells}")
            continue
        what, here, shown, numbers = cells
        commands, tests = COMMAND.findall(shown), TEST.findall(shown)
        if here not in ALLOWED:
            found.append(f"{what}: {here!r} is none of {ALLOWED}")
        if not commands and not tests:
            found.append(f"{what}: neither a command nor a test")
        if here in EXPLAINED and len(numbers.split()) < 5:
            found.append(f"{what}: {here} without a sentence")
        found += [f"{what}: there is no {name}" for name in commands if name not in REPRODUCTIONS]
        found += [f"{what}: there is no {file}::{name}" for file, name in tests if not defined(file, name)]
    named = set(COMMAND.findall(text))
    own = [f"{paper}-{where.split('.')[1]}" for where in PAPERS[paper]]
    return found + [f"{name} is on no row" for name in own if name not in named]


def defined(file: str, name: str) -> bool:
    path = ROOT / file
    return path.exists() and re.search(rf"^\s*def {name}\b", path.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_is_shown_by_something_that_exists(paper: str) -> None:
    assert complaints(paper, (PAGES / f"{paper}.md").read_text()) == []


def test_complaints_are_made() -> None:
    head = "## Everything in it\n| " + " | ".join(COLUMNS) + " |\n|---|---|---|---|\n"
    every = "".join(
        f"| {name} | as printed | `eigenpact reproduce {name}` | the same |\n" for name in REPRODUCTIONS if "kernel" in name
    )
    assert complaints("kernel", head + every) == []
    for row, said in {
        "| a | as printed |  | 1 |": "empty",
        "| a | as printed | a look | 1 |": "neither",
        "| a | nearly | `eigenpact reproduce kernel-fig3` | 1 |": "none of",
        "| a | replaced | `eigenpact reproduce kernel-fig3` | ours |": "without a sentence",
        "| a | as printed | `eigenpact reproduce kernel-fig9` | 1 |": "there is no kernel-fig9",
        "| a | as printed | `tests/docs/test_paper_pages.py::test_that_is_not` | 1 |": "there is no tests/docs",
    }.items():
        (complaint,) = complaints("kernel", head + every + row)
        assert said in complaint
    assert complaints("kernel", head + "| a | as printed | `eigenpact reproduce kernel-fig3` | 1 |") == [
        "kernel-fig4 is on no row",
        "kernel-fig5 is on no row",
    ]
