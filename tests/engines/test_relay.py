"""The thread that reads what a relay passes on."""

from __future__ import annotations

import time
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
