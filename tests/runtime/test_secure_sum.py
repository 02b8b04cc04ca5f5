"""Secured sums: exact to the bit in any order, noise until the last reply is in, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenpact.errors import InputError, PolicyError, SiteError, WireError
from eigenpact.numerics.whole_numbers import exponent_for
from eigenpact.runtime.local import local
from eigenpact.runtime.secure_sum import Masked, Secured, check_encoded, combine, forms_of
from tests.runtime.pairs import agreed, ends, mixed, paired

Z = np.zeros((3, 2))


def parts_of(sites, trace, seed):
    """What each site has: a count, products bounded by its share of the trace, sums of any size."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-20, 20, size=(sites, 3))
    return [
        (np.int64(rng.integers(0, 2**40)), rng.uniform(-1, 1, size=(3, 2)) * trace / sites, rng.normal(size=3) * size)
        for size in sizes
    ]


def replies(masked, parts, step=2):
    for end in masked.values():
        end.note("sum", mixed, step, (Z,))
    arrays = (tuple(np.asarray(a) for a in part) for part in parts)
    return [end.encode(mixed, part) for end, part in zip(masked.values(), arrays, strict=True)]


def check_exact(sessions, trace, seed, order):
    parts = parts_of(len(sessions), trace, seed)
    sent = replies(ends(sessions, trace), parts)
    order.shuffle(sent)
    forms = forms_of(mixed, trace, len(sessions))
    assert [form.kind for form in forms.values()] == ["count", "fixed", "wide"]
    n, G, sums = combine(mixed, forms, sent)
    assert int(n) == sum(int(part[0]) for part in parts)
    scale = exponent_for(trace)
    whole = sum(np.rint(np.ldexp(part[1], scale)).astype(np.int64).astype(object) for part in parts)
    assert G.tobytes() == np.ldexp(whole.astype(np.float64), -scale).tobytes()
    assert sums.tobytes() == np.array([math.fsum(part[2][i] for part in parts) for i in range(3)]).tobytes()


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 64), st.floats(1e-6, 1e6), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_a_secured_sum_is_the_integer_sum_to_the_bit_in_any_order(sites, trace, seed, order):
    check_exact(paired(sites, seed), trace, seed, order)


@pytest.mark.parametrize("sites", [3, 16, 64])
def test_and_so_it_is_with_keys_that_were_agreed_on(sites):
    check_exact(agreed(sites), 12.5, sites, np.random.default_rng(sites))


def test_before_a_trace_is_agreed_on_all_but_counts_is_wide():
    assert [form.kind for form in forms_of(mixed, 0.0, 3).values()] == ["count", "wide", "wide"]


@pytest.mark.parametrize("missing", range(4))
def test_all_replies_but_one_are_noise(missing):
    """The total of some has no word in common with the sum of their parts, and about as many ones as zeros."""
    parts = parts_of(4, 1.0, seed=missing)
    plain = replies(ends(paired(1), 1.0), parts[:1])  # one site alone has nobody to share a pad with
    assert int(plain[0][0]) == int(parts[0][0])
    sent = replies(ends(paired(4), 1.0), parts)
    del sent[missing], parts[missing]
    forms = forms_of(mixed, 1.0, 4)
    with pytest.raises(SiteError, match="beyond its bound; masks did not cancel"):
        combine(mixed, forms, sent)
    words = np.concatenate([sum(a[i].reshape(-1) for a in sent) for i in range(3)])
    assert len(words) == 1 + 6 + 3 * 12
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / math.sqrt(64 * len(words))


def test_other_arguments_at_one_site_leave_noise():
    masked = ends(paired(3), 1.0)
    for name, end in masked.items():
        end.note("sum", mixed, 2, (Z + (name == "site01"),))
    sent = [
        end.encode(mixed, tuple(map(np.asarray, part))) for end, part in zip(masked.values(), parts_of(3, 1.0, 0), strict=True)
    ]
    with pytest.raises(SiteError, match="masks did not cancel"):
        combine(mixed, forms_of(mixed, 1.0, 3), sent)


def test_every_step_has_pads_of_its_own():
    masked, parts = ends(paired(3), 1.0), parts_of(3, 1.0, 0)
    first, second = replies(masked, parts, 2), replies(masked, parts, 3)
    for one, other in zip(first, second, strict=True):
        assert not any(np.any(a == b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("value", [2.5, np.nan, -np.inf])
def test_overflow_is_refused_at_the_site(value):
    end = ends(paired(3), 1.0)["site00"]
    end.note("sum", mixed, 2, (Z,))
    with pytest.raises(PolicyError, match="rule secure: 'G': a number is larger than the bound"):
        end.encode(mixed, (np.array(1), Z + value, Z[:, 0]))


@pytest.mark.parametrize(("value", "why"), [(1e100, "is beyond"), (np.inf, "not finite"), (1e-200, "would lose its digits")])
def test_numbers_without_a_place_are_refused_by_name(value, why):
    end = ends(paired(3), 1.0)["site00"]
    end.note("sum", mixed, 2, (Z,))
    with pytest.raises(PolicyError, match=f"rule secure: 'sums': a number .*{why}.*use other units"):
        end.encode(mixed, (np.array(1), Z, Z[:, 0] + value))


def test_a_float_for_a_count_is_refused():
    """It would be cut to a whole number without a word."""
    end = ends(paired(3), 1.0)["site00"]
    end.note("sum", mixed, 2, (Z,))
    with pytest.raises(WireError, match="'n' holds float64; in a secured sum it must hold whole numbers"):
        end.encode(mixed, (np.array(0.024), Z, Z[:, 0]))


@local(sends={"n": ""}, bound="count", name="tests:counted")
def counted(site):  # noqa: ARG001
    return np.int64(1)


def test_counts_that_leave_their_bound_are_not_taken_for_a_sum():
    """Sites that lie can let a sum wrap; what comes of it is not believed."""
    masked = {name: Masked(session) for name, session in paired(3).items()}
    for end in masked.values():
        end.note("sum", counted, 1, ())
    sent = [end.encode(counted, (np.array(2**53),)) for end in masked.values()]
    with pytest.raises(SiteError, match="'n' is beyond its bound"):
        combine(counted, forms_of(counted, 0.0, 3), sent)


@pytest.mark.parametrize("kind", ["gather", "at", "max", "chain", "exchange"])
def test_what_would_show_a_single_reply_is_refused(kind):
    end = ends(paired(3))["site00"]
    with pytest.raises(PolicyError, match=f"rule secure: '{kind}' would show this site's own reply"):
        end.note(kind, mixed, 1, (Z,))


def test_the_form_of_masked_replies_is_checked():
    forms, sizes = forms_of(mixed, 1.0, 3), {"d": 3, "k": 2}
    good = replies(ends(paired(3), 1.0), parts_of(3, 1.0, 0))[0]
    check_encoded(mixed, forms, good, dict(sizes))
    for bad, why in (
        ((*good[:2], good[2].astype(np.float64)), "words of 64 bits"),
        ((*good[:2], good[2][:, :5]), "has 12 words"),
        ((good[0], good[1][:2], good[2]), "declared is"),
        (good[:2], "array"),
    ):
        with pytest.raises(WireError, match=why):
            check_encoded(mixed, forms, bad, dict(sizes))


@pytest.mark.parametrize("min_apart", [-1, 1.0, True, "1"])
def test_min_apart_must_be_a_whole_number(min_apart):
    with pytest.raises(InputError, match="must be a whole number >= 0"):
        Secured(min_apart=min_apart)
