"""Start-up kits of a federation on Flower: TLS for the SuperLink, a key for each SuperNode, and how both are started.

Flower's SuperLink answers its command line (``/v1/control/``, without a password) and its nodes (``/v1/fleet/``, with their keys)
at one port.  Whoever reaches the first can register keys and send code to the coordinator and to every site.  So the SuperLink
listens on this machine's loopback alone; where sites are elsewhere, a proxy publishes ``/v1/fleet/`` and nothing else.

An authority, made for this federation alone, signs the SuperLink's certificate.  Every site has a key of its own; the SuperLink
knows the public ones and takes no other node.  Telemetry, update checks and the installation of an app's dependencies are off.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ...errors import FileError, InputError
from ...numerics.blas import ONE_THREAD
from ...storage import write_private, writing
from .. import signals
from ..extras import bring, crypto, missing
from ..federation.kits import AUTHORITY_DAYS, EngineKit, Federation, check_new_folder, describe_kits
from ..federation.parties import COORDINATOR, digest_of_root

CONNECTION = "eigenpact"
"""Name of the SuperLink in the configuration of Flower's command line."""

SITE_KEY = "eigenpact-site"
"""Key of a node's configuration that names the file with what its owner says of the site."""

DIGEST_KEY = "eigenpact-digest"
"""Key of a node's configuration with a digest of that file, as it was when the site was started."""

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""No telemetry, no update check."""

LOOK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
"""Seconds, at a site, until Flower looks again for a message to start a process for; its default is one."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that stand for this machine; the SuperLink's certificate covers them besides the federation's own host."""

HERE = "127.0.0.1"
"""Where every SuperLink listens that eigenpact starts, and nowhere else."""

FLEET = "/v1/fleet/"
"""The paths that SuperNodes ask for; all others are for this machine alone."""


class FlowerKit(EngineKit):
    """A party's folder, with keys and certificates for Flower."""

    engine = "flower"

    @property
    def workspace(self) -> Path:
        """Where Flower keeps its files: installed apps, the SuperLink's database, its command line's configuration."""
        return self.folder / "flower"

    @property
    def log(self) -> Path:
        """Where the coordinator's SuperLink writes what happens; a site's SuperNode writes to its console."""
        return self.folder / "log.txt"

    @property
    def address(self) -> str:
        """Where sites reach the SuperLink, or the proxy before it."""
        return f"{self.federation.host}:{self.federation.port}"

    @property
    def local_address(self) -> str:
        """Where the coordinator's own commands reach the SuperLink."""
        return f"{HERE}:{self.federation.port}"

    @property
    def needs_proxy(self) -> str:
        """What the coordinator must know of sites on other machines; empty if there are none."""
        if self.federation.host in LOOPBACK:
            return ""
        return (
            f"The SuperLink listens on {self.local_address} only.  Sites reach it if a proxy on this machine publishes {FLEET} "
            f"at {self.address}, with server.crt and server.key of the kit, and nothing else: whoever reaches the other paths "
            "can send code to every site"
        )

    @property
    def credentials(self) -> tuple[str, ...]:
        """Paths in the kit of its keys and certificates: what a renewal replaces."""
        return ("ca.crt", *(("server.crt", "server.key") if self.party == COORDINATOR else ("site.pub", "site.key")))

    def expires(self) -> datetime:
        """When the first of the kit's certificates ends; one that has ended, lacks its key or is of elsewhere is an error.

        A site has no certificate of its own, but a key, which must be the one that the federation knows.
        """
        if self.party == COORDINATOR:
            return self.check_certificate(self.folder / "ca.crt", self.folder / "server.crt", self.federation.host[:64])
        root = self.check_root(self.folder / "ca.crt")
        self.check_key(self.folder / "site.key", self._public_key(), "load_ssh_private_key", "site.pub")
        if (self.folder / "site.pub").read_text() != self.parties.nodes.get(self.party):
            raise InputError(
                f"site.pub of {self.folder} is not the key that the federation knows of {self.party!r}; ask for the kit again"
            )
        return self.check_dates(root.not_valid_before_utc, root.not_valid_after_utc)

    def make_party(self, party: str, folder: Path) -> str:
        """Of the authority: make a party's kit, with new keys and certificates, in a folder; give its SuperNode's key, if any."""
        folder.mkdir(mode=0o700)
        (folder / "ca.crt").write_bytes((self.folder / "ca.crt").read_bytes())
        if party != COORDINATOR:
            return _make_site_key(folder)
        _certify(self.federation, self.folder, folder)
        return ""

    def environment(self) -> dict[str, str]:
        """What Flower's programs are started with; they find each other by name."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        look = {} if self.party == COORDINATOR else LOOK
        return QUIET | look | ONE_THREAD | {"FLWR_HOME": str(self.workspace), "PATH": path}

    def superlink(self, port: int | None = None) -> list[str]:
        """What starts the SuperLink, always on loopback alone, at another ``port`` if given; it remembers keys in the kit."""
        own, federation = self.folder, self.federation
        tls = ["--ssl-ca-certfile", f"{own / 'ca.crt'}", "--ssl-certfile", f"{own / 'server.crt'}"]
        return [
            *(program("flower-superlink"), "--host", HERE, "--port", str(port or federation.port)),
            *(*tls, "--ssl-keyfile", f"{own / 'server.key'}", "--enable-supernode-auth"),
            *("--disable-runtime-dependency-installation", "--database", f"{self.workspace / 'superlink.db'}"),
        ]

    def supernode(self, facts: Path, port: int, trusted_entities: Path | None = None, digest: str = "") -> list[str]:
        """What starts a site's SuperNode; ``port`` is for its own processes, on loopback alone, ``digest`` that of the facts."""
        program("flower-supernode")
        trusted = [] if trusted_entities is None else ["--trusted-entities", str(trusted_entities)]
        said = {SITE_KEY: str(facts)} | ({DIGEST_KEY: digest} if digest else {})
        return [
            *signals.command("eigenpact.engines.flower.node", self.party, "--superlink", self.address),
            *("--root-certificates", f"{self.folder / 'ca.crt'}"),
            *("--auth-supernode-private-key", f"{self.folder / 'site.key'}", "--host", HERE, "--port", str(port)),
            *("--node-config", node_config(said), *trusted),
        ]

    def configure(self, address: str = "") -> None:
        """Tell Flower's command line where the SuperLink is on this machine."""
        self.workspace.mkdir(mode=0o700, exist_ok=True)
        facts = {"address": address or self.local_address, "root-certificates": str(self.folder / "ca.crt")}
        lines = [f"[superlink.{CONNECTION}]", *(f"{key} = {json.dumps(value)}" for key, value in facts.items())]
        write_private(self.workspace / "config.toml", ("\n".join(lines) + "\n").encode())

    def _public_key(self) -> Any:
        path = self.folder / "site.pub"
        try:
            return crypto("hazmat.primitives.serialization").load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError) as error:
            raise FileError(f"{path.name} of {self.folder} cannot be read: {error}; ask for the kit again") from error


def node_config(facts: Mapping[str, str]) -> str:
    """A node's configuration as ``flower-supernode`` takes it.

    >>> node_config({"eigenpact-site": "/srv/site.json"})
    'eigenpact-site="/srv/site.json"'
    """
    return " ".join(f"{key}={json.dumps(value)}" for key, value in facts.items())


def make_flower_kits(federation: Federation, folder: Path) -> None:
    """Make the kits of all parties in a new folder: one for each site, "coordinator", and "authority" with the root key."""
    bring("flower", "flwr")
    check_new_folder(folder)
    with writing(folder, "choose another folder"):
        for party in ("authority", COORDINATOR, *federation.sites):
            (folder / party).mkdir(parents=True, mode=0o700)
        root = _make_authority(federation, folder / "authority")
        _certify(federation, folder / "authority", folder / COORDINATOR)
        for party in (COORDINATOR, *federation.sites):
            (folder / party / "ca.crt").write_bytes((folder / "authority" / "ca.crt").read_bytes())
        nodes = {site: _make_site_key(folder / site) for site in federation.sites}
        describe_kits(folder, federation, digest_of_root(root), nodes)


def _make_site_key(kit: Path) -> str:
    """A site's private key, as Flower reads it; give the public one."""
    serial = crypto("hazmat.primitives.serialization")
    ec = crypto("hazmat.primitives.asymmetric.ec")
    key = ec.generate_private_key(ec.SECP384R1())
    form = serial.Encoding.PEM, serial.PrivateFormat.OpenSSH, serial.NoEncryption()
    write_private(kit / "site.key", key.private_bytes(*form))
    public: bytes = key.public_key().public_bytes(serial.Encoding.OpenSSH, serial.PublicFormat.OpenSSH)
    (kit / "site.pub").write_bytes(public)
    return public.decode()


def _make_authority(federation: Federation, authority: Path) -> Any:
    """Make an authority; give its certificate."""
    x509 = crypto("x509")
    key = _make_certificate_key(authority / "ca.key")
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    may_sign = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage)
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    extensions = [(x509.BasicConstraints(ca=True, path_length=0), True), (may_sign, True), (own_id, False)]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"authority of {federation.name}"[:64])])
    end = datetime.now(UTC) + timedelta(days=max(federation.valid_days, AUTHORITY_DAYS))
    return _sign(authority / "ca.crt", name, key.public_key(), (name, key), end, extensions)


def _certify(federation: Federation, authority: Path, coordinator: Path) -> None:
    """Make the SuperLink's key, and its certificate, signed by the authority."""
    x509 = crypto("x509")
    root = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    root_key = crypto("hazmat.primitives.serialization").load_pem_private_key((authority / "ca.key").read_bytes(), None)
    key = _make_certificate_key(coordinator / "server.key")
    hosts = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys((federation.host, *LOOPBACK))])
    of_root = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
    for_servers = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    basic = x509.BasicConstraints(ca=False, path_length=None)
    extensions = [(hosts, False), (basic, True), (of_root, False), (for_servers, False)]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, federation.host[:64])])
    end = min(datetime.now(UTC) + timedelta(days=federation.valid_days), root.not_valid_after_utc)
    _sign(coordinator / "server.crt", name, key.public_key(), (root.subject, root_key), end, extensions)


def _make_certificate_key(path: Path) -> Any:
    serial, ec = crypto("hazmat.primitives.serialization"), crypto("hazmat.primitives.asymmetric.ec")
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(path, key.private_bytes(serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption()))
    return key


def _sign(
    path: Path, subject: Any, public_key: Any, issuer: tuple[Any, Any], end: datetime, extensions: list[tuple[Any, bool]]
) -> Any:
    """Write a certificate, and give it; ``issuer`` is the signer's name and key."""
    x509 = crypto("x509")
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[0]).public_key(public_key)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(datetime.now(UTC) - timedelta(minutes=5)).not_valid_after(end)
    for extension, critical in extensions:
        made = made.add_extension(extension, critical)
    certificate = made.sign(issuer[1], crypto("hazmat.primitives.hashes").SHA256())
    path.write_bytes(certificate.public_bytes(crypto("hazmat.primitives.serialization").Encoding.PEM))
    return certificate


def _general_name(host: str) -> Any:
    x509 = crypto("x509")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def program(name: str) -> str:
    """One of Flower's programs, of this environment."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise missing("flower", f"{name} is not installed")
    return str(path)
