"""Programs without a coordinator: neighbours talk to neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.errors import ProgramError, SiteError, WireError
from eigenpact.runtime import Agreed, At, Chain, Driver, Exchange, Gather, Journal, Local, Max, Reply, Site, Sum, local
from eigenpact.runtime.consensus import diameter

RING = {"a": ("b", "e"), "b": ("a", "c"), "c": ("b", "d"), "d": ("c", "e"), "e": ("d", "a")}
LINE = {"a": ("b",), "b": ("a", "c"), "c": ("b", "d"), "d": ("c",)}
VALUES = {"a": 1.0, "b": 5.0, "c": -2.0, "d": 8.0, "e": 3.0}


def nodes(graph):
    return {name: np.full((1, 2), VALUES[name]) for name in graph}


@local(keeps=("x",))
def begin(site: Site):
    """Start from the node's own value."""
    return Reply(keep={"x": site.X[0, 0]})


@local(sends={"x": ""}, reads=("x",), keeps=("x",))
def share(site: Site):
    """Average what came in with what is kept, and send the result."""
    x = averaged(site)
    return Reply(send=x, keep={"x": x})


def averaged(site):
    inside = [float(x) for (x,) in site.inbox.values()]
    return (site.kept["x"] + sum(inside)) / (1 + len(inside))


@local(sends={"gap": ""}, reads=("x",))
def distance(site: Site):
    """How far the node is from a value: with the messages of the last exchange."""
    return np.abs(averaged(site) - 3.0)


@local(sends={"x": ""})
def address(site: Site):
    """A message of its own for each neighbour."""
    return {name: np.int64(10 * ord(site.name) + ord(name)) for name in site.neighbours}


@local(sends={"ok": ""})
def received_their_own(site: Site):
    """1 if a message came from each neighbour, the one meant for this node."""
    expected = {name: 10 * ord(name) + ord(site.name) for name in site.neighbours}
    return float({name: int(x) for name, (x,) in site.inbox.items()} == expected)


@local(sends={"inbox": ""})
def empty_inbox(site: Site):
    """How many messages are waiting."""
    return float(len(site.inbox))


@local(sends={"x": ""})
def to_everyone(_site: Site):
    """Addresses someone who is no neighbour."""
    return {"d": 1.0}


@local(takes={"k": ""}, sends={"big": "d", "small": ""})
def two_arrays(site: Site, k):
    """Two arrays at once."""
    return site.X[0] * k, 1.0


@local(takes={"sign": ""}, sends={"v": "d"})
def own_vector(site: Site, sign):
    """The node's row times a sign, and its square."""
    return sign * np.array([site.X[0, 0], site.X[0, 0] ** 2])


def run(connection, body, graph, **options):
    async def program(_start, _state):
        return await body()

    driver = Driver(connection, graph=graph, **options)
    return driver.run(program), driver


def test_average_consensus_on_a_ring(connect):
    async def body():
        await Local(begin)
        for _ in range(60):
            await Exchange(share)
        return await Max(distance)

    gap, driver = run(connect(nodes(RING), RING), body, RING)
    assert gap <= 1e-12  # the mean of the values is 3
    assert driver.rounds == 60 + 2  # the maximum takes as many exchanges as the ring is wide
    averaging = [m for m in driver.ledger if m.function == "share" and m.round == 1]
    assert [(m.sender, m.receiver, m.bytes) for m in averaging] == [
        (name, neighbour, 8) for name in RING for neighbour in sorted(RING[name])
    ]
    agreeing = [m for m in driver.ledger if m.function == "pass_on_maximum"]
    assert len(agreeing) == 2 * 10
    assert {m.round for m in agreeing} == {61, 62}
    assert len(driver.ledger) == 62 * 10
    assert not any("coordinator" in (m.sender, m.receiver) for m in driver.ledger)


@pytest.mark.parametrize(("graph", "width"), [(RING, 2), (LINE, 3), ({"a": ()}, 0)])
def test_max_is_agreed_on_in_as_many_exchanges_as_the_graph_is_wide(connect, graph, width):
    async def body():
        return await Max(own_vector, np.float64(1)), await Max(own_vector, np.float64(-1))

    (largest, least), driver = run(connect(nodes(graph), graph), body, graph)
    values = np.array([VALUES[name] for name in graph])
    assert largest.tolist() == [values.max(), (values**2).max()]
    assert least.tolist() == [-values.min(), -(values**2).min()]
    assert driver.rounds == 2 * width
    assert diameter(graph) == width


def test_messages_may_differ_by_neighbour_and_are_read_once(connect):
    async def body():
        await Exchange(address)
        correct = -(await Max(_negative_of_received))
        await Exchange(address)
        await Local(empty_inbox)
        return correct, await Max(empty_inbox)

    (correct, waiting), _ = run(connect(nodes(LINE), LINE), body, LINE)
    assert correct == 1.0  # the least over all nodes
    assert waiting == 0.0


@local(sends={"bad": ""})
def _negative_of_received(site: Site):
    return -received_their_own(site)


def test_some_nodes_act_while_the_others_wait(connect):
    async def body():
        await Local(begin)
        await Local(begin, nodes=["b"])
        await Exchange(share, nodes=["d", "b"])
        return await Max(empty_inbox)

    waiting, driver = run(connect(nodes(LINE), LINE), body, LINE)
    assert waiting == 2.0  # c heard of both
    assert [(m.sender, m.receiver) for m in driver.ledger if m.function == "share"] == [("b", "a"), ("b", "c"), ("d", "c")]
    assert driver.rounds == 1 + 3


@pytest.mark.parametrize(("some", "odd"), [(["a", "z"], r"\['z'\]"), ([], "none")])
def test_nodes_that_are_not_there_are_refused(connect, some, odd):
    async def body():
        await Exchange(address, nodes=some)

    with pytest.raises(ProgramError, match=rf"address: nodes= names {odd}, which"):
        run(connect(nodes(LINE), LINE), body, LINE)


@local(sends={"d": ""})
def width(site: Site):
    """The same at all nodes."""
    return float(site.X.shape[1])


def test_what_all_nodes_have_is_read_without_a_round(connect):
    async def body():
        return await Agreed(width), await Agreed(own_vector, np.float64(1), nodes=["b"])

    (same, of_one), driver = run(connect(nodes(LINE), LINE), body, LINE)
    assert same == 2.0
    assert of_one.tolist() == [5.0, 25.0]
    assert (driver.rounds, len(driver.ledger)) == (0, 0)


def test_values_that_differ_are_not_agreed(connect):
    async def body():
        await Agreed(own_vector, np.float64(1))

    with pytest.raises(ProgramError, match="own_vector: nodes have different values, so that none is agreed; use Max"):
        run(connect(nodes(LINE), LINE), body, LINE)


def test_agreed_is_for_graphs(connect):
    async def body():
        await Agreed(width)

    with pytest.raises(ProgramError, match="Agreed is for one array that all nodes of a graph have"):
        run(connect(nodes(LINE)), body, None)


def test_a_message_to_a_stranger_is_refused(connect):
    async def body():
        await Exchange(to_everyone)

    with pytest.raises(WireError, match=r"to_everyone at 'a' addresses \['d'\], not neighbours"):
        run(connect(nodes(LINE), LINE), body, LINE)


@pytest.mark.parametrize("collective", [Sum(own_vector, 1.0), Gather(own_vector, 1.0), At("a", own_vector, 1.0), Chain(share)])
def test_what_needs_a_coordinator_is_refused(connect, collective):
    async def body():
        await collective

    with pytest.raises(ProgramError, match=f"{type(collective).__name__} needs a coordinator"):
        run(connect(nodes(RING), RING), body, RING)


def test_a_graph_that_is_not_connected_is_named_before_anything_runs(connect):
    graph = {"a": ("b",), "b": ("a",), "c": ("d",), "d": ("c",)}
    with pytest.raises(ProgramError, match=r"not connected: 'a' cannot reach \['c', 'd'\]"):
        Driver(connect(nodes(graph), graph), graph=graph)


def test_a_graph_of_one_way_edges_from_which_one_node_cannot_be_left_is_named_too(connect):
    graph = {"a": ("b",), "b": ("c",), "c": ()}
    with pytest.raises(ProgramError, match=r"not connected: 'b' cannot reach \['a'\]"):
        Driver(connect(nodes(graph), graph), graph=graph)


@pytest.mark.parametrize(
    ("graph", "odd"),
    [({"a": ("b",), "b": ("a",)}, "c"), ({"a": ("b",), "b": ("a", "c"), "c": ("b", "z")}, "z")],
)
def test_a_graph_of_other_nodes_is_refused(connect, graph, odd):
    with pytest.raises(ProgramError, match=rf"nodes and the sites differ in \['{odd}'\]"):
        Driver(connect(nodes(["a", "b", "c"])), graph=graph)


def test_max_agrees_on_one_array(connect):
    async def body():
        await Max(two_arrays, 1)

    with pytest.raises(ProgramError, match="Max on a graph agrees on one array; two_arrays sends 2"):
        run(connect(nodes(RING), RING), body, RING)


@pytest.mark.parametrize("collective", [Exchange(share), Local(begin)])
def test_a_lost_node_ends_the_run(connect, collective):
    async def body():
        await Local(begin)
        await collective

    with pytest.raises(SiteError, match="lost c: a graph program needs every node"):
        run(connect(nodes(RING), RING, losing=lambda r: {"c"} if r.step == 2 else set()), body, RING)


def test_graph_programs_keep_no_journal(connect, tmp_path):
    journal = Journal(tmp_path / "journal", {})
    with pytest.raises(ProgramError, match="no coordinator to keep a journal"):
        Driver(connect(nodes(RING), RING), graph=RING, journal=journal)
    journal.close()
