"""A federation on loopback for tests: real kits, real FLARE processes, mutual TLS, a free port."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from eigenpact.engines.flare.kits import Federation, Kit, make_kits

ROOT = Path(__file__).parents[2]
UP_WITHIN = 60.0
REGISTERED = "Successfully registered client"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Parties:
    """Kits in a folder and the FLARE processes that were started from them."""

    def __init__(self, folder: Path, sites: Mapping[str, Any], policy: Mapping[str, Any], **options: Any) -> None:
        self.folder = folder
        features = options.pop("features", next(iter(sites.values())).shape[1])
        self.timeout = options.pop("coordinator_timeout", 15.0)
        port = options.pop("port", None) or free_port()
        make_kits(Federation("test", "localhost", port, tuple(sites), features, **options), folder)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sources: dict[str, Path] = {}  # of parties that run another release
        for name, X in sites.items():
            self.describe(name, X, policy)

    def describe(self, name: str, X: Any, policy: Mapping[str, Any], **facts: Any) -> None:
        """Write a site's rows and what its owner says of it."""
        kit = Kit.read(self.folder / name, "site")
        np.save(kit.folder / "rows.npy", X)
        described = {
            "name": name,
            "opener": "tests.engines.flare_opener:load",
            "data": str(kit.folder / "rows.npy"),
            "features": kit.federation.features,
            "policy": dict(policy),
            "ledger": str(kit.folder / "ledger.jsonl"),
            "coordinator_timeout": self.timeout,
            "kit": str(kit.folder),
        }
        (kit.folder / "site.json").write_text(json.dumps(described | facts))

    def start(self, *names: str, registers: bool = True) -> None:
        """Start the parties named, or all of them, and wait until sites are registered, unless they never will be."""
        before = {name: self.log(name).count(REGISTERED) for name in self.sites}
        for name in names or ("coordinator", *self.sites):
            if name in self.processes:
                self.processes[name].wait()
            kit = Kit.read(self.folder / name, "coordinator" if name == "coordinator" else "site")
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join([str(self.sources.get(name, ROOT / "src")), str(ROOT)]),
                "EIGENPACT_SITE": str(kit.folder / "site.json"),
            }
            with open(kit.folder / "console.txt", "ab") as console:
                self.processes[name] = subprocess.Popen(
                    kit.command(), env=environment, stdout=console, stderr=console, start_new_session=True
                )
        for name in names or self.sites:
            if name != "coordinator" and registers:
                self.wait_for(name, REGISTERED, before[name] + 1)

    @property
    def sites(self) -> tuple[str, ...]:
        return Kit.read(self.folder / "coordinator", "coordinator").federation.sites

    def log(self, name: str) -> str:
        """All that a party's processes have logged."""
        texts = [path.read_text(errors="replace") for path in sorted((self.folder / name).rglob("log.txt"))]
        console = self.folder / name / "console.txt"
        return "\n".join([*texts, console.read_text(errors="replace") if console.exists() else ""])

    def wait_for(self, name: str, text: str, times: int = 1, within: float = UP_WITHIN) -> None:
        """Wait until a party has logged a text so often."""
        deadline = time.monotonic() + within
        while self.log(name).count(text) < times:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} has not logged {text!r}:\n{self.log(name)[-3000:]}")
            time.sleep(0.2)

    def family(self, name: str) -> list[int]:
        """Process ids of a party: FLARE's daemon, and of jobs that it started or that outlived it."""
        kit = Kit.read(self.folder / name, "coordinator" if name == "coordinator" else "site")
        return with_argument(str(kit.workspace))

    def signal(self, name: str, what: int) -> None:
        """Send a signal to all processes of a party."""
        for pid in self.family(name):
            with_pid(pid, what)

    def stop(self) -> None:
        """Kill everything that was started here."""
        for name, process in self.processes.items():
            self.signal(name, signal.SIGKILL)
            process.wait()


def with_pid(pid: int, what: int) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, what)


def with_argument(text: str) -> list[int]:
    """Processes that have this argument on their command line, zombies left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def reissue(kit: Path, authority: Path, begin: datetime, end: datetime) -> None:
    """Give a site's key another certificate, signed by an authority: its own federation's or another's."""
    key: Any = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    root = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    old = x509.load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
    made = x509.CertificateBuilder().subject_name(old.subject).issuer_name(root.subject).public_key(old.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    for extension in old.extensions:
        made = made.add_extension(extension.value, extension.critical)
    (kit / "startup" / "client.crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def knock(kit: Path, root: Path, port: int) -> bytes:
    """Connect with a kit's certificate, past all checks at the site; what the server answers, nothing if it refuses."""
    context = ssl.create_default_context(cafile=str(root))
    context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    try:
        with (
            socket.create_connection(("localhost", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return secure.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""
