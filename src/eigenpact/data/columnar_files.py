"""Read Parquet, Feather and Arrow files, batch by batch, with pyarrow; only the columns that are used."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EigenpactError, FileError, InputError, MissingExtraError
from .array_files import check_expansion
from .as_stored import check_exact
from .cell_texts import number_text
from .description import Description
from .findings import Finding, raise_problems
from .layout import Layout, arrange
from .spool import GatheredRows, GatheredTexts
from .table import Table, reads

BATCH = 1 << 24
"""Bytes of rows that are read at a time."""


def _pyarrow(*names: str) -> list[Any]:
    try:
        return [importlib.import_module(name) for name in ("pyarrow", *names)]
    except ImportError as error:
        raise MissingExtraError(
            f"reading .parquet, .feather and .arrow files needs pyarrow ({error}); run: pip install 'eigenpact[tables]'"
        ) from error


@contextmanager
def _told(file: Path, kind: str) -> Iterator[None]:
    arrow = importlib.import_module("pyarrow")
    try:
        yield
    except EigenpactError:
        raise
    except MemoryError as error:
        raise FileError(f"{file} claims more than this machine's memory ({error}); save it anew, in smaller parts") from error
    except (arrow.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:  # notes may be damaged, too
        raise FileError(f"{file} is not a {kind} file ({error}); save it anew") from error


@reads(".parquet", described=True)
def read_parquet(file: Path, description: Description, memory: int | None) -> Table:
    """A Parquet file, in batches of rows."""
    (parquet,) = _pyarrow("pyarrow.parquet")[1:]
    with (
        _told(file, "parquet"),
        parquet.ParquetFile(file, pre_buffer=False) as content,
    ):  # its threads outlive an error, and crash
        _check_size(file, content.metadata)
        columns = _Columns.find(file, content.schema_arrow, description)
        step = max(1, BATCH // (8 * len(columns.layout.features)))
        batches = content.iter_batches(batch_size=step, columns=columns.used, use_threads=False)
        return columns.gather(file, batches, memory)


def _check_size(file: Path, metadata: Any) -> None:
    """Rows that are all alike take no room in a parquet file, but in memory they do."""
    cells = 8 * metadata.num_rows * metadata.num_columns
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    check_expansion(file, max(cells, unpacked), file.stat().st_size, "save it as .npy")


@reads(".feather", ".arrow", described=True)
def read_arrow(file: Path, description: Description, memory: int | None) -> Table:
    """A Feather or Arrow file, batch by batch as it was written."""
    arrow, ipc = _pyarrow("pyarrow.ipc")
    with _told(file, "feather"), arrow.OSFile(str(file)) as stream:
        if stream.read(6) != b"ARROW1":
            raise FileError(f"{file} is not a feather file (of version 2, which begins with ARROW1); save it anew with pyarrow")
        stream.seek(0)
        content = ipc.open_file(stream)
        columns = _Columns.find(file, content.schema, description)
        batches = (content.get_batch(i) for i in range(content.num_record_batches))
        return columns.gather(file, _pieces(batches, columns.used, len(columns.layout.features)), memory)


def _pieces(batches: Iterator[Any], used: list[str], d: int) -> Iterator[Any]:
    """Smaller batches of the used columns, whose bytes were checked: a damaged one points anywhere."""
    step = max(1, BATCH // (8 * d))
    for batch in batches:
        chosen = batch.select(used)
        chosen.validate(full=True)
        for first in range(0, chosen.num_rows, step):
            yield chosen.slice(first, step)


@dataclass(frozen=True)
class _Columns:
    """What the columns of a file are."""

    layout: Layout
    used: list[str]
    notes: tuple[str, ...]
    types: list[np.dtype[Any]]
    """What each feature is in the file, as far as it matters: float64, or smaller floats."""

    @classmethod
    def find(cls, file: Path, schema: Any, description: Description) -> _Columns:
        (types,) = _pyarrow("pyarrow.types")[1:]
        names, problems, notes = list(schema.names), list[Finding](), list[str]()
        kinds = {name: _kind(types, schema.field(i).type) for i, name in enumerate(names)}
        if len(kinds) < len(names):
            raise InputError(f"{file} has repeated column names; rename the columns apart")
        index = _pandas_index(schema.metadata, names)
        ids = next((names.index(name) for name in index if kinds[name] == "text"), None)
        agreed = {name: description.rename.get(name, name) for name in names}
        description = description.narrowed(list(agreed.values()))
        said = {*description.categorical, *description.labels, *description.drop, *(description.columns or ())}
        silent = [name for name in names if agreed[name] not in said and agreed[name] != description.id]
        texts = [agreed[name] for name in silent if kinds[name] == "text" and name not in index and description.columns is None]
        if texts:
            notes.append(f"columns of text are no features: {', '.join(texts[:8])}")
        unused = [agreed[name] for name in silent if name in index and names.index(name) != ids]
        told = Description(**{**vars(description), "labels": (*description.labels, *texts), "drop": (*description.drop, *unused)})
        layout = arrange(names, told, ids, True, problems, line=None)
        for j in layout.features:
            if kinds[names[j]] != "number":
                wrong = f'it is of type {schema.field(j).type}, not of numbers; leave it out: drop = ["{agreed[names[j]]}"]'
                problems.append(Finding(wrong, None, j + 1, names[j]))
        if not layout.features and not problems:
            problems.append(Finding("no column of numbers is left"))
        raise_problems(file, problems)
        used = {*layout.features, *layout.texts.values(), *(() if layout.ids is None else (layout.ids,))}
        own = [_float_type(types, schema.field(j).type) for j in layout.features]
        return cls(layout, [names[j] for j in sorted(used)], tuple(notes), own)

    def gather(self, file: Path, batches: Iterator[Any], memory: int | None) -> Table:
        layout, names = self.layout, self.layout.header or ()
        rows = GatheredRows(len(layout.features), memory)
        ids, texts = GatheredTexts(), {name: GatheredTexts() for name in layout.texts}
        for batch in batches:
            X = np.empty((batch.num_rows, len(layout.features)))
            for k, j in enumerate(layout.features):
                X[:, k] = self._numbers(file, batch.column(names[j]), names[j])
            rows.add(layout.finish(X, *self.types))
            if layout.ids is not None:
                ids.add(_words(batch.column(names[layout.ids])), spill=rows.spooled)
            for name, j in layout.texts.items():
                texts[name].add(_words(batch.column(names[j])), spill=rows.spooled)
        if not rows.n:
            raise InputError(f"{file} holds a table of no rows; give at least one row and one column")
        named = None if layout.ids is None else ids.texts()
        found = {name: each.texts() for name, each in texts.items()}
        return Table(rows.rows(), layout.names, named, texts=found, notes=self.notes)

    def _numbers(self, file: Path, column: Any, name: str) -> NDArray[np.float64]:
        arrow, types = _pyarrow("pyarrow.types")
        if types.is_int64(column.type) or types.is_uint64(column.type):
            check_exact(str(file), column.drop_null().to_numpy(zero_copy_only=False)[:, None], [name])
        try:
            return np.asarray(column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False))
        except arrow.ArrowInvalid as error:
            raise FileError(f"{file}, column {name!r} cannot be read as numbers ({error})") from error


def _words(column: Any) -> list[str]:
    (types,) = _pyarrow("pyarrow.types")[1:]
    if _kind(types, column.type) != "number" or types.is_boolean(column.type):
        return ["" if value is None else str(value) for value in column.to_pylist()]
    kind = _float_type(types, column.type)
    return [number_text(value, kind) for value in column.to_pylist()]


def _kind(types: Any, type_: Any) -> str:
    inner = type_.value_type if types.is_dictionary(type_) else type_
    if types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner) or types.is_decimal(inner):
        return "number"
    return "text" if types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner) else "other"


def _float_type(types: Any, type_: Any) -> np.dtype[Any]:
    inner = type_.value_type if types.is_dictionary(type_) else type_
    return np.dtype(np.float16 if types.is_float16(inner) else np.float32 if types.is_float32(inner) else np.float64)


def _pandas_index(metadata: dict[bytes, bytes] | None, names: list[str]) -> list[str]:
    """Columns that pandas wrote as its index."""
    try:
        notes = json.loads((metadata or {}).get(b"pandas", b"{}"))
        index = notes.get("index_columns", []) if isinstance(notes, dict) else []
    except (ValueError, RecursionError):
        return []
    return [name for name in index if isinstance(name, str) and name in names] if isinstance(index, list) else []
