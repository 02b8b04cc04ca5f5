"""What a fit ends with: one typed result per estimator, which engines carry to every process, and estimators copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, get_origin, get_type_hints

import numpy as np

from ..errors import InputError, NotConvergedWarning, NotIdentifiableWarning, SiteElsewhereError, SiteLeftOutWarning
from ..numerics.preparation import Step, flat, unflat
from ..runtime import Driver, Outcome

PRIVATE = {"private": True}
"""Metadata of a field that is no public attribute of a fitted estimator: ``_name`` instead of ``name_``."""

UNSEEN = {"unseen": True}
"""Metadata of a field that is no attribute at all."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """Attributes of a fitted estimator, each an array or what JSON can hold; subclasses add theirs.

    ``doubts`` are reasons why the answer is one of many; ``left_out`` are sites whose replies could not be true, and why.
    """

    n_features_in: int
    sites: tuple[str, ...]
    n_rounds: int
    n_setup_rounds: int
    converged: bool
    stop_reason: str
    solver: str
    doubts: tuple[str, ...] = field(default=(), metadata=UNSEEN)
    left_out: dict[str, str] = field(default_factory=dict, metadata=UNSEEN)

    def attributes(self) -> dict[str, Any]:
        """By the names that a fitted estimator has for them.

        >>> facts = {"sites": ("A",), "n_rounds": 2, "n_setup_rounds": 1, "converged": True, "stop_reason": "exact"}
        >>> list(Result(n_features_in=3, solver="gram", **facts).attributes())[-2:]
        ['stop_reason_', 'solver_']
        """
        seen = [f for f in fields(self) if "unseen" not in f.metadata]
        return {f"_{f.name}" if "private" in f.metadata else f"{f.name}_": getattr(self, f.name) for f in seen}

    def chosen_instead(self, names: Sequence[str]) -> Self:  # noqa: ARG002
        """The result of the last of these solvers, which sites allow where they refuse those before."""
        return self

    def warnings(self) -> Iterator[tuple[type[Warning], str]]:
        """What whoever called ``fit`` is to be warned of."""
        if not self.converged:
            yield NotConvergedWarning, f"not converged: {self.stop_reason}"
        yield from ((NotIdentifiableWarning, doubt) for doubt in self.doubts)
        for site, why in self.left_out.items():
            yield SiteLeftOutWarning, f"site {site!r} was left out: {why}; the answer is that of {', '.join(self.sites)} alone"

    def to_outcome(self, driver: Driver, kept: tuple[str, ...] = ()) -> Outcome:
        """As engines carry it, with the driver's account and the names of what sites keep.

        Matrices that lie in memory column by column travel as their transposes: on the wire all lie row by row, and products
        with a matrix that lies otherwise may differ in their last bits.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        facts = {name: value for name, value in values.items() if name not in arrays}
        for name in self._steps():
            arrays |= flat(values[name], name)
            facts[name] = [step.kind for step in values[name]]
        carried = {f"{name}.T" if a.flags.fnc else name: a.T if a.flags.fnc else a for name, a in arrays.items()}
        return Outcome(carried, facts, driver.ledger, driver.history, kept)

    @classmethod
    def from_outcome(cls, outcome: Outcome) -> Self:
        """Inverse of :meth:`to_outcome`, in any process; JSON has no tuples."""
        types = get_type_hints(cls)
        facts: dict[str, Any] = {
            name: tuple(value) if get_origin(types[name]) is tuple else value for name, value in outcome.facts.items()
        }
        arrays = {name.removesuffix(".T"): a.T if name.endswith(".T") else a for name, a in outcome.arrays.items()}
        for name in cls._steps():
            facts[name] = unflat(arrays, name, facts[name])
        return cls(**{name: array for name, array in arrays.items() if "/" not in name}, **facts)

    @classmethod
    def _steps(cls) -> list[str]:
        """Names of the fields that hold steps by which rows were prepared."""
        return [name for name, kind in get_type_hints(cls).items() if kind == tuple[Step, ...]]


def precision(single: bool) -> np.dtype[Any]:
    """The dtype of results: single precision only where all rows are."""
    return np.dtype(np.float32 if single else np.float64)


class OfSites(Mapping[str, Any]):
    """What belongs to single sites, by name: there for the sites that this process holds, an error with advice for others.

    >>> parts = OfSites(("A", "B"), {"A": 1}, "the local part", "ask there")
    >>> parts["A"], list(parts)
    (1, ['A'])
    >>> parts["B"]
    Traceback (most recent call last):
    ...
    eigenpact.errors.SiteElsewhereError: the local part of site 'B' is at that site, not in this process (here: A); ask there
    """

    def __init__(self, sites: tuple[str, ...], held: dict[str, Any], what: str, advice: str, word: str = "site") -> None:
        self.sites, self.held = sites, held
        self._what, self._advice, self._word = what, advice, word

    def __getitem__(self, site: str) -> Any:
        if site in self.held:
            return self.held[site]
        word, here = self._word, ", ".join(self.held) or "none"
        if site in self.sites:
            where = f"is at that {word}, not in this process (here: {here})"
            raise SiteElsewhereError(f"{self._what} of {word} {site!r} {where}; {self._advice}")
        raise InputError(f"no {word} {site!r} in this model; the {word}s are {', '.join(self.sites[:10])}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return repr(self.held)
