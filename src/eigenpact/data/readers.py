"""Read the table a site holds from a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import FileError, InputError, InputTypeError, ProblemsError
from ..storage import check_regular, open_regular
from . import columnar_files, spreadsheets, text_files  # noqa: F401 - readers register themselves
from .array_files import Archive, read_npy
from .checks import check_numeric
from .description import Description, description_of
from .selecting import select
from .sparse_files import read_sparse
from .suggestion import header_of, misnamed
from .table import DESCRIBED, FOLDERS, READERS, Table, Variants, ending, reads

__all__ = ["READERS", "Table", "Variants", "read_sites", "read_table", "site_name", "site_of"]


def read_table(path: str | os.PathLike[str], description: Description | None = None, *, memory: int | None = None) -> Table:
    """Read a table, rows as samples; ``READERS`` has the endings of files that can be read.

    Text: a first line with a cell that is not a number is a header.  A first column of text, or one whose header is empty or one
    of id, sample, index, row, holds row ids.  Cells that are empty, NA, N/A, NaN or null become nan.  What was found out about
    separator, decimal sign and encoding is in ``notes``; what could be read in two ways is an error.  A .npz file holds a matrix
    saved by ``scipy.sparse.save_npz``, or an array "X", or one two-dimensional array; "feature_names" and "row_ids" next to it
    are used.
    ``description`` says what else is known of the file; by default it is read from the TOML beside it, by the file's name and
    ``.toml``.  With ``memory``, rows that would take more bytes are given as a source of rows on disk.

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
    if extension is None and file.suffix.lower() in spreadsheets.ENDINGS and file.exists():
        raise spreadsheets.refuse(file)
    if extension is None:
        raise FileError(f"{file} has an unknown extension; allowed are {', '.join(READERS)}")
    try:
        if not folder:
            check_regular(file, follow=True)
            if file.stat().st_size == 0:
                raise FileError(f"{file} is empty; give a table with at least one row")
        said, place = (description, None) if description is not None else description_of(file)
        table = READERS[extension](file, said, memory)
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"{file} does not exist; check the path (the current folder is {Path.cwd()})") from error
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror or error}; check its permissions and content") from error
    except MemoryError as error:
        raise FileError(f"{file} holds more than this machine's memory; read fewer rows or columns") from error
    notes = table.notes if place is None else (f"it is described by {place.name}", *table.notes)
    table = table if extension in DESCRIBED else select(file, table, said)
    return _checked(file, replace(table, notes=notes))


def site_name(path: str | os.PathLike[str]) -> str:
    """Return the name of the site whose table is in a file: the file's name without its extension.

    >>> site_name("tables/north.csv.gz")
    'north'
    """
    file = Path(path)
    extension = ending(file)
    return file.name[: -len(extension)] if extension else file.stem


def read_sites(
    paths: Iterable[str | os.PathLike[str]],
    descriptions: Mapping[str, Description] | None = None,
    *,
    memory: int | None = None,
) -> dict[str, Table]:
    """Read one table per site, in the given order; the problems of all files are told at once.

    An entry is a path, whose site is named after the file, or the text "name=path".  ``descriptions`` are by site; what they do
    not name is described by the TOML beside it.  See :func:`read_table` for the shapes.
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
    said = dict(descriptions or {})
    if unknown := sorted(set(said) - set(files)):
        raise InputError(f"a description is given for {unknown[0]!r}, which is no site; sites are {', '.join(files)}")
    tables: dict[str, Table] = {}
    problems: list[str] = []
    advice: list[str] = []
    for name, file in files.items():
        try:
            tables[name] = read_table(file, said.get(name), memory=memory)
        except ProblemsError as error:
            problems += error.problems
            advice += error.advice
    if problems:
        headers = {file: header_of(file, said.get(name) or description_of(file)[0]) for name, file in files.items()}
        problems += misnamed({file: header for file, header in headers.items() if header is not None})
        first = next(file for name, file in files.items() if name not in tables)
        like = next((f" --like {files[name]}" for name, table in tables.items() if table.feature_names is not None), "")
        if any("describe" in problem for problem in problems):
            advice.append(f"A description can mend this; begin with: eigenpact describe {first} -o {first}.toml{like}")
        raise ProblemsError(problems, advice)
    return tables


def site_of(entry: str | os.PathLike[str]) -> str:
    """The site that a path or a text "name=path" names."""
    return _named(entry)[0]


def _named(entry: str | os.PathLike[str]) -> tuple[str, Path]:
    if isinstance(entry, str) and "=" in entry and not Path(entry).exists():
        name, _, path = entry.partition("=")
        if not name.strip() or not path:
            raise InputError(f"{entry!r} is not name=path; write for example north=tables/a.csv")
        return name.strip(), Path(path)
    return site_name(entry), Path(entry)


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
