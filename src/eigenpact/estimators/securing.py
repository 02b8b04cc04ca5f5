"""What ``secure=True`` asks of a solver: sums alone, and a start that needs nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import InputError
from ..runtime import Plan, Secured
from ..runtime.local import find_local
from ..runtime.secure_sum import SECURED_KINDS

INSTEAD = {
    "gather": "start='random', or solver='auto' instead of a merge of single replies; for RobustPCA, tell_shares=False",
    "at": "public rows as proxy, or none",
    "max": "solver='varpro' instead of 'perpca'",
    "chain": "solver='lanczos' or 'auto' instead of 'hot-potato'",
}
"""By what shows single replies: what to use where sums are secured."""


def as_secured(secure: Any) -> Secured | None:
    """What the ``secure`` argument of an estimator stands for."""
    if secure is None or isinstance(secure, Secured):
        return secure
    if secure not in (True, False) or not isinstance(secure, bool):
        raise InputError(f"secure={secure!r} must be True, False or an instance such as ep.Secured(min_apart=1)")
    return Secured() if secure else None


def secured(algorithm: Any) -> Any:
    """The solver with a start that needs sums alone, unless the user chose one."""
    if dataclasses.is_dataclass(algorithm) and not isinstance(algorithm, type) and getattr(algorithm, "start", "") is None:
        return dataclasses.replace(algorithm, start="random")
    return algorithm


def secured_plan(plan: Plan, secure: Secured, site_means: bool = False) -> Plan:
    """The plan of a run whose sums are secured; one that would show single replies is refused.

    Functions whose sums tell sites' means apart are in it only with ``site_means``.
    """
    shown = sorted(set(plan.kinds) - SECURED_KINDS)
    if shown:
        instead = INSTEAD.get(shown[0], "a solver that only sums")
        raise InputError(f"secure=True: solver {plan.solver!r} uses {shown[0]!r}, which shows single replies; use {instead}")
    functions = tuple(name for name in plan.functions if site_means or not find_local(name).site_means)
    return dataclasses.replace(plan, functions=functions, secure=True, min_apart=secure.min_apart)
