"""Parquet, Feather and Arrow files."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from eigenpact.data import columnar_files
from eigenpact.data.description import Description
from eigenpact.data.readers import read_table
from eigenpact.errors import FileError, InputError, MissingExtraError
from eigenpact.numerics.sources import RowSource

pa = pytest.importorskip("pyarrow")
feather, parquet = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow.parquet")


@pytest.fixture(params=[".parquet", ".feather", ".arrow"])
def write(request, tmp_path):
    def put(table):
        path = tmp_path / f"t{request.param}"
        if request.param == ".parquet":
            parquet.write_table(table, path, row_group_size=1000)
        elif request.param == ".feather":
            feather.write_feather(table, path, chunksize=1000)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        return path

    return put


def test_numbers_texts_and_gaps(write):
    columns = {"a": pa.array([1, None, 3]), "b": pa.array([True, False, None]), "c": pa.array([0.5, 1.5, 2.5], pa.float32()),
               "town": pa.array(["x", None, "y"]), "kind": pa.array(["u", "v", "u"]).dictionary_encode()}  # fmt: skip
    table = read_table(write(pa.table(columns)))
    assert_array_equal(table.X, [[1, 1, 0.5], [np.nan, 0, 1.5], [3, np.nan, 2.5]])
    assert table.X.dtype == np.float64
    assert table.feature_names == ("a", "b", "c")
    assert {name: tuple(texts) for name, texts in table.texts.items()} == {"town": ("x", "", "y"), "kind": ("u", "v", "u")}
    assert table.notes == ("columns of text are no features: town, kind",)


def test_descriptions(write):
    path = write(pa.table({"g": [1000, -9], "who": ["p", "q"], "x": [1, 2], "when": pa.array([1, 2], pa.timestamp("s"))}))
    with pytest.raises(InputError, match=r"column 4 \('when'\): it is of type timestamp.*drop = \[\"when\"\]"):
        read_table(path)
    said = Description.of({"columns": ["kg"], "rename": {"g": "kg"}, "id": "who", "missing": [-9],
                           "units": {"kg": {"unit": "kg", "factor": 0.001}}})  # fmt: skip
    table = read_table(path, said)
    assert_array_equal(table.X, [[1000 * 0.001], [np.nan]])
    assert (table.feature_names, table.row_ids) == (("kg",), ("p", "q"))
    with pytest.raises(InputError, match=r"columns names 'gg'"):
        read_table(path, Description(columns=("gg",)))


def test_more_rows_than_memory_become_a_source(write, monkeypatch):
    monkeypatch.setattr(columnar_files, "BATCH", 4000)
    X = np.random.default_rng(0).standard_normal((5000, 3))
    path = write(pa.table({name: X[:, j] for j, name in enumerate("abc")} | {"id": [f"p{i}" for i in range(5000)]}))
    table = read_table(path, Description(id="id"), memory=30_000)
    assert isinstance(table.X, RowSource)
    assert_array_equal(table.X[:], X)
    assert table.row_ids[4999] == "p4999"
    assert isinstance(read_table(path, Description(id="id")).X, np.ndarray)


def test_the_index_of_pandas_holds_row_ids(write):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [0.5, None]}, index=["p", "q"])
    table = read_table(write(pa.Table.from_pandas(frame)))
    assert_array_equal(table.X, [[1, 0.5], [2, np.nan]])
    assert (table.feature_names, table.row_ids) == (("a", "b"), ("p", "q"))
    numbered = read_table(write(pa.Table.from_pandas(frame.reset_index(drop=True).iloc[::-1])))
    assert (numbered.feature_names, numbered.row_ids) == (("a", "b"), None)


def test_damaged_files_and_a_missing_library(write, monkeypatch):
    path = write(pa.table({"a": [1.0, 2.0]}))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match=r"t\.\w+ is not a \w+ file"):
        read_table(path)
    path.write_bytes(b"FEA1" + whole)
    with pytest.raises(FileError, match=r"t\.\w+ is not a \w+ file"):
        read_table(path)
    with pytest.raises(InputError, match="no rows"):
        read_table(write(pa.table({"a": pa.array([], pa.float64())})))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'eigenpact\[tables\]'"):
        read_table(path)
