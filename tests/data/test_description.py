"""Descriptions in TOML: strict, with the key that is wrong and what was perhaps meant."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from eigenpact.data.description import ENCODINGS, SEPARATORS, Description
from eigenpact.data.readers import read_table
from eigenpact.data.suggestion import as_toml
from eigenpact.errors import FileError, InputError
from eigenpact.numerics.sources import RowSource


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"colums": []}, r"unknown key 'colums' \(did you mean 'columns'\?\); known are columns, drop"),
        ({"columns": "age"}, "columns = 'age' must be a list of texts"),
        ({"columns": ["a", "a"]}, "columns names 'a' twice"),
        ({"drop": [1]}, "must be a list of texts"),
        ({"rename": ["a"]}, r"below \[rename\]"),
        ({"rename": {"a": 1}}, "rename: a = 1 must be a text"),
        ({"rename": {"a": "c", "b": "c"}}, "two columns one name"),
        ({"id": ""}, "id = '' must be a text"),
        ({"units": {"a": 1}}, "units: a = 1 must be a unit"),
        ({"units": {"a": {"unit": "kg", "factor": 0}}}, "a number other than zero"),
        ({"units": {"a": {"unit": "kg", "factor": float("nan")}}}, "a number other than zero"),
        ({"missing": "?"}, "list of texts and numbers"),
        ({"missing": [True]}, "list of texts and numbers"),
        ({"missing_in": {"a": "?"}}, "missing_in: a = '\\?' must be a list"),
        ({"decimal": ";"}, r"decimal = ';' is not allowed; allowed are '\.', ','"),
        ({"separator": " "}, "separator = ' ' is not allowed"),
        ({"separator": ",", "decimal": ","}, "both ','"),
        ({"encoding": "utf-7"}, "encoding = 'utf-7' is not allowed; allowed are 'utf-8'"),
        ({"header": 1}, "must be true or false"),
        ({"labels": ["a"], "categorical": ["a"]}, "'a' is named in two of"),
        ({"columns": ["a"], "drop": ["a"]}, "'a' is named in two of"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(facts, told):
    with pytest.raises(InputError, match=told):
        Description.of(facts)


def test_files_that_are_no_descriptions(tmp_path):
    path = tmp_path / "t.toml"
    with pytest.raises(FileError, match=r"t\.toml does not exist"):
        Description.read(path)
    path.write_text("columns = }\n")
    with pytest.raises(InputError, match=r"t\.toml is not a TOML file: .*line 1"):
        Description.read(path)
    path.write_text("header = 3")
    with pytest.raises(InputError, match=r"t\.toml: header = 3 must be"):
        Description.read(path)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
some = st.lists(names, unique=True, max_size=3).map(tuple)


@settings(deadline=None, max_examples=40)
@given(
    st.builds(
        Description,
        columns=st.none() | some,
        rename=st.dictionaries(names, st.uuids().map(str), max_size=2),
        id=st.none() | names,
        units=st.dictionaries(names, st.tuples(names, st.floats(0.001, 1000)), max_size=2),
        missing=some,
        missing_in=st.dictionaries(names, some, max_size=2),
        encoding=st.none() | st.sampled_from(ENCODINGS),
        separator=st.none() | st.sampled_from(sorted(SEPARATORS)),
        header=st.none() | st.booleans(),
        dataset=st.none() | names,
    ),
    st.lists(st.text(max_size=9), max_size=2),
)
def test_what_is_written_reads_back(said, remarks):
    assert Description.of(tomllib.loads(as_toml(said, remarks))) == said


def test_arrays_and_sparse_matrices_are_described_too(tmp_path):
    X = np.array([[1.0, 2.0, -9.0], [3.0, 4.0, 5.0]])
    np.savez(tmp_path / "t.npz", X=X, feature_names=np.array(["g", "code", "b"]))
    said = Description.of({"columns": ["b", "grams"], "rename": {"g": "grams"}, "id": "code", "missing": [-9],
                           "units": {"grams": {"unit": "kg", "factor": 0.001}}})  # fmt: skip
    table = read_table(tmp_path / "t.npz", said)
    assert_array_equal(table.X, [[np.nan, 1.0 * 0.001], [5.0, 3.0 * 0.001]])
    assert (table.feature_names, table.row_ids) == (("b", "grams"), ("2", "4"))
    np.save(tmp_path / "t.npy", X)
    assert read_table(tmp_path / "t.npy", Description(columns=("a", "b", "c"))).feature_names == ("a", "b", "c")
    with pytest.raises(InputError, match="columns have no names"):
        read_table(tmp_path / "t.npy", Description(drop=("a",)))
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_array(X))
    with pytest.raises(InputError, match="is sparse; units and missing marks"):
        read_table(tmp_path / "s.npz", Description(columns=("a", "b", "c"), missing=("-9",)))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".feather"])
@pytest.mark.parametrize("memory", [None, 100])
def test_missing_numbers_are_compared_as_the_file_has_them(tmp_path, kind, ending, memory):
    X = np.array([[-99.9, 1.0], [2.5, -99.9], [0.0, 0.1]] * 10, dtype=kind)
    path = tmp_path / f"t{ending}"
    if ending in (".parquet", ".feather"):
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"a": X[:, 0], "b": X[:, 1], "c": np.full(30, -99.9)})
        write = {".parquet": pytest.importorskip("pyarrow.parquet").write_table,
                 ".feather": pytest.importorskip("pyarrow.feather").write_feather}[ending]  # fmt: skip
        write(table, path)
        expected = np.column_stack([X.astype(float), np.full(30, np.nan)])
    else:
        np.save(path, X) if ending == ".npy" else np.savez(path, X=X, feature_names=np.array(["a", "b"]))
        expected = X.astype(float)
    expected[:, :2][kind(-99.9) == X] = np.nan
    expected[kind(0.1) == X[:, 1], 1] = np.nan
    names = ["a", "b"] if ending == ".npy" else None
    said = {"missing": [-99.9, 1e-60], "missing_in": {"b": [0.1, 1e300]}, "units": {"b": {"unit": "m", "factor": 0.3}}}
    expected[:, 1] *= 0.3
    found = read_table(path, Description.of(said | ({"columns": names} if names else {})), memory=memory)
    assert isinstance(found.X, RowSource) == (memory is not None)
    assert_array_equal(found.X[:], expected)
