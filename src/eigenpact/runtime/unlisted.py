"""Why a plan is refused that holds a function which a site does not list: by the rule that would list it, if there is one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..errors import WireError
from .lacking import count_having, keep_features
from .local import find_local
from .prepared import PREFIX
from .units import compare_medians, count_doubts, place_medians

COMPARING = frozenset(f.name for f in (count_having, keep_features, place_medians, compare_medians, count_doubts))

STEPS = {"columns": "hvg", "batch": "batches"}
"""Kinds of steps that have another name where users write it."""


def unlisted(name: str, plan: Collection[str], listed: Collection[str]) -> str:
    """Why a function of a plan (names of functions) is refused at a site with these ``listed``."""
    if name in COMPARING:
        return "rule compare_columns = false: this site does not tell which columns it has; ask for features='strict' alone"
    kinds = [kind for other in plan if other not in listed for kind in _steps(other)]
    if "fill" in kinds:
        return "rule fill_missing = false: this site lets no run fill in missing entries; run it with missing='refuse'"
    if kinds:
        return f"rule prepare: rows of this site may not be prepared by {STEPS.get(kinds[0], kinds[0])!r}; leave it out"
    return f"rule functions: {name!r} is not listed at this site"


def _steps(name: str) -> Iterator[str]:
    """Kinds of the steps that a function keeps; none if it is not known here."""
    try:
        keeps = find_local(name).keeps
    except WireError:
        keeps = ()
    return (kept.removeprefix(PREFIX) for kept in keeps if kept.startswith(PREFIX) and name not in COMPARING)
