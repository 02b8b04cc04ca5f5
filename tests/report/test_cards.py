"""Model cards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import eigenpact as ep
from eigenpact.errors import FileError
from eigenpact.numerics.preparation import Step

X = np.random.default_rng(0).normal(size=(60, 4)) * [5, 3, 2, 1]


def sites(*names: str) -> dict[str, pd.DataFrame]:
    parts = np.array_split(X, len(names))
    return {name: pd.DataFrame(part, columns=["age", "bmi", "rate", "pulse"]) for name, part in zip(names, parts, strict=True)}


def test_a_card_tells_what_the_model_knows():
    pca = ep.FederatedPCA(2, random_state=0, scale="pooled", center="site").fit(sites("north", "south"))
    pca.preparation_ = (Step("fill", {"values": np.zeros(4)}),)
    card = ep.export.model_card(pca, title="Heart study", use="Members of the consortium, for research.")
    assert card.startswith("# Heart study\n\n## Who may use it\n\nMembers of the consortium, for research.\n")
    for told in (
        "| sites | 2: north, south |",
        "| rows | 60 |",
        "| features | 4: age, bmi, rate, pulse |",
        "each site's own mean is subtracted",
        "divided by the pooled standard deviations",
        "| preparation | fill |",
        "| converged | yes: ",
        "plain: the coordinator saw every site's part of a sum",
        f"| PC1 | {pca.explained_variance_[0]:.6g} |",
        f"{pca.angle_estimate_:.1e}",
    ):
        assert told in card, told
    functions = {message.function for message in pca.ledger_ if message.sender != "coordinator"}
    assert functions
    assert all(f"| {function}" in card for function in functions)


def test_secured_sums_are_told():
    card = ep.export.model_card(ep.FederatedPCA(2, secure=True, random_state=0).fit(sites("a", "b", "c")))
    assert "Sums were secured: the coordinator saw no site's part of a sum" in card
    assert "Not stated. Ask the sites before you use this model" in card


def test_what_is_not_known_is_said_so():
    pca = ep.FederatedPCA(2, random_state=0).fit(sites("a"))
    pca.ledger_, pca.angle_estimate_, pca.converged_ = type(pca.ledger_)(), None, False
    card = ep.export.model_card(pca)
    assert "what was revealed is not known" in card
    assert "| angle | unknown" in card
    assert "| converged | no: " in card


def test_a_name_cannot_break_the_table(tmp_path: Path):
    pca = ep.FederatedPCA(2, random_state=0).fit({"a | b\n# c": X})
    card = ep.export.model_card(pca)
    assert "| sites | 1: a \\| b # c |" in card
    ep.export.to_card(pca, tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text() == card
    with pytest.raises(FileError, match="exists already"):
        ep.export.to_card(pca, tmp_path / "card.md")
