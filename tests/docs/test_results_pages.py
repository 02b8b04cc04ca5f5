"""What ``benchmarks/page.py`` writes: words before their use, no name of a host or a path, and text written by hand is kept."""

from __future__ import annotations

import importlib
import platform
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FAMILY = types.ModuleType("family", '"T4" is a problem.\n\nMeasured with ``tol=1``.')


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module under test, which lies beside the package."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.page")


@pytest.fixture
def rows(made: Any) -> list[Any]:
    """A row that is met, one without a bar, one that is missed, one that was not run."""
    return [
        made.Row("T4, rounds", "<= 3", "2", True),
        made.Row("T4, seconds", "reported", "1 | 2", True),
        made.Row("T4, memory", "<= 1", "2", False, "too few cores"),
        made.Row("a GPU", "<= 1", "", None, "none here"),
    ]


def test_a_page_says_how_it_was_measured(made: Any, rows: list[Any]) -> None:
    """The command, the words, the machine; rows without a bar are not counted as met."""
    text = made.page("family", FAMILY, "small", rows)
    assert "$ python -m benchmarks.results family --size small --page docs/results/family.md" in text
    assert "Measured with `tol=1`." in text
    assert f"Python {platform.python_version()}" in text
    assert "GiB of memory" in text
    assert "Of 2 rows with a bar that were run, 1 meet it." in text
    assert "| T4, seconds | reported | 1 \\| 2 | reported |" in text
    assert "| T4, memory | <= 1 | 2 | missed: too few cores |" in text
    assert "| a GPU | <= 1 |  | not run: none here |" in text


def test_words_are_defined_before_the_table(made: Any, rows: list[Any]) -> None:
    """A reader meets "bar" in a sentence before a column has that name."""
    text = made.page("family", FAMILY, "small", rows)
    assert "*bar*" in made.WORDS
    assert text.index(made.WORDS) < text.index("| what | bar |")


def test_neither_host_nor_path_is_named(made: Any, rows: list[Any]) -> None:
    """A page tells the kind of machine only."""
    text = made.page("family", FAMILY, "small", rows)
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert platform.node() not in text.split()


@pytest.mark.parametrize("times", [1, 3])
def test_what_was_written_by_hand_is_kept(made: Any, rows: list[Any], tmp_path: Path, times: int) -> None:
    """However often the page is written again."""
    path = tmp_path / "results" / "family.md"
    made.write_page(path, "family", FAMILY, "small", rows)
    assert made.KEPT not in path.read_text()
    by_hand = f"\n{made.KEPT}\n\n## Measured earlier\n\nBy hand.\n"
    path.write_text(f"an older page\n{by_hand}")
    for _ in range(times):
        made.write_page(path, "family", FAMILY, "small", rows)
    text = path.read_text()
    assert text.startswith("# Results: family\n")
    assert text.endswith(by_hand)
    assert text.count(made.KEPT) == text.count("| what | bar |") == 1
