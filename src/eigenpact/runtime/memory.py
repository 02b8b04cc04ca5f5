"""What a site remembers between two requests, as bytes: for engines whose sites answer each request in a new process.

The encoding is that of messages (``wire.py``): a JSON header and plain array buffers, never pickle.  Arrays come back with their
bits and dtype, and in C or Fortran order as they were, so that what is computed from them has the same bits too; other strides
become C order, and subclasses of arrays are refused.  Nothing of this is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import WireError
from . import wire
from .local import Arrays

PLAIN = (bool, int, float, str)


def pack_memory(value: dict[str, Any]) -> bytes:
    """Bytes of a dictionary of what may be kept: None, numbers, texts, numpy arrays, and tuples, lists or dictionaries of them.

    >>> unpack_memory(pack_memory({"rank": 3, "V": np.eye(2), "mean": None, "pair": (1.5, "x")}))["pair"]
    (1.5, 'x')
    """
    arrays: list[np.ndarray[Any, Any]] = []
    return bytes(wire.pack({"memory": _encode(value, arrays, "memory")}, arrays))


def unpack_memory(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Inverse of :func:`pack_memory`; arrays are copies that may be written to."""
    header, arrays = wire.unpack(data)
    try:
        value = _decode(header["memory"], arrays)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise WireError(f"what the site remembered cannot be read: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise WireError("what the site remembered is not a dictionary")
    return value


def _encode(value: Any, arrays: list[np.ndarray[Any, Any]], name: str) -> dict[str, Any]:
    if value is None or type(value) in PLAIN:
        return {"plain": value}
    if type(value) is np.ndarray or isinstance(value, np.generic):  # a subclass, say a masked array, would lose what it adds
        array = np.asarray(value)
        turned = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
        arrays.append(array.T if turned else array)
        return {"array": len(arrays) - 1, "turned": turned, "scalar": isinstance(value, np.generic)}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_encode(item, arrays, name) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": [[key, _encode(item, arrays, key)] for key, item in value.items()]}
    raise WireError(
        f"{name!r} of type {type(value).__name__} cannot be kept between two requests on this engine; "
        "keep numpy arrays, numbers, texts, or tuples of them"
    )


def _decode(described: dict[str, Any], arrays: Arrays) -> Any:
    if "plain" in described:
        return described["plain"]
    if "array" in described:
        array = arrays[described["array"]].copy()
        if described["scalar"]:
            return array[()]
        return array.T if described["turned"] else array
    if "tuple" in described:
        return tuple(_decode(item, arrays) for item in described["tuple"])
    if "list" in described:
        return [_decode(item, arrays) for item in described["list"]]
    return {key: _decode(item, arrays) for key, item in described["dict"]}
