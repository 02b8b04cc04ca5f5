"""How sites agree on changes of their rows before anything else: each is a step (``numerics/preparation.py``) made from sums.

A class that agrees on a step is a frozen dataclass with its parameters, a ``part`` that declares its local functions, and an
``agree`` that awaits collectives, has every site keep the step (``runtime/prepared.py``), and returns it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from ..numerics.preparation import Step
from .method import Part


@runtime_checkable
class Preparer(Protocol):
    """What agrees on one step."""

    @property
    def part(self) -> Part:
        """The local functions that it uses, for plans and the wire table."""

    async def agree(self) -> Step:
        """Agree on the step; from then on local functions see rows that it has changed."""


async def agree_on(preparers: Iterable[Preparer]) -> tuple[Step, ...]:
    """Agree on steps in this order; each sees rows that those before it have changed."""
    return tuple([await preparer.agree() for preparer in preparers])
