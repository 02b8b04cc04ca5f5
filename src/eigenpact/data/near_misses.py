"""Names of columns that look alike: what may be one column under two names.  Only ever suggested, never applied."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

UNITS = frozenset(
    {"mg", "dl", "mgdl", "mgl", "mmol", "mmoll", "umol", "umoll", "nmol", "l", "ml", "ug", "ng", "kg", "g", "lb", "lbs"}
    | {"cm", "mm", "m", "in", "inch", "inches", "ft", "c", "f", "degc", "degf", "celsius", "fahrenheit", "mmhg", "kpa"}
    | {"bpm", "hz", "pct", "percent", "y", "yr", "yrs", "years", "year", "d", "days", "day", "h", "hours", "s", "sec", "ms"}
)
"""Words that are taken for a unit where they end a name of several words."""

ALIKE = 0.8
"""Share of letters in common, as difflib counts them, from which on two names look alike."""

SHORT = 4
"""Names of fewer letters look like too many others: they are suggested only if they differ by case, marks or units alone."""

MOST_PAIRS = 20_000
"""Beyond, names are not compared letter by letter."""


def plain_name(name: str) -> str:
    """A name without case, accents, spaces, marks and units.

    >>> plain_name("Trest_BPS"), plain_name("chol (mg/dL)"), plain_name("weight_kg"), plain_name("kg")
    ('trestbps', 'chol', 'weight', 'kg')
    """
    text = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)).casefold()
    words = re.findall(r"[^\W_]+", re.sub(r"[(\[{][^)\]}]*[)\]}]", " ", text)) or re.findall(r"[^\W_]+", text)
    while len(words) > 1 and words[-1] in UNITS:
        words.pop()
    return "".join(words)


def near_misses(wanted: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs (name among ``others``, name among ``wanted``) that may be one column; each name at most once.

    >>> near_misses(["trestbps", "chol", "x1"], ["trest_bps", "Chol (mg/dL)", "x2"])
    [('trest_bps', 'trestbps'), ('Chol (mg/dL)', 'chol')]
    """
    found: list[tuple[str, str]] = []
    open_wanted: dict[str, str] = {}
    for name in wanted:
        open_wanted.setdefault(plain_name(name), name)
    rest = []
    for name in others:
        same = open_wanted.pop(plain_name(name), None) if plain_name(name) else None
        if same is None:
            rest.append(name)
        else:
            found.append((name, same))
    if len(open_wanted) * len(rest) > MOST_PAIRS:
        return found
    scored = sorted(
        ((-_likeness(plain, plain_name(name)), name, there) for plain, there in open_wanted.items() for name in rest),
        key=lambda pair: pair[0],
    )
    own, taken = set(rest), set(open_wanted.values())
    for score, name, there in scored:
        if -score >= ALIKE and name in own and there in taken:
            own.remove(name)
            taken.remove(there)
            found.append((name, there))
    return found


def _likeness(a: str, b: str) -> float:
    """Share of letters in common; 0 where numbers differ, since x1 and x2 are two columns."""
    if min(len(a), len(b)) < SHORT or re.findall(r"\d+", a) != re.findall(r"\d+", b):
        return 0.0
    return SequenceMatcher(None, a, b, autojunk=False).ratio()
