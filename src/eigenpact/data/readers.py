"""Read the table a site holds from a file."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import EigenpactError, FileError, InputError, InputTypeError, MissingExtraError
from ..storage import check_regular, open_regular
from .array_files import Archive, check_expansion, read_npy
from .checks import check_numeric
from .description import Description
from .sparse_files import read_sparse
from .table import FOLDERS, READERS, Table, Variants, ending, reads
from .text_tables import read_text_table

__all__ = ["READERS", "Table", "Variants", "read_sites", "read_table", "site_name", "table_from_frame"]


def read_table(path: str | os.PathLike[str], description: Description | None = None, *, memory: int | None = None) -> Table:
    """Read a table, rows as samples, from .csv, .tsv (both also .gz), .npy, .npz or .parquet.

    A first line with a cell that is not a number is a header.  A first column of text, or one whose header is empty or one of
    id, sample, index, row, holds row ids.  Cells that are empty, NA or NaN become nan.  A .npz file holds a matrix saved by
    ``scipy.sparse.save_npz``, or an array "X", or one two-dimensional array; "feature_names" and "row_ids" next to it are used.
    ``description`` says what else is known of the file.  With ``memory``, rows that take more bytes are read a block at a time.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "north.csv")
    >>> _ = file.write_text("id,age,bmi\\np1,61,22.5\\np2,48,\\n")
    >>> table = read_table(file)
    >>> table.feature_names, table.row_ids, table.X.tolist()
    (('age', 'bmi'), ('p1', 'p2'), [[61.0, 22.5], [48.0, nan]])
    >>> folder.cleanup()
    """
    file = Path(path)
    extension = ending(file)
    folder = extension in FOLDERS
    if file.is_dir() and not folder:
        raise FileError(f"{file} is a folder; name the files in it, for example {file / '*.csv'}")
    if extension is None:
        raise FileError(f"{file} has an unknown extension; allowed are {', '.join(READERS)}")
    try:
        if not folder:
            check_regular(file, follow=True)
            if file.stat().st_size == 0:
                raise FileError(f"{file} is empty; give a table with at least one row")
        table = READERS[extension](file, description or Description(), memory)
        if description is not None:
            table = replace(table, categorical=tuple(name for name in description.categorical if name in table.texts))
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"{file} does not exist; check the path (the current folder is {Path.cwd()})") from error
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror or error}; check its permissions and content") from error
    except MemoryError as error:
        raise FileError(f"{file} holds more than this machine's memory; read fewer rows or columns") from error
    return _checked(file, table)


def site_name(path: str | os.PathLike[str]) -> str:
    """Return the name of the site whose table is in a file: the file's name without its extension.

    >>> site_name("tables/north.csv.gz")
    'north'
    """
    file = Path(path)
    extension = ending(file)
    return file.name[: -len(extension)] if extension else file.stem


def read_sites(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Table]:
    """Read one table per site, in the given order.

    An entry is a path, whose site is named after the file, or the text "name=path".  See :func:`read_table` for the shapes.
    """
    if isinstance(paths, str | os.PathLike):
        raise InputTypeError(f"paths={str(paths)!r} is one path; give a list of paths, one per site")
    files: dict[str, Path] = {}
    for entry in paths:
        name, file = _named(entry)
        if name in files:
            raise InputError(
                f"two sites are named {name!r}: {files[name]} and {file}; rename a file, or write name=path to name its site"
            )
        files[name] = file
    if not files:
        raise InputError("no paths were given; give at least one file, one per site")
    return {name: read_table(file) for name, file in files.items()}


def _named(entry: str | os.PathLike[str]) -> tuple[str, Path]:
    if isinstance(entry, str) and "=" in entry and not Path(entry).exists():
        name, _, path = entry.partition("=")
        if not name.strip() or not path:
            raise InputError(f"{entry!r} is not name=path; write for example north=tables/a.csv")
        return name.strip(), Path(path)
    return site_name(entry), Path(entry)


@reads(".csv", ".tsv", ".csv.gz", ".tsv.gz")
def _read_text(file: Path, _description: Description, _memory: int | None) -> Table:
    return Table(*read_text_table(file, "\t" if ".tsv" in (ending(file) or "") else ","))


def _begins(file: Path, magic: bytes) -> bool:
    with open_regular(file, follow=True) as stream:
        return stream.read(len(magic)) == magic


@reads(".npy")
def _read_npy(file: Path, _description: Description, _memory: int | None) -> Table:
    if _begins(file, b"PK"):
        raise FileError(f"{file} holds several arrays; rename it to end in .npz, or save one array with numpy.save")
    try:
        return Table(read_npy(file))
    except InputError as error:
        raise FileError(f"{file} is not a .npy file of numbers ({error}); save one array with numpy.save") from error


@reads(".npz")
def _read_npz(file: Path, description: Description, memory: int | None) -> Table:
    """A sparse matrix, or arrays with names."""
    if _begins(file, b"\x93NUMPY"):
        return _read_npy(file, description, memory)
    try:
        with open_regular(file, follow=True) as stream:
            archive = Archive(stream)
            if {"format", "shape", "data"} <= set(archive.names):
                return Table(read_sparse(archive))
            arrays = {name: archive.read(name) for name in archive.names}
    except InputError as error:
        raise FileError(f"{file} is not a .npz file of numbers ({error}); save it with numpy.savez") from error
    key = _matrix_key(file, arrays)
    return Table(arrays[key], _texts(arrays.get("feature_names")), _texts(arrays.get("row_ids")))


def _matrix_key(file: Path, arrays: dict[str, NDArray[Any]]) -> str:
    if "X" in arrays:
        return "X"
    matrices = [key for key, value in arrays.items() if value.ndim == 2]
    if len(matrices) != 1:
        shapes = ", ".join(f"{key} {value.shape}" for key, value in arrays.items()) or "none"
        raise InputError(f"{file} holds the arrays: {shapes}; name the table 'X', or keep exactly one 2-D array")
    return matrices[0]


def _texts(values: NDArray[Any] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(str(value) for value in values.ravel().tolist())


@reads(".parquet")
def _read_parquet(file: Path, _description: Description, _memory: int | None) -> Table:
    try:
        importlib.import_module("pandas")
        parquet, arrow = (importlib.import_module(f"pyarrow.{name}") for name in ("parquet", "lib"))
    except ImportError as error:
        raise MissingExtraError(
            f"reading .parquet files needs pandas and pyarrow ({error}); run: pip install 'eigenpact[pandas]'"
        ) from error
    try:
        with parquet.ParquetFile(file, pre_buffer=False) as content:  # its threads outlive an error, and crash
            _check_parquet(file, content.metadata)
            frame = content.read(use_threads=False, use_pandas_metadata=True).to_pandas(use_threads=False)
        return table_from_frame(frame, site_name(file))
    except EigenpactError:
        raise
    except (arrow.ArrowException, OSError, ValueError, TypeError, KeyError) as error:  # pandas' notes may be damaged, too
        raise FileError(f"{file} is not a parquet file ({error}); save it with DataFrame.to_parquet") from error


def _check_parquet(file: Path, metadata: Any) -> None:
    """Rows that are all alike take no room in a parquet file, but in memory they do."""
    cells = 8 * metadata.num_rows * metadata.num_columns
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    check_expansion(file, max(cells, unpacked), file.stat().st_size, "save it as .npy")


def table_from_frame(frame: Any, site: str) -> Table:
    """Turn a site's pandas DataFrame (n_rows x n_features) into a Table; an index of text becomes row ids."""
    check_numeric(site, frame)
    X = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    ids = None if frame.index.dtype.kind in "iu" else tuple(str(label) for label in frame.index)
    return Table(X, tuple(str(column) for column in frame.columns), ids)


def _checked(file: Path, table: Table) -> Table:
    """Check kind and shape, and make X float64 or float32, unless it holds genotypes or is no array."""
    X, names, ids = table.X, table.feature_names, table.row_ids
    check_numeric(site_name(file), X)
    if X.ndim != 2:
        raise InputError(f"{file} holds an array of shape {X.shape}; give a table, n_rows x n_features (see numpy.reshape)")
    if 0 in X.shape:
        raise InputError(f"{file} holds a table of shape {X.shape}; give at least one row and one column")
    for what, texts, length in (("feature_names", names, X.shape[1]), ("row_ids", ids, X.shape[0])):
        if texts is not None and len(texts) != length:
            raise InputError(f"{file} has {len(texts)} {what} for a table of shape {X.shape}; give {length}")
    if table.variants is not None or not (isinstance(X, np.ndarray) or sparse.issparse(X)):
        return table  # counts of genotypes, or rows that are read a block at a time
    wanted = np.float32 if X.dtype.kind == "f" and X.dtype.itemsize <= 4 else np.float64
    return replace(table, X=X.astype(wanted, copy=False))
