"""What compiled loops over dense rows share: a row is copied, in the precision of the products, and centred on the way."""

from __future__ import annotations

from collections.abc import Sequence

from .machine_code import Code, Vectors


def put_centred(
    code: Code, features: str | int, source: str, read: Vectors, to: str, kind: Vectors, centres: Sequence[str] = ()
) -> None:
    """Put some ``features`` of a row that lies at ``source`` to an address, less the numbers at ``centres``, one after the other.

    The row is of the kind ``read``, all others are of ``kind``.
    """

    def entries(j: str, old: str, new: str) -> None:
        value = code.convert(code.load(old, code.at(source, j, read), read.size), old, new)
        for centre in centres:
            value = code.new(f"fsub {new} {value}, {code.load(new, code.at(centre, j, kind), kind.size)}")
        code.store(new, value, code.at(to, j, kind), kind.size)

    whole = code.times(code.over(features, kind.lanes), kind.lanes)
    code.loop(0, whole, kind.lanes, lambda j: entries(j, read.type, kind.type), may_be_empty=True)
    code.loop(whole, features, 1, lambda j: entries(j, read.number, kind.number), may_be_empty=True)
