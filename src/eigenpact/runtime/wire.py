"""Bytes for messages and journals: a JSON header and plain array buffers.  Never pickle.

Layout: 8 bytes length of the header, the header with dtypes and shapes (padded with blanks so that what follows is aligned), then
each array's bytes, each padded to 64 bytes.  Sizes are checked before anything is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import WireError
from .local import DTYPES, Arrays, as_arrays

ALIGN = 64
MAX_HEADER = 1 << 28
MAX_AXES, MAX_AXIS = 8, 1 << 48
"""What an array in a message may have: numbers beyond are neither multiplied nor written into an error."""

BYTES_A_PART = 64
"""A limited header may have one bracket or comma for so many bytes: Python's objects for one take up to 140."""


def pack(header: dict[str, Any], arrays: Sequence[np.ndarray[Any, Any]] = ()) -> bytearray:
    """Bytes of a header (anything JSON can hold) and arrays.

    >>> header, (a,) = unpack(pack({"step": 3}, [np.arange(3.0)]))
    >>> header["step"], a.tolist()
    (3, [0.0, 1.0, 2.0])
    """
    contiguous = as_arrays(tuple(arrays))
    for a in contiguous:
        _check_dtype(a.dtype.name)
    text = json.dumps([header, [[a.dtype.name, a.shape] for a in contiguous]], separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    out = bytearray(8 + len(text) + sum(_padded(a.nbytes) for a in contiguous))
    out[:8] = len(text).to_bytes(8, "little")
    out[8 : 8 + len(text)] = text
    at = 8 + len(text)
    for a in contiguous:
        out[at : at + a.nbytes] = a.reshape(-1).view(np.uint8).data
        at += _padded(a.nbytes)
    return out


def check_size(data: bytes | bytearray | memoryview, most: int) -> None:
    """Refuse a stranger's message before it is read if its header has more than ``most`` bytes, or more parts than fit them."""
    view = memoryview(data)
    length = int.from_bytes(view[:8], "little")
    if length > most:
        raise WireError(f"message header of {length} bytes: at most {most} are allowed here")
    text = bytes(view[8 : 8 + length])
    parts = sum(text.count(sign) for sign in (b"[", b"{", b","))
    if parts > most // BYTES_A_PART:
        raise WireError(f"message header with {parts} brackets and commas: at most {most // BYTES_A_PART} are allowed here")


def unpack(data: bytes | bytearray | memoryview) -> tuple[dict[str, Any], Arrays]:
    """Inverse of :func:`pack`; arrays are read-only views of the data."""
    view = memoryview(data)
    if len(view) < 8:
        raise WireError(f"message of {len(view)} bytes is shorter than its own length field")
    length = int.from_bytes(view[:8], "little")
    if length > min(MAX_HEADER, len(view) - 8):
        raise WireError(f"message header of {length} bytes does not fit a message of {len(view)} bytes")
    header, described = _read_header(view[8 : 8 + length])
    arrays = []
    at = 8 + length
    for dtype_name, shape in described:
        dtype = np.dtype(dtype_name)
        nbytes = math.prod(shape) * dtype.itemsize
        if at + nbytes > len(view):
            raise WireError(f"message array of shape {shape} needs {nbytes} bytes; {len(view) - at} are left")
        try:
            array = np.frombuffer(view[at : at + nbytes], dtype=dtype).reshape(shape)
            if not array.flags.aligned:  # numpy adds up unaligned arrays in another order: other bits
                array = array.copy()
        except (ValueError, OverflowError) as error:  # without entries, but with axes that numpy cannot hold
            raise WireError(f"message array cannot have shape {shape}: {error}") from error
        if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise WireError("message array of truths holds a byte that is neither 0 nor 1")
        array.flags.writeable = False
        arrays.append(array)
        at += _padded(nbytes)
    if at != len(view):
        raise WireError(f"message of {len(view)} bytes, but its header describes {at}")
    return header, tuple(arrays)


def _read_header(text: memoryview) -> tuple[dict[str, Any], list[tuple[str, tuple[int, ...]]]]:
    """The sender's header, and dtype and shape of each array."""
    try:
        header, arrays = json.loads(str(text, "ascii"))  # as ``pack`` writes it; one other letter could make all of it wide
        described = [(dtype, tuple(shape)) for dtype, shape in arrays]
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"message header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise WireError(f"message header is a {type(header).__name__}, not an object")
    for dtype, shape in described:
        _check_dtype(dtype)
        if len(shape) > MAX_AXES or not all(type(n) is int and 0 <= n <= MAX_AXIS for n in shape):
            raise WireError(f"message array: its shape must be at most {MAX_AXES} whole numbers from 0 to {MAX_AXIS}")
    return header, described


def _check_dtype(name: Any) -> None:
    if not isinstance(name, str) or name not in DTYPES:
        raise WireError(f"message array of dtype {name!r}: allowed are {', '.join(sorted(DTYPES))}")


def digest(name: str, arrays: Iterable[np.ndarray[Any, Any]]) -> str:
    """Digest of a function's name and arguments, to tell a repeated request from a different one."""
    h = hashlib.blake2b(name.encode(), digest_size=16)
    for a in arrays:
        h.update(f"|{a.dtype.name}{a.shape}|".encode())
        h.update(np.asarray(a, order="C").reshape(-1).view(np.uint8).data)
    return h.hexdigest()


def _padded(nbytes: int) -> int:
    return nbytes + (-nbytes % ALIGN)
