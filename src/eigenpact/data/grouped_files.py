"""Readers of files that hold arrays in groups: HDF5, zarr, and single cells in either (anndata's .h5ad).

Such a file may be anybody's.  So what a header claims is held against the bytes that are stored, and links into other files are
not followed.
"""

from __future__ import annotations

import importlib
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import EigenpactError, FileError, InputError, MissingExtraError
from ..numerics.sources import ArraySource
from .array_files import check_expansion
from .array_sources import CsrSource
from .budgets import in_pieces, is_too_large
from .by_columns import turned
from .cell_columns import cell_texts, cell_weights
from .description import Description
from .sparse_files import LONGEST
from .table import Table, reads

LISTED = 10
"""Tables that an error lists."""

MOST_NODES, DEEPEST = 4096, 8
"""Arrays of a file that are listed, and groups within groups."""

BROKEN = (
    OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, IndexError, OverflowError, MemoryError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What libraries raise of damaged files."""

Open = Callable[[], Any]


@reads(".h5", ".hdf5", ".h5ad")
def _read_hdf5(file: Path, description: Description, memory: int | None) -> Table:
    """A data set of an HDF5 file, or the cells of a .h5ad file."""
    h5py = _library("h5py", "cells", ".h5 and .h5ad")
    cells = file.suffix.lower() == ".h5ad"
    advice = "save it with anndata's write_h5ad" if cells else "save it with h5py"
    return _read(file, lambda: h5py.File(file, "r", locking=False), description, memory, advice)


@reads(".zarr", ".zarr.zip", folder=True)
def _read_zarr(file: Path, description: Description, memory: int | None) -> Table:
    """An array of a zarr folder or zip file, or the cells that anndata wrote to one."""
    zarr = _library("zarr", "zarr", ".zarr")
    if not file.exists():
        raise FileNotFoundError(file)

    def opened() -> Any:
        store = zarr.storage.LocalStore(file, read_only=True) if file.is_dir() else zarr.storage.ZipStore(file, mode="r")
        return zarr.open(store, mode="r")

    return _read(file, opened, description, memory, "save it with zarr 2 or 3")


def _library(name: str, extra: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"reading {what} files needs {name} ({error}); run: pip install 'eigenpact[{extra}]'") from error


def _read(file: Path, opened: Open, description: Description, memory: int | None, advice: str) -> Table:
    """The table in a file, its names, and, if it stays there, the file open."""
    root = None
    try:
        root = opened()
        table = _table(_File(file), root, description, memory)
    except EigenpactError as error:
        _close(root)
        raise error if str(file) in str(error) else FileError(f"{file}: {error}; {advice}") from error
    except BROKEN as error:
        _close(root)
        raise FileError(f"{file} cannot be read ({type(error).__name__}: {_in_short(error)}); {advice}") from error
    if not isinstance(table.X, ArraySource | CsrSource):
        _close(root)
    return table


def _in_short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _close(root: Any) -> None:
    for part in (root, getattr(root, "store", None)):  # HDF5 closes the first, zarr the second
        if part is not None and hasattr(part, "close"):
            part.close()


class _File:
    """What is asked of the nodes of one file, whichever library opened it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = [part for part in path.rglob("*") if part.is_file()] if path.is_dir() else [path]
        self.size = sum(part.stat().st_size for part in files)

    def array(self, group: Any, name: str) -> Any:
        """An array of a group, after its claims were held against what is stored; None if there is none of this name."""
        node = self.node(group, name)
        return None if node is None else self.checked(node, name)

    def node(self, group: Any, name: str) -> Any:
        """A group or array by its name, None if there is none; links into other files are not followed."""
        for part in name.strip("/").split("/"):
            if not hasattr(group, "keys") or part not in group:
                return None
            if hasattr(group, "get") and "External" in type(_link(group, part)).__name__:
                raise InputError(f"{self.path}: {name!r} is a link into another file; copy the array itself")
            group = group[part]
        return group

    def checked(self, node: Any, name: str) -> Any:
        """The array, whose numbers are stored here, and not out of proportion."""
        if not hasattr(node, "shape") or not hasattr(node, "dtype"):
            raise InputError(f"{self.path}: {name!r} is a group, not an array")
        if getattr(node, "is_virtual", False) or getattr(node, "external", None):
            raise InputError(f"{self.path}: the numbers of {name!r} lie in another file; copy them into this one")
        width = max(1, np.dtype(node.dtype).itemsize) if not isinstance(node.dtype, str) else 1
        check_expansion(f"{self.path}: {name!r}", math.prod(node.shape) * width, self.size, "save it without compression")
        return node

    def texts(self, group: Any, name: str, length: int) -> tuple[str, ...] | None:
        """Texts, one for each row or column; None where there are none."""
        node = self.array(group, name)
        if node is None:
            return None
        if tuple(node.shape) != (length,):
            raise InputError(f"{self.path}: {name!r} has shape {tuple(node.shape)}; {length} texts are expected")
        values = node.asstr()[:] if hasattr(node, "asstr") and node.dtype.kind in "OS" else node[:]
        return tuple(map(str, values.tolist()))


class _Part:
    """An array of a file, whose damage may show when it is read."""

    def __init__(self, file: _File, name: str, node: Any) -> None:
        self._file, self._name, self._node = file, name, node
        self.shape, self.dtype, self.ndim = tuple(node.shape), np.dtype(node.dtype), len(node.shape)
        self.chunks = getattr(node, "chunks", None)

    def __getitem__(self, where: slice) -> Any:
        try:
            return self._node[where]
        except BROKEN as error:
            told = f"{type(error).__name__}: {_in_short(error)}"
            raise FileError(f"{self._file.path}: {self._name!r} is damaged ({told}); copy or make the file again") from error


def _part(file: _File, group: Any, name: str) -> _Part | None:
    node = file.array(group, name)
    return None if node is None else _Part(file, name, node)


def _link(group: Any, part: str) -> Any:
    try:
        return group.get(part, getlink=True)
    except TypeError:  # zarr has no links
        return None


def _table(file: _File, root: Any, description: Description, memory: int | None) -> Table:
    cells = str(root.attrs.get("encoding-type", "")) == "anndata" or file.path.suffix.lower() == ".h5ad"
    name, node = _find(file, root, description.dataset, cells)
    X = _rows(file, name, node, memory)
    if not cells:
        return Table(X, file.texts(root, "feature_names", X.shape[1]), file.texts(root, "row_ids", X.shape[0]))
    variables = "raw/var" if name.startswith("raw/") else "var"
    obs, var = (_index(file, root, kind, n) for kind, n in (("obs", X.shape[0]), (variables, X.shape[1])))
    n = int(X.shape[0])
    texts = dict(cell_texts(file, root, n, description))
    return Table(X, var, obs, texts=texts, weights=cell_weights(file, root, n, description))


def _find(file: _File, root: Any, wanted: str | None, cells: bool) -> tuple[str, Any]:
    """The table that is meant: by name, or "X", or the only one there is."""
    if hasattr(root, "shape"):  # a zarr array by itself
        return "the array", root
    named = (wanted or "").strip("/")
    for name in ((named, f"layers/{named}") if cells else (named,)) if named else ("X",):
        node = file.node(root, name)
        if node is not None:
            return name, node
    found = dict(_tables(root))
    dense = {name: node for name, node in found.items() if hasattr(node, "shape")}
    if not named and len(dense) == 1 and not cells:
        return next(iter(dense.items()))
    listed = ", ".join(f"{name} {_shape(node)}" for name, node in list(found.items())[:LISTED])
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    raise InputError(
        f"{file.path} has {f'no {named!r}' if named else 'no array X'}; it holds {listed or 'no table'}{more}; "
        f"{_advice(file, named, list(found))}"
    )


def _advice(file: _File, named: str, found: list[str]) -> str:
    """Which table may be meant, by its whole name or the last part of it."""
    last = {name.rpartition("/")[2]: name for name in reversed(found)} | {name: name for name in found}
    near = get_close_matches(named, last, 1)
    if near:
        return f"did you mean {file.path}:/{last[near[0]]}?"
    return f"name one, for example {file.path}:/{next(iter(found), 'X')}"


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in (node.shape if hasattr(node, "shape") else node.attrs["shape"]))


def _tables(group: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Two-dimensional arrays of numbers, and sparse matrices of anndata, which are groups, by name."""
    for number, key in enumerate(group.keys()):
        if number >= MOST_NODES or "External" in type(_link(group, key)).__name__:
            continue
        node = group[key]
        if hasattr(node, "shape"):
            if len(node.shape) == 2 and getattr(node.dtype, "kind", "") in "biuf":
                yield prefix + key, node
        elif str(node.attrs.get("encoding-type", "")).startswith(("csr", "csc")) and "shape" in node.attrs:
            yield prefix + key, node
        elif depth < DEEPEST:
            yield from _tables(node, f"{prefix}{key}/", depth + 1)


def _rows(file: _File, name: str, node: Any, memory: int | None) -> Any:
    """A dense or sparse table, in memory if it fits there."""
    if hasattr(node, "keys"):
        return _sparse_rows(file, name, node, memory)
    file.checked(node, name)
    if node.ndim != 2 or np.dtype(node.dtype).kind not in "biuf":
        raise InputError(f"{file.path}: {name!r} has shape {tuple(node.shape)} and dtype {node.dtype}; give a table of numbers")
    if is_too_large(math.prod(node.shape) * 8, memory):
        return ArraySource(_Part(file, name, node))
    return np.asarray(node[:])


def _sparse_rows(file: _File, name: str, node: Any, memory: int | None) -> Any:
    """Compressed sparse rows as anndata writes them; columns that do not fit into memory are turned in a temporary file."""
    form, shape = str(node.attrs.get("encoding-type", "")), node.attrs.get("shape")
    if not form.startswith(("csr", "csc")) or shape is None or len(shape) != 2:
        raise InputError(f"{file.path}: {name!r} is a group, neither a table nor a sparse matrix of anndata")
    wanted = {"data": "biuf", "indices": "iu", "indptr": "iu"}
    parts = {part: _part(file, node, part) for part in wanted}
    found = [part for name, part in parts.items() if part is not None and part.ndim == 1 and part.dtype.kind in wanted[name]]
    if len(found) < len(wanted):
        raise InputError(f"{file.path}: the parts of sparse {name!r} do not fit together")
    data, indices, indptr = found
    rows, columns = (int(n) for n in shape)
    if not 0 <= min(rows, columns) <= max(rows, columns) <= max(LONGEST, int(data.shape[0])):
        raise InputError(f"{file.path}: sparse {name!r} claims to be {rows} x {columns}")
    large = is_too_large(16 * int(data.shape[0]), memory)
    if form.startswith("csc"):
        by_columns = CsrSource(file.path, data, indices, np.asarray(indptr[:]), (columns, rows))
        return turned(in_pieces(by_columns, memory)) if large else by_columns[:].T.tocsr()
    source = CsrSource(file.path, data, indices, np.asarray(indptr[:]), (rows, columns))
    return source if large else source[:]


def _index(file: _File, root: Any, kind: str, length: int) -> tuple[str, ...] | None:
    """Names of cells (obs) or genes (var)."""
    group = file.node(root, kind)
    if group is None or not hasattr(group, "keys"):
        raise InputError(f"{file.path} has no group {kind!r}; open it with anndata 0.8 or later, and save it again")
    return file.texts(group, str(group.attrs.get("_index", "_index")), length)
