"""A journal is never gone on with, nor replayed, over other rows: not even ones with the same column sums and squares."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.engines import InProcess
from eigenpact.errors import JournalError

RNG = np.random.default_rng(0)
COUNTS = RNG.integers(0, 50, size=(60, 1)) + RNG.integers(0, 10, size=(60, 4))
MISALIGNED = COUNTS.copy()
for part in (slice(30), slice(30, None)):
    MISALIGNED[part, 3] = RNG.permutation(MISALIGNED[part, 3])


def sites_of(X: Any) -> dict[str, Any]:
    return {"A": X[:30].astype(float), "B": X[30:].astype(float)}


SITES = sites_of(COUNTS)


class Killed(Exception):
    """Stands for the end of the process."""


def kill(_record: Any) -> None:
    raise Killed


def fit(sites: Any, journal: Path | None, solver: Any = "krylov", **options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(2, solver=solver, random_state=0, journal=journal, **options).fit(sites)


@pytest.mark.parametrize("half", [False, True], ids=["finished", "killed"])
@pytest.mark.parametrize("solver", ["gram", "krylov", "auto"])
def test_a_column_that_was_realigned_is_noticed(solver: str, half: bool, tmp_path: Path) -> None:
    """Sums and squares of every column at every site are those of before, so that set-up cannot tell."""
    path = tmp_path / "run"
    old = sites_of(MISALIGNED)
    for name, rows in old.items():
        assert np.array_equal(rows.sum(axis=0), SITES[name].sum(axis=0))
        assert np.array_equal((rows**2).sum(axis=0), (SITES[name] ** 2).sum(axis=0))
    if half:
        with pytest.raises(Killed):
            fit(old, path, solver, callback=kill)
    else:
        fit(old, path, solver)
    content = path.read_bytes()
    with pytest.raises(JournalError, match=r"the rows of sites 'A', 'B' changed .* rows of then .* or delete the journal"):
        fit(SITES, path, solver)
    assert path.read_bytes() == content
    again = fit(old, path, solver)
    assert again.components_.tobytes() == fit(old, None, solver).components_.tobytes()
    path.unlink()
    assert fit(SITES, path, solver).explained_variance_[0] == pytest.approx(946.44025992)


def changed(how: str) -> dict[str, Any]:
    B = SITES["B"].copy()
    if how == "value":
        B[5, 2] = np.nextafter(B[5, 2], np.inf)
    if how == "order":
        B[[0, 1]] = B[[1, 0]]
    if how == "dtype":
        B = B.astype(np.float32)
    if how == "sparse":
        B = scipy.sparse.csr_array(B)
    if how == "row":
        B = np.vstack([B, B[:1]])
    return SITES | {"B": B}


@pytest.mark.parametrize("how", ["value", "order", "dtype", "sparse", "row"])
@pytest.mark.parametrize("engine", [InProcess(), InProcess(round_timeout=20.0)], ids=["direct", "messages"])
def test_the_site_is_named(how: str, engine: Any, tmp_path: Path) -> None:
    fit(SITES, tmp_path / "run", engine=engine)
    with pytest.raises(JournalError, match="the rows of site 'B' changed since the journal was written"):
        fit(changed(how), tmp_path / "run", engine=engine)
    assert np.array_equal(fit(SITES, tmp_path / "run", engine=engine).components_, fit(SITES, None).components_)


def test_tables_that_changed_places(tmp_path: Path) -> None:
    """The pooled answer would be the same, but what sites keep would not."""
    fit(SITES, tmp_path / "run")
    with pytest.raises(JournalError, match="the rows of sites 'A', 'B' changed"):
        fit({"A": SITES["B"], "B": SITES["A"]}, tmp_path / "run")


def test_other_names_of_columns(tmp_path: Path) -> None:
    tables = {name: pd.DataFrame(X, columns=list("abcd")) for name, X in SITES.items()}
    one = fit(tables, tmp_path / "run")
    assert fit(tables, tmp_path / "run").components_.tobytes() == one.components_.tobytes()
    renamed = {name: table.rename(columns={"c": "d", "d": "c"}) for name, table in tables.items()}
    with pytest.raises(JournalError, match=r"another run \(features: journal has '4 from a on, .*', this run '4 from a on"):
        fit(renamed, tmp_path / "run")


@pytest.mark.parametrize(
    "model",
    [
        lambda **options: ep.RobustPCA(1, max_rounds=30, **options),
        lambda **options: ep.PersonalizedPCA(1, 1, max_rounds=30, tol=1e-3, **options),
    ],
    ids=["robust", "personalized"],
)
@pytest.mark.parametrize("half", [False, True], ids=["finished", "killed"])
@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_other_estimators(model: Any, half: bool, tmp_path: Path) -> None:
    options = {"random_state": 0, "journal": tmp_path / "run"}
    if half:
        with pytest.raises(Killed):
            model(callback=kill, **options).fit(SITES)
    else:
        model(**options).fit(SITES)
    with pytest.raises(JournalError, match="the rows of sites 'A', 'B' changed"):
        model(**options).fit(sites_of(MISALIGNED))
    assert model(**options).fit(SITES).components_.tobytes() == model(random_state=0).fit(SITES).components_.tobytes()


@pytest.mark.parametrize("graph_model", [ep.GraphPCA, ep.GraphKernelPCA])
def test_models_on_graphs_keep_no_journal(graph_model: Any) -> None:
    """So there is nothing to replay over other rows; see test_driver_graph_programs.py for the driver's refusal."""
    assert "journal" not in inspect.signature(graph_model).parameters


def test_rounds_are_those_without_a_journal(tmp_path: Path) -> None:
    one, other = fit(SITES, tmp_path / "run"), fit(SITES, None)
    assert (one.n_rounds_, one.n_setup_rounds_) == (other.n_rounds_, other.n_setup_rounds_)
    extra = [m for m in one.ledger_ if m.function == "rows_digest"]
    assert [(m.sender, m.receiver, m.bytes, m.note) for m in extra] == [
        ("coordinator", "A", 32, "setup"),
        ("coordinator", "B", 32, "setup"),
        ("A", "coordinator", 16, "setup"),
        ("B", "coordinator", 16, "setup"),
    ]
    assert [(m.function, m.sender, m.bytes) for m in one.ledger_ if m not in extra] == [
        (m.function, m.sender, m.bytes) for m in other.ledger_
    ]
