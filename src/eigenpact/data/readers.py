"""Read the table a site holds from a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from ..errors import FileError, InputError, InputTypeError, ProblemsError
from ..storage import check_regular
from . import array_readers, columnar_files, genotype_files, grouped_files, spreadsheets, text_files  # noqa: F401 - register readers
from .as_stored import check_exact
from .budgets import in_pieces, memory_for_rows
from .cell_texts import without_marks
from .checks import check_numeric
from .description import Description, description_of
from .numbering import numberings
from .row_names import check_row_names
from .selecting import select
from .suggestion import header_of, misnamed
from .table import DESCRIBED, FOLDERS, READERS, Table, Variants, ending
from .weighing import take_weights, with_column

__all__ = ["READERS", "Table", "Variants", "read_sites", "read_table", "site_name", "site_of"]


SEVERAL = (".h5", ".hdf5", ".h5ad", ".zarr", ".zarr.zip", ".npz")
"""Endings of files that hold several tables, of which one may be named."""


def read_table(
    path: str | os.PathLike[str],
    description: Description | None = None,
    *,
    memory: int | None = None,
    also: Callable[[Description], Description] | None = None,
) -> Table:
    """Read a table, rows as samples; ``READERS`` has the endings of files that can be read.

    Text: a first line with a cell that is not a number is a header.  A first column of text, all different, or one whose header
    is empty or one of id, sample, index, row, holds row ids.  Cells that are empty, NA, N/A, NaN or null become nan.  What was
    found out about separator, decimal sign and encoding is in ``notes``; what could be read in two ways is an error.  A .npz file
    holds a matrix saved by ``scipy.sparse.save_npz``, or an array "X", or one two-dimensional array; "feature_names" and
    "row_ids" next to it are used.
    ``description`` says what else is known of the file; by default it is read from the TOML beside it, by the file's name and
    ``.toml``; ``also`` adds to it.  With ``memory``, rows that would take more bytes are given as a source of rows on disk.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "north.csv")
    >>> _ = file.write_text("id,age,bmi\\np1,61,22.5\\np2,48,\\n")
    >>> table = read_table(file)
    >>> table.feature_names, table.row_ids, table.X.tolist()
    (('age', 'bmi'), ('p1', 'p2'), [[61.0, 22.5], [48.0, nan]])
    >>> folder.cleanup()
    """
    file, dataset = split_dataset(path)
    extension = ending(file)
    folder = extension in FOLDERS and file.is_dir()
    if file.is_dir() and not folder:
        raise _a_folder(file)
    if extension is None and file.suffix.lower() in spreadsheets.ENDINGS and file.exists():
        raise spreadsheets.refuse(file)
    if extension is None:
        raise FileError(f"{file} has an unknown extension{_meant(file)}; allowed are {', '.join(sorted(READERS))}")
    try:
        if not folder:
            check_regular(file, follow=True)
            if file.stat().st_size == 0:
                raise FileError(f"{file} is empty; give a table with at least one row")
        said, place = (description, None) if description is not None else description_of(file)
        said = said if dataset is None else replace(said, dataset=dataset)
        said = said if also is None else also(said)
        table = READERS[extension](file, with_column(said) if extension in DESCRIBED else said, memory)
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"{file} does not exist; check the path (the current folder is {Path.cwd()})") from error
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror or error}; check its permissions and content") from error
    except MemoryError as error:
        raise FileError(f"{file} needs more memory than there is; read it in pieces, for example by --memory 1GB") from error
    table = take_weights(file, table if extension in DESCRIBED else select(file, table, said), said, site_name(file))
    categories = {name: without_marks(table.texts[name], name, said) for name in said.categorical if name in table.texts}
    table = replace(table, texts={**table.texts, **categories}, categorical=tuple(categories))
    table = _checked(file, replace(table, X=in_pieces(table.X, memory)))
    described = () if place is None else (f"it is described by {place.name}",)
    return replace(table, notes=(*described, *table.notes, *check_row_names(file, table, said), *numberings(table, said)))


def _a_folder(file: Path) -> FileError:
    if any((file / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return FileError(f"{file} is a zarr folder in spite of its name; rename it to end in .zarr")
    return FileError(f"{file} is a folder; name the files in it, for example {file / '*.csv'}")


def _meant(file: Path) -> str:
    """Files beside one that is not read, of the same name and an ending that is: CEU.bed for CEU or CEU.bim."""
    names = dict.fromkeys(name + known for name in (file.name, file.stem) for known in sorted(READERS))
    near = [str(file.with_name(name)) for name in names if os.path.isfile(file.with_name(name))]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def site_name(path: str | os.PathLike[str]) -> str:
    """Return the name of the site whose table is in a file: the file's name without its extension.

    >>> site_name("tables/north.csv.gz")
    'north'
    """
    file = split_dataset(path)[0]
    extension = ending(file)
    return file.name[: -len(extension)] if extension else file.stem


def split_dataset(path: str | os.PathLike[str]) -> tuple[Path, str | None]:
    """A file, and the name of the table in it if one follows its ending: "cells.h5:/counts".

    >>> split_dataset("a/cells.h5:/counts")[1], split_dataset("a/cells.h5")[1]
    ('/counts', None)
    """
    file, colon, dataset = os.fspath(path).rpartition(":")
    if not colon or not dataset or ending(Path(file)) not in SEVERAL or Path(path).exists():
        return Path(path), None
    return Path(file), dataset


def read_sites(
    paths: Iterable[str | os.PathLike[str]],
    descriptions: Mapping[str, Description] | None = None,
    *,
    memory: int | None = None,
    also: Callable[[Description], Description] | None = None,
) -> dict[str, Table]:
    """Read one table per site, in the given order; the problems of all files are told at once.

    An entry is a path, whose site is named after the file, or the text "name=path".  ``descriptions`` are by site; what they do
    not name is described by the TOML beside it.  ``memory`` is the program's, in bytes.  As :func:`read_table`.
    """
    if isinstance(paths, str | os.PathLike):
        raise InputTypeError(f"paths={str(paths)!r} is one path; give a list of paths, one per site")
    files: dict[str, str | os.PathLike[str]] = {}
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
    each = memory_for_rows(memory, len(files))
    tables: dict[str, Table] = {}
    wrong: dict[str, ProblemsError] = {}
    for name, file in files.items():
        try:
            tables[name] = read_table(file, said.get(name), memory=each, also=also)
        except ProblemsError as error:
            wrong[name] = error
    if wrong:
        raise _problems_of_all({name: Path(file) for name, file in files.items()}, said, tables, wrong)
    return tables


def _problems_of_all(
    files: Mapping[str, Path], said: Mapping[str, Description], tables: Mapping[str, Table], wrong: Mapping[str, ProblemsError]
) -> ProblemsError:
    """What is wrong with each file, and with names of columns compared with those of other files."""
    problems = [problem for error in wrong.values() for problem in error.problems]
    advice = [line for error in wrong.values() for line in error.advice]
    headers = {file: header_of(file, said.get(name) or description_of(file)[0]) for name, file in files.items()}
    problems += misnamed({file: header for file, header in headers.items() if header is not None})
    like = next((f" --like {files[name]}" for name, table in tables.items() if table.feature_names is not None), "")
    mendable = [name for name, file in files.items() if any(_asks_for_description(problem, file) for problem in problems)]
    described = {name: file.with_name(f"{file.name}.toml") for name, file in files.items()}
    new = [files[name] for name in mendable if name not in said and not described[name].exists()]
    if new:
        advice.append(f"A description can mend this; begin with: eigenpact describe {new[0]} -o {new[0]}.toml{like}")
    advice += [f"{files[name]} is described by {described[name].name}: mend it there" for name in mendable
               if name not in said and described[name].exists()]  # fmt: skip
    return ProblemsError(problems, advice)


def _asks_for_description(problem: str, file: Path) -> bool:
    return problem.startswith((f"{file},", f"{file}:")) and "describe" in problem.removeprefix(str(file))


def site_of(entry: str | os.PathLike[str]) -> str:
    """The site that a path or a text "name=path" names."""
    return _named(entry)[0]


def _named(entry: str | os.PathLike[str]) -> tuple[str, str | os.PathLike[str]]:
    if isinstance(entry, str) and "=" in entry and not Path(entry).exists():
        name, _, path = entry.partition("=")
        if not name.strip() or not path:
            raise InputError(f"{entry!r} is not name=path; write for example north=tables/a.csv")
        return name.strip(), path
    return site_name(entry), entry


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
    check_exact(str(file), X, names)
    if table.variants is not None or not (isinstance(X, np.ndarray) or sparse.issparse(X)):
        return table  # counts of genotypes, or rows that are read a block at a time
    wanted = np.float32 if X.dtype.kind == "f" and X.dtype.itemsize <= 4 else np.float64
    return replace(table, X=X.astype(wanted, copy=False))
