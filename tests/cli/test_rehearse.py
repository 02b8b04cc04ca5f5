"""``eigenpact rehearse``: a consortium's parties on one machine, before anybody signs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenpact.estimators.model_files import load_model
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import read_site_ledger

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.engines.federation import with_argument

CONSORTIUM = """\
name = "trial"
coordinator = "pca.example.org:8102"
sites = ["north", "south", "west"]
features = ["age", "bmi", "sex=f", "sex=m", "rate"]
engine = "flower"
"""


def test_what_cannot_be_rehearsed(refused: Callable[..., str], tmp_path: Path) -> None:
    """In one line, with nothing begun."""
    (tmp_path / "consortium.toml").write_text(CONSORTIUM.replace('"west"', '"north"'))
    assert "each once" in refused("rehearse", "consortium.toml", "-o", "seen")
    (tmp_path / "consortium.toml").write_text(CONSORTIUM)
    assert "north.csv exists already; choose another folder" in refused("rehearse", "consortium.toml", "-o", "north.csv")


@pytest.mark.faults
@pytest.mark.xdist_group("rehearsal")
def test_a_rehearsal(run: Callable[..., Any], tmp_path: Path) -> None:
    """Every party is played, over FLARE whatever the engine; models are right, and nothing is left running."""
    (tmp_path / "consortium.toml").write_text(CONSORTIUM)
    result = run("rehearse", "consortium.toml", "-o", "rehearsal")
    assert result.exit_code == 0, result.output
    folder = tmp_path / "rehearsal"
    pooled = np.concatenate([np.load(folder / "rows" / f"{site}.npy") for site in ("north", "south", "west")])
    truth = PCA(2).fit(pooled).components_.T
    assert largest_sine(load_model(folder / "model").components_.T, truth) < 1e-6
    resumed = load_model(folder / "model-resumed")
    assert resumed.sites_ == ("north", "south", "west")
    assert largest_sine(resumed.components_.T, truth) < 1e-2  # it is asked for few rounds
    report = (folder / "REPORT.md").read_text()
    assert len(re.findall(r"^\| west (was lost|came back)", report, re.MULTILINE)) == 2
    for site in ("north", "south", "west"):
        sent = [row for row in read_site_ledger(folder / "kits" / site / "ledger.jsonl") if row["what"].startswith("sent")]
        assert f"| {site} | {len(sent)} |" in report
        seen = (folder / "seen" / f"{site}.txt").read_text()
        assert "left, nothing else" in seen
        assert with_argument(str(folder / "kits" / site)) == []
    coordinator = (folder / "seen" / "coordinator.txt").read_text()
    assert "lost west" in coordinator
    assert "bring west back, then resume" in coordinator
    assert with_argument(str(folder / "kits" / "coordinator" / "server")) == []
