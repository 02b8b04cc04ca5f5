"""Files that anybody may have changed end in an answer or in an EigenpactError: hundreds here, thousands with ``make fuzz``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.errors import InputError
from tests.fuzz import files
from tests.fuzz.files import KINDS, attempt, explore, honest, table


def test_changed_files() -> None:
    tried = list(explore(360, seed=0))
    wrong = [f"{t.kind}: {t.why}\n{t.command}" for t in tried if t.word == "wrong"]
    assert not wrong, "\n".join(wrong)
    for kind in {t.kind for t in tried}:  # else the changes are too coarse to get past the first look
        assert any(t.word == "refused" for t in tried if t.kind == kind)
    assert sum(t.word == "read" for t in tried) > 50


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_not_changed_are_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, read = KINDS[kind]
    if name not in honest():
        pytest.skip("needs eigenpact[pandas]")
    monkeypatch.setitem(KINDS, kind, (name, (lambda data, _: data,), read))
    tried = attempt(kind, 0)
    assert (tried.word, tried.why) == ("read", "")


def fail(_: bytes) -> Any:
    raise KeyError("kind")


def refuse(_: bytes) -> Any:
    raise InputError("no t.csv")


def waste(_: bytes) -> Any:
    np.ones(10**6)


@pytest.mark.parametrize(
    ("read", "word", "why"),
    [
        (fail, "wrong", "KeyError: 'kind'"),
        (refuse, "refused", "InputError: no t.csv"),
        (waste, "wrong", "bytes of memory for a file of"),
    ],
)
def test_the_judge_can_fail(monkeypatch: pytest.MonkeyPatch, read: Any, word: str, why: str) -> None:
    monkeypatch.setitem(KINDS, "csv", ("t.csv", (files.change_bytes,), read))
    tried = attempt("csv", 3)
    assert tried.word == word
    assert why in tried.why
    assert tried.command == "python -m tests.fuzz.files --repeat csv/3"
    assert table([tried]).splitlines()[1].split()[:2] == ["csv", "1"]


def test_what_takes_too_long_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SECONDS", -1000.0)
    assert "s for a file of" in attempt("npy", 0).why
