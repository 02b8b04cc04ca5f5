"""The little language in which local functions declare shapes: ``"d k"``, ``"d <=k"``, ``"d*(d+1)//2"``, ``""`` for a scalar.

A shape is a list of axes separated by blanks.  An axis is a whole number, a name, an arithmetic expression of names without
blanks, or ``<=`` before one of these.  A name that has no value yet takes the length it meets; ``d`` is always the number of
features and is known from the start.  ``"..."`` stands for any shape.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import WireError

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_ALLOWED = (ast.Name, ast.Load, ast.BinOp, *_OPERATIONS)


@dataclass(frozen=True)
class Axis:
    """One axis of a declared shape."""

    text: str
    at_most: bool
    expression: ast.expr

    def check(self, length: int, sizes: dict[str, int]) -> bool:
        """Whether an axis of this length fits; binds a name met for the first time."""
        node = self.expression
        if isinstance(node, ast.Name) and node.id not in sizes and not self.at_most:
            sizes[node.id] = length
            return True
        try:
            value = _evaluate(node, sizes)
        except ZeroDivisionError as error:
            raise WireError(f"axis {self.text!r} of a declared shape divides by zero with {sizes}") from error
        return length <= value if self.at_most else length == value


@dataclass(frozen=True)
class Shape:
    """A declared shape, ready to be checked against arrays."""

    text: str
    axes: tuple[Axis, ...]

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read a shape, e.g. ``Shape.parse("d <=k")``.

        >>> sizes = {"d": 5}
        >>> Shape.parse("d k").fits((5, 2), sizes), sizes["k"]
        (True, 2)
        >>> Shape.parse("d <=k").fits((5, 1), sizes), Shape.parse("d*(d+1)//2").fits((14,), sizes)
        (True, False)
        """
        axes = []
        for token in text.split() if text != "..." else ():
            bare = token.removeprefix("<=")
            try:
                expression = ast.parse(bare, mode="eval").body
            except (SyntaxError, ValueError) as error:
                raise WireError(f"cannot read axis {token!r} of shape {text!r}; write e.g. 'd k' or 'd <=k'") from error
            _check_allowed(expression)
            axes.append(Axis(token, bare != token, expression))
        return cls(text, tuple(axes))

    @property
    def names(self) -> frozenset[str]:
        """Names of sizes that stand in it.

        >>> sorted(Shape.parse("d <=k n*m").names)
        ['d', 'k', 'm', 'n']
        """
        nodes = (node for axis in self.axes for node in ast.walk(axis.expression))
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name))

    def fits(self, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
        """Whether an array of this shape fits the declaration, given (and extending) the known sizes."""
        if self.text == "...":
            return True
        if len(shape) != len(self.axes):
            return False
        for axis, length in zip(self.axes, shape, strict=True):  # noqa: SIM110 - every message passes here; all() takes twice as long
            if not axis.check(length, sizes):
                return False
        return True

    def lengths(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The one shape that fits, by the known sizes; a WireError where several would.

        >>> Shape.parse("d k+1").lengths({"d": 5, "k": 2})
        (5, 3)
        """
        if self.text == "..." or any(axis.at_most for axis in self.axes):
            raise WireError(f"arrays of several shapes fit the declared ({self.text})")
        return tuple(_evaluate(axis.expression, sizes) for axis in self.axes)


def _check_allowed(expression: ast.expr) -> None:
    for node in ast.walk(expression):
        whole = isinstance(node, ast.Constant) and type(node.value) is int
        if not whole and not isinstance(node, _ALLOWED):
            raise WireError(f"{ast.unparse(expression)!r} is not allowed in a shape; use names, whole numbers, + - * //")


def _evaluate(node: ast.expr, sizes: dict[str, int]) -> int:
    if isinstance(node, ast.Name):
        if node.id not in sizes:
            raise WireError(f"size {node.id!r} of a declared shape is not known; declare it in `takes` first")
        return sizes[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_evaluate(node.left, sizes), _evaluate(node.right, sizes))
    assert isinstance(node, ast.Constant)
    return int(node.value)  # type: ignore[arg-type]  # _check_allowed has seen that it is a whole number


def columns_of(arrays: tuple[Any, ...], d: int) -> int:
    """How many columns of d numbers a reply amounts to; a triangle of d (d + 1) / 2 numbers is a matrix of d columns.

    >>> import numpy as np
    >>> columns_of((np.zeros((3, 2)), np.zeros(1)), 3), columns_of((np.zeros(6),), 3)
    (3, 3)
    """
    triangle = d * (d + 1) // 2
    return sum(d if array.shape == (triangle,) else -(-array.size // max(1, d)) for array in arrays)
