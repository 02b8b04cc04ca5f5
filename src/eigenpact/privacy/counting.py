"""What could be computed, from a ledger alone: equations are counted, nothing is attacked.

A ledger holds no values.  Columns answered may repeat one another, so their number is the most that an attacker has; a count
below the number of features says that C_i was not determined by these products alone, and no more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import InputError
from ..runtime import COORDINATOR, Ledger, Message
from .findings import COULD, COULD_IN_PART, EVERYBODY, NOT_BY_THIS, NOT_TRIED, Finding
from .replies import ATTACKED, DIRECTIONS, PRODUCTS, SAYS_NOTHING, SECURED, TRIANGLES
from .sums import isolated


@dataclass(frozen=True, eq=False)
class Counted:
    """A ledger, read for what its messages could tell; ``n_features`` may be read off it."""

    ledger: Ledger
    n_features: int
    secured: bool = False

    @classmethod
    def of(cls, ledger: Ledger, n_features: int | None = None, *, secured: bool = False) -> Counted:
        """The number of features is that of the sums of columns, if it is not given."""
        sums = (m.shapes[-1][0] for m in ledger if m.function == "count_and_sum" and m.sender != COORDINATOR and m.shapes[-1])
        found = n_features or next(sums, None)
        if found is None:
            raise InputError("the ledger does not tell how many features there are; give n_features")
        return cls(ledger, found, secured)

    @property
    def sites(self) -> tuple[str, ...]:
        """Everybody who sent something, sorted."""
        return tuple(sorted({m.sender for m in self.ledger if m.sender != COORDINATOR and m.shapes}))

    @property
    def rosters(self) -> dict[int, frozenset[str]]:
        """Epoch -> sites that answered in it."""
        found: dict[int, set[str]] = {}
        for m in self.ledger:
            if m.sender != COORDINATOR and m.shapes:
                found.setdefault(m.epoch, set()).add(m.sender)
        return {epoch: frozenset(names) for epoch, names in found.items()}

    def readable(self, site: str) -> list[Message]:
        """What a site sent that can be read by itself: not masked, not repeated, not to itself."""
        if self.secured:
            return []
        own = (m for m in self.ledger if m.sender == site and m.shapes and m.note not in ("own", "resent"))
        return [m for m in own if SECURED not in m.note]

    def masked(self, site: str) -> bool:
        """Whether anything that a site sent was masked."""
        return self.secured or any(m.sender == site and SECURED in m.note for m in self.ledger)


def count_equations(counted: Counted) -> Iterator[Finding]:
    """What could be computed about every site, then from sums and rosters."""
    for site in counted.sites:
        yield from _site(counted, site)
    yield from count_rosters(counted)


def _site(counted: Counted, site: str) -> Iterator[Finding]:
    d, readable = counted.n_features, counted.readable(site)
    functions = {m.function for m in readable}
    hidden = "the aggregate only could be read: replies were masked" if counted.masked(site) else "nothing of the kind was sent"
    if "count_and_sum" in functions:
        yield Finding(site, "set-up", "row count and mean", COULD, "The set-up told its number of rows and its mean.")
    else:
        yield Finding(site, "set-up", "row count and mean", NOT_BY_THIS, f"Of the set-up {hidden}.")
    columns, enough = 0, None
    for m in readable:
        if m.function in (*PRODUCTS, *DIRECTIONS):
            columns += m.shapes[0][1]
        columns += d if m.function in TRIANGLES else 0
        enough = m.round if enough is None and columns >= d else enough
    if columns:
        verdict = COULD if enough is not None else COULD_IN_PART
        when = f"enough by round {enough} if they are independent" if enough is not None else "C_i on their span, and across it"
        sentence = f"It answered {columns} columns of products with C_i, of {d} features: {when}."
        yield Finding(site, "products, symmetric", "C_i", verdict, sentence, rounds=enough)
    else:
        yield Finding(site, "products, symmetric", "C_i", NOT_BY_THIS, f"Of products {hidden}.")
    for m in [m for m in readable if m.function in DIRECTIONS][:1]:
        sentence = f"One message told {m.shapes[0][1]} leading eigenvectors and eigenvalues of C_i."
        yield Finding(site, "one-shot truncation", "C_i", COULD_IN_PART, sentence, rounds=1)
    yield from _steps(site, d, [m for m in readable if m.function == "consensus_step"])
    for function in sorted(functions - ATTACKED - SAYS_NOTHING):
        sentence = "Nothing is said about this: this audit has no attack on it; see docs/explanation/what-leaves-a-site.md."
        yield Finding(site, function, "C_i", NOT_TRIED, sentence)


def _steps(site: str, d: int, steps: list[Message]) -> Iterator[Finding]:
    """FAPS: a first message that is a product, and equations for a fit."""
    if not steps:
        return
    k, rounds = steps[0].shapes[0][1], len(steps)
    equations, unknowns = rounds * (d * k + 1), d * (d + 1) // 2 + rounds
    yield Finding(site, "FAPS, first message", "(I - Z Z^T) C_i Z", COULD, "The first reply is a product with C_i.", rounds=1)
    sentence = f"{rounds} rounds gave {equations} equations for {unknowns} unknowns; a simulated site could be fitted to them."
    verdict = COULD if equations >= unknowns else COULD_IN_PART
    yield Finding(site, "FAPS, simulated site", "C_i", verdict, sentence, rounds=rounds)


def count_rosters(counted: Counted) -> Iterator[Finding]:
    """Whose part the difference of sums over several rosters is, and what two sites have from each other."""
    rosters = list(counted.rosters.values())
    alone = isolated(rosters) if rosters else []
    about = Finding("", "lost site", "row count, mean and part of C_i", COULD, "")
    for site in alone:
        sentence = f"The run had {len(set(rosters))} rosters; their sums together give this site's own part, secured or not."
        yield replace(about, site=site, sentence=sentence)
    if not alone:
        number = len(set(rosters))
        sentence = f"{number} roster{'s' * (number > 1)} in this run: no site's part is a combination of their sums."
        sentence += "  Runs with other rosters, before or after, are not in this ledger."
        yield replace(about, site=EVERYBODY, verdict=NOT_BY_THIS, sentence=sentence)
    yield two_sites(rosters)


def two_sites(rosters: list[frozenset[str]]) -> Finding:
    """With two sites, each has the other's part of every sum."""
    fewest = min(map(len, rosters), default=0)
    about = Finding(EVERYBODY, "two sites", "the other's part of every sum", COULD, "")
    if fewest == 1:
        return replace(about, sentence="One site was alone in a roster: every sum was its own reply.")
    if fewest == 2:
        return replace(about, sentence="With two sites the sum hides nothing from the other one: it takes its own part off.")
    sentence = f"It takes {fewest - 1} of {fewest} sites together with whoever sees the sums."
    return replace(about, verdict=NOT_BY_THIS, sentence=sentence)
