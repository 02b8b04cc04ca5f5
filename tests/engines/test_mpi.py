"""FederatedPCA and graph programs on real MPI ranks, compared with the in-process engine; and what happens when a rank fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.engines import InProcess
from tests.engines import conformance
from tests.engines.heap import sites_of, true_replies
from tests.engines.mpi_pool import Pool
from tests.engines.problems import problem_sites

pytest.importorskip("mpi4py")

pytestmark = pytest.mark.xdist_group("mpi")

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
WITH_ABORT = ("-m", "mpi4py")
"""How to start Python so that an exception on one rank ends the job."""
POOLED = 7
"""Ranks for all jobs that neither fail nor kill: two more than there are sites."""


def mpiexec(ranks: int, *arguments: str, folder: Path, start: tuple[str, ...] = WITH_ABORT) -> subprocess.Popen[str]:
    """Start a Python program on this many ranks of this machine."""
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_sm_backing_directory": str(folder),  # a killed rank leaves its shared memory behind
        "OMPI_MCA_mpi_yield_when_idle": "1",  # other tests run beside
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    command = [str(MPIEXEC), "--oversubscribe", "-n", str(ranks), sys.executable, *start, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


HEAD = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
import eigenpact as ep
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> Iterator[Pool]:
    """As many ranks as the largest job needs, for all jobs that neither fail nor kill."""
    folder = tmp_path_factory.mktemp("pool")
    made = Pool(partial(mpiexec, POOLED, folder=folder), folder)
    yield made
    made.close()


def run_in(pool: Pool, folder: Path, ranks: int, code: str, *arguments: object, timeout: float = 120):
    """Run a script on ranks of the pool; it finds ``np``, ``ep``, ``comm`` and ``rank``."""
    script = folder / "job.py"
    script.write_text(HEAD + textwrap.dedent(code))
    return pool.run(ranks, script, *map(str, arguments), timeout=timeout)


@pytest.fixture
def job(pool: Pool, tmp_path: Path):
    """job(ranks, code, *arguments): see ``run_in``."""
    return partial(run_in, pool, tmp_path)


@pytest.fixture
def own_job(tmp_path: Path):
    """The same, by an mpiexec of its own; a job that hangs fails the test."""

    def run(ranks: int, code: str, *arguments: object, timeout: float = 60, start: tuple[str, ...] = WITH_ABORT):
        script = tmp_path / "job.py"
        script.write_text(HEAD + "comm = MPI.COMM_WORLD\nrank = comm.rank\n" + textwrap.dedent(code))
        with mpiexec(ranks, str(script), *map(str, arguments), folder=tmp_path, start=start) as process:
            try:
                said = process.communicate(timeout=timeout)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, *said)

    return run


@pytest.fixture(scope="module")
def in_process() -> dict[str, conformance.Answer]:
    """Every case's answer in one process."""
    return conformance.suite(conformance.on(InProcess(threads=1), problem_sites()))


LOOK = """
from pathlib import Path
from eigenpact.engines import mpi
from tests.engines.heap import looked_at, sites_of
secure = sys.argv[2] == "secured"
if rank:
    sites = {name: X for i, (name, X) in enumerate(sites_of(seed=7 + secure).items()) if i % 2 == rank - 1}
    ep.FederatedPCA(3, solver="gram", random_state=0, engine=ep.engines.MPI(), secure=secure).fit(sites)
else:
    looked_at(ep.engines.MPI(), mpi, "receive", Path(sys.argv[1]), "gram", secure)
"""


@pytest.mark.parametrize("sums", ["secured", "plain"])
def test_rank_0_holds_no_reply_of_a_secured_run(job, tmp_path: Path, sums: str) -> None:
    """Rank 0, which has no site here; of a plain run the same look finds all."""
    secure = sums == "secured"
    done = job(3, LOOK, tmp_path / "held.bytes", sums)
    assert done.returncode == 0, done.stderr
    held, needles = (tmp_path / "held.bytes").read_bytes(), true_replies(sites_of(seed=7 + secure), "gram", secure)
    assert [needle in held for needle in needles] == [not secure] * len(needles)


@pytest.mark.parametrize(
    ("ranks", "placements"),
    [(1, ["dealt"]), (2, ["dealt"]), (4, ["reversed", "pairs", "last"]), (POOLED, ["dealt"])],
)
def test_same_bits_and_ledger_on_ranks(ranks: int, placements: list[str], in_process, job, tmp_path: Path) -> None:
    """Named sites give the same bits and ledger on any number of ranks, also more than sites, whichever rank holds which."""
    done = job(ranks, "from tests.engines.mpi_job import main; main(comm, sys.argv[1], sys.argv[2:])", tmp_path, *placements)
    assert done.returncode == 0, done.stderr
    for placement in placements:
        found = json.loads((tmp_path / f"{placement}.json").read_text())
        assert conformance.differences(found, in_process) == [], placement
        needing_own = {case.label for case in conformance.CASES if case.own is not None}
        assert set(in_process) - set(found) == (needing_own if placement == "last" else set())


def test_local_parts_are_on_the_rank_of_their_site(job) -> None:
    """Every rank has the local components of its own sites, with the bits of one process, and an error for the others."""
    done = job(
        2,
        """
        from eigenpact.errors import SiteElsewhereError
        from tests.engines.problems import problem_sites
        mine = {name: X for i, (name, X) in enumerate(problem_sites().items()) if i % 2 == rank}
        options = {"n_global": 2, "n_local": 2, "random_state": 0}
        pca = ep.PersonalizedPCA(engine="mpi", **options).fit(mine)
        alone = ep.PersonalizedPCA(**options).fit(problem_sites())
        assert set(pca.local_components_) == set(mine)
        for name in problem_sites():
            try:
                assert pca.local_components_[name].tobytes() == alone.local_components_[name].tobytes()
                assert name in mine
            except SiteElsewhereError:
                assert name not in mine
        assert pca.transform(mine[next(iter(mine))], site=next(iter(mine))).shape[1] == 4
        """,
    )
    assert done.returncode == 0, done.stderr


REFUSALS_JOB = """
    import json
    import pandas
    from eigenpact.engines import MPI as Engine, mpi
    from eigenpact.errors import EigenpactError
    from eigenpact.numerics.site_rows import SiteRows
    from eigenpact.runtime import Driver, Exchange, Max, Outcome, Sum, local

    @local(sends={"rows": "n d"})
    def rows(site):
        return site.X

    @local(sends={"rows": "n d"})
    def rows_unless_c(site):
        if site.name == "c":
            raise OSError("disk of c is gone")
        return site.X

    @local(sends={"received": ""})
    def received(site):
        return float(sum(X.sum() for (X,) in site.inbox.values()))

    def fit(X, **options):
        ep.FederatedPCA(2, engine="mpi", **options).fit(X)

    def features():
        fit({f"site{rank}": np.ones((5, 3 + rank)) * np.arange(5)[:, None]})

    def names():
        fit({"A": np.eye(4)})

    def local_function():  # while others send replies too large to be buffered
        def broken(self):
            raise OSError("disk of site1 is gone")
        scatter = SiteRows.scatter_triangle
        if rank == 1:
            SiteRows.scatter_triangle = broken
        try:
            fit({f"site{rank}": np.random.default_rng(rank).normal(size=(30, 700))}, solver="gram")
        finally:
            SiteRows.scatter_triangle = scatter

    def reply():  # likewise
        async def program(start, state):
            await Sum(rows)
        Engine().execute({f"site{rank}": np.ones((1000 + rank, 100))}, lambda connection: Driver(connection).run(program))

    def proxy():
        fit({f"site{rank}": np.random.default_rng(rank).normal(size=(30, 5))}, solver=ep.solvers.Krylov(proxy="site1"))

    def exchange(function=rows, graph={"a": ("b", "c"), "b": ("a",), "c": ("a",)}):
        async def program(start, state):
            await Exchange(function)
            return await Max(received)

        def run(connection):
            driver = Driver(connection, graph=graph)
            return Outcome({"largest": driver.run(program)}, {}, driver.ledger)

        sites = {name: np.full((300, 400), float(i)) for i, name in enumerate("abc") if rank == i + 1}  # rank 0 has none
        return Engine().execute(sites, run, graph=graph)

    def node():
        exchange(rows_unless_c)

    def graphs():
        exchange(graph={"a": ("b",), "b": ("a", "c"), "c": ("b",)} if rank == 2 else None)

    def edges():
        exchange(graph={"a": ("b",), "b": ("a", "z"), "c": ("b",)})

    def table(columns):  # a DataFrame; rank 1 has other columns
        values = np.random.default_rng(rank).normal(size=(9, 3))
        fit({f"site{rank}": pandas.DataFrame(values, columns=list(columns if rank == 1 else "abc"))})

    def order():
        table("acb")

    def columns():
        table("abz")

    def parameters():
        gamma, solver = 0.2 if rank == 1 else 0.1, ep.solvers.RandomFeatures(32)
        pca = ep.GraphKernelPCA(1, gamma=gamma, graph="ring:2", engine="mpi", solver=solver)
        pca.fit({f"n{rank}": np.random.default_rng(rank).normal(size=(20, 3))})

    told = {}
    for refused in (features, names, local_function, reply, proxy, node, graphs, edges, order, columns, parameters):
        try:
            refused()
            told[refused.__name__] = "nothing was refused"
        except EigenpactError as error:
            told[refused.__name__] = str(error)

    came, receive = [], mpi.receive
    def counted(*args):
        data = receive(*args)
        came.append(len(data))
        return data
    mpi.receive = counted
    outcome = exchange()  # the ranks still understand each other
    mpi.receive = receive
    sent = sum(m.bytes for m in outcome.ledger if m.function == "rows")
    everyone = comm.gather(told)
    if rank == 0:
        result = {"largest": float(outcome.arrays["largest"]), "sent": sent, "came": sum(came)}
        print(json.dumps({"told": everyone, "exchange": result}))
"""


@pytest.fixture(scope="module")
def refusals(pool, tmp_path_factory):
    """What each of four ranks is told about runs that are refused or fail, one after the other in one job."""
    done = run_in(pool, tmp_path_factory.mktemp("refusals"), 4, REFUSALS_JOB)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("what", "reasons"),
    [
        ("features", ["site 'site0' has 3 features but 'site1' has 4"]),
        ("names", ["site 'A' is on rank 0 and on rank 1"]),
        ("local_function", ["disk of site1 is gone", "scatter_triangle"]),
        ("reply", ["site 'site0' sends shape (1000, 100) and 'site1' (1001, 100)"]),
        ("proxy", ["proxy='site1' is not a site of the coordinator's own process", "allowed here are site0"]),
        ("node", ["disk of c is gone", "rows_unless_c"]),
        ("graphs", ["rank 2 was given another graph than rank 0"]),
        ("edges", ["the graph's nodes and the sites differ in ['z']"]),
        # instead of adding up what does not belong together
        ("order", ["the features of ranks 0 and 1 are in another order"]),
        ("columns", ["the features of ranks 0 and 1 differ in ['c', 'z']"]),
        # every rank builds its models by its own: with another gamma they would be wrong, and nothing would say so
        ("parameters", ["the parameters of ranks 0 and 1 differ in gamma (gamma: 0.1 and 0.2); pass the same on every rank"]),
    ],
)
def test_every_rank_is_told_why_a_run_ends(refusals, what: str, reasons: list[str]) -> None:
    """Nobody hangs, also where other ranks are still sending much, and the ranks can go on with another run."""
    for rank, told in enumerate(refusals["told"]):
        assert all(reason in told[what] for reason in reasons), (rank, told[what])


def test_messages_between_nodes_do_not_pass_through_rank_0(refusals) -> None:
    """Of four messages of a megabyte only the shapes reach rank 0, and the ledger has their bytes."""
    exchange = refusals["exchange"]
    assert exchange["largest"] == 300 * 400 * (1.0 + 2.0)
    assert exchange["sent"] == 4 * 300 * 400 * 8
    assert exchange["came"] < 10_000


@pytest.mark.parametrize(("when", "start"), [("before", WITH_ABORT), ("after", ())])
def test_a_rank_that_fails_outside_the_fit_ends_the_job(own_job, when: str, start: tuple[str, ...]) -> None:
    """An exception in a rank's own script ends all: with ``python -m mpi4py`` at any time, else once the engine was used."""
    code = """
        def fit():
            ep.FederatedPCA(2, engine="mpi").fit({f"site{rank}": np.diag([3.0, 2.0, 1.0, rank])})
        if "after" in sys.argv:
            fit()
        if rank == 1:
            raise OSError("rank 1 cannot read its file")
        fit()
    """
    done = own_job(2, code, when, start=start)
    assert done.returncode != 0
    assert "rank 1 cannot read its file" in done.stderr


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_fails_between_requests_ends_the_job(own_job, who: int) -> None:
    """A failure that is no local function's ends the job with a traceback, even without ``python -m mpi4py``."""
    code = """
        from eigenpact.runtime import wire
        pack, calls = wire.pack, []
        def broken(*args):
            calls.append(args)
            if len(calls) == 5:
                raise MemoryError("no room for a message")
            return pack(*args)
        if rank == int(sys.argv[1]):
            wire.pack = broken
        X = np.random.default_rng(rank).normal(size=(30, 5))
        ep.FederatedPCA(2, solver="subspace", engine="mpi").fit({f"site{rank}": X})
    """
    done = own_job(2, code, who, start=())
    assert done.returncode != 0
    assert "no room for a message" in done.stderr
    assert f"rank {who} failed as told above; the whole job ends" in done.stderr


KILLED_JOB = """
    import json
    from tests.engines import conformance
    from tests.engines.problems import problem_sites

    journal, victim, solver = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    pids = comm.allgather(os.getpid())
    opened = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)

    def callback(record):
        if record.round == (2 if solver == "krylov" else 5) and victim >= 0:
            os.kill(pids[victim], signal.SIGKILL)

    sites = {name: X for i, (name, X) in enumerate(problem_sites().items()) if i % comm.size == rank}
    options = {"solver": solver, "tol": 1e-10, "random_state": 0, "engine": "mpi", "callback": callback}
    pca = ep.FederatedPCA(3, journal=None if journal == "none" else journal, **options).fit(sites)
    assert (journal in opened) == (rank == 0 and journal != "none"), opened
    if rank == 0:
        print(json.dumps(conformance.of_model(pca)))
"""


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, conformance.Answer]:
    """The answers of runs that nobody kills."""
    return {
        solver: conformance.of_model(ep.FederatedPCA(3, solver=solver, tol=1e-10, random_state=0).fit(problem_sites()))
        for solver in ("subspace", "krylov")
    }


@pytest.mark.faults
@pytest.mark.parametrize(("victim", "solver"), [(2, "subspace"), (0, "subspace"), (3, "krylov")])
def test_a_killed_rank_ends_the_job_which_resumes_from_its_journal(own_job, tmp_path, uninterrupted, victim, solver) -> None:
    """kill -9 of a serving rank, or of rank 0, in mid-run: a clear end; the same job again has the bits of one never killed."""
    journal = tmp_path / "journal"
    killed = own_job(4, KILLED_JOB, journal, victim, solver)
    assert killed.returncode != 0
    assert killed.stdout == ""
    assert f"rank {victim}" in killed.stderr
    assert "signal 9 (Killed)" in killed.stderr
    assert journal.stat().st_size > 0
    again = own_job(4, KILLED_JOB, journal, -1, solver)
    assert again.returncode == 0, again.stderr
    found, expected = json.loads(again.stdout), uninterrupted[solver]
    resent = [row for row in found["ledger"] if row[-1] == "resent"]
    assert resent  # the sites were told again what they must remember
    found["ledger"] = [row for row in found["ledger"] if row not in resent and "rows_digest" not in row]
    assert found == expected


def test_rows_that_changed_at_another_rank_are_noticed(job, tmp_path) -> None:
    """Every rank hears which site it is; a site that is no longer there is left out of the replay's questions."""
    code = """
        import json
        path = sys.argv[1]
        X = np.random.default_rng(rank).normal(size=(20, 4))

        def told(change):
            sites = {f"s{rank}": X[::-1] if change == "order" and rank == 1 else X}
            if change == "gone" and rank == 1:
                sites = {}  # serves none
            try:
                pca = ep.FederatedPCA(2, solver="krylov", random_state=0, engine="mpi", journal=path).fit(sites or None)
                return pca.components_.tobytes().hex()
            except ep.errors.EigenpactError as error:
                return f"{type(error).__name__}: {error}"

        everyone = comm.gather({change: told(change) for change in ("first", "same", "order", "gone")})
        if rank == 0:
            print(json.dumps(everyone))
    """
    done = job(2, code, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for told in (ranks := json.loads(done.stdout)):
        assert told["first"] == told["same"] == told["gone"] == ranks[0]["first"]
        assert "Error" not in told["first"]
        assert "the rows of site 's1' changed" in told["order"]
    assert "JournalError: " in ranks[0]["order"]
    assert "stopped by rank 0: JournalError" in ranks[1]["order"]


def test_auto_is_measured_on_rank_0_and_chooses_the_same_after_a_resume(job, tmp_path) -> None:
    """One site is factorized only where it is rank 0's own; with a journal the second run chooses as the first."""
    code = """
        import json
        X = np.random.default_rng(0).normal(size=(40, 500)) * np.linspace(3, 1, 500)

        def fitted(where, journal=None):
            sites = {f"s{rank}": X[20 * rank : 20 * rank + 20]} if where == "both" else {"s": X} if rank == int(where) else None
            pca = ep.FederatedPCA(2, random_state=0, engine="mpi", journal=journal).fit(sites)
            return pca.solver_, pca.components_.tobytes().hex(), [row["solver"] for row in pca.solver_choice_]

        told = {where: [fitted(where, f"{sys.argv[1]}{where}") for _ in range(2)] for where in ("0", "1", "both")}
        everyone = comm.gather(told)
        if rank == 0:
            print(json.dumps(everyone))
    """
    done = job(2, code, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)
    assert ranks[0] == ranks[1]
    assert all(first == again for first, again in ranks[0].values())
    assert ranks[0]["0"][0][0] == "row-gram"
    assert ranks[0]["1"][0][2] == ranks[0]["both"][0][2] == ["gram", "krylov"]


@pytest.mark.faults
@pytest.mark.crowded
def test_many_ranks_on_few_cores(own_job) -> None:
    """40 sites on 32 ranks, far more than there are cores."""
    code = """
        from tests.engines import conformance
        def rows(i):
            return np.random.default_rng(i).normal(size=(20, 8)) * np.arange(1, 9)
        sites = {f"site{i:02}": rows(i) for i in range(40)}
        options = {"solver": "krylov", "random_state": 0}
        mine = {name: X for i, (name, X) in enumerate(sites.items()) if i % comm.size == rank}
        pca = ep.FederatedPCA(2, engine="mpi", **options).fit(mine)
        if rank == 0:
            assert conformance.of_model(pca) == conformance.of_model(ep.FederatedPCA(2, **options).fit(sites))
            print(comm.size, len(pca.sites_))
    """
    done = own_job(32, code, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["32", "40"]


GRAPH_JOB = """
    count = int(sys.argv[2])
    rng = np.random.default_rng(0)
    nodes = {f"n{j}": rng.normal(size=(60 + j % 3, 4)) * [4, 2, 0.5, 0.5] for j in range(count)}
    mine = {name: rows for i, (name, rows) in enumerate(nodes.items()) if i % comm.size == rank}
    shared = {"graph": "ring:8" if count > 9 else "ring:4", "random_state": 0}
    fits = {
        "kernel": ep.GraphKernelPCA(2, gamma=0.01, solver=ep.solvers.ProjectionConsensus(centring_features=1024), **shared),
        "linear": ep.GraphPCA(2, **shared),
        "features": ep.GraphKernelPCA(2, gamma=0.01, solver=ep.solvers.RandomFeatures(32), **shared),
    }

    def fit(engine, held):
        scores = {}
        for label, pca in fits.items():
            pca.set_params(engine=engine).fit(held)
            assert pca.converged_, pca.stop_reason_
            assert set(pca.models_ if label != "linear" else pca.node_components_) == set(held)
            for name in held:
                scores[f"{label} {name}"] = pca.transform(nodes["n0"], site=name)
            scores[f"{label} messages"] = np.array([len(list(pca.ledger_)), sum(m.bytes for m in pca.ledger_)])
            for absent in nodes.keys() - held.keys():
                try:
                    pca.transform(nodes["n0"], site=absent)
                except ep.errors.EigenpactError as error:
                    assert "not in this process" in str(error)
                else:
                    raise AssertionError("a result of another rank's node")
        np.savez(f"{sys.argv[1]}/{engine}-{rank}.npz", **scores)

    fit("mpi", mine)
    if rank == 0:
        fit("inprocess", nodes)
"""


@pytest.mark.parametrize(("ranks", "nodes"), [(3, 5), pytest.param(20, 20, marks=pytest.mark.paper)])
def test_graph_estimators_on_ranks_equal_one_process(job, own_job, tmp_path: Path, ranks: int, nodes: int) -> None:
    """Two components each, at every method's own tolerance: what a node finds is what it finds in one process."""
    done = (job if ranks <= POOLED else own_job)(ranks, GRAPH_JOB, tmp_path, nodes, timeout=500)
    assert done.returncode == 0, done.stderr
    (alone,) = (np.load(path) for path in tmp_path.glob("inprocess-*.npz"))
    spread = [np.load(path) for path in tmp_path.glob("mpi-*.npz")]
    assert len(spread) == ranks
    assert {name for found in spread for name in found} == set(alone)
    for found in spread:
        for name in found:
            np.testing.assert_allclose(found[name], alone[name], rtol=0, atol=1e-10)
