"""Flower really started on loopback, over files as they come: descriptions, holes, lacking columns and prepared rows.

A round takes seconds there, so the list is short; ``test_flower.py`` has the rest without Flower's network.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from tests.engines.files_between import AGREED, SITES, check_refusal, check_same, policy_of, write_files

pytest.importorskip("flwr", reason="needs eigenpact[flower]")

from tests.engines.flower_federation import FlowerParties

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flower-files")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "files"


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[FlowerParties]:
    facts = write_files(files)
    policy, nothing = policy_of(files), np.zeros((1, len(AGREED)))
    made = FlowerParties(tmp_path_factory.mktemp("flower") / "test", dict.fromkeys(SITES, nothing), policy, features=AGREED)
    try:
        for name in SITES:
            made.describe(name, nothing, policy, **facts[name])
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def engine(parties: FlowerParties) -> Iterator[Any]:
    """One Flower run for all tests of this module."""
    with ep.engines.Flower(parties.folder / "coordinator", round_timeout=120).open() as connected:
        yield connected


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
@pytest.mark.parametrize("label", ["one step", "some rounds of em"])
def test_files_as_they_come_give_the_bits_of_one_process(engine: Any, files: Path, label: str) -> None:
    check_same(engine, files, label)


def test_holes_that_nobody_fills_are_refused(engine: Any, parties: FlowerParties) -> None:
    check_refusal(engine, parties.folder)
    assert "column 'age' is missing in" in parties.console("south")
