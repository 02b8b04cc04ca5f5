"""What a coordinator says it is about to do: solver, functions, collectives, rounds.

It is announced before the first round, and whoever holds rows compares it with rules of its own (``policy.py``, ``gate.py``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeGuard

from ..errors import PolicyError

MAX_NUMBER = (1 << 63) - 1
"""The largest number in a header or plan: JSON would hold one of thousands of digits."""

OF_SOLVERS = ("rule solvers", "rule functions")
"""How refusals begin that another solver would not meet."""


@dataclass(frozen=True)
class Plan:
    """What a coordinator is about to do.

    Attributes
    ----------
    solver : str
    functions : tuple of str
        Full names of all local functions that may be called.
    kinds : tuple of str
        Collectives that may be used: "sum", "local", "gather", ...; and "digest" if there is a journal.
    max_rounds : int
        Rounds after which the solver stops.
    n_components : int or None
        Components asked for; None if a share of the variance, or all.
    features : tuple of str, int or None
        Names of the columns in order, or their number; None if it does not matter.
    secure : bool
        Whether sums are secured (``secure_sum.py``).
    min_apart : int
        Fewest sites that a secured run goes on without: what they have in common can then be computed.  0 if it stops instead.
    min_nonzero : int
        Features of which fewer entries are not zero are dropped (``rare.py``); 0 if none are.
    """

    solver: str
    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    max_rounds: int
    n_components: int | None = None
    features: tuple[str, ...] | int | None = None
    secure: bool = False
    min_apart: int = 0
    min_nonzero: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def digest(self) -> str:
        """Tells plans apart where they are written down."""
        return hashlib.blake2b(json.dumps(self.to_dict()).encode(), digest_size=16).hexdigest()

    @classmethod
    def from_dict(cls, facts: Any) -> Plan:
        """Inverse of :meth:`to_dict`, for what a coordinator sent: everything is checked."""
        if not isinstance(facts, dict) or set(facts) != {field.name for field in fields(cls)}:
            raise PolicyError(f"rule plan: a plan has {', '.join(f.name for f in fields(cls))}; the versions may differ")
        features = facts["features"]
        good = (
            isinstance(facts["solver"], str)
            and are_texts(facts["functions"])
            and are_texts(facts["kinds"])
            and is_count(facts["max_rounds"])
            and (facts["n_components"] is None or is_count(facts["n_components"]))
            and (features is None or is_count(features) or are_texts(features))
            and type(facts["secure"]) is bool
            and is_count(facts["min_apart"])
            and is_count(facts["min_nonzero"])
        )
        if not good:
            raise PolicyError("rule plan: the announced plan holds values of wrong types; the versions may differ")
        tuples = {key: tuple(facts[key]) for key in ("functions", "kinds")}
        return cls(**facts | tuples | {"features": tuple(features) if isinstance(features, list) else features})


def first_allowed(plans: Sequence[Plan], ask: Callable[[Plan], Mapping[str, str]]) -> int:
    """Which of several plans for the same run is the first whose solver and functions no site refuses; the first of all if there
    is none.

    ``ask`` announces a plan, and gives by site why it was refused; the plan that it was called with last is the given one.
    """
    for i, plan in enumerate(plans):
        if not any(reason.startswith(OF_SOLVERS) for reason in ask(plan).values()):
            return i
    if len(plans) > 1:
        ask(plans[0])
    return 0


def are_texts(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number >= 0 that other machines can hold, too."""
    return type(value) is int and 0 <= value <= MAX_NUMBER


def check_features(wanted: tuple[str, ...] | int | None, mine: tuple[str, ...] | int) -> None:
    """Refuse a plan whose columns, or whose number of them, are not a site's own."""
    if wanted is None or wanted == mine:
        return
    count = mine if isinstance(mine, int) else len(mine)
    if isinstance(wanted, int) or isinstance(mine, int):
        n = wanted if isinstance(wanted, int) else len(wanted)
        if n != count:
            raise PolicyError(f"rule features: the plan has {n} features, this site {count}")
        return
    differing = {"not here:": sorted(set(wanted) - set(mine)), "not in the plan:": sorted(set(mine) - set(wanted))}
    detail = "; ".join(f"{what} {', '.join(some[:5])}" for what, some in differing.items() if some)
    raise PolicyError(f"rule features: this site's columns are not the plan's ({detail or 'the same in another order'})")
