"""Secured runs that lose sites, or whose coordinator or sites are killed and resume: exact, or stopped, and no pad twice."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eigenpact as ep
from eigenpact.errors import SiteError, TooFewSitesError
from tests.engines.secured import FATES, ONLY_COORDINATOR, Killed, KillingEngine, is_among, taped

K = 2
SOLVERS = ("gram", "krylov")


def problem(n_sites, seed=0, d=6):
    rng = np.random.default_rng(seed)
    sizes = np.r_[9.0, 5.0, 2.0, [0.5] * (d - 3)]
    return {f"site{i:02}": rng.normal(size=(int(rng.integers(8, 15)), d)) * sizes + rng.normal(size=d) for i in range(n_sites)}


SIXTEEN, FOUR = problem(16), problem(4, seed=1)


def fit(sites, engine, solver="gram", secure=True, **options):
    return ep.FederatedPCA(K, solver=solver, random_state=0, engine=engine, secure=secure, **options).fit(sites)


def bits(pca):
    return [a.tobytes() for a in (pca.components_, pca.explained_variance_, pca.mean_)]


def deaths(seed, sites, first=1, last=8):
    """Five of the sites, each with a message from which on it is dead: half the time the same for all."""
    rng = random.Random(f"deaths {seed}")
    at = rng.randint(first, last)
    chosen = rng.sample(sorted(sites), 5)
    return {name: at if seed % 2 else rng.randint(first, last) for name in chosen}


class DyingEngine(KillingEngine):
    """As above; sites die at the message to them that ``deaths`` names."""

    def __init__(self, deaths):
        super().__init__()
        self.deaths, self.asked = deaths, defaultdict(int)

    def send(self, site, data):
        self.asked[site] += 1
        if self.asked[site] >= self.deaths.get(site, math.inf):
            self.dead.add(site)
        super().send(site, data)


def rounds_of(tape):
    """By transcript, the masked replies that sites made."""
    rounds = defaultdict(list)
    for reply in tape.replies:
        rounds[reply[1]].append(reply)
    return rounds


def check_nothing_is_computable(tape, engine):
    """In rounds that broke, every reply that arrived has a pad that no other has which arrived; and partial sums are noise."""
    broken = 0
    for chain, replies in rounds_of(tape).items():
        came = [reply for reply in replies if is_among(reply[4], engine.arrived)]
        assert len({reply[0] for reply in came}) == len(came)
        if not came or len(came) == 1 + len(came[0][2]):  # a pad for each of the others
            continue
        broken += 1
        for reply in came:
            elsewhere = {key for other in came if other is not reply for key in other[2]}
            assert set(reply[2]) - elsewhere, f"{reply[0]} of round {chain.hex()[:6]} shares all its pads with others that came"
        if any(part.shape[-1:] == (12,) for reply in came for part in reply[4]):
            continue  # wide numbers have carries; their pads are looked at above
        for one, true in zip(zip(*(r[4] for r in came), strict=True), zip(*(r[3] for r in came), strict=True), strict=True):
            for some in ([*range(len(came))], [0], [*range(0, len(came), 2)]):
                assert not np.any(sum(one[i] for i in some) == sum(true[i] for i in some))
    return broken


@pytest.mark.parametrize("seed", range(10))
def test_any_five_of_sixteen_die_and_the_run_stops_with_nothing_to_compute(seed):
    engine = DyingEngine(deaths(seed, SIXTEEN, first=2))
    with (
        taped() as tape,
        pytest.raises(TooFewSitesError, match=r"sums are secured, and going on without .* would show") as stopped,
    ):
        fit(SIXTEEN, engine)
    assert any(name in str(stopped.value) for name in engine.deaths)
    broken = check_nothing_is_computable(tape, engine)
    assert broken == (min(engine.deaths.values()) in (5, 6, 8))  # hello, where do you stand, keys, roster, 5, 6, told, 8
    assert max(tape.draws().values(), default=1) == 1


@pytest.mark.parametrize("seed", range(6))
def test_with_consent_the_rest_is_exact_and_the_ledger_names_whose_part_can_be_computed(seed):
    engine = DyingEngine(deaths(seed, SIXTEEN, first=2))
    with taped() as tape:
        pca = fit(SIXTEEN, engine, secure=ep.Secured(min_apart=1))
    rest = {name: X for name, X in SIXTEEN.items() if name not in engine.deaths}
    assert pca.sites_ == tuple(rest)
    assert bits(pca) == bits(fit(rest, KillingEngine()))
    X = np.vstack(list(rest.values()))
    assert pca.n_samples_seen_ == len(X)
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:K].T
    assert np.linalg.norm(pca.components_.T - V @ (V.T @ pca.components_.T), 2) <= 1e-10
    named = {m.sender for m in pca.ledger_ if "can be computed, as a difference of sums" in m.note}
    assert named == set(engine.deaths)
    check_nothing_is_computable(tape, engine)  # in the rounds that broke


def test_fewer_than_was_agreed_on_stop_it():
    engine = DyingEngine(dict.fromkeys(sorted(SIXTEEN)[:5], 7))
    with pytest.raises(TooFewSitesError, match="sums are secured"):
        fit(SIXTEEN, engine, secure=ep.Secured(min_apart=6))


def test_what_is_left_of_masks_is_not_taken_for_a_sum():
    """A coordinator that adds up the replies of a broken round all the same."""
    from eigenpact.algorithms.setup import count_and_sum
    from eigenpact.runtime.secure_sum import combine, forms_of

    engine = DyingEngine(dict.fromkeys(sorted(SIXTEEN)[:5], 5))
    with taped() as tape, pytest.raises(TooFewSitesError):
        fit(SIXTEEN, engine)
    came = [reply[4] for reply in tape.replies if is_among(reply[4], engine.arrived)]
    assert len(came) == 11
    with pytest.raises(SiteError, match="masks did not cancel"):
        combine(count_and_sum, forms_of(count_and_sum, 0.0, 16), came)


# -- killed and resumed ---------------------------------------------------------------------------


def through(kills, solver, path):
    """Fit, and resume whenever the run stops, until it ends; the estimator, the tape, and how often it was resumed."""
    engine, stops = KillingEngine(kills), 0
    with taped() as tape:
        while True:
            try:
                pca = fit(FOUR, engine, solver, journal=path)
                return pca, tape, stops
            except (Killed, TooFewSitesError):
                stops += 1
                assert stops <= len(kills)
                engine.bring_back()


def check_pads(tape):
    """No pad is drawn twice, unless for the identical reply; none is shared by more than two sites."""
    sent, holders = {}, defaultdict(set)
    for who, key, chain, reply in tape.draws():
        assert sent.setdefault((who, key, chain), reply) == reply, f"{who} sent two things under one pad"
        holders[key, chain].add(who)
    assert max(map(len, holders.values())) == 2


@cache
def uninterrupted(solver):
    return bits(fit(FOUR, KillingEngine(), solver))


def check_schedule(kills, solver, folder):
    path = folder / "run.journal"
    path.unlink(missing_ok=True)
    pca, tape, stops = through(kills, solver, path)
    assert bits(pca) == uninterrupted(solver)
    assert pca.sites_ == tuple(FOUR)
    check_pads(tape)
    return stops


@pytest.mark.parametrize("solver", SOLVERS)
def test_killed_at_one_message_after_the_other_and_resumed_the_bits_are_the_same(solver, tmp_path):
    """The coordinator, or the site that a message is for."""
    engine = KillingEngine()
    fit(FOUR, engine, solver, journal=tmp_path / "whole.journal")
    whole, stopped = engine.messages, 0
    for number in range(9, whole + 1, 2 if solver == "gram" else 9):
        for who, how in ((ONLY_COORDINATOR, ""), ("the site", FATES[number // 4 % 4])):
            stopped += check_schedule({number: (who, how)}, solver, tmp_path)
    assert stopped > 5


schedules = st.dictionaries(
    st.integers(9, 120),
    st.one_of(st.just((ONLY_COORDINATOR, "")), st.tuples(st.just("the site"), st.sampled_from(FATES))),
    min_size=1,
    max_size=6,
)
"""From the ninth message on, when all sites are known: before that, who is missing is left out."""


FORGOTTEN = {9: (ONLY_COORDINATOR, ""), 42: (ONLY_COORDINATOR, ""), 67: ("the site", "before it answers")}
"""After these, one sum of set-up was sent again and the next was not: the coordinator must note both all the same."""


@example(kills=FORGOTTEN, solver="gram")
@settings(max_examples=20, deadline=None)
@given(kills=schedules, solver=st.sampled_from(SOLVERS))
def test_no_pad_is_used_twice_whatever_the_schedule(kills, solver, tmp_path_factory):
    check_schedule(kills, solver, tmp_path_factory.mktemp("schedule"))


@pytest.mark.paper
@settings(max_examples=3000, deadline=None)
@given(kills=schedules, solver=st.sampled_from(SOLVERS))
def test_no_pad_is_used_twice_in_thousands_of_schedules(kills, solver, tmp_path_factory):
    check_schedule(kills, solver, tmp_path_factory.mktemp("schedule"))
