"""A column of weights in a site's file: not a feature, checked, and carried to whoever fits or serves the site."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eigenpact.data.description import Description
from eigenpact.data.readers import read_table
from eigenpact.data.site_rows import open_rows
from eigenpact.errors import InputError
from eigenpact.numerics.sources import RowSource
from eigenpact.numerics.weighted import Weighted

DATA = pd.DataFrame(
    {"id": ["a", "b", "c", "d"], "age": [1.0, 2.0, 3.0, 4.0], "w": [1.5, 0.0, 2.0, 1.0], "bmi": [5.0, 6.0, 7.0, 9.0]}
)


@pytest.fixture(params=["a.csv", "a.parquet", "a.npz", "a.tsv"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    if path.suffix == ".csv":
        DATA.to_csv(path, index=False, sep=";", decimal=",")
    elif path.suffix == ".tsv":
        DATA.to_csv(path, index=False, sep="\t")
    elif path.suffix == ".parquet":
        DATA.to_parquet(path)
    else:
        names = ["age", "w", "bmi"]
        np.savez(path, X=np.ascontiguousarray(DATA[names]), feature_names=names, row_ids=np.array(DATA["id"].tolist()))
    return path


@pytest.mark.parametrize("columns", [None, ("bmi", "age"), ("w", "bmi", "age")])
@pytest.mark.parametrize("memory", [None, 8])
def test_weights_are_taken_out_of_the_features(file: Path, columns: tuple[str, ...] | None, memory: int | None) -> None:
    table = read_table(file, Description(weights="w", columns=columns), memory=memory)
    assert table.weights is not None
    assert table.weights.tolist() == [1.5, 0.0, 2.0, 1.0]
    wanted = ["age", "bmi"] if columns is None else ["bmi", "age"]
    assert list(table.feature_names or ()) == wanted
    X = table.X[:] if isinstance(table.X, RowSource) else table.X
    assert np.array_equal(X, DATA[wanted].to_numpy())


def test_a_site_s_rows_have_the_weights_of_its_description(file: Path) -> None:
    Path(f"{file}.toml").write_text('weights = "w"\n' + ('separator = ";"\ndecimal = ","\n' if file.suffix == ".csv" else ""))
    rows = open_rows("A", str(file), ("bmi", "age"))
    assert isinstance(rows, Weighted)
    assert rows.weights.tolist() == [1.5, 2.0, 1.0]
    X = rows.rows[:] if isinstance(rows.rows, RowSource) else rows.rows
    assert X.tolist() == [[5.0, 1.0], [7.0, 3.0], [9.0, 4.0]]


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "north.csv"
    path.write_text("age,w,bmi\n1,1,3\n2,-1,4\n3,1,5\n")
    with pytest.raises(InputError, match=r"site 'north': the column of weights 'w' of row 1 is -1\.0"):
        read_table(path, Description(weights="w"))
    with pytest.raises(InputError, match=r"weights names 'W', which is no column of numbers .did you mean 'w'"):
        read_table(path, Description(weights="W"))
    path.write_text("age,w,bmi\n1,0,3\n2,0,4\n")
    with pytest.raises(InputError, match="'w' is zero for all 2 rows"):
        read_table(path, Description(weights="w"))
    path.write_text("age,w,bmi\n1,,3\n2,1,4\n")
    with pytest.raises(InputError, match="'w' of row 0 is nan"):
        read_table(path, Description(weights="w"))
    with pytest.raises(InputError, match="weights names 'w', as do drop, categorical, labels or id"):
        Description.of({"weights": "w", "labels": ["w"]})
