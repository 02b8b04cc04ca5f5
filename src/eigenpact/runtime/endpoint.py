"""A site's end of the mail: bytes in, bytes out, and nothing raised.

A request that is damaged, too large, of a protocol or a function that is not known here, or out of order, is refused with the
reason; nothing is computed and nothing revealed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import (
    EigenpactError,
    FileError,
    NotAnnouncedError,
    PolicyError,
    ProtocolError,
    SiteError,
    StepError,
    WireError,
)
from . import wire
from .headers import HEADER_A_FEATURE, MAX_HEADER, REQUEST_KEYS, check_header
from .ledger import COORDINATOR
from .letters import Damaged, Identity, open_letter, seal
from .local import Arrays
from .plan import is_count
from .protocol import Speaker, agree, named
from .site import Request, SiteServer
from .site_ledger import shortened

MAX_MESSAGE = 1 << 33
"""Larger messages are refused unread."""


class SiteEndpoint:
    """A site's end: bytes in, bytes out.

    Parameters
    ----------
    server : SiteServer
    max_bytes : int
        Larger messages are refused unread.
    tell : callable, optional
        Called with the reason whenever a message is refused, for the site's log.
    identity : Identity, optional
        The site's key and the coordinator's: letters without the coordinator's signature are refused, and replies are signed.
    """

    def __init__(
        self,
        server: SiteServer,
        max_bytes: int = MAX_MESSAGE,
        tell: Callable[[str], None] = lambda _reason: None,
        identity: Identity | None = None,
    ) -> None:
        self._server = server
        self._identity = identity
        self._max_bytes = max_bytes
        self._max_header = MAX_HEADER + HEADER_A_FEATURE * server.n_features
        self._tell = tell

    def handle(self, data: bytes | bytearray | memoryview) -> bytes:
        """Answer one message; whatever is wrong with it is told in the answer."""
        facts: dict[str, Any] = {"site": self._server.name}
        try:
            after, name, header, args = self._open(memoryview(data))
            check_header(header)
            facts |= {"asked": name} if name else {}
            facts |= {key: header[key] for key in ("run", "epoch", "step")}
            own, greeted = Speaker.here(f"site {self._server.name!r}"), header["what"] in ("hello", "plan")
            facts |= own.header() if greeted else {}
            protocol = self._agree(own, header)
            facts |= {} if greeted else named(protocol)
            if header["what"] == "plan":
                self._server.admit(header["run"], header.get("plan"), self._time_of(header))
            if greeted:
                return self._seal(facts | self._standing(header))
            request = Request(args=args, **{key: header[key] for key in REQUEST_KEYS})
            return self._seal(facts, self._server.execute(request, after).arrays)
        except Damaged as error:
            return self._refuse(facts, "damaged", str(error))
        except StepError as error:  # e.g. it was started anew in mid-run: it can take part again in the next epoch
            return self._refuse(facts, "lost", f"out of step: {error}")
        except NotAnnouncedError as error:  # likewise
            return self._refuse(facts, "lost", str(error))
        except PolicyError as error:
            return self._refuse(facts, "refused", str(error))
        except FileError as error:
            return self._refuse(facts, "failed", "SiteError: a file of this site's cannot be used; its own log says why", error)
        except EigenpactError as error:
            how = "failed" if isinstance(error, SiteError) else "error"  # here, as it may not elsewhere, or for what was asked
            return self._refuse(facts, how, f"{type(error).__name__}: {error}", error.__cause__)
        except Exception as error:  # such as MemoryError: whatever it is, its text may hold values of rows
            return self._refuse(facts, "failed", f"SiteError: this message ended in a {type(error).__name__} here", error)

    def _agree(self, own: Speaker, header: dict[str, Any]) -> int:
        """The protocol of a message; one that is not spoken here is refused before more of it is read."""
        try:
            return agree([own, Speaker.elsewhere(f"the {COORDINATOR}", header)])
        except ProtocolError as error:
            self._server.refused(header["run"], str(error))
            raise

    def _standing(self, header: dict[str, Any]) -> dict[str, int]:
        """How many features the site has, and the step it did last."""
        last = self._server.position(header["run"], header["epoch"])
        return {"n_features": self._server.n_features, "last": last}

    def _refuse(self, facts: dict[str, Any], how: str, reason: str, cause: BaseException | None = None) -> bytes:
        """Tell both sides why; the cause is for the site's own log alone."""
        self._tell(shortened(reason) + (f" ({shortened(str(cause))})" if cause is not None else ""))
        return self._seal(facts | {how: shortened(reason)})

    def _seal(self, facts: dict[str, Any], arrays: Arrays = ()) -> bytes:
        return seal(wire.pack(facts, arrays), self._identity)

    def _time_of(self, header: dict[str, Any]) -> int | None:
        """When a plan was sent, by the coordinator's clock; only a signature makes that worth knowing."""
        if self._identity is None:
            return None
        if not is_count(header.get("sent")):
            raise WireError("message header: 'sent' must tell when a signed plan was sent, in nanoseconds")
        return int(header["sent"])

    def _open(self, data: memoryview) -> tuple[int, str, dict[str, Any], Arrays]:
        if len(data) > self._max_bytes:
            raise Damaged(f"message of {len(data)} bytes refused unread: at most {self._max_bytes} are allowed here")
        return open_letter(data, self._server.name, self._identity, self._max_header)
