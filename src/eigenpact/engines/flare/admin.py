"""Submits FLARE jobs, watches and ends them; a process of its own, so that FLARE's client stays out of the caller's.

Run as ``python -m eigenpact.engines.flare.admin KIT``.  It reads one command a line - ``clients``, ``submit FOLDER``,
``abort JOB``, ``status``, ``end SECONDS`` - and answers each with one line of JSON.  It ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from typing import Any

from nvflare.fuel.flare_api import api_spec as api
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from .kits import ADMIN

CONNECT_WITHIN = 10.0
LOOK_EVERY = 0.25
REFUSALS = (
    api.AuthenticationError, api.AuthorizationError, api.CommandError, api.InternalError, api.InvalidJobDefinition,
    api.JobNotFound, api.NoReply,
)  # fmt: skip
OVER = ("FINISHED", "FAILED", "ABANDONED")


class Administrator:
    """Carries out commands on the server of a coordinator's kit."""

    def __init__(self, kit: str) -> None:
        self._folder = os.path.join(kit, "admin")
        self._job = ""
        self._session: Session | None = None

    def answer(self, line: str) -> dict[str, Any]:
        """Carry out one command; the last one in a session of its own, since the server may be another by then."""
        command, _, rest = line.strip().partition(" ")
        if command == "end":
            self._session = None
        try:
            return {"value": getattr(self, f"_{command}")(self._connected(), rest)}
        except (api.NoConnection, api.SessionClosed) as error:
            return {"error": "connection", "detail": str(error)}
        except REFUSALS as error:
            return {"error": "refused", "detail": str(error) or type(error).__name__}

    def close(self) -> None:
        """Log out."""
        if self._session is not None:
            self._session.close()

    def _connected(self) -> Session:
        if self._session is None:
            self._session = new_secure_session(ADMIN, self._folder, timeout=CONNECT_WITHIN)
        return self._session

    def _clients(self, session: Session, _: str) -> list[str]:
        """Names of the sites that are connected."""
        return sorted(client.name for client in session.get_system_info().client_info)

    def _submit(self, session: Session, folder: str) -> str:
        self._job = str(session.submit_job(folder))
        return self._job

    def _abort(self, session: Session, job: str) -> bool:
        """End a job of an earlier try; false if it is over, died with its server, or is not known."""
        with contextlib.suppress(api.JobNotFound, api.JobNotRunning, api.InternalError):
            if not self._over(session, job):
                session.abort_job(job)
                return True
        return False

    def _status(self, session: Session, _: str) -> str:
        return "over" if self._over(session, self._job) else "running"

    def _end(self, session: Session, seconds: str) -> str:
        """Wait until the job is over; abort it if that takes too long."""
        deadline = time.monotonic() + float(seconds)
        while not self._over(session, self._job):
            if time.monotonic() > deadline:
                session.abort_job(self._job)
                return "aborted"
            time.sleep(LOOK_EVERY)
        return "over"

    @staticmethod
    def _over(session: Session, job: str) -> bool:
        return str(session.get_job_meta(job).get("status", "")).startswith(OVER)


def main() -> None:
    """Answer commands until the input ends; standard output is for answers alone."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    answers, sys.stdout = sys.stdout, sys.stderr
    administrator = Administrator(sys.argv[1])
    for line in sys.stdin:
        answers.write(json.dumps(administrator.answer(line)) + "\n")
        answers.flush()
    administrator.close()


if __name__ == "__main__":
    main()
