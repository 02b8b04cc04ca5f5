"""Sums that nobody can look into: masks that cancel, over whole numbers that wrap.

Every two sites of a session share a key (``keys.py``).  For each sum they draw the same pad from it; the one whose name comes
first adds the pad to its reply, the other takes it away.  A single reply is then noise to whoever has not the keys of all its
pairs; the sum of all is the sum of the replies, to the bit, in any order.  No message is sent besides.

*Which pad.*  The stream cipher (AES-256 in counter mode) is keyed by HMAC of the pair's key over a transcript: a hash chain over
all requests of the session, function and arguments.  Sites that were asked different things draw different pads, and their
replies never cancel: a coordinator that sends one site other arguments gets noise, not a difference.  No transcript comes twice,
so no pad does; a site that is asked again repeats its reply.

*Which numbers.*  Where something was counted, 64-bit integers as they are.  Where the sum is bounded by the agreed trace, fixed
numbers (``numerics/whole_numbers.py``) that cannot overflow: both ends find the unit in what was told at set-up, so that it
need not be sent.  Else wide numbers, whose sum is ``math.fsum``'s; a pair of doubles is one wide number, and its sum a pair.

*What fails.*  Whether a function fails at a site, or a number exceeds its bound, depends on the site's rows, and a coordinator
that chooses the arguments could find any number of one site's by halving: a trace that is told too small is refused.  So behind
a gate such a failure stands in the site's own ledger, and what leaves, then and until the session ends, are random words.  The
sum is noise, and nobody can tell whose part it was.

What this does not do: a site can send anything, and nobody sees which; two sites that collude with all but one know that one's
part; a sum of all sites but one, made later, gives that one's by difference.  Rules against that are the policy's (``gate.py``).

References
    K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017 (pairwise masks; their
    recovery of lost sites is left out: it would hand out just the partial sums that show a site's part).
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import InputError, PolicyError, SiteError, WireError
from ..numerics.whole_numbers import (
    BITS,
    LIMBS,
    Words,
    add_wide,
    exponent_for,
    from_fixed,
    from_wide,
    negated,
    pair_from_wide,
    to_fixed,
    to_wide,
)
from .keys import Session, crypto
from .local import Arrays, LocalFunction
from .meanings import WHOLE

SECURED_KINDS = frozenset({"sum", "local"})
"""Collectives of a session: all others show single replies."""

GRAIN = 2.0**-BITS
"""The share of the next power of two above the trace that fixed numbers are multiples of."""

WITHIN = {"trace": 1.0, "traces": 8.0}
"""How many times the agreed trace a sum is at most, by its declared bound."""


MOST = {"count": 2.0**53, "whole": 2.0**62, "fixed": 2.0**62, "wide": 2.0**224, "pair": 2.0**224}
"""By form, what no sum of honest parts exceeds, and all but few words that are left of masks do."""


@dataclass(frozen=True)
class Secured:
    """How sums of a run are secured.

    Parameters
    ----------
    min_apart : int
        A run that loses at least this many sites at once goes on without them; what they have together can then be computed,
        and the ledger says so.  0 stops instead, so that they can come back.
    """

    min_apart: int = 0

    def __post_init__(self) -> None:
        if type(self.min_apart) is not int or self.min_apart < 0:
            raise InputError(f"min_apart={self.min_apart!r} must be a whole number >= 0")


@dataclass(frozen=True)
class Form:
    """How the numbers of one array are written: as they are, counted or otherwise whole, fixed at a power of two, or wide.

    A pair, which is the last axis of its array, is written as one wide number.
    """

    kind: Literal["count", "whole", "fixed", "wide", "pair"]
    exponent: int = 0

    @property
    def carries(self) -> bool:
        """Whether each number has several words."""
        return self.kind in ("wide", "pair")

    def on_wire(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the words that an array of this shape is written as."""
        return (*(shape[:-1] if self.kind == "pair" else shape), LIMBS) if self.carries else shape


def agreed_trace(function: LocalFunction, args: Arrays, before: float) -> float:
    """The trace that a request tells the sites to keep; else the one of ``before``."""
    told = [a for label, a in zip(function.takes, args, strict=True) if function.once and function.means[label] == "trace"]
    return float(told[0]) if told else before


def forms_of(function: LocalFunction, trace: float, sites: int) -> dict[str, Form]:
    """How each array that a function sends is written, once so many sites have agreed on a trace (0 before)."""
    forms = {}
    for label, bound in function.bounds.items():
        limit = float(sites) if bound == "unit" else WITHIN.get(bound, 0.0) * trace
        if bound == "pair":
            forms[label] = Form("pair")
        elif bound in WHOLE:
            forms[label] = Form("count" if bound == "count" else "whole")
        else:
            forms[label] = Form("fixed", exponent_for(limit)) if 0 < limit < np.inf else Form("wide")
    return forms


class Masked:
    """A site's side: replies with pads."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._chain, self._trace = session.digest, 0.0
        self.spoiled = False  # whether something failed here, so that only noise leaves from then on

    def note(self, kind: str, function: LocalFunction, step: int, args: Arrays) -> None:
        """Go on with a request; one that would show a single reply is refused."""
        if kind not in SECURED_KINDS:
            raise PolicyError(f"rule secure: {kind!r} would show this site's own reply, and the sums of this run are secured")
        asked = hashlib.sha256(self._chain + f"{kind} {step} {function.name}".encode())
        for a in args:
            asked.update(f"|{a.dtype.name}{a.shape}|".encode())
            asked.update(np.ascontiguousarray(a).data)
        self._chain = asked.digest()
        self._trace = agreed_trace(function, args, self._trace)

    def remember(self) -> dict[str, Any]:
        """For another process of this site, in the site's own memory."""
        return {"chain": self._chain.hex(), "trace": self._trace, "spoiled": self.spoiled}

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Go on where another process of this site stopped."""
        self._chain, self._trace, self.spoiled = bytes.fromhex(facts["chain"]), facts["trace"], facts["spoiled"]

    def encode(self, function: LocalFunction, arrays: Arrays) -> Arrays:
        """The reply to a sum, as it leaves the site."""
        forms = forms_of(function, self._trace, len(self.session.names))
        words = [_as_words(label, a, form) for a, (label, form) in zip(arrays, forms.items(), strict=True)]
        masks = [np.zeros_like(part) for part in words]
        zeros = bytes(8 * sum(mask.size for mask in masks))
        for name in self.session.names:
            if name != self.session.site:
                self._add_pad(masks, forms, name, zeros)
        return tuple(
            add_wide(part, mask) if form.carries else np.add(part, mask, out=mask)
            for part, mask, form in zip(words, masks, forms.values(), strict=True)
        )

    def noise(self, function: LocalFunction, shapes: Iterable[tuple[int, ...]]) -> Arrays:
        """Random words in place of a reply, which nobody can tell from a masked one."""
        forms = forms_of(function, self._trace, len(self.session.names)).values()
        full = [form.on_wire(shape) for shape, form in zip(shapes, forms, strict=True)]
        return tuple(np.frombuffer(os.urandom(8 * math.prod(shape)), dtype=np.uint64).reshape(shape) for shape in full)

    def _add_pad(self, masks: list[Words], forms: Mapping[str, Form], other: str, zeros: bytes) -> None:
        """Add the pad that is shared with another site, or take it away, in place."""
        stream = pad(self.session.pairs[other], self._chain, zeros)
        at, adds = 0, self.session.site < other
        for i, (mask, form) in enumerate(zip(masks, forms.values(), strict=True)):
            part = stream[at : at + mask.size].reshape(mask.shape)
            at += mask.size
            if form.carries:
                masks[i] = add_wide(mask, part if adds else negated(part))
            elif adds:
                mask += part
            else:
                mask -= part


def combine(function: LocalFunction, forms: Mapping[str, Form], replies: Iterable[Arrays]) -> Arrays:
    """The sum of replies, in any order, at the coordinator."""
    totals: list[Words] | None = None
    for arrays in replies:
        if totals is None:
            totals = [np.array(a) for a in arrays]
            continue
        for i, (a, form) in enumerate(zip(arrays, forms.values(), strict=True)):
            if form.carries:
                totals[i] = add_wide(totals[i], a)
            else:
                np.add(totals[i], a, out=totals[i])  # of arrays, also those of one number: scalars warn when they wrap
    found = tuple(_as_numbers(a, form) for a, form in zip(totals or (), forms.values(), strict=True))
    _check_bounded(function, forms, found)
    return found


def check_encoded(function: LocalFunction, forms: Mapping[str, Form], arrays: Arrays, sizes: dict[str, int]) -> None:
    """Raise a WireError unless arrays have the form of a masked reply; their values say nothing."""
    if any(a.dtype != np.uint64 for a in arrays):
        raise WireError(f"a masked reply of {function.short_name} holds words of 64 bits, not {[a.dtype.name for a in arrays]}")
    shown = []
    for a, form in zip(arrays, forms.values(), strict=False):  # how many there are is checked below
        if form.carries and (a.ndim < 1 or a.shape[-1] != LIMBS):
            raise WireError(f"a wide number of {function.short_name} has {LIMBS} words, not {a.shape[-1:]}")
        shown.append(a[..., :2] if form.kind == "pair" else a[..., 0] if form.carries else a)
    function.check_reply((*shown, *arrays[len(shown) :]), sizes)


def pad(key: bytes, chain: bytes, zeros: bytes) -> Words:
    """The pad, as long as ``zeros``, that a pair's key gives for a transcript.

    >>> a, b = pad(bytes(32), b"one", bytes(32)), pad(bytes(32), b"one", bytes(32))
    >>> bool((a == b).all()), bool((a == pad(bytes(32), b"two", bytes(32))).any()), a.size
    (True, False, 4)
    """
    ciphers = crypto("hazmat.primitives.ciphers")
    drawn = hmac.digest(key, b"eigenpact pad 1" + chain, "sha256")
    encryptor = ciphers.Cipher(ciphers.algorithms.AES(drawn), ciphers.modes.CTR(bytes(16))).encryptor()
    words = np.empty(len(zeros) // 8 + 2, dtype="<u8")  # update_into wants room for a block more
    encryptor.update_into(zeros, words.view(np.uint8).data)
    return words[:-2]


def _as_words(label: str, array: np.ndarray[Any, Any], form: Form) -> Words:
    """Numbers as words of 64 bits, the mask still to come."""
    counted = form.kind in WHOLE
    if (array.dtype.kind in "iub") != counted:
        wanted = "whole numbers" if counted else "doubles"
        raise WireError(f"{label!r} holds {array.dtype}; in a secured sum it must hold {wanted}: see its declared bound")
    if counted:
        return np.asarray(array.astype(np.int64)).view(np.uint64)
    try:
        if form.kind == "pair":
            return add_wide(to_wide(array[..., 0]), to_wide(array[..., 1]))
        return to_fixed(array.astype(np.float64), form.exponent) if form.kind == "fixed" else to_wide(array)
    except InputError as error:
        raise PolicyError(f"rule secure: {label!r}: {error}") from error


def _as_numbers(words: Words, form: Form) -> np.ndarray[Any, Any]:
    if form.kind in WHOLE:
        return words.view(np.int64)
    if form.kind == "pair":
        return pair_from_wide(words)
    return from_fixed(words, form.exponent) if form.kind == "fixed" else from_wide(words)


def _check_bounded(function: LocalFunction, forms: Mapping[str, Form], arrays: Arrays) -> None:
    """A sum beyond its bound was not made by sites that all keep to it; masks that do not cancel leave such."""
    for (label, form), a in zip(forms.items(), arrays, strict=True):
        sizes = np.abs(np.ldexp(a, form.exponent)) if form.kind == "fixed" else np.abs(a.astype(np.float64))
        if np.any(sizes > MOST[form.kind]):
            raise SiteError(
                f"the secured sum of {function.short_name}: {label!r} is beyond its bound; masks did not cancel, or a part "
                "is larger than it can be: a site's ledger may tell what failed there; then fit again"
            )
