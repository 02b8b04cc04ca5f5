"""Read .npy and .npz files that anybody may have written: plain numbers and texts, sizes checked before memory is taken.

A header says how large an array is, and a few bytes can claim petabytes; a compressed member can grow a thousandfold.  So a
header is held against the bytes that are there, a compressed member against ``EXPANSION``, and only the members asked for
are read.  Nothing is unpickled.  Whatever is wrong is an InputError.
"""

from __future__ import annotations

import ast
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..storage import open_regular

EXPANSION, UNHINDERED = 200, 1 << 26
"""What is compressed may grow so many times; up to so many bytes it may grow as it likes."""

MAX_HEADER = 4096
LAST_CHARACTER, SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)
PIECE = 1 << 17
MAX_MEMBERS = 4096
"""Arrays in an archive; the list of millions of empty ones would take many times the file's size."""

DTYPE = re.compile(r"[<>|=]?[biufcSU][1-9][0-9]{0,5}")

BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError)


def check_expansion(what: object, size: int, compressed: int, advice: str) -> None:
    """Raise an InputError where so many bytes come out of so few that nobody would have written them."""
    if size > max(UNHINDERED, EXPANSION * compressed):
        raise InputError(f"{what}: {compressed} bytes unfold to {size} or more, over {EXPANSION} times as many; {advice}")


def read_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file; a MemoryError where it does not fit."""
    with open_regular(path, follow=True) as file:
        dtype, shape, fortran = read_header(file, os.fstat(file.fileno()).st_size)
        with told(MemoryError):
            flat = np.fromfile(file, dtype, math.prod(shape))
    return _shaped(flat, shape, fortran)


class Archive:
    """A .npz file; ``names`` are those of its arrays, which may be ``compressed`` or not."""

    def __init__(self, file: IO[bytes], *, compressed: bool = True) -> None:
        self._compressed = compressed
        with told():
            if sum(piece.count(b"PK\1\2") for piece in iter(lambda: file.read(PIECE), b"")) > MAX_MEMBERS:
                raise InputError(f"it lists more than {MAX_MEMBERS} arrays")
            self._zip = zipfile.ZipFile(file)
            members = self._zip.infolist()
        self._members = {member.filename.removesuffix(".npy"): member for member in members}
        self.names = tuple(self._members)
        if len(self.names) < len(members):
            raise InputError("it holds two arrays of one name")

    def member(self, name: str) -> zipfile.ZipInfo:
        """Where an array lies, and how large it is."""
        if name not in self._members:
            raise InputError(f"it has no array {name!r}")
        member = self._members[name]
        if not self._compressed and member.file_size > member.compress_size:
            raise InputError(f"array {name!r} is compressed")
        check_expansion(f"array {name!r}", member.file_size, member.compress_size, "save it without compression")
        return member

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, which is not read."""
        member = self.member(name)
        with told(), self._zip.open(member) as file:
            return read_header(file, member.file_size)[1]

    def read(self, name: str) -> NDArray[Any]:
        """An array by its name."""
        member = self.member(name)
        with told(), self._zip.open(member) as file:
            dtype, shape, fortran = read_header(file, member.file_size)
            flat = np.empty(math.prod(shape), dtype)
            _fill(file, flat)
        return _shaped(flat, shape, fortran)


@contextmanager
def told(*but: type[BaseException]) -> Iterator[None]:
    """Tell as an InputError what numpy, and zipfile of an archive that is damaged, encrypted or of a newer kind, raise.

    What is ``but`` these passes.
    """
    try:
        yield
    except InputError:
        raise
    except (*BROKEN, OSError, ValueError, KeyError, RuntimeError, MemoryError) as error:
        if isinstance(error, but):
            raise
        raise InputError(f"it cannot be read: {error}") from error


def read_header(file: IO[bytes], size: int) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Dtype, shape and order of the array that begins here; its bytes must be there: the file has ``size``."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise InputError("it does not begin as an array saved by numpy")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > MAX_HEADER:
        raise InputError(f"its header has {length} bytes, more than {MAX_HEADER}")
    dtype, shape, fortran = _parse_header(file.read(length))
    needed, left = math.prod(shape) * dtype.itemsize, size - 8 - width - length
    if needed > left:
        raise InputError(f"an array of shape {shape} needs {needed} bytes, and {max(0, left)} are there")
    return dtype, shape, fortran


def _parse_header(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        header = ast.literal_eval(text.decode("latin1").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:  # as Python's parser tells of deep nesting
        raise InputError("its header cannot be read") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise InputError("its header does not describe an array")
    descr, shape, fortran = header["descr"], header["shape"], header["fortran_order"]
    if not isinstance(descr, str) or not DTYPE.fullmatch(descr):
        told = "Python objects, not numbers: save X.astype(float)" if descr == "|O" else "neither of numbers nor of texts"
        raise InputError(f"its dtype {str(descr)[:50]!r} is {'of ' if descr == '|O' else ''}{told}")
    if not isinstance(shape, tuple) or len(shape) > 8 or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape):
        raise InputError("its shape is none")
    try:
        return np.dtype(descr), shape, bool(fortran)
    except TypeError as error:
        raise InputError(f"its dtype {descr!r} is unknown") from error


def _fill(file: IO[bytes], flat: NDArray[Any]) -> None:
    """Read the bytes of an array, a piece after the other."""
    view, at = flat.view(np.uint8).data, 0
    while at < len(view):
        piece = file.read(min(PIECE, len(view) - at))
        if not piece:
            raise InputError("it ends before its last entry")
        view[at : at + len(piece)] = piece
        at += len(piece)
    if file.read(1):
        raise InputError("it goes on after its last entry")


def _shaped(flat: NDArray[Any], shape: tuple[int, ...], fortran: bool) -> NDArray[Any]:
    if flat.dtype.kind == "U" and flat.size and flat.dtype.itemsize:
        codes = flat.astype(flat.dtype.newbyteorder("=")).view(np.uint32)
        if codes.max() > LAST_CHARACTER or np.any((codes >= SURROGATES[0]) & (codes <= SURROGATES[1])):
            raise InputError("its texts hold what is no character")
    try:
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError) as error:
        raise InputError(f"an array cannot have shape {shape}") from error
