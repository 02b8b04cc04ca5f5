"""``eigenpact fit``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from eigenpact.cli.site_files import parse_components
from eigenpact.errors import InputError
from eigenpact.estimators.model_files import load_model
from eigenpact.numerics.metrics import largest_sine

FILES = ("north.csv", "south.csv", "west.npy")


def test_equals_pooled_pca(run, sites, names):
    result = run("fit", *FILES, "-k", 3, "-o", "model")
    assert result.exit_code == 0, result.output
    pca, pooled = load_model("model"), PCA(3).fit(np.concatenate(list(sites.values())))
    np.testing.assert_allclose(pca.explained_variance_, pooled.explained_variance_, rtol=1e-10)
    assert largest_sine(pca.components_.T, pooled.components_.T) < 1e-10
    assert pca.sites_ == ("north", "south", "west")
    assert tuple(pca.feature_names_in_) == names


def test_summary_tells_what_left(run):
    out = run("fit", *FILES, "-k", 3, "-o", "model", "--solver", "gram").stdout
    for expected in (
        "62 of 5 features, named",
        "1, and 2 of set-up",
        "exact: the sum",
        "The model, with the ledger, is in model",
    ):
        assert expected in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["scatter_triangle"][1:] == ["15", "1", "120", "B", "360", "B"]
    assert rows["count_and_sum"][1:] == ["(set-up)", "3", "numbers", "+", "5", "1", "64", "B", "192", "B"]
    assert rows["PC3"][-1] == "%"


def test_sites_are_named_by_the_user(run):
    assert run("fit", "n=north.csv", "s=south.csv", "-k", 1, "-o", "model", "-q").exit_code == 0
    assert load_model("model").sites_ == ("n", "s")


@pytest.mark.parametrize(("text", "count"), [("all", 5), ("0.5", None), ("2", 2)])
def test_components(run, text, count):
    assert run("fit", *FILES, "-k", text, "-o", "model").exit_code == 0
    pca = load_model("model")
    if count is None:
        shares = np.cumsum(pca.explained_variance_ratio_)
        assert shares[-1] > 0.5
        assert (shares[:-1] <= 0.5).all()
    else:
        assert pca.n_components_ == count


def test_center_and_scale(run):
    options = ("--center", "site", "--scale", "pooled", "--tol", 1e-10, "--seed", 3, "--max-rounds", 70, "--solver", "krylov")
    assert run("fit", *FILES, "-k", 2, "-o", "model", *options).exit_code == 0
    pca = load_model("model")
    assert (pca.center, pca.scale, pca.tol, pca.random_state, pca.max_rounds) == ("site", "pooled", 1e-10, 3, 70)
    assert run("fit", *FILES, "-k", 2, "-o", "raw", "--center", "none").exit_code == 0
    assert load_model("raw").center is False
    assert not load_model("raw").mean_.any()


def test_not_converged_is_written_and_said(run):
    result = run("fit", *FILES, "-k", 2, "-o", "model", "--solver", "subspace", "--max-rounds", 1)
    assert result.exit_code == 1
    assert "not converged: --max-rounds 1 reached" in result.stderr
    assert load_model("model").converged_ is False


def test_quiet_prints_nothing(run):
    result = run("fit", *FILES, "-k", 2, "-o", "model", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_proxy_is_the_coordinators_own_site(run):
    assert run("fit", *FILES, "-k", 2, "-o", "model", "--proxy", "south").exit_code == 0
    pca = load_model("model")
    assert pca.solver_ == "krylov"
    own = [m for m in pca.ledger_ if m.note == "own"]
    assert own
    assert {m.sender for m in own} | {m.receiver for m in own} == {"south", "coordinator"}


def test_journal_resumes_the_same_run(run, tmp_path):
    options = ("-k", 2, "--solver", "krylov", "--journal", "run.journal")
    assert run("fit", *FILES, *options, "-o", "first").exit_code == 0
    assert run("fit", *FILES, *options, "-o", "second").exit_code == 0
    assert (tmp_path / "first/arrays.npz").read_bytes() == (tmp_path / "second/arrays.npz").read_bytes()


def test_journal_of_another_run(refused, run):
    run("fit", *FILES, "-k", 2, "--journal", "run.journal", "-o", "first")
    assert "belongs to another run" in refused("fit", *FILES, "-k", 3, "--journal", "run.journal", "-o", "second")


def test_overwrite_replaces_a_model(run, refused, tmp_path):
    run("fit", *FILES, "-k", 2, "-o", "model")
    assert "model exists already; choose another folder, or overwrite it (--overwrite)" in refused(
        "fit", *FILES, "-k", 3, "-o", "model"
    )
    assert run("fit", *FILES, "-k", 3, "-o", "model", "--overwrite").exit_code == 0
    assert load_model("model").n_components_ == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "north.csv", "south.csv", "west.npy"]


def test_overwrite_never_replaces_other_files(refused, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.txt").write_text("years of work")
    assert "chapter1.txt" in refused("fit", *FILES, "-k", 2, "-o", "thesis", "--overwrite")
    assert "choose another folder" in refused("fit", *FILES, "-k", 2, "-o", ".", "--overwrite")
    assert "north.csv is a file" in refused("fit", *FILES, "-k", 2, "-o", "north.csv", "--overwrite")


def test_output_is_checked_before_reading(refused, tmp_path):
    (tmp_path / "model").mkdir()
    assert "model exists already" in refused("fit", "missing.csv", "-k", 2, "-o", "model")


def _bad_files(folder: Path, write_csv) -> None:
    rng = np.random.default_rng(1)
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("age,bmi\n")
    (folder / "text.csv").write_text("age,bmi,glucose,pressure,rate\n1,2,3,high,5\n")
    (folder / "ragged.csv").write_text("age,bmi\n1,2\n3\n")
    (folder / "binary.csv").write_bytes(b"\xff\xfe\x00\x01" * 40)
    (folder / "broken.npy").write_bytes(b"not an array")
    (folder / "notes.docx").write_text("x")
    np.save(folder / "objects.npy", np.array([[1, "a"]], dtype=object), allow_pickle=True)
    with_nan = rng.normal(size=(4, 5))
    with_nan[1, 2] = np.nan
    write_csv(folder / "nan.csv", with_nan)
    np.save(folder / "narrow.npy", rng.normal(size=(4, 3)))
    write_csv(folder / "other.csv", rng.normal(size=(4, 5)), ("age", "bmi", "glucose", "weight", "rate"))


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("missing.csv", "missing.csv does not exist"),
        ("empty.csv", "empty.csv is empty"),
        ("header.csv", "line 1: a header and no rows"),
        ("text.csv", "'high' is not a number"),
        ("ragged.csv", "line 3: 1 cells where 2 are expected"),
        ("binary.csv", "binary.csv"),
        ("broken.npy", "broken.npy is not a .npy file of numbers"),
        ("notes.docx", "unknown extension"),
        ("objects.npy", "objects.npy is not a .npy file of numbers"),
        ("nan.csv", "site 'nan': column 'glucose' has 1 NaN"),
        ("narrow.npy", "site 'narrow' has 3 features, site 'north' has 5"),
        ("other.csv", "lacks ['pressure'] and has in addition ['weight']"),
        ("north.csv", "two sites are named 'north'"),
        ("=north.csv", "is not name=path"),
        (".", "is a folder"),
    ],
)
def test_bad_files(refused, tmp_path, write_csv, file, told):
    _bad_files(tmp_path, write_csv)
    assert told in refused("fit", "north.csv", file, "-k", 2, "-o", "model")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-k", 6), "-k 6 must be between 1 and 5"),
        (("-k", 0), "-k 0 must be between 1"),
        (("-k", "many"), "-k many is not allowed"),
        (("-k", "1.5"), "-k 1.5 is not allowed"),
        (("-k", 2, "--solver", "magic"), "unknown solver 'magic'; the solvers are auto, faps, gram, krylov"),
        (("-k", 2, "--engine", "cloud"), "--engine cloud cannot read files; give inprocess or mpi"),
        (("-k", 2, "--tol", -1), "--tol -1.0 must be"),
        (("-k", 2, "--max-rounds", 0), "--max-rounds 0 must be a whole number >= 1"),
        (("-k", 2, "--proxy", "east"), "--proxy east is not a site; allowed are north, south, west"),
        (("-k", 2, "--proxy", "north", "--solver", "gram"), "--proxy does not go with --solver gram"),
        (("-k", 0.9, "--solver", "subspace"), "needs a solver that sees more of the spectrum"),
        (("-k", 2, "--journal", "north.csv"), "north.csv is not an eigenpact journal"),
        (("-k", 2, "--journal", "no/such/folder"), "cannot be written"),
    ],
)
def test_bad_options(refused, options, told):
    assert told in refused("fit", *FILES, "-o", "model", *options)


@pytest.mark.parametrize("options", [("--center", "median"), ("--scale", "site"), ("--tol", "tiny"), ("--seed", "x")])
def test_bad_choices_are_usage_errors(run, snapshot, options):
    before = snapshot()
    result = run("fit", *FILES, "-k", 2, "-o", "model", *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
    assert options[1] in result.stderr
    assert snapshot() == before


def test_one_row_in_all(refused, tmp_path, write_csv):
    write_csv(tmp_path / "one.csv", np.ones((1, 5)))
    assert "n_samples=1" in refused("fit", "one.csv", "-k", 1, "-o", "model")


def test_parse_components_refuses():
    for text in ("1.0", "-0.5", "nan", "inf", ""):
        with pytest.raises(InputError, match="is not allowed"):
            parse_components(text)


def _mpi(*args: str) -> subprocess.CompletedProcess[str]:
    bin_folder = Path(sys.executable).parent
    mpiexec = (str(bin_folder / "mpiexec"), "--allow-run-as-root", "--oversubscribe", "-n", "2")
    return subprocess.run([*mpiexec, str(bin_folder / "eigenpact"), *args], text=True, capture_output=True, timeout=60)


@pytest.mark.xdist_group("mpi")
def test_ranks_read_their_own_files(run, tmp_path):
    """More files than ranks, in other formats and orders of columns."""
    pytest.importorskip("mpi4py")
    run("fit", *FILES, "-k", 2, "-o", "alone", "--proxy", "west", "-q")
    result = _mpi("fit", *FILES, "-k", "2", "-o", "together", "--proxy", "west", "--engine", "mpi")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("The model, with the ledger, is in together") == 1
    assert (tmp_path / "alone/arrays.npz").read_bytes() == (tmp_path / "together/arrays.npz").read_bytes()


@pytest.mark.xdist_group("mpi")
def test_an_error_on_any_rank_ends_all(snapshot):
    pytest.importorskip("mpi4py")
    before = snapshot()
    result = _mpi("fit", "north.csv", "missing.csv", "-k", "2", "-o", "model", "--engine", "mpi")
    assert result.returncode == 2
    assert result.stderr.count("error: missing.csv does not exist") == 1
    assert "Traceback" not in result.stderr
    assert snapshot() == before


def test_ranks_that_would_all_do_the_same_are_refused(refused, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    message = refused("fit", *FILES, "-k", 2, "-o", "model")
    assert "2 ranks were started, and each would do all the work; add --engine mpi" in message


def test_a_one_shot_start_is_in_the_ledger(run):
    out = run("fit", *FILES, "-k", 2, "-o", "model", "--start", "one-shot").stdout
    assert "leading_directions" in out


def test_a_start_does_not_go_with_gram(refused):
    assert "--start does not go with --solver gram" in refused(
        "fit", *FILES, "-k", 2, "-o", "model", "--solver", "gram", "--start", "one-shot"
    )


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_a_column_without_entries_is_named(run, missing):
    Path("allna.csv").write_text("age,bmi,chol\n1,,3\n4,,6\n7,,10\n")
    done = run("fit", "allna.csv", "-k", 1, "-o", "model", "--missing", missing)
    assert done.exit_code == 2
    assert "feature 'bmi': every entry is missing at every site" in done.stderr


def test_a_journal_of_another_run_is_told_in_words_of_the_command_line(run, refused):
    """Seeds are told as another, since those in the journal are drawn from what was typed."""
    words = ("fit", "north.csv", "south.csv", "--journal", "j", "-q")
    assert run(*words, "-k", 3, "-o", "model").exit_code == 0
    told = " ".join(refused(*words, "-k", 2, "-o", "other", "--max-rounds", 10, "--seed", 4).split())
    assert "--max-rounds was 3000, now it is 10; -k was 3, now it is 2; --seed was another" in told
    assert "journal has" not in told
