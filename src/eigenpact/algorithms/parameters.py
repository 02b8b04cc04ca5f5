"""Parameters of solvers, refused in the same words by all of them: the value, and what it may be."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, get_args

import numpy as np

from ..errors import InputError


def check(name: str, value: Any, good: bool, allowed: str) -> None:
    """Refuse a parameter's value unless it is ``good``.

    >>> check("gap", 2.0, good=False, allowed="a share in (0, 1)")
    Traceback (most recent call last):
    eigenpact.errors.InputError: gap=2.0 must be a share in (0, 1)
    """
    if not good:
        raise InputError(f"{name}={value!r} must be {allowed}")


def check_choice(name: str, value: Any, literal: Any) -> None:
    """Refuse what is none of a ``Literal``'s texts."""
    check(name, value, value in get_args(literal), f"one of {', '.join(get_args(literal))}")


def check_whole(name: str, value: Any, least: int = 1, more: str = "") -> None:
    """Refuse what is no whole number of at least ``least``; ``more`` says why, or what else may be given."""
    whole = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    check(name, value, whole, f"a whole number >= {least}{more}")


def check_positive(name: str, value: Any, more: str = "") -> None:
    """Refuse what is no finite number > 0; ``more`` says what else may be given."""
    check(name, value, isinstance(value, Real) and 0 < float(value) < float("inf"), f"a number > 0{more}")


def check_n_components(wanted: int | float | None, n: int, d: int) -> int | float:
    """The number or share of components asked for, if n rows of d features can give them."""
    largest = min(n, d)
    if wanted is None:
        return largest
    if isinstance(wanted, float) and 0 < wanted < 1:
        return wanted
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool) and 1 <= wanted <= largest:
        return int(wanted)
    raise InputError(
        f"n_components={wanted!r} must be between 1 and min(n_samples, n_features)={largest} for {n} rows of {d} features, "
        "a share of the variance such as 0.95, or None for all"
    )
