"""Bytes for messages: what is packed comes back, and nothing else is let in."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eigenpact.errors import WireError
from eigenpact.runtime import wire
from eigenpact.runtime.local import DTYPES

arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)

MESSAGE = bytes(wire.pack({"step": 3, "run": "x"}, [np.arange(6.0).reshape(2, 3), np.array(7), np.zeros((0, 2), dtype=bool)]))


def crafted(header: object, body: bytes = b"") -> bytes:
    """A message whose header is any JSON text, correctly padded."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + body


@given(st.dictionaries(st.text(), json_values, max_size=4), st.lists(arrays, max_size=3))
def test_round_trip(header, sent):
    back, received = wire.unpack(wire.pack(header, sent))
    assert back == header
    assert len(received) == len(sent)
    for a, b in zip(sent, received, strict=True):
        assert (b.dtype, b.shape) == (a.dtype, a.shape)
        assert b.tobytes() == a.tobytes()
        assert not b.flags.writeable


def test_a_header_may_use_any_key():
    header = {"arrays": 5, "header": [1]}
    assert wire.unpack(wire.pack(header, [np.ones(2)]))[0] == header


def test_order_and_byte_order_in_memory_do_not_matter():
    a = np.arange(6.0).reshape(2, 3)
    _, (fortran, strided, swapped) = wire.unpack(wire.pack({}, [np.asfortranarray(a), a[:, ::2], a.astype(">f8")]))
    assert fortran.tolist() == a.tolist()
    assert strided.tolist() == [[0, 2], [3, 5]]
    assert swapped.tolist() == a.tolist()


@pytest.mark.parametrize("dtype", ["complex128", "float16", "object", "datetime64[s]", "U3"])
def test_what_could_not_be_read_is_not_written(dtype):
    with pytest.raises(WireError, match="allowed are"):
        wire.pack({}, [np.zeros(2, dtype=dtype)])


@pytest.mark.parametrize("length", range(len(MESSAGE)))
def test_a_truncated_message_is_refused(length):
    with pytest.raises(WireError):
        wire.unpack(MESSAGE[:length])


def test_a_longer_message_is_refused():
    with pytest.raises(WireError, match="describes"):
        wire.unpack(MESSAGE + bytes(64))


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_raise_wire_errors_or_nothing(changes):
    message = bytearray(MESSAGE)
    for at, value in changes:
        message[at] = value
    with contextlib.suppress(WireError):
        wire.unpack(message)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_raise_wire_errors_or_nothing(data):
    for message in (data, crafted(data)):
        with contextlib.suppress(WireError):
            wire.unpack(message)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'[{},[["float64",[1e999]]]]',
        b'[{},[["float64",[NaN]]]]',
        b'[{},[["float64",[' + b"9" * 5000 + b"]]]]",
        b'[{},[["float64",[' + b",".join([b"9" * 4300] * 2) + b"]]]]",
        b'[{},[["float64",['
        + b",".join([b"9" * 4300] * 400)
        + b"]]]]",  # their product would take seconds, with all threads still
        [{}, [["float64", [0, 10**30]]]],
        [{}, [["float64", [0, 2**62, 2**62]]]],
        [{}, [["float64", [0] * 100]]],
        [{}, [["float64", [-1]]]],
        [{}, [["float64", [10**30]]]],
        [{}, [["float64", [1 << 40]]]],
        [{}, [["float64", [2.0]]]],
        [{}, [["float64", ["2"]]]],
        [{}, [["float64", [True]]]],
        [{}, [["float64", "23"]]],
        [{}, [["object", [2]]]],
        [{}, [[["float64"], [2]]]],
        [{}, [["float64"]]],
        [{}, 5],
        [[], []],
        [{}],
        {"a": 1, "b": 2},
        "ab",
        17,
        b"\xff\xfe\x00",
        b"",
    ],
    ids=lambda header: str(header)[:40],
)
def test_hostile_headers_are_refused(header):
    with pytest.raises(WireError):
        wire.unpack(crafted(header, bytes(64)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_a_header_is_ascii(encoding):
    """As ``pack`` writes it, whatever letters are in it: one of another alphabet would make all of the text wide in memory."""
    assert wire.unpack(wire.pack({"name": "Größe 身長"}))[0] == {"name": "Größe 身長"}
    with pytest.raises(WireError, match="cannot be read: 'ascii'"):
        wire.unpack(crafted('[{"name":"Größe"},[]]'.encode(encoding)))


def test_truths_are_0_or_1():
    header = [{}, [["bool", [2]]]]
    assert wire.unpack(crafted(header, b"\x01\x00" + bytes(62)))[1][0].tolist() == [True, False]
    with pytest.raises(WireError, match="neither 0 nor 1"):
        wire.unpack(crafted(header, b"\x01\x02" + bytes(62)))


@pytest.mark.parametrize(("header", "most"), [({"x": "y" * 200}, 128), ({"x": [0] * 50}, 1024), ({"x": [[]] * 20}, 1024)])
def test_a_header_may_be_bounded_before_it_is_read(header, most):
    """By its length, and by how many parts it has; arrays do not count."""
    message = wire.pack(header, [np.zeros(10_000)])
    wire.check_size(message, 1 << 16)
    with pytest.raises(WireError, match=r"message header (of|with) \d+ .*: at most \d+ are allowed here"):
        wire.check_size(message, most)


def test_a_header_longer_than_its_message_is_refused():
    with pytest.raises(WireError, match="does not fit"):
        wire.unpack((1 << 62).to_bytes(8, "little") + bytes(100))


@given(st.lists(arrays, min_size=1, max_size=3), st.data())
def test_digests_tell_names_dtypes_shapes_and_values_apart(args, data):
    digest = wire.digest("f", args)
    assert wire.digest("f", [a.copy(order="F") for a in args]) == digest
    assert wire.digest("g", args) != digest
    assert wire.digest("f", args[:-1]) != digest
    a = args[-1]
    assert wire.digest("f", [*args[:-1], a.reshape((1, *a.shape))]) != digest
    if a.size:
        changed = a.copy()
        changed.reshape(-1).view(np.uint8)[data.draw(st.integers(0, a.nbytes - 1))] ^= 1
        assert wire.digest("f", [*args[:-1], changed]) != digest
