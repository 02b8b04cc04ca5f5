"""Sites die, hang, come back; messages are lost, late, repeated, damaged: the answer is exact for its sites, or there is none."""

from __future__ import annotations

import threading
import time
from collections import Counter

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.engines import InProcess
from eigenpact.errors import TooFewSitesError
from eigenpact.runtime import Driver, Outcome, Progress, Site, Sum, local, mail
from eigenpact.runtime.steps import MAX_RETURNS
from tests.engines.faulty import FATES, LATENCY, ROUND_TIMEOUT, FaultyEngine, Schedule

SITES = 8
K = 3
MOST_TIME, MOST_MESSAGES = 50 * ROUND_TIMEOUT, 3000  # with the rounds that confirm an answer
"""For any schedule: seconds of the virtual clock, and messages to sites."""
SOLVERS = [
    ("krylov", None),
    (ep.solvers.Krylov(start="one-shot"), None),
    ("subspace", 1e-12),
    (ep.solvers.Subspace(start="one-shot"), 1e-12),
    ("gram", None),
    (ep.solvers.Krylov(max_blocks=3), None),
]


def problem(seed, n_sites=SITES, n_features=12):
    """Sites of 14 to 40 rows with means of their own and three strong directions."""
    rng = np.random.default_rng([seed, 1])
    mixing = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0] * np.r_[30.0, 14.0, 6.0, [0.5] * (n_features - 3)]
    return {
        f"site{i:03}": rng.normal(size=(int(rng.integers(14, 40)), n_features)) @ mixing.T + 0.3 * rng.normal(size=n_features)
        for i in range(n_sites)
    }


def fit(sites, engine, seed=0, solver="krylov", tol=None, **options):
    return ep.FederatedPCA(K, solver=solver, tol=tol, random_state=seed, engine=engine, **options).fit(sites)


def sine(pca, sites):
    """Of the largest angle between the fitted subspace and that of the stated sites' rows, pooled."""
    X = np.vstack([sites[name] for name in pca.sites_])
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:K].T
    return float(np.linalg.norm(pca.components_.T - V @ (V.T @ pca.components_.T), 2))


def events(pca):
    return [(m.epoch, m.sender, m.note) for m in pca.ledger_ if not m.function]


def bits(pca):
    return [a.tobytes() for a in (pca.components_, pca.explained_variance_, pca.mean_)]


def check_schedule(seed):
    """Run one schedule, check all it promises, and give the kinds of what happened."""
    sites = problem(seed)
    solver, tol = SOLVERS[seed % len(SOLVERS)]
    engine = FaultyEngine(seed, min_sites=[1, 3, 6, 7][seed // len(SOLVERS) % 4])
    kinds = {f"solver {seed % len(SOLVERS)}"}
    stopped = None
    try:
        pca = fit(sites, engine, seed, solver, tol)
    except TooFewSitesError as error:
        stopped = error
    if stopped is not None:
        Z = stopped.basis
        assert "min_sites is" in str(stopped) or "none of 8 sites answered" in str(stopped)
        assert Z is None or np.allclose(Z.T @ Z, np.eye(Z.shape[1]), atol=1e-10)
        kinds |= {"too few, without a basis" if Z is None else "too few, with a basis"}
    else:
        assert sine(pca, sites) <= 1e-8
        assert len(pca.sites_) >= engine.min_sites
        assert pca.n_samples_seen_ == sum(len(sites[name]) for name in pca.sites_)
        _check_events(pca)
        notes = [note for _, _, note in events(pca)]
        kinds |= {"all" if len(pca.sites_) == SITES else "fewer"} | ({"joined"} & set(notes))
        kinds |= {"returned for good"} if "joined" in notes and len(pca.sites_) == SITES else set()
        steps = len({(m.epoch, m.step) for m in pca.ledger_})
        epochs = 1 + max(m.epoch for m in pca.ledger_)
        assert epochs <= 1 + 2 * SITES * (1 + MAX_RETURNS)
        assert engine.post.time <= ROUND_TIMEOUT * (steps + 2 * epochs + 1)
    twice = {place: n for place, n in engine.post.executions.items() if n > 1}
    assert not twice
    assert engine.post.time <= MOST_TIME
    assert engine.post.sent <= MOST_MESSAGES
    return kinds | {what for what, n in engine.post.happened.items() if n}


def _check_events(pca):
    """Sites are lost and join in turns, with a reason, and those whose last event is a loss are not in the result."""
    by_site = {}
    for _, site, note in events(pca):
        by_site.setdefault(site, []).append(note)
    for site, notes in by_site.items():
        assert all(note.startswith("lost: ") for note in notes[::2])
        assert all(note == "joined" for note in notes[1::2])
        assert len(notes[1::2]) <= MAX_RETURNS
        assert (site in pca.sites_) == (len(notes) % 2 == 0)


@pytest.mark.parametrize("seed", range(30))
def test_a_schedule_ends_in_an_exact_answer_or_a_clear_stop(seed):
    check_schedule(seed)


@pytest.mark.faults
def test_a_thousand_schedules():
    seen = Counter()
    for seed in range(1000):
        try:
            seen.update(check_schedule(seed))
        except Exception as error:
            error.add_note(f"schedule {seed}")
            raise
    print(dict(seen))  # shown by pytest -s
    assert seen["all"] >= 100
    assert seen["fewer"] >= 100
    assert seen["joined"] >= 50
    assert seen["returned for good"] >= 10
    assert seen["too few, with a basis"] >= 10
    assert seen["too few, without a basis"] >= 10
    for what in (*FATES, "drop", "delay", "late", "repeat", "damage"):
        assert seen[what] >= 50, what


# -- one fault at a time ------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["krylov", "subspace", "gram"])
def test_without_faults_the_bits_are_those_of_the_plain_engine(solver):
    sites = problem(0)
    engine = FaultyEngine(schedule=Schedule())
    faultless, plain = fit(sites, engine, solver=solver), fit(sites, InProcess(), solver=solver)
    assert bits(faultless) == bits(plain)
    assert faultless.ledger_ == plain.ledger_


@pytest.mark.parametrize("solver", ["krylov", "subspace"])
def test_repeats_damage_and_reordering_alone_change_no_bit(solver):
    sites = problem(0)
    engine = FaultyEngine(3, Schedule(repeat=0.5, delay=0.05, damage=0.01))
    assert bits(fit(sites, engine, solver=solver)) == bits(fit(sites, InProcess(), solver=solver))
    assert min(engine.post.happened[what] for what in ("repeat", "delay", "damage")) >= 3
    assert set(engine.post.executions.values()) == {1}


@pytest.mark.parametrize("solver", ["krylov", "subspace", "gram"])
@pytest.mark.parametrize("message", [1, 2, 3, 4, 5, 9])
def test_a_site_that_hangs_for_good_costs_one_round_timeout(solver, message):
    sites = problem(1)
    engine = FaultyEngine(schedule=Schedule(fates={"site004": ("hangs for good", message, 0.0)}))
    pca = fit(sites, engine, solver=solver, tol=1e-12)
    if not engine.post.happened["hangs for good"]:
        assert solver == "gram" or (solver == "krylov" and message == 9)  # ended before
        return
    assert pca.sites_ == tuple(name for name in sites if name != "site004")
    assert sine(pca, sites) <= 1e-8
    messages = len({(m.epoch, m.step) for m in pca.ledger_}) + 3  # and greetings: at first and in both epochs
    assert ROUND_TIMEOUT <= engine.post.time <= ROUND_TIMEOUT + 2 * LATENCY * messages
    assert events(pca) == ([(0, "site004", "lost: no answer within 10 s")] if message > 1 else [])


def test_two_sites_that_hang_in_one_round_cost_one_round_timeout_together():
    sites = problem(1)
    fates = dict.fromkeys(("site000", "site006"), ("hangs for good", 6, 0.0))
    engine = FaultyEngine(schedule=Schedule(fates=fates))
    pca = fit(sites, engine)
    assert len(pca.sites_) == 6
    assert engine.post.time < 1.5 * ROUND_TIMEOUT


def test_a_site_that_hangs_for_a_while_is_back_in_the_end():
    sites = problem(2)
    engine = FaultyEngine(schedule=Schedule(fates={"site004": ("hangs and comes back", 6, ROUND_TIMEOUT + 1.0)}))
    pca = fit(sites, engine, solver="subspace", tol=1e-12)
    assert pca.sites_ == tuple(sites)
    assert sine(pca, sites) <= 1e-8
    assert [(site, note) for _, site, note in events(pca)] == [("site004", "lost: no answer within 10 s"), ("site004", "joined")]


@pytest.mark.parametrize(
    ("fate", "reason"),
    [("dies and is started again", "its process or connection ended"), ("is started again unnoticed", "out of step: site")],
)
def test_a_site_that_is_started_again_is_back_in_the_end(fate, reason):
    sites = problem(2)
    engine = FaultyEngine(schedule=Schedule(fates={"site004": (fate, 6, 0.5)}))
    pca = fit(sites, engine, solver="subspace", tol=1e-12)
    assert pca.sites_ == tuple(sites)
    assert sine(pca, sites) <= 1e-8
    (_, _, lost), (_, _, joined) = events(pca)
    assert lost.startswith(f"lost: {reason}")
    assert joined == "joined"
    assert engine.post.time < ROUND_TIMEOUT


# -- a killed coordinator -----------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the coordinator's process."""


def _until(engine, sites, record_number, then):
    """A callback that does ``then`` with the sites out of reach, when so many records were made."""
    count = [0]

    def callback(_record):
        count[0] += 1
        if count[0] == record_number:
            then(set(sites) - set(engine.connection.sites()))

    return callback


@pytest.mark.parametrize("seed", range(40))
def test_a_coordinator_killed_amid_faults_resumes_to_the_same_bits(seed, tmp_path):
    """The same faults up to a round, and none after it: once without a kill, once killed there and resumed with fresh sites."""
    sites = problem(seed)
    solver, tol = [("krylov", None), ("subspace", 1e-12), (ep.solvers.Krylov(start="one-shot"), None)][seed % 3]
    at = 2 + seed % 5

    calm = FaultyEngine(seed)
    calming = _until(calm, sites, at, lambda dead: calm.post.calm_down(dead))
    unkilled = fit(sites, calm, seed, solver, tol, callback=calming, journal=tmp_path / "unkilled")
    if len(unkilled.history_) < at:
        pytest.skip("the run ended before")

    engine, out_of_reach = FaultyEngine(seed), set()

    def kill(dead):
        out_of_reach.update(dead)
        raise Killed

    with pytest.raises(Killed):
        fit(sites, engine, seed, solver, tol, callback=_until(engine, sites, at, kill), journal=tmp_path / "killed")
    tail = FaultyEngine(schedule=Schedule(), dead=out_of_reach)
    resumed = fit(sites, tail, seed, solver, tol, journal=tmp_path / "killed")
    assert bits(resumed) == bits(unkilled)
    assert resumed.sites_ == unkilled.sites_
    assert resumed.n_rounds_ == unkilled.n_rounds_
    assert events(resumed) == events(unkilled)
    assert sine(resumed, sites) <= 1e-8

    never = set(sites) - {m.sender for m in resumed.ledger_}  # silent from the start, so strangers to the journal
    again = fit(sites, FaultyEngine(schedule=Schedule(), dead=never), seed, solver, tol, journal=tmp_path / "killed")
    assert bits(again) == bits(unkilled)
    assert again.sites_ == unkilled.sites_


# -- many sites ---------------------------------------------------------------------------------


def test_five_hundred_sites_with_a_bounded_number_of_replies_held():
    sites = problem(5, n_sites=500)
    engine = FaultyEngine(schedule=Schedule())
    pca = fit(sites, engine)
    assert len(pca.sites_) == 500
    assert engine.connection.most_held == mail.WINDOW
    assert sine(pca, sites) <= 1e-8
    assert bits(pca) == bits(fit(sites, InProcess()))
    assert bits(pca) == bits(fit(sites, InProcess(round_timeout=60.0)))


def test_five_hundred_sites_with_faults():
    sites = problem(5, n_sites=500)
    fates = {name: (FATES[i % len(FATES)], 2 + i % 9, 3.0) for i, name in enumerate(sorted(sites)[::40])}
    engine = FaultyEngine(1, Schedule(repeat=0.01, damage=0.0005, fates=fates), min_sites=400)
    pca = fit(sites, engine)
    assert 480 <= len(pca.sites_) < 500
    assert sine(pca, sites) <= 1e-8
    assert engine.connection.most_held <= mail.WINDOW + 10  # and those asked for once more
    assert set(engine.post.executions.values()) == {1}


# -- real threads and clocks --------------------------------------------------------------------

awake = threading.Event()
ROUNDS = 12


@local(takes={"t": ""}, sends={"n": ""})
def sleeps_at_b(site: Site, t):
    """Number of rows; at B the third call does not return until it is woken."""
    if site.name == "B" and t == 2:
        awake.wait(30.0)
    return float(site.X.shape[0])


async def counting(start, _state):
    """Counts rows in every round, slowly once it has begun anew."""
    n = []
    for t in range(ROUNDS):
        n.append(float(await Sum(sleeps_at_b, np.float64(t if start is None else t + ROUNDS))))
        await Progress(basis=np.eye(3, 1))
    return n


def timed(callback):
    """Run with a real timeout; give result, driver and seconds."""
    sites = {name: np.zeros((n, 3)) for name, n in (("A", 1), ("B", 10), ("C", 100))}
    drivers = []

    def job(connection):
        drivers.append(Driver(connection, callback=callback))
        return Outcome({}, {"n": drivers[0].run(counting)})

    begin = time.monotonic()
    facts = InProcess(round_timeout=0.5).execute(sites, job).facts
    return facts["n"], drivers[0], time.monotonic() - begin


@pytest.mark.faults
def test_a_thread_that_sleeps_for_good_costs_one_round_timeout():
    awake.clear()
    try:
        n, driver, seconds = timed(None)
    finally:
        awake.set()
    assert driver.roster == ("A", "C")
    assert n == [101.0] * ROUNDS
    assert [(m.sender, m.note) for m in driver.ledger if not m.function] == [("B", "lost: no answer within 0.5 s")]
    assert 0.5 <= seconds < 0.5 * ROUNDS / 2


@pytest.mark.faults
def test_a_thread_that_wakes_up_is_taken_back():
    awake.clear()

    def callback(record):
        if record.sites == 2:
            awake.set()
            time.sleep(0.05)

    n, driver, _ = timed(callback)
    assert driver.roster == ("A", "B", "C")
    assert n == [111.0] * ROUNDS
    assert [m.note for m in driver.ledger if not m.function] == ["lost: no answer within 0.5 s", "joined"]
