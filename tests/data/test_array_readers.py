"""Arrays and cells from files: .npy, .npz, sparse .npz, zarr, HDF5 and .h5ad, loaded or a piece at a time, the same rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

from eigenpact.data.description import Description
from eigenpact.data.readers import read_sites, read_table, site_name
from eigenpact.errors import EigenpactError, FileError, InputError, InputTypeError
from eigenpact.numerics.sources import RowSource

X = np.random.default_rng(0).normal(size=(90, 7))
S = sp.random(90, 7, 0.3, format="csr", random_state=0)
LITTLE = 1000


def dense(rows: Any) -> Any:
    rows = rows[:] if isinstance(rows, RowSource) else rows
    return rows.toarray() if sp.issparse(rows) else rows


def write_h5(path: Path) -> str:
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/down", data=X, chunks=(20, 7), compression="gzip")
        file["labels"] = np.arange(90)
    return str(path)


def write_zarr(path: Path, array: Any = X) -> str:
    zarr.create_array(path, shape=array.shape, chunks=(20, 3), dtype=array.dtype)[:] = array
    return str(path)


def write_zarr_zip(path: Path) -> str:
    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr.create_array(store, shape=X.shape, chunks=(20, 7), dtype=X.dtype)[:] = X
    return str(path)


def cells(matrix: Any) -> anndata.AnnData:
    obs = pd.DataFrame({"kind": pd.Categorical(["T", "B", None] * 30)}, index=[f"cell{i}" for i in range(90)])
    return anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(7)]), layers={"raw": matrix * 2})


WRITERS = {
    "a.npy": lambda path: np.save(path, X),
    "a.npz": lambda path: np.savez(path, X=X, other=np.ones(3)),
    "b.npz": lambda path: np.savez_compressed(path, X=X),
    "a.h5": write_h5,
    "a.zarr": write_zarr,
    "a.zarr.zip": write_zarr_zip,
    "sparse.npz": lambda path: sp.save_npz(path, S),
    "dense.h5ad": lambda path: cells(X).write_h5ad(path),
    "csr.h5ad": lambda path: cells(S).write_h5ad(path),
    "csc.h5ad": lambda path: cells(S.tocsc()).write_h5ad(path),
    "cells.zarr": lambda path: cells(S).write_zarr(path),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_loaded_or_in_pieces_the_rows_are_the_same(name: str, tmp_path: Path) -> None:
    """Sparse ones stay sparse."""
    path = tmp_path / name
    WRITERS[name](path)
    expected = S if name.startswith(("sparse", "csr", "csc", "cells")) else X
    loaded = read_table(path)
    assert not isinstance(loaded.X, RowSource)
    assert sp.issparse(loaded.X) == sp.issparse(expected)
    np.testing.assert_array_equal(dense(loaded.X), dense(expected))
    table = read_table(path, memory=LITTLE)
    assert isinstance(table.X, RowSource)
    assert table.X.sparse == sp.issparse(expected)
    for where in (slice(0, 90), slice(40, 60), slice(3, 7), np.array([80, 2, 2])):
        np.testing.assert_array_equal(dense(table.X[where]), dense(expected)[where])
    assert (table.feature_names, table.row_ids) == (loaded.feature_names, loaded.row_ids)
    table.X.close()


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_cells_have_names_labels_and_layers(tmp_path: Path) -> None:
    cells(S).write_h5ad(tmp_path / "a.h5ad")
    table = read_table(tmp_path / "a.h5ad")
    assert table.feature_names == tuple(f"gene{j}" for j in range(7))
    assert table.row_ids is not None
    assert table.row_ids[-1] == "cell89"
    assert table.texts["kind"][:4] == ("T", "B", "", "T")
    for named in (f"{tmp_path}/a.h5ad:/layers/raw", f"{tmp_path}/a.h5ad:raw"):
        np.testing.assert_array_equal(dense(read_table(named).X), 2 * S.toarray())
    with pytest.raises(InputError, match=r"no 'nothing'; .*name one"):
        read_table(f"{tmp_path}/a.h5ad:nothing")


@pytest.mark.parametrize("matrix", [X, S, S.tocsc()])
def test_a_layer_that_is_misspelt_is_suggested_and_sparse_ones_are_listed(tmp_path: Path, matrix: Any) -> None:
    cells(matrix).write_h5ad(tmp_path / "a.h5ad")
    shape = re.escape(str(tuple(X.shape)))
    with pytest.raises(
        InputError, match=rf"no 'rwa'; it holds X {shape}, layers/raw {shape}; did you mean .*a.h5ad:/layers/raw\?"
    ):
        read_table(f"{tmp_path}/a.h5ad:rwa")


def test_a_table_is_named_after_a_colon_or_in_the_description(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["one"], file["other"] = X, 2 * X
    np.savez(tmp_path / "two.npz", one=X, other=2 * X)
    for name in ("two.h5", "two.npz"):
        np.testing.assert_array_equal(read_table(f"{tmp_path / name}:/other").X, 2 * X)
        np.testing.assert_array_equal(read_table(tmp_path / name, Description(dataset="one")).X, X)
        with pytest.raises(EigenpactError, match=r"one \(90, 7\), other \(90, 7\)"):
            read_table(tmp_path / name)
        with pytest.raises(EigenpactError, match="third"):
            read_table(f"{tmp_path / name}:third")
    assert site_name(f"{tmp_path}/two.h5:/other") == "two"
    held = read_sites([f"north={tmp_path}/two.h5:/one", f"{tmp_path}/two.npz:other"])
    assert list(held) == ["north", "two"]


def test_integers_and_singles_become_floats(tmp_path: Path) -> None:
    for dtype, wanted in ((np.uint8, np.float64), (np.float16, np.float32), (">f8", np.float64), (bool, np.float64)):
        np.save(tmp_path / "a.npy", (10 * np.abs(X)).astype(dtype))
        loaded, mapped = read_table(tmp_path / "a.npy").X, read_table(tmp_path / "a.npy", memory=LITTLE).X
        assert loaded.dtype == mapped.dtype == wanted
        np.testing.assert_array_equal(mapped[:], loaded)


def test_what_is_no_table_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([["a"] * 300] * 9))
    with pytest.raises(InputTypeError, match="dtype <U1"):
        read_table(tmp_path / "t.npy", memory=LITTLE)
    np.save(tmp_path / "c.npy", X + 1j)
    with pytest.raises(InputError, match="Complex"):
        read_table(tmp_path / "c.npy", memory=LITTLE)
    np.save(tmp_path / "v.npy", np.zeros(5000))
    with pytest.raises(InputError, match=r"shape \(5000,\)"):
        read_table(tmp_path / "v.npy", memory=LITTLE)
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(FileError, match=r"a\.zarr cannot be read"):
        read_table(tmp_path / "a.zarr")
    (tmp_path / "a.h5").write_bytes(b"nothing")
    with pytest.raises(FileError, match=r"a\.h5 cannot be read"):
        read_table(tmp_path / "a.h5")
    with pytest.raises(FileError, match="does not exist"):
        read_table(tmp_path / "none.zarr")


def test_claims_out_of_proportion_and_links_are_refused(tmp_path: Path) -> None:
    """A few bytes that claim terabytes, and tables that lie in another file."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", shape=(10**6, 10**6), chunks=(100, 100), dtype="f8")
    with pytest.raises(InputError, match="over 200 times as many"):
        read_table(tmp_path / "a.h5")
    zarr.create_array(tmp_path / "a.zarr", shape=(10**6, 10**6), chunks=(100, 100), dtype="f8")
    with pytest.raises(InputError, match="over 200 times as many"):
        read_table(tmp_path / "a.zarr", memory=LITTLE)
    write_h5(tmp_path / "secret.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["X"] = h5py.ExternalLink("secret.h5", "deep/down")
    with pytest.raises(InputError, match="link into another file"):
        read_table(tmp_path / "b.h5")
    layout = h5py.VirtualLayout(shape=(90, 7), dtype="f8")
    layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "deep/down", shape=(90, 7))
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
    with pytest.raises(InputError, match="lie in another file"):
        read_table(tmp_path / "c.h5")


def test_sparse_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", S)
    for part, change, told in (
        ("indptr", lambda a: a[::-1], "do not fit together|end before they begin"),
        ("indptr", lambda a: np.concatenate([a[:1], [10**6], a[2:]]), "end before they begin"),
        ("indices", lambda a: a[:-1], "do not fit together"),
        ("indices", lambda a: a + 5, "outside of 7 columns"),
    ):
        arrays = dict(np.load(tmp_path / "a.npz"))
        arrays[part] = change(arrays[part])
        np.savez(tmp_path / "b.npz", **arrays)
        with pytest.raises(EigenpactError, match=f"b.npz.*({told})"):
            read_table(tmp_path / "b.npz", memory=LITTLE).X[:]
