"""Which features several sites use: from the names of each site's columns to a plan for each site.  No row is looked at here.

``strict`` asks for the same columns everywhere and names what differs at which site; ``intersection`` uses the columns that all
sites have; ``union`` uses the columns that any site has, and one that a site lacks counts as missing there.  The columns are in
the order of the first site that has names, then in that of the sites after it.

The columns of genotypes are variants (``alleles.py``): counts of the other allele, or of alleles written for the other strand,
are counts all the same and are brought into line under every mode; variants that are ambiguous or have other alleles are dropped
and counted under ``intersection`` and ``union``, and refused under ``strict``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .alleles import ABSENT, AMBIGUOUS, BOTH, FLIPPED, MISMATCHED, SWAPPED, Matched, match_variants, names_of
from .checks import check_names, differences
from .features_report import FeaturesReport, OfSite
from .near_misses import near_misses
from .table import Variants

Mode = Literal["strict", "intersection", "union"]
MODES: tuple[str, ...] = get_args(Mode)

SHOWN = 5
"""Sites or names that an error shows."""

OTHERWISE = "or use the features that all sites have (features='intersection', --features intersection)"


@dataclass(frozen=True, eq=False)
class Columns:
    """What a site tells of its columns: how many, and their names or variants where it has them."""

    count: int
    names: tuple[str, ...] | None = None
    variants: Variants | None = None


@dataclass(frozen=True, eq=False)
class SitePlan:
    """How a site's columns become the agreed ones.

    Attributes
    ----------
    columns : (d,) int array, or None if they already are
        Its column for each agreed feature; -1 where it lacks it.
    swapped : (d,) bool array, or None if there is none
        Counts of genotypes that become 2 - g.
    """

    columns: NDArray[np.intp] | None = None
    swapped: NDArray[np.bool_] | None = None

    @property
    def lacking(self) -> NDArray[np.intp]:
        """Numbers of the agreed features that the site lacks."""
        return np.zeros(0, dtype=np.intp) if self.columns is None else np.flatnonzero(self.columns < 0)


@dataclass(frozen=True, eq=False)
class Agreement:
    """What sites agreed on: names of the features (None if no site has names), a plan for each site, and what is to be told."""

    features: tuple[str, ...] | None
    plans: Mapping[str, SitePlan]
    report: FeaturesReport
    variants: Variants | None = field(default=None)


def check_mode(mode: Any) -> None:
    """Refuse what is no way to agree."""
    if mode not in MODES:
        raise InputError(f"features={mode!r} must be {', '.join(map(repr, MODES[:-1]))} or {MODES[-1]!r}")


def check_gaps(agreed: Agreement, *, filled: bool) -> None:
    """Refuse a union in which sites lack features, unless missing entries are ``filled`` in."""
    lacking = {name: plan.lacking for name, plan in agreed.plans.items() if plan.lacking.size}
    if not lacking or filled:
        return
    features = agreed.features or ()
    told = [
        f"{name!r} lacks {len(some)} ({', '.join(features[j] for j in some[:SHOWN])}{', ...' if len(some) > SHOWN else ''})"
        for name, some in list(lacking.items())[:SHOWN]
    ]
    raise InputError(
        f"features='union' of {len(features)} features: {'; '.join(told)}; what a site lacks is missing there, and missing "
        "entries are refused: use missing='mean' or missing='em' (--missing), or features='intersection' (--features)"
    )


def _check_alleles_known(sites: Mapping[str, Columns]) -> None:
    """Refuse tables without alleles beside genotypes: one that counts the other allele would be taken for what it is not."""
    told = [name for name, columns in sites.items() if columns.variants is not None]
    untold = [name for name, columns in sites.items() if columns.variants is None]
    if told and untold:
        raise InputError(
            f"site {told[0]!r} has genotypes with their alleles, and site {untold[0]!r} a table that does not say which allele "
            "it counts; give all sites' genotypes as .bed, .pgen or .vcf files, or all as tables"
        )


def agree_on_features(sites: Mapping[str, Columns], mode: str = "strict") -> Agreement:
    """Agree on features by what all sites tell of their columns.

    A site without names is taken to have those of the first site that has some, if it has as many columns.

    >>> sites = {"A": Columns(3, ("age", "bmi", "chol")), "B": Columns(2, ("chol", "age"))}
    >>> agreed = agree_on_features(sites, "intersection")
    >>> agreed.features, agreed.plans["B"].columns.tolist(), agreed.report.sites["A"].dropped
    (('age', 'chol'), [1, 0], ('bmi',))
    >>> agree_on_features(sites, "union").plans["B"].columns.tolist()
    [1, -1, 0]
    """
    check_mode(mode)
    if not sites:
        raise InputError("no sites were given; give at least one")
    for name, columns in sites.items():
        check_names(name, columns.count, columns.names if columns.variants is None else names_of(columns.variants))
    if all(columns.variants is not None for columns in sites.values()):
        return _agree_on_variants({name: (c, c.variants) for name, c in sites.items() if c.variants is not None}, mode)
    _check_alleles_known(sites)
    named = next((name for name, columns in sites.items() if columns.names is not None), None)
    _check_counts(sites, named, mode)
    if named is None:
        count = next(iter(sites.values())).count
        return Agreement(None, {name: SitePlan() for name in sites}, FeaturesReport(mode, count, dict.fromkeys(sites, OfSite())))
    first = sites[named].names or ()
    owned = {name: columns.names or first for name, columns in sites.items()}
    if mode == "strict":
        _check_same(named, owned)
    features = _chosen(owned, mode)
    plans = {name: plan_for(features, names) for name, names in owned.items()}
    everything = _chosen(owned, "union")
    lists = {
        name: OfSite(
            dropped=tuple(feature for feature in names if feature not in set(features)),
            lacking=tuple(feature for feature in everything if feature not in set(names)),
        )
        for name, names in owned.items()
    }
    return Agreement(features, plans, FeaturesReport(mode, len(features), lists, _look_alike(owned)))


def _check_counts(sites: Mapping[str, Columns], named: str | None, mode: str) -> None:
    """Sites without names must have as many columns as those whose names they are taken to have."""
    reference = named if named is not None and mode != "strict" else next(iter(sites))
    count = sites[reference].count
    for name, columns in sites.items():
        wrong = columns.count != count
        if wrong and (columns.names is None or (named is None) or (mode == "strict" and sites[reference].names is None)):
            why = "" if mode == "strict" else f"; features={mode!r} matches columns by name: give the tables names"
            raise InputError(
                f"site {name!r} has {columns.count} features, site {reference!r} has {count}; every site needs the same "
                f"columns{why}"
            )


def _check_same(named: str, owned: Mapping[str, Sequence[str]]) -> None:
    """Refuse sites whose names differ, naming what differs at each, and what may be the same."""
    wanted = owned[named]
    found = {name: text for name, names in owned.items() if (text := differences(wanted, names))}
    if not found:
        return
    first, *others = found
    more = "".join(f"; {name!r} {found[name]}" for name in others[:SHOWN])
    more += f"; and {len(others) - SHOWN} more sites" if len(others) > SHOWN else ""
    alike = _look_alike({name: owned[name] for name in (named, *found)})
    hint = f" ({'; '.join(alike[:SHOWN])})" if alike else ""
    raise InputError(
        f"sites {named!r} and {first!r} have different features ({len(wanted)} and {len(owned[first])}): compared with "
        f"{named!r}, {first!r} {found[first]}{more}; every site needs the same columns: rename, drop or add them{hint}, "
        f"{OTHERWISE}"
    )


def _look_alike(owned: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Names that only some sites have and that may be one column: of each site, compared with all sites before it."""
    notes: list[str] = []
    names = iter(owned.items())
    _, known = next(names)
    seen = dict.fromkeys(known)
    for name, own in names:
        mine = set(own)
        missing, extra = [f for f in seen if f not in mine], [f for f in own if f not in seen]
        notes += [f"is {own!r} of {name!r} what others call {there!r}?" for own, there in near_misses(missing, extra)]
        seen |= dict.fromkeys(extra)
    return tuple(notes)


def _chosen(owned: Mapping[str, Sequence[str]], mode: str) -> tuple[str, ...]:
    """The features to use, in the order of the first site, then of those after it."""
    if mode == "union":
        return tuple(dict.fromkeys(feature for names in owned.values() for feature in names))
    first, *others = owned.values()
    common = set(first).intersection(*others)
    if not common:
        shown = ", ".join(list(owned)[:SHOWN])
        raise InputError(f"no feature is at all sites ({shown}); see that the columns have the same names there")
    return tuple(feature for feature in first if feature in common)


def plan_for(features: Sequence[str], names: Sequence[str]) -> SitePlan:
    """How columns of these names become the agreed features."""
    if tuple(features) == tuple(names):
        return SitePlan()
    at = {feature: column for column, feature in enumerate(names)}
    return SitePlan(np.array([at.get(feature, -1) for feature in features], dtype=np.intp))


# -- variants -------------------------------------------------------------------------------------


def _agree_on_variants(sites: Mapping[str, tuple[Columns, Variants]], mode: str) -> Agreement:
    """As :func:`agree_on_features`, for genotypes; the first site that has a variant says which allele is counted."""
    reference, labels = _reference(sites, mode)
    matched = {name: match_variants(reference, variants) for name, (_, variants) in sites.items()}
    flips = any(np.isin(m.relation, (FLIPPED, BOTH)).any() for m in matched.values())
    m = len(labels)
    doubtful, mismatched, absent = (np.zeros(m, dtype=bool) for _ in range(3))
    for found in matched.values():
        ambiguous = found.relation == AMBIGUOUS
        doubtful |= ambiguous & (True if flips else ~found.verbatim)
        mismatched |= found.relation == MISMATCHED
        absent |= found.relation == ABSENT
    bad = doubtful | mismatched | (absent if mode != "union" else False)
    further = any(np.count_nonzero(found.columns >= 0) < len(sites[name][1].ids) for name, found in matched.items())
    if mode == "strict" and (bad.any() or further):
        raise _different_variants(sites, matched, bad, flips)
    keep = np.flatnonzero(~bad)
    if not keep.size:
        raise InputError("no variant is at all sites with alleles that agree; compare ids, positions and genome builds")
    plans = {name: _variant_plan(found, keep, sites[name][0].count) for name, found in matched.items()}
    lists = {name: _of_site(found, labels, keep, sites[name], flips) for name, found in matched.items()}
    features = tuple(labels[j] for j in keep)
    return Agreement(features, plans, FeaturesReport(mode, len(features), lists), _some(reference, keep))


def _reference(sites: Mapping[str, tuple[Columns, Variants]], mode: str) -> tuple[Variants, tuple[str, ...]]:
    """The variants that others are compared with: the first site's, and for a union those that only others have."""
    reference, *others = (variants for _, variants in sites.values())
    for variants in others if mode == "union" else ():
        used = match_variants(reference, variants).columns
        new = np.setdiff1d(np.arange(len(variants.ids)), used[used >= 0])
        reference = _joined(reference, _some(variants, new))
    return reference, names_of(reference)


def _some(variants: Variants, at: NDArray[np.intp]) -> Variants:
    texts = [tuple(some[j] for j in at) for some in (variants.chromosome, variants.ids, variants.counted, variants.other)]
    return Variants(texts[0], np.asarray(variants.position)[at], *texts[1:])


def _joined(a: Variants, b: Variants) -> Variants:
    position = np.concatenate([a.position, b.position])
    return Variants(a.chromosome + b.chromosome, position, a.ids + b.ids, a.counted + b.counted, a.other + b.other)


def _variant_plan(found: Matched, keep: NDArray[np.intp], count: int) -> SitePlan:
    columns = found.columns[keep]
    swapped = np.isin(found.relation[keep], (SWAPPED, BOTH))
    as_is = len(columns) == count and np.array_equal(columns, np.arange(count))
    return SitePlan(None if as_is else columns, swapped if swapped.any() else None)


def _of_site(
    found: Matched, labels: Sequence[str], keep: NDArray[np.intp], site: tuple[Columns, Variants], flips: bool
) -> OfSite:
    own = names_of(site[1])
    used = set(found.columns[keep].tolist())
    ambiguous = (found.relation == AMBIGUOUS) & (True if flips else ~found.verbatim)
    counts = {
        "swapped": int(np.isin(found.relation[keep], (SWAPPED, BOTH)).sum()),
        "flipped": int(np.isin(found.relation[keep], (FLIPPED, BOTH)).sum()),
        "ambiguous": int(ambiguous.sum()),
        "mismatched": int((found.relation == MISMATCHED).sum()),
        "at other positions": found.moved,
    }
    return OfSite(
        dropped=tuple(own[j] for j in range(len(own)) if j not in used),
        lacking=tuple(labels[int(j)] for j in np.flatnonzero(found.relation == ABSENT)),
        counts={what: number for what, number in counts.items() if number},
    )


def _different_variants(
    sites: Mapping[str, tuple[Columns, Variants]], matched: Mapping[str, Matched], bad: NDArray[np.bool_], flips: bool
) -> InputError:
    first = next(iter(sites))
    told = []
    for name, found in matched.items():
        own = len(sites[name][1].ids)
        numbers = {
            "lacks": int((found.relation == ABSENT).sum()),
            "has in addition": own - int((found.columns >= 0).sum()),
            "has other alleles at": int((found.relation == MISMATCHED).sum()),
            "cannot be compared at (A/T or C/G)": int(((found.relation == AMBIGUOUS) & (flips | ~found.verbatim)).sum()),
        }
        texts = [f"{what} {number}" for what, number in numbers.items() if number]
        told += [f"{name!r} {', '.join(texts)}"] if texts else []
    return InputError(
        f"sites have different variants: compared with the {len(bad)} of {first!r}, {'; '.join(told[:SHOWN])}; "
        f"give all sites the same variants, {OTHERWISE}"
    )
