"""A lost site that is heard of again joins between two rounds; a journal takes the same turns again."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from eigenpact.errors import JournalError, TooFewSitesError
from eigenpact.runtime import Driver, Journal, Progress, SiteServer, Sum
from eigenpact.runtime import steps as steps_module
from eigenpact.runtime.steps import MAX_RETURNS
from tests.runtime.programs import ROUNDS, action, bits, chained, plain, remembering, repeating, set_up

ABOUT = {"solver": "toy"}


class Killed(BaseException):
    """Stands for the end of the process."""


def losing_c_at(*places):
    return lambda request: {"C"} if (request.epoch, request.step) in places else set()


def back_at(connection, round_):
    """A callback that lets C be heard of again in that round, if the run goes on without it; notes all bases."""

    def callback(record):
        callback.bases.append(record.basis)
        if record.sites == 2 and record.round >= round_:
            connection.lost.discard("C")

    callback.bases = []
    return callback


def events(driver):
    return [(m.epoch, m.sender, m.note) for m in driver.ledger if not m.function]


def session(connection, program, path, *, kill_after=None, callback=None, **options):
    journal = Journal(path, ABOUT)
    if kill_after is not None:
        append, left = journal.append, iter(range(kill_after))

        def counted(entry):
            if next(left, None) is None:
                raise Killed
            append(entry)

        journal.append = counted
    try:
        driver = Driver(connection, journal=journal, callback=callback, **options)
        return driver.run(program), driver
    finally:
        journal.close()


@pytest.mark.parametrize(
    ("program", "reports"),
    [
        (plain, [[1, 2], [4, 5], range(6, 12)]),  # C is lost in round 3, and that round discarded
        (repeating, [range(3), [3, 4, 5], range(5, 12)]),  # reports before each round, and at the end
        (remembering, [[1, 2], [4, 5], range(6, 12)]),
        (chained, [[], [5], [8, 11]]),  # C is the first chain's last hop, round 3; two hops, then three and three
    ],
)
def test_a_site_that_comes_back_takes_part_from_the_next_round_on(connect, three_sites, program, reports):
    """``reports`` are the rounds reported with all three sites, without C, and with C again."""
    connection = connect(three_sites, losing=losing_c_at((0, 5)))
    callback = back_at(connection, 5)
    driver = Driver(connection, callback=callback)
    result = driver.run(program)
    assert driver.roster == ("A", "B", "C")
    expected = [(round_, sites) for sites, rounds in zip((3, 2, 3), reports, strict=True) for round_ in rounds]
    assert [(record.round, record.sites) for record in driver.history] == expected
    assert events(driver) == [(0, "C", "lost"), (1, "C", "joined")]
    last_without = len(reports[0]) + len(reports[1]) - 1
    fresh = Driver(connect(three_sites)).run(lambda _start, _state: program(callback.bases[last_without], None))
    assert bits(result[:3]) == bits(fresh[:3])
    assert result[0] == 15
    assert np.allclose(result[1], np.vstack(list(three_sites.values())).mean(axis=0))


def test_a_rejoined_site_begins_anew(connect, three_sites):
    """Else the running sum of epoch 0, which only C still has, would enter the answer."""
    connection = connect(three_sites, losing=losing_c_at((0, 6)))
    Driver(connection, callback=back_at(connection, 5)).run(remembering)
    assert [server.position(connection.requests[0][0].run, 2) for server in connection.servers.values()] == [2 + ROUNDS] * 3


@pytest.mark.parametrize("cut_after", [1, 1 << 24])
@pytest.mark.parametrize("program", [plain, repeating, remembering])
@pytest.mark.parametrize("kill_after", range(1, 23))
@pytest.mark.parametrize("same_sites", [False, True])
def test_the_journal_of_a_run_with_a_return_resumes_to_the_same_bits(
    connect, three_sites, tmp_path, monkeypatch, program, kill_after, cut_after, same_sites
):
    monkeypatch.setattr(steps_module, "CUT_AFTER", cut_after)
    undisturbed = connect(three_sites, losing=losing_c_at((0, 5)))
    whole, first = session(undisturbed, program, tmp_path / "whole", callback=back_at(undisturbed, 5))
    assert events(first) == [(0, "C", "lost"), (1, "C", "joined")]

    connection = connect(three_sites, losing=losing_c_at((0, 5)))
    with suppress(Killed):
        session(connection, program, tmp_path / "killed", callback=back_at(connection, 5), kill_after=kill_after)
    if not same_sites:
        for name, X in three_sites.items():
            connection.inner._servers[name] = SiteServer(name, X)
    if kill_after == 6:  # killed before the loss was written
        connection.lost.clear()
    result, driver = session(connection, program, tmp_path / "killed", callback=back_at(connection, 5))
    assert driver.roster == ("A", "B", "C")
    assert bits(result[:3]) == bits(whole[:3])
    assert [m for m in driver.ledger if m.note != "resent"] == list(first.ledger)
    assert [(r.round, r.sites, r.objective) for r in driver.history] == [(r.round, r.sites, r.objective) for r in first.history]


def test_a_return_at_the_second_of_two_reports_is_replayed_there(connect, three_sites, tmp_path):
    """The basis of the second report is where the next epoch starts; no step lies between the two."""

    async def program(start, _state):
        _, mean = await set_up()
        Z = np.eye(len(mean), 2) if start is None else start
        await Sum(action, Z)
        await Progress(basis=Z, kkt=1.0)
        await Progress(basis=2 * Z, kkt=2.0)
        return Z, await Sum(action, Z)

    connection = connect(three_sites, losing=losing_c_at((0, 3)))
    whole, _ = session(connection, program, tmp_path / "run", callback=lambda r: r.kkt == 2.0 and connection.lost.discard("C"))
    assert whole[0].tolist() == (2 * np.eye(3, 2)).tolist()
    assert bits(session(connect(three_sites), program, tmp_path / "run")[0]) == bits(whole)


def test_a_finished_journal_is_replayed_without_taking_anyone_back(connect, three_sites, tmp_path):
    whole, first = session(connect(three_sites, losing=losing_c_at((0, 5))), plain, tmp_path / "run")
    assert first.roster == ("A", "B")
    size = (tmp_path / "run").stat().st_size
    connection = connect(three_sites)
    again, second = session(connection, plain, tmp_path / "run")
    assert bits(again) == bits(whole)
    assert second.roster == ("A", "B")
    assert not any("C" in targets for request, targets in connection.requests if request.epoch == 1)
    assert (tmp_path / "run").stat().st_size == size


@pytest.mark.parametrize("gone", ["connected never", "lost at once"])
def test_a_finished_journal_is_replayed_although_a_site_is_gone(connect, three_sites, tmp_path, gone):
    whole, _ = session(connect(three_sites), plain, tmp_path / "run")
    connection = connect(
        {name: X for name, X in three_sites.items() if name != "C"} if gone == "connected never" else three_sites
    )
    connection.lost |= {"C"}
    again, driver = session(connection, plain, tmp_path / "run")
    assert bits(again) == bits(whole)
    assert driver.roster == ("A", "B", "C")  # whose answer it is


@pytest.mark.parametrize("program", [plain, remembering, chained])
@pytest.mark.parametrize("kill_after", [1, 2, 3, 5, 7])
def test_resumed_with_a_site_missing_from_the_start(connect, three_sites, tmp_path, program, kill_after):
    """What was reached with it is replayed; then the others go on from that basis, and a second resume agrees."""
    with pytest.raises(Killed):
        session(connect(three_sites), program, tmp_path / "run", kill_after=kill_after)
    others = {name: three_sites[name] for name in "AB"}
    bases = []
    result, driver = session(connect(others), program, tmp_path / "run", callback=lambda r: bases.append((r.sites, r.basis)))
    assert driver.roster == ("A", "B")
    assert [(sender, note) for _, sender, note in events(driver)] == [("C", "lost: not here")]
    reached = [basis for sites, basis in bases if sites == 3]
    fresh = Driver(connect(others)).run(lambda _start, _state: program(reached[-1] if reached else None, None))
    assert bits(result[:3]) == bits(fresh[:3])
    again, second = session(connect(three_sites), program, tmp_path / "run")
    assert bits(again) == bits(result)
    assert second.roster == ("A", "B")


def test_a_stranger_is_refused(connect, three_sites, tmp_path):
    with pytest.raises(Killed):
        session(connect(three_sites), plain, tmp_path / "run", kill_after=5)
    before = (tmp_path / "run").read_bytes()
    more = three_sites | {"D": three_sites["A"]}
    with pytest.raises(JournalError, match="site 'D' was not part of this run, whose sites are A, B, C; leave it out"):
        session(connect(more), plain, tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == before


def flapping(connection):
    """C is lost in every epoch it takes part in, and back as soon as the others report."""
    connection.losing = lambda request: {"C"} if request.step == 4 else set()
    return lambda record: connection.lost.discard("C") if record.sites == 2 else None


def test_a_site_may_not_come_back_for_ever(connect, three_sites):
    connection = connect(three_sites)
    driver = Driver(connection, callback=flapping(connection))
    driver.run(plain)
    assert driver.roster == ("A", "B")
    assert [note for _, _, note in events(driver)] == ["lost", "joined"] * MAX_RETURNS + ["lost"]


@pytest.mark.parametrize("cut_after", [1, 1 << 24])
def test_returns_are_counted_across_resumes_and_cuts(connect, three_sites, tmp_path, monkeypatch, cut_after):
    monkeypatch.setattr(steps_module, "CUT_AFTER", cut_after)
    for kill_after in (14, 6, 5, None):
        connection = connect(three_sites)
        with suppress(Killed):
            _, driver = session(connection, plain, tmp_path / "run", callback=flapping(connection), kill_after=kill_after)
    assert driver.roster == ("A", "B")
    assert [note for _, _, note in events(driver)].count("joined") == MAX_RETURNS


def test_the_last_good_subspace_is_kept_when_too_few_sites_are_left(connect, three_sites):
    bases = []
    connection = connect(three_sites, losing=losing_c_at((0, 5)))
    with pytest.raises(TooFewSitesError, match=r"lost C: 2 site\(s\) left, min_sites is 3") as caught:
        Driver(connection, min_sites=3, callback=lambda record: bases.append(record.basis)).run(plain)
    assert len(bases) == 2
    assert caught.value.basis.tolist() == bases[-1].tolist()
    with pytest.raises(TooFewSitesError) as caught:
        Driver(connect(three_sites, losing=losing_c_at((0, 1))), min_sites=3).run(plain)
    assert caught.value.basis is None


def test_too_few_sites_to_begin_with(connect, three_sites, tmp_path):
    with pytest.raises(TooFewSitesError, match=r"3 site\(s\) answer \(A, B, C\), min_sites is 4; bring up the others"):
        Driver(connect(three_sites), min_sites=4)
    connection = connect(three_sites)
    connection.lost = {"B"}
    with pytest.raises(TooFewSitesError, match=r"2 site\(s\) answer \(A, C\), min_sites is 3"):
        session(connection, plain, tmp_path / "run", min_sites=3)
    assert session(connect(three_sites), plain, tmp_path / "run", min_sites=3)[0][0] == 15


def test_a_run_that_ended_with_too_few_sites_goes_on_when_they_are_back(connect, three_sites, tmp_path):
    whole = Driver(connect(three_sites)).run(plain)
    connection = connect(three_sites, losing=losing_c_at((0, 5)))
    with pytest.raises(TooFewSitesError):
        session(connection, plain, tmp_path / "run", min_sites=3)
    connection.lost, connection.losing = set(), lambda _: set()
    result, driver = session(connection, plain, tmp_path / "run", min_sites=3)
    assert bits(result) == bits(whole)
    assert driver.roster == ("A", "B", "C")


def test_reasons_are_in_the_ledger_and_in_the_error(connect, three_sites):
    """In words of the connection, here of one that has no such site."""
    connection = connect(three_sites)
    driver = Driver(connection)
    del connection.inner._servers["B"]
    driver.run(plain)
    assert events(driver) == [(0, "B", "lost: not here")]
    connection = connect(three_sites)
    driver = Driver(connection, min_sites=3)
    del connection.inner._servers["B"]
    with pytest.raises(TooFewSitesError, match=r"lost B \(not here\): 2 site"):
        driver.run(plain)
