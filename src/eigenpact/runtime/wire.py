"""Bytes for messages and journals: a JSON header and plain array buffers.  Never pickle.

Layout: 8 bytes length of the header, the header (padded with blanks so that what follows is aligned), then each array's bytes,
each padded to 64 bytes.  Sizes are checked before anything is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import WireError
from .local import DTYPES, Arrays

ALIGN = 64
MAX_HEADER = 1 << 28


def pack(header: dict[str, Any], arrays: Sequence[np.ndarray[Any, Any]] = ()) -> bytearray:
    """Bytes of a header (anything JSON can hold) and arrays.

    >>> header, (a,) = unpack(pack({"step": 3}, [np.arange(3.0)]))
    >>> header["step"], a.tolist()
    (3, [0.0, 1.0, 2.0])
    """
    contiguous = [np.asarray(a, order="C") for a in arrays]
    described = header | {"arrays": [[a.dtype.name, list(a.shape)] for a in contiguous]}
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    out = bytearray(8 + len(text) + sum(_padded(a.nbytes) for a in contiguous))
    out[:8] = len(text).to_bytes(8, "little")
    out[8 : 8 + len(text)] = text
    at = 8 + len(text)
    for a in contiguous:
        out[at : at + a.nbytes] = a.reshape(-1).view(np.uint8).data
        at += _padded(a.nbytes)
    return out


def unpack(data: bytes | bytearray | memoryview) -> tuple[dict[str, Any], Arrays]:
    """Inverse of :func:`pack`; arrays are read-only views of the data."""
    view = memoryview(data)
    if len(view) < 8:
        raise WireError(f"message of {len(view)} bytes is shorter than its own length field")
    length = int.from_bytes(view[:8], "little")
    if length > min(MAX_HEADER, len(view) - 8):
        raise WireError(f"message header of {length} bytes does not fit a message of {len(view)} bytes")
    try:
        header = json.loads(bytes(view[8 : 8 + length]))
        described = [(str(dtype), tuple(int(n) for n in shape)) for dtype, shape in header.pop("arrays")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"message header cannot be read: {error}") from error
    arrays = []
    at = 8 + length
    for dtype_name, shape in described:
        if dtype_name not in DTYPES or any(n < 0 for n in shape):
            raise WireError(f"message array of dtype {dtype_name!r}, shape {shape}: not allowed")
        dtype = np.dtype(dtype_name)
        nbytes = math.prod(shape) * dtype.itemsize
        if at + nbytes > len(view):
            raise WireError(f"message array of shape {shape} needs {nbytes} bytes; {len(view) - at} are left")
        array = np.frombuffer(view[at : at + nbytes], dtype=dtype).reshape(shape)
        array.flags.writeable = False
        arrays.append(array)
        at += _padded(nbytes)
    return header, tuple(arrays)


def digest(name: str, arrays: Iterable[np.ndarray[Any, Any]]) -> str:
    """Digest of a function's name and arguments, to tell a repeated request from a different one."""
    h = hashlib.blake2b(name.encode(), digest_size=16)
    for a in arrays:
        h.update(f"|{a.dtype.name}{a.shape}|".encode())
        h.update(np.asarray(a, order="C").reshape(-1).view(np.uint8).data)
    return h.hexdigest()


def _padded(nbytes: int) -> int:
    return nbytes + (-nbytes % ALIGN)
