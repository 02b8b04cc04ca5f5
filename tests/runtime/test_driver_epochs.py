"""Sites get lost: the program starts again from its last basis, with the others."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.errors import TooFewSitesError
from eigenpact.runtime import COORDINATOR, Driver, Progress, Sum
from tests.runtime.programs import ROUNDS, action, bits, chained, plain, remembering, set_up


def losing_c_at(*places):
    """Lose site C at these (epoch, step)."""
    return lambda request: {"C"} if (request.epoch, request.step) in places else set()


def recorded(connection, program, **options):
    """Run a program; give its result, its driver and the bases it reported."""
    bases = []
    driver = Driver(connection, callback=lambda record: bases.append(record.basis), **options)
    return driver.run(program), driver, bases


@pytest.mark.parametrize("program", [plain, remembering, chained])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_lost_site_means_a_fresh_run_of_the_others_from_the_last_basis(connect, three_sites, program, step):
    connection = connect(three_sites, losing=losing_c_at((0, step)))
    if program is chained and step in (3, 4):
        connection.losing = losing_c_at((0, 5))  # a chain comes to C at its third hop
    result, driver, bases = recorded(connection, program)
    assert driver.roster == ("A", "B")
    before = [record for record in driver.history if record.sites == 3]
    start = bases[len(before) - 1] if before else None

    others = {name: three_sites[name] for name in "AB"}
    fresh, other_driver, _ = recorded(connect(others), lambda _start, _state: program(start, None))
    assert bits(result) == bits(fresh)
    assert result[0] == 10
    assert np.allclose(result[1], np.vstack([three_sites["A"], three_sites["B"]]).mean(axis=0))
    assert [record.sites for record in driver.history[len(before) :]] == [2] * len(other_driver.history)
    epochs = {request.epoch for request, _ in connection.requests}
    assert epochs == {0, 1}
    assert not any("C" in targets for request, targets in connection.requests if request.epoch == 1)


def test_sites_forget_what_they_kept(connect, three_sites):
    """Without clearing, the running sums of epoch 0 would enter the answer."""
    connection = connect(three_sites, losing=losing_c_at((0, 6)))
    seen = []
    call = connection.call
    connection.call = lambda request, after: (
        seen.append((request.epoch, request.step, sorted(connection.servers["A"]._kept))),
        call(request, after),
    )[1]
    recorded(connection, remembering)
    assert (0, 6, ["mean", "sum"]) in seen
    assert (1, 2, []) in seen  # after step 1 of the new epoch nothing is kept, as count keeps nothing


def test_the_ledger_keeps_the_rows_of_the_discarded_round(connect, three_sites):
    result, driver, _ = recorded(connect(three_sites, losing=losing_c_at((0, 4))), plain)
    discarded = [m for m in driver.ledger if (m.epoch, m.step) == (0, 4)]
    assert [(m.sender, m.receiver) for m in discarded] == [
        (COORDINATOR, "A"),
        (COORDINATOR, "B"),
        (COORDINATOR, "C"),
        ("A", COORDINATOR),
        ("B", COORDINATOR),
        ("C", COORDINATOR),
    ]
    assert discarded[-1].note == "lost"
    assert {m.round for m in discarded} == {2}
    assert driver.rounds == 2 + ROUNDS  # one complete, one discarded, then all of them again
    assert driver.setup_rounds == 2
    assert len(result) == 4


def test_the_next_record_counts_the_bytes_of_the_discarded_round(connect, three_sites):
    _, driver, _ = recorded(connect(three_sites, losing=losing_c_at((0, 4))), plain)
    assert sum(record.bytes_up for record in driver.history) == driver.ledger.bytes_up
    assert sum(record.bytes_down for record in driver.history) == driver.ledger.bytes_down


def test_sites_may_be_lost_one_after_the_other_and_at_once(connect, three_sites):
    alone = {"A": three_sites["A"]}

    def one_by_one(request):
        return {(0, 1): {"C"}, (1, 1): {"B"}}.get((request.epoch, request.step), set())

    for losing in (one_by_one, lambda request: {"B", "C"} if request.step == 1 and request.epoch == 0 else set()):
        result, driver, _ = recorded(connect(three_sites, losing=losing), plain)
        assert driver.roster == ("A",)
        assert bits(result) == bits(recorded(connect(alone), plain)[0])


def test_below_min_sites_the_run_ends(connect, three_sites):
    losing = losing_c_at((0, 3))
    with pytest.raises(TooFewSitesError, match=r"lost C: 2 site\(s\) left, min_sites is 3; bring the sites back"):
        Driver(connect(three_sites, losing=losing), min_sites=3).run(plain)
    assert Driver(connect(three_sites, losing=losing), min_sites=2).run(plain)[0] == 10


def test_the_start_is_the_basis_as_it_was_reported(connect, three_sites):
    """A body that goes on to overwrite its array must not change where the next epoch starts."""

    async def overwriting(start, _state):
        _, mean = await set_up()
        if start is not None:
            return start.tolist()
        Z = np.eye(len(mean))[:, :1]
        await Progress(basis=Z)
        Z *= 9.0
        return await Sum(action, Z)

    result = Driver(connect(three_sites, losing=losing_c_at((0, 3)))).run(overwriting)
    assert result == [[1.0], [0.0], [0.0]]
