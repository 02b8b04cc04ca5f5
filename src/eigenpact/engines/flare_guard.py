"""The site's last word on a job before a process is started for it: exactly eigenpact's own configuration, and no code."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher

from ..errors import PolicyError
from .flare_kits import SITE_CONFIG

SIGNATURES = (".__nvfl_sig.json", ".__nvfl_submitter.crt")
"""FLARE's signatures of a job's files, which it has verified."""

log = logging.getLogger("eigenpact.site")


class GuardedLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a process for an eigenpact job and for nothing else."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        """Check the job as it was deployed here, then start it."""
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        job = job_meta.get(JobConstants.JOB_ID)
        try:
            check_app(Path(workspace.get_app_dir(job)))
        except PolicyError as error:
            log.warning("refused job %s: %s", job, error)
            raise
        log.info("job %s started", job)
        return super().launch_job(job_meta, fl_ctx)


def check_app(folder: Path) -> None:
    """Refuse an app that holds anything but the one configuration that eigenpact jobs have."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    expected = "config/config_fed_client.json"
    foreign = [name for name in files if name != expected and Path(name).name not in SIGNATURES]
    if foreign:
        raise PolicyError(f"rule job: it brings {foreign[0]}; allowed is {expected} alone")
    try:
        config = json.loads((folder / expected).read_text())
    except (OSError, ValueError) as error:
        raise PolicyError(f"rule job: its {expected} cannot be read") from error
    if config != SITE_CONFIG:
        raise PolicyError(f"rule job: its {expected} is not that of eigenpact; it may come from another version")
