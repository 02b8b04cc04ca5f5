"""Start-up kits of a federation on NVIDIA FLARE: made once for everybody, then one folder for each party.

FLARE's provisioning makes a certificate authority and a key and certificate for each party; this adds what eigenpact insists on:
sites build only the classes of an eigenpact job, run no code that comes with a job, answer no shell commands, send no logs, and
keep what FLARE stores inside the kit.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import FileError, InputError, MissingExtraError

ADMIN = "coordinator@eigenpact.org"
"""Name in the certificate with which the coordinator submits jobs."""

KIT = "kit.json"
SITE_CLASS = "eigenpact.engines.flare_site.FlareSite"
RELAY_CLASS = "eigenpact.engines.flare_relay.Relay"
CONTROLLER_CLASS = "nvflare.collab.runtime.controller.CollabController"
EXECUTOR_CLASS = "nvflare.collab.runtime.executor.CollabExecutor"
LAUNCHER_CLASS = "eigenpact.engines.flare_guard.GuardedLauncher"
DEPLOYER_CLASS = "eigenpact.engines.flare_guard.GuardedDeployer"

SITE_CONFIG: dict[str, Any] = {
    "format_version": 2,
    "executors": [
        {"tasks": ["*"], "executor": {"path": EXECUTOR_CLASS, "args": {"client_obj_id": "site", "max_call_threads": 4}}},
    ],
    "components": [{"id": "site", "path": SITE_CLASS, "args": {}}],
    "task_data_filters": [],
    "task_result_filters": [],
}
"""The one job configuration that a site accepts."""

COMMUNICATION = {"streaming_retry_timeout": 2.0, "streaming_retry_wait": 1.0, "tcp_no_delay": True}
"""FLARE keeps a thread for every message until it can no longer be asked for again: a minute by default, hundreds of threads."""

HEARTBEAT_TIMEOUT = 30
"""Seconds after which FLARE's server forgets a site that is silent; sites tell every 10 s that they are there."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")


@dataclass(frozen=True)
class Federation:
    """Who takes part and where the coordinator is reached.

    Attributes
    ----------
    name : str
    host : str
        Name or address under which sites reach the coordinator.
    port : int
    sites : tuple of str
    features : tuple of str, or int
        The agreed columns in order, or their number where tables have no names.
    valid_days : int
        How long certificates are valid.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    features: tuple[str, ...] | int
    valid_days: int = 360

    def __post_init__(self) -> None:
        for what, name in [("name", self.name), *(("site", site) for site in self.sites)]:
            if not NAME.fullmatch(name):
                raise InputError(f"{what} {name!r} must be 1 to 61 letters, digits, - or _, beginning with a letter or digit")
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise InputError(f"sites = {list(self.sites)} must be one or more names, each once")
        reserved = {"coordinator", "server", "authority"} & set(self.sites)
        if reserved:
            raise InputError(f"a site may not be called {sorted(reserved)[0]!r}; rename it")
        if not 0 < self.port < 65536:
            raise InputError(f"port = {self.port} must be between 1 and 65535")
        if self.valid_days < 1:
            raise InputError(f"valid_days = {self.valid_days} must be at least 1")
        if isinstance(self.features, int):
            if self.features < 1:
                raise InputError(f"features = {self.features} must be the names of the columns, or their number >= 1")
        elif not self.features or len(set(self.features)) < len(self.features):
            raise InputError("features must be one or more names of columns, each once")


@dataclass(frozen=True)
class Kit:
    """A party's folder, as ``federation init`` made it.

    ``party`` is the site's name, or "coordinator".
    """

    folder: Path
    party: str
    federation: Federation

    @classmethod
    def read(cls, folder: str | Path, kind: str) -> Kit:
        """Read a kit that must be of that kind: "site" or "coordinator"."""
        path = Path(folder).absolute()
        try:
            facts = json.loads((path / KIT).read_text())
            party, features = facts.pop("party"), facts.pop("features")
            features = features if isinstance(features, int) else tuple(features)
            federation = Federation(**facts | {"sites": tuple(facts["sites"]), "features": features})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise FileError(
                f"{folder} is not a kit made by eigenpact federation init: {error}; check the path to the kit"
            ) from error
        found = "coordinator" if party == "coordinator" else "site"
        if found != kind:
            raise InputError(f"{folder} is the kit of {party!r}, a {found}; give the kit of a {kind}")
        return cls(path, party, federation)

    @property
    def workspace(self) -> Path:
        """FLARE's folder in the kit, of a site or of the coordinator's server."""
        return self.folder / "server" if self.party == "coordinator" else self.folder

    @property
    def certificate(self) -> Path:
        """The party's own certificate."""
        return self.workspace / "startup" / ("server.crt" if self.party == "coordinator" else "client.crt")

    def expires(self) -> datetime:
        """When the first of the kit's certificates ends; one that has ended, lacks its key or is of elsewhere is an error."""
        x509 = flare("cryptography.x509")
        invalid = flare("cryptography.exceptions").InvalidSignature
        try:
            root, own = (
                x509.load_pem_x509_certificate(path.read_bytes())
                for path in (self.workspace / "startup" / "rootCA.pem", self.certificate)
            )
        except (OSError, ValueError) as error:
            raise FileError(f"a certificate of {self.folder} cannot be read: {error}; ask for the kit again") from error
        try:
            own.verify_directly_issued_by(root)
        except (invalid, TypeError, ValueError) as error:
            raise InputError(
                f"{self.certificate.name} of {self.folder} was not issued by this federation's authority; ask for the kit again"
            ) from error
        self._check_key(own)
        ends: datetime = min(root.not_valid_after_utc, own.not_valid_after_utc)
        now = datetime.now(UTC)
        if ends <= now:
            raise InputError(f"the certificate of {self.party!r} expired on {ends:%Y-%m-%d %H:%M} UTC; ask for a new kit")
        if own.not_valid_before_utc > now:
            raise InputError(
                f"the certificate of {self.party!r} is valid only from {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            )
        return ends

    def _check_key(self, certificate: Any) -> None:
        """The private key must be there, fit, and be its owner's alone; FLARE would wait for ever without a word."""
        path = self.certificate.with_suffix(".key")
        try:
            loose = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            key = flare("cryptography.hazmat.primitives.serialization").load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise FileError(f"{path.name} of {self.folder} cannot be read: {error}; ask for the kit again") from error
        if loose:
            raise InputError(f"{path.name} of {self.folder} may be read by others; make it yours alone: chmod 600 {path}")
        if key.public_key() != certificate.public_key():
            raise InputError(f"{path.name} of {self.folder} does not belong to {self.certificate.name}; ask for the kit again")

    def command(self) -> list[str]:
        """What starts FLARE for this kit, wherever the kit lies now."""
        if self.party == "coordinator":
            self._keep_inside()
            kind, who = "server", []
        else:
            kind, who = "client", [f"uid={self.party}"]
        settings = ["secure_train=true", *who, "org=eigenpact", "config_folder=config"]
        start = [sys.executable, "-u", "-m", "eigenpact.engines.flare_main", kind]
        return [*start, "-m", str(self.workspace), "-s", f"fed_{kind}.json", "--set", *settings]

    def _keep_inside(self) -> None:
        """Let FLARE's server store jobs in the kit; it takes absolute paths only."""
        path = self.workspace / "local" / "resources.json"
        resources = json.loads(path.read_text())
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(self.workspace / "snapshots")
        manager = next(part for part in resources["components"] if part["id"] == "job_manager")
        manager["args"]["uri_root"] = str(self.workspace / "jobs")
        _write_json(path, resources)


def make_kits(federation: Federation, folder: Path) -> None:
    """Make the kits of all parties in a new folder: one for each site, "coordinator", and "authority" with the root key."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"{folder} exists already; choose another folder, because kits made before would no longer fit")
    work = folder / "authority"
    try:
        work.mkdir(parents=True, mode=0o700)
        made = _provision(federation, work)
        _adopt_kit(made / federation.host, folder / "coordinator" / "server")
        _adopt_kit(made / ADMIN, folder / "coordinator" / "admin")
        for site in federation.sites:
            _adopt_kit(made / site, folder / site)
            _configure_site(folder / site)
            _describe(folder / site, site, federation)
        _configure_server(folder / "coordinator" / "server")
        _describe(folder / "coordinator", "coordinator", federation)
        shutil.rmtree(made)
    except OSError as error:
        raise FileError(f"kits cannot be written to {folder}: {error.strerror or error}; choose another folder") from error


def job_config(relay: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Configurations of the coordinator's and the sites' part of a job, by file name."""
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": CONTROLLER_CLASS,
                "args": {"server_obj_id": "relay", "sync_task_timeout": 60, "max_call_threads": 100},
            }
        ],
        "components": [{"id": "relay", "path": RELAY_CLASS, "args": dict(relay)}],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    return {"config_fed_server.json": server, "config_fed_client.json": SITE_CONFIG}


def write_job(folder: Path, sites: Sequence[str], min_sites: int, relay: Mapping[str, Any]) -> None:
    """Write a job folder as FLARE takes it: configurations that name installed classes, and no code."""
    meta = {
        "name": "eigenpact",
        "resource_spec": {},
        "deploy_map": {"coordinator": ["server"], "site": list(sites)},
        "min_clients": min_sites,
        "mandatory_clients": [],
    }
    configs = job_config(relay)
    for app, file in (("coordinator", "config_fed_server.json"), ("site", "config_fed_client.json")):
        (folder / app / "config").mkdir(parents=True)
        _write_json(folder / app / "config" / file, configs[file])
    _write_json(folder / "meta.json", meta)


def _provision(federation: Federation, work: Path) -> Path:
    """Let FLARE make certificates and start-up files; return the folder with one folder for each party."""
    entity = flare("nvflare.lighter.entity")
    project = entity.Project(federation.name, "eigenpact federation")
    ports = {"fed_learn_port": federation.port, "admin_port": federation.port}
    project.set_server(federation.host, "eigenpact", ports)
    for site in federation.sites:
        project.add_client(site, "eigenpact", {"allow_log_streaming": False})
    project.add_admin(ADMIN, "eigenpact", {"role": "project_admin"})
    builders = [
        flare("nvflare.lighter.impl.workspace").WorkspaceBuilder(),
        flare("nvflare.lighter.impl.static_file").StaticFileBuilder(config_folder="config", require_signed_jobs=True),
        flare("nvflare.lighter.impl.cert").CertBuilder(root_valid_days=federation.valid_days),
        flare("nvflare.lighter.impl.signature").SignatureBuilder(),
    ]
    log = _Quiet()
    context = flare("nvflare.lighter.provisioner").Provisioner(str(work), builders).provision(project, logger=log)
    if context.get("build_error") or log.errors:
        raise InputError(f"FLARE could not make the kits: {'; '.join(log.errors) or 'no reason was given'}")
    return Path(context["current_prod_dir"])


class _Quiet:
    """Takes FLARE's provisioning log; keeps errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def debug(self, *_: object) -> None:
        """Not shown."""

    info = warning = debug

    def error(self, message: object, *_: object) -> None:
        """Kept."""
        self.errors.append(str(message))


def _adopt_kit(made: Path, target: Path) -> None:
    """Move a party's files to their place, without the scripts that would start FLARE past eigenpact's checks."""
    for script in [*made.glob("*.txt"), *(made / "startup").glob("*.sh"), *(made / "startup").glob("*.txt")]:
        script.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, target)
    target.chmod(stat.S_IRWXU)


def _configure_site(kit: Path) -> None:
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = [SITE_CLASS, EXECUTOR_CLASS]
    resources["class_list_enforcement_mode"] = "enforce"
    resources["allow_log_streaming"] = False
    common = "nvflare.app_common"
    resources["components"] = [
        _component("resource_manager", f"{common}.resource_managers.passthrough_resource_manager.PassthroughResourceManager"),
        _component("resource_consumer", f"{common}.resource_consumers.passthrough_resource_consumer.PassthroughResourceConsumer"),
        _component("app_deployer", DEPLOYER_CLASS),
        _component("process_launcher", LAUNCHER_CLASS),
    ]  # fmt: skip
    _write_json(local / "resources.json", resources)
    _write_json(local / "comm_config.json", COMMUNICATION)
    _write_json(local / "authorization.json", _permissions({"submit_job": "any", "manage_job": "any", "view": "any"}))
    _write_json(local / "log_config.json", _log_config())


def _configure_server(kit: Path) -> None:
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = [RELAY_CLASS, CONTROLLER_CLASS]
    resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_TIMEOUT
    resources["class_list_enforcement_mode"] = "enforce"
    resources["components"] = [part for part in resources["components"] if part["id"] != "log_receiver"]
    _write_json(local / "resources.json", resources)
    _write_json(local / "comm_config.json", COMMUNICATION)
    rights = ("submit_job", "manage_job", "view", "operate", "download_job")
    _write_json(local / "authorization.json", _permissions(dict.fromkeys(rights, "any")))
    _write_json(local / "log_config.json", _log_config())


def _component(id_: str, path: str) -> dict[str, Any]:
    return {"id": id_, "path": path, "args": {}}


def _permissions(allowed: Mapping[str, str]) -> dict[str, Any]:
    """Rights of the coordinator here; whatever is not named is denied."""
    every = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "shell_commands", "byoc")
    return {"format_version": "1.0", "permissions": {"project_admin": {right: allowed.get(right, "none") for right in every}}}


def _log_config() -> dict[str, Any]:
    """Everything from INFO on in log.txt; on the console only what eigenpact says, and errors."""
    file = {"class": "logging.handlers.RotatingFileHandler", "mode": "a", "maxBytes": 20 << 20, "backupCount": 3}
    text = {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": "%(asctime)s - %(name)s - %(levelname)s - %(message)s"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"text": text, "plain": {"format": "%(asctime)s %(message)s", "datefmt": "%H:%M:%S"}},
        "handlers": {
            "console": {"class": "logging.StreamHandler", "level": "INFO", "formatter": "plain", "stream": "ext://sys.stdout"},
            "file": file | {"level": "INFO", "formatter": "text", "filename": "log.txt"},
            "errors": file | {"level": "ERROR", "formatter": "text", "filename": "error_log.txt"},
        },
        "loggers": {
            "root": {"level": "INFO", "handlers": ["file", "errors"]},
            "eigenpact": {"level": "INFO", "handlers": ["console"]},
            "nvflare.collab": {"level": "WARNING"},  # else several lines a message
        },
    }


def _describe(kit: Path, party: str, federation: Federation) -> None:
    facts = {"party": party} | {key: getattr(federation, key) for key in federation.__dataclass_fields__}
    kit.chmod(stat.S_IRWXU)
    _write_json(kit / KIT, facts)


def _write_json(path: Path, value: Any) -> None:
    with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def flare(module: str) -> Any:
    """A module of NVIDIA FLARE."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"engine 'nvflare' needs NVIDIA FLARE ({error}): pip install 'eigenpact[nvflare]'") from error
