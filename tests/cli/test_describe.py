"""Hospitals' exports: every problem is named with its place, and the suggested descriptions mend them to the bit."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.data import hospitals

from eigenpact.data.description import Description
from eigenpact.data.readers import read_table
from eigenpact.data.suggestion import as_toml, examine
from eigenpact.errors import DataUnavailableError
from eigenpact.estimators.model_files import load_model


@pytest.fixture
def exports(run):  # noqa: ARG001 - it works in a folder of its own
    try:
        hospitals.tables()
    except DataUnavailableError as error:
        pytest.skip(str(error))
    Path("clean").mkdir()
    Path("messy").mkdir()
    return hospitals.write_clean(Path("clean"), hospitals.USED), hospitals.write_messy(Path("messy"))


def test_four_hospitals(run, exports):
    clean, messy = exports
    assert run("fit", *clean, "-k", 3, "-o", "expected").exit_code == 0
    first = run("fit", *messy, "-k", 3, "-o", "model")
    assert first.exit_code == 2
    assert not Path("model").exists()
    for told in (
        "error: messy/hungarian.csv, line 2, column 14: byte 0xd3 is not UTF-8 (in cp1252 it is 'Ó')",
        "error: messy/switzerland.csv, line 2, column 14: byte 0xfc is not UTF-8",
        "error: messy/hungarian.csv, line 2, column 13 ('thal'): '?' is not a number; if it stands for a missing one",
        "error: messy/va.csv, line 1, column 11 ('trest_bps'): other files have 'trestbps', which this one has not",
        "\nmessy/cleveland.csv, line 1: cells are separated by a semicolon (this is understood)",
        "messy/cleveland.csv, line 2, column 10: numbers have a decimal comma, such as 2,3 (this is understood)",
        "begin with: eigenpact describe messy/cleveland.csv -o messy/cleveland.csv.toml",
    ):
        assert told in first.stderr, told
    for path in messy:
        done = run("describe", path, "-o", f"{path}.toml", "--features", ",".join(hospitals.USED))
        assert done.exit_code == 0, done.stderr
    second = run("fit", *messy, "-k", 3, "-o", "model")
    assert second.exit_code == 0, second.stderr
    got, expected = load_model("model"), load_model("expected")
    assert got.components_.tobytes() == expected.components_.tobytes()
    assert got.explained_variance_.tobytes() == expected.explained_variance_.tobytes()
    assert got.mean_.tobytes() == expected.mean_.tobytes()
    assert tuple(got.feature_names_in_) == hospitals.USED


def test_all_columns_have_the_same_bits_and_the_same_gaps(exports):
    _, messy = exports
    names, found = hospitals.tables()
    for path in messy:
        said = examine(path, names).description
        table = read_table(path, said)
        assert table.feature_names == names
        expected = found[path.stem]
        assert np.array_equal(np.isnan(table.X), np.isnan(expected))
        assert np.nan_to_num(table.X).tobytes() == np.nan_to_num(expected).tobytes()
        assert set(table.texts["hospital"]) == {hospitals.TOWNS[path.stem]}
        assert Description.of(tomllib.loads(as_toml(said))) == said


def write(text: str, name: str = "t.csv") -> Path:
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


def test_what_only_a_person_can_decide(run):
    path = write("id;a;b;town\n1;-9;1,234;x\n2;5;2,345;y\n3;7;9,999;z\n4;-9;1,111;x\n")
    done = run("describe", path)
    assert done.exit_code == 2
    assert 'line 2, column 3: "1,234" may be 1.234 or 1234' in done.stderr
    assert "DECIDE: column 2 ('a'): -9 occurs 2 times, others are from 5 to 7" in done.stdout
    said = tomllib.loads(done.stdout)
    assert "decimal" not in said
    assert said["labels"] == ["town"]
    write('decimal = ","\n' + done.stdout + "\n[missing_in]\na = [-9]\n", "t.csv.toml")
    table = read_table(path)
    np.testing.assert_array_equal(table.X, [[np.nan, 1.234], [5, 2.345], [7, 9.999], [np.nan, 1.111]])


@pytest.mark.parametrize("cells", [('"1.234,5"', '"2.345,6"', '"1.111,0"'), ("<5", ">400", "12"), ("120/80", "130/85", "110/70")])
def test_columns_of_numbers_and_more_are_no_labels(run, cells):
    done = run("describe", write("id,a,x\n" + "".join(f"p{i},{i},{cell}\n" for i, cell in enumerate(cells))))
    assert done.exit_code == 2
    assert "labels" not in tomllib.loads(done.stdout)
    assert "DECIDE: column 3 ('x'): most cells hold numbers and more, such as" in done.stdout
    assert 'drop = ["x"], or keep it as text, labels = ["x"]' in done.stdout


def test_columns_of_names_with_digits_are_labels(run):
    done = run("describe", write("id,a,ward\np,1,w1\nq,2,w2\nr,3,w1\n"))
    assert done.exit_code == 0
    assert tomllib.loads(done.stdout)["labels"] == ["ward"]


def test_a_first_column_of_groups_becomes_labels(run):
    done = run("describe", write("sex,a\nmale,1\nfemale,2\nmale,3\n"))
    assert done.exit_code == 0
    assert "'male' stands in lines 2 and 4" in done.stderr
    assert tomllib.loads(done.stdout)["labels"] == ["sex"]
    assert "id" not in tomllib.loads(done.stdout)


@pytest.mark.parametrize("text", ["a;b\n1,234,567;2\n3,456,789;4\n", "a;b\n1 234,5;2\n3 456,5;4\n", "a;b\n1'234.5;2\n3'456;4\n"])
def test_no_decimal_sign_is_suggested_where_thousands_are_grouped(run, text):
    done = run("describe", write(text))
    assert done.exit_code == 2
    assert "group thousands: save the file without them" in done.stderr
    assert "decimal" not in tomllib.loads(done.stdout)


def test_a_column_that_numbers_the_rows_is_told_and_suggested_as_names(run):
    path = write("age,patient_id,visit_no\n61,101,1\n48,102,2\n55,107,1\n39,110,1\n")
    done = run("fit", path, "-k", 1, "-o", "model")
    assert done.exit_code == 0
    assert "column 2 ('patient_id'): whole numbers, all different, are taken for a feature" in done.stderr
    assert 'id = "patient_id" or drop = ["patient_id"]' in done.stderr
    assert "visit_no" not in done.stderr
    done = run("describe", path)
    assert done.exit_code == 0
    said = tomllib.loads(done.stdout)
    assert said["id"] == "patient_id"
    assert "DECIDE: column 2 ('patient_id'): its whole numbers are all different, and taken for the rows' names" in done.stdout
    table = read_table(path, Description.of(said))
    assert (table.feature_names, table.row_ids, table.notes) == (("age", "visit_no"), ("101", "102", "107", "110"), ())
    assert "id" not in tomllib.loads(run("describe", path, "--features", "patient_id,age").stdout)
    assert read_table(path, Description(columns=("patient_id", "age"))).notes == ()


def test_codes_apart_from_negative_numbers(run):
    rows = [(-9, -9, 40 + i, -20 + i) for i in range(17)] + [(-0.5, 3, 99, -9), (2.5, 1, 120, 20)]
    done = run("describe", write("a,b,w,z\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)))
    assert "DECIDE: column 1 ('a'): -9 occurs 17 times, others are from -0.5 to 2.5" in done.stdout
    assert "column 2 ('b'): -9 occurs 17 times" in done.stdout
    assert "column 4 ('z'): -9 occurs 2 times" in done.stdout  # it is a code in other columns
    assert "column 3" not in done.stdout
    assert "column 1" not in run("describe", write("a\n-9\n-8\n5\n")).stdout


def test_columns_are_compared_with_those_agreed_on(run):
    path = write("Age,chol (mg/dl),bmi2,x\n1,2,3,4\n")
    done = run("describe", path, "--features", "age,chol,bmi1")
    assert "t.csv, line 1, column 1 ('Age'): \"age\" is wanted and not there, and this is near" in done.stderr
    assert "the column 'bmi1' is wanted and not there" in done.stderr
    assert tomllib.loads(done.stdout)["rename"]["Age"] == "age"
    write("age,chol,bmi1\n1,2,3\n", "other.csv")
    assert run("describe", path, "--like", "other.csv").stdout == done.stdout
    assert "give one of them" in run("describe", path, "--like", "other.csv", "--features", "age").stderr


def test_fit_and_transform_take_a_description_by_name(run):
    write("a;b\n1,5;2\n2,5;7\n0,5;?\n", "odd.csv")
    write('missing = ["?"]\ncolumns = ["a"]\n', "odd.toml")
    write("a\n1.5\n2.5\n0.5\n", "plain.csv")
    assert run("fit", "plain.csv", "-k", 1, "-o", "plain").exit_code == 0
    done = run("fit", "odd.csv", "-k", 1, "-o", "model", "--describe", "odd=odd.toml")
    assert done.exit_code == 0, done.stderr
    assert "odd: line 2, column 1: numbers have a decimal comma, such as 1,5" in done.stderr
    again = run("fit", "odd.csv", "-k", 1, "-o", "model", "--describe", "odd=odd.toml", "--overwrite", "--quiet")
    assert (again.exit_code, again.stderr) == (0, "")
    assert load_model("model").components_.tobytes() == load_model("plain").components_.tobytes()
    assert run("transform", "model", "odd.csv", "-o", "scores.npy", "--describe", "odd.toml").exit_code == 0
    for given, told in (("odd", "is not SITE=TOML"), ("none=odd.toml", "which is no site"), ("odd=no.toml", "does not exist")):
        wrong = run("fit", "odd.csv", "-k", 1, "-o", "other", "--describe", given)
        assert wrong.exit_code == 2
        assert told in wrong.stderr


def test_files_that_cannot_be_described(run):
    Path("folder.csv").mkdir()
    for name, told in (
        ("none.csv", "none.csv does not exist"),
        ("folder.csv", "is a folder"),
        ("x.npy", "x.npy is no text table"),
    ):
        done = run("describe", name)
        assert done.exit_code == 2
        assert told in done.stderr
    write("a,b\n1,2\n")
    assert "must end in .toml" in run("describe", "t.csv", "-o", "t.csv").stderr
    assert run("describe", "t.csv", "-o", "t.csv.toml").exit_code == 0
    assert "exists already" in run("describe", "t.csv", "-o", "t.csv.toml").stderr


def test_marks_are_asked_about_under_the_agreed_name(run):
    """All keys of a description have it, so what a remark says can be written as it stands."""
    Path("a.csv").write_text("Nr;Age;Rate\n" + "".join(f"p{i};{40 + i};{60 + i}\n" for i in range(30)) + "x;55;-9\n")
    assert run("describe", "a.csv", "--features", "age,rate", "-o", "a.csv.toml").exit_code == 0
    text = Path("a.csv.toml").read_text()
    (asked,) = [line for line in text.splitlines() if "DECIDE" in line]
    assert asked.endswith('add below [missing_in]: "rate" = [-9]')
    Path("a.csv.toml").write_text(f"{text}\n[missing_in]\n{asked.rpartition(': ')[2]}\n")
    assert np.isnan(read_table("a.csv").X).nonzero()[0].tolist() == [30]
