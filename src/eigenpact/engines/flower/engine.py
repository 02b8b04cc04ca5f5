"""Sites in other institutions, over Flower: a SuperLink with TLS at the coordinator, a SuperNode with its own key at each site.

Flower starts a process at the site for every message (``site.py``), and looks for messages every three seconds; a round
takes five to eight seconds, whatever is computed.  So ``solver="auto"`` takes few rounds.  The driver runs in the process that
called ``fit``; Flower's ServerApp passes its bytes on (``grid.py``).  With a SuperLink of one's own, ``flwr run`` starts
the same solvers inside the ServerApp (``cli/flower_server.py``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from ...errors import SiteError
from ...runtime import Costs
from ...storage import owner_only, write_private, write_private_json
from ..extras import bring
from ..federation.engine import FederationEngine
from ..federation.relay import STILL, accept, frame, hang_up, meeting_point, unframe
from ..signals import end_process
from .app import write_app
from .kits import CONNECTION, HERE, FlowerKit, program

UP_WITHIN = 60.0
"""Seconds until the SuperLink must answer."""

COMMAND_WITHIN = 60.0
"""Seconds that a command of Flower's may take."""

REGISTERED = "registered.json"
"""Which key each site's node was registered with; beside the SuperLink's database."""

END_WITHIN = 10.0
"""Seconds a SuperLink may take to end by itself."""

HURRY = 0.5
"""The same after Ctrl-C."""

COSTS = Costs(latency=7.0, bandwidth=1e7, flops=2e10)
"""A round's latency as measured with three sites on two busy cores (``make results FAMILY=flower``)."""


@dataclass(frozen=True)
class Flower(FederationEngine):
    """Run between institutions, with sites started by ``eigenpact site start``.

    Parameters
    ----------
    kit : path
        The coordinator's kit.  Its SuperLink runs on this machine: the one of ``eigenpact coordinator start`` if that is up,
        else one that is started for the run and ended after it.
    sites : tuple of str, optional
        Sites that are to take part; by default all of the federation.
    min_sites : int
        A run begins, and goes on, only with this many sites; 0, the default, stands for all that are to take part.
    round_timeout : float
        Seconds a site may take to answer before the run goes on without it.
    start_timeout : float
        Seconds until the sites must be connected.

    For several fits, ``with engine.open() as connected:`` keeps one Flower run.
    """

    kits = FlowerKit
    costs = COSTS

    @contextmanager
    def _job(self) -> Iterator[tuple[Pipe, tuple[str, ...]]]:
        """Start a Flower run and wait for its relay, and for the sites; end the run in the end."""
        bring("flower", "flwr")
        kit: FlowerKit = self.owned
        with serving(kit), _run(kit, self.start_timeout) as pipe:
            nodes, deadline = registered_nodes(kit), time.monotonic() + self.start_timeout
            yield pipe, self._wait_for_sites(lambda: _connected(pipe, nodes, deadline, self.start_timeout))


def listens(host: str, port: int) -> bool:
    """Whether something answers there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(kit: FlowerKit) -> Iterator[subprocess.Popen[bytes] | None]:
    """A SuperLink that knows the sites' keys: the one that is up already (then None), or one started here and ended after."""
    port = kit.federation.port
    if listens(HERE, port):
        register_changes(kit)
        yield None
        return
    kit.expires()
    _register_keys(kit)
    kit.configure()
    with _superlink(kit, port) as process:
        yield process


@contextmanager
def _superlink(kit: FlowerKit, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A SuperLink that answers on this machine, at that port; it ends with the context."""
    with open(kit.log, "ab", opener=owner_only) as log:
        process = subprocess.Popen(
            kit.superlink(None if port == kit.federation.port else port),
            env=os.environ | kit.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for whoever started it, and ends it in order
        )
    within = END_WITHIN
    try:
        deadline = time.monotonic() + UP_WITHIN
        while not listens(HERE, port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SiteError(f"Flower's SuperLink did not come up at {HERE}:{port}; see {kit.log}")
            time.sleep(0.1)
        yield process
    except KeyboardInterrupt:
        within = HURRY
        raise
    finally:
        end_process(process, within)


def _register_keys(kit: FlowerKit) -> None:
    """Let the SuperLink know the sites' public keys, once, where no site reaches it yet.

    A SuperNode whose key is not known is turned away and ends; so those that wait for the coordinator must not come too early.
    Where other keys were registered before, the SuperLink's database is made anew: a key that was replaced is no longer valid.
    """
    if _registered(kit):
        return
    kit.workspace.mkdir(mode=0o700, exist_ok=True)
    for path in (kit.workspace / REGISTERED, *kit.workspace.glob("superlink.db*")):
        path.unlink(missing_ok=True)
    port = free_port()
    kit.configure(f"{HERE}:{port}")
    with _superlink(kit, port):
        done = {site: _register(kit, site) for site in kit.parties.nodes}
    write_private_json(kit.workspace / REGISTERED, done)


def register_changes(kit: FlowerKit) -> None:
    """Let a SuperLink that is up know keys that were added or renewed since it was started; those renewed away it forgets."""
    if not listens(HERE, kit.federation.port):
        return
    kit.configure()
    done = _known(kit)
    for site, key in kit.parties.nodes.items() if done else ():
        before = done.get(site)
        if before is not None and before["key"] == key:
            continue
        if before is not None:
            ask(kit, "supernode", "unregister", str(before["node"]), CONNECTION)
            del done[site]
            write_private_json(kit.workspace / REGISTERED, done)
        done[site] = _register(kit, site)
        write_private_json(kit.workspace / REGISTERED, done)


def _register(kit: FlowerKit, site: str) -> dict[str, Any]:
    """Let the SuperLink know a site's key; what is to be remembered of it."""
    key, path = kit.parties.nodes[site], kit.workspace / f"{site}.pub"
    write_private(path, key.encode())
    told = ask(kit, "supernode", "register", str(path), CONNECTION, "--name", site)
    return {"key": key, "node": int(told["node-id"])}


def registered_nodes(kit: FlowerKit) -> dict[str, int]:
    """Site -> the node that its key was registered as."""
    nodes = _registered(kit)
    if not nodes:
        raise SiteError(
            f"the SuperLink at {kit.local_address} does not know the keys of {kit.folder}; stop it and start it again"
        )
    return nodes


def _registered(kit: FlowerKit) -> dict[str, int]:
    """As :func:`registered_nodes`; empty if these keys are not registered."""
    done = _known(kit)
    if {site: facts["key"] for site, facts in done.items()} != kit.parties.nodes or not (kit.workspace / "superlink.db").exists():
        return {}
    return {site: facts["node"] for site, facts in done.items()}


def _known(kit: FlowerKit) -> dict[str, dict[str, Any]]:
    """Site -> key and node that were registered; empty if there are none, or those of an earlier version."""
    try:
        done = json.loads((kit.workspace / REGISTERED).read_text())
        return {site: {"key": str(facts["key"]), "node": int(facts["node"])} for site, facts in done.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def ask(kit: FlowerKit, *command: str) -> dict[str, Any]:
    """Have Flower's command line do something; give what it answered."""
    try:
        done = subprocess.run(
            [program("flwr"), *command, "--format", "json"],
            env=os.environ | kit.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SiteError(f"flwr {command[0]} did not end within {COMMAND_WITHIN:g} s; see {kit.log}") from error
    answer: Any = {}
    with suppress(ValueError):
        answer = json.loads(done.stdout[done.stdout.find("{") :])
    if done.returncode != 0 or not isinstance(answer, dict) or answer.get("success") is False:
        reason = answer.get("error-message") if isinstance(answer, dict) else None
        told = " ".join(str(reason or done.stderr or done.stdout).split())[-500:]
        raise SiteError(f"the SuperLink of {kit.folder} could not be asked to {' '.join(command[:2])}: {told}")
    return answer


@contextmanager
def _run(kit: FlowerKit, timeout: float) -> Iterator[Pipe]:
    """Submit a Flower run and wait for its relay; stop the run in the end."""
    with tempfile.TemporaryDirectory(prefix="eigenpact-") as name, meeting_point(Path(name)) as (listener, relay):
        app = Path(name) / "eigenpact-app"
        write_app(app)
        told = f"relay={json.dumps(relay['address'])} relay-key={json.dumps(relay['key'])}"
        run = str(ask(kit, "run", str(app), CONNECTION, "--run-config", told).get("run-id", ""))
        began = False
        try:
            pipe = accept(listener, timeout, lambda: None)
            if pipe is None:
                raise SiteError(f"Flower did not start the run within {timeout:g} s; see {kit.log}")
            began = True
            process, within = _other_end(pipe), END_WITHIN
            try:
                yield pipe
            except KeyboardInterrupt:
                within = HURRY
                raise
            finally:
                hang_up(pipe)
                _await_end(*process, within)
                pipe.close()
        except KeyboardInterrupt:
            raise  # a run that finds nobody who drives it ends by itself
        except BaseException:
            if run and not began:
                with suppress(SiteError):  # a SuperLink that is gone has no run
                    ask(kit, "stop", run, CONNECTION)
            raise


def _other_end(pipe: Pipe) -> tuple[int, str]:
    """The process at a Unix socket's other end, and when it began; 0 where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, ""
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        (process,) = struct.unpack("i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("i")))
    return process, _began(process)


def _await_end(process: int, began: str, within: float) -> None:
    """Wait until the ServerApp's process, on this machine, has ended; one whose SuperLink is gone would try again for ever."""
    deadline = time.monotonic() + within
    while began and _began(process) == began:
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            return
        time.sleep(0.1)


def _began(process: int) -> str:
    """When a process began, which tells it from a later one of its number; empty if it has ended, noted by its parent or not."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if facts[0] in "ZX" else facts[19]


def _connected(pipe: Pipe, nodes: Mapping[str, int], deadline: float, timeout: float) -> list[str]:
    """Ask the relay which of the nodes are connected."""
    try:
        pipe.send_bytes(frame("", json.dumps(nodes).encode()))
        if not pipe.poll(max(STILL, deadline - time.monotonic())):
            raise SiteError(f"Flower's run does not answer within {timeout:g} s; see log.txt in the kit")
        told: list[str] = json.loads(unframe(pipe.recv_bytes())[1])
    except (EOFError, OSError) as error:
        raise SiteError("Flower's run has ended before it began; see log.txt in the coordinator's kit") from error
    return told
