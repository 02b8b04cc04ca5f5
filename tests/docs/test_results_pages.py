"""What ``benchmarks/page.py`` writes: words before their use, no name of a host or a path, and text written by hand is kept."""

from __future__ import annotations

import importlib
import platform
import re
import types
from importlib.metadata import version
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
    assert re.search(r"^on \d{4}-\d\d-\d\d, on \d+ cores \(.+\) and \d+ GiB of memory, at a load of", text, re.MULTILINE)
    assert f"Python {platform.python_version()}" in text
    for package in ("eigenpact", "numpy", "scipy", "scikit-learn"):
        assert f"{package} {version(package)}" in text
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


def test_pages_of_papers_say_what_ran_and_what_did_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At which size, how long, and why not; a table's texts are no Markdown."""
    monkeypatch.syspath_prepend(str(ROOT))
    papers = importlib.import_module("benchmarks.papers")
    grid = {"title": "Figure 3", "columns": ["nodes", "paper's\nvalue"], "rows": [[8, 1.5e-7], [16, None], ["a|b", 0.97]]}
    told = {
        "seed": 0,
        "seconds": 61.4,
        "date": "2026-11-17",
        "where": "2 cores",
        "title": "t",
        "tables": [grid],
        "remarks": ["x_1"],
    }
    names = ("kernel-fig3", "kernel-fig4", "kernel-fig5")
    found = {name: told | {"name": name, "size": "small" if name == "kernel-fig4" else "paper"} for name in names}
    text = papers.page("kernel", found, {"kernel-fig4": "it was not done after 5 minutes"})
    assert (
        "2 of 3 ran at the paper's size. Not run at that size, and shown at the small one: `kernel-fig4` (it was not done" in text
    )
    assert "`eigenpact reproduce kernel-fig3 --size paper --seed 0`, on 2026-11-17: 61 s on 2 cores." in text
    assert "| nodes | paper's value |\n|---|---|\n| 8 | 1.50e-07 |\n| 16 | - |\n| a\\|b | 0.97 |" in text
    assert "- x\\_1" in text
    monkeypatch.setenv("EIGENPACT_DATA", "/srv/data")
    assert papers.without_paths(f"not in /srv/data, {Path.home()}/.cache") == "not in $EIGENPACT_DATA, ~/.cache"
    some = papers.page("kernel", {"kernel-fig3": found["kernel-fig3"]}, {})
    assert "Not run here at all: `kernel-fig4` (it was not asked for), `kernel-fig5`" in some
    assert papers.remember(tmp_path, ["a"], {"a": "late"}) == {"a": "late"}
    assert papers.remember(tmp_path, ["b"], {"b": "failed"}) == {"a": "late", "b": "failed"}
    assert papers.remember(tmp_path, ["a", "b"], {}) == {}


def test_the_last_lines_name_misses_without_a_reason(made: Any, rows: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """CI keeps the end of what was printed: a table of a hundred rows fails by name."""
    table = importlib.import_module("benchmarks.table")
    assert table.print_rows("family", rows, markdown=False)
    assert capsys.readouterr().err == ""
    assert not table.print_rows("family", [made.Row("T5, rounds", "<= 3", "4", False), *rows], markdown=False)
    assert capsys.readouterr().err == "missed without a recorded reason: T5, rounds: 4 (bar <= 3)\n"
