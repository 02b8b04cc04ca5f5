"""What a local function sees of its site, and the server that runs local functions there, step by step."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import EigenpactError, PolicyError, SiteError, StepError, WireError
from . import wire
from .fingerprint import DIGEST, rows_digest
from .fixed_point import ROUNDED, quantum, rounded
from .gate import NOTHING, Gate
from .keys import KEYS, ROSTER, Trust, session_key, session_roster
from .local import Arrays, Kept, LocalFunction, Reply, as_arrays, find_local
from .memory import pack_memory, unpack_memory
from .prepared import SeenRows
from .purse import Entrusted, Purse, Question, Scales
from .secure_sum import GRAIN
from .shapes import columns_of
from .site_session import SiteSession

TOLD = "runtime: told at set-up"
"""Under this name a site keeps a digest of what it was told by the functions that agree once."""

REMEMBERED = ("run", "epoch", "last", "digest", "kept")
"""What a server tells the next process of its site, besides what has a form of its own."""

MAXIMUM = "runtime: maximum"
"""Under this name a node keeps the largest value seen while a graph agrees on a maximum."""


@dataclass(frozen=True)
class Site:
    """A data holder, as a local function sees it.

    Attributes
    ----------
    name : str
    X : (n, d) array or sparse matrix
        The rows.  They are touched in local functions only.
    kept : mapping
        What earlier local functions of this run kept here, as far as this one declares to read it.
    inbox : mapping from neighbour to arrays
        Messages of the last ``Exchange``, in graph programs.
    neighbours : tuple of str
        Neighbours in the graph, in graph programs.
    features : tuple of str
        Names of the columns, where the site's owner gave them; for the digest of its rows.
    grain : float
        The share of the pooled trace that replies are rounded to; 0 where they are exact.
    min_rows : int
        Functions that speak of a part of the rows speak of at least this many, or withhold their reply.
    secret : bytes
        What only this site knows, where its owner keeps such a thing.
    secret_streams : bool
        Whether random streams begin with it.
    purse : Purse, optional
        Where noise comes from that hides single rows, and what it costs is written down.
    question : Question, optional
        What is asked now.
    """

    name: str
    X: Any
    kept: Mapping[str, Any] = field(default_factory=dict)
    inbox: Mapping[str, Arrays] = field(default_factory=dict)
    neighbours: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    grain: float = 0.0
    min_rows: int = 1
    secret: bytes = field(default=b"", repr=False)
    secret_streams: bool = True
    purse: Purse | None = None
    question: Question | None = None

    def noise(self, rho: float, honest: int, scales: Scales) -> np.ndarray[Any, Any]:
        """This site's share of the noise with which the sum costs rho, as whole numbers: the same if the question is repeated.

        ``scales`` are the standard deviations in steps of all noise together and how many numbers have each; a share has one
        ``honest``-th of the variance.  Refused if that is more than the owner lets be spent.
        """
        if self.purse is None or self.question is None:
            raise SiteError(f"site {self.name!r} has no purse to take noise from; it is asked through a server")
        shares = [(scale / np.sqrt(max(1, honest)), count) for scale, count in scales]
        return self.purse.noise(self.question, float(rho), int(honest), shares)

    def rng(self, seed: int) -> np.random.Generator:
        """A random stream of this site's own, determined by the seed and the site's name; nobody else's with a secret."""
        if self.secret and self.secret_streams:
            told = hashlib.blake2b(f"{int(seed)} {self.name}".encode(), key=self.secret, digest_size=16).digest()
            return np.random.default_rng(int.from_bytes(told, "little"))
        name = int.from_bytes(hashlib.blake2b(self.name.encode(), digest_size=8).digest(), "little")
        return np.random.default_rng([int(seed), name])

    def first_of(self, n: int, count: int, seed: int) -> np.ndarray[Any, Any]:
        """Which ``count`` of n rows to set aside, sorted; with a secret the same whatever the seed.

        A coordinator that asks with other seeds, or for more rows, must not learn of sets that differ by a few: a smaller set is
        part of a larger one, and behind a gate all sizes are multiples of ``min_rows``.
        """
        order = self.rng(0 if self.secret and self.secret_streams else seed).permutation(n)
        return np.sort(order[: count - count % max(1, self.min_rows)])

    @staticmethod
    def secret_rng() -> np.random.Generator:
        """A random stream from the operating system's entropy, that nobody can repeat: for noise that others must not know."""
        return np.random.default_rng(int.from_bytes(os.urandom(16), "little"))


@dataclass(frozen=True)
class Request:
    """One step, the same for all sites it goes to.

    ``digest`` is set when steps may be repeated (journal, engines that can lose messages).  ``kind`` is the collective's, or
    "consider" for a node's own value in a maximum over a graph, or, beside the steps, "digest" for that of a site's rows and
    "session key" and "session roster" for what secured sums begin with.
    """

    run: str
    epoch: int
    step: int
    kind: str
    function: str
    args: Arrays
    digest: str = ""


@dataclass(frozen=True)
class Response:
    """A site's answer to one request: arrays, or messages per neighbour for an exchange, or why there are none.

    ``lost`` means that the site is gone, for the ``reason`` given (the run may go on without it), ``error`` that the function
    failed there; ``own`` that it did so for a reason of the site's own, so that others may go on.
    """

    site: str
    arrays: Arrays = ()
    messages: Mapping[str, Arrays] = field(default_factory=dict)
    error: str = ""
    own: bool = False
    lost: bool = False
    reason: str = ""


class SiteServer:
    """Runs requests at one site: one step after the other, each once, arguments and replies checked.

    A request names the step the driver believes this site did last (``after``).  The server executes it only if that is true,
    repeats its cached reply for the same step and digest, and refuses anything else.  With a ``gate`` it refuses what the site's
    policy does not allow, before anything is computed or forgotten.  ``features`` are the names of the columns, if there are any.
    ``trust`` tells who stands for the site where sums are secured, and whom it takes part with.
    """

    def __init__(
        self,
        name: str,
        X: Any,
        *,
        neighbours: tuple[str, ...] = (),
        gate: Gate | None = None,
        features: tuple[str, ...] = (),
        secret: bytes = b"",
        trust: Trust | None = None,
        purse: Purse | None = None,
    ) -> None:
        X, purse = (X.rows, X.purse) if isinstance(X, Entrusted) else (X, purse)
        self.name, self._features, self._neighbours = name, features, neighbours
        self.n_features, self.n_entries = int(X.shape[1]), int(getattr(X, "nnz", X.shape[0] * X.shape[1]))
        self._X, self._seen = X, SeenRows(X)
        self.device = self._seen.device
        self._gate, self._secret, self._purse = gate, secret, purse or Purse()
        self._grain, self._min_rows = (0.0, 1) if gate is None else (gate.policy.grain, gate.policy.min_rows)
        self._secret_streams = gate is None or gate.policy.secret_streams
        self._run, self._epoch, self._last, self._digest = "", -1, 0, ""
        self._kept: dict[str, Any] = {}
        self._inbox: dict[str, Arrays] = {}
        self._response: Response | None = None
        self._session = SiteSession(name, trust or Trust(), gate)
        self._columns = 0  # that the reply under way tells of

    def position(self, run: str, epoch: int) -> int:
        """The last step executed in this run and epoch; 0 if none."""
        return self._last if (run, epoch) == (self._run, self._epoch) else 0

    def admit(self, run: str, plan: Any, sent: int | None = None) -> None:
        """Take note of what a run is about to do, or refuse it; ``sent`` is when a coordinator who signs has sent the plan."""
        if self._gate is not None:
            self._gate.admit(run, plan, sent)

    def refused(self, run: str, reason: str) -> None:
        """Write down that a run was refused whose plan was not read."""
        if self._gate is not None:
            self._gate.refused(run, reason)

    def forget_reply(self) -> None:
        """The last reply has arrived, so that nobody asks for it again: a second request for its step is refused."""
        self._response = None

    def deliver(self, inbox: Mapping[str, Arrays]) -> None:
        """Messages of an exchange, for the next local function."""
        self._inbox = dict(inbox)

    def results(self, names: Iterable[str]) -> dict[str, Any]:
        """What the site keeps under these names, for whoever runs in the site's own process."""
        return {name: self._kept[name] for name in names if name in self._kept}

    def remember(self) -> bytes:
        """All that the next request needs, for engines that answer it in another process; see :meth:`recall`."""
        response = None if self._response is None else self._response.arrays
        facts: dict[str, Any] = {key: getattr(self, f"_{key}") for key in REMEMBERED}
        facts["session"] = self._session.remember()
        return pack_memory(facts | {"response": response, "gate": None if self._gate is None else self._gate.remember()})

    def recall(self, data: bytes) -> None:
        """Go on where another process of this site stopped."""
        facts = unpack_memory(data)
        for key in REMEMBERED:
            setattr(self, f"_{key}", facts[key])
        self._session.recall(facts["session"])
        self._response = None if facts["response"] is None else Response(self.name, facts["response"])
        if self._gate is not None and facts["gate"] is not None and not self._gate.recall(facts["gate"]):
            self._session.end()  # other rows under the same pads would show what changed

    def execute(self, request: Request, after: int) -> Response:
        """Run one step, or repeat its reply, or refuse."""
        if request.kind == DIGEST:
            return self._answer_aside(request)
        if request.kind in (KEYS, ROSTER):
            return self._answer_session(request)
        here = (request.run, request.epoch) == (self._run, self._epoch)
        if here and request.step == self._last and self._response is not None:
            if request.digest != self._digest:
                raise StepError(f"site {self.name!r}: step {request.step} was already executed with other arguments")
            if self._gate is not None:
                self._gate.sent(request, self._response, again=True)
            return self._response
        begins = request.run != self._run or request.epoch > self._epoch
        last = self.position(request.run, request.epoch)
        if not (here or begins) or after != last or request.step <= last:
            raise StepError(
                f"site {self.name!r} executed step {self._last} of epoch {self._epoch} last; refused step {request.step} of "
                f"epoch {request.epoch} after step {after}"
            )
        try:
            response = self._take_step(request, begins)
        except Exception:
            if not begins:
                self._session.end()  # else a refusal tells something, and the next one more
            raise
        self._last, self._digest, self._response = request.step, request.digest, response
        return response

    def _take_step(self, request: Request, begins: bool) -> Response:
        """Check a step, and run it."""
        function = find_local(request.function)
        sizes = self._check(function, request.args)  # before anything is forgotten
        if not begins and request.kind != "local":
            self._session.check_open()
            self._session.check_shapes(function, sizes)
        if self._gate is not None:
            secured = self._session.masked is not None and not begins
            self._gate.check(request, function, known=NOTHING if begins else self._kept, secured=secured)
        if begins:
            self._begin(request.run, request.epoch)
        if self._session.masked is not None:
            self._session.masked.note(request.kind, function, request.step, request.args)
        return self._answer_gated(request, function, sizes)

    def _answer_session(self, request: Request) -> Response:
        """One of the two requests that secured sums begin with, beside the steps: a first one begins the epoch anew."""
        function = find_local(request.function)
        if function is not {KEYS: session_key, ROSTER: session_roster}[request.kind]:
            raise WireError(f"{request.function!r} is not what a session begins with")
        self._check(function, request.args)
        if request.run == self._run and request.epoch < self._epoch:
            raise StepError(f"site {self.name!r} is in epoch {self._epoch}; refused a session of epoch {request.epoch}")
        again = self._session.repeated(request)
        response = Response(self.name, again or self._session.answered(request, lambda: self._begin(request.run, request.epoch)))
        if self._gate is not None:
            self._gate.sent(request, response, again=bool(again))
        return response

    def _answer_aside(self, request: Request) -> Response:
        """The digest of the rows, beside the steps: position and kept state stay as they are."""
        if (function := find_local(request.function)) is not rows_digest:
            raise WireError(f"{request.function!r} does not run beside the steps; only {rows_digest.name!r} does")
        sizes = self._check(function, request.args)
        if self._gate is not None:
            self._gate.check(request, function)
        return self._answer_gated(request, function, sizes)

    def _answer_gated(self, request: Request, function: LocalFunction, sizes: dict[str, int]) -> Response:
        """Run a function; whether it fails or answers, the gate writes it down first, or it was not done."""
        kept, inbox = self._kept, self._inbox
        try:
            found = self._session.tried(request, lambda: self._answer(request, function, sizes))
            response = self._hidden(request, function, sizes) if found is None else found
        except EigenpactError as error:
            if self._gate is not None:
                self._gate.failed(request, str(error))
            raise
        if self._gate is not None:
            try:
                self._gate.sent(request, response, self._columns)
            except EigenpactError:
                self._kept, self._inbox = kept, inbox
                raise
        return response

    def _hidden(self, request: Request, function: LocalFunction, sizes: dict[str, int]) -> Response:
        """In place of an answer that would tell of the rows by not being one."""
        self._kept = {**self._kept, **dict.fromkeys(function.keeps)}  # else what is refused later would tell
        if request.kind == "local":
            return Response(self.name)
        shapes = function.reply_shapes(sizes)
        self._columns = columns_of(tuple(np.broadcast_to(0.0, shape) for shape in shapes), self.n_features)
        return Response(self.name, self._session.noise(function, shapes))

    def _begin(self, run: str, epoch: int) -> None:
        """A new run or epoch: forget everything kept."""
        self._run, self._epoch, self._last, self._digest = run, epoch, 0, ""
        self._kept, self._inbox, self._response = {}, {}, None
        self._session.forget()

    def _check(self, function: LocalFunction, args: Arrays) -> dict[str, int]:
        try:
            return function.check_args(args, self.n_features)
        except EigenpactError as error:
            raise type(error)(f"{function.short_name} at site {self.name!r}: {error}") from error

    def _answer(self, request: Request, function: LocalFunction, sizes: dict[str, int]) -> Response:
        kept, inbox = Kept(function, self._kept), MappingProxyType(self._inbox)
        grain = max(self._grain, GRAIN) if self._session.masked is not None else self._grain
        known = self._neighbours, self._features, grain, self._min_rows, self._secret, self._secret_streams
        question = Question(request.run, request.epoch, function.name, request.args, self._kept.get(TOLD, ""))
        rows = self._X if request.kind == DIGEST else self._seen.given(self._kept)
        site = Site(self.name, rows, kept, inbox, *known, self._purse, question)
        try:
            value = function(site, *request.args)
            reply = value if isinstance(value, Reply) else Reply(send=value)
            undeclared = reply.keep.keys() - function.keeps
            if undeclared:
                raise WireError(f"{function.name} keeps {sorted(undeclared)}, declared are {list(function.keeps)}")
            response = self._respond(request, function, reply.send, sizes)
        except EigenpactError as error:
            raise type(error)(f"{function.short_name} at site {self.name!r}: {error}") from error
        except Exception as error:
            told = "" if self._gate is not None else f": {error}"  # whose text may hold values of rows
            raise SiteError(f"{function.short_name} failed at site {self.name!r}: {type(error).__name__}{told}") from error
        agreed = {TOLD: wire.digest(f"{function.name} {self._kept.get(TOLD, '')}", request.args)} if function.once else {}
        self._kept = {**self._kept, **reply.keep, **agreed}
        self._inbox = {}
        return response

    def _rounded(self, function: LocalFunction, args: Arrays, arrays: Arrays) -> Arrays:
        """A reply in fixed point, as far as its magnitude is known to be a share of the agreed trace.

        What was told at set-up is part of the question: asked again about another centre, a number is rounded by other bits.
        The site's own mean is not: two tables that differ by a row are then rounded by the same bits.
        """
        question = wire.digest(f"{function.name} {self._kept.get(TOLD, '')}", args)
        unit = quantum(self._kept.get("trace", 0.0), self._grain)
        to_round = [a for label, a in zip(function.sends, arrays, strict=True) if function.bounds[label] in ROUNDED]
        if unit == 0 and any(np.any(a) for a in to_round):
            raise PolicyError(
                f"rule exact_replies = false: no trace was agreed on that {function.short_name} could be rounded to"
            )
        return tuple(
            rounded(a, unit, self._secret, f"{question} {label}".encode()) if function.bounds[label] in ROUNDED else a
            for label, a in zip(function.sends, arrays, strict=True)
        )

    def _respond(self, request: Request, function: LocalFunction, send: Any, sizes: dict[str, int]) -> Response:
        if request.kind == "exchange":
            each = {name: as_arrays(message) for name, message in send.items()} if isinstance(send, dict) else None
            packed = dict.fromkeys(self._neighbours, as_arrays(send)) if each is None else each
            strangers = set(packed) - set(self._neighbours)
            if strangers:
                raise WireError(f"{function.short_name} at {self.name!r} addresses {sorted(strangers)}, not neighbours")
            for arrays in {id(arrays): arrays for arrays in packed.values()}.values():  # one for all is checked once
                function.check_reply(arrays, sizes)
            return Response(self.name, messages=packed)
        if request.kind == "local":
            return Response(self.name)
        arrays = as_arrays(send)
        function.check_reply(arrays, sizes)
        if request.kind == "consider":  # the node's own value in a maximum over the graph: stays here
            (self._kept[MAXIMUM],) = arrays
            return Response(self.name)
        arrays = self._rounded(function, request.args, arrays) if self._grain else arrays
        self._columns = columns_of(arrays, self.n_features)
        if self._session.masked is not None and request.kind == "sum":  # else the digest of the rows: no pad is for it
            arrays = self._session.masked.encode(function, arrays)
        return Response(self.name, arrays)
