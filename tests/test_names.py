"""A module's tests carry its name, or README.md says why not."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "eigenpact"

ALLOWED = dict(re.findall(r"^\| `([\w/.]+)` \| (.+) \|$", (TESTS / "README.md").read_text(), re.MULTILINE))
"""Folder or file of tests that mirrors no module -> why."""


def modules_of(room: Path) -> set[str]:
    """Names of modules and packages in a room of the source; at its top, of the modules alone."""
    if room == SOURCE:
        return {path.stem for path in SOURCE.glob("*.py")}
    return {path.stem for path in (room, *room.rglob("*")) if path.suffix == ".py" or path.is_dir()}


def named_after_a_module(test: Path) -> bool:
    """Whether its name is that of a module in the same room, perhaps with an aspect behind it."""
    inside = test.relative_to(TESTS).parts[:-1]
    name = test.stem.removeprefix("test_")
    return any(name == module or name.startswith(f"{module}_") for module in modules_of(SOURCE.joinpath(*inside[:1])))


def test_a_test_is_named_after_its_module_or_the_readme_says_why_not():
    files = sorted(TESTS.rglob("test_*.py"))
    assert len(files) > 60
    unnamed = {str(path.relative_to(TESTS)) for path in files if not named_after_a_module(path)}
    told = {name for name in unnamed if name in ALLOWED or f"{name.split('/')[0]}/" in ALLOWED}
    assert unnamed - told == set(), "rename them after the module they test, or say why not in tests/README.md"
    needed = {name if name in ALLOWED else f"{name.split('/')[0]}/" for name in told}
    assert set(ALLOWED) == needed, "these are named after a module, or are gone; take them out of tests/README.md"


def test_the_rule_of_names_can_fail():
    assert named_after_a_module(TESTS / "runtime" / "test_journal_aspect.py")
    assert named_after_a_module(TESTS / "algorithms" / "graph" / "test_gossip.py")
    assert not named_after_a_module(TESTS / "runtime" / "test_gossip.py")
    assert not named_after_a_module(TESTS / "test_estimators.py")
    assert not named_after_a_module(TESTS / "nowhere" / "test_journal.py")
