"""The thread that reads what a relay passes on."""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from eigenpact.engines.federation.relay import RelayPost
from eigenpact.errors import SiteError


class Closed:
    """A pipe that was closed while it was read: multiprocessing then looks at a handle that is None."""

    closed = True

    def recv_bytes(self) -> bytes:
        raise TypeError("'NoneType' object cannot be interpreted as an integer")


def test_a_pipe_that_is_closed_under_its_reader_ends_in_order() -> None:
    """Nothing is printed by the thread, which pytest would tell as an error, and whoever waits hears of the end."""
    pipe: Any = Closed()
    post = RelayPost(pipe, ("north",))
    with pytest.raises(SiteError, match="the coordinator's server, or its job, has ended"):
        post.receive(time.monotonic() + 30)


def test_a_job_whose_driver_was_stopped_meanwhile_says_so_in_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its key is gone, or its socket, or nobody listens there any more."""
    pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")
    from eigenpact.engines.flare.relay import Relay

    relay = Relay(str(tmp_path / "relay"), str(tmp_path / "key"), 1.0)
    with caplog.at_level(logging.WARNING, "eigenpact.coordinator"):
        assert relay.driver() is None
        (tmp_path / "key").write_bytes(b"k" * 32)
        assert relay.driver() is None
        with socket.socket(socket.AF_UNIX) as left:  # as a process that was killed leaves it
            left.bind(str(tmp_path / "relay"))
        assert relay.driver() is None
    assert [record.message for record in caplog.records] == ["the process that drove the run has ended before the run began"] * 3
