"""What the command line says of columns: row names, columns that are not used, one that tells sites apart."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA

import eigenpact as ep


@pytest.fixture
def whole(tmp_path, sites, names):
    """One file of two hospitals, with a numeric id, a text and a date: rows (n x 5) by hospital."""
    rows = {"north": sites["north"], "south": sites["south"]}
    lines = [",".join(["nr", "hospital", *names, "comment"])]
    number = 0
    for i in range(30):
        for hospital, X in rows.items():
            if i < len(X):
                number += 1
                lines.append(",".join([str(number), hospital, *(repr(float(v)) for v in X[i]), "fine"]))
    (tmp_path / "all.csv").write_text("\n".join(lines) + "\n")
    return rows


def truth(rows):
    return PCA(2).fit(np.vstack(list(rows.values())))


def test_one_file_holds_several_sites(run, whole, names, tmp_path):
    words = ["fit", "all.csv", "-k", 2, "-o", "model", "--by", "hospital", "--id", "nr", "--drop", "comment"]
    result = run(*words, "--json", "model.json")
    assert result.exit_code == 0, result.stderr
    model, expected = ep.load_model(tmp_path / "model"), truth(whole)
    assert model.sites_ == ("north", "south")
    assert tuple(model.feature_names_in_) == names
    assert np.allclose(model.components_, expected.components_, atol=1e-7)
    told = json.loads((tmp_path / "model.json").read_text())
    assert told["sites"] == ["north", "south"]
    assert (told["n_samples"], told["converged"], told["rounds"]) == (50, True, model.n_rounds_)
    assert np.allclose(told["explained_variance"], expected.explained_variance_)
    assert sum(row["bytes"] for row in told["left"]) == told["bytes_from_sites"] == model.ledger_.bytes_up
    shown = run("show", "model", "--json", "again.json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads((tmp_path / "again.json").read_text()) == told


def test_rows_are_scored_with_the_same_words(run, whole, tmp_path):
    run("fit", "all.csv", "-k", 2, "-o", "model", "--by", "hospital", "--id", "nr", "--drop", "comment")
    words = ["transform", "model", "all.csv", "-o", "scores.csv", "--id", "nr", "--drop", "hospital", "--drop", "comment"]
    assert run(*words).exit_code == 0
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "id,PC1_score,PC2_score"
    assert [line.split(",")[0] for line in lines[1:4]] == ["1", "2", "3"]
    first = np.array([float(cell) for cell in lines[1].split(",")[1:]])
    assert np.allclose(first, truth(whole).transform(whole["north"][:1])[0], atol=1e-7)


@pytest.mark.usefixtures("whole")
def test_a_numeric_id_is_warned_of(run):
    words = ["fit", "all.csv", "-k", 2, "-o", "model", "--by", "hospital", "--drop", "comment"]
    told = run(*words).stderr
    assert "column 1 ('nr'): whole numbers, all different, are taken for a feature" in told
    assert "--id nr or --drop nr" in told
    assert "whole numbers" not in run(*words, "--id", "nr", "--overwrite").stderr


def test_numbers_one_after_the_other_are_warned_of_whatever_their_name(run, tmp_path, sites):
    X = np.column_stack([np.random.default_rng(0).permutation(30) + 4.0, sites["north"]])
    np.save(tmp_path / "plain.npy", X)
    told = run("fit", "plain.npy", "-k", 1, "-o", "model").stderr
    assert "plain: column 1: whole numbers one after the other are taken for a feature" in told


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--drop", "coment"], "drop names 'coment', which is no column (did you mean 'comment'?)"),
        (["--id", "number"], "id names 'number', which is no column"),
        (["--by", "hospitals"], "labels (or --by) names 'hospitals', which is no column (did you mean 'hospital'?)"),
        (["--by", "hospital", "--drop", "hospital"], "column 'hospital' is to be dropped, and to be used for something else"),
    ],
)
def test_wrong_columns(refused, words, told):
    assert told in refused("fit", "all.csv", "-k", 2, "-o", "model", "--quiet", *words).splitlines()[0]


def test_rows_without_a_site_and_a_site_in_two_files(refused, tmp_path):
    (tmp_path / "a.csv").write_text("x,y,h\n1,2,n\n2,5,\n3,1,s\n")
    (tmp_path / "b.csv").write_text("x,y,h\n1,2,n\n2,4,t\n3,1,t\n")
    (tmp_path / "c.csv").write_text("x,y,h\n1,2,n\n2,5,s\n3,1,s\n")
    assert "--by h: 1 of 3 rows of a have no site there" in refused("fit", "a.csv", "-k", 1, "-o", "m", "--by", "h")
    assert "--by h: site 'n' is in b and in c" in refused("fit", "b.csv", "c.csv", "-k", 1, "-o", "m", "--by", "h")


def test_repeated_row_names_are_refused_unless_they_are_said_to_be_names(run, refused, tmp_path):
    (tmp_path / "a.csv").write_text("id,x,y\n" + "".join(f"p{i % 4},{i},{i * i}\n" for i in range(8)))
    assert "the column of row names has 'p0', 'p1', 'p2' and more more than once" in refused("fit", "a.csv", "-k", 1, "-o", "m")
    result = run("fit", "a.csv", "-k", 1, "-o", "m", "--id", "id")
    assert result.exit_code == 0
    assert "names in column 'id' that stand for several rows: 'p0', 'p1', 'p2' and more" in result.stderr


def test_what_is_taken_for_row_names_is_said(run, tmp_path):
    (tmp_path / "a.csv").write_text("who,x,y\n" + "".join(f"p{i},{i * 1.5},{i * i}\n" for i in range(8)))
    result = run("fit", "a.csv", "-k", 1, "-o", "m")
    assert "a: line 1, column 1 ('who'): it holds text, and is taken for the rows' names" in result.stderr


def test_dates_and_groups_are_never_row_names_without_a_word(run, refused, tmp_path):
    (tmp_path / "a.csv").write_text("day,x,y\n" + "".join(f"2024-01-{i + 1:02},{i * 1.5},{i * i}\n" for i in range(8)))
    told = refused("fit", "a.csv", "-k", 1, "-o", "m")
    assert "line 2, column 1 ('day'): '2024-01-01' is a date" in told
    assert "say --drop day, or --id day if it names the row" in told
    assert run("fit", "a.csv", "-k", 1, "-o", "m", "--id", "day").exit_code == 0
    (tmp_path / "b.csv").write_text("sex,x,y\n" + "".join(f"{'mf'[i % 2]},{i * 1.5},{i * i}\n" for i in range(8)))
    assert "so that this column of text hardly names the rows" in refused("fit", "b.csv", "-k", 1, "-o", "n")


@pytest.mark.parametrize(("mark", "described"), [("NA", ""), ("n/a", ""), ("?", 'missing = ["?"]')])
@pytest.mark.usefixtures("whole")
def test_a_missing_hospital_is_no_site(run, tmp_path, mark, described, snapshot):
    lines = (tmp_path / "all.csv").read_text().splitlines()
    lines[3] = lines[3].replace(",north,", f",{mark},").replace(",south,", f",{mark},")
    (tmp_path / "all.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "all.csv.toml").write_text(described)
    before = snapshot()
    result = run("fit", "all.csv", "-k", 2, "-o", "model", "--by", "hospital", "--id", "nr", "--drop", "comment")
    assert result.exit_code == 2
    assert "--by hospital: 1 of 50 rows of all have no site there" in result.stderr
    assert snapshot() == before
