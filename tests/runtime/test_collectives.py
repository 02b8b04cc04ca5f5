"""Collectives, one by one, through the driver: what the program gets, what the ledger says, how many rounds it took."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.errors import InputError, ProgramError, SiteError, WireError
from eigenpact.runtime import (
    COORDINATOR,
    At,
    Chain,
    Driver,
    Exchange,
    Gather,
    Local,
    Max,
    Progress,
    Reply,
    Response,
    Site,
    Sum,
    local,
)

SITES = {"b": np.full((2, 3), 2.0), "a": np.full((1, 3), 1e16), "c": np.full((4, 3), 2.0)}


@local(takes={"w": "d"}, sends={"n": "", "sums": "d"})
def weighted(site: Site, w):
    """Number of rows, and the first row times w."""
    return np.int64(site.X.shape[0]), site.X[0] * w


@local(sends={"rows": "n d"})
def all_rows(site: Site):
    """The rows themselves: as many as there are."""
    return site.X


@local(sends={"n": "", "negative": ""})
def sizes(site: Site):
    """Number of rows, and its negative."""
    return np.int64(site.X.shape[0]), -np.int64(site.X.shape[0])


@local(takes={"state": "m"}, sends={"state": "m"})
def append_name(site: Site, state):
    """Shift the state by one and put the number of rows at its end."""
    return np.append(state[1:], float(site.X.shape[0]))


@local(takes={"a": "d"}, sends={"total": "d"}, reads=("total",), keeps=("total",))
def running_sum(site: Site, a):
    """Sum of all that was sent so far, kept at the site, times its number of rows."""
    total = site.kept.get("total", 0.0) + a
    return Reply(send=total * site.X.shape[0], keep={"total": total})


@local(takes={"a": "d"}, keeps=("told",))
def remember(_site: Site, a):
    """Keep what was told."""
    return Reply(keep={"told": a})


@local(sends={"told": "d"}, reads=("told",))
def recall(site: Site):
    """What was told."""
    return site.kept["told"]


@local(sends={"n": ""}, setup=True)
def setup_count(site: Site):
    """Number of rows, in a set-up round."""
    return np.int64(site.X.shape[0])


@local(takes={"a": "d"}, sends={"a": "d"})
def spoil(_site: Site, a):
    """Tries to change its argument."""
    a += 1
    return a


@local(sends={"m": "r"})
def uneven(site: Site):
    """One number at one site, several at others: an axis that no argument determines."""
    return np.ones(site.X.shape[0])


@local(sends={"a": ""})
def fails_at_c(site: Site):
    """Breaks at one of the sites."""
    return 1 / (site.name != "c")


@local(sends={"n": ""})
def big_endian(site: Site):
    """Numbers as some instruments write them."""
    return np.array(site.X.shape[0], dtype=">i8")


def run(connection, body, **options):
    """Run a body that takes no start, and give its result with the driver."""

    async def program(_start, _state):
        return await body()

    driver = Driver(connection, **options)
    return driver.run(program), driver


def rows(driver):
    return [(m.function, m.sender, m.receiver, m.shapes, m.bytes, m.note) for m in driver.ledger]


def test_sum_adds_in_sorted_order_of_names(connect):
    async def body():
        return await Sum(weighted, np.array([1.0, 1.0, 0.0]))

    (n, total), driver = run(connect(SITES), body)
    assert (n, n.dtype) == (7, "int64")
    assert total.tolist() == [1e16 + 2 + 2, 1e16 + 4, 0.0]  # ((a + b) + c), not what the order of the dict would give with ones
    assert (driver.rounds, driver.setup_rounds) == (1, 0)
    assert rows(driver) == [
        *[("weighted", COORDINATOR, name, ((3,),), 24, "") for name in "abc"],
        *[("weighted", name, COORDINATOR, ((), (3,)), 32, "") for name in "abc"],
    ]
    assert {m.round for m in driver.ledger} == {1}
    assert (driver.ledger.bytes_up, driver.ledger.bytes_down) == (96, 72)


def test_sum_rounds_as_the_sorted_order_does(connect):
    sites = {"z": np.full((1, 1), 1e16), "y": np.ones((1, 1)), "x": np.ones((1, 1))}

    async def body():
        return (await Sum(weighted, np.ones(1)))[1]

    assert run(connect(sites), body)[0].tolist() == [1.0000000000000002e16]
    renamed = {"a": sites["z"], "y": sites["y"], "x": sites["x"]}
    assert run(connect(renamed), body)[0].tolist() == [1e16]


def test_gather_gives_each_reply_by_name_in_sorted_order_whatever_its_shape(connect):
    async def body():
        return await Gather(all_rows), await Gather(sizes)

    (tables, counts), driver = run(connect(SITES), body)
    assert list(tables) == ["a", "b", "c"]
    for name, X in SITES.items():
        assert tables[name].tolist() == X.tolist()
    assert {name: tuple(int(x) for x in pair) for name, pair in counts.items()} == {"a": (1, -1), "b": (2, -2), "c": (4, -4)}
    assert driver.rounds == 2
    assert rows(driver)[:3] == [("all_rows", name, COORDINATOR, (SITES[name].shape,), SITES[name].nbytes, "") for name in "abc"]


def test_max_is_elementwise(connect):
    async def body():
        return await Max(sizes)

    (largest, least), driver = run(connect(SITES), body)
    assert (largest, least) == (4, -1)
    assert driver.rounds == 1
    assert len(driver.ledger) == 3


def test_at_the_coordinators_own_site_is_no_round_and_nothing_travels(connect):
    async def body():
        return await At("b", weighted, np.ones(3))

    (n, first), driver = run(connect(SITES), body, own="b")
    assert n == 2
    assert first.tolist() == [2.0] * 3
    assert driver.rounds == 0
    assert [row[-1] for row in rows(driver)] == ["own", "own"]
    assert (driver.ledger.bytes_up, driver.ledger.bytes_down) == (0, 0)


def test_at_another_site_is_a_round_with_that_site_alone(connect):
    async def body():
        return await At("c", weighted, np.ones(3))

    connection = connect(SITES)
    (n, _), driver = run(connection, body, own="b")
    assert n == 4
    assert driver.rounds == 1
    assert rows(driver) == [
        ("weighted", COORDINATOR, "c", ((3,),), 24, ""),
        ("weighted", "c", COORDINATOR, ((), (3,)), 32, ""),
    ]
    assert [targets for _, targets in connection.requests] == [("c",)]


def test_at_an_unknown_site_names_the_sites(connect):
    async def body():
        return await At("z", sizes)

    with pytest.raises(InputError, match="no site 'z' in this run; the sites are a, b, c"):
        run(connect(SITES), body)


def test_a_chain_hands_each_state_to_the_next_site(connect):
    async def body():
        return await Chain(append_name, np.zeros(4))

    state, driver = run(connect(SITES), body)
    assert state.tolist() == [0.0, 1.0, 2.0, 4.0]
    assert driver.rounds == 3
    assert [(m.round, m.sender, m.receiver) for m in driver.ledger] == [
        (1, COORDINATOR, "a"),
        (2, "a", "b"),
        (3, "b", "c"),
        (3, "c", COORDINATOR),
    ]
    assert {m.bytes for m in driver.ledger} == {32}


def test_local_returns_nothing_and_is_no_round(connect):
    async def body():
        assert await Local(sizes) is None
        assert await Local(remember, np.array([1.0, 2.0, 3.0])) is None
        return await Gather(recall)

    told, driver = run(connect(SITES), body)
    assert [t.tolist() for t in told.values()] == [[1.0, 2.0, 3.0]] * 3
    assert driver.rounds == 1
    assert [row[:3] for row in rows(driver)] == [
        *[("remember", COORDINATOR, name) for name in "abc"],
        *[("recall", name, COORDINATOR) for name in "abc"],
    ]


def test_sites_keep_what_replies_keep(connect):
    async def body():
        return [await Sum(running_sum, np.full(3, 10.0**i)) for i in range(3)]

    totals, _ = run(connect(SITES), body)
    assert [t[0] for t in totals] == [7.0, 77.0, 777.0]  # 7 rows in all


def test_what_sites_keep_does_not_change_with_the_bodys_arrays(connect):
    async def body():
        a = np.ones(3)
        await Local(remember, a)
        a *= 100
        return await Gather(recall)

    assert [t.tolist() for t in run(connect(SITES), body)[0].values()] == [[1.0] * 3] * 3


def test_set_up_rounds_are_counted_apart(connect):
    async def body():
        await Sum(setup_count)
        await Sum(sizes)

    _, driver = run(connect(SITES), body)
    assert (driver.setup_rounds, driver.rounds) == (1, 1)
    assert [(m.function, m.round, m.note) for m in driver.ledger] == [("setup_count", 1, "setup")] * 3 + [("sizes", 1, "")] * 3


def test_progress_reports_where_the_program_stands(connect):
    async def body():
        Z = np.eye(3)[:, :1]
        await Sum(weighted, np.ones(3))
        await Progress(basis=Z, objective=np.array(0.5), kkt=0.25)
        Z *= 7
        await Gather(sizes)
        await Gather(sizes)
        await Progress(kkt=np.float32(0.125))

    seen = []
    _, driver = run(connect(SITES), body, callback=seen.append)
    assert [(r.round, r.sites, r.objective, r.kkt, r.bytes_up, r.bytes_down) for r in seen] == [
        (1, 3, 0.5, 0.25, 96, 72),
        (3, 3, None, 0.125, 96, 0),
    ]
    assert [type(r.kkt) for r in seen] == [float, float]
    assert type(seen[0].objective) is float
    assert seen[0].basis.tolist() == [[1], [0], [0]]
    assert seen[1].basis is None
    assert driver.history == [r.without_basis() for r in seen]
    assert all(r.seconds >= 0 for r in seen)


def test_a_basis_is_made_only_for_who_wants_it(connect):
    asked = []

    def basis():
        asked.append(1)
        return np.eye(3)[:, :1]

    async def body():
        await Sum(weighted, np.ones(3))
        await Progress(basis=basis)

    _, driver = run(connect(SITES), body)
    assert not asked
    assert driver.history[0].basis is None
    assert driver._steps.account.basis.tolist() == [[1], [0], [0]]  # where a restart would begin
    assert len(asked) == 1
    seen = []
    run(connect(SITES), body, callback=seen.append)
    assert seen[0].basis.tolist() == [[1], [0], [0]]


def test_arguments_and_results_cannot_be_changed_in_place(connect):
    async def spoiled_argument():
        await Sum(spoil, np.zeros(3))

    async def spoiled_result():
        (await Gather(all_rows))["a"][:] = 0

    async def spoiled_sum():
        (await Sum(weighted, np.ones(3)))[1][:] = 0

    with pytest.raises(SiteError, match=r"spoil failed at site 'a'.*read-only"):
        run(connect(SITES), spoiled_argument)
    for body in (spoiled_result, spoiled_sum):
        with pytest.raises(ValueError, match="read-only"):
            run(connect(SITES), body)
    assert SITES["a"].tolist() == [[1e16] * 3]


@pytest.mark.parametrize("collective", [Sum, Max])
def test_replies_of_different_shapes_are_not_stretched(connect, collective):
    async def body():
        return await collective(uneven)

    with pytest.raises(WireError, match=r"uneven: site 'a' sends shape \(1,\) and 'b' \(2,\).*Gather"):
        run(connect(SITES), body)


def test_byte_order_is_native_everywhere(connect):
    async def body():
        return await Max(big_endian), await Sum(big_endian)

    (largest, total), driver = run(connect(SITES), body)
    assert (largest, total) == (4, 7)
    assert largest.dtype.isnative
    assert {m.dtypes for m in driver.ledger} == {("int64",)}


def test_arguments_are_checked_before_anything_is_sent(connect):
    async def body():
        await Sum(weighted, np.ones(4))

    connection = connect(SITES)
    with pytest.raises(WireError, match=r"argument 'w' has shape \(4,\), declared is \(d\) with d=3"):
        run(connection, body)
    assert connection.requests == []


def test_a_failing_site_and_its_function_are_named(connect):
    async def body():
        await Sum(fails_at_c)

    with pytest.raises(SiteError, match="fails_at_c failed at site 'c': ZeroDivisionError"):
        run(connect(SITES), body)


@pytest.mark.parametrize("kind", ["sum", "gather", "max", "at"])
def test_a_reply_without_its_arrays_is_refused(connect, monkeypatch, kind):
    connection = connect(SITES)
    monkeypatch.setattr(connection, "call", lambda _, after: (Response(name) for name in sorted(after)))
    collective = {"sum": Sum(sizes), "gather": Gather(sizes), "max": Max(sizes), "at": At("a", sizes)}[kind]

    async def body():
        return await collective

    with pytest.raises(WireError, match=r"0 reply array\(s\), declared are 2"):
        run(connection, body)


def test_only_marked_functions_and_collectives_run(connect):
    with pytest.raises(ProgramError, match="Sum runs functions marked @local, not <function"):
        Sum(run)

    class Other:
        def __await__(self):
            yield "something"

    async def body():
        await Other()

    with pytest.raises(ProgramError, match="awaits 'something'; the driver carries out Sum, Gather"):
        run(connect(SITES), body)


def test_exchange_needs_a_graph(connect):
    async def body():
        await Exchange(sizes)

    with pytest.raises(ProgramError, match="Exchange needs a graph"):
        run(connect(SITES), body)


def test_the_body_is_closed_when_a_collective_fails(connect):
    closed = []

    async def body():
        try:
            await Sum(fails_at_c)
        finally:
            closed.append(True)

    with pytest.raises(SiteError):
        run(connect(SITES), body)
    assert closed == [True]


def test_sites_must_exist_agree_on_features_and_not_be_called_coordinator(connect):
    with pytest.raises(InputError, match="no sites"):
        Driver(connect({}))
    with pytest.raises(InputError, match="site 'a' has 3 features but 'z' has 2"):
        Driver(connect(SITES | {"z": np.ones((1, 2))}))
    with pytest.raises(InputError, match="may not be called 'coordinator'"):
        Driver(connect(SITES | {COORDINATOR: np.ones((1, 3))}))
