"""Tables as they are stored: whole numbers that doubles would round, and sparse matrices that lead out of themselves."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.data.as_stored import check_entries_within, check_exact
from eigenpact.data.checks import check_finite
from eigenpact.data.readers import read_table
from eigenpact.errors import InputError, InputTypeError
from eigenpact.numerics.sources import ArraySource

BEYOND = 2**53 + 1


def rows(dtype: Any = np.int64, at: tuple[int, int] = (150, 3), value: int = BEYOND) -> Any:
    X = np.random.default_rng(0).integers(0, 9, size=(200, 5)).astype(dtype)
    X[at] = value
    return X


@pytest.mark.parametrize("value", [2**53, 2**53 + 2, 2**60, -(2**53), -(2**63)])
def test_whole_numbers_that_are_doubles_are_let_through(value: int) -> None:
    check_exact("site 'A'", rows(value=value))


@pytest.mark.parametrize("value", [BEYOND, -BEYOND, 2**60 + 1, 2**63 - 1, -(2**63) + 1, 2**63 - 1024 + 1])
def test_others_are_refused_with_site_and_column_but_no_value(value: int) -> None:
    with pytest.raises(InputError, match="site 'A': column 3 holds whole numbers that double precision rounds") as told:
        check_exact("site 'A'", rows(value=value))
    assert str(abs(value)) not in str(told.value)


@pytest.mark.parametrize(("value", "wrong"), [(2**63, False), (2**64 - 1, True), (2**63 + 2048, False), (2**63 + 1, True)])
def test_whole_numbers_without_sign(value: int, wrong: bool) -> None:
    X = rows(np.uint64, value=value)
    if not wrong:
        check_exact("site 'A'", X)
        return
    with pytest.raises(InputError, match="column 3 holds"):
        check_exact("site 'A'", X)


def test_what_a_table_says_is_what_python_says() -> None:
    """Of numbers around every power of two: refused if and only if float(number) is another one."""
    numbers = [sign * (2**p + off) for p in range(50, 63) for off in (-3, -1, 0, 1, 2, 512, 513) for sign in (1, -1)]
    for number in numbers:
        table = np.array([[number]])
        if int(float(number)) == number:
            check_exact("site 'A'", table)
        else:
            with pytest.raises(InputError):
                check_exact("site 'A'", table)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_of_sparse_matrices_the_column_is_named(form: str) -> None:
    X = rows()
    with pytest.raises(InputError, match="column 3 holds"):
        check_exact("site 'A'", scipy.sparse.csr_array(X).asformat(form))
    X[150, 3] = 1
    check_exact("site 'A'", scipy.sparse.csr_array(X).asformat(form))


def test_of_frames_only_columns_of_whole_numbers_are_looked_at() -> None:
    frame = pd.DataFrame({"age": [1.5, 2.0], "time": [1, 2], "dose": [float(BEYOND), 1.0]})
    check_exact("site 'A'", frame)
    frame["time"] = [1, BEYOND]
    with pytest.raises(InputError, match="column 'time' holds whole numbers"):
        check_exact("site 'A'", frame, tuple(frame.columns))


def fits(X: Any) -> list[Any]:
    """All ways into an estimator."""
    pca = ep.FederatedPCA(2, solver="gram")
    small = np.random.default_rng(1).integers(0, 9, size=X.shape)
    fitted = ep.FederatedPCA(2, solver="gram").fit(small)
    return [
        lambda: pca.fit(X),
        lambda: pca.fit({"A": X, "B": small}),
        lambda: pca.fit([small, X]),
        lambda: pca.fit(X, sites=np.arange(X.shape[0]) % 2),
        lambda: ep.RobustPCA(2).fit({"A": X, "B": small}),
        lambda: ep.GraphPCA(2, graph="ring:2").fit([small, X, small]),
        lambda: fitted.transform(X),
    ]


@pytest.mark.parametrize("way", range(7))
def test_estimators_refuse_them_before_they_are_rounded(way: int) -> None:
    with pytest.raises(InputError, match=r"column 3 holds whole numbers.*subtract one number from the column"):
        fits(rows())[way]()


def test_rows_on_disk_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", rows())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(InputError, match="X: column 3 holds whole numbers"):
        ep.FederatedPCA(2).fit(mapped, sites=np.arange(200) % 2)
    for check in (
        lambda: check_finite("A", ArraySource(mapped)),
        lambda: ep.FederatedPCA(2).fit({"A": mapped, "B": rows(value=1)}),
    ):
        with pytest.raises(InputError, match="site 'A': column 3 holds whole numbers"):
            check()


def frame(dtype: str) -> pd.DataFrame:
    return pd.DataFrame(rows(), columns=list("abcde")).astype(dtype)


@pytest.mark.parametrize(
    "table",
    [
        lambda: rows().tolist(),
        lambda: tuple(map(tuple, rows().tolist())),
        lambda: list(rows()),
        lambda: rows().astype(object),
        lambda: [[*map(float, range(4)), 2**70 + 1], [*map(float, range(4)), 1]],
        lambda: [[1, 2, 3, 4, 10**400], [1, 2, 3, 4, 5]],
        lambda: rows().astype(">i8"),
        lambda: frame("int64"),
        lambda: frame("Int64"),
        lambda: frame("UInt64"),
        lambda: frame("Int64").mask(np.random.default_rng(3).random((200, 5)) < 0.0),
        lambda: frame("int64[pyarrow]"),
        lambda: pytest.importorskip("array_api_strict").asarray(rows()),
    ],
    ids=[
        "lists",
        "tuples",
        "rows",
        "objects",
        "huge",
        "endless",
        "big-endian",
        "frame",
        "Int64",
        "UInt64",
        "masked",
        "arrow",
        "elsewhere",
    ],
)
def test_they_are_refused_whatever_holds_them(table: Any) -> None:
    """A second stranger's findings: the first check looked at numpy's own arrays and columns alone."""
    fitted = ep.FederatedPCA(2, solver="gram").fit(rows(value=1))
    for call in (ep.FederatedPCA(2).fit, fitted.transform):
        with pytest.raises(InputError, match=r"column ('d'|3|4) holds whole numbers"):
            call(table())


def test_missing_entries_beside_whole_numbers_are_no_harm() -> None:
    table = frame("Int64").mask(rows(value=1) == 1)
    table.iloc[150, 3] = 2**60
    check_exact("X", table)


@pytest.mark.parametrize("unit", ["datetime64[ns]", "timedelta64[s]"])
def test_times_are_no_numbers(unit: str) -> None:
    with pytest.raises(InputTypeError, match="only real numbers are allowed"):
        ep.FederatedPCA(2).fit({"A": rows(value=1).astype(unit)})


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "feather", "h5", "zarr"])
@pytest.mark.parametrize("memory", [None, 1 << 20])
def test_files_are_refused_before_they_are_rounded(ending: str, memory: int | None, tmp_path: Path) -> None:
    file = tmp_path / f"north.{ending}"
    if ending == "npy":
        np.save(file, rows())
    elif ending == "npz":
        np.savez(file, X=rows())
    elif ending == "h5":
        with pytest.importorskip("h5py").File(file, "w") as made:
            made["X"] = rows()
    elif ending == "zarr":
        pytest.importorskip("zarr").save_array(str(file), rows())
    else:
        getattr(frame("int64"), f"to_{ending}")(file)
    with pytest.raises(InputError, match=r"column ('d'|3) holds whole numbers that double precision rounds"):
        read_table(file, memory=memory)


def test_names_that_are_too_few_are_told_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "north.npz", X=rows(), feature_names=np.array(["a", "b"]))
    with pytest.raises(InputError, match="2 feature_names for a table of shape"):
        read_table(tmp_path / "north.npz")


def test_what_is_left_after_the_advice_has_all_its_digits() -> None:
    """Times in nanoseconds: one number subtracted at every site, and the answer is that of the spread."""
    rng = np.random.default_rng(0)
    spread = (rng.normal(size=(300, 4)) * [4e4, 3e4, 2e4, 1e4]).astype(np.int64)
    X, first = spread + 1_700_000_000_000_000_001, 1_700_000_000_000_000_000
    with pytest.raises(InputError, match="subtract one number from the column, the same at every site"):
        ep.FederatedPCA(2, solver="gram").fit({"A": X[:100], "B": X[100:]})
    pca = ep.FederatedPCA(2, solver="gram").fit({"A": X[:100] - first, "B": X[100:] - first})
    exact = ep.FederatedPCA(2, solver="gram").fit(spread.astype(float))
    np.testing.assert_allclose(pca.components_, exact.components_, atol=1e-12)


def broken(form: str, how: str) -> Any:
    """A sparse matrix whose entries lead out of it."""
    X = scipy.sparse.random(400, 60, 0.15, format="csr", random_state=0).asformat(form)
    if form == "coo":
        X.row[5] = 400 if how == "far" else -1
    elif form == "lil" and how == "short":
        X.data[3] = X.data[3][:-1]
    elif form == "lil":
        X.rows[3][-1] = 1_000_000 if how == "far" else -1_000_000
    elif how == "falling":
        X.indptr[20] = 0
    elif how == "far":
        X.indptr[-1] = len(X.data) + 100
    elif how == "peak":
        X.indptr[20] = 1_000_000
    elif how == "begin":
        X.indptr[0] = 3
    elif how == "fractions":
        X.indices = X.indices.astype(float)
    elif how == "pairs":
        X.data = np.stack([X.data, X.data], axis=1)
    elif how == "short":
        X.indptr = X.indptr[:-5]
    else:
        X.indices[5] = 10_000 if how == "outside" else -1
    return X


HOW = ["falling", "far", "peak", "begin", "short", "fractions", "pairs", "outside", "below"]
BROKEN = [(form, how) for form in ("csr", "csc", "bsr") for how in HOW] + [("coo", "far"), ("coo", "below")]
BROKEN += [("lil", "far"), ("lil", "below"), ("lil", "short")]


@pytest.mark.parametrize(("form", "how"), BROKEN)
def test_broken_sparse_matrices_are_refused_before_compiled_functions_read_them(form: str, how: str) -> None:
    """scipy's own functions write beyond their memory, which ends the process."""
    X, whole = broken(form, how), scipy.sparse.random(400, 60, 0.15, format="csr", random_state=1)
    fitted = ep.FederatedPCA(2, solver="gram").fit(whole)
    for call in (
        lambda: check_entries_within("X", X),
        lambda: ep.FederatedPCA(2, solver="gram").fit({"A": X, "B": whole}),
        lambda: ep.FederatedPCA(2, solver="krylov").fit([whole, X]),
        lambda: ep.FederatedPCA(2).fit(X),
        lambda: ep.FederatedPCA(2).fit(X, sites=np.arange(400) % 2),
        lambda: ep.RobustPCA(2).fit({"A": X, "B": whole}),
        lambda: fitted.transform(X),
    ):
        with pytest.raises(InputError, match=r"this sparse matrix is broken: .*; make it anew"):
            call()


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 3), (4, 6)])
def test_whole_ones_are_let_through_as_they_are(form: str, shape: tuple[int, int]) -> None:
    X = scipy.sparse.csr_array(np.eye(*shape)).asformat(form)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_entries_within("X", X)
    np.testing.assert_array_equal(X.toarray(), np.eye(*shape))


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_room_behind_the_last_entry_is_no_harm(solver: str) -> None:
    """scipy does not look there, and what lies there may be anything."""
    X = scipy.sparse.random(400, 60, 0.15, format="csr", random_state=0)
    whole = ep.FederatedPCA(2, solver=solver, random_state=0).fit({"A": X, "B": X})
    roomy = X.copy()
    roomy.data, roomy.indices = np.append(X.data, [7.0, np.nan]), np.append(X.indices, [99, -1]).astype(X.indices.dtype)
    pca = ep.FederatedPCA(2, solver=solver, random_state=0).fit({"A": roomy, "B": X})
    np.testing.assert_array_equal(pca.components_, whole.components_)
    np.testing.assert_array_equal(whole.transform(roomy), whole.transform(X))
    assert len(roomy.data) == len(X.data) + 2
