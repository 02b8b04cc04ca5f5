"""Preparers of a model that comes from a file: it tells what they were, not how to make them again."""

from __future__ import annotations

from dataclasses import dataclass

from ..algorithms.method import Part
from ..errors import InputError
from ..numerics.preparation import Step


@dataclass(frozen=True)
class Remembered:
    """In the place of a preparer: new rows are prepared by the saved steps, but a new fit must be told how to agree on them.

    >>> Remembered("LogNormalize()")
    LogNormalize()
    >>> Remembered("LogNormalize()").part
    Traceback (most recent call last):
    eigenpact.errors.InputError: this model comes from a file, which does not hold how sites agree on LogNormalize()...
    """

    text: str

    def __repr__(self) -> str:
        return self.text

    @property
    def part(self) -> Part:
        """Nothing can be planned."""
        raise self._error()

    async def agree(self) -> Step:
        """Nothing can be agreed on."""
        raise self._error()

    def _error(self) -> InputError:
        return InputError(
            f"this model comes from a file, which does not hold how sites agree on {self.text}; "
            "transform works, and to fit again give prepare= anew"
        )
