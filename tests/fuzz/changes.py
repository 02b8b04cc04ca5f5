"""Messages changed so that they are wrong: by what a network does to bytes, and by somebody who knows the format.

``Parts`` is a message taken apart.  A change makes other bytes of it, drawn from a generator; ``CHANGES`` has them by name, with
a payload that gets a checksum that fits, ``DAMAGES`` those of whole messages, whose checksum is left as it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenpact.runtime import wire
from eigenpact.runtime.local import DTYPES

Rng = np.random.Generator

LONGEST = 400_000
"""About so many bytes has the longest header that is made, to show what grows faster than its length."""

RAW = "\x00raw"
"""A text that begins so stands for the rest of it as it is: what ``json.dumps`` would not write."""

ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 1.0, -0.5, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400, float("nan"), float("inf"),
    "", "r", "sum", "local", "gather", "exchange", "consider", "digest", "hello", "plan", "request", "float64", "object",
    "x" * 300, "\ud800", "\n\x1b[2J", "é", "😀", "eigenpact:count_and_sum/1", "eigenpact.algorithms.setup:spread", "os:system",
    [], {}, [[]], {"": {}}, [None], ["a", 1],
    RAW + "9" * 4300, RAW + "9" * 4301, RAW + "-1e999", RAW + "[" * 900 + "]" * 900, RAW + '{"a":1,"a":2}', RAW + "01", RAW + "",
)  # fmt: skip

RAWS = tuple(value for value in ODD if isinstance(value, str) and value.startswith(RAW))

KEYS = ("what", "run", "epoch", "step", "plan", "site", "last", "n_features", "error", "lost", "refused", "damaged", "more")
"""What may stand in a header of some message, and what stands in none."""


@dataclass(frozen=True)
class Parts:
    """A message: header, dtypes and shapes, and the arrays' bytes."""

    header: Any
    described: Any
    body: bytes

    @classmethod
    def of(cls, payload: bytes | memoryview) -> Parts:
        """Take a whole payload apart."""
        header, arrays = wire.unpack(payload)
        begin = 8 + int.from_bytes(payload[:8], "little")
        return cls(header, [[a.dtype.name, list(a.shape)] for a in arrays], bytes(payload[begin:]))

    def payload(self) -> bytes:
        """Put it together again."""
        return headed(written([self.header, self.described]).encode(), self.body)


def written(value: Any) -> str:
    """As JSON, and what is no JSON as it is."""
    text = json.dumps(value, separators=(",", ":"))
    for raw in RAWS:
        text = text.replace(json.dumps(raw), raw.removeprefix(RAW))
    return text


def headed(text: bytes, body: bytes) -> bytes:
    """A payload with any text for its header."""
    text += b" " * (-(8 + len(text)) % wire.ALIGN)
    return len(text).to_bytes(8, "little") + text + body


def changed(rng: Rng, parts: Parts, other: Parts, names: tuple[str, ...]) -> tuple[str, bytes]:
    """A payload after one or two changes, and the name of the last."""
    name = names[rng.integers(len(names))]
    if rng.random() < 0.3:
        parts = replace(parts, header=odd_node(rng, parts.header))
    return name, CHANGES[name](rng, parts, other)


def odd_node(rng: Rng, value: Any) -> Any:
    """A value of JSON in which one thing is another, is gone, stands twice or is new."""
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[rng.integers(len(keys))]
        copy = value.copy()
        if rng.random() < 0.6:
            copy[key] = odd_node(rng, value[key])
        elif rng.random() < 0.5:
            del copy[key]
        elif isinstance(copy, dict):
            copy[KEYS[rng.integers(len(KEYS))]] = odd(rng)
        else:
            copy.insert(key, value[key])
        return copy
    return odd(rng)


def odd(rng: Rng) -> Any:
    """Something that stands in no message of ours."""
    return ODD[rng.integers(len(ODD))]


def flipped(rng: Rng, data: bytes) -> bytes:
    """Some bits of it turned round."""
    damaged = bytearray(data)
    for at in rng.integers(max(1, len(data)), size=rng.integers(1, 9)) if data else ():
        damaged[at] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def cut(rng: Rng, data: bytes) -> bytes:
    """Its beginning, or more than there was."""
    if rng.random() < 0.3:
        return data + rng.bytes(int(rng.integers(1, 200)))
    return data[: int(rng.integers(len(data) + 1))]


def spliced(rng: Rng, data: bytes, other: bytes) -> bytes:
    """The beginning of one and the end of another."""
    return data[: int(rng.integers(len(data) + 1))] + other[int(rng.integers(len(other) + 1)) :]


def _flipped_text(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    payload = parts.payload()
    begin = len(payload) - len(parts.body)
    return flipped(rng, payload[:begin]) + parts.body


def _flipped_values(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    return replace(parts, body=flipped(rng, parts.body)).payload()


def _odd_array(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """Dtypes, shapes and their number."""
    described = odd_node(rng, parts.described) if rng.random() < 0.5 else [list(one) for one in parts.described]
    if isinstance(described, list) and described and rng.random() < 0.7:
        described[rng.integers(len(described))] = [sorted(DTYPES)[rng.integers(len(DTYPES))], _shape(rng)]
    return replace(parts, described=described).payload()


def _shape(rng: Rng) -> list[Any]:
    """Few entries or many, on axes that may not exist."""
    longest = (3, 2**20, 2**48, 2**62, 10**400)[rng.integers(5)]
    axes = [longest, 0, 1, 2, -1, 6][: 1 + int(rng.integers(6))] * int(rng.integers(1, 4))
    return [axes[i] for i in rng.permutation(len(axes))]


def _shape_bomb(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """Numbers that would take long to multiply, or to write into an error."""
    digits, n = "9" * int(rng.integers(1, 4301)), size(rng, 4300)
    text = f"[{written(parts.header)}," + '[["float64",[' + ",".join([digits] * n) + "]]]]"
    return headed(text.encode(), parts.body)


def _many(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """Many small things, which take more memory than their text."""
    small = ("[]", "{}", '{"a":0}', "0", '""', "1.5", '{"a":[{}]}', '"\\ud83d\\ude00abcd"', "null")[rng.integers(9)]
    return _with_more(parts, "[" + ",".join([small] * size(rng, len(small))) + "]")


def _deep(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """Lists or objects in one another; not always closed."""
    begin, end = (("[", "]"), ('{"":', "}"))[rng.integers(2)]
    n = size(rng, 5)
    return _with_more(parts, begin * n + "0" + end * (n if rng.random() < 0.8 else n - 1))


def _long(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """A text, perhaps with a letter that makes all of it wide, under a key that is read or not."""
    key = ("more", "run", "digest", "function", "error", "lost", "site")[rng.integers(7)]
    letter = ("", "\\u00e9", "\\u4e2d", "\\ud83d\\ude00", "\\ud800")[rng.integers(5)]
    return _with_more(parts, '"' + "x" * size(rng, 1) + letter + '"', key)


def _twice(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """Keys that stand there already."""
    key = list(parts.header)[rng.integers(len(parts.header))] if isinstance(parts.header, dict) and parts.header else "what"
    return _with_more(parts, written(parts.header), key if rng.random() < 0.5 else "what")


def _foreign_letters(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """Another encoding, or none."""
    text = written([parts.header, parts.described])
    coded = (text.encode("utf-16"), text.encode("utf-32"), text.encode("utf-8-sig"), text.encode() + rng.bytes(9), rng.bytes(300))
    return headed(coded[rng.integers(len(coded))], parts.body)


def _wrong_length(rng: Rng, parts: Parts, _other: Parts) -> bytes:
    """A length of the header that is not its length."""
    length = (0, 1, 2**16, 2**28, 2**63, 2**64 - 1, int(rng.integers(1000)))[rng.integers(7)]
    return length.to_bytes(8, "little") + parts.payload()[8:]


def _with_more(parts: Parts, value: str, key: str = "more") -> bytes:
    """With one more key behind the others, where the last of two that are the same counts."""
    more = ("," if parts.header else "") + f'"{key}":{value}}}'
    return headed(f"[{written(parts.header)[:-1]}{more},{written(parts.described)}]".encode(), parts.body)


def size(rng: Rng, each: int) -> int:
    """How many things of so many bytes, from one up to the longest header; mostly few."""
    return 1 + int(LONGEST ** (rng.random() ** 2)) // each


Change = Callable[[Rng, Parts, Parts], bytes]

CHANGES: Mapping[str, Change] = {
    "flipped text": _flipped_text,
    "flipped values": _flipped_values,
    "spliced": lambda rng, parts, other: spliced(rng, parts.payload(), other.payload()),
    "cut": lambda rng, parts, _: cut(rng, parts.payload()),
    "noise": lambda rng, _parts, _other: rng.bytes(int(rng.integers(300))),
    "odd header": lambda rng, parts, _: replace(parts, header=odd_node(rng, parts.header)).payload(),
    "odder header": lambda rng, parts, _: replace(parts, header=odd_node(rng, odd_node(rng, parts.header))).payload(),
    "other arrays": lambda _rng, parts, other: replace(other, header=parts.header).payload(),
    "odd array": _odd_array,
    "shape bomb": _shape_bomb,
    "many": _many,
    "deep": _deep,
    "long": _long,
    "keys twice": _twice,
    "foreign letters": _foreign_letters,
    "wrong length": _wrong_length,
}
"""Changes of a payload by somebody who gives it a checksum that fits."""

DAMAGES: Mapping[str, Callable[[Rng, bytes, bytes], bytes]] = {
    "flipped bits": lambda rng, data, _: flipped(rng, data),
    "cut short": lambda rng, data, _: cut(rng, data),
    "mixed up": spliced,
}
"""Damages of a whole message, its checksum included."""
