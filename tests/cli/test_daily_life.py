"""What goes wrong in the daily life of a federation: each a line that names the party and the remedy, and nothing left behind.

``EIGENPACT_MOMENTS`` is the number of moments of every command at which Ctrl-C is pressed: 3, or 20 by ``make test-stops``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.estimators.model_files import load_model
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import read_site_ledger

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.cli.daily import Command, Life, rows
from tests.engines.federation import with_argument

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("daily-life")]

MOMENTS = int(os.environ.get("EIGENPACT_MOMENTS", "3"))
EXACT = "exact_replies = false", "exact_replies = true"
"""With it the answer is, to the bit, that of one process."""

SLOW = ("-k", "2", "--solver", "subspace", "--max-rounds", "500", "--tol", "1e-13")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Two sites whose sums are plain."""
    made = Life(tmp_path_factory.mktemp("life"), ("north", "south"))
    for name in ("north", "south"):
        policy = made.kit(name) / "policy.toml"
        policy.write_text(policy.read_text().replace(*EXACT))
    try:
        yield made
    finally:
        made.stop()


def lasted(command: Command, text: str | Callable[[], bool]) -> float:
    """Seconds until it came to that."""
    begin = time.monotonic()
    command.until(text)
    return time.monotonic() - begin


def one_line(printed: str) -> str:
    """The last words of a command that was stopped."""
    (line,) = [line for line in printed.splitlines() if "stopped" in line]
    return line


def test_ctrl_c_while_a_site_waits_for_a_coordinator(life: Life) -> None:
    """From the end of its checks on: while the process is taken over, while FLARE begins, while nobody answers."""
    life.call("site", "check", str(life.kit("north") / "site.toml"))
    log = life.kit("north") / "log.txt"
    first = life.site("north")
    first.until("stop with Ctrl-C")
    span = 1.5 * lasted(first, lambda: log.exists() and log.stat().st_size > 0)
    assert one_line(first.interrupt()) in {"site north was stopped by Ctrl-C", "the site was stopped by Ctrl-C"}
    for moment in range(MOMENTS):
        command = life.site("north")
        command.until("stop with Ctrl-C")
        time.sleep(span * moment / MOMENTS)
        assert one_line(command.interrupt())
        assert life.is_left("north") == []


def test_ctrl_c_while_a_coordinator_starts_and_serves(life: Life) -> None:
    log = life.kit("coordinator") / "server" / "log.txt"
    first = life.coordinator()
    first.until("stop with Ctrl-C")
    span = 1.5 * lasted(first, lambda: log.exists() and "Server started" in log.read_text())
    assert one_line(first.interrupt()) == "the coordinator's server was stopped by Ctrl-C"
    for moment in range(MOMENTS):
        command = life.coordinator()
        command.until("stop with Ctrl-C")
        time.sleep(span * moment / MOMENTS)
        assert one_line(command.interrupt())
        assert life.is_left("coordinator") == []
        assert f"Serving federation life at localhost:{life.port}" in command.printed  # the port was free again


def test_ctrl_c_of_a_site_on_flower(tmp_path: Path) -> None:
    """While the process is taken over, while Flower begins, while no SuperLink answers; a second start is refused meanwhile."""
    pytest.importorskip("flwr", reason="needs eigenpact[flower]")
    life = Life(tmp_path, ("north", "south"), "--engine", "flower")
    try:
        first = life.site("north")
        first.until("stop with Ctrl-C")
        span = 1.5 * lasted(first, "Starting Flower SuperNode")
        told = life.call("site", "start", str(life.kit("north")), code=2)
        assert f"north is started already, by process {first.process.pid} since" in told
        assert one_line(first.interrupt()) == "site north was stopped by Ctrl-C"
        for moment in range(MOMENTS):
            command = life.site("north")
            command.until("stop with Ctrl-C")
            time.sleep(span * moment / MOMENTS)
            assert one_line(command.interrupt())
            assert with_argument(str(life.kit("north") / "site.key")) == []
    finally:
        life.stop()


def test_a_day_with_late_parties_and_mistakes(life: Life) -> None:
    """Coordinator late, site late, port taken, kit twice, runs that are stopped, a table that changes, a fifth hospital."""
    north = life.site("north")
    north.until("stop with Ctrl-C")
    server = life.coordinator()  # late: the site waits for it
    server.until("stop with Ctrl-C")

    waits = life.run(*SLOW, "-o", "model")
    waits.until("connected: north; missing: south")  # and so does the run
    told = life.call("coordinator", "start", str(life.kit("coordinator")), code=2)
    assert f"something listens at localhost:{life.port} already; stop it, or make kits with another port" in told
    before = (life.kit("north") / "site.json").read_bytes()
    told = life.call("site", "start", str(life.kit("north")), "--data", "south.csv", code=2)
    assert f"north is started already, by process {north.process.pid} since" in told
    assert "with north.csv; stop that one first" in told
    assert (life.kit("north") / "site.json").read_bytes() == before

    stopped_runs(life, waits)
    south = life.site("south")  # late
    resumed_run(life, north)
    changed_table(life, south)
    fifth_hospital(life, north, server)
    for command in (north, server):
        assert one_line(command.interrupt())
    assert life.is_left("north") + life.is_left("coordinator") == []


def stopped_runs(life: Life, waits: Command) -> None:
    """Ctrl-C while a run waits: it says how to go on, and neither key nor process is left of it."""
    for moment in range(MOMENTS // 3):
        run = waits if moment == 0 else life.run(*SLOW, "-o", "model")
        run.until("connected: north; missing: south")
        time.sleep(0.2 * moment)
        assert stopped(life, run)


def stopped(life: Life, run: Command) -> str:
    """The name of a run that was stopped in order: one line says how to go on."""
    told, _, name = one_line(run.interrupt()).rpartition(" ")
    assert told == f"stopped by Ctrl-C; go on with: eigenpact coordinator run --kit {life.kit('coordinator')} --resume"
    assert list((life.folder / "tmp").glob("eigenpact-*")) == []
    return name


def resumed_run(life: Life, north: Command) -> None:
    """Ctrl-C while a run's job starts, and in the middle of it; resumed to the same bits, with one name for all parties."""
    ledger = life.kit("north") / "ledger.jsonl"
    run = life.run(*SLOW, "-o", "model")
    for moment in range(MOMENTS - MOMENTS // 3):
        run.until("all are there")
        if moment < MOMENTS // 3:  # while the job starts
            time.sleep(0.5 * moment)
        else:
            done = len(read_site_ledger(ledger))
            run.until(lambda done=done: len(read_site_ledger(ledger)) > done + 8)
        name = stopped(life, run)
        run = life.run("--resume", name)
    run.ends()
    north.until(f"run {name} over: ")
    model, sites = load_model(life.folder / "model"), {name: rows(name) for name in ("north", "south")}
    alone = ep.engines.InProcess(threads=1)
    whole = ep.FederatedPCA(2, solver="subspace", random_state=0, max_rounds=500, tol=1e-13, engine=alone).fit(sites)
    assert largest_sine(model.components_.T, PCA(2).fit(np.concatenate(list(sites.values()))).components_.T) < 1e-6
    assert (model.n_rounds_, model.components_.tobytes()) == (whole.n_rounds_, whole.components_.tobytes())
    written = [row for row in read_site_ledger(ledger) if "run" in row]
    assert {row["run"] for row in written} == {name}
    assert "refused" not in north.printed
    sent = [row for row in written if row["what"] in ("sent", "sent again")]
    assert f"run {name} over: {len(sent)} messages, " in north.printed
    assert " left, nothing else\n" in north.printed


def changed_table(life: Life, south: Command) -> None:
    """A table that changes under a running site is noticed: the coordinator is told whose, and what to do; nothing leaves."""
    table = life.folder / "south.csv"
    text = table.read_text()
    table.write_text("\n".join(text.splitlines()[:-20]) + "\n")
    before = [row for row in read_site_ledger(life.kit("south") / "ledger.jsonl") if row["what"] == "sent"]
    told = life.run("-k", "2", "-o", "other").ends(2)
    assert "south: rule data: this site's table is not the one that the site was started with; its owner stops the site" in told
    assert [row for row in read_site_ledger(life.kit("south") / "ledger.jsonl") if row["what"] == "sent"] == before
    assert one_line(south.interrupt()) == "site south was stopped by Ctrl-C"
    assert life.is_left("south") == []
    table.write_text(text)


def fifth_hospital(life: Life, north: Command, server: Command) -> None:
    """A site joins while the others run; one that is not there is named, and the run begins without it."""
    assert "knows west from the next run on" in life.call("federation", "add", "life", "west")
    life.settle("west")
    west = life.site("west")
    west.until("stop with Ctrl-C")
    told = life.run("-k", "2", "-o", "joined", "--min-sites", "2").ends()
    assert "begins without south: not connected" in told
    assert "connected: north, west; missing: south" in told
    assert load_model(life.folder / "joined").sites_ == ("north", "west")
    assert north.process.poll() is None
    assert server.process.poll() is None
    assert one_line(west.interrupt()) == "site west was stopped by Ctrl-C"
