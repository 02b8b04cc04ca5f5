"""Text tables: what is found out, what is said, what is asked; the same bits by every reader."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from eigenpact.data import text_blocks, text_bytes
from eigenpact.data.description import Description
from eigenpact.data.readers import read_sites, read_table
from eigenpact.errors import FileError, InputError, MissingExtraError, ProblemsError
from eigenpact.numerics.sources import RowSource

pyarrow = pytest.importorskip("pyarrow")
zstandard = pytest.importorskip("zstandard")


@pytest.fixture
def write(tmp_path):
    def put(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put


@pytest.fixture(params=["pyarrow", "numpy"])
def reader(request, monkeypatch):
    """Both readers: with pyarrow and as if it were not installed."""
    if request.param == "numpy":
        monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    return request.param


def test_the_numpy_reader_is_taken_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    monkeypatch.setattr(text_blocks.BlockReader, "_slowly", None)
    assert read_table(write("id,a\np,1\nq,2\n")).row_ids == ("p", "q")
    assert read_table(write("who,a\np,1\nq,2\n")).row_ids == ("p", "q")
    assert read_table(write("a,b\r\n1,2\r\n\r\n3,4\r\n")).X.shape == (2, 2)
    assert_array_equal(read_table(write("a;b\n1,5;2\n0,25;4\n")).X, [[1.5, 2], [0.25, 4]])


def test_pyarrow_needs_the_slow_reader_for_nothing_usual(write, monkeypatch):
    monkeypatch.setattr(text_blocks.BlockReader, "_slowly", None)
    text = 'id;a;"b";town\np;1,5;NA;"K;1"\nq;;-2e3;\xe9\n'
    said = Description(labels=("town",), encoding="latin-1", missing_in={"b": ("?",)})
    table = read_table(write(text.encode("latin-1")), said)
    assert_array_equal(table.X, [[1.5, np.nan], [np.nan, -2000]])
    assert dict(table.texts) == {"town": ("K;1", "\xe9")}


@pytest.mark.parametrize(
    ("text", "name", "X", "notes"),
    [
        ("a;b\n1;2\n", "t.csv", [[1, 2]], ["line 1: cells are separated by a semicolon"]),
        ("a|b\n1|2\n", "t.csv", [[1, 2]], ["line 1: cells are separated by a bar"]),
        ("a\tb\n1\t2\n", "t.txt", [[1, 2]], ["line 1: cells are separated by a tab"]),
        ("a,b\n1,2\n", "t.tsv", [[1, 2]], ["line 1: cells are separated by a comma"]),
        ("a\tb\n1\t2\n", "t.tsv", [[1, 2]], []),
        (
            "a;b\n1;2\n7;0,25\n",
            "t.csv",
            [[1, 2], [7, 0.25]],
            ["line 1: cells are separated by a semicolon", "line 3, column 2: numbers have a decimal comma, such as 0,25"],
        ),
        ("1,5;2\n3,5;4\n", "t.csv", [[1.5, 2], [3.5, 4]], None),
        ("1.5;2\n3.5;4\n", "t.csv", [[1.5, 2], [3.5, 4]], ["line 1: cells are separated by a semicolon"]),
    ],
)
@pytest.mark.usefixtures("reader")
def test_the_form_is_found_out_and_said(write, text, name, X, notes):
    table = read_table(write(text, name))
    assert_array_equal(table.X, X)
    assert notes is None or list(table.notes) == notes


@pytest.mark.parametrize(("encoding", "note"), [("utf-8", ()), ("utf-8-sig", ()), ("utf-16", ("it is written in UTF-16",))])
@pytest.mark.usefixtures("reader")
def test_encodings_that_are_known(write, encoding, note):
    table = read_table(write("id,größe\nä,1.5\n".encode(encoding)))
    assert (table.feature_names, table.row_ids, table.X.tolist()) == (("größe",), ("ä",), [[1.5]])
    assert table.notes == note


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("id,a,größe\np,1,2\n".encode("latin-1"), r"line 1, column 3: byte 0xf6 is not UTF-8 \(in cp1252 it is 'ö'\)"),
        (b"id,a\np,1\nq\x81,2\n", 'line 3, column 1: byte 0x81 is not UTF-8 .*encoding = "latin-1"'),
        ("a,b\n1,2\n".encode("utf-16-le"), 'looks like UTF-16 .*encoding = "utf-16-le"'),
        (b"a;b\n1,234;5\n", r"line 2, column 1: \"1,234\" may be 1.234 or 1234"),
        (b"a;b\n1.234;5\n", r"line 2, column 1: \"1.234\" may be 1.234 or 1234"),
        (b"1;2,3\n4;5,6\n", None),
        (b"1;2|3;4\n5;6|7;8\n", r"may be separated by a semicolon \(3 columns\) or a bar \(2 columns\)"),
        (b'a,b\n1,"2,5"\n', r"line 2, column 2 \('b'\): '2,5' is not a number; .*decimal = \",\""),
        (
            b'age,chol\n"1,234",5\n',
            r"'1,234' is not a number; it may be 1.234 or 1234: if 1.234, .*decimal = .*; if 1234, save the",
        ),
        (b'a,b\n1,"1,234.5"\n', r"'1,234.5' is not a number; its commas group thousands: save the file without them"),
        (b'a,b\n1,"1,234,567"\n', r"'1,234,567' is not a number; its commas group thousands"),
        (b"a;b\n1,5;2\n1.500,5;2\n", r"line 3, column 1 \('a'\): '1.500,5' is not a number; numbers here have a decimal comma"),
        (b"a;b\n1 234,5;2\n3 456,5;4\n", r"'1 234,5' is not a number; its blanks or apostrophes group thousands"),
        (b"a;b\n1'234.5;2\n3'456.5;4\n", r"\"1'234.5\" is not a number; its blanks or apostrophes group thousands"),
        (b"0,1,2\n3.5,2,1\n4,5,6\n", "line 1: 0, 1, 2, ... may be names of columns or a row of numbers; .*header = true or"),
        (b"2019,2020,2021\n3.5,2,1\n", "line 1: 2019, 2020, 2021, ... may be names of columns"),
        (b"Our study\n\na,b\n1,2\n3,4\n", r"line 1: it has 1 cell, line 3 has 2: delete what stands above the header"),
        (b"a,b\n1,?\n", r"line 2, column 2 \('b'\): '\?' is not a number; .*missing = \[\"\?\"\]"),
        (b"1,?\n3,4\n", "line 1: .*neither a row of numbers nor a header"),
        (b"a,b\n1,2\n-,4\n", r"column 1 \('a'\): '-' is not a number; .*missing = \[\"-\"\]"),
    ],
)
@pytest.mark.usefixtures("reader")
def test_what_is_doubtful_is_asked(write, content, told):
    if told is None:  # one reading is whole: decimal commas
        assert_array_equal(read_table(write(content)).X, [[1, 2.3], [4, 5.6]])
        return
    with pytest.raises(InputError, match=told):
        read_table(write(content))


@pytest.mark.usefixtures("reader")
@pytest.mark.usefixtures("reader")
def test_a_first_line_that_counts_up_is_what_is_said(write):
    path = write(b"0,1,2\n3.5,2,1\n4,5,6\n")
    table = read_table(path, Description(header=True))
    assert (table.feature_names, table.X.tolist()) == (("0", "1", "2"), [[3.5, 2, 1], [4, 5, 6]])
    assert read_table(path, Description(header=False)).X.shape == (3, 3)
    assert read_table(write(b"0,1,2\n3,4,5\n")).X.shape == (2, 3)  # all lines count up
    assert read_table(write(b"61,130,220\n48,120,3\n")).X.shape == (2, 3)
    assert read_table(write(b"1,2\n4,3\n")).X.shape == (2, 2)


def test_a_first_column_of_text_that_repeats_is_asked_about(write):
    path = write("sex,a\nmale,1\nfemale,2\nmale,3\n")
    with pytest.raises(ProblemsError, match=r"line 4, column 1 \('sex'\): 'male' stands in lines 2 and 4.*labels = \[\"sex\"\]"):
        read_table(path)
    for said in ({"labels": ["sex"]}, {"categorical": ["sex"]}, {"drop": ["sex"]}):
        table = read_table(path, Description.of(said))
        assert (table.row_ids, table.X.tolist()) == (None, [[1], [2], [3]])
    assert read_table(path, Description(id="sex")).row_ids == ("male", "female", "male")
    with pytest.raises(
        InputError, match=r"the column of row names has 'male' more than once.*--by COLUMN if it tells sites apart"
    ):
        read_table(write("id,a\nmale,1\nmale,2\n"))
    told = read_table(write("sex,a\nmale,1\nmale,2\n"), Description(id="sex")).notes
    assert told == ("names in column 'sex' that stand for several rows: 'male'",)
    assert read_table(write("who,a\nu,1\nv,2\n")).row_ids == ("u", "v")
    with pytest.raises(ProblemsError, match="'120/80' is not a number"):
        read_table(write("bp,a\n120/80,1\n130/80,2\n"))


@pytest.mark.usefixtures("reader")
def test_labels_are_advised_for_columns_of_text_alone(write):
    with pytest.raises(ProblemsError) as caught:
        read_table(write("a,b,c\n1,x,2x0\n2,y,3x0\n2x0,z,4x0\n"))
    advised = [problem for problem in caught.value.problems if "labels = " in problem]
    assert len(caught.value.problems) == 7
    assert len(advised) == 3
    assert all(problem.endswith('describe the file: labels = ["b"]') for problem in advised)


def test_a_description_is_advised_where_it_can_mend(write):
    def advice():
        with pytest.raises(ProblemsError) as caught:
            read_sites([path])
        return caught.value.advice

    path = write("a,b\n1,2\n2x0,3\n")
    assert advice() == ()
    path = write("a,b\n1,2\n?,3\n")
    assert advice() == (f"A description can mend this; begin with: eigenpact describe {path} -o {path}.toml",)
    write('drop = ["b"]\n', "t.csv.toml")
    assert advice() == (f"{path} is described by t.csv.toml: mend it there",)


@pytest.mark.usefixtures("reader")
def test_all_problems_are_told_at_once(write):
    rows = "".join(f"{i},x{i % 20},?\n" for i in range(300))
    with pytest.raises(ProblemsError) as caught:
        read_table(write("a,b,c\n1,2\n" + rows))
    problems = caught.value.problems
    assert "line 2: 2 cells where 3 are expected" in problems[0]
    assert "line 3, column 2 ('b'): 'x0' is not a number" in problems[1]
    assert "line 3, column 3 ('c'): '?' is not a number" in problems[2]
    assert problems[-1].endswith("no more than 12 problems are listed")
    assert sum("'?'" in problem for problem in problems) == 1


@pytest.mark.usefixtures("reader")
def test_a_problem_far_down_has_its_line(write, monkeypatch):
    monkeypatch.setattr(text_bytes, "BLOCK", 1000)
    rows = [f'{i},"{i}"' for i in range(5000)]
    rows[4321] = "1,2x"
    with pytest.raises(InputError, match=r"line 4323, column 2 \('b'\): '2x'"):
        read_table(write("a,b\n" + "\n".join(rows)))


@pytest.mark.usefixtures("reader")
def test_blocks_give_what_one_block_gives(write, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) * 10.0 ** rng.integers(-300, 300, (400, 3))
    text = "id,a,b,c\r\n" + "".join(f'"p\n{i}",{x!r},{y!r},{z!r}\r\n' for i, (x, y, z) in enumerate(X.tolist()))
    monkeypatch.setattr(text_bytes, "BLOCK", 700)
    table = read_table(write(text))
    assert_array_equal(table.X, X)
    assert table.row_ids == tuple(f"p\n{i}" for i in range(400))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv.zst"])
@pytest.mark.usefixtures("reader")
def test_more_rows_than_memory_become_a_source(write, monkeypatch, name):
    monkeypatch.setattr(text_bytes, "BLOCK", 4000)
    X = np.random.default_rng(1).standard_normal((3000, 4))
    sign = "\t" if "tsv" in name else ","
    text = sign.join(["id", *"abcd", "town"]) + "\n" + "".join(
        sign.join([f"p{i}", *map(repr, row), f"t{i % 3}"]) + "\n" for i, row in enumerate(X.tolist())
    )  # fmt: skip
    packed = {"z": gzip.compress, "t": zstandard.ZstdCompressor().compress}.get(name[-1], bytes)(text.encode())
    table = read_table(write(packed, name), Description(labels=("town",), columns=("c", "a")), memory=40_000)
    assert isinstance(table.X, RowSource)
    assert table.X.shape == (3000, 2)
    assert_array_equal(table.X[:], X[:, [2, 0]])
    assert_array_equal(table.X[17:23], X[17:23, [2, 0]])
    assert_array_equal(table.X[np.array([2999, 5])], X[[2999, 5]][:, [2, 0]])
    assert table.row_ids[2998] == "p2998"
    assert list(table.texts["town"][:4]) == ["t0", "t1", "t2", "t0"]
    small = read_table(write(packed, name), memory=1 << 30, description=Description(drop=("town",)))
    assert isinstance(small.X, np.ndarray)


@pytest.mark.usefixtures("reader")
def test_a_description_is_obeyed(write):
    text = "nr;Alter;weight;sex;chol;x\n1;61;70500;m;-9;1\n2;48;81000;f;200,5;2\n"
    said = Description.of(
        {
            "id": "nr",
            "rename": {"Alter": "age"},
            "columns": ["weight", "age", "chol"],
            "units": {"weight": {"unit": "kg", "factor": 0.001}, "age": "years"},
            "missing_in": {"chol": [-9]},
            "categorical": ["sex"],
            "decimal": ",",
            "separator": "semicolon",
        }
    )
    table = read_table(write(text), said)
    assert table.feature_names == ("weight", "age", "chol")
    assert table.row_ids == ("1", "2")
    assert_array_equal(table.X, [[70500 * 0.001, 61, np.nan], [81000 * 0.001, 48, 200.5]])
    assert dict(table.texts) == {"sex": ("m", "f")}


def test_a_toml_beside_the_file_describes_it(write):
    path = write("a;b\n1,234;?\n")
    write('decimal = ","\nmissing = ["?"]\n', "t.csv.toml")
    table = read_table(path)
    assert_array_equal(table.X, [[1.234, np.nan]])
    assert table.notes[0] == "it is described by t.csv.toml"
    write('decimal = "."\nmissing = ["?"]\n', "t.csv.toml")
    with pytest.raises(InputError, match="'1,234' is not a number"):
        read_table(path)


@pytest.mark.usefixtures("reader")
def test_columns_of_a_file_without_a_header(write):
    table = read_table(write("1,2\n3,4\n"), Description(columns=("b", "a")))
    assert (table.feature_names, table.X.tolist()) == (("b", "a"), [[1, 2], [3, 4]])
    with pytest.raises(InputError, match="no header, so that its 2 columns have no names"):
        read_table(write("1,2\n3,4\n"), Description(drop=("b",)))
    assert read_table(write("id,400.5,401\np,1,2\n"), Description(header=True)).feature_names == ("400.5", "401")
    assert_array_equal(read_table(write("1,?\n3,4\n"), Description(header=False, missing=("?",))).X, [[1, np.nan], [3, 4]])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"columns": ["trestbps"]}, r"columns names 'trestbps', which is no column \(did you mean 'trest_bps'\?\)"),
        ({"rename": {"trestbps": "x"}}, r"rename names 'trestbps', .*did you mean 'trest_bps'"),
        ({"id": "pid"}, "id names 'pid'"),
        ({"units": {"kg": "kg"}}, "units names 'kg'"),
        ({"missing_in": {"c": [0]}}, "missing_in names 'c'"),
        ({"labels": ["town"]}, r"labels \(or --by\) names 'town'"),
        ({"drop": ["town"]}, "drop names 'town'"),
        ({"drop": ["age", "trest_bps"]}, "no column is left"),
    ],
)
def test_columns_that_are_not_there(write, said, told):
    with pytest.raises(InputError, match=told):
        read_table(write("age,trest_bps\n1,2\n"), Description.of(said))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (",x,,y", {}),
        ("id,x,id,y", {}),
        ("id,x,id,y", {"id": "id"}),
        ("id,x,x,y", {"drop": ["x"]}),
        ("id,x,x,y", {"labels": ["x"]}),
        ("id,x,x,y", {"categorical": ["x"], "columns": ["y"]}),
        ("id,x,x,y", {"columns": ["x", "y"]}),
        ("id,x,id,y", {"id": "id", "columns": ["x", "y"]}),
        ("id,x,z,y", {"rename": {"z": "id"}}),
    ],
)
@pytest.mark.usefixtures("reader")
def test_columns_of_one_name_are_refused_where_one_is_meant(write, header, said):
    with pytest.raises(InputError, match=r"repeated column names \['(id|x|)'\]; rename .* columns = "):
        read_table(write(f"{header}\na,1,2,3\nb,4,5,6\n"), Description.of(said))


@pytest.mark.usefixtures("reader")
def test_columns_of_one_name_may_be_left_out(write):
    table = read_table(write("id,x,,y,\na,1,2,3,4\nb,4,5,6,7\n"), Description(columns=("y", "x")))
    assert (table.feature_names, table.row_ids, table.X.tolist()) == (("y", "x"), ("a", "b"), [[3, 1], [6, 4]])


def test_content_that_is_not_text(write):
    workbook = io.BytesIO()
    with zipfile.ZipFile(workbook, "w") as archive:
        archive.writestr("xl/workbook.xml", '<sheets><sheet name="Patients" sheetId="1"/><sheet name="A &amp; B"/></sheets>')
    for name in ("t.csv", "t.xlsx"):
        with pytest.raises(FileError, match=r"is a spreadsheet.*its sheets are 'Patients', 'A & B'.*save it as"):
            read_table(write(workbook.getvalue(), name))
    with pytest.raises(FileError, match="is a spreadsheet in spite of its name"):
        read_table(write(b"\xd0\xcf\x11\xe0nonsense", "t.csv"))
    with pytest.raises(FileError, match="a Parquet file: rename it"):
        read_table(write(b"PAR1nonsense", "t.csv"))
    table = read_table(write(gzip.compress(b"a\n1\n"), "t.csv"))
    assert (table.X.tolist(), table.notes) == ([[1.0]], ("it is compressed by gzip, though its name does not say so",))


def test_zstd_that_is_cut_short_or_not_installed(write, monkeypatch):
    packed = zstandard.ZstdCompressor().compress(b"a,b\n" + b"1,2\n" * 9999)
    for content in (packed[:-5], packed + b"more", b"a,b\n"):
        with pytest.raises(FileError, match="is not a complete zstd file"):
            read_table(write(content, "t.csv.zst"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"eigenpact\[tables\]"):
        read_table(write(packed, "t.csv.zst"))


cells = st.one_of(
    st.floats(width=64).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(["", "NA", " 7 ", "+1", "1e400", "-nan", "1_0", "0x1", "nan(7)", "\u0663", "1,5", "-1.e-3", ".5", "inf",
                     '"3"', '""', "1d5", "?", "\xa01", '"1"2', "\x00", "infinity", "1e-400", "-0", "0000001", "NaN ",
                     "null", "\t1"]),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]))
def test_both_readers_give_the_same(tmp_path_factory, rows, end):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes((end.join(["a;b", *(";".join(row) for row in rows)]) + end).encode())
    said = Description(separator=";", decimal=".", encoding="utf-8")
    outcomes = []
    for module in (pyarrow.csv if hasattr(pyarrow, "csv") else __import__("pyarrow.csv").csv, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "pyarrow.csv", module)
            try:
                outcomes.append(read_table(path, said).X)
            except (InputError, FileError) as error:
                outcomes.append(str(error))
    path.unlink()
    assert isinstance(outcomes[0], str) == isinstance(outcomes[1], str), outcomes
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        assert_array_equal(outcomes[0].view(np.int64)[~np.isnan(outcomes[0])], outcomes[1].view(np.int64)[~np.isnan(outcomes[1])])
        assert_array_equal(outcomes[0], outcomes[1])


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(allow_nan=False), min_size=3, max_size=3), min_size=1, max_size=5), st.sampled_from([".", ","])
)
def test_numbers_have_the_bits_they_were_written_with(tmp_path_factory, rows, decimal):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=";").writerows(
        [["a", "b", "c"], *([repr(x).replace(".", decimal) for x in row] for row in rows)]
    )
    path.write_text(buffer.getvalue())
    table = read_table(path, Description(decimal=decimal, separator=";"))
    path.unlink()
    assert_array_equal(table.X.view(np.int64), np.array(rows).view(np.int64))
