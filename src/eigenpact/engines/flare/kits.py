"""Start-up kits of a federation on NVIDIA FLARE: made once for everybody, then one folder for each party.

FLARE's provisioning makes a certificate authority and a key and certificate for each party; this adds what eigenpact insists on:
sites build only the classes of an eigenpact job, run no code that comes with a job, answer no shell commands, send no logs, and
keep what FLARE stores inside the kit.
"""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...storage import replace_private, write_private, write_private_json, writing
from .. import signals
from ..extras import bring, crypto
from ..federation.kits import AUTHORITY_DAYS, EngineKit, Federation, check_new_folder, describe_kits
from ..federation.parties import COORDINATOR, digest_of_root

ADMIN = "coordinator@eigenpact.org"
"""Name in the certificate with which the coordinator submits jobs."""

SITE_VARIABLE, DIGEST_VARIABLE = "EIGENPACT_SITE", "EIGENPACT_SITE_DIGEST"
"""Environment variables of a site: the file with what its owner says of it, and its digest when the site was started."""

SITE_CLASS = "eigenpact.engines.flare.site.FlareSite"
RELAY_CLASS = "eigenpact.engines.flare.relay.Relay"
CONTROLLER_CLASS = "eigenpact.engines.flare.server.SteadyController"
EXECUTOR_CLASS = "nvflare.collab.runtime.executor.CollabExecutor"
LAUNCHER_CLASS = "eigenpact.engines.flare.guard.GuardedLauncher"
DEPLOYER_CLASS = "eigenpact.engines.flare.guard.GuardedDeployer"

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


ROOT = "rootCA.pem"
"""The authority's certificate, beside each certificate that it signed."""

FOR_EVER = 1e9
"""Seconds until FLARE gives up a job whose sites are gone: the driver does, by ``min_sites``."""


class Kit(EngineKit):
    """A party's folder, with FLARE's files in it."""

    engine = "nvflare"

    @property
    def workspace(self) -> Path:
        """FLARE's folder in the kit, of a site or of the coordinator's server."""
        return self.folder / "server" if self.party == COORDINATOR else self.folder

    @property
    def certificates(self) -> dict[str, str]:
        """The party's own certificates: path in the kit -> to whom it was issued."""
        if self.party == COORDINATOR:
            return {"server/startup/server.crt": self.federation.host[:64], "admin/startup/client.crt": ADMIN}
        return {"startup/client.crt": self.party}

    @property
    def credentials(self) -> tuple[str, ...]:
        """Paths in the kit of its keys and certificates: what a renewal replaces."""
        own = [Path(path) for path in self.certificates]
        return tuple(str(file) for path in own for file in (path, path.with_suffix(".key"), path.with_name(ROOT)))

    @property
    def log(self) -> Path:
        """Where FLARE writes what happens."""
        return self.workspace / "log.txt"

    def expires(self) -> datetime:
        """When the first of the kit's certificates ends; one that has ended, lacks its key or is of elsewhere is an error."""
        own = {self.folder / path: name for path, name in self.certificates.items()}
        return min(self.check_certificate(path.with_name(ROOT), path, name) for path, name in own.items())

    def make_party(self, party: str, folder: Path) -> str:
        """Of the authority: make a party's kit, with new keys and certificates, in a folder; SuperNodes are Flower's."""
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            sites = () if party == COORDINATOR else (party,)
            made = _provision(self.federation, sites, Path(work), _signing(self.folder))
            if party == COORDINATOR:
                _adopt_coordinator(made, self.federation.host, folder)
            else:
                _adopt_site(made / party, folder)
        return ""

    def command(self) -> list[str]:
        """What starts FLARE for this kit, wherever the kit lies now."""
        if self.party == COORDINATOR:
            self._keep_inside()
            kind, who = "server", []
        else:
            kind, who = "client", [f"uid={self.party}"]
        settings = ["secure_train=true", *who, "org=eigenpact", "config_folder=config"]
        rest = ["-m", str(self.workspace), "-s", f"fed_{kind}.json", "--set", *settings]
        return signals.command("eigenpact.engines.flare.main", kind, *rest)

    def _keep_inside(self) -> None:
        """Let FLARE's server store jobs in the kit; it takes absolute paths only."""
        path = self.workspace / "local" / "resources.json"
        resources = json.loads(path.read_text())
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(self.workspace / "snapshots")
        manager = next(part for part in resources["components"] if part["id"] == "job_manager")
        manager["args"]["uri_root"] = str(self.workspace / "jobs")
        replace_private(path, [json.dumps(resources, indent=2).encode()])  # Ctrl-C must not tear it


def make_kits(federation: Federation, folder: Path) -> None:
    """Make the kits of all parties in a new folder: one for each site, "coordinator", and "authority" with the root key."""
    check_new_folder(folder)
    work = folder / "authority"
    with writing(folder, "choose another folder"):
        work.mkdir(parents=True, mode=0o700)
        made = _provision(federation, federation.sites, work)
        _adopt_coordinator(made, federation.host, folder / COORDINATOR)
        for site in federation.sites:
            _adopt_site(made / site, folder / site)
        _keep_signing_key(work)
        root = crypto("x509").load_pem_x509_certificate((work / "ca.crt").read_bytes())
        describe_kits(folder, federation, digest_of_root(root))


def _keep_signing_key(authority: Path) -> None:
    """Leave the authority's key and certificate; FLARE's provisioning leaves the private keys of all parties beside them."""
    state = json.loads(next(authority.glob("*/state/cert.json")).read_text())
    for provisioned in authority.iterdir():
        shutil.rmtree(provisioned)
    write_private(authority / "ca.key", state["root_pri_key"].encode())
    write_private(authority / "ca.crt", state["root_cert"].encode())


def _signing(authority: Path) -> dict[str, Any]:
    """The authority's key and certificate, as FLARE's provisioning takes them."""
    key = crypto("hazmat.primitives.serialization").load_pem_private_key((authority / "ca.key").read_bytes(), None)
    return {"serialized_root_cert": (authority / "ca.crt").read_bytes(), "root_private_key": key}


def job_config(relay: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Configurations of the coordinator's and the sites' part of a job, by file name."""
    controlled = {"server_obj_id": "relay", "sync_task_timeout": 60, "max_call_threads": 100}
    server = {
        "format_version": 2,
        "dead_client_grace_period": FOR_EVER,
        "workflows": [{"id": "controller", "path": CONTROLLER_CLASS, "args": controlled}],
        "components": [{"id": "relay", "path": RELAY_CLASS, "args": dict(relay)}],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    return {"config_fed_server.json": server, "config_fed_client.json": SITE_CONFIG}


def write_job(folder: Path, sites: Sequence[str], min_sites: int, relay: Mapping[str, Any], run: str = "") -> None:
    """Write a job folder as FLARE takes it: configurations that name installed classes, and no code; called as the run is."""
    meta = {
        "name": run or "eigenpact",
        "resource_spec": {},
        "deploy_map": {"coordinator": ["server"], "site": list(sites)},
        "min_clients": min_sites,
        "mandatory_clients": [],
    }
    configs = job_config(relay)
    for app, file in (("coordinator", "config_fed_server.json"), ("site", "config_fed_client.json")):
        (folder / app / "config").mkdir(parents=True)
        write_private_json(folder / app / "config" / file, configs[file])
    write_private_json(folder / "meta.json", meta)


def _provision(federation: Federation, sites: Sequence[str], work: Path, signing: Mapping[str, Any] | None = None) -> Path:
    """Let FLARE make certificates and start-up files for these sites and the coordinator; return the folder with theirs.

    They are signed with the authority's key and certificate, or with new ones if there are none yet.
    """
    entity = bring("nvflare", "nvflare.lighter.entity")
    project = entity.Project(federation.name, "eigenpact federation", **signing or {})
    ports = {"fed_learn_port": federation.port, "admin_port": federation.port}
    project.set_server(federation.host, "eigenpact", ports)
    for site in sites:
        project.add_client(site, "eigenpact", {"allow_log_streaming": False})
    project.add_admin(ADMIN, "eigenpact", {"role": "project_admin"})
    builders = [
        bring("nvflare", "nvflare.lighter.impl.workspace").WorkspaceBuilder(),
        bring("nvflare", "nvflare.lighter.impl.static_file").StaticFileBuilder(config_folder="config", require_signed_jobs=True),
        _certificates(federation.valid_days),
        bring("nvflare", "nvflare.lighter.impl.signature").SignatureBuilder(),
    ]
    log = _Quiet()
    context = bring("nvflare", "nvflare.lighter.provisioner").Provisioner(str(work), builders).provision(project, logger=log)
    if context.get("build_error") or log.errors:
        raise InputError(f"FLARE could not make the kits: {'; '.join(log.errors) or 'no reason was given'}")
    return Path(context["current_prod_dir"])


def _certificates(days: int) -> Any:
    """FLARE's maker of certificates, which gives parties 360 days unless it is told otherwise."""
    base = bring("nvflare", "nvflare.lighter.impl.cert").CertBuilder

    class Certificates(base):  # type: ignore[misc, valid-type]
        def _generate_cert(self, *args: Any, **options: Any) -> Any:
            if not options.get("ca"):
                end = datetime.now(UTC) + timedelta(days=days)
                options["not_valid_after"] = min(end, self.root_cert.not_valid_after_utc)
            return base._generate_cert(*args, **options)

    return Certificates(root_valid_days=max(days, AUTHORITY_DAYS))


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


def _adopt_coordinator(made: Path, host: str, kit: Path) -> None:
    _adopt_kit(made / host, kit / "server")
    _adopt_kit(made / ADMIN, kit / "admin")
    _configure_server(kit / "server")


def _adopt_site(made: Path, kit: Path) -> None:
    _adopt_kit(made, kit)
    _configure_site(kit)


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
    write_private_json(local / "resources.json", resources)
    write_private_json(local / "comm_config.json", COMMUNICATION)
    write_private_json(local / "authorization.json", _permissions({"submit_job": "any", "manage_job": "any", "view": "any"}))
    write_private_json(local / "log_config.json", _log_config())


def _configure_server(kit: Path) -> None:
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = [RELAY_CLASS, CONTROLLER_CLASS]
    resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT_TIMEOUT
    resources["class_list_enforcement_mode"] = "enforce"
    resources["components"] = [part for part in resources["components"] if part["id"] != "log_receiver"]
    write_private_json(local / "resources.json", resources)
    write_private_json(local / "comm_config.json", COMMUNICATION)
    rights = ("submit_job", "manage_job", "view", "operate", "download_job")
    write_private_json(local / "authorization.json", _permissions(dict.fromkeys(rights, "any")))
    write_private_json(local / "log_config.json", _log_config())


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
            "eigenpact.engines": {"level": "WARNING"},  # what FLARE's own classes say under our classes' names
        },
    }
