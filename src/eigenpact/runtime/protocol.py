"""The protocols that this release speaks, and the one that the parties of a run agree on (ADR 20).

Sites upgrade one by one, so parties of a run may have other releases than each other.  A greeting, a plan and the answers to
them tell which protocols the sender speaks, as a range, and its release; a run speaks the highest that all its parties do, and
every request says which that is.  Where there is none, nothing is computed, and the error names who must upgrade.

=  ==================================================================================================
1  releases up to 0.1.0: messages that name no protocol
2  0.2.0: messages that name their protocol, and greetings, plans and answers to them a release, too
=  ==================================================================================================

A change that an earlier release would misread is another protocol.  One that it ignores, such as another key in a header, or
refuses by a name, such as a local function that it does not have, is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ProtocolError, WireError
from ..release import __version__

OLDEST, NEWEST = 1, 2
"""The protocols that this release speaks."""

NAMED_FROM = 2
"""The first protocol whose messages name it."""

MOST_PROTOCOL, MOST_LETTERS = 1 << 16, 32
"""What a protocol's number and the name of a release may be in a header."""

UNNAMED = "0.1.0"
"""The release of parties that name none; it was the last that did not."""


@dataclass(frozen=True)
class Speaker:
    """A party of a run, its release, and the protocols it speaks.

    >>> Speaker("site 'lima'", "0.1.0", 1, 1).told()
    "site 'lima' has eigenpact 0.1.0, which speaks protocol 1"
    """

    party: str
    release: str
    oldest: int
    newest: int

    @classmethod
    def here(cls, party: str) -> Speaker:
        """A party in this process."""
        return cls(party, __version__, OLDEST, NEWEST)

    @classmethod
    def elsewhere(cls, party: str, header: Mapping[str, Any]) -> Speaker:
        """The party that sent a header; one that names no protocol speaks the first.

        A request names one protocol alone: the one that was agreed on.
        """
        told, release = header.get("protocol", 1), header.get("release", UNNAMED)
        span = told if isinstance(told, list) else [told, told]
        good = len(span) == 2 and all(type(n) is int and 1 <= n <= MOST_PROTOCOL for n in span) and span[0] <= span[1]
        if not good or not isinstance(release, str) or not release.isprintable() or len(release) > MOST_LETTERS:
            raise WireError(
                f"message header: 'protocol' must be a number from 1 to {MOST_PROTOCOL}, or the first and last of several, and "
                f"'release' a text of at most {MOST_LETTERS} letters"
            )
        return cls(party, release, *span)

    def header(self) -> dict[str, Any]:
        """What greetings, plans and answers to them tell of it."""
        return {"protocol": [self.oldest, self.newest], "release": self.release}

    def told(self) -> str:
        """In words."""
        span = f"protocol {self.newest}" if self.oldest == self.newest else f"protocols {self.oldest} to {self.newest}"
        return f"{self.party} has eigenpact {self.release}, which speaks {span}"


def agree(parties: Iterable[Speaker]) -> int:
    """The highest protocol that all these parties speak; where there is none, the error names those that must upgrade.

    >>> ours, theirs = Speaker("the coordinator", "0.3.0", 2, 3), Speaker("site 'lima'", "0.2.0", 1, 2)
    >>> agree([ours, theirs])
    2
    >>> agree([ours, Speaker("site 'bergen'", "0.1.0", 1, 1), theirs])
    Traceback (most recent call last):
    eigenpact.errors.ProtocolError: rule protocol: site 'bergen' must upgrade eigenpact: site 'bergen' has eigenpact 0.1.0, which
    speaks protocol 1; the coordinator has eigenpact 0.3.0, which speaks protocols 2 to 3
    """
    parties = list(parties)
    first, newest = max(parties, key=lambda party: party.oldest), min(party.newest for party in parties)
    if first.oldest <= newest:
        return newest
    behind = [party for party in parties if party.newest < first.oldest]
    who = " and ".join(party.party for party in behind)
    facts = "; ".join(party.told() for party in (*behind, first))
    raise ProtocolError(f"rule protocol: {who} must upgrade eigenpact: {facts}")


def named(protocol: int) -> dict[str, int]:
    """What a message of a run that speaks this protocol says of it."""
    return {"protocol": protocol} if protocol >= NAMED_FROM else {}


def upgraded(party: Speaker, other: Speaker, reason: str) -> str:
    """Why something was refused, and the releases of both where it may be because they differ.

    >>> ours, theirs = Speaker("the coordinator", "0.2.0", 1, 2), Speaker("site 'lima'", "0.1.0", 1, 1)
    >>> upgraded(theirs, ours, "rule functions: 'eigenpact:new/1' is not listed at this site")[-73:]
    "; site 'lima' has eigenpact 0.1.0 and the coordinator has eigenpact 0.2.0"
    >>> upgraded(theirs, ours, "rule solvers: 'gram' is not allowed here")
    "rule solvers: 'gram' is not allowed here"
    """
    of_releases = reason.startswith(("rule functions", "rule plan: a plan has", "rule plan: the announced"))
    if party.release == other.release or not (of_releases or "unknown function" in reason):
        return reason
    releases = " and ".join(f"{one.party} has eigenpact {one.release}" for one in (party, other))
    return f"{reason}; {releases}"
