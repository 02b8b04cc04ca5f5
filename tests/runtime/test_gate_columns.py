"""Columns that are counted for a version of the rows: those of the reply, not of the words that it is masked with."""

from __future__ import annotations

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import EigenpactError
from eigenpact.runtime.site_ledger import read_site_ledger
from tests.attacks.lasting import Lasting

D = 6
TABLES = {name: np.random.default_rng(i).normal(size=(30, D)) * np.arange(1, D + 1) for i, name in enumerate("ABC")}


def fit(folder, solver, secure, **rules):
    engine = Lasting(folder, rules)
    folder.mkdir(exist_ok=True)
    return ep.FederatedPCA(2, solver=solver, max_rounds=50, random_state=0, engine=engine, secure=secure).fit(TABLES)


def columns(folder, name="B"):
    rows = [row for row in read_site_ledger(folder / f"{name}.jsonl") if row["what"] == "sent"]
    return [(row["function"], row["columns"]) for row in rows if row["kind"] == "sum"]


SECOND = ("eigenpact:spread/2", "eigenpact:second_moments/1")
"""The second round of set-up, plain and secured."""


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_masked_replies_count_as_their_numbers_do(tmp_path, solver):
    for secure in (True, False):
        fit(tmp_path / str(secure), solver, secure)
    masked, plain = ([row for row in columns(tmp_path / how) if row[0] not in SECOND] for how in ("True", "False"))
    assert masked == plain
    assert len(columns(tmp_path / "True")) == len(columns(tmp_path / "False")) == len(plain) + 1
    words = [row for row in read_site_ledger(tmp_path / "True" / "B.jsonl") if row["what"] == "sent" and row["kind"] == "sum"]
    assert all(set(row["dtypes"]) == {"uint64"} for row in words)
    by_name = {name.partition(":")[2]: count for name, count in columns(tmp_path / "True")}
    assert by_name["count_and_sum/1"] == 4  # three numbers and a column
    assert by_name["second_moments/1"] == 5  # a column with twice the digits, and three numbers
    if solver == "gram":
        assert by_name["scatter_triangle/1"] == D
    else:
        shapes = [row["shapes"] for row in words if "scatter_action" in row["function"]]
        assert by_name["scatter_action/1"] == shapes[-1][0][1]  # fixed numbers have a word each


def test_the_limit_stops_a_secured_run_where_it_stops_a_plain_one(tmp_path):
    for secure in (True, False):
        fit(tmp_path / f"whole {secure}", "gram", secure)
        whole = sum(count for _, count in columns(tmp_path / f"whole {secure}"))
        folder = tmp_path / f"exact {secure}"
        fit(folder, "gram", secure, max_columns=whole)
        with pytest.raises(EigenpactError, match=f"rule max_columns = {whole}"):  # over the same rows, once more
            fit(folder, "gram", secure, max_columns=whole)
        with pytest.raises(EigenpactError, match=f"rule max_columns = {whole - 1}"):
            fit(tmp_path / f"less {secure}", "gram", secure, max_columns=whole - 1)
