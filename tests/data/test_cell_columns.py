"""Columns of .h5ad files that tell of cells, as labels, categories, row names and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest

from eigenpact.data.description import Description
from eigenpact.data.readers import read_table
from eigenpact.errors import EigenpactError, InputError

N = 12
X = np.random.default_rng(0).poisson(2.0, (N, 4)).astype(np.float32)


def write(path: Path, **columns: Any) -> Path:
    obs = pd.DataFrame(columns, index=[f"cell{i}" for i in range(N)])
    cells = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(4)]))
    if path.suffix == ".zarr":
        cells.write_zarr(path)
    else:
        cells.write_h5ad(path)
    return path


@pytest.fixture(params=["a.h5ad", "a.zarr"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(
        tmp_path / request.param,
        kind=pd.Categorical(["T", "B", None] * 4),
        donor=[f"d{i % 2}" for i in range(N)],
        batch=np.arange(N) % 3,
        depth=np.arange(N) + 0.5,
        mito=np.arange(N) % 2 == 0,
        stage=pd.array([1, None, 3] * 4, dtype="Int64"),
        count=np.arange(N) % 4,
    )


pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::anndata.ImplicitModificationWarning"
)


def test_columns_of_every_kind_are_labels(file: Path) -> None:
    names = ("kind", "donor", "batch", "depth", "mito", "stage")
    table = read_table(file, Description(labels=names))
    assert table.X.shape == (N, 4)
    assert {name: tuple(table.texts[name][:3]) for name in names} == {
        "kind": ("T", "B", ""),
        "donor": ("d0", "d1", "d0"),
        "batch": ("0", "1", "2"),
        "depth": ("0.5", "1.5", "2.5"),
        "mito": ("True", "False", "True"),
        "stage": ("1", "", "3"),
    }


def test_categories_become_features_with_the_genes(file: Path) -> None:
    table = read_table(file, Description(categorical=("donor", "kind"), labels=("batch",), columns=("gene2", "gene0")))
    assert table.categorical == ("donor", "kind")
    assert table.feature_names == ("gene2", "gene0")
    assert np.array_equal(table.X, X[:, [2, 0]])


def test_a_column_names_the_rows(file: Path) -> None:
    assert read_table(file, Description(id="depth")).row_ids == tuple(f"{i}.5" for i in range(N))


def test_weights(file: Path) -> None:
    table = read_table(file, Description(weights="count", drop=("gene1",)))
    assert table.feature_names == ("gene0", "gene2", "gene3")
    assert table.weights is not None
    assert table.weights.tolist() == [float(i % 4) for i in range(N)]
    assert "adds up to 18 over 9 rows; 3 of weight 0 do not count" in table.notes[-1]
    with pytest.raises(InputError, match="of row 1 is nan, and 3 more are no weights"):
        read_table(file, Description(weights="stage"))
    with pytest.raises(InputError, match="'donor', whose cells are not 12 numbers"):
        read_table(file, Description(weights="donor"))


def test_a_column_that_is_neither_is_told(file: Path) -> None:
    for said in (Description(labels=("tissue",)), Description(weights="tissue")):
        with pytest.raises(EigenpactError, match="'tissue', which is no column"):
            read_table(file, said)
