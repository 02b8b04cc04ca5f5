"""Rows as local functions see them: without features that were dropped, and after the steps that were agreed on in this epoch.

A local function that agrees on a step (``numerics/preparation.py``) keeps its arrays under :func:`kept_as` of its kind.  From
then on the site's server gives local functions rows that this step has changed, too.  A kind can be agreed on once in an epoch
(``once=True``), and only where a site's policy lists the function: numbers that a coordinator chose meet single entries here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..numerics.columns import with_zeros
from ..numerics.on_device import device_of
from ..numerics.preparation import Step, prepared
from .rare import DROPPED

PREFIX = "prepared by "


def kept_as(kind: str) -> str:
    """The name under which a site keeps the arrays of a step of this kind."""
    return f"{PREFIX}{kind}"


def steps_of(kept: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps that a site keeps, in the order in which they were agreed on."""
    named = ((name.removeprefix(PREFIX), arrays) for name, arrays in kept.items() if name.startswith(PREFIX))
    return tuple(Step(kind, arrays) for kind, arrays in named if arrays is not None)  # None where one failed, and must not tell


class SeenRows:
    """A site's rows X as local functions see them, and the ``device`` that multiplies X itself, empty for none."""

    def __init__(self, X: Any) -> None:
        self._X, self.device = X, device_of(X)
        self._made_by: tuple[Any, ...] = ()
        self._made: Any = None

    def given(self, kept: Mapping[str, Any]) -> Any:
        """With zeros in the columns that were dropped, and prepared, by what the site keeps."""
        dropped = kept.get(DROPPED)
        made_by = (dropped, *[kept[name] for name in kept if name.startswith(PREFIX)])
        if not any(part is not None for part in made_by):
            self._made_by, self._made = (), None
            return self._X
        if self._made is None or len(made_by) != len(self._made_by) or not all(map(_same, made_by, self._made_by)):
            X = self._X if dropped is None else with_zeros(self._X, np.asarray(dropped))
            self._made_by, self._made = made_by, prepared(X, steps_of(kept))
        return self._made


def _same(a: Any, b: Any) -> bool:
    """Whether what is kept is what it was; arrays of a step are told apart by being others."""
    return a is b or (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b))
