"""The four people of the first hour, each from her own files to her result, by commands that stand on the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import data_scientist, geneticist, hpc_user
from .person import Person, commands_of, in_own_words


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_the_data_scientist(tmp_path: Path) -> None:
    data_scientist.play(Person(tmp_path, here=True))


def test_the_geneticist(tmp_path: Path) -> None:
    geneticist.play(Person(tmp_path, here=True))


def test_the_hpc_user(person: Person) -> None:
    """In processes of their own, whose memory is looked at."""
    hpc_user.play(person)


@pytest.mark.faults
def test_the_hpc_user_under_mpi(person: Person) -> None:
    hpc_user.play_mpi(person)


@pytest.mark.faults
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("nvflare", marks=pytest.mark.xdist_group("data-manager")),
        pytest.param("flower", marks=pytest.mark.xdist_group("data-manager-flower")),
    ],
)
def test_the_data_manager_of_the_third_hospital(person: Person, engine: str) -> None:
    """On Flower up to her part's end; the benchmark of daily use goes on to her scores."""
    pytest.importorskip("nvflare", reason="what the tests share of federations needs it")
    from . import data_manager

    data_manager.play(person, engine, alone=engine == "flower")


def test_what_no_page_says_cannot_be_typed(person: Person) -> None:
    with pytest.raises(AssertionError, match=r"does not say: eigenpact fit all\.csv --magic"):
        person.types("docs/how-to/fit-files.md", "eigenpact fit all.csv --magic")
    with pytest.raises(AssertionError, match="does not say: import antigravity"):
        person.writes_python("docs/how-to/plots.md", "import antigravity")


def test_own_names_are_no_options_and_no_commands() -> None:
    for own in ({"fit": "show"}, {"-k": "-q"}, {"a.csv": "b.csv --overwrite"}, {"c.csv": "b.csv"}):
        with pytest.raises(AssertionError):
            in_own_words("eigenpact fit a.csv -k 2", own)


def test_commands_are_found_in_blocks_and_sentences() -> None:
    page = (
        "Say `eigenpact show m`.\n\n       eigenpact site start va\n\n```console\n$ eigenpact fit a.csv &  # exit 2\nhello\n```\n"
    )
    assert commands_of(page) == {"eigenpact show m", "eigenpact site start va", "eigenpact fit a.csv"}
