"""``eigenpact site budget``: what private runs have cost a site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.numerics.accounting import epsilon_of, rho_for
from eigenpact.runtime import Purse
from eigenpact.runtime.purse import Question, budget_beside

pytest.importorskip("nvflare")

CONSORTIUM = 'name = "trial"\ncoordinator = "localhost:8102"\nsites = ["north", "south"]\nfeatures = ["age", "bmi"]\n'


def spend(kit: Path, run: str, epsilon: float) -> None:
    question = Question(run, 0, "eigenpact:noisy_triangle/1", (np.zeros(2),))
    Purse(budget_beside(kit / "ledger.jsonl")).noise(question, rho_for(epsilon, 1e-6), 1, [(1e6, 3)])


def test_what_was_spent_is_shown_by_run_and_in_all(tmp_path: Path, run: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    (tmp_path / "consortium.toml").write_text(CONSORTIUM)
    made = run("federation", "init", tmp_path / "consortium.toml", "-o", tmp_path / "trial")
    assert made.exit_code == 0, made.output
    kit = tmp_path / "trial" / "north"
    assert "max_epsilon = 1.0" in (kit / "policy.toml").read_text()
    nothing = run("site", "budget", kit)
    assert nothing.exit_code == 0, nothing.output
    assert nothing.stdout.strip() == "Spent: epsilon 0 of 1 (delta 1e-06), for a row, in all runs together"
    spend(kit, "r1", 0.3)
    spend(kit, "r2", 0.4)
    shown = run("site", "budget", kit).stdout
    assert "noisy_triangle" in shown
    lines = [line.split() for line in shown.splitlines() if line.strip().startswith(("r1", "r2"))]
    assert [(line[0], line[-2]) for line in lines] == [("r1", "0.3"), ("r2", "0.4")]
    both = epsilon_of(rho_for(0.3, 1e-6) + rho_for(0.4, 1e-6), 1e-6)  # less than 0.7: costs add up in rho
    assert 0.5 < both < 0.6
    assert f"Spent: epsilon {both:.3g} of 1 (delta 1e-06)" in shown
    (kit / "policy.toml").write_text("max_epsilon = 0.6\nrows_per_person = 4\n")
    assert "of 0.6 (delta 1e-06), for a person with up to 4 rows" in run("site", "budget", kit).stdout
    (kit / "policy.toml").write_text("max_delta = 2\n")
    refused = run("site", "budget", kit)
    assert refused.exit_code == 2
