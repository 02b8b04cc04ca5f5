"""The language of declared shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenpact.errors import WireError
from eigenpact.runtime.shapes import Shape

SIZES = {"d": 7, "k": 3, "m": 0}

expressions = st.recursive(
    st.sampled_from(sorted(SIZES)) | st.integers(0, 20).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//"]), inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})"),
    max_leaves=6,
)


def value_of(expression: str) -> int | None:
    """What Python makes of it; None where it divides by zero."""
    try:
        return int(eval(expression, {"__builtins__": {}}, dict(SIZES)))
    except ZeroDivisionError:
        return None


@given(expressions, st.integers(-2, 3))
def test_an_axis_is_an_expression_of_known_sizes(expression, off):
    value = value_of(expression)
    if value is None:
        with pytest.raises(WireError, match="divides by zero"):
            Shape.parse(expression).fits((1,), dict(SIZES))
        return
    length = value + off
    assert Shape.parse(expression).fits((length,), dict(SIZES)) == (off == 0)
    assert Shape.parse("<=" + expression).fits((length,), dict(SIZES)) == (off <= 0)


@given(st.lists(st.sampled_from(["d", "a", "b", "2"]), max_size=4), st.lists(st.integers(0, 9), max_size=4))
def test_a_name_takes_the_first_length_it_meets_and_holds_it(axes, shape):
    sizes = {"d": 7}
    fits = Shape.parse(" ".join(axes)).fits(tuple(shape), sizes)
    met = {"d": 7, "2": 2}
    expected = len(axes) == len(shape) and all(met.setdefault(name, n) == n for name, n in zip(axes, shape, strict=True))
    assert fits == expected
    if expected:
        assert sizes == {name: n for name, n in met.items() if name != "2"}


@given(st.lists(st.integers(0, 5), max_size=5).map(tuple))
def test_dots_stand_for_any_shape_and_nothing_for_a_scalar(shape):
    sizes = {"d": 7}
    assert Shape.parse("...").fits(shape, sizes)
    assert sizes == {"d": 7}
    assert Shape.parse("").fits(shape, sizes) == (shape == ())


@pytest.mark.parametrize(
    "text", ["d/2", "d**2", "-1", "len(d)", "d.x", "True", "1.5", "'d'", "d ...", "<=", "d k<=", "d[0]", "a<b", "\0"]
)
def test_anything_else_is_refused_when_it_is_declared(text):
    with pytest.raises(WireError, match="shape"):
        Shape.parse(text)


@pytest.mark.parametrize("text", ["<=r", "r+1", "2*r"])
def test_a_size_that_is_nowhere_known_is_named(text):
    with pytest.raises(WireError, match="size 'r'"):
        Shape.parse(text).fits((1,), {"d": 7})
