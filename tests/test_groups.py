"""Tests of one group run in one process, one after the other: a federation starts once, and no test finds it in use."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import LONGEST_FIRST, pytest_collection_modifyitems, pytest_ignore_collect

TESTS = Path(__file__).parent
TEXTS = {path: path.read_text() for path in sorted(TESTS.rglob("test_*.py"))}


@pytest.mark.xdist_group("groups")
def test_groups_are_kept(request: pytest.FixtureRequest) -> None:
    """pytest-xdist and pytest must agree on how a test tells its group; releases that do not split the groups without a word."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are not spread over processes by group")
    assert request.node.nodeid.endswith("@groups")


def test_the_longest_groups_begin_first() -> None:
    """Of tests as they are found, those of the groups named; what is of no such group stays in its order."""
    found = ["", "mpi", "other", "flower_kills", "", "mpi"]
    items: list[Any] = [
        SimpleNamespace(
            number=i, iter_markers=lambda _, name=name: [SimpleNamespace(args=(part,)) for part in name.split("_") if part]
        )
        for i, name in enumerate(found)
    ]
    pytest_collection_modifyitems(items)
    assert [item.number for item in items] == [3, 1, 5, 0, 2, 4]


def test_groups_that_begin_first_are_there() -> None:
    """Else a group that was named anew would begin last without a word."""
    told = {name for text in TEXTS.values() for name in re.findall(r'(?:xdist_group\(|\.md": )"([\w-]+)"', text)}
    assert {word for name in LONGEST_FIRST for word in name.split("_")} <= told


NAMED = re.compile(r"\.\s*(faults|crowded)\b|\bimport\b.*\bpytestmark\b")
"""A mark of faults, however it is written, and marks that are taken from another file."""


def asked(marks: str) -> Any:
    return SimpleNamespace(option=SimpleNamespace(markexpr=marks))


def test_a_run_of_faults_imports_every_file_that_has_some() -> None:
    """And other runs import all."""
    skipped = {path for path in TEXTS if pytest_ignore_collect(path, asked("faults and not crowded"))}
    assert 100 < len(skipped) < len(TEXTS)
    assert [path.name for path in skipped if NAMED.search(TEXTS[path])] == []
    assert not any(pytest_ignore_collect(path, asked(other)) for path in TEXTS for other in ("", "not faults", "paper"))
