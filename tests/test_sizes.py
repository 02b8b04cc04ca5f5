"""No file of the source is over 400 lines, no function over 60."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MOST_LINES, MOST_OF_A_FUNCTION = 400, 60


def too_long(text: str) -> list[str]:
    """The file, if it is, and functions that are."""
    found = [f"{len(text.splitlines())} lines"] if len(text.splitlines()) > MOST_LINES else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            found += [f"{node.name} has {length}"] if length > MOST_OF_A_FUNCTION else []
    return found


def test_no_file_and_no_function_is_too_long() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 150
    found = {str(path.relative_to(SOURCE)): too_long(path.read_text()) for path in files}
    assert {name: what for name, what in found.items() if what} == {}


def test_the_rule_of_sizes_can_fail() -> None:
    assert too_long("x = 1\n" * 401) == ["401 lines"]
    assert too_long("def f():\n" + "    x = 1\n" * 60) == ["f has 61"]
    assert too_long("async def f():\n" + "    x = 1\n" * 59) == []
