"""Cells that are read as text: categories without marks of missing ones, and numbers written alike from every kind of file."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from eigenpact.data.categories import categories_in, one_hot
from eigenpact.data.description import Description
from eigenpact.data.readers import read_table

SEX = ("f", "NA", "m", "?", "9", "9.0", "", "n/a", "f", "x")


@pytest.mark.parametrize("memory", [None, 40])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_marks_of_missing_cells_are_no_categories(tmp_path, ending, memory):
    path = tmp_path / f"t{ending}"
    if ending == ".csv":
        path.write_text("age,sex,town\n" + "".join(f"{i},{sex},{sex}\n" for i, sex in enumerate(SEX)))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"age": np.arange(10.0), "sex": SEX, "town": SEX}), path)
    said = {"categorical": ["sex"], "labels": ["town"], "missing": ["?"], "missing_in": {"sex": [9, "X"]}}
    table = read_table(path, Description.of(said), memory=memory)
    assert categories_in(table) == {"sex": ("f", "m")}
    expected = np.full((10, 2), np.nan)
    expected[[0, 8]], expected[2] = (1, 0), (0, 1)
    assert_array_equal(one_hot(table, {"sex": ("f", "m")}).X[:][:, 1:], expected)
    assert list(table.texts["town"]) == list(SEX)
    assert list(table.texts["sex"][1:3]) == ["", "m"]


@pytest.mark.parametrize("memory", [None, 40])
@pytest.mark.parametrize("ending", [".npz", ".parquet"])
@pytest.mark.parametrize("kind", [np.int64, np.float16, np.float32, np.float64])
def test_categories_of_numbers_are_written_alike(tmp_path, ending, kind, memory):
    cells = np.array([1, 2, 9, -0.0, 1, 0.1, np.nan] if np.dtype(kind).kind == "f" else [1, 2, 9, 0, 1, 3, 9]).astype(kind)
    path = tmp_path / f"t{ending}"
    if ending == ".npz":
        np.savez(path, X=np.column_stack([np.ones(7, kind), cells]), feature_names=np.array(["age", "sex"]))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"age": np.ones(7), "sex": cells}), path)
    table = read_table(path, Description.of({"categorical": ["sex"], "missing_in": {"sex": [9]}}), memory=memory)
    expected = ["1", "2", "", "0", "1", *(("0.1", "") if np.dtype(kind).kind == "f" else ("3", ""))]
    assert (list(table.texts["sex"]), table.categorical, table.feature_names) == (expected, ("sex",), ("age",))


def test_decimals_and_long_row_names(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stage = [Decimal("1.00"), Decimal("2.50"), None]
    parquet.write_table(arrow.table({"age": np.ones(3), "stage": stage}), tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet", Description(categorical=("stage",))).texts["stage"]) == ["1", "2.50", ""]
    numbers = [2**53 + 1, 2**53 + 2]
    np.savez(tmp_path / "t.npz", X=np.array([[1, numbers[0]], [2, numbers[1]]]), feature_names=np.array(["age", "nr"]))
    assert read_table(tmp_path / "t.npz", Description(id="nr")).row_ids == tuple(map(str, numbers))
