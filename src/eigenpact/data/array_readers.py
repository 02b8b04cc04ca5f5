"""Readers of .npy and .npz files: loaded, or, where memory is short, read a piece at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, InputError
from ..numerics.sources import ArraySource
from ..storage import open_regular
from .array_files import Archive, read_npy
from .array_sources import map_npy, npz_source
from .budgets import is_too_large
from .by_columns import sparse_npz_source
from .checks import check_numeric
from .description import Description
from .sparse_files import read_sparse
from .table import Table, reads

MAPPED = 1 << 30
"""Arrays of more bytes are read from their file a piece at a time, also where nobody asked for it."""


def _begins(file: Path, magic: bytes) -> bool:
    with open_regular(file, follow=True) as stream:
        return stream.read(len(magic)) == magic


@reads(".npy")
def _read_npy(file: Path, _description: Description, memory: int | None) -> Table:
    if _begins(file, b"PK"):
        raise FileError(f"{file} holds several arrays; rename it to end in .npz, or save one array with numpy.save")
    try:
        if not is_too_large(_as_floats(mapped := map_npy(file)), MAPPED if memory is None else memory):
            return Table(read_npy(file))
    except InputError as error:
        raise FileError(f"{file} is not a .npy file of numbers ({error}); save one array with numpy.save") from error
    except MemoryError:
        pass  # read from the file, then
    check_numeric(file.stem, mapped)
    return Table(ArraySource(mapped) if mapped.ndim == 2 else mapped)


def _as_floats(array: NDArray[Any]) -> int:
    """Bytes of an array as it would be in memory: floats."""
    return math.prod(array.shape) * (4 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else 8)


@reads(".npz")
def _read_npz(file: Path, description: Description, memory: int | None) -> Table:
    """A sparse matrix, or arrays with names."""
    if _begins(file, b"\x93NUMPY"):
        return _read_npy(file, description, memory)
    try:
        with open_regular(file, follow=True) as stream:
            archive = Archive(stream)
            if description.dataset is None and {"format", "shape", "data"} <= set(archive.names):
                large = is_too_large(16 * math.prod(archive.shape("data")), memory)
                return Table(sparse_npz_source(file, archive) if large else read_sparse(archive))
            key = _matrix_key(file, archive, description.dataset)
            large = is_too_large(8 * math.prod(archive.shape(key)), memory)
            X = npz_source(file, key) if large else archive.read(key)
            names, ids = (_texts(archive, name) for name in ("feature_names", "row_ids"))
    except InputError as error:
        if str(file) in str(error):
            raise
        raise FileError(f"{file} is not a .npz file of numbers ({error}); save it with numpy.savez") from error
    return Table(X, names, ids)


def _matrix_key(file: Path, archive: Archive, wanted: str | None) -> str:
    shapes = {name: archive.shape(name) for name in archive.names}
    wanted = (wanted or "").strip("/") or ("X" if "X" in shapes else "")
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if wanted in shapes or (not wanted and len(matrices) == 1):
        return wanted or matrices[0]
    told = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"
    advice = f"name one of them instead of {wanted!r}" if wanted else "name the table 'X', or keep exactly one 2-D array"
    raise InputError(f"{file} holds the arrays: {told}; {advice}")


def _texts(archive: Archive, name: str) -> tuple[str, ...] | None:
    values: NDArray[Any] = archive.read(name) if name in archive.names else np.zeros(0)
    return tuple(str(value) for value in values.ravel().tolist()) if name in archive.names else None
