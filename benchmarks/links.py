"""How long a fit takes over a slow link, by a model, and whether the model is right.

Run alone with ``python -m benchmarks.links --size small|paper``; its rows are part of the table of speed, and its plot is
docs/images/speed-links.png (``paper`` only).  The model: seconds = rounds x latency + bytes / bandwidth + arithmetic.  Rounds and
bytes are those of the ledger of a real fit, set-up among them, arithmetic is the time of that fit in one process (``history_``).
Latency is that of a message and its reply together.  All sites' messages share the coordinator's link.  "Loopback" is this
machine's: both constants are measured here, by one TCP connection of the machine to itself.

The model is checked with real delay: every message between coordinator and sites waits half the latency, and for its turn on the
link, which its bytes take, envelope included.  The model knows neither envelopes nor the greeting before the first round.  Where
this was written the kernel had no netem, so an engine of this file delays the messages.
"""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import eigenpact as ep
from benchmarks.peers import images
from benchmarks.table import Row, run_alone
from benchmarks.timing import load_told, parts_of
from eigenpact.engines import InProcess
from eigenpact.engines.threads import ThreadPost
from eigenpact.numerics.blas import limited_blas
from eigenpact.runtime import Costs, Job, MailConnection, Outcome, SiteEndpoint, SiteServer
from eigenpact.runtime.engine import Sites

SITES, COMPONENTS = 16, 10
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "speed-links.png"
ENOUGH = 0.1
"""By which share the model may differ from the measured time."""

CHECKED = 40
"""Rounds of a fit with real delay at most: the time is what is checked."""


@dataclass(frozen=True)
class Link:
    """The coordinator's link: seconds for a message and its reply, bytes a second."""

    name: str
    latency: float
    bandwidth: float


SLOW, FAST = Link("10 Mbit/s, 50 ms", 0.05, 10e6 / 8), Link("1 Gbit/s, 1 ms", 1e-3, 1e9 / 8)


def solvers() -> dict[str, Any]:
    """The solvers that are compared, by name."""
    return {
        "gram": "gram",
        "krylov": "krylov",
        "krylov, one-shot start": ep.solvers.Krylov(start="one-shot"),
        "lanczos": "lanczos",
        "subspace": "subspace",
        "faps": "faps",
    }


def rows(size: str) -> Iterator[Row]:
    """All rows."""
    name, X = images(size)
    links = [SLOW, FAST, loopback()]
    sites = parts_of(X, SITES)
    told: dict[str, list[float]] = {}
    for solver, given in solvers().items() if size == "paper" else list(solvers().items())[:3]:
        traffic = Traffic.of(fitted(sites, given))
        told[solver] = [traffic.seconds(link) for link in links]
        times = ", ".join(f"{seconds:.2f} s" for seconds in told[solver])
        what = (
            f"{name} {len(X)} x {X.shape[1]}, k={COMPONENTS}, {SITES} sites, {solver}: {'; '.join(link.name for link in links)}"
        )
        reached = f"{times}; {traffic.rounds} rounds, {traffic.bytes / 1e6:.1f} MB, arithmetic {traffic.arithmetic:.2f} s"
        yield Row(f"{what} (modelled)", "reported", reached, True)
    if size == "paper":
        draw(told, links, f"{name}, {len(X)} x {X.shape[1]}, {SITES} sites, {COMPONENTS} components")
    yield from _checked(("krylov",) if size == "small" else tuple(solvers()))


def fitted(sites: Mapping[str, Any], solver: Any, engine: Any = "inprocess", most: int = 500) -> ep.FederatedPCA:
    """One fit, of at most so many rounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        return ep.FederatedPCA(COMPONENTS, solver=solver, random_state=0, engine=engine, max_rounds=most).fit(sites)


@dataclass(frozen=True)
class Traffic:
    """What a fit sent, by its ledger, and what it computed, by its history."""

    rounds: int
    bytes: int
    arithmetic: float

    @classmethod
    def of(cls, pca: ep.FederatedPCA) -> Traffic:
        """Every step that sent something took a message and its reply; what stayed at the coordinator's own site, none."""
        travelled = [message for message in pca.ledger_ if message.note != "own"]
        steps = {(message.epoch, message.step) for message in travelled}
        return cls(len(steps), sum(message.bytes for message in travelled), sum(record.seconds for record in pca.history_))

    def seconds(self, link: Link) -> float:
        """The model."""
        return self.rounds * link.latency + self.bytes / link.bandwidth + self.arithmetic


# -- real delay -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delayed:
    """All sites in this process, each in a thread, behind a link that delays their messages."""

    link: Link
    min_sites: int = 1
    spread = False

    @property
    def costs(self) -> Costs:
        """Those of the link."""
        return Costs(self.link.latency, self.link.bandwidth, InProcess.costs.flops)

    def execute(self, sites: Sites, job: Job, *, graph: Any = None) -> Outcome:  # noqa: ARG002
        """Serve the sites and run the job, here."""
        servers = {name: SiteServer(name, X) for name, X in sites.items()}
        turn = threading.Lock()
        ends: Any = {name: _Far(SiteEndpoint(server), self.link, turn) for name, server in servers.items()}
        with limited_blas(1), closing(ThreadPost(ends)) as post:
            return job(MailConnection(post, servers, round_timeout=600.0))


class _Far:
    """A site's end of the link.  It runs in the site's thread, so that sites wait at the same time, but for the link."""

    def __init__(self, endpoint: SiteEndpoint, link: Link, turn: threading.Lock) -> None:
        self._endpoint, self._link, self._turn = endpoint, link, turn

    def handle(self, data: bytes) -> bytes:
        self._wait(len(data))
        reply = self._endpoint.handle(data)
        self._wait(len(reply))
        return reply

    def _wait(self, size: int) -> None:
        time.sleep(self._link.latency / 2)
        with self._turn:
            time.sleep(size / self._link.bandwidth)


def _checked(names: tuple[str, ...]) -> Iterator[Row]:
    X = np.random.default_rng(0).standard_normal((4000, 256)) * (0.8 ** np.arange(256) + 0.01)
    sites = parts_of(X, 8)
    for name in names:
        begin = time.perf_counter()
        pca = fitted(sites, solvers()[name], Delayed(SLOW), CHECKED)
        measured = time.perf_counter() - begin
        traffic = Traffic.of(fitted(sites, solvers()[name], most=CHECKED))
        modelled = traffic.seconds(SLOW)
        off = abs(modelled / measured - 1)
        what = f"the model beside real delay, {SLOW.name}, normal rows 4000 x 256, {len(sites)} sites, {name}"
        reached = f"{100 * off:.1f} %: {modelled:.2f} s modelled, {measured:.2f} s measured; {pca.n_rounds_} rounds"
        yield Row(what, f"within {100 * ENOUGH:.0f} %", reached, off <= ENOUGH, "" if off <= ENOUGH else load_told())


def loopback(size: int = 1 << 26) -> Link:
    """The machine's connection to itself: the median of 200 small round trips, and the time of one large message."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_echo, args=(server, size), daemon=True)
        thread.start()
        with socket.create_connection(server.getsockname()) as end:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            trips = []
            for _ in range(200):
                begin = time.perf_counter()
                end.sendall(b".")
                end.recv(1)
                trips.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            end.sendall(bytes(size))
            end.recv(1)
            seconds = time.perf_counter() - begin
        thread.join()
    return Link("loopback", float(np.median(trips)), size / seconds)


def _echo(server: socket.socket, size: int) -> None:
    with server.accept()[0] as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(200):
            end.sendall(end.recv(1))
        left = size
        while left:
            left -= len(end.recv(min(left, 1 << 20)))
        end.sendall(b".")


# -- the plot ---------------------------------------------------------------------------------------


def draw(told: Mapping[str, list[float]], links: list[Link], about: str) -> None:
    """Bars: modelled seconds by solver and link."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    places = np.arange(len(told))
    for i, link in enumerate(links):
        seconds = [values[i] for values in told.values()]
        bars = axes.bar(places + 0.27 * (i - 1), seconds, 0.26, label=link.name)
        axes.bar_label(bars, [f"{value:.3g}" for value in seconds], fontsize=7)
    axes.set(
        yscale="log",
        ylim=(0.1, 2 * max(max(values) for values in told.values())),
        ylabel="seconds, modelled",
        title=f"A fit over three links: {about}",
    )
    axes.set_xticks(places, [name.replace(", ", ",\n") for name in told])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title="the coordinator's link")
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    run_alone("links", __doc__, rows)
