"""Which variants of two tables of genotypes are the same, and whether their counts are of the same allele.

A variant is found by its id, else by chromosome, position and alleles, else by chromosome and position.  Then its two alleles
are compared: they may be the same, exchanged (*swapped*: the count g becomes 2 - g), written for the other strand (*flipped*: A
for T, C for G, and back), or both.  Where the two alleles are each other's complement (A/T, C/G) a swap cannot be told from a
flip, and the variant is *ambiguous*; where no reading makes the alleles equal it is *mismatched*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .table import Variants

COMPLEMENT = str.maketrans("ACGT", "TGCA")
UNKNOWN = frozenset({"", "0", ".", "N"})
"""How files write an allele that nobody in them has."""

NO_IDS = frozenset({"", ".", "0"})
NAMED = re.compile(r"(\S+) (\S+):(\d{1,18}) ([^\s/]+)/([^\s/]+)")
CHROMOSOMES = {"23": "X", "24": "Y", "25": "XY", "26": "MT", "M": "MT"}

SAME, SWAPPED, FLIPPED, BOTH, AMBIGUOUS, MISMATCHED, ABSENT = range(7)
"""What a variant of one table is, compared with the same one of another; ``BOTH`` is flipped and swapped."""


@dataclass(frozen=True, eq=False)
class Matched:
    """A table's variants, compared with m others that are the reference.

    Attributes
    ----------
    columns : (m,) int array
        Where each variant of the reference is in the table; -1 where it is not.
    relation : (m,) uint8 array, one of ``SAME`` ... ``ABSENT``
    verbatim : (m,) bool array
        Whether both alleles are written as in the reference.
    moved : int
        Variants of the same id whose position differs.
    """

    columns: NDArray[np.intp]
    relation: NDArray[np.uint8]
    verbatim: NDArray[np.bool_]
    moved: int


def match_variants(reference: Variants, own: Variants) -> Matched:
    """Find the reference's variants in another table's, and compare alleles.

    >>> ids, position = ("rs1", "rs2", "rs3"), np.array([10, 20, 30])
    >>> there = Variants(("1",) * 3, position, ids, ("A", "C", "A"), ("G", "T", "T"))
    >>> here = Variants(("1",) * 3, position, ids, ("G", "G", "T"), ("A", "A", "A"))
    >>> match_variants(there, here).relation.tolist() == [SWAPPED, FLIPPED, AMBIGUOUS]
    True
    """
    columns = _columns(reference, own)
    found = columns >= 0
    at = columns[found]
    first = _Alleles(reference.counted, reference.other, np.arange(len(reference.counted))[found])
    second = _Alleles(own.counted, own.other, at)
    relation = np.full(len(columns), ABSENT, dtype=np.uint8)
    verbatim = np.zeros(len(columns), dtype=bool)
    relation[found], verbatim[found] = _relations(first, second)
    places = np.asarray(reference.position)[found], np.asarray(own.position)[at]
    moved = int(np.count_nonzero((places[0] != places[1]) & (places[0] > 0) & (places[1] > 0)))
    return Matched(columns, relation, verbatim, moved)


def names_of(variants: Variants) -> tuple[str, ...]:
    """Names of features that say which variant and which allele is counted: "id chromosome:position counted/other".

    >>> names_of(Variants(("1",), np.array([752566]), ("rs3094315",), ("G",), ("A",)))
    ('rs3094315 1:752566 G/A',)
    """
    parts = zip(variants.ids, variants.chromosome, variants.position, variants.counted, variants.other, strict=True)
    return tuple(f"{_word(i)} {_word(c)}:{int(p)} {_word(a)}/{_word(b)}" for i, c, p, a, b in parts)


def _word(text: str) -> str:
    return text or "."


def variants_named(features: Sequence[str]) -> Variants | None:
    """Inverse of :func:`names_of`; None if the names are of something else.

    >>> variants_named(["rs3094315 1:752566 G/A"]).counted, variants_named(["age"])
    (('G',), None)
    """
    found = [NAMED.fullmatch(feature) for feature in features]
    if not all(found):
        return None
    ids, chromosome, position, counted, other = zip(*(match.groups() for match in found if match), strict=True)
    return Variants(chromosome, np.array(position, dtype=np.int64), ids, counted, other)


def with_counts_swapped(counts: NDArray[Any], swapped: NDArray[np.bool_]) -> NDArray[Any]:
    """Counts (n x d) of the other allele in some columns (d,): 2 - g; what is missing (255 of uint8, else NaN) stays so.

    >>> with_counts_swapped(np.array([[0, 1], [255, 2]], dtype=np.uint8), np.array([True, False])).tolist()
    [[2, 1], [255, 2]]
    """
    if not swapped.any():
        return counts
    out = np.array(counts)
    some = out[:, swapped]
    two = out.dtype.type(2)
    if out.dtype == np.uint8:
        np.subtract(two, some, out=some, where=some <= 2)  # else it is missing, and stays
        out[:, swapped] = some
    else:
        out[:, swapped] = two - some
    return out


def other_strand(allele: str) -> str:
    """The same allele read from the other strand.

    >>> other_strand("A"), other_strand("AAC")
    ('T', 'GTT')
    """
    return allele.translate(COMPLEMENT)[::-1]


class _Alleles:
    """Alleles of some variants, as texts that are compared at once."""

    def __init__(self, counted: Sequence[str], other: Sequence[str], at: NDArray[np.intp]) -> None:
        self.counted, self.other = (_upper(texts)[at] for texts in (counted, other))

    def flipped(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Read from the other strand."""
        return _on_other_strand(self.counted), _on_other_strand(self.other)


def _upper(texts: Sequence[str]) -> NDArray[Any]:
    return np.char.upper(np.asarray(texts, dtype=np.str_)) if len(texts) else np.zeros(0, dtype="U1")


def _on_other_strand(alleles: NDArray[Any]) -> NDArray[Any]:
    words, where = np.unique(alleles, return_inverse=True)
    return np.array([other_strand(str(word)) for word in words], dtype=alleles.dtype if words.size else "U1")[where]


def _relations(first: _Alleles, second: _Alleles) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The relation of pairs of variants, and whether they are written alike.  An allele that is unknown may be any."""
    unknown = list(UNKNOWN)

    def fits(counted: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
        a = (first.counted == counted) | np.isin(first.counted, unknown) | np.isin(counted, unknown)
        b = (first.other == other) | np.isin(first.other, unknown) | np.isin(other, unknown)
        return np.asarray(a & b)

    counted, other = second.flipped()
    same, swapped = fits(second.counted, second.other), fits(second.other, second.counted)
    flipped, both = fits(counted, other), fits(other, counted)
    relation = np.full(len(same), MISMATCHED, dtype=np.uint8)
    relation[both & ~flipped] = BOTH
    relation[flipped & ~both] = FLIPPED
    relation[swapped] = SWAPPED
    relation[same] = SAME
    relation[same & swapped] = MISMATCHED  # too much is unknown to tell
    alike = np.asarray((first.counted == second.counted) & (first.other == second.other))
    relation[alike] = SAME  # also where PLINK wrote 0 for an allele that nobody carries
    palindromes = (first.counted == _on_other_strand(first.other)) | (second.counted == other)
    relation[palindromes & (same | swapped)] = AMBIGUOUS
    return relation, alike


def _columns(reference: Variants, own: Variants) -> NDArray[np.intp]:
    """Where each variant of the reference is among one's own; -1 where it is not.  Each is used once."""
    if reference is own or (reference.ids == own.ids and len(set(own.ids) - NO_IDS) == len(own.ids)):
        return np.arange(len(own.ids), dtype=np.intp)
    columns = np.full(len(reference.ids), -1, dtype=np.intp)
    taken: set[int] = set()
    for keys_of in (_ids, _places_and_alleles, _places):
        at = _unique(keys_of(own))
        known = _unique(keys_of(reference))
        for key, j in known.items():
            i = at.get(key)
            if i is not None and columns[j] < 0 and i not in taken:
                columns[j] = i
                taken.add(i)
    return columns


def _unique(keys: list[Hashable | None]) -> dict[Hashable, int]:
    """Number of the one variant that has a key; keys of several are left out."""
    times = Counter(keys)
    return {key: i for i, key in enumerate(keys) if key is not None and times[key] == 1}


def _ids(variants: Variants) -> list[Hashable | None]:
    return [None if name in NO_IDS else name for name in variants.ids]


def _places(variants: Variants) -> list[Hashable | None]:
    named = (_chromosome(name) for name in variants.chromosome)
    return [(name, int(at)) if at > 0 else None for name, at in zip(named, variants.position, strict=True)]


def _places_and_alleles(variants: Variants) -> list[Hashable | None]:
    pairs = zip(_upper(variants.counted).tolist(), _upper(variants.other).tolist(), strict=True)
    alleles = [min(tuple(sorted(pair)), tuple(sorted(map(other_strand, pair)))) for pair in pairs]
    return [None if place is None else (place, pair) for place, pair in zip(_places(variants), alleles, strict=True)]


def _chromosome(name: str) -> str:
    plain = name.strip().upper().removeprefix("CHR").lstrip("0")
    return CHROMOSOMES.get(plain, plain)
