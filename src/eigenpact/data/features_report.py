"""What became of the features of several sites: used, dropped, lacking.  Plain facts, which a model carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

SHOWN = 8
"""Names that a line shows."""


@dataclass(frozen=True)
class OfSite:
    """What became of one site's columns.

    Attributes
    ----------
    dropped : tuple of str
        Columns that it has and that are not used.
    lacking : tuple of str
        Columns that it lacks and another site has.
    counts : mapping of str to int
        Of variants: how many were swapped, flipped, ambiguous, mismatched, at other positions.
    """

    dropped: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FeaturesReport:
    """What sites agreed on.

    Attributes
    ----------
    mode : "strict", "intersection" or "union"
    n_features : int
        Features in use.
    sites : mapping of site to OfSite
        Empty between institutions, where nobody is told which site lacks what.
    notes : tuple of str
        What may be wrong: names that look alike, units that may differ.
    at_sites : mapping of str to int
        Between institutions: features that not all sites have, and how many have each.

    >>> report = FeaturesReport("intersection", 2, {"A": OfSite(dropped=("bmi",)), "B": OfSite(lacking=("bmi",))})
    >>> print("\\n".join(report.lines()))
    features: intersection, 2 in use
      A: not used: bmi
      B: lacks bmi
    >>> FeaturesReport.from_dict(report.to_dict()) == report
    True
    """

    mode: str
    n_features: int
    sites: Mapping[str, OfSite] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    at_sites: Mapping[str, int] = field(default_factory=dict)

    @property
    def nothing_changed(self) -> bool:
        """Whether all sites have the same features, and nothing is in doubt."""
        return not self.notes and not self.at_sites and all(site == OfSite() for site in self.sites.values())

    def lines(self) -> Iterator[str]:
        """In words, a line for each site to which something happened."""
        yield f"features: {self.mode}, {self.n_features} in use"
        for name, site in self.sites.items():
            counts = [f"{what} {number}" for what, number in site.counts.items()]
            texts = [f"not used: {_short(site.dropped)}" if site.dropped else "", *counts]
            texts += [f"lacks {_short(site.lacking)}" if site.lacking else ""]
            if any(texts):
                yield f"  {name}: {'; '.join(text for text in texts if text)}"
        if self.at_sites:
            yield f"  not at all sites: {_short([f'{name} ({number})' for name, number in self.at_sites.items()])}"
        yield from (f"  {note}" for note in self.notes)

    def in_short(self) -> str:
        """In a line."""
        some = [name for name, site in self.sites.items() if site != OfSite()]
        texts = [f"columns or alleles differ at {_short(some)}" if some else ""]
        texts += [f"{len(self.at_sites)} not at all sites" if self.at_sites else "", *self.notes]
        return f"{self.mode}: " + "; ".join(text for text in texts if text)

    def named(self, names: Sequence[str]) -> FeaturesReport:
        """With the names of columns in place of their numbers."""
        numbers = {f"column {j}": name for j, name in enumerate(names)}
        at_sites = {numbers.get(key, key): value for key, value in self.at_sites.items()}
        notes = (note.partition(":") for note in self.notes)
        told = tuple(f"column {numbers[key]!r}:{rest}" if key in numbers else key + colon + rest for key, colon, rest in notes)
        return replace(self, at_sites=at_sites, notes=told)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        sites = {
            name: {"dropped": list(site.dropped), "lacking": list(site.lacking), "counts": dict(site.counts)}
            for name, site in self.sites.items()
        }
        told = {"mode": self.mode, "n_features": self.n_features, "sites": sites, "notes": list(self.notes)}
        return told | {"at_sites": dict(self.at_sites)}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> FeaturesReport:
        """Inverse of :meth:`to_dict`."""
        sites = {
            name: OfSite(tuple(site["dropped"]), tuple(site["lacking"]), dict(site["counts"]))
            for name, site in facts["sites"].items()
        }
        return cls(facts["mode"], facts["n_features"], sites, tuple(facts["notes"]), dict(facts["at_sites"]))


def told_report(mode: str, n_features: int, arrays: Mapping[str, Any] | None = None) -> FeaturesReport:
    """What institutions agreed on, from the arrays of a step "features": how many sites have each of the agreed columns.

    >>> import numpy as np
    >>> report = told_report("intersection", 3, {"having": np.array([2, 1, 2]), "least": np.array(2), "doubts": np.zeros(3)})
    >>> report.n_features, report.named(["age", "bmi", "chol"]).at_sites
    (2, {'bmi': 1})
    """
    if arrays is None:
        return FeaturesReport(mode, n_features)
    having = arrays["having"]
    doubts = [(j, int(number)) for j, number in enumerate(arrays["doubts"]) if number]
    notes = tuple(
        f"column {j}: {number} of {int(having.max())} sites find their values off by a factor between units; their logs say more"
        for j, number in doubts
    )
    fewer = {f"column {j}": int(number) for j, number in enumerate(having) if number < having.max()}
    return FeaturesReport(mode, int((having >= arrays["least"]).sum()), notes=notes, at_sites=fewer)


def _short(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
