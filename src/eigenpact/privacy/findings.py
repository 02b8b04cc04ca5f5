"""What an audit says: one finding for every site and attack, in words that promise nothing.

An attack that fails here says something of that attack, not of the site: another attack, or more messages, may succeed.  So no
verdict calls anything safe, and what was not attacked is listed as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..numerics.linalg import Array

COMPUTED = "computed"
IN_PART = "computed in part"
COULD = "could be computed"
COULD_IN_PART = "could be computed in part"
NOT_BY_THIS = "not by this attack"
NOT_TRIED = "no attack tried"
VERDICTS = (COMPUTED, IN_PART, COULD, COULD_IN_PART, NOT_BY_THIS, NOT_TRIED)

EXACT = 1e-6
"""Relative errors up to this are called computed; larger ones that beat the baseline, computed in part."""

EVERYBODY = "all sites"
"""Stands for a site in findings on what the sites have sent together."""


@dataclass(frozen=True)
class Finding:
    """What one attack learned about one site.

    Attributes
    ----------
    site : str
        A site, or "all sites".
    attack : str
    wanted : str
        What the attack looks for.
    verdict : str
        One of ``VERDICTS``.
    sentence : str
    error : float, optional
        Relative error; None where nothing was compared with the truth.
    energy : float, optional
        Share of the squared entries that was recovered, 1 - error^2, and 0 where an attack is worse than guessing zero.
    baseline : float, optional
        Relative error of a guess that needs no reply of the site: see the sentence.
    rounds : int, optional
        The round by which the attack came within ``EXACT``, or the last one of which it used messages; the error is that of all
        messages used.
    curve : tuple of (round, error)
    """

    site: str
    attack: str
    wanted: str
    verdict: str
    sentence: str
    error: float | None = None
    energy: float | None = None
    baseline: float | None = None
    rounds: int | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Audit:
    """All findings on a run.

    Attributes
    ----------
    mode : "recorded" or "ledger"
        Attacks were run on recorded messages and compared with the truth; or equations were counted in a ledger.
    solver : str
    sites : tuple of str
    n_features, n_rounds : int
    secured : bool
        Whether every reply to a sum was masked.
    findings : tuple of Finding
    about : dict
        What else belongs to the run, for the JSON file.
    """

    mode: str
    solver: str
    sites: tuple[str, ...]
    n_features: int
    n_rounds: int
    secured: bool
    findings: tuple[Finding, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def of(self, attack: str, site: str | None = None) -> list[Finding]:
        """Findings of one attack, perhaps on one site only."""
        return [one for one in self.findings if one.attack == attack and site in (None, one.site)]

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; numbers that are not finite become None."""
        facts = {name: getattr(self, name) for name in ("mode", "solver", "n_features", "n_rounds", "secured")}
        findings = [{k: _finite(v) for k, v in asdict(one).items()} for one in self.findings]
        return facts | {"sites": list(self.sites), "about": dict(self.about), "findings": findings}


def relative_error(guess: Array, truth: Array) -> float:
    """||guess - truth||_F / ||truth||_F."""
    size = float(np.linalg.norm(truth))
    return float(np.linalg.norm(guess - truth)) / size if size > 0 else float(np.linalg.norm(guess))


def measured(error: float, baseline: float | None, *, part: bool = False) -> dict[str, Any]:
    """Verdict, error, energy and baseline of a finding.

    With ``part`` the attack knows something exactly, however far off the rest is: then no baseline makes it "not by this attack".

    >>> measured(1e-9, 0.5)["verdict"], measured(0.2, 0.5)["verdict"], measured(0.6, 0.5)["verdict"]
    ('computed', 'computed in part', 'not by this attack')
    >>> measured(0.6, 0.5, part=True)["verdict"]
    'computed in part'
    """
    bar = 1.0 if baseline is None else min(1.0, baseline)
    verdict = COMPUTED if error <= EXACT else IN_PART if part or error < bar else NOT_BY_THIS
    return {"verdict": verdict, "error": error, "energy": max(0.0, 1 - error**2), "baseline": baseline}


def _finite(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
