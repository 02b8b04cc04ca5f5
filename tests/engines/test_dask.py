"""FederatedPCA on real Dask workers, compared with the in-process engine and with scikit-learn."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.engines import dask as dask_engine
from eigenpact.errors import (
    InputError,
    InputTypeError,
    JournalError,
    MissingExtraError,
    ProgramError,
    SiteError,
    TooFewSitesError,
)
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import At, Chain, Connection, Driver, Gather, Local, Max, Outcome, Reply, Sum, local
from tests.engines import conformance
from tests.engines.heap import elsewhere, sites_of, true_replies
from tests.engines.problems import PERSONALIZED, SOLVERS, problem_sites

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.xdist_group("dask")

ROOT = Path(__file__).parents[2]
QUIET = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": ":0", "scheduler_port": 0}


@local(takes={}, sends={"n": ""})
def count(site):
    return np.array(float(site.X.shape[0]))


@local(takes={}, sends={"s": "d"})
def totals(site):
    return site.X.sum(axis=0)


@local(takes={"s": "d"}, sends={"s": "d"})
def pass_on(site, s):
    return 2 * s + site.X.sum(axis=0)


@local(takes={"factor": ""}, sends={}, keeps={"factor": ""})
def remember(site, factor):  # noqa: ARG001
    return Reply(keep={"factor": factor})


@local(takes={}, sends={"s": "d"}, reads=("factor",))
def multiplied(site):
    return site.kept["factor"] * site.X.sum(axis=0)


@local(takes={}, sends={"s": "d"})
def broken(site):
    raise OSError(f"disk of {site.name} is gone")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Three single-threaded worker processes on this machine that know the functions above."""
    with (
        distributed.LocalCluster(n_workers=3, **QUIET) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.run(exec, f"import sys; sys.path.append({str(ROOT)!r}); import {__name__}")
        yield client


def run_on(engine: Any, sites: Any, program: Any) -> tuple[Any, list[Any]]:
    """What a program returns, and the ledger's rows."""
    found = []

    async def once(start: Any, state: Any) -> Any:  # noqa: ARG001
        return await program()

    def job(connection: Connection) -> Outcome:
        driver = Driver(connection)
        found.append((driver.run(once), list(driver.ledger)))
        return Outcome({}, {})

    engine.execute(sites, job)
    return found[0]


# -- the same on every engine -------------------------------------------------------------------


@pytest.mark.parametrize("label", [label for label in SOLVERS if not label.endswith("-proxy")])
def test_same_bits_and_ledger(label: str, client: Any) -> None:
    """Named sites give the same bits and the same ledger as in one process."""
    solver, options = SOLVERS[label]
    expected = ep.FederatedPCA(3, solver=solver, random_state=0, **options).fit(problem_sites())
    pca = ep.FederatedPCA(3, solver=solver, random_state=0, engine=ep.engines.Dask(client), **options).fit(problem_sites())
    for attribute in ("components_", "explained_variance_", "mean_", "scale_"):
        assert np.array_equal(getattr(pca, attribute), getattr(expected, attribute)), attribute
    assert list(pca.ledger_) == list(expected.ledger_)
    assert pca.n_rounds_ == expected.n_rounds_
    assert pca.sites_ == expected.sites_


@pytest.mark.parametrize("options", [("--secure",), ()], ids=["secured", "plain, where the same look finds them"])
def test_the_coordinator_holds_no_reply_of_a_secured_run(options: tuple[str, ...], client: Any, tmp_path: Path) -> None:
    """The client's process, which brought the rows: no reply that is not masked is among what it holds or received."""
    held, _ = elsewhere("dask", client.scheduler.address, tmp_path, "gram", *options)
    needles = true_replies(sites_of(seed=len(options)), "gram", secure=bool(options))
    assert [needle in held for needle in needles] == [not options] * len(needles)


@pytest.mark.parametrize("label", ["gram, secured", "krylov, secured", "personalized, secured", "robust, secured"])
def test_secured_same_bits_and_ledger(label: str, client: Any) -> None:
    """What workers send is masked; the sum is that of one process, to the bit."""
    (case,) = (case for case in conformance.CASES if case.label == label)
    expected = conformance.model(case, "inprocess").fit(problem_sites())
    secured = conformance.model(case, ep.engines.Dask(client)).fit(problem_sites())
    assert conformance.of_model(secured) == conformance.of_model(expected)


@pytest.mark.parametrize("label", PERSONALIZED)
def test_personalized_same_bits_and_ledger(label: str, client: Any) -> None:
    """Global components as in one process; local ones are with the workers, and the error says how to get at them."""
    (case,) = (case for case in conformance.CASES if case.label == label)
    expected = conformance.model(case, "inprocess").fit(problem_sites())
    pca = conformance.model(case, ep.engines.Dask(client)).fit(problem_sites())
    assert conformance.of_model(pca) == conformance.of_model(expected)
    with pytest.raises(ep.errors.EigenpactError, match=r"site 'oslo' is at that site.*local_part"):
        pca.local_components_["oslo"]


def test_personalized_is_orthonormal_after_every_round(client: Any) -> None:
    watched = partial(conformance.orthogonal, ep.solvers.PerPCA())
    found = run_on(ep.engines.Dask(client), problem_sites(), watched)
    expected = run_on(ep.engines.InProcess(), problem_sites(), watched)
    assert 0 < found[0][0].max() <= 1e-12
    assert np.array_equal(found[0][0], expected[0][0])


@pytest.mark.parametrize(("solver", "tol"), [("gram", None), ("gram", 1e-4), ("krylov", 1e-4)])
def test_single_precision_has_the_same_bits(client: Any, solver: str, tol: float | None) -> None:
    """Workers multiply float32 rows as one process does."""
    X = (np.random.default_rng(0).normal(size=(3000, 130)) * 0.9 ** np.arange(130) + 3).astype(np.float32)
    sites = {"A": X[:1500], "B": X[1500:]}
    options: dict[str, Any] = {"solver": solver, "tol": tol, "random_state": 0}
    here = ep.FederatedPCA(5, **options).fit(sites)
    there = ep.FederatedPCA(5, engine=ep.engines.Dask(client), **options).fit(sites)
    assert any(message.function.startswith("rough") for message in there.ledger_)
    assert there.components_.tobytes() == here.components_.tobytes()


def test_a_proxy_is_refused(client: Any) -> None:
    """No site is in the coordinator's process, so none can help without travelling."""
    solver, options = SOLVERS["krylov-proxy"]
    pca = ep.FederatedPCA(3, solver=solver, engine=ep.engines.Dask(client), **options)
    with pytest.raises(InputError, match=r"proxy='oslo' is not a site of the coordinator's own process.*allowed here are none"):
        pca.fit(problem_sites())


def test_every_collective(client: Any) -> None:
    """Each kind gives the same values and the same ledger as in one process; state is kept at the actors."""

    async def program() -> Any:
        await Local(remember, np.array(3.0))
        return [
            await Sum(multiplied),
            await Gather(count),
            await Max(totals),
            await At("lima", totals),
            await Chain(pass_on, np.ones(20)),
        ]

    here, here_ledger = run_on(ep.engines.InProcess(), problem_sites(), program)
    there, there_ledger = run_on(ep.engines.Dask(client), problem_sites(), program)
    np.testing.assert_equal(there, here)
    assert there_ledger == here_ledger


def test_graph_programs_are_refused(client: Any) -> None:
    with pytest.raises(ProgramError, match="graph programs do not run on Dask"):
        ep.engines.Dask(client).execute({"A": np.eye(3)}, lambda _: Outcome({}, {}), graph={"A": ()})


def test_a_failing_function_names_site_and_reason(client: Any) -> None:
    async def program() -> Any:
        return await Sum(broken)

    with pytest.raises(SiteError, match="disk of accra is gone"):
        run_on(ep.engines.Dask(client), problem_sites(), program)


def test_actors_and_rows_are_released(client: Any) -> None:
    """Nothing is left on the workers when a fit is over."""
    ep.FederatedPCA(2, engine=ep.engines.Dask(client)).fit(problem_sites())
    deadline = time.monotonic() + 10
    while any(client.has_what().values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(client.has_what().values())


def test_sparse_sites(client: Any) -> None:
    sites = {name: scipy.sparse.csr_matrix(np.where(X > 1, X, 0)) for name, X in problem_sites().items()}
    here = ep.FederatedPCA(2, random_state=0).fit(sites)
    there = ep.FederatedPCA(2, random_state=0, engine=ep.engines.Dask(client)).fit(sites)
    assert np.array_equal(here.components_, there.components_)


# -- dask arrays and DataFrames -----------------------------------------------------------------


def make_block(block_info: Any = None) -> Any:
    """Rows made where they stay."""
    (start, stop), (low, high) = block_info[None]["array-location"]
    X = np.random.default_rng(start).normal(size=(stop - start, 50)) * np.linspace(5, 1, 50) + np.arange(50)
    return X[:, low:high]


@pytest.fixture
def array(client: Any) -> Any:  # noqa: ARG001
    """60000 x 50 in 12 blocks of rows, and two of columns."""
    return da.map_blocks(make_block, chunks=((5000,) * 12, (30, 20)), dtype=float, meta=np.empty((0, 0)))


def equals_pooled(pca: ep.FederatedPCA, X: Any) -> None:
    expected = PCA(pca.n_components_).fit(X)
    assert largest_sine(pca.components_.T, expected.components_.T) < 1e-8
    np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(pca.mean_, expected.mean_, atol=1e-10)
    assert pca.n_samples_seen_ == len(X)


def test_a_dask_array_is_fitted_where_it_lies(client: Any, array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker's blocks are a site; what this process (with the scheduler in it) receives is far less than the rows."""
    received = 0
    tcp = importlib.import_module("distributed.comm.tcp")
    from_frames = tcp.from_frames

    async def counted(frames: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal received
        received += sum(memoryview(frame).nbytes for frame in frames)
        return await from_frames(frames, *args, **kwargs)

    monkeypatch.setattr(tcp, "from_frames", counted)
    pca = ep.FederatedPCA(3, engine=ep.engines.Dask(client), random_state=0).fit(array)
    assert 0 < received < array.nbytes / 20
    assert pca.sites_ == ("worker-0", "worker-1", "worker-2")
    assert pca.n_features_in_ == 50
    assert not hasattr(pca, "feature_names_in_")
    with client.as_current():
        equals_pooled(pca, array.compute())


def test_many_blocks_cost_no_more_messages_than_few(client: Any) -> None:
    """As many blocks as 64 workers would hold, of unequal sizes, on three: a site is a worker, and so is a message."""
    sizes = tuple(20 + 3 * (i % 7) for i in range(70))
    X = np.random.default_rng(0).normal(size=(sum(sizes), 12)) * np.linspace(5, 1, 12) + 3
    ledgers = []
    for chunks in (sizes, (len(X) // 3, len(X) // 3, len(X) - 2 * (len(X) // 3))):
        pca = ep.FederatedPCA(3, solver="krylov", engine=ep.engines.Dask(client), random_state=0)
        pca.fit(client.persist(da.from_array(X, chunks=(chunks, 12))))
        equals_pooled(pca, X)
        assert set(pca.sites_) <= {"worker-0", "worker-1", "worker-2"}
        ledgers.append(len(pca.ledger_) / len(pca.sites_))
    assert ledgers[0] == ledgers[1] == 2 * (pca.n_rounds_ + pca.n_setup_rounds_)


def test_a_dask_dataframe_is_fitted_where_it_lies(client: Any) -> None:
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    names = [f"f{j}" for j in range(8)]
    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(900, 8)) * np.arange(8, 0, -1), columns=names)
    pca = ep.FederatedPCA(3, engine=ep.engines.Dask(client)).fit(dd.from_pandas(frame, npartitions=7))
    assert list(pca.feature_names_in_) == names
    assert pca.n_features_in_ == 8
    equals_pooled(pca, frame.to_numpy())
    assert pca.transform(frame).shape == (900, 3)


def test_bad_numbers_are_found_at_the_worker(client: Any) -> None:
    """The error names site, column and count."""
    rows = np.ones((60, 4)) * np.arange(60)[:, None]
    rows[17:19, 2] = np.nan
    with pytest.raises(InputError, match=r"site 'worker-\d': column 2 has 2 NaN"):
        ep.FederatedPCA(2, engine=ep.engines.Dask(client)).fit(da.from_array(rows, chunks=(60, 4)))
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame(rows, columns=list("abcd")), npartitions=1)
    with pytest.raises(InputError, match=r"site 'worker-\d': column 'c' has 2 NaN"):
        ep.FederatedPCA(2, engine=ep.engines.Dask(client)).fit(frame)
    text = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), npartitions=1)
    with pytest.raises(InputTypeError, match="'b'"):
        ep.FederatedPCA(1, engine=ep.engines.Dask(client)).fit(text)


def test_what_is_no_table_is_refused(client: Any, array: Any) -> None:
    pca = ep.FederatedPCA(2, engine=ep.engines.Dask(client))
    with pytest.raises(InputError, match="1 dimensions is not a table"):
        pca.fit(array[:, 0])
    with pytest.raises(InputError, match=r"chunk sizes.*are not known.*compute_chunk_sizes"):
        pca.fit(array[array[:, 0] > 0])
    with pytest.raises(InputError, match="leave sites out"):
        pca.fit(da.ones((6, 2), chunks=(3, 2)), sites=list("ababab"))
    with pytest.raises(InputError, match=r"could not be computed.*ZeroDivisionError"):
        pca.fit(da.ones((6, 2), chunks=(3, 2)).map_blocks(lambda block: block / (1 // 0), dtype=float, meta=np.ones((0, 0))))
    with pytest.raises(InputError, match="n_samples=1"):
        pca.fit(da.ones((1, 2)))
    with pytest.raises(InputError, match="at least one row"):
        pca.fit(da.ones((0, 2)))


# -- the description ----------------------------------------------------------------------------


def test_an_engine_can_be_cloned_compared_and_pickled(client: Any) -> None:
    """The client is shared by copies and left out of pickles."""
    engine = ep.engines.Dask(client, min_sites=2)
    assert clone(ep.FederatedPCA(engine=engine)).engine == engine
    assert copy.deepcopy(engine).client is client
    assert engine == ep.engines.Dask(client, min_sites=2) != ep.engines.Dask(client)
    assert pickle.loads(pickle.dumps(engine)) == ep.engines.Dask(min_sites=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_sites": 0}, "min_sites=0 must be at least 1"),
        ({"round_timeout": 0}, "round_timeout=0 must be a number of seconds > 0"),
        ({"client": "tcp://127.0.0.1:8786"}, "for a scheduler's address pass address="),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ep.engines.Dask(**options)


def test_without_a_client_the_current_one_is_used(client: Any) -> None:
    with pytest.raises(InputError, match=r"no current client; pass ep.engines.Dask\(client\)"):
        ep.FederatedPCA(2, engine="dask").fit(problem_sites())
    with client.as_current():
        assert ep.FederatedPCA(2, engine="dask").fit(problem_sites()).sites_ == tuple(sorted(problem_sites()))


def test_workers_are_found_while_the_client_forgets_them(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every two seconds it asks for an answer without workers, and keeps whichever came last."""
    update = client._update_scheduler_info

    async def the_periodic_one_comes_last(**_: Any) -> None:
        await update(n_workers=0)

    monkeypatch.setattr(client, "_update_scheduler_info", the_periodic_one_comes_last)
    assert client.scheduler_info(n_workers=-1)["workers"] == {}
    assert len(dask_engine._workers(client)) == 3


def test_an_address_is_connected_to_for_the_run(client: Any, array: Any) -> None:
    """For rows of this process and for dask arrays."""
    engine = ep.engines.Dask(address=client.scheduler.address)
    assert ep.FederatedPCA(2, engine=engine).fit(problem_sites()).n_samples_seen_ == 310
    assert ep.FederatedPCA(2, engine=engine).fit(array).n_samples_seen_ == 60000


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'eigenpact\[dask\]'"):
        ep.FederatedPCA(2, engine="dask").fit(problem_sites())


def test_tls() -> None:
    """Scheduler, workers and client with certificates."""
    pytest.importorskip("cryptography", reason="temporary certificates need cryptography")
    security = distributed.Security.temporary()
    with (
        distributed.LocalCluster(n_workers=2, protocol="tls://", security=security, **QUIET) as cluster,
        distributed.Client(cluster, security=security, set_as_default=False) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        here = ep.FederatedPCA(3, random_state=0).fit(problem_sites())
        there = ep.FederatedPCA(3, random_state=0, engine=ep.engines.Dask(client)).fit(problem_sites())
        assert np.array_equal(here.components_, there.components_)


# -- faults -------------------------------------------------------------------------------------


@pytest.fixture
def four_workers() -> Iterator[tuple[Any, dict[str, int]]]:
    """A client, and the process ids of four workers without nannies by name."""
    with ExitStack() as stack:
        cluster = stack.enter_context(distributed.LocalCluster(n_workers=0, **QUIET))
        client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        command = [sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--no-nanny", "--no-dashboard"]
        pids = {}
        for i in range(4):
            worker = subprocess.Popen(
                [*command, "--nthreads", "1", "--host", "127.0.0.1", "--name", f"w{i}"], stderr=subprocess.DEVNULL
            )
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            pids[f"w{i}"] = worker.pid
        client.wait_for_workers(4, timeout=60)
        yield client, pids


@pytest.mark.faults
@pytest.mark.parametrize("data", ["rows", "blocks"])
def test_a_killed_worker_is_left_behind(four_workers: tuple[Any, dict[str, int]], data: str) -> None:
    """kill -9 in mid-run: the run ends soon, is exact for the sites that are left, and the ledger names the one that is not."""
    client, pids = four_workers
    rng = np.random.default_rng(3)
    parts = [rng.normal(size=(500, 30)) * np.linspace(4, 1, 30) + 0.1 * i for i in range(4)]
    killed = []

    def kill(record: Any) -> None:
        if record.round == 3:
            os.kill(pids["w2"], signal.SIGKILL)
            killed.append(time.monotonic())

    pca = ep.FederatedPCA(
        3, solver="subspace", tol=1e-12, random_state=0, engine=ep.engines.Dask(client, min_sites=3), callback=kill
    )
    if data == "rows":
        pca.fit({f"w{i}": part for i, part in enumerate(parts)})
    else:
        blocks = [client.persist(da.from_array(part, chunks=-1), workers=[f"w{i}"]) for i, part in enumerate(parts)]
        pca.fit(da.concatenate(blocks))
    assert killed
    assert time.monotonic() - killed[0] < 30
    left = [part for i, part in enumerate(parts) if i != 2]
    assert pca.sites_ == ("w0", "w1", "w3")
    assert largest_sine(pca.components_.T, PCA(3).fit(np.concatenate(left)).components_.T) < 1e-8
    assert any("w2" in str(row) and "ended" in str(row) for row in pca.ledger_)


@pytest.mark.faults
def test_too_few_workers_left_is_a_clear_end(four_workers: tuple[Any, dict[str, int]]) -> None:
    client, pids = four_workers

    def kill(record: Any) -> None:
        if record.round == 3:
            os.kill(pids["w2"], signal.SIGKILL)

    sites = {f"w{i}": np.random.default_rng(i).normal(size=(50, 30)) for i in range(4)}
    pca = ep.FederatedPCA(3, solver="subspace", engine=ep.engines.Dask(client, min_sites=4), callback=kill)
    with pytest.raises(TooFewSitesError) as caught:
        pca.fit(sites)
    assert caught.value.basis.shape == (30, 3)


def test_readable_names() -> None:
    assert [dask_engine._readable(name) for name in (3, "3", "a", "tls://h:1")] == ["worker-3", "worker-3", "a", "h:1"]


def test_rows_that_changed_at_a_worker_are_noticed(client: Any, tmp_path: Path) -> None:
    """A journal's run is replayed over the rows it was written with, wherever they lie, and over no others."""
    rng = np.random.default_rng(3)
    sites = {name: rng.normal(size=(30, 4)) for name in ("A", "B")}

    def fit(rows: Any) -> Any:
        journal = tmp_path / "run"
        return (
            ep.FederatedPCA(2, solver="krylov", random_state=0, engine=ep.engines.Dask(client), journal=journal)
            .fit(rows)
            .components_
        )

    first = fit(sites)
    assert fit(sites).tobytes() == first.tobytes()
    with pytest.raises(JournalError, match="the rows of site 'B' changed"):
        fit(sites | {"B": sites["B"][::-1]})
