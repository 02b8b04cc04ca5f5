"""A journal holds enough to go on, bit for bit; what is damaged is dropped, what is foreign is left alone."""

from __future__ import annotations

import errno
import os
import resource
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from eigenpact.errors import FileError, JournalError, WireError
from eigenpact.runtime import At, Driver, Gather, Journal, Max, Progress, SiteServer, Sum
from eigenpact.runtime import steps as steps_module
from eigenpact.runtime.journal import MAGIC, Entry, _checksum, _read, _record
from tests.runtime.programs import ROUNDS, action, bits, chained, count, plain, remembering, repeating, set_up

PROGRAMS = [plain, repeating, remembering, chained]
ABOUT = {"solver": "toy", "sites": ["A", "B", "C"]}
ENTRIES = 2 + 2 + ROUNDS + 1
"""Entries of a whole run of ``plain`` after the header: the roster, digests of the rows, set-up, rounds, the end."""


class Killed(BaseException):
    """Stands for the end of the process: nothing after it is written."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.journal"


@pytest.fixture
def start_run(connect, three_sites, path):
    """start_run(program, ...) -> (result, driver): one session of a run with the journal, its sites fresh unless given."""

    def start(program, *, connection=None, sites=None, losing=None, kill_after=None, journal_path=path, callback=None):
        connection = connection or connect(sites or three_sites, losing=losing)
        journal = Journal(journal_path, ABOUT)
        if kill_after is not None:
            _kill(journal, kill_after)
        try:
            driver = Driver(connection, journal=journal, callback=callback)
            return driver.run(program), driver
        finally:
            journal.close()

    return start


def _kill(journal, appends):
    """Kill the session when that many entries more are on disk."""
    append, left = journal.append, [appends]

    def counted(entry):
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        append(entry)

    journal.append = counted


def account(driver):
    """All rows of the ledger but those noted resent."""
    return [m for m in driver.ledger if m.note != "resent"]


def progress(driver):
    """The history without what depends on the clock."""
    return [(r.round, r.sites, r.objective, r.kkt, r.bytes_up, r.bytes_down) for r in driver.history]


def progress_without_bytes(driver):
    return [row[:4] for row in progress(driver)]


# -- the file -----------------------------------------------------------------------------------


def test_entries_come_back_in_order(path):
    journal = Journal(path, ABOUT)
    assert (journal.resumed, journal.peek(), journal.next()) == (False, None, None)
    run, seed, key = journal.run, journal.seed, journal.key
    assert len(key) == 32
    for i in range(3):
        journal.append(Entry({"kind": "sum", "i": i}, (np.full((2, i), 1.5), np.array(i))))
    journal.close()

    again = Journal(path, ABOUT)
    assert again.resumed
    assert (again.run, again.seed, again.key) == (run, seed, key)
    assert again.peek() is again.peek()
    for i in range(3):
        entry = again.next()
        assert entry.facts == {"kind": "sum", "i": i}
        assert entry.arrays[0].tolist() == [[1.5] * i] * 2
        assert entry.arrays[1] == i
    assert again.next() is None
    again.append(Entry({"kind": "sum", "i": 3}))
    again.close()
    last = Journal(path, ABOUT)
    assert [last.next().facts["i"] for _ in range(4)] == [0, 1, 2, 3]
    last.close()


def test_runs_and_seeds_differ_from_journal_to_journal(tmp_path):
    journals = [Journal(tmp_path / str(i), ABOUT) for i in range(2)]
    assert journals[0].run != journals[1].run
    assert journals[0].seed != journals[1].seed
    assert journals[0].key != journals[1].key
    for journal in journals:
        journal.close()


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_only_the_owner_may_read_it(path, umask):
    before = os.umask(umask)
    try:
        journal = Journal(path, ABOUT)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        journal.cut([Entry({"kind": "state"})])
        journal.close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_an_entry_is_synced_before_append_returns(path, monkeypatch):
    synced = []
    fsync = os.fsync
    journal = Journal(path, ABOUT)
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), synced.append(path.read_bytes()))[0])
    journal.append(Entry({"kind": "sum"}, (np.arange(5.0),)))
    assert synced[-1] == path.read_bytes()
    assert np.arange(5.0).tobytes() in synced[-1]
    journal.close()


def test_a_cut_replaces_everything_after_the_header(path):
    journal = Journal(path, ABOUT)
    journal.append(Entry({"kind": "sum", "i": 0}, (np.zeros(1000),)))
    assert journal.grown() > 8000
    journal.cut([Entry({"kind": "roster"}), Entry({"kind": "state"})])
    assert journal.grown() == 0
    journal.append(Entry({"kind": "sum", "i": 1}))
    assert 0 < journal.grown() < 1000
    run = journal.run
    journal.close()
    again = Journal(path, ABOUT)
    assert again.run == run
    assert again.upcoming("state").facts == {"kind": "state"}
    assert again.upcoming("sum", "state").facts == {"kind": "state"}
    assert again.upcoming("gather") is None
    assert [again.next().facts.get("kind") for _ in range(3)] == ["roster", "state", "sum"]
    again.close()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"name,age\nx,3\n", MAGIC[:5], b"\0" * 100, MAGIC[:-2] + b"x\nmore"])
def test_a_foreign_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(JournalError, match="is not an eigenpact journal; choose another path"):
        Journal(path, ABOUT)
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == [path.name]


FORMATS = [
    (1, "format 1, without digests .* the earlier"),
    (2, "format 2, whose requests name functions by the modules they were in.* the earlier"),
    (3, "format 3, whose records do not tell which one they follow.* the earlier"),
    (5, "format 5; .* the later"),
]


@pytest.mark.parametrize(("version", "told"), FORMATS)
def test_a_journal_of_another_format_is_refused_and_left_alone(path, version, told):
    content = b"eigenpact journal %d\nmore" % version
    path.write_bytes(content)
    with pytest.raises(JournalError, match=f"{told} version that wrote it, or delete it and start afresh"):
        Journal(path, ABOUT)
    assert path.read_bytes() == content


def test_an_empty_file_is_a_new_journal(path):
    path.touch()
    journal = Journal(path, ABOUT)
    assert not journal.resumed
    journal.close()


def test_another_description_is_refused_naming_what_differs(path):
    journal = Journal(path, ABOUT | {"n": 2})
    journal.append(Entry({"kind": "sum"}))
    journal.close()
    content = path.read_bytes()
    with pytest.raises(
        JournalError, match=r"another run \(n: journal has 2, this run 3; solver: journal has 'toy', this run None\)"
    ):
        Journal(path, {"sites": ["A", "B", "C"], "n": 3})
    assert path.read_bytes() == content


def test_a_description_may_hold_tuples(path):
    for _ in range(2):
        Journal(path, {"shape": (2, 3), "solver": {"blocks": (1, 2)}}).close()


def test_paths_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(FileError, match="is a folder, not a file; choose another path"):
        Journal(tmp_path, ABOUT)
    with pytest.raises(FileError, match=r"the journal .*nowhere.* cannot be written"):
        Journal(tmp_path / "nowhere" / "run.journal", ABOUT)


def test_a_full_disk_is_a_file_error(path, monkeypatch):
    journal = Journal(path, ABOUT)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        journal.append(Entry({"kind": "sum"}))
    journal.close()


# -- damage -------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_byte_is_dropped_and_the_run_goes_on_to_the_same_bits(start_run, path):
    whole, _ = start_run(plain)
    journal_bytes = path.read_bytes()
    path.unlink()
    with pytest.raises(Killed):
        start_run(plain, kill_after=4)
    before_last = path.stat().st_size
    path.unlink()
    with pytest.raises(Killed):
        start_run(plain, kill_after=5)
    content = path.read_bytes()
    assert before_last < len(content) < len(journal_bytes)
    for length in range(before_last, len(content)):
        path.write_bytes(content[:length])
        journal = Journal(path, ABOUT)
        assert len(journal._replay) == 4
        assert path.stat().st_size == before_last
        journal.close()
        if length % 37 == 0:
            path.write_bytes(content[:length])
            assert bits(start_run(plain)[0]) == bits(whole)


def test_a_torn_tail_is_written_over(start_run, path):
    """What is appended after a torn tail must be found again, too."""
    whole, _ = start_run(plain)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Killed):
        start_run(plain, kill_after=0)
    result, driver = start_run(plain)
    assert bits(result) == bits(whole)
    journal = Journal(path, ABOUT)
    assert len(journal._replay) == ENTRIES
    journal.close()
    assert driver.rounds == ROUNDS


def test_a_flipped_byte_in_the_middle_drops_what_follows(start_run, path):
    whole, _ = start_run(plain)
    content = path.read_bytes()
    header = len(MAGIC) + 24 + int.from_bytes(content[len(MAGIC) : len(MAGIC) + 8], "little")
    for at in range(header, len(content), 97):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        journal = Journal(path, ABOUT)
        assert len(journal._replay) < ENTRIES
        journal.close()
        assert bits(start_run(plain)[0]) == bits(whole)


@pytest.mark.parametrize("at", [len(MAGIC), len(MAGIC) + 12, len(MAGIC) + 60])
def test_a_journal_whose_description_is_damaged_is_refused_and_left_alone(start_run, path, at):
    start_run(plain)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match="damaged"):
        Journal(path, ABOUT)
    assert path.read_bytes() == bytes(damaged)


# -- forgery ------------------------------------------------------------------------------------


def records(path):
    """Header and entries of a journal."""
    return _read(path)[0]


def forge(path, entries):
    """Write a journal whose checksums are good."""
    content = [MAGIC]
    for entry in entries:
        content.append(_record(entry, content[-1][8:24] if len(content) > 1 else MAGIC))
    path.write_bytes(b"".join(content))


def changed(entries, number, arrays=None, **facts):
    entry = entries[number]
    new = Entry({k: v for k, v in (entry.facts | facts).items() if v is not ...}, entry.arrays if arrays is None else arrays)
    return [*entries[:number], new, *entries[number + 1 :]]


def test_what_is_left_out_moved_or_of_another_journal_is_dropped(start_run, path, tmp_path):
    """And the run goes on to the same bits."""
    whole, _ = start_run(plain)
    start_run(plain, journal_path=tmp_path / "other")
    pieces, at, content = [], len(MAGIC), path.read_bytes()
    while at < len(content):
        end = at + 24 + int.from_bytes(content[at : at + 8], "little")
        pieces.append(content[at:end])
        at = end
    foreign = (tmp_path / "other").read_bytes()[len(MAGIC) + len(pieces[0]) :]
    for some in (
        [*pieces[:3], *pieces[4:]],
        [*pieces[:3], pieces[4], pieces[3], *pieces[5:]],
        [*pieces[:4], pieces[3], *pieces[4:]],
        [pieces[0], foreign],
    ):
        path.write_bytes(MAGIC + b"".join(some))
        journal = Journal(path, ABOUT)
        assert len(journal.rest()) < ENTRIES - 1
        journal.close()
        assert bits(start_run(plain)[0]) == bits(whole)


@pytest.mark.parametrize(
    ("number", "facts", "told"),
    [
        (0, {"run": ...}, "'run' is missing"),
        (0, {"seed": "x"}, "'seed' is 'x'"),
        (0, {"key": "x"}, "its key is none"),
        (0, {"description": ...}, "'description' is missing"),
        (1, {"known": ...}, "record 1 .*'known' is missing"),
        (1, {"kind": "sum"}, "record 1 is none that a run writes"),
        (1, {"rounds": [1, 2, 3]}, "'rounds' is a list"),
        (2, {"digests": {"A": 1}}, "'digests' is a dict"),
        (3, {"kind": ...}, "record 3 .*'kind' is missing"),
        (3, {"kind": 7}, "'kind' is 7"),
        (3, {"kind": []}, "'kind' is a list"),
        (3, {"kind": "state"}, "'names' is missing"),
        (3, {"ledger": None}, "'ledger' is None"),
        (3, {"ledger": [[1]]}, "'ledger' is a list"),
        (3, {"function": "eigenpact:other/1"}, "step 1 was"),
    ],
)
def test_forged_facts_are_refused(start_run, path, number, facts, told):
    start_run(plain)
    forge(path, changed(records(path), number, **facts))
    with pytest.raises(JournalError, match=told):
        start_run(plain)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: (), r"step \d has a result that no site gives \(0 arrays\)"),
        (lambda a: (a, a), "2 arrays"),
        (lambda _: (np.zeros(7),), "has shape"),
        (lambda a: (a * np.nan,), "NaN"),
    ],
)
def test_forged_results_are_refused(start_run, path, change, told):
    start_run(plain)
    entries = records(path)
    number = next(i for i, entry in enumerate(entries) if entry.facts.get("function") == action.name)
    forge(path, changed(entries, number, change(entries[number].arrays[0])))
    with pytest.raises(JournalError, match=told):
        start_run(plain)


def test_a_sum_changed_by_a_forger_is_not_believed_by_the_next_step(start_run, path):
    """Because it would have been asked with other arguments; only the last one can be changed without notice."""
    start_run(plain)
    entries = records(path)
    numbers = [i for i, entry in enumerate(entries) if entry.facts.get("function") == action.name]
    forge(path, changed(entries, numbers[0], (entries[numbers[0]].arrays[0] * 1.001,)))
    with pytest.raises(JournalError, match="or the arguments or sites differ"):
        start_run(plain)


@pytest.mark.parametrize(
    "payload", [b"[" * 200_000, b"\xff" * 30, (2**63).to_bytes(8, "little"), b""], ids=["deep", "no JSON", "long", "empty"]
)
def test_records_that_cannot_be_read_are_refused(path, payload):
    Journal(path, ABOUT).close()
    whole = (len(payload).to_bytes(8, "little") + payload) if payload[:1] == b"[" else payload
    content = path.read_bytes()
    before = content[len(MAGIC) + 8 : len(MAGIC) + 24]
    path.write_bytes(content + len(whole).to_bytes(8, "little") + _checksum(before, whole) + whole)
    with pytest.raises(JournalError, match="a record cannot be read"):
        Journal(path, ABOUT)


def test_a_record_longer_than_the_file_is_a_torn_tail(path):
    Journal(path, ABOUT).close()
    content = path.read_bytes()
    path.write_bytes(content + (2**63).to_bytes(8, "little") + bytes(16))
    journal = Journal(path, ABOUT)
    journal.close()
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder", "device"])
def test_what_is_no_file_is_refused_and_left_alone(path, kind):
    real = path.with_name("real")
    if kind == "link":
        Journal(real, ABOUT).close()
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda p: os.mknod(p, 0o600 | stat.S_IFCHR, os.makedev(1, 3))}
    try:
        make.get(kind, lambda p: p.symlink_to(real))(path)
    except PermissionError:
        pytest.skip("only root makes devices")
    before = os.lstat(path)
    with pytest.raises(FileError, match=f"is a {kind.split()[-1]}, not a file; choose another path"):
        Journal(path, ABOUT)
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)
    assert real.exists() == (kind == "link")


def test_a_disk_that_is_really_full(path):
    journal = Journal(path, ABOUT)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 1000, most[1]))
    try:
        with pytest.raises(FileError, match=r"run\.journal cannot be written: File too large; make room or choose another path"):
            journal.append(Entry({"kind": "end"}, (np.zeros(10_000),)))
        journal.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    again = Journal(path, ABOUT)
    assert again.rest() == []
    again.close()


# -- resuming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kill_after", range(ENTRIES))
@pytest.mark.parametrize("same_sites", [False, True])
def test_a_resumed_run_has_the_same_bits_rounds_history_and_account(
    start_run, connect, three_sites, program, kill_after, same_sites, tmp_path
):
    whole, uninterrupted = start_run(program, journal_path=tmp_path / "other")
    connection = connect(three_sites)
    with suppress(Killed):
        start_run(program, connection=connection, kill_after=kill_after)
    result, driver = start_run(program, connection=connection if same_sites else None)
    assert bits(result) == bits(whole)
    assert (driver.rounds, driver.setup_rounds) == (uninterrupted.rounds, uninterrupted.setup_rounds)
    assert progress_without_bytes(driver) == progress_without_bytes(uninterrupted)
    assert account(driver) == list(uninterrupted.ledger)
    if same_sites:
        assert {m.function for m in driver.ledger if m.note == "resent"} <= {"rows_digest"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_finished_run_is_replayed_without_asking_the_sites_for_more(start_run, connect, three_sites, program):
    """Than whether their rows are the same."""
    connection = connect(three_sites)
    whole, _ = start_run(program, connection=connection)
    asked = len(connection.requests)
    result, driver = start_run(program, connection=connection)
    assert bits(result) == bits(whole)
    assert [request.kind for request, _ in connection.requests[asked:]] == ["digest"]
    resent = [(m.function, m.step, m.shapes) for m in driver.ledger if m.note == "resent"]
    assert resent == [("rows_digest", 0, ((32,),))] * 3 + [("rows_digest", 0, ((16,),))] * 3


def test_fresh_sites_are_sent_only_what_they_must_remember(start_run, connect, three_sites):
    with pytest.raises(Killed):
        start_run(plain, kill_after=7)
    connection = connect(three_sites)
    _, driver = start_run(plain, connection=connection)
    assert [request.step for request, _ in connection.requests] == [-1, 1, 2, *range(6, 3 + ROUNDS)]
    resent = [(m.step, m.function, m.sender, m.receiver) for m in driver.ledger if m.note == "resent"]
    assert resent == [
        *[(0, "rows_digest", "coordinator", name) for name in "ABC"],
        *[(0, "rows_digest", name, "coordinator") for name in "ABC"],
        *[(1, "count", name, "coordinator") for name in "ABC"],
        *[(2, "keep_mean", "coordinator", name) for name in "ABC"],
    ]


@pytest.mark.parametrize("cut_after", [1, 1 << 24])
def test_every_resume_is_in_the_account(start_run, monkeypatch, cut_after):
    """What two resumed sessions sent again is in the ledger twice, wherever the journal was cut."""
    monkeypatch.setattr(steps_module, "CUT_AFTER", cut_after)
    for kill_after in (7, 2):
        with pytest.raises(Killed):
            start_run(plain, kill_after=kill_after)
    _, driver = start_run(plain)
    resent = [(m.step, m.sender) for m in driver.ledger if m.note == "resent"]
    digests = [*[(0, name) for name in "ABC"], *[(0, "coordinator")] * 3]
    assert sorted(resent) == sorted(2 * [*digests, *[(1, name) for name in "ABC"], *[(2, "coordinator")] * 3])


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kill_after", range(2, 10))
def test_one_site_was_restarted_with_the_coordinator(start_run, connect, three_sites, program, kill_after, tmp_path):
    """It is told again what it must remember; the others are still at the last step and are not asked twice."""
    whole, uninterrupted = start_run(program, journal_path=tmp_path / "other")
    connection = connect(three_sites)
    with pytest.raises(Killed):
        start_run(program, connection=connection, kill_after=kill_after)
    connection.inner._servers["B"] = SiteServer("B", three_sites["B"])
    result, driver = start_run(program, connection=connection)
    assert bits(result) == bits(whole)
    assert account(driver) == list(uninterrupted.ledger)
    resent = [m for m in driver.ledger if m.note == "resent" and m.function != "rows_digest"]
    assert {name for m in resent for name in (m.sender, m.receiver)} <= {"B", "coordinator"}


def test_changed_data_are_noticed(start_run, three_sites):
    with pytest.raises(Killed):
        start_run(plain, kill_after=5)
    changed = three_sites | {"B": three_sites["B"] + 1e-9}
    with pytest.raises(JournalError, match=r"the rows of site 'B' changed since the journal was written .* delete the journal"):
        start_run(plain, sites=changed)


def other_program(replace):
    async def program(_start, _state):
        _, mean = await set_up()
        return await replace(mean)

    return program


@pytest.mark.parametrize(
    "step",
    [
        lambda _: Sum(action, 2 * np.eye(3)[:, :2]),
        lambda _: Gather(action, np.eye(3)[:, :2]),
        lambda _: Max(action, np.eye(3)[:, :2]),
        lambda _: Sum(count),
    ],
    ids=["other arguments", "other collective", "another one", "other function"],
)
def test_a_changed_program_is_noticed(start_run, step):
    with pytest.raises(Killed):
        start_run(plain, kill_after=5)
    with pytest.raises(JournalError, match=r"step 3 was sum of .*:action/1, now it is .* start afresh"):
        start_run(other_program(step))


def test_another_site_for_the_same_step_is_noticed(start_run):
    start_run(other_program(lambda _: At("A", action, np.eye(3)[:, :2])))
    with pytest.raises(JournalError, match="sites differ"):
        start_run(other_program(lambda _: At("B", action, np.eye(3)[:, :2])))


# -- cutting ------------------------------------------------------------------------------------


@pytest.fixture
def always_cut(monkeypatch):
    monkeypatch.setattr(steps_module, "CUT_AFTER", 1)


@pytest.mark.usefixtures("always_cut")
@pytest.mark.parametrize("program", [plain, repeating])
@pytest.mark.parametrize("kill_after", range(ENTRIES))
def test_a_cut_run_goes_on_as_if_nothing_had_happened(start_run, program, kill_after, tmp_path):
    whole, uninterrupted = start_run(program, journal_path=tmp_path / "other")
    with pytest.raises(Killed):
        start_run(program, kill_after=kill_after)
    result, driver = start_run(program)
    assert bits(result[:3]) == bits(whole[:3])
    assert (driver.rounds, driver.setup_rounds) == (uninterrupted.rounds, uninterrupted.setup_rounds)
    assert progress_without_bytes(driver) == progress_without_bytes(uninterrupted)
    assert account(driver) == list(uninterrupted.ledger)
    assert progress(driver)[1:] == progress(uninterrupted)[1:]  # the first may hold what was sent again


@pytest.mark.usefixtures("always_cut")
def test_a_cut_journal_is_short_and_resumes_in_the_middle(start_run, path):
    with pytest.raises(Killed):
        start_run(plain, kill_after=7)
    journal = Journal(path, ABOUT)
    assert [journal.next().facts["kind"] for _ in range(4)] == ["roster", "sum", "local", "state"]
    assert journal.next() is None
    journal.close()
    result, _ = start_run(plain)
    assert result[3] == 3  # three rounds were not computed again


def test_a_cut_does_not_happen_before_the_journal_has_grown(start_run, path):
    start_run(plain)
    journal = Journal(path, ABOUT)
    assert journal.upcoming("state") is None
    journal.close()


@pytest.mark.usefixtures("always_cut")
@pytest.mark.parametrize("kill_after", range(ENTRIES))
def test_no_cut_where_sites_keep_what_it_would_forget(start_run, path, kill_after, tmp_path):
    whole, _ = start_run(remembering, journal_path=tmp_path / "other")
    with pytest.raises(Killed):
        start_run(remembering, kill_after=kill_after)
    with pytest.raises(Killed):  # a resumed session must not cut either, although it only replayed the steps that keep
        start_run(remembering, kill_after=min(1, ENTRIES - kill_after - 1))
    assert bits(start_run(remembering)[0]) == bits(whole)
    journal = Journal(path, ABOUT)
    assert journal.upcoming("state") is None
    journal.close()


@pytest.mark.usefixtures("always_cut")
def test_the_program_is_given_the_start_of_its_epoch_with_the_state(start_run):
    """``repeating`` returns whether it was started afresh; a cut must not change that."""
    with pytest.raises(Killed):
        start_run(repeating, kill_after=5)
    assert start_run(repeating)[0][3] is True


@pytest.mark.usefixtures("always_cut")
def test_a_state_that_could_not_be_read_is_not_written(start_run):
    async def program(_start, _state):
        await set_up()
        await Progress(state={"z": np.zeros(2, dtype=complex)})

    with pytest.raises(WireError, match="complex128"):
        start_run(program)


@pytest.mark.usefixtures("always_cut")
def test_an_objective_from_a_sum_can_be_stored(start_run):
    async def program(_start, state):
        n, _ = await Sum(count)
        await Progress(objective=n, kkt=np.float32(0.5), state={"n": n})
        if state is None:
            await Sum(count)

    start_run(program)
    _, driver = start_run(program)
    assert [(r.objective, r.kkt) for r in driver.history] == [(15.0, 0.5)]


# -- roster changes -----------------------------------------------------------------------------


@pytest.mark.parametrize("cut_after", [1, 1 << 24])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kill_after", range(5, 17))
@pytest.mark.parametrize("same_sites", [False, True])
def test_resume_across_a_change_of_roster(
    start_run, connect, three_sites, monkeypatch, program, kill_after, cut_after, same_sites, tmp_path
):
    monkeypatch.setattr(steps_module, "CUT_AFTER", cut_after)

    def losing(request):
        return {"C"} if (request.epoch, request.step) == (0, 5) else set()

    whole, uninterrupted = start_run(program, losing=losing, journal_path=tmp_path / "other")
    assert uninterrupted.roster == ("A", "B")
    connection = connect(three_sites, losing=losing)
    with suppress(Killed):
        start_run(program, connection=connection, kill_after=kill_after)
    if not same_sites:
        connection = connect(three_sites, losing=losing)
    connection.lost = {"C"} if kill_after > 6 else set()  # gone before its loss is in the journal: see the next test
    result, driver = start_run(program, connection=connection)
    assert driver.roster == ("A", "B")
    assert bits(result[:3]) == bits(whole[:3])
    assert result[3:] == whole[3:] or program is plain
    assert (driver.rounds, driver.setup_rounds) == (uninterrupted.rounds, uninterrupted.setup_rounds)
    assert progress_without_bytes(driver) == progress_without_bytes(uninterrupted)
    assert account(driver) == list(uninterrupted.ledger)


@pytest.mark.parametrize("lost_at", [-1, 1, 2, 4])
def test_a_site_missing_when_the_run_is_resumed(start_run, connect, three_sites, lost_at):
    """What was reached with it is replayed first; then the others start from there, and a second resume agrees."""
    with pytest.raises(Killed):
        start_run(remembering, kill_after=8)

    bases = []

    def losing(request):
        return {"C"} if request.step == lost_at else set()

    result, driver = start_run(remembering, losing=losing, callback=lambda record: bases.append(record.basis))
    assert driver.roster == ("A", "B")
    assert [r.sites for r in driver.history] == [3] * 4 + [2] * ROUNDS
    others = {name: three_sites[name] for name in "AB"}
    fresh = Driver(connect(others)).run(lambda _start, _state: remembering(bases[3], None))
    assert bits(result) == bits(fresh)
    again, second = start_run(remembering)
    assert bits(again) == bits(result)
    assert second.roster == ("A", "B")


@pytest.mark.usefixtures("always_cut")
@pytest.mark.parametrize("cut", range(1, 6))
def test_killed_while_cutting(start_run, monkeypatch, path, cut, tmp_path):
    """Before the new file has its name the old one counts; a half-written one beside it is nobody's."""
    whole, uninterrupted = start_run(plain, journal_path=tmp_path / "other")
    replace, left = Path.replace, [cut + 1]  # the first replacement makes the journal itself
    half = path.with_name(f".half.{path.name}")

    def killing(self, target):
        left[0] -= 1
        if left[0] == 0:
            half.write_bytes(self.read_bytes()[:-40])
            raise Killed
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killing)
        with pytest.raises(Killed):
            start_run(plain)
    result, driver = start_run(plain)
    assert bits(result[:3]) == bits(whole[:3])
    assert account(driver) == list(uninterrupted.ledger)
