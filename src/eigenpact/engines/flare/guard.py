"""The site's last word on what FLARE's server may do here: start and end eigenpact's own job, and nothing else.

FLARE's client has more to offer: shell commands that print files, log settings, other jobs.  It asks whether the coordinator has
the right to them only if the server says that it should ask.  So they are taken away here.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.apis.job_def import JobMetaKey
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.utils.app_deployer import AppDeployer

from ...errors import PolicyError
from ...runtime import shortened
from ...runtime.gate import RUN
from .kits import SITE_CLASS, SITE_CONFIG

SIGNATURES = (".__nvfl_sig.json", ".__nvfl_submitter.crt")
"""FLARE's signatures of a job's files, which it has verified."""

COMMANDS = frozenset(
    {
        TrainingTopic.CHECK_RESOURCE,
        TrainingTopic.CANCEL_RESOURCE,
        TrainingTopic.DEPLOY,
        TrainingTopic.START_JOB,
        TrainingTopic.ABORT,
        TrainingTopic.NOTIFY_JOB_STATUS,
    }
)
"""What a job takes, from its coming to its end."""

log = logging.getLogger("eigenpact.site")


class GuardedDeployer(AppDeployer):  # type: ignore[misc]
    """Takes an eigenpact job in, and nothing else."""

    def deploy(self, workspace: Any, job_id: str, job_meta: dict[str, Any], app_name: str, app_data: bytes, fl_ctx: Any) -> Any:
        """Check the job as it came, then let FLARE unpack it; give why not, if so."""
        with tempfile.TemporaryDirectory(prefix="eigenpact-") as folder:
            unzip_all_from_bytes(app_data, folder)
            try:
                check_app(Path(folder))
                reason = super().deploy(workspace, job_id, job_meta, app_name, app_data, fl_ctx)
            except PolicyError as error:
                reason = str(error)
        if reason:
            log.warning("refused job %s: %s", shortened(str(job_id)), reason)
        return reason


class GuardedLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a process for an eigenpact job and for nothing else."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        """Check the job as it lies here, then start it."""
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        job = job_meta.get(JobConstants.JOB_ID)
        try:
            check_app(Path(workspace.get_app_dir(job)))
        except PolicyError as error:
            log.warning("refused job %s: %s", job, error)
            raise
        name = str(job_meta.get(JobMetaKey.JOB_NAME.value, ""))
        log.info("run %s begins, as FLARE's job %s", name if RUN.fullmatch(name) else "without a name", job)
        return super().launch_job(job_meta, fl_ctx)


def check_app(folder: Path) -> None:
    """Refuse an app that holds anything but the one configuration that eigenpact jobs have."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    expected = "config/config_fed_client.json"
    foreign = [name for name in files if name != expected and Path(name).name not in SIGNATURES]
    if foreign:
        raise PolicyError(f"rule job: it brings {shortened(repr(foreign[0]))}; allowed is {expected} alone")
    try:
        config = json.loads((folder / expected).read_text())
    except (OSError, ValueError) as error:
        raise PolicyError(f"rule job: its {expected} cannot be read") from error
    classes = _classes(config) - _classes(SITE_CONFIG)
    if classes:
        raise PolicyError(f"rule job: it names the class {shortened(min(classes))!r}; allowed are {SITE_CLASS} and what runs it")
    if config != SITE_CONFIG:
        raise PolicyError(f"rule job: its {expected} is not that of eigenpact; it may come from another version")


def _classes(config: Any) -> set[str]:
    """Classes that a configuration has FLARE build."""
    parts = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    own = {str(config[key]) for key in ("path", "class_path", "name") if isinstance(config, dict) and key in config}
    return own.union(*map(_classes, parts))


def refuse_commands() -> None:
    """Have FLARE's client in this process answer the server alone, and only what a job takes."""
    dispatch = FedAdminAgent._dispatch_request

    def guarded(self: Any, request: Any) -> Any:
        origin, topic = request.get_header(MessageHeaderKey.ORIGIN), getattr(request.payload, "topic", None)
        own_job = topic == TrainingTopic.NOTIFY_JOB_STATUS and str(origin).startswith(f"{self.cell.get_fqcn()}.")
        if (origin == FQCN.ROOT_SERVER and topic in COMMANDS) or own_job:
            return dispatch(self, request)
        reason = f"rule commands: {shortened(str(topic))!r} of {shortened(str(origin))!r} is not answered at this site"
        log.warning("refused: %s", reason)
        return new_cell_message({}, error_reply(reason))

    FedAdminAgent._dispatch_request = guarded


def log_out() -> Callable[[], None]:
    """What tells FLARE's server that this site leaves, once it is connected; else the server counts on it for half a minute."""
    connected: list[Any] = []
    begin = FedAdminAgent.__init__

    def noted(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        connected.append(self.app_ctx)

    def leave() -> None:
        for engine in connected:
            engine.client.logout_client(engine.new_context())

    FedAdminAgent.__init__ = noted
    return leave
