"""Columns in another unit are noticed at their site; sites that merely differ are not."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.numerics.units import KNOWN, quartiles, units_in_doubt


def sites(seed=0, n=200):
    rng = np.random.default_rng(seed)
    centre, spread = np.array([200.0, 75.0, 37.0, 130.0]), np.array([40.0, 12.0, 0.6, 15.0])
    return {name: rng.normal(size=(n, 4)) * spread + centre for name in "ABCD"}


def doubts(tables):
    return [(doubt.site, doubt.column) for doubt in units_in_doubt({name: quartiles(X) for name, X in tables.items()})]


@pytest.mark.parametrize("factor", [10.0, 0.1, 100.0, 1e-3, *(f.value for f in KNOWN), *(1 / f.value for f in KNOWN)])
def test_a_known_factor_is_noticed_at_its_site_alone(factor):
    tables = sites()
    tables["C"][:, 0] *= factor
    found = units_in_doubt({name: quartiles(X) for name, X in tables.items()})
    assert [(doubt.site, doubt.column) for doubt in found] == [("C", 0)]
    assert ("more" if factor > 1 else "less") in found[0].likely


def test_fahrenheit_is_noticed():
    tables = sites()
    tables["B"][:, 2] = tables["B"][:, 2] * 1.8 + 32
    found = units_in_doubt({name: quartiles(X) for name, X in tables.items()})
    assert [(d.site, d.column, d.likely) for d in found] == [("B", 2, "degrees Fahrenheit instead of Celsius?")]


def test_of_two_sites_the_second_is_named_and_of_one_nothing():
    tables = sites()
    tables["A"][:, 0] /= 38.67
    assert doubts({name: tables[name] for name in "AB"}) == [("B", 0)]
    assert doubts({"A": tables["A"]}) == []


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.8, 27.0, 500.0])
def test_other_differences_are_not_called_units(factor):
    tables = sites()
    tables["C"][:, 0] *= factor
    assert doubts(tables) == []


def test_zeros_constants_and_gaps_are_not_compared():
    tables = sites()
    tables["A"][:, 0], tables["B"][:, 1], tables["C"][:, 2] = 0.0, 7.5, np.nan
    tables["D"][:100, 3] = np.nan
    assert doubts(tables) == []


def test_what_is_told_names_site_column_and_unit():
    tables = sites()
    tables["C"][:, 0] /= 38.67
    (doubt,) = units_in_doubt({name: quartiles(X) for name, X in tables.items()})
    told = doubt.told(["chol", "weight", "temperature", "pressure"])
    assert told.startswith("site 'C': column 'chol' may be in another unit: its median is 5.")
    assert told.endswith("cholesterol in mmol/L instead of mg/dL?")
