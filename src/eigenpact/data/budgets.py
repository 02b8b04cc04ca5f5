"""How much memory rows may take: what is larger is read a piece at a time."""

from __future__ import annotations

import re
from typing import Any

from ..errors import InputError
from ..numerics.sources import PIECE_BYTES, RowSource

SHARE = 4
"""A fourth of the memory that is given is for rows: the program itself, blocks of floats and the answer take the rest."""

PIECES, LEAST_PIECE = 8, 1 << 20
"""A piece is an eighth of what rows may take, since up to three of them are in memory at once; but a megabyte at least."""

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

LEAST_MEMORY = 64 * 10**6


def parse_memory(text: str) -> int:
    """Bytes from a text such as "512MB" or "2 GiB".

    >>> parse_memory("512MB"), parse_memory("1.5GiB")
    (512000000, 1610612736)
    >>> parse_memory("60MiB")
    Traceback (most recent call last):
    eigenpact.errors.InputError: --memory 60MiB is less than the program itself takes; give at least 64MB
    """
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in UNITS:
        raise InputError(f"--memory {text} is not a size; give for example 512MB or 2GB")
    size = int(float(match[1]) * UNITS[match[2].upper()])
    if size < LEAST_MEMORY:
        raise InputError(f"--memory {text} is less than the program itself takes; give at least {LEAST_MEMORY // 10**6}MB")
    return size


def memory_for_rows(memory: int | None, files: int = 1) -> int | None:
    """What the rows of each of so many files may take, of a program's memory; None: as much as they need.

    >>> memory_for_rows(512 << 20, 2) == 64 << 20, memory_for_rows(None)
    (True, None)
    """
    return None if memory is None else max(1, memory // (SHARE * max(1, files)))


def is_too_large(n_bytes: int, memory: int | None) -> bool:
    """Whether rows of so many bytes are to be read a piece at a time."""
    return memory is not None and n_bytes > memory


def in_pieces(source: Any, memory: int | None) -> Any:
    """The source, told how much to read at a time."""
    if memory is not None and isinstance(source, RowSource):
        source.piece_bytes = piece_bytes(memory)
    return source


def piece_bytes(memory: int) -> int:
    """How much of rows that may take so many bytes is read at a time."""
    return min(PIECE_BYTES, max(LEAST_PIECE, memory // PIECES))
