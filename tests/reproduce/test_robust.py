"""The robust PCA paper's figures and table on small problems: what they must show; and the centralised methods beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from eigenpact.datasets import corrupted_problem
from eigenpact.reproduce import REPRODUCTIONS, Size, Watch, find, paper_numbers, registry
from eigenpact.reproduce.robust.apgm import apgm
from eigenpact.reproduce.robust.inexact_alm import inexact_alm
from eigenpact.reproduce.robust.pursuit import shrink_singular_values
from eigenpact.reproduce.robust.recovery import recovered

SILENT = Watch()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of a size for tests."""
    common = {"rank_share": 0.05, "share": 0.05, "sites": 3}
    small: dict[str, Any] = {
        "fig1": {"sizes": [60], **common},
        "fig2": {"size": 60, "rank_shares": [0.05, 0.1], "shares": [0.05, 0.1], "sites": 3, "rounds": 20, "local_steps": 2},
        "fig3": {"size": 80, **common, "column_share": 0.1},
        "fig4": {"size": 60, **common, "local_steps": [1, 10]},
        "table1": {"sizes": [80, 100], "ranks": [4, 5], "columns": [8, 10], "share": 0.05, "sites": 3},
    }
    monkeypatch.setattr(registry, "small_problems", {"robust": small}.get)


def make(name: str) -> Any:
    made = find(name).make(Size.small, 0, SILENT)
    assert isinstance(made.figure, Figure)
    assert all(len(row) == len(grid.columns) for grid in made.grids for row in grid.rows)
    return made


def test_the_papers_numbers() -> None:
    told = paper_numbers("robust")
    assert told["table1"]["errors"] == [0.0286, 0.0326, 0.0398, 0.1127]
    assert [2 * r for r in told["table1"]["ranks"]] == told["table1"]["columns"]
    assert all(entry["where"].startswith("Section 4.") for entry in told.values())
    assert {name.removeprefix("robust-") for name in REPRODUCTIONS if name.startswith("robust-")} == set(told)


def test_what_is_measured_is_the_truth() -> None:
    """relL and err by hand from what decompose gives; the curve ends where the basis is."""
    problem = corrupted_problem(60, 90, 3, 0.05, sites=3)
    heard: list[str] = []
    found = recovered(problem, 3, solver="dcf", max_rounds=5, watch=Watch(on_run=heard.append))
    assert len(found.curve) == 4  # and a round for the variances
    assert found.rounds == 5
    assert not found.converged
    assert found.distance > 0.5 * found.curve[-1] > 0  # no L in the span is nearer to L_0
    whole = [np.linalg.norm(np.concatenate(list(part.values()))) for part in problem]
    assert found.err >= found.distance**2 * whole[1] ** 2 / (whole[1] ** 2 + whole[2] ** 2)
    assert "relL" in heard[0]


@pytest.mark.usefixtures("tiny")
def test_figure_1_ours_is_exact_and_the_others_are_as_known() -> None:
    rows = {row[1]: row for row in make("robust-fig1").grids[0].rows}
    assert rows["shrinking (ours)"][2] < 1e-9
    assert rows["DCF-PCA"][3] < 1e-5 < rows["DCF-PCA"][2]
    assert rows["inexact ALM"][2] < 1e-4
    assert rows["APGM"][2] < 1e-3


@pytest.mark.usefixtures("tiny")
def test_figure_2() -> None:
    made = make("robust-fig2")
    assert len(made.grids[0].rows) == 4
    assert all(row[2] < 1e-9 for row in made.grids[0].rows)
    assert all(row[4] > 1e-3 for row in made.grids[0].rows)


@pytest.mark.usefixtures("tiny")
def test_figure_3_and_table_1() -> None:
    values = make("robust-fig3").numbers["singular_values"]
    np.testing.assert_allclose(values["shrinking (ours)"], values["exact"], rtol=1e-9)
    assert values["DCF-PCA"][4] > 0  # what DCF-PCA leaves behind the rank
    assert all(row[3] == row[1] and row[4] < 1e-9 for row in make("robust-table1").grids[0].rows)


@pytest.mark.usefixtures("tiny")
def test_figure_4() -> None:
    made = make("robust-fig4")
    one, ten = (row[4] for row in made.grids[0].rows)
    assert ten is not None
    assert one is None or ten < one
    work, sent = zip(*made.numbers["costs"].values(), strict=True)
    assert list(work) == sorted(work, reverse=True)
    assert list(sent) == sorted(sent)


def test_pursuit_by_partial_and_full_decompositions() -> None:
    """The partial decomposition shrinks as the full one, also when more singular values are above the threshold than expected."""
    rng = np.random.default_rng(0)
    A = (rng.normal(size=(120, 12)) * np.linspace(9, 3, 12)) @ rng.normal(size=(12, 100)) + 0.01 * rng.normal(size=(120, 100))
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    for threshold in (s[3] + 1e-3, s[11] + 1e-3, 1.0):
        exact = (U * np.maximum(s - threshold, 0)) @ Vt
        shrunk, rank = shrink_singular_values(A, threshold, expected=2)
        assert rank == (s > threshold).sum()
        np.testing.assert_allclose(shrunk, exact, atol=1e-6 * s[0])


@pytest.mark.parametrize("method", [inexact_alm, apgm])
def test_the_pursuits_solve_the_convex_problem(method: Any) -> None:
    """Both end at the same minimum, below that of the generated parts or equal to it."""
    (rows,), (low_rank,), (sparse,) = (list(part.values()) for part in corrupted_problem(50, 60, 2, 0.05, seed=1))
    found = method(rows)
    weight = 1 / np.sqrt(60)

    def value(L: Any, S: Any) -> float:
        return float(np.linalg.svd(L, compute_uv=False).sum() + weight * np.abs(S).sum())

    assert found.residual < 1e-5
    assert value(found.low_rank, rows - found.low_rank) <= value(low_rank, sparse) * (1 + 1e-4)
