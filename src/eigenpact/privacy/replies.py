"""Attacks on the single replies of a recorded run, each compared with the truth where that is at hand.

Who attacks
    As in ``recovery.py``.  A reply that the ledger notes as "secured" is masked: it is left out here, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..numerics.linalg import Array, unpack_triangle
from ..runtime import COORDINATOR, Ledger
from .eavesdropping import Overheard
from .findings import COMPUTED, EXACT, NOT_BY_THIS, NOT_TRIED, Finding, measured, relative_error
from .fitting import fit_scatter
from .recovery import first_message, minimum_norm, symmetric

SECURED = "secured"
"""In a ledger's note: the reply was masked, so that nothing but the sum can be read."""

DIRECTIONS = ("leading_directions", "own_directions")
"""Local functions whose replies are a site's leading eigenvectors times square roots of eigenvalues."""

PRODUCTS, TRIANGLES = ("scatter_action", "rough_action"), ("scatter_triangle", "rough_triangle")
"""Local functions whose replies are a site's scatter times a block, and its upper triangle, to all digits or to six."""

SAYS_NOTHING = frozenset({"session_key", "session_roster", "rows_digest"})
"""Local functions whose replies are keys or keyed digests."""

ATTACKED = {"count_and_sum", "spread", "spread_by_feature", *TRIANGLES, *PRODUCTS, "consensus_step", *DIRECTIONS}
"""Local functions of which this audit knows what their replies tell."""

MOST_UNKNOWNS, FIT_ROUNDS, FIT_STARTS = 900, 16, 3
"""Entries up to which a simulated site is fitted, rounds it may use, and random starts."""

POINTS = 12
"""Rounds at which a curve of errors is measured."""

Attack = Callable[[Array, Array], Array]
"""From blocks and products (both d x m) to a guess of C_i (d x d)."""

BLIND = "guessing the pooled scatter, scaled to the site's trace,"


@dataclass(frozen=True, eq=False)
class Recorded:
    """A run whose messages were kept.

    Attributes
    ----------
    heard : sequence of Overheard
    ledger : Ledger
        Tells rounds, and which replies were masked.
    n_features : int
    truth : dict of site to (d, d) array
        The scatter C_i of every site, centred and scaled as the solver sees it.
    secured : bool
        Take all replies as masked, whatever the ledger says.
    means : dict of site to (d,) array
        The true mean of every site's rows, where it is to be compared.
    """

    heard: Sequence[Overheard]
    ledger: Ledger
    n_features: int
    truth: Mapping[str, Array] = field(default_factory=dict)
    secured: bool = False
    means: Mapping[str, Array] = field(default_factory=dict)

    @cached_property
    def rounds(self) -> dict[tuple[int, int], int]:
        """(epoch, step) -> round."""
        return {(m.epoch, m.step): m.round for m in self.ledger}

    @cached_property
    def masked(self) -> set[tuple[int, int, str]]:
        """(epoch, step, site) of replies that were masked."""
        return {(m.epoch, m.step, m.sender) for m in self.ledger if m.sender != COORDINATOR and SECURED in m.note}

    def single(self, site: str, *functions: str) -> list[Overheard]:
        """Replies of a site that can be read by themselves."""
        if self.secured:
            return []
        own = (one for one in self.heard if one.site == site and one.function in functions)
        return [one for one in own if (one.epoch, one.step, site) not in self.masked]

    def products(self, site: str) -> list[tuple[int, Array, Array]]:
        """Rounds, blocks B and products C_i B that a site's replies tell; eigenvectors U S stand for C_i U = U S^2.

        Only of the last epoch: C_i is about the pooled mean, which is another one with every roster.
        """
        found = []
        for one in self.single(site, *PRODUCTS, *TRIANGLES, *DIRECTIONS):
            if one.epoch != self.heard[-1].epoch:
                continue
            if one.function in PRODUCTS:
                block, product = one.args[0], one.arrays[0]
            elif one.function in TRIANGLES:
                block, product = np.eye(self.n_features), unpack_triangle(one.arrays[0], self.n_features)
            else:
                lengths = np.linalg.norm(one.arrays[0], axis=0)
                kept = lengths > 0
                block, product = one.arrays[0][:, kept] / lengths[kept], one.arrays[0][:, kept] * lengths[kept]
            found.append((self.rounds.get((one.epoch, one.step), 0), block, product))
        return found

    @cached_property
    def pooled(self) -> Array:
        """The true pooled scatter (d x d)."""
        total: Array = np.sum(list(self.truth.values()), axis=0)
        return total

    def baseline(self, site: str) -> float:
        """Relative error of the guess that needs no reply but the site's trace."""
        C, share = self.truth[site], np.trace(self.truth[site]) / max(float(np.trace(self.pooled)), np.finfo(float).tiny)
        return relative_error(share * self.pooled, C)


def attack_replies(recorded: Recorded, fit_sites: int = 1) -> Iterator[Finding]:
    """What single replies tell about every site that has a true scatter; FAPS is fitted for the first ``fit_sites`` only."""
    for number, site in enumerate(recorded.truth):
        yield _set_up(recorded, site)
        yield from _linear(recorded, site)
        yield from _one_shot(recorded, site)
        yield from _faps(recorded, site, fitted=number < fit_sites)
        yield from _unknown(recorded, site)


def _set_up(recorded: Recorded, site: str) -> Finding:
    about: dict[str, Any] = {"site": site, "attack": "set-up", "wanted": "row count and mean"}
    if recorded.single(site, "count_and_sum"):
        *_, n, sums = recorded.single(site, "count_and_sum")[-1].arrays
        sentence = f"The set-up told the site's number of rows, {int(n)}, and the sums of its columns, and so its mean"
        if site not in recorded.means:
            return Finding(**about, verdict=COMPUTED, sentence=f"{sentence}.")
        error = relative_error(sums / int(n), recorded.means[site])
        return Finding(**about, **measured(error, None), sentence=f"{sentence}, to {error:.0e}.")
    return Finding(**about, verdict=NOT_BY_THIS, sentence=_aggregate("the set-up"))


def _linear(recorded: Recorded, site: str) -> Iterator[Finding]:
    """Minimum-norm and symmetric recovery from all products, round by round."""
    yield from_products(recorded, site, "products, minimum norm", minimum_norm)
    yield from_products(recorded, site)


def from_products(recorded: Recorded, site: str, name: str = "products, symmetric", attack: Attack = symmetric) -> Finding:
    """C_i from all products that a site's single replies are, after more and more rounds."""
    told, C = recorded.products(site), recorded.truth[site]
    about: dict[str, Any] = {"site": site, "attack": name, "wanted": "C_i"}
    if not told:
        return Finding(**about, verdict=NOT_BY_THIS, baseline=recorded.baseline(site), sentence=_no_products(recorded, site))
    rounds = list(dict.fromkeys(r for r, _, _ in told))
    errors = _errors_by_round(told, rounds, attack, C)
    curve = sorted(errors.items())
    enough = next((r for r, e in curve if e <= EXACT), None)
    error = errors[rounds[-1]]
    columns = int(np.linalg.matrix_rank(np.hstack([B for _, B, _ in told])))
    words = f"From all its replies C_i was computed to {error:.0e}"
    words += f", and to {EXACT:g} or better by round {enough}" if enough is not None else ""
    words += f", with {columns} of {recorded.n_features} directions; {BLIND} errs by {recorded.baseline(site):.2g}."
    result = measured(min(error, errors[enough]) if enough is not None else error, recorded.baseline(site), part=True)
    result |= {"error": error, "energy": max(0.0, 1 - error**2)}
    return Finding(**about, **result, rounds=enough, curve=tuple(curve), sentence=words)


def in_short(one: Finding) -> str:
    """What a finding of :func:`from_products` says, for a table of solvers."""
    if one.error is None:
        return one.verdict
    soon = "" if one.rounds is None else f", {EXACT:g} after {one.rounds} round{'s' * (one.rounds != 1)}"
    return f"{one.error:.0e} in the end{soon}"


def _errors_by_round(told: list[tuple[int, Array, Array]], rounds: list[int], attack: Attack, C: Array) -> dict[int, float]:
    """Errors of an attack after some of the rounds, among them the first one that is enough."""

    def error(place: int) -> float:
        blocks, products = (np.hstack([part[i] for part in told if part[0] <= rounds[place]]) for i in (1, 2))
        return relative_error(attack(blocks, products), C)

    places = sorted({int(i) for i in np.linspace(0, len(rounds) - 1, min(POINTS, len(rounds)))})
    errors = {place: error(place) for place in places}
    enough = next((place for place in places if errors[place] <= EXACT), None)
    below = max((place for place in places if enough is not None and place < enough), default=-1)
    while enough is not None and enough - below > 1:
        middle = (below + enough) // 2
        errors[middle] = error(middle)
        below, enough = (below, middle) if errors[middle] <= EXACT else (middle, enough)
    return {rounds[place]: value for place, value in errors.items()}


def _one_shot(recorded: Recorded, site: str) -> Iterator[Finding]:
    """The rank-k part that a one-shot message is."""
    for one in recorded.single(site, *DIRECTIONS)[:1]:
        V, C = one.arrays[0], recorded.truth[site]
        error = relative_error(V @ V.T, C)
        result = measured(error, recorded.baseline(site), part=True)
        sentence = f"One message told the {V.shape[1]} leading eigenvectors and eigenvalues of C_i: all of it but {error:.2g}."
        yield Finding(site, "one-shot truncation", "C_i", rounds=1, **result, sentence=sentence)


def _faps(recorded: Recorded, site: str, *, fitted: bool) -> Iterator[Finding]:
    """FAPS' first message, and a simulated site fitted to its first rounds."""
    heard = [one for one in recorded.single(site, "consensus_step") if one.epoch == recorded.heard[-1].epoch]
    if not heard:
        return
    C, Z = recorded.truth[site], heard[0].args[0]
    wanted = C @ Z - Z @ (Z.T @ C @ Z)
    error = relative_error(first_message(Z, heard[0].arrays[0])[1], wanted)
    sentence = f"The first reply of FAPS is a product with C_i outside the first basis, and tells it to {error:.0e}."
    yield Finding(site, "FAPS, first message", "(I - Z Z^T) C_i Z", **measured(error, 1.0), rounds=1, sentence=sentence)
    yield _fit(recorded, site, heard) if fitted else _not_tried(site, "the fit was made for the first site only")


def _fit(recorded: Recorded, site: str, heard: list[Overheard]) -> Finding:
    """Fit FAPS' own messages, helped by a one-shot start and the first confirming products as long as these leave something."""
    d = recorded.n_features
    told: list[tuple[int, Array, Array]] = []
    for part in recorded.products(site)[:2]:
        if np.linalg.matrix_rank(np.hstack([B for _, B, _ in (*told, part)])) < d:
            told.append(part)
    blocks = np.hstack([np.zeros((d, 0)), *(B for _, B, _ in told)])
    products = np.hstack([np.zeros((d, 0)), *(G for _, _, G in told)])
    seen = int(np.linalg.matrix_rank(blocks)) if blocks.size else 0
    rounds = heard[:FIT_ROUNDS]
    unknowns = (d - seen) * (d - seen + 1) // 2 + len(rounds)
    if int(heard[0].args[1]) != 0:
        return _not_tried(site, 'the fit is written for inner="subspace"')
    if unknowns > MOST_UNKNOWNS:
        return _not_tried(
            site, f"a fit with {unknowns} unknowns takes longer than an audit should; that is a cost, no protection"
        )
    if len(rounds) * (rounds[0].args[0].size + 1) < unknowns:
        sentence = f"{len(rounds)} rounds give fewer equations than there are unknowns ({unknowns}); more rounds would not."
        return Finding(site, "FAPS, simulated site", "C_i", NOT_BY_THIS, sentence, baseline=recorded.baseline(site))
    bases, sent, captured = zip(*((one.args[0], one.arrays[0], float(one.arrays[1])) for one in rounds), strict=True)
    steps = int(heard[0].args[2])
    fit = fit_scatter(bases, sent, captured, blocks, products, steps=steps, starts=FIT_STARTS)
    error = relative_error(fit.scatter, recorded.truth[site])
    sentence = f"A simulated site, fitted to the first {len(rounds)} rounds, gave C_i to {error:.0e}"
    sentence += f" ({seen} of {d} directions from products)."
    result = measured(error, recorded.baseline(site), part=seen > 0)
    used = [recorded.rounds.get((rounds[-1].epoch, rounds[-1].step), len(rounds)), *(r for r, _, _ in told)]
    return Finding(site, "FAPS, simulated site", "C_i", **result, rounds=max(used), sentence=sentence)


def _unknown(recorded: Recorded, site: str) -> Iterator[Finding]:
    """Replies that no attack here reads: said, so that nobody takes silence for an answer."""
    others = {one.function for one in recorded.heard if one.site == site} - ATTACKED - SAYS_NOTHING
    for function in sorted(name for name in others if recorded.single(site, name)):
        yield replace(
            _not_tried(site, "this audit has no attack on it; see docs/explanation/what-leaves-a-site.md"), attack=function
        )


def _not_tried(site: str, why: str) -> Finding:
    return Finding(site, "FAPS, simulated site", "C_i", NOT_TRIED, f"Nothing is said about this: {why}.")


def _no_products(recorded: Recorded, site: str) -> str:
    hidden = recorded.secured or any(name == site for _, _, name in recorded.masked)
    return _aggregate("its replies") if hidden else "No reply of this site is a product with C_i."


def _aggregate(what: str) -> str:
    return f"Of {what} the aggregate only could be read: replies were masked.  Attacks on sums remain."
