"""FLARE's server as the coordinator starts it: what it makes of sites that do not come up, or report that they ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.defs import SETUP_TASK_NAME, SYNC_TASK_NAME
from nvflare.private.defs import JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer

from eigenpact.engines.flare.server import SteadyController, go_on_without_sites

SITES = ("lima", "oslo", "quito")


def begin(monkeypatch: pytest.MonkeyPatch, synced: set[str], ready: set[str]) -> tuple[SteadyController, list[Any]]:
    """A job's two questions to its sites, as FLARE's control flow asks them; the controller, and whom it asked."""
    asked: list[Any] = []

    def broadcast(self: Any, task: Any, fl_ctx: Any, targets: Any = None, min_responses: int = 0) -> None:  # noqa: ARG001
        asked.append((task.name, targets, min_responses))
        answers, told = (self.client_info, synced) if task.name == SYNC_TASK_NAME else (self.client_setup_status, ready)
        answers.update(dict.fromkeys(told, "interface" if task.name == SYNC_TASK_NAME else True))

    monkeypatch.setattr(CollabController, "broadcast_and_wait", broadcast)
    controller = SteadyController(server_obj_id="relay", sync_task_timeout=1)
    controller.client_info, controller.client_setup_status = dict.fromkeys(SITES), dict.fromkeys(SITES, False)
    for name in (SYNC_TASK_NAME, SETUP_TASK_NAME):
        controller.broadcast_and_wait(task=SimpleNamespace(name=name), fl_ctx=None, min_responses=3)
    return controller, asked


@pytest.mark.parametrize(("synced", "ready"), [({"lima", "oslo"}, {"lima", "oslo"}), (set(SITES), {"quito"})])
def test_a_job_begins_without_sites_that_do_not_come_up(
    monkeypatch: pytest.MonkeyPatch, synced: set[str], ready: set[str]
) -> None:
    controller, asked = begin(monkeypatch, synced, ready)
    assert controller.client_info == dict.fromkeys(SITES, "interface")
    assert controller.client_setup_status == dict.fromkeys(SITES, True)
    assert asked == [(SYNC_TASK_NAME, None, 3), (SETUP_TASK_NAME, sorted(synced), len(synced))]


def test_a_job_without_any_site_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, _ = begin(monkeypatch, set(), set())
    assert controller.client_info == dict.fromkeys(SITES)
    assert controller.client_setup_status == dict.fromkeys(SITES, False)


@pytest.mark.parametrize("payload", [{JobFailureMsgKey.JOB_ID: "j", JobFailureMsgKey.CODE: 101}, "nonsense"])
def test_a_site_that_ended_fails_nobodys_job(monkeypatch: pytest.MonkeyPatch, payload: Any) -> None:
    """FLARE's own answer follows, with a code that ends nothing."""
    passed: list[Any] = []
    monkeypatch.setattr(FederatedServer, "process_job_failure", lambda _self, request: passed.append(request.payload))
    go_on_without_sites()
    FederatedServer.process_job_failure(None, SimpleNamespace(payload=payload))
    assert passed == [payload if payload == "nonsense" else {JobFailureMsgKey.JOB_ID: "j", JobFailureMsgKey.CODE: 0}]
