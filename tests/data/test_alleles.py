"""Variants of several sites: swapped alleles and other strands give the same counts, to the bit; what is in doubt is dropped."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from eigenpact.data.agreement import Columns, agree_on_features
from eigenpact.data.alleles import SAME, match_variants, other_strand
from eigenpact.data.readers import Variants
from eigenpact.data.take_columns import take_columns
from eigenpact.errors import InputError
from eigenpact.numerics.sources import CountRows

PAIRS = [(a, b) for a in "ACGT" for b in "ACGT" if a != b]


def variants(pairs, ids=None, chromosome="1"):
    counted, other = zip(*pairs, strict=True)
    ids = ids or tuple(f"rs{j}" for j in range(len(pairs)))
    return Variants((chromosome,) * len(pairs), np.arange(100, 100 + len(pairs)), tuple(ids), counted, other)


def agree(mode="intersection", **sites):
    return agree_on_features({name: Columns(len(v.ids), v.ids, v) for name, v in sites.items()}, mode)


def flipped(pair):
    return other_strand(pair[0]), other_strand(pair[1])


clear = st.sampled_from([pair for pair in PAIRS if flipped(pair)[0] != pair[1]])


@settings(max_examples=50, deadline=None)
@given(st.lists(clear, min_size=2, max_size=12), st.data())
def test_any_swap_flip_and_order_of_one_site_gives_the_same_bytes(pairs, data):
    d = len(pairs)
    swap = np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d)))
    flip = data.draw(st.lists(st.booleans(), min_size=d, max_size=d))
    order = np.array(data.draw(st.permutations(range(d))))
    G = np.random.default_rng(d).integers(0, 4, size=(7, d)).astype(np.uint8)
    G[G == 3] = 255
    told = [pair[::-1] if s else pair for pair, s in zip(pairs, swap, strict=True)]
    told = [flipped(pair) if f else pair for pair, f in zip(told, flip, strict=True)]
    H = np.where(swap & (G != 255), 2 - G, G).astype(np.uint8)[:, order]
    there = variants(pairs)
    here = variants([told[j] for j in order], [there.ids[j] for j in order])
    for mode in ("strict", "intersection", "union"):
        agreed = agree(mode, A=there, B=here)
        back = take_columns(H, agreed.plans["B"])
        assert back.dtype == np.uint8
        assert_array_equal(back, G)
        assert_array_equal(take_columns(G, agreed.plans["A"]), G)
        assert agreed.report.sites["B"].counts.get("swapped", 0) == swap.sum()
        assert agreed.report.sites["B"].counts.get("flipped", 0) == sum(flip)
        lazy = take_columns(CountRows(H), agreed.plans["B"])
        assert_array_equal(lazy[:], CountRows(G)[:])


def test_sites_that_write_the_same_change_nothing():
    pairs = [("A", "G"), ("A", "T"), ("C", "G"), ("T", "C")]
    agreed = agree("strict", A=variants(pairs), B=variants(pairs))
    assert agreed.report.nothing_changed
    assert all(plan.columns is None and plan.swapped is None for plan in agreed.plans.values())


def test_ambiguous_variants_are_dropped_and_counted_where_a_swap_could_be_a_flip():
    there = variants([("A", "G"), ("A", "T"), ("C", "G")])
    written_otherwise = variants([("A", "G"), ("T", "A"), ("C", "G")])
    agreed = agree(A=there, B=written_otherwise)
    assert agreed.features == ("rs0 1:100 A/G", "rs2 1:102 C/G")
    assert agreed.report.sites["B"].counts == {"ambiguous": 1}
    assert agreed.report.sites["A"].dropped == ("rs1 1:101 A/T",)
    other_strand_elsewhere = variants([("T", "C"), ("A", "T"), ("C", "G")])
    agreed = agree(A=there, B=other_strand_elsewhere)
    assert agreed.features == ("rs0 1:100 A/G",)
    assert agreed.report.sites["B"].counts == {"flipped": 1, "ambiguous": 2}
    with pytest.raises(InputError, match=r"'B' cannot be compared at \(A/T or C/G\) 2.*intersection"):
        agree("strict", A=there, B=other_strand_elsewhere)


def test_other_alleles_are_dropped_and_counted():
    there, here = variants([("A", "G"), ("A", "C")]), variants([("A", "G"), ("A", "G")])
    agreed = agree(A=there, B=here)
    assert agreed.features == ("rs0 1:100 A/G",)
    assert agreed.report.sites["B"].counts == {"mismatched": 1}
    with pytest.raises(InputError, match="'B' has other alleles at 1"):
        agree("strict", A=there, B=here)


def test_variants_are_found_by_position_where_ids_differ_and_split_ones_by_their_alleles():
    there = Variants(("1", "1", "2"), np.array([5, 5, 9]), (".", ".", "rs9"), ("A", "A", "C"), ("G", "C", "T"))
    here = Variants(("chr2", "chr1", "chr1"), np.array([9, 5, 5]), ("x", ".", "."), ("C", "C", "A"), ("T", "A", "G"))
    found = match_variants(there, here)
    assert_array_equal(found.columns, [2, 1, 0])
    assert found.moved == 0
    moved = Variants(("1",), np.array([77]), ("rs9",), ("C",), ("T",))
    assert match_variants(there, moved).moved == 1


def test_a_union_takes_what_only_other_sites_have_and_bytes_say_missing():
    there, here = variants([("A", "G"), ("A", "C")]), variants([("C", "A"), ("C", "T")], ["rs1", "rs7"], "2")
    agreed = agree("union", A=there, B=here)
    assert agreed.features == ("rs0 1:100 A/G", "rs1 1:101 A/C", "rs7 2:101 C/T")
    assert agreed.report.sites["A"].lacking == ("rs7 2:101 C/T",)
    G = np.array([[0, 1], [2, 255]], dtype=np.uint8)
    assert_array_equal(take_columns(G, agreed.plans["A"]), [[0, 1, 255], [2, 255, 255]])
    assert_array_equal(take_columns(G, agreed.plans["B"]), [[255, 2, 1], [255, 0, 255]])


def test_an_allele_that_nobody_has_is_any():
    found = agree("strict", A=variants([("A", "G"), ("C", "T")]), B=variants([("0", "A"), ("0", "T")]))
    assert_array_equal(found.plans["B"].swapped, [True, False])


@pytest.mark.skipif("EIGENPACT_DATA" not in os.environ, reason="needs EIGENPACT_DATA")
def test_thousand_genomes_with_alleles_swapped_and_flipped_at_one_site_are_the_same_bytes():
    data = np.load(os.path.join(os.environ["EIGENPACT_DATA"], "kg_phase1_1092x14079.npz"))
    G = np.where(data["genotypes"] < 0, 255, data["genotypes"]).astype(np.uint8)
    pairs = list(zip(data["a1"].tolist(), data["a2"].tolist(), strict=True))
    at = np.array([flipped(pair)[0] != pair[1] for pair in pairs])
    there = variants(pairs, data["snp"].tolist())
    rng = np.random.default_rng(0)
    swap, flip = rng.random(len(pairs)) < 0.5, rng.random(len(pairs)) < 0.3
    told = [pair[::-1] if s else pair for pair, s in zip(pairs, swap, strict=True)]
    told = [flipped(pair) if f else pair for pair, f in zip(told, flip, strict=True)]
    H = np.where(swap & (G != 255), 2 - G, G).astype(np.uint8)
    agreed = agree(A=there, B=variants(told, data["snp"].tolist()))
    assert_array_equal(take_columns(H, agreed.plans["B"]), G[:, at])
    assert agreed.report.sites["B"].counts["ambiguous"] == (~at).sum()
    assert agreed.report.sites["B"].counts["swapped"] == (swap & at).sum()


def test_an_allele_that_nobody_carries_is_no_mismatch():
    """PLINK writes 0 for it; the same two alleles are the same, however little is known."""
    places = ("1", "1"), np.array([10, 20]), ("rs0", "rs1")
    found = match_variants(Variants(*places, ("0", "A"), ("G", "C")), Variants(*places, ("0", "A"), ("G", "C")))
    assert found.relation.tolist() == [SAME, SAME]


def test_a_table_without_alleles_beside_genotypes_is_refused():
    """One site counts the other allele, and a third has a plain table: nobody would have known."""
    places = ("1",), np.array([10]), ("rs0",)
    sites = {
        "a": Columns(1, ("rs0",), Variants(*places, ("A",), ("G",))),
        "b": Columns(1, ("rs0",), Variants(*places, ("G",), ("A",))),
        "c": Columns(1, ("rs0",)),
    }
    with pytest.raises(InputError, match="does not say which allele it counts"):
        agree_on_features(sites)
