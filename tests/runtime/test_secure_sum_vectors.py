"""The protocol of secured sums, written once more from its page with nothing but primitives, and held against the vectors there.

``python -m tests.runtime.test_secure_sum_vectors`` writes the file anew, from this second reading and not from the package.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from eigenpact.algorithms.products import scatter_action
from eigenpact.algorithms.setup import keep_centre
from eigenpact.numerics.whole_numbers import exponent_for, to_fixed, to_wide
from eigenpact.runtime import keys
from eigenpact.runtime.local import Arrays
from eigenpact.runtime.secure_sum import Masked, combine, forms_of, pad

FILE = Path(__file__).parents[2] / "docs" / "reference" / "secured-sums-vectors.json"
RUN, NAMES, TRACE = "run1", ("A", "B", "C"), 40.0
PRIVATE = {name: hashlib.sha256(name.encode()).digest() for name in NAMES}
ROSTER = b'[["A","00"],["B","11"],["C","22"]]'
BLOCK = np.array([[0.6], [0.8]])
REPLIES = {"A": [[1.5], [-2.25]], "B": [[10.0], [0.1]], "C": [[0.0], [3.0]]}
WIDE = [1.0, -0.1, 1e-100, 12345.678]


def second_reading() -> dict[str, Any]:
    """All vectors, by the page alone."""
    digest = hashlib.sha256(b"eigenpact roster 1" + len(RUN).to_bytes(4, "little") + RUN.encode() + ROSTER).digest()
    pairs = {f"{a}{b}": _pair(a, b, digest) for a, b in ("AB", "AC", "BC")}
    chain = _link(digest, "local 1 eigenpact:keep_centre/2", (np.zeros(2), np.ones(2), np.array(TRACE)))
    chain = _link(chain, "sum 2 eigenpact:scatter_action/1", (BLOCK,))
    exponent = 61 - 6  # 2^6 is the power of two above the trace
    pads = {name: _pad(key, chain, 2) for name, key in pairs.items()}
    masked = {}
    for name, reply in REPLIES.items():
        words = [round(Fraction(x) * 2**exponent) for (x,) in reply]
        for other in NAMES:
            sign, pair = (1, name + other) if name < other else (-1, other + name)
            if other != name:
                words = [word + sign * drawn for word, drawn in zip(words, pads[pair], strict=True)]
        masked[name] = [f"{word % 2**64:016x}" for word in words]
    return {
        "roster digest": digest.hex(),
        "pair keys": {name: key.hex() for name, key in pairs.items()},
        "transcript": chain.hex(),
        "pads": {name: [f"{word:016x}" for word in words] for name, words in pads.items()},
        "exponent": exponent,
        "masked replies": masked,
        "sum": [[sum(Fraction(REPLIES[name][i][0]) for name in NAMES).__float__()] for i in range(2)],
        "wide": {repr(x): f"{round(Fraction(x) * 2**512) % 2**768:0192x}" for x in WIDE},
    }


def _pair(one: str, other: str, digest: bytes) -> bytes:
    public = X25519PublicKey.from_public_bytes(
        X25519PrivateKey.from_private_bytes(PRIVATE[other]).public_key().public_bytes_raw()
    )
    secret = X25519PrivateKey.from_private_bytes(PRIVATE[one]).exchange(public)
    extracted = hmac.digest(digest, secret, "sha256")
    return hmac.digest(extracted, f'["eigenpact pair 1", "{one}", "{other}"]'.encode() + b"\x01", "sha256")


def _link(chain: bytes, asked: str, args: Arrays) -> bytes:
    text = chain + asked.encode()
    for a in args:
        text += f"|{a.dtype.name}{a.shape}|".encode() + a.tobytes()
    return hashlib.sha256(text).digest()


def _pad(key: bytes, chain: bytes, words: int) -> list[int]:
    drawn = hmac.digest(key, b"eigenpact pad 1" + chain, "sha256")
    block = Cipher(algorithms.AES(drawn), modes.ECB()).encryptor()
    stream = b"".join(block.update(i.to_bytes(16, "big")) for i in range(-(-words // 2)))
    return [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(words)]


def test_the_vectors_are_those_of_the_page() -> None:
    assert json.loads(FILE.read_text()) == second_reading()


def test_the_package_keeps_to_the_protocol() -> None:
    known = json.loads(FILE.read_text())
    assert keys.digest_of_roster(RUN, ROSTER).hex() == known["roster digest"]
    digest = bytes.fromhex(known["roster digest"])
    private = {name: X25519PrivateKey.from_private_bytes(PRIVATE[name]) for name in NAMES}
    pairs = {f"{a}{b}": keys._derived(private[a].exchange(private[b].public_key()), digest, a, b) for a, b in ("AB", "AC", "BC")}
    assert {name: key.hex() for name, key in pairs.items()} == known["pair keys"]
    replies = {}
    for name in NAMES:
        shared = {other: pairs["".join(sorted(name + other))] for other in NAMES if other != name}
        masked = Masked(SimpleNamespace(site=name, names=NAMES, pairs=shared, digest=digest))  # type: ignore[arg-type]
        masked.note("local", keep_centre, 1, (np.zeros(2), np.ones(2), np.array(TRACE)))
        masked.note("sum", scatter_action, 2, (BLOCK,))
        assert masked._chain.hex() == known["transcript"]
        (replies[name],) = masked.encode(scatter_action, (np.array(REPLIES[name]),))
        assert [f"{word:016x}" for word in replies[name].ravel()] == known["masked replies"][name]
    for name, words in known["pads"].items():
        assert [f"{word:016x}" for word in pad(pairs[name], bytes.fromhex(known["transcript"]), bytes(16))] == words
    forms = forms_of(scatter_action, TRACE, 3)
    assert forms["G"].exponent == known["exponent"] == exponent_for(TRACE)
    (total,) = combine(scatter_action, forms, [(replies[name],) for name in "CAB"])
    np.testing.assert_allclose(total, known["sum"], rtol=1e-15)


def test_numbers_are_written_as_the_page_says() -> None:
    known = json.loads(FILE.read_text())
    for x, digits in known["wide"].items():
        words = to_wide(np.array(float(x)))
        assert "".join(f"{word:016x}" for word in words[::-1]) == digits
    assert to_fixed(np.array(-2.25), known["exponent"]) == (-9 * 2**53) % 2**64


if __name__ == "__main__":
    FILE.write_text(json.dumps(second_reading(), indent=1) + "\n")
