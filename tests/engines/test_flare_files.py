"""FLARE really started on loopback, over files as they come: descriptions, holes, lacking columns and prepared rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import eigenpact as ep
from eigenpact.cli import app
from tests.engines.files_between import AGREED, SITES, WORDS, check_refusal, check_same, in_one_process, policy_of, write_files

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.engines.federation import Parties

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flare-files")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "files"


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[Parties]:
    facts = write_files(files)
    policy, nothing = policy_of(files), np.zeros((1, len(AGREED)))
    made = Parties(tmp_path_factory.mktemp("flare") / "test", dict.fromkeys(SITES, nothing), policy, features=AGREED)
    try:
        for name in SITES:
            made.describe(name, nothing, policy, **facts[name])
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def engine(parties: Parties) -> Iterator[Any]:
    """One job for all tests of this module but the last."""
    with ep.engines.NVFlare(parties.folder / "coordinator", round_timeout=30).open() as connected:
        yield connected


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
@pytest.mark.parametrize("label", WORDS)
def test_files_as_they_come_give_the_bits_of_one_process(engine: Any, files: Path, label: str) -> None:
    check_same(engine, files, label)


def test_holes_that_nobody_fills_are_refused(engine: Any, parties: Parties) -> None:
    check_refusal(engine, parties.folder)
    assert "column 'age' is missing in" in parties.log("south")


def test_the_coordinators_command_has_the_same_words(parties: Parties, files: Path) -> None:
    """The command line's own run, as a job of its own, with a journal."""
    words = ["--missing", "mean", "--features", "union", "--prepare", "residualize:age", "--prepare", "scale:max=3"]
    told = ["coordinator", "run", "--kit", str(parties.folder / "coordinator"), "-k", "2", "--solver", "gram", "-q"]
    result = CliRunner().invoke(app, [*told, *words, "-o", str(files / "model")])
    assert result.exit_code == 0, result.output
    there, here = ep.load_model(files / "model"), in_one_process(files, "prepared")
    np.testing.assert_array_equal(there.components_, here.components_)
    scores = CliRunner().invoke(
        app, ["site", "transform", str(parties.folder / "south"), str(files / "model"), "-o", str(files / "south.npy")]
    )
    assert scores.exit_code == 0, scores.output
    assert np.load(files / "south.npy").shape == (35, 2)
    assert np.isfinite(np.load(files / "south.npy")).all()
