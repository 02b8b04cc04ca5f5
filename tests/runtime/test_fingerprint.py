"""The digest of a site's rows: what changes it, who may ask for it, and what the accounts say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from eigenpact.errors import JournalError, PolicyError, WireError
from eigenpact.runtime import Driver, Journal, MailConnection, Request, SiteEndpoint, SiteServer, fingerprint, read_site_ledger
from eigenpact.runtime.fingerprint import ASIDE, DIGEST, digest_of, rows_digest
from tests.runtime.programs import bits, plain, remembering
from tests.runtime.test_mail import LoopPost
from tests.runtime.test_policy import PLAN, POLICY, asks, connection, gate_of, request, served

KEY = bytes(range(32))
X = np.random.default_rng(0).normal(size=(50, 7))
SPARSE = scipy.sparse.random(60, 9, density=0.3, format="csr", random_state=0)
ABOUT = {"solver": "toy"}


def asked(run: str = "r1", **changes) -> Request:
    """A request for the digest."""
    return Request(
        **{"run": run, "epoch": 0, "step": ASIDE, "kind": DIGEST, "function": rows_digest.name} | changes, args=(KEYS,)
    )


KEYS = np.frombuffer(KEY, dtype=np.uint8)


# -- the digest itself --------------------------------------------------------------------------


def test_one_value_the_order_the_dtype_and_the_names_count():
    changed = X.copy()
    changed[17, 3] = np.nextafter(changed[17, 3], np.inf)
    zero = np.where(X < -1, 0.0, X)
    several = {
        "value": digest_of(changed, KEY),
        "order": digest_of(X[np.r_[1, 0, 2:50]], KEY),
        "columns": digest_of(X[:, ::-1], KEY),
        "dtype": digest_of(X.astype(np.float32), KEY),
        "shape": digest_of(X.reshape(25, 14), KEY),
        "sparse": digest_of(scipy.sparse.csr_array(X), KEY),
        "key": digest_of(X, KEY[::-1]),
        "site": digest_of(X, KEY, "A"),
        "features": digest_of(X, KEY, features=tuple("abcdefg")),
        "other features": digest_of(X, KEY, features=tuple("abcdegf")),
        "zero": digest_of(zero, KEY),
        "minus zero": digest_of(np.where(zero == 0, -0.0, zero), KEY),
        "none": digest_of(X[:0], KEY),
        "none, of float32": digest_of(X[:0].astype(np.float32), KEY),
        "itself": digest_of(X, KEY),
    }
    assert len(set(several.values())) == len(several)
    assert {len(digest) for digest in several.values()} == {16}


def test_where_and_how_the_rows_are_stored_does_not_count(tmp_path):
    np.save(tmp_path / "X.npy", X)
    stored = [np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], np.load(tmp_path / "X.npy", mmap_mode="r")]
    assert {digest_of(rows, KEY) for rows in stored} == {digest_of(X, KEY)}


def test_rows_of_torch_are_those_of_numpy():
    torch = pytest.importorskip("torch")
    assert digest_of(torch.asarray(X), KEY) == digest_of(X, KEY)


class OnDevice:
    """Rows that numpy cannot read before they are copied, by the method that the library has for it."""

    def __init__(self, rows, method):
        self.rows, self.method, self.shape = rows, method, rows.shape
        setattr(self, method, lambda: rows)

    def __getitem__(self, index):
        return OnDevice(self.rows[index], self.method)

    def __array__(self, *_args, **_options):
        raise TypeError("on the device")


@pytest.mark.parametrize("method", ["cpu", "get"])
def test_rows_on_a_device_are_copied_in_blocks(method):
    assert digest_of(OnDevice(X, method), KEY) == digest_of(X, KEY)


def test_rows_of_zarr_are_those_of_numpy(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(store=str(tmp_path / "X.zarr"), shape=X.shape, chunks=(8, 7), dtype=X.dtype)
    array[:] = X
    assert digest_of(array, KEY) == digest_of(X, KEY)


def test_a_sparse_matrix_counts_by_its_entries():
    shuffled = SPARSE.copy()
    for first, last in zip(shuffled.indptr, shuffled.indptr[1:], strict=False):
        shuffled.indices[first:last], shuffled.data[first:last] = (
            shuffled.indices[first:last][::-1],
            shuffled.data[first:last][::-1],
        )
    shuffled.has_sorted_indices = shuffled.has_canonical_format = False
    before = shuffled.indices.copy()
    wide = SPARSE.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    same = [shuffled, wide, scipy.sparse.csr_array(SPARSE), SPARSE.tocsc()]
    assert {digest_of(rows, KEY) for rows in same} == {digest_of(SPARSE, KEY)}
    assert shuffled.indices.tolist() == before.tolist()  # left as they were
    moved = SPARSE.copy()
    moved.data[:2] = moved.data[:2][::-1]
    assert digest_of(moved, KEY) != digest_of(SPARSE, KEY)
    assert digest_of(SPARSE[::-1], KEY) != digest_of(SPARSE, KEY)


@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "sparse"])
def test_blocks_do_not_count(rows, monkeypatch):
    whole = digest_of(rows, KEY)
    for size in (1, 200, 1000):
        monkeypatch.setattr(fingerprint, "PIECE_BYTES", size)
        assert digest_of(rows, KEY) == whole


# -- at the site --------------------------------------------------------------------------------


def test_asking_for_it_is_no_step():
    """Position, kept state and the cached reply stay as they are."""
    server = SiteServer("A", X[:, :3])
    server.execute(request(1, "remember", kind="local"), 0)
    (digest,) = server.execute(asked(), 0).arrays
    assert digest.tobytes() == digest_of(X[:, :3], KEY, "A")
    assert server.position("r1", 0) == 1
    server.execute(asked(run="r2", epoch=5), 0)
    assert server.execute(request(2, "remembered"), 1).arrays[0] == 1


@pytest.mark.parametrize("policed", [False, True])
def test_nothing_else_runs_beside_the_steps(tmp_path, policed):
    server = served(gate_of(tmp_path)) if policed else SiteServer("A", X[:, :3])
    with pytest.raises(WireError, match="does not run beside the steps"):
        server.execute(replace(request(1, "remembered"), kind=DIGEST), 0)
    with pytest.raises(WireError, match="declared is"):
        server.execute(replace(asked(), args=(KEYS[:5],)), 0)


def test_a_gate_lets_it_pass_only_if_it_was_announced(tmp_path):
    """It needs no listing, and counts as a reply; as part of a sum it is refused."""
    server = served(gate_of(tmp_path))
    server.admit("r1", PLAN.to_dict())
    with pytest.raises(PolicyError, match=r"rule plan: .*rows_digest"):
        server.execute(asked(), 0)
    announced = replace(PLAN, functions=(*PLAN.functions, rows_digest.name), kinds=(*PLAN.kinds, DIGEST))
    server.admit("r1", announced.to_dict())
    with pytest.raises(PolicyError, match=r"rule functions: .*rows_digest"):
        server.execute(asked(kind="sum", step=1), 0)
    for _ in range(POLICY.max_rounds):
        server.execute(asked(), 0)
    with pytest.raises(PolicyError, match="rule max_rounds = 6"):
        server.execute(asked(), 0)
    row = next(row for row in read_site_ledger(tmp_path / "ledger.jsonl") if row["what"] == "sent")
    told = ("to", "kind", "function", "step", "shapes", "dtypes", "bytes")
    assert [row[key] for key in told] == ["coordinator", "digest", rows_digest.name, 0, [[16]], ["uint8"], 16]


def test_a_site_may_refuse_runs_with_a_journal(tmp_path):
    policies = {"a": POLICY, "b": replace(POLICY, allow_digest=False)}
    Driver(connection(tmp_path, policies, []), plan=PLAN, min_sites=2).run(asks)
    journal = Journal(tmp_path / "run", ABOUT)
    with pytest.raises(PolicyError, match="refused before round 1 by b: rule allow_digest = false"):
        Driver(connection(tmp_path, policies, []), plan=PLAN, min_sites=2, journal=journal)
    journal.close()


def test_a_run_with_a_journal_between_sites_with_policies(tmp_path):
    """The sites' own ledgers have a row for every time they were asked."""
    for sent in (1, 2):
        journal = Journal(tmp_path / "run", ABOUT)
        driver = Driver(connection(tmp_path, {"a": POLICY, "b": POLICY}, []), plan=PLAN, journal=journal)
        driver.run(asks)
        journal.close()
        rows = [row for row in read_site_ledger(tmp_path / "b") if row.get("kind") == DIGEST]
        assert [row["what"] for row in rows] == ["sent"] * sent
    assert journal.key.hex() not in (tmp_path / "b").read_text()


# -- over messages, and in the coordinator's account --------------------------------------------


def mailed(sites, journal):
    post = LoopPost({name: SiteEndpoint(SiteServer(name, rows)) for name, rows in sites.items()})
    return Driver(MailConnection(post, sites, round_timeout=1.0), journal=journal)


def test_over_messages(three_sites, tmp_path):
    journal = Journal(tmp_path / "run", ABOUT)
    first = mailed(three_sites, journal).run(remembering)
    journal.close()
    for sites, match in [
        (three_sites, None),
        (three_sites | {"B": three_sites["B"][::-1]}, "rows of site 'B' changed"),
        (three_sites | {"A": three_sites["C"], "C": three_sites["A"]}, "rows of sites 'A', 'C' changed"),
    ]:
        journal = Journal(tmp_path / "run", ABOUT)
        content = (tmp_path / "run").read_bytes()
        if match is None:
            assert bits(mailed(sites, journal).run(remembering)) == bits(first)
        else:
            with pytest.raises(JournalError, match=match):
                mailed(sites, journal).run(remembering)
        journal.close()
        assert (tmp_path / "run").read_bytes() == content


def test_only_a_journal_changes_what_is_sent(connect, three_sites, tmp_path):
    """One row down and one up for each site, noted as set-up, and no round."""
    without = Driver(connect(three_sites))
    result = without.run(plain)
    journal = Journal(tmp_path / "run", ABOUT)
    driver = Driver(connect(three_sites), journal=journal)
    assert bits(driver.run(plain)) == bits(result)
    journal.close()
    assert (driver.rounds, driver.setup_rounds) == (without.rounds, without.setup_rounds)
    rows = list(driver.ledger)
    assert [(m.function, m.sender, m.receiver, m.bytes, m.note, m.round, m.step) for m in rows[:6]] == [
        *[("rows_digest", "coordinator", name, 32, "setup", 0, 0) for name in "ABC"],
        *[("rows_digest", name, "coordinator", 16, "setup", 0, 0) for name in "ABC"],
    ]
    assert rows[6:] == list(without.ledger)


def test_equal_rows_at_two_sites_or_in_two_runs_have_other_digests(connect, tmp_path):
    found = set()
    for run in "12":
        journal = Journal(tmp_path / run, ABOUT)
        Driver(connect({"A": X[:, :3], "B": X[:, :3]}), journal=journal).run(plain)
        journal.close()
        journal = Journal(tmp_path / run, ABOUT)
        found |= set(journal.upcoming("rows").facts["digests"].values())
        journal.close()
    assert len(found) == 4


def test_a_site_that_comes_back_may_have_other_rows(connect, three_sites, tmp_path):
    """The epoch begins with its set-up, so the answer is of the rows of now; and those are what a replay asks for."""

    def session(sites, losing=None):
        connection = connect(sites, losing=losing)

        def callback(record):
            if losing and record.sites == 2 and record.round >= 5:
                connection.inner._servers["C"] = SiteServer("C", fresh["C"])
                connection.lost.discard("C")

        journal = Journal(tmp_path / "run", ABOUT)
        try:
            return Driver(connection, journal=journal, callback=callback).run(remembering)
        finally:
            journal.close()

    fresh = three_sites | {"C": three_sites["C"] + 1.0}
    result = session(three_sites, lambda request: {"C"} if (request.epoch, request.step) == (0, 5) else set())
    np.testing.assert_allclose(result[1], np.vstack(list(fresh.values())).mean(axis=0))
    assert bits(session(fresh)) == bits(result)
    with pytest.raises(JournalError, match="rows of site 'C' changed"):
        session(three_sites)


@pytest.mark.parametrize("again", [False, True])
def test_a_site_lost_when_asked_is_left_out(connect, three_sites, tmp_path, again):
    """When the run begins, or when it is resumed before its first step."""
    others = {name: three_sites[name] for name in "AB"}
    silent = [not again]

    def losing(request):
        return {"C"} if request.kind == DIGEST and silent[0] else set()

    if again:
        journal = Journal(tmp_path / "run", ABOUT)
        Driver(connect(three_sites), journal=journal)._steps.begin_epoch()
        journal.close()
        silent[0] = True
    journal = Journal(tmp_path / "run", ABOUT)
    driver = Driver(connect(three_sites, losing=losing), journal=journal)
    assert bits(driver.run(plain)) == bits(Driver(connect(others)).run(plain))
    journal.close()
    assert driver.roster == ("A", "B")
    assert [m.note for m in driver.ledger if not m.function] == ["lost"]
