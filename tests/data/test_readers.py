"""Files become tables; what cannot be read is refused by file, line and column."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from eigenpact.data import array_files, text_bytes
from eigenpact.data.readers import READERS, Table, read_sites, read_table, site_name
from eigenpact.errors import FileError, InputError, InputTypeError


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="north.csv"):
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write_file


@pytest.mark.parametrize(
    ("text", "X", "names", "ids"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None, None),
        ("1,2\r\n3,4", [[1, 2], [3, 4]], None, None),
        ("5\n6\n", [[5], [6]], None, None),
        ("a,b\n1,2\n", [[1, 2]], ("a", "b"), None),
        ("\ufeffa,b\n1,2\n", [[1, 2]], ("a", "b"), None),
        ("\n\na,b\n\n1,2\n\n3,4\n", [[1, 2], [3, 4]], ("a", "b"), None),
        ("a,2020\n1,2\n", [[1, 2]], ("a", "2020"), None),
        ("ID,a\n7,2\n8,3\n", [[2], [3]], ("a",), ("7", "8")),
        (",a\nx,2\n", [[2]], ("a",), ("x",)),
        (",0,1\n0,5,6\n1,7,8\n", [[5, 6], [7, 8]], ("0", "1"), ("0", "1")),
        ("who,a\np1,2\np2,3\n", [[2], [3]], ("a",), ("p1", "p2")),
        ('sample,"a, b"\n"p ""1""",2\np2,3\n', [[2], [3]], ("a, b",), ('p "1"', "p2")),
        ("a,b\n,2\nNA,NaN\n1, na \n", [[np.nan, 2], [np.nan, np.nan], [1, np.nan]], ("a", "b"), None),
        (",2\n3,4\n", [[np.nan, 2], [3, 4]], None, None),
        ('"1","-2e3"\n', [[1, -2000]], None, None),
        ("a\ninf\n-Infinity\n", [[np.inf], [-np.inf]], ("a",), None),
    ],
)
def test_csv_layouts(write, text, X, names, ids):
    table = read_table(write(text))
    assert table.X.dtype == np.float64
    assert_array_equal(table.X, np.array(X, dtype=float))
    assert table.feature_names == names
    assert table.row_ids == ids


@pytest.mark.parametrize(("name", "separator"), [("n.tsv", "\t"), ("n.tsv.gz", "\t"), ("n.csv.gz", ","), ("N.CSV", ",")])
def test_separators_and_compression(write, name, separator):
    text = "id,a,b\nx,1,2\n".replace(",", separator)
    table = read_table(write(text, name))
    assert_array_equal(table.X, [[1.0, 2.0]])
    assert table.row_ids == ("x",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", r"north.csv, line 3, column 2 \('b'\): 'x' is not a number"),
        ("1,2\n3,x\n", "line 2, column 2: 'x'"),
        ("a,b\n1,2\nx,3\n", r"line 3, column 1 \('a'\): 'x' is not a number.*first cell is 'id'"),
        ("id,a\np,1\nq,1_000\n", r"line 3, column 2 \('a'\): '1_000'"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells where 2 are expected"),
        ("a,b\n1,2,3\n", "line 2: 3 cells where 2"),
        ("id,a,b\np,1,2\nq,1\n", "line 3: 2 cells where 3"),
        ("who,a\np1,1\n17,2\n", "line 3, column 1: '17' is a number where other lines have text such as 'p1'"),
        ("p1,0.5,0.5\np2,1,2\n", "line 1: .*neither a row of numbers nor a header"),
        ("a,a\n1,2\n", r"repeated column names \['a'\]"),
        ("a,b\n", "a header and no rows"),
        ("a,b\n1,2\x00\n", "north.csv"),
    ],
)
def test_bad_cells_are_named(write, text, message):
    with pytest.raises(InputError, match=message):
        read_table(write(text))


numbers = st.floats(width=64)


@settings(deadline=None)
@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.lists(numbers, min_size=k, max_size=k), min_size=1, max_size=6)))
@pytest.mark.parametrize("header", [None, "names", "ids", "text ids"])
def test_csv_round_trip(tmp_path_factory, header, rows):
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    names = tuple(f"f{j}" for j in range(len(rows[0])))
    lead = {"ids": ["id"], "text ids": ["who"]}.get(header, [])
    if header is not None:
        writer.writerow([*lead, *names])
    for i, row in enumerate(rows):
        cells = ["" if np.isnan(value) and len(row) > 1 else repr(value) for value in row]
        writer.writerow([*([f"p{i}"] if lead else []), *cells])
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(buffer.getvalue())
    try:
        table = read_table(path)
    finally:
        path.unlink()
    assert_array_equal(table.X, np.array(rows))
    assert table.feature_names == (names if header else None)
    assert table.row_ids == (tuple(f"p{i}" for i in range(len(rows))) if lead else None)


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"", "n.csv", "is empty"),
        (b"", "n.npy", "is empty"),
        (b"\n\n", "n.csv", "is empty"),
        (b"1,2\n", "n.doc", r"unknown extension; allowed are .*\.csv, .*\.npy"),
        (b"1,2\n", "n.xlsx", 'is a spreadsheet, which is not read; .*save it as "CSV UTF-8"'),
        (b"1,2\n", "csv", "unknown extension"),
        (b"a,b\n\xff\xfe,2\n", "n.csv", "not UTF-8"),
        (b"1,2\n1,\xff\n", "n.csv", "not UTF-8"),
        (b"1,2\n", "n.npy", "not a .npy file"),
        (b"1,2\n", "n.npz", "not a .npz file"),
        (b"PK\x03\x04nonsense", "n.npz", "not a .npz file"),
    ],
)
def test_unreadable_files_are_named(write, data, name, message):
    with pytest.raises(FileError, match=message):
        read_table(write(data, name))


@pytest.mark.parametrize("name", ["CEU", "CEU.bim", "CEU.fam"])
def test_the_file_beside_that_is_read_is_suggested(write, name):
    meant = write(b"x", "CEU.bed")
    with pytest.raises(FileError, match=f"unknown extension; did you mean {re.escape(str(meant))}\\?; allowed are"):
        read_table(write(b"x", name))
    with pytest.raises(FileError, match="unknown extension; allowed are"):
        read_table(write(b"x", "YRI.bim"))


def test_missing_files_folders_and_broken_gzip(tmp_path):
    with pytest.raises(FileError, match=r"none\.csv does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        read_table(tmp_path / "folder.csv")
    (tmp_path / "plain.csv.gz").write_bytes(b"1,2\n")
    (tmp_path / "torn.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 1000)[:-9])
    for name in ("plain.csv.gz", "torn.csv.gz"):
        with pytest.raises(FileError, match="not a complete gzip file"):
            read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("given_dtype", "dtype"),
    [("f8", "f8"), ("f4", "f4"), ("f2", "f4"), (">f8", "f8"), (">f4", "f4"), ("i4", "f8"), ("u1", "f8"), ("?", "f8")],
)
def test_npy_types(tmp_path, given_dtype, dtype):
    X = np.array([[0, 1], [1, 1]], dtype=given_dtype)
    np.save(tmp_path / "a.npy", X)
    table = read_table(tmp_path / "a.npy")
    assert table.X.dtype == np.dtype(dtype)
    assert table.X.dtype.isnative
    assert_array_equal(table.X, X.astype(dtype))
    assert table.feature_names is None


def test_npy_content_is_checked(tmp_path):
    for X, error, message in (
        (np.ones(3), InputError, r"shape \(3,\)"),
        (np.ones((0, 3)), InputError, "at least one row"),
        (np.array([["a"]]), InputTypeError, "site 'a': X has dtype"),
        (np.ones((1, 1), dtype=complex), InputError, "Complex"),
    ):
        np.save(tmp_path / "a.npy", X)
        with pytest.raises(error, match=message):
            read_table(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(FileError, match=r"not a \.npy file of numbers"):
        read_table(tmp_path / "a.npy")


def test_npz_forms(tmp_path):
    X = np.arange(6.0).reshape(2, 3)
    path = tmp_path / "a.npz"
    np.savez(path, anything=X)
    assert_array_equal(read_table(path).X, X)
    np.savez(path, X=X, other=X + 1, feature_names=np.array(["a", "b", "c"]), row_ids=np.array(["p", "q"]))
    table = read_table(path)
    assert_array_equal(table.X, X)
    assert (table.feature_names, table.row_ids) == (("a", "b", "c"), ("p", "q"))
    np.savez(path, table=X, labels=np.ones(2))
    assert_array_equal(read_table(path).X, X)
    np.savez(path, one=X, two=X)
    with pytest.raises(InputError, match=r"one \(2, 3\), two \(2, 3\); name the table 'X'"):
        read_table(path)
    np.savez(path, X=X, feature_names=np.array(["a"]))
    with pytest.raises(InputError, match="1 feature_names for a table of shape"):
        read_table(path)


def test_files_with_the_other_numpy_ending(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(FileError, match=r"rename it to end in \.npz"):
        read_table(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.ones((2, 2)))
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    assert read_table(tmp_path / "b.npz").X.shape == (2, 2)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_sparse_npz_stays_sparse(tmp_path, kind):
    X = np.array([[0, 2.0], [0, 0]])
    sparse.save_npz(tmp_path / "a.npz", kind(X))
    table = read_table(tmp_path / "a.npz")
    assert sparse.issparse(table.X)
    assert table.X.format == "csr"
    assert_array_equal(table.X.toarray(), X)


def test_sparse_npz_that_stores_an_entry_twice(tmp_path):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_matrix(([1.0, 2.0], [1, 1], [0, 2]), shape=(1, 2)))
    X = read_table(tmp_path / "a.npz").X
    assert X.nnz == 1
    assert_array_equal(X.toarray(), [[0, 3]])


def test_corrupt_sparse_npz_is_refused(tmp_path):
    bad = {"indices": [5], "indptr": [0, 1], "format": b"csr", "shape": [1, 2], "data": [1.0]}
    np.savez(tmp_path / "a.npz", **{key: np.array(value) for key, value in bad.items()})
    with pytest.raises(FileError, match=r"a\.npz"):
        read_table(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("path", "name"),
    [("x/north.csv", "north"), ("north.tsv.gz", "north"), (Path("a.2020.csv"), "a.2020"), ("B.NPZ", "B"), ("c.xlsx", "c")],
)
def test_site_name(path, name):
    assert site_name(path) == name


def test_read_sites_names_and_order(write, tmp_path):
    south, north = write("1\n", "south.csv"), write("2\n", "north.csv")
    sites = read_sites([str(south), north, f"east={north}"])
    assert list(sites) == ["south", "north", "east"]
    assert all(isinstance(table, Table) for table in sites.values())
    assert sites["east"].X.tolist() == [[2.0]]
    equals = write("3\n", "k=3.csv")
    assert list(read_sites([str(equals)])) == ["k=3"], "an existing file wins over name=path"
    with pytest.raises(InputError, match=r"two sites are named 'north'.*name=path"):
        read_sites([north, tmp_path / "other" / "north.csv"])


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        ([], InputError, "no paths"),
        ("a.csv", InputTypeError, "one path"),
        (["=a.csv"], InputError, "not name=path"),
        (["north="], InputError, "not name=path"),
    ],
)
def test_bad_lists_of_paths(paths, error, message):
    with pytest.raises(error, match=message):
        read_sites(paths)


# -- files that somebody made to do harm --------------------------------------------------------


def npy_header(shape, dtype="<f8"):
    """The first bytes of a .npy file that claims this shape."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@contextmanager
def little_memory(most):
    """Peak memory that Python and numpy take inside must stay below so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("start", "unit", "told"),
    [
        (b"", b"1" * 1000, "a line of more than 1048576 bytes; if it is a table, save it as .npy"),
        (b"a,b\n", b"11,", "a line of more than"),
        (b"a,b\n1,2\n", b"\n", "unfold to .* over 200 times as many; if it is a table, unfold it with gunzip or unzstd first"),
        (b'a,b\n1,2\n1,"', b"1,2\n", r"line 3: a quote .* is not closed within 1048576 bytes"),
        (b"a,b\n1,2\n", b"1,2\n", "over 200 times"),
    ],
    ids=["one cell", "cells", "blank lines", "a quote that is not closed", "rows"],
)
def test_small_files_that_unfold_to_large_ones(tmp_path, start, unit, told, monkeypatch):
    monkeypatch.setattr(array_files, "UNHINDERED", 1 << 21)
    monkeypatch.setattr(text_bytes, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(text_bytes, "BLOCK", 1 << 19)
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(start)
        for _ in range(40):
            file.write(unit * ((1 << 20) // len(unit)))
    with little_memory(1 << 24), pytest.raises(InputError, match=told):
        read_table(path)


def test_tables_that_unfold_a_hundredfold_are_read(tmp_path):
    X = (np.random.default_rng(0).random((2000, 500)) < 0.01).astype(float)
    path = tmp_path / "rare.csv.gz"
    path.write_bytes(gzip.compress("\n".join(",".join(str(int(x)) for x in row) for row in X).encode(), 9))
    assert_array_equal(read_table(path).X, X)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (npy_header((10**15, 2)), "needs 16000000000000000 bytes, and 0 are there"),
        (npy_header((10, 2)) + b"1234", "needs 160 bytes, and 4 are there"),
        (npy_header((1 << 61, 1 << 61)), "needs"),
        (npy_header((-1, 2)), "its shape is none"),
        (npy_header("7"), "its shape is none"),
        (npy_header((1,), "|O") + b"cos\nsystem\n", "its dtype '|O' is of Python objects, not numbers"),
        (npy_header((2,), "<M8[s]") + bytes(16), "neither of numbers nor of texts"),
        (npy_header((1 << 60,), "<U0"), "neither of numbers"),
        (npy_header((1,), "<f7") + bytes(7), "its dtype '<f7' is unknown"),
        (npy_header("(" * 3000 + "1,)"), "its header cannot be read"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"(" * 10000, "its header has 2147483648 bytes"),
        (b"\x93NUMPY\x09\x00", "does not begin as an array saved by numpy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_arrays_that_are_not_what_they_claim(tmp_path, content, told, ending):
    path = tmp_path / f"t{ending}"
    if ending == ".npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", content)
    with little_memory(1 << 20), pytest.raises(FileError, match=f"is not a {ending} file of numbers.*{re.escape(told)}"):
        read_table(path)


def test_archives_that_are_not_what_they_claim(tmp_path):
    path = tmp_path / "t.npz"

    def refused(told):
        with little_memory(4 << 20), pytest.raises(FileError, match=told):
            read_table(path)

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
        member.write(npy_header((100 << 17, 1)))
        for _ in range(100):
            member.write(bytes(1 << 20))
    refused("array 'X': .* bytes unfold to .*save it without compression")
    np.savez(path, X=np.ones((3, 2)))
    good = path.read_bytes()
    path.write_bytes(
        good.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0").replace(b"PK\1\2-\3-\0\0\0", b"PK\1\2-\3-\0\1\0")
    )
    refused("encrypted")
    path.write_bytes(good[:-30])
    refused("not a zip file")
    path.write_bytes(good[:150] + bytes([good[150] ^ 1]) + good[151:])
    refused("Bad CRC-32")
    path.write_bytes(b"PK\1\2" * 5000)
    refused("it lists more than 4096 arrays")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"")
        archive.writestr("X", b"")
    refused("two arrays of one name")
    np.savez(path, X=np.ones((1, 1)), feature_names=np.array([0xD800], np.uint32).view("<U1"))
    refused("what is no character")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"indices": np.array([9999] * 10, np.int32)}, "indices must be < 4"),
        ({"indptr": np.array([0, 9, 3, 4, 5, 10], np.int32)}, "non-decreasing"),
        ({"indptr": np.array([0, 2, 4, 6, 8, 2**31 - 1], np.int32)}, "do not fit together"),
        ({"indices": np.zeros(10)}, "its array 'indices' is of dtype float64"),
        ({"shape": np.array([5, 2**62])}, "its shape is"),
        ({"shape": np.array([5])}, "its shape is"),
        ({"shape": np.array([-5, 4])}, "its shape is"),
        ({"data": np.array(["x"] * 10)}, "its entries are of dtype"),
        ({"format": np.array("os.system")}, "its format is 'os.system'; allowed are csr, csc, bsr, coo, dia"),
        ({"format": np.array([])}, "its format is ''"),
        ({"format": np.array("csc")}, "do not fit together"),
        ({"format": np.array("coo")}, "it has no array 'row'"),
        ({"format": np.array("coo"), "row": np.full(10, 5), "col": np.zeros(10, int)}, "do not fit together"),
        ({"format": np.array("dia"), "offsets": np.arange(3)}, "do not fit together"),
    ],
)
def test_sparse_matrices_whose_parts_do_not_fit(tmp_path, changes, told):
    path = tmp_path / "t.npz"
    sparse.save_npz(path, sparse.random(5, 4, 0.5, format="csr", random_state=0))
    with np.load(path) as archive:
        parts = dict(archive) | changes
    np.savez(path, **parts)
    with little_memory(1 << 20), pytest.raises(FileError, match=told):
        read_table(path)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "dia"])
def test_all_formats_of_scipy_are_read(tmp_path, form):
    X = sparse.random(6, 4, 0.4, format=form, random_state=0)
    sparse.save_npz(tmp_path / "t.npz", X)
    assert_array_equal(read_table(tmp_path / "t.npz").X.toarray(), X.toarray())


def test_parquet_that_is_none_or_unfolds_without_end(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + bytes(range(100)) + b"PAR1")
    with pytest.raises(FileError, match="is not a parquet file"):
        read_table(path)
    pandas.DataFrame({"a": np.zeros(300_000)}).to_parquet(path)
    assert read_table(path).X.shape == (300_000, 1)
    monkeypatch.setattr(array_files, "UNHINDERED", 1 << 20)
    with pytest.raises(InputError, match=r"unfold to 24.* save it as \.npy"):
        read_table(path)


@pytest.mark.parametrize("ending", READERS)
def test_pipes_and_folders_are_not_waited_for(tmp_path, ending):
    os.mkfifo(tmp_path / f"pipe{ending}")
    with pytest.raises(FileError, match="is a pipe, not a file"):
        read_table(tmp_path / f"pipe{ending}")
    np.savetxt(tmp_path / "north.csv", np.ones((2, 2)), delimiter=",")
    (tmp_path / "link.csv").symlink_to(tmp_path / "north.csv")
    assert read_table(tmp_path / "link.csv").X.shape == (2, 2)
