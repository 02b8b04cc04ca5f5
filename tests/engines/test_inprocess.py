"""All sites in this process: threads, order and BLAS change nothing, and nothing is left behind."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import eigenpact as ep
from eigenpact.engines import InProcess, inprocess
from eigenpact.engines.inprocess import InProcessConnection
from eigenpact.errors import InputError, SiteError, TooFewSitesError
from eigenpact.runtime import At, Connection, Driver, Gather, Local, Outcome, Request, Site, SiteServer, Sum, local
from tests.engines import conformance
from tests.engines.problems import problem_sites

ANSWER = ("components_", "explained_variance_", "mean_", "singular_values_", "noise_variance_")


@pytest.fixture(scope="module")
def sites():
    rng = np.random.default_rng(3)
    mix = rng.normal(size=(40, 40))
    return {f"s{i}": rng.normal(size=(50 + 13 * i, 40)) @ mix + i for i in range(7)}


@pytest.fixture
def always_threads(monkeypatch):
    monkeypatch.setattr(inprocess, "THREADS_PAY", -1.0)


def fitted(sites, solver, **options):
    return ep.FederatedPCA(5, solver=solver, random_state=0, engine=InProcess(**options)).fit(sites)


def bits(pca):
    return [np.asarray(getattr(pca, name)).tobytes() for name in ANSWER]


held = {"now": 0, "most": 0, "threads": set()}
guard = threading.Lock()


@local(sends={"x": "d"})
def counted(site: Site):
    """Count replies that were begun; the test counts them down when it consumes one."""
    with guard:
        held["now"] += 1
        held["most"] = max(held["most"], held["now"])
        held["threads"].add(threading.current_thread().name)
    return np.full(site.X.shape[1], float(site.X[0, 0]))


@local(sends={"x": ""})
def fails_at_s3(site: Site):
    """Breaks at one site."""
    if site.name == "s3":
        raise KeyError("no such thing")
    return 1.0


@local(sends={"threads": ""})
def blas_threads(_site: Site):
    """How many threads BLAS may use just now."""
    return np.int64(max(lib.num_threads for lib in ThreadpoolController().select(user_api="blas").lib_controllers))


@local(takes={"pause": ""}, sends={"elsewhere": ""})
def paused(_site: Site, pause):
    """Whether it ran in a thread of its own, after a pause."""
    time.sleep(float(pause))
    return float(threading.current_thread() is not threading.main_thread())


def test_a_function_that_was_slow_once_is_not_run_in_threads_for_ever():
    async def program(_start, _state):
        return [list((await Gather(paused, np.float64(pause))).values()) for pause in (0.01, 0.01, 0.0, 0.0)]

    def job(connection: Connection) -> Outcome:
        return Outcome({}, {"result": Driver(connection).run(program)})

    sites = {name: np.zeros((3, 2)) for name in "abc"}
    first, second, third, fourth = InProcess(threads=2).execute(sites, job).facts["result"]
    assert first == [0.0, 1.0, 1.0]  # alone while nothing is known, then in threads
    assert (second, third) == ([1.0] * 3, [1.0] * 3)
    assert fourth[0] == 0.0  # alone again, where it turned out to be fast


def test_sites_of_many_rows_do_not_wait_for_the_first_to_show_how_slow_a_function_is():
    sites = {name: np.full((400, 300), float(i)) for i, name in enumerate("abc")}
    assert (
        inprocess.READ_RATE * inprocess.THREADS_PAY / inprocess.MAY_TAKE < 400 * 300 < inprocess.READ_RATE * inprocess.THREADS_PAY
    )
    assert run(InProcess(threads=2), sites, Gather(paused, np.float64(0.05))) == dict.fromkeys("abc", 1.0)
    with pytest.raises(SiteError, match="s3"):
        run(InProcess(threads=2), {f"s{i}": sites["a"] for i in (3, 4, 5)}, Sum(fails_at_s3))
    values = run(InProcess(threads=2), sites, Gather(counted))
    assert [float(value[0]) for value in values.values()] == [0.0, 1.0, 2.0]


@local(sends={"slow": ""})
def slow(_site: Site):
    """Long enough for threads to pay."""
    time.sleep(2 * inprocess.THREADS_PAY)
    return float(threading.current_thread() is not threading.main_thread())


def run(engine, sites, collective):
    async def program(_start, _state):
        return await collective

    def job(connection: Connection) -> Outcome:
        result = Driver(connection).run(program)
        return Outcome({}, {"result": result})

    return engine.execute(sites, job).facts["result"]


@pytest.mark.usefixtures("always_threads")
@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace"])
def test_threads_give_the_bits_of_one_after_the_other(sites, solver):
    serial, threaded = fitted(sites, solver, threads=1), fitted(sites, solver, threads=3)
    assert bits(serial) == bits(threaded)
    assert serial.ledger_ == threaded.ledger_
    assert serial.n_rounds_ == threaded.n_rounds_


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace"])
def test_the_order_of_named_sites_does_not_matter(sites, solver):
    names = list(sites)
    whole = bits(fitted(sites, solver))
    for order in (names[::-1], [*names[3:], *names[:3]]):
        assert bits(fitted({name: sites[name] for name in order}, solver)) == whole


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_blas_threads_change_rounding_only(sites, solver):
    one, two = fitted(sites, solver, blas_threads=1), fitted(sites, solver, blas_threads=2)
    assert np.abs(one.components_ - two.components_).max() <= 1e-12
    assert np.abs(one.explained_variance_ / two.explained_variance_ - 1).max() <= 1e-12


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.usefixtures("always_threads")
def test_a_failing_site_and_function_are_named(sites, threads):
    with pytest.raises(SiteError, match="fails_at_s3 failed at site 's3': KeyError"):
        run(InProcess(threads=threads), sites, Sum(fails_at_s3))


@pytest.mark.usefixtures("always_threads")
@pytest.mark.parametrize("threads", [2, 3])
def test_at_most_two_replies_per_thread_are_held(threads):
    """The consumer is slow, so the threads run ahead as far as they may."""
    servers = {f"{i:02}": SiteServer(f"{i:02}", np.full((1, 4), float(i))) for i in range(20)}
    request = Request("run", 0, 1, "gather", counted.name, ())
    held.update(now=0, most=0, threads=set())
    values = []
    with InProcessConnection(servers, threads) as connection:
        for response in connection.call(request, dict.fromkeys(servers, 0)):
            time.sleep(0.01)
            values.append(response.arrays[0][0])
            with guard:
                held["now"] -= 1
    assert values == list(range(20))
    assert threads < held["most"] <= 2 * threads
    assert 1 <= len(held["threads"]) <= threads
    assert all(name.startswith("eigenpact-site") for name in held["threads"])


@local()
def brief(site: Site):
    """Notes who ran it, and in which thread."""
    with guard:
        ran.append((site.name, threading.current_thread().name))


ran: list[tuple[str, str]] = []


@pytest.mark.parametrize(("kind", "milliseconds", "at_a_time"), [("local", 0.5, 3), ("local", 0.1, 0), ("gather", 0.5, 0)])
def test_a_thread_takes_several_sites_at_a_time(kind, milliseconds, at_a_time):
    """Where one needs less than pays and nothing is replied: replies would be held, and what is very brief does not pay."""
    servers = {f"{i:02}": SiteServer(f"{i:02}", np.zeros((1, 4))) for i in range(24)}
    request, names = Request("run", 0, 1, kind, brief.name, ()), sorted(servers)
    with InProcessConnection(servers, 2) as connection:
        connection._seconds[brief.name] = dict.fromkeys(names, milliseconds / 1000)
        assert connection._at_a_time(request, names) == at_a_time
        if at_a_time:
            ran.clear()
            assert [response.site for response in connection.call(request, dict.fromkeys(names, 0))] == names
            assert sorted(name for name, _ in ran) == names
            assert all(thread.startswith("eigenpact-site") for _, thread in ran)


def test_nodes_in_threads_give_the_bits_of_one_after_the_other(monkeypatch):
    rows = np.random.default_rng(3).normal(size=(7, 30, 4)) * [5, 2, 1, 1]
    nodes = {f"s{i}": table for i, table in enumerate(rows)}
    monkeypatch.setattr(InProcessConnection, "_at_a_time", lambda self, _request, names: 2 * (self._threads > 1 < len(names)))
    fits = [
        ep.GraphKernelPCA(1, gamma=0.01, solver=solver, random_state=0, engine=InProcess(threads=threads)).fit(nodes)
        for solver in ("random-features", "projection-consensus")
        for threads in (1, 3)
    ]
    for serial, threaded in (fits[:2], fits[2:]):
        assert serial.ledger_ == threaded.ledger_
        for node, table in nodes.items():
            np.testing.assert_array_equal(serial.transform(table, site=node), threaded.transform(table, site=node))


def test_one_after_the_other_holds_one_reply():
    servers = {f"{i:02}": SiteServer(f"{i:02}", np.full((1, 4), float(i))) for i in range(20)}
    held.update(now=0, most=0, threads=set())
    for _ in InProcessConnection(servers, 1).call(Request("run", 0, 1, "gather", counted.name, ()), dict.fromkeys(servers, 0)):
        held["now"] -= 1
    assert held["most"] == 1
    assert held["threads"] == {threading.current_thread().name}


def test_threads_are_used_where_a_site_takes_long_enough(sites):
    async def program(_start, _state):
        return await Gather(slow), await Gather(slow)

    first, second = (
        InProcess(threads=2)
        .execute(sites, lambda connection: Outcome({}, {"both": Driver(connection).run(program)}))
        .facts["both"]
    )
    assert [float(value) for value in first.values()] == [0.0] + [1.0] * (len(sites) - 1)  # the first site tells
    assert {float(value) for value in second.values()} == {1.0}


@pytest.mark.usefixtures("always_threads")
def test_no_thread_outlives_the_run(sites):
    fitted(sites, "gram", threads=3)
    with pytest.raises(SiteError):
        run(InProcess(threads=3), sites, Sum(fails_at_s3))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("eigenpact-site")]


def test_blas_is_limited_during_the_run_and_restored_after_it(sites):
    one_site = {"s0": sites["s0"]}
    with threadpool_limits(limits=2, user_api="blas"):
        assert {int(n) for n in run(InProcess(), sites, Gather(blas_threads)).values()} == {1}
        assert blas_threads(None) == 2
        assert {int(n) for n in run(InProcess(), one_site, Gather(blas_threads)).values()} == {1}
        wide = {"s0": np.ones((2, 2000))}  # whose matrices at the coordinator are large: shared among threads of our own
        assert {int(n) for n in run(InProcess(), wide, Gather(blas_threads)).values()} == {1}
        assert {int(n) for n in run(InProcess(blas_threads=2), wide, Gather(blas_threads)).values()} == {2}
        assert blas_threads(None) == 2
        with pytest.raises(SiteError):
            run(InProcess(), sites, Sum(fails_at_s3))
        assert blas_threads(None) == 2


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace"])
def test_sites_spoken_to_by_message_give_the_same_bits_and_ledger(sites, solver):
    direct, by_message = fitted(sites, solver), fitted(sites, solver, round_timeout=60.0)
    assert bits(direct) == bits(by_message)
    assert direct.ledger_ == by_message.ledger_
    assert [(r.round, r.kkt) for r in direct.history_] == [(r.round, r.kkt) for r in by_message.history_]


def test_threads_of_sites_end_with_the_run(sites):
    fitted(sites, "gram", round_timeout=60.0)
    with pytest.raises(SiteError, match="fails_at_s3 failed at site 's3': KeyError"):
        run(InProcess(round_timeout=60.0), sites, At("s3", fails_at_s3))
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("eigenpact-s")]
    for thread in threads:
        thread.join(timeout=10.0)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_timeout_must_be_a_time(seconds):
    with pytest.raises(InputError, match="must be a number of seconds > 0, or None to wait"):
        InProcess(round_timeout=seconds)


def test_too_few_sites_to_begin_with(sites):
    with pytest.raises(TooFewSitesError, match=r"7 site\(s\) answer .* min_sites is 8"):
        fitted(sites, "gram", min_sites=8)


def test_engines_are_values_that_can_be_compared_and_cloned():
    assert InProcess(threads=2) == InProcess(threads=2) != InProcess(threads=3)
    assert hash(InProcess()) == hash(InProcess())


@pytest.mark.parametrize("name", ["threads", "blas_threads", "min_sites"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(InputError, match=f"{name}=0 must be at least 1"):
        InProcess(**{name: 0})


@pytest.mark.parametrize("engine", [InProcess(), InProcess(round_timeout=30)])
def test_what_sites_keep_of_an_answer_stays_in_their_process(engine: InProcess) -> None:
    """The outcome names it and holds it for the sites here; packed for others it only names it."""

    async def remembers(start: Any, state: Any) -> None:  # noqa: ARG001
        await Local(conformance.keep_scores, np.ones(20))

    def job(connection: Any) -> Outcome:
        Driver(connection).run(remembers)
        return Outcome({}, {}, results=("scores",))

    sites = problem_sites()
    outcome = engine.execute(sites, job)
    assert set(outcome.kept) == set(sites)
    for name, X in sites.items():
        assert list(outcome.kept[name]) == ["scores"]
        np.testing.assert_array_equal(outcome.kept[name]["scores"], X @ np.ones(20))
    elsewhere = Outcome.unpack(outcome.pack())
    assert elsewhere.results == ("scores",)
    assert elsewhere.kept == {}
