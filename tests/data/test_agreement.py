"""Sites agree on features by what they tell of their columns; what differs is named at its site."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from eigenpact.data.agreement import MODES, Columns, SitePlan, agree_on_features, check_gaps
from eigenpact.data.features_report import FeaturesReport
from eigenpact.data.near_misses import near_misses
from eigenpact.data.take_columns import take_columns
from eigenpact.errors import InputError, InputTypeError
from eigenpact.numerics.sources import ArraySource


def columns(**sites):
    return {name: Columns(len(names), tuple(names)) for name, names in sites.items()}


@pytest.mark.parametrize("mode", MODES)
def test_the_same_names_in_another_order_give_a_permutation(mode):
    agreed = agree_on_features(columns(A="xyz", B="zxy", C="xyz"), mode)
    assert agreed.features == ("x", "y", "z")
    assert agreed.plans["A"].columns is None
    assert agreed.plans["C"].columns is None
    assert ["zxy"[j] for j in agreed.plans["B"].columns] == ["x", "y", "z"]
    assert agreed.report.nothing_changed


def test_sites_without_names_are_only_counted():
    sites = {"A": Columns(2), "B": Columns(2, ("x", "y")), "C": Columns(2, ("y", "x"))}
    agreed = agree_on_features(sites)
    assert agreed.plans["A"].columns is None
    assert agreed.plans["B"].columns is None
    assert_array_equal(agreed.plans["C"].columns, [1, 0])
    assert agree_on_features({"A": Columns(2), "B": Columns(2)}).features is None
    for mode in MODES:
        with pytest.raises(InputError, match="'B' has 3 features, site 'A' has 2"):
            agree_on_features({"A": Columns(2), "B": Columns(3)}, mode)
    with pytest.raises(InputError, match="matches columns by name: give the tables names"):
        agree_on_features({"A": Columns(2, ("x", "y")), "B": Columns(3)}, "union")


def test_strict_names_what_differs_at_every_site_and_what_looks_alike():
    sites = columns(A=["age", "trestbps"], B=["age", "trest_bps"], C=["age"])
    with pytest.raises(InputError) as caught:
        agree_on_features(sites)
    told = str(caught.value)
    assert "compared with 'A', 'B' lacks ['trestbps'] and has in addition ['trest_bps']; 'C' lacks ['trestbps']" in told
    assert "is 'trest_bps' of 'B' what others call 'trestbps'?" in told
    assert "--features intersection" in told


def test_at_most_five_names_are_listed():
    many = [f"f{i}" for i in range(9)]
    with pytest.raises(InputError, match=r"'f1', 'f2', 'f3', 'f4', 'f5'\] and 3 more") as caught:
        agree_on_features(columns(A=many, B=["f0"]))
    assert "'f6'" not in str(caught.value)


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({}, "no sites"),
        ({"A": Columns(2, ("x", "x"))}, r"site 'A' has repeated feature names \['x'\]"),
        ({"A": Columns(2, ("x",))}, "2 features but 1 feature names"),
    ],
)
def test_bad_feature_lists_are_named(sites, message):
    with pytest.raises(InputError, match=message):
        agree_on_features(sites)


def test_a_mode_that_is_none_is_refused():
    with pytest.raises(InputError, match="features='outer' must be 'strict', 'intersection' or 'union'"):
        agree_on_features(columns(A="x"), "outer")


def test_sites_with_nothing_in_common_are_refused():
    with pytest.raises(InputError, match="no feature is at all sites"):
        agree_on_features(columns(A="xy", B="zw"), "intersection")


names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from("ABCD"), names, min_size=1), st.randoms(use_true_random=False))
def test_intersection_and_union_are_those_of_sets_whatever_the_order_of_sites(owned, random):
    shuffled = list(owned)
    random.shuffle(shuffled)
    common, every = set.intersection(*map(set, owned.values())), set.union(*map(set, owned.values()))
    for order in (list(owned), shuffled):
        sites = columns(**{name: owned[name] for name in order})
        union = agree_on_features(sites, "union")
        assert set(union.features) == every
        for name, own in owned.items():
            where = union.plans[name].columns
            found = range(len(own)) if where is None else where
            assert [own[j] if j >= 0 else None for j in found] == [f if f in own else None for f in union.features]
            assert set(union.report.sites[name].lacking) == every - set(own)
            assert union.report.sites[name].dropped == ()
        if common:
            both = agree_on_features(sites, "intersection")
            assert set(both.features) == common
            assert all(set(both.report.sites[name].dropped) == set(own) - common for name, own in owned.items())
            assert all(both.plans[name].lacking.size == 0 for name in owned)


def test_a_report_survives_a_manifest_and_tells_every_site():
    report = agree_on_features(columns(A="xyz", B="xz"), "intersection").report
    assert FeaturesReport.from_dict(report.to_dict()) == report
    assert list(report.lines()) == ["features: intersection, 2 in use", "  A: not used: y", "  B: lacks y"]


def test_a_union_with_gaps_asks_for_them_to_be_filled_in():
    union = agree_on_features(columns(A="xyz", B="xz"), "union")
    check_gaps(union, filled=True)
    with pytest.raises(InputError, match=r"'B' lacks 1 \(y\).*missing='mean'"):
        check_gaps(union, filled=False)
    check_gaps(agree_on_features(columns(A="xyz", B="xz"), "intersection"), filled=False)


def test_columns_are_taken_from_every_kind_of_rows():
    X, plan = np.arange(12.0).reshape(4, 3), SitePlan(np.array([2, 0]))
    wanted = X[:, [2, 0]]
    assert_array_equal(take_columns(X, plan), wanted)
    assert_array_equal(take_columns(sparse.csr_array(X), plan).toarray(), wanted)
    lazy = take_columns(ArraySource(X), plan)
    assert lazy.shape == (4, 2)
    assert_array_equal(lazy[1:3], wanted[1:3])
    union = SitePlan(np.array([0, -1, 1]))
    assert_array_equal(take_columns(X, union), np.c_[X[:, 0], np.full(4, np.nan), X[:, 1]])
    assert_array_equal(take_columns(ArraySource(X), union)[:2], take_columns(X, union)[:2])
    with pytest.raises(InputTypeError, match="sparse rows, which they would fill"):
        take_columns(sparse.csr_array(X), union)
    assert take_columns(X, SitePlan()) is X
    assert take_columns(X, plan).flags.c_contiguous  # else products of the same rows round otherwise


@pytest.mark.parametrize(
    ("wanted", "own", "found"),
    [
        ("trestbps", "trest_bps", True),
        ("chol", "Chol", True),
        ("weight", "weight (kg)", True),
        ("blood pressure", "bloodpressure_mmHg", True),
        ("thalach", "thalac", True),
        ("x1", "x2", False),
        ("gene12", "gene13", False),
        ("age", "cage", False),
        ("oldpeak", "slope", False),
    ],
)
def test_names_that_look_alike_are_suggested_and_others_are_not(wanted, own, found):
    assert near_misses([wanted], [own]) == ([(own, wanted)] if found else [])


def test_a_name_is_suggested_once():
    assert near_misses(["chol"], ["CHOL", "chol_mgdl"]) == [("CHOL", "chol")]
