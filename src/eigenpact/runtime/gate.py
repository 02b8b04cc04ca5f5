"""The door of a site: every request is compared with the site's policy and the plan that was announced, before it is done.

A :class:`Gate` refuses a plan by the name of the rule that it breaks, and later every request that the admitted plan does not
hold, so that a coordinator cannot announce one thing and do another.  What was admitted, refused and sent stands in the site's
own ledger (``site_ledger.py``); values are never written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import NotAnnouncedError, PolicyError
from .fingerprint import DIGEST, rows_digest
from .holes import NO_HOLES, Holes, with_notes
from .keys import KEYS
from .ledger import COORDINATOR, describe
from .local import Arrays, LocalFunction, find_local
from .plan import Plan, check_features
from .policy import ALWAYS, SINGLE_REPLIES, Policy
from .rare import DROPPED, check_rare, count_nonzero, drop_rare, note_dropped
from .rosters import isolated, pack_history, unpack_history
from .site_ledger import SiteLedger, shortened
from .unlisted import unlisted
from .versions import Hashes
from .weights import check_weighable

if TYPE_CHECKING:
    from .keys import Session
    from .site import Request, Response

RUN = re.compile(r"[0-9A-Za-z_-]{1,64}")
"""Identifiers of runs; they stand in every row of a site's ledger, so a coordinator may not choose them at will."""

MOST_PLANS = 20
"""Plans by which one run is admitted: each is a row of the site's ledger.  A run that is resumed has the plan it had."""

MOST_SHOWN = 5
"""Sites that a refusal names."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""What a site keeps when an epoch begins."""


class Gate:
    """Admits or refuses what a coordinator asks of one site.

    Parameters
    ----------
    site : str
    policy : Policy
    ledger : SiteLedger
    n_rows : int
    features : sequence of str, or int
        The site's columns in order, or their number.
    data : str
        The version of the rows: what was answered is counted for each.
    holes : Holes
        Which columns the site lacks, and where entries are missing (``holes.py``).
    weighted : bool
        Whether rows have weights (``weights.py``).
    rows : Hashes, optional
        Keyed hashes of the rows (``versions.py``), by which they are compared with those of earlier runs.
    """

    def __init__(
        self,
        site: str,
        policy: Policy,
        ledger: SiteLedger,
        *,
        n_rows: int,
        features: Sequence[str] | int,
        data: str = "",
        rows: Hashes | None = None,
        holes: Holes = NO_HOLES,
        weighted: bool = False,
    ) -> None:
        self._site = site
        self._policy = policy
        self._ledger = ledger
        self._n_rows = n_rows
        self._features = features if isinstance(features, int) else tuple(features)
        self._n_features = features if isinstance(features, int) else len(features)
        self._data, self._rows, self._holes, self._weighted = data, rows, holes, weighted
        self._plan: Plan | None = None
        self._run, self._sent, self._withdrawn = "", 0, ""  # the last is why the plan would no longer be admitted

    @property
    def policy(self) -> Policy:
        """The site's rules."""
        return self._policy

    def admit(self, run: str, facts: Any, sent: int | None = None) -> None:
        """Admit a run by its plan, or refuse it by the name of a rule; the plan of another run ends with that.

        ``sent`` is the time, in nanoseconds, at which a coordinator who signs has sent the plan.
        """
        most = self._policy.max_runs_per_day
        try:
            if not RUN.fullmatch(run):
                raise PolicyError("rule plan: a run is named by at most 64 letters, digits, - or _")
            plan = Plan.from_dict(facts)
            self._check_plan(plan)
            with self._ledger.locked():
                self._check_new(run, sent)
                known, digest = self._ledger.plans(run), plan.digest()
                if not known and self._ledger.runs_today() >= most:
                    raise PolicyError(f"rule max_runs_per_day = {most}: as many runs were admitted already")
                if not known and self._ledger.runs(self._data) >= self._policy.max_runs:
                    raise PolicyError(f"rule max_runs = {self._policy.max_runs}: as many runs saw these rows already")
                if (digest, self._data) not in known:
                    if len(known) >= MOST_PLANS:
                        raise PolicyError(f"rule plan: {MOST_PLANS} plans of this run were admitted already; begin another run")
                    row = {
                        "solver": plan.solver,
                        "n_components": plan.n_components,
                        "max_rounds": plan.max_rounds,
                        "plan": digest,
                        "data": self._data,
                    }
                    row |= {} if sent is None else {"sent": sent}
                    row |= {"site_means": True} if any(find_local(name).site_means for name in plan.functions) else {}
                    self._ledger.write(run=run, what="admitted", **row)
        except PolicyError as error:
            self.refused(run, with_notes(error))
            raise
        self._plan, self._run, self._sent, self._withdrawn = plan, run, sent or 0, ""
        self._ledger.last_sent = max(self._ledger.last_sent, self._sent)

    def remember(self) -> dict[str, Any]:
        """The run that was admitted, its plan and the version of the rows, for another process of this site."""
        plan = None if self._plan is None else self._plan.to_dict()
        return {"run": self._run, "sent": self._sent, "plan": plan, "data": self._data}

    def recall(self, facts: Mapping[str, Any]) -> bool:
        """Go on with what another process of this site admitted, unless the rows are others, which is told.

        The site's rules may have changed since, and hold.
        """
        same = bool(facts["data"] == self._data)
        if facts["plan"] is None:
            return same
        self._plan, self._run, self._sent = Plan.from_dict(facts["plan"]), facts["run"], facts["sent"]
        try:
            self._check_plan(self._plan)
            if not same:
                raise PolicyError("rule plan: this site's rows changed since the run was admitted here; begin another")
        except PolicyError as error:
            self._withdrawn = str(error)
        return same

    def check(self, request: Request, function: LocalFunction, known: Mapping[str, Any] = NOTHING, secured: bool = False) -> None:
        """Refuse a request that breaks a rule or was not announced.

        ``known`` is what the site keeps in this epoch already, ``secured`` whether its reply will be masked.
        """
        try:
            self._check_request(request, function)
            self._holes.check(function, known)
            if request.kind != DIGEST:
                check_rare(self._policy.min_nonzero, request, function, DROPPED in known)
            if request.kind != DIGEST and not secured:  # what is only kept, too: whether it fails tells of this site's rows
                self._check_secured()
            if function.once and known and set(function.keeps) <= set(known):
                raise PolicyError(f"rule set-up: what {function.short_name} tells was agreed in this epoch already")
            if function is drop_rare and secured:
                note_dropped(self._ledger, request.run, self._data, request.args)
        except PolicyError as error:
            self.refused(request.run, with_notes(error), request.function)
            raise

    def check_session(self, request: Request) -> None:
        """Refuse to agree on keys for secured sums that were not announced, or more often than a run may begin."""
        most = self._policy.max_epochs
        try:
            if not self._check_announced(request.run).secure:
                raise PolicyError("rule plan: secured sums are not in the plan that was admitted")
            self._check_rounds(request.run)
            if request.kind == KEYS and self._ledger.sessions(request.run) >= most:
                raise PolicyError(f"rule max_epochs = {most}: this run began as often already")
        except PolicyError as error:
            self.refused(request.run, with_notes(error), request.function)
            raise

    def history(self, request: Request) -> bytes:
        """The sites of secured sums that these rows were in, as other sites of a session are told (``rosters.py``)."""
        try:
            with self._ledger.locked():
                return pack_history(self._ledger.rosters(self._data))
        except PolicyError as error:
            self.refused(request.run, with_notes(error), request.function)
            raise

    def check_roster(self, session: Session) -> None:
        """Refuse a session whose sums would show, beside any that its sites know of, what few have; else write it down."""
        rule, names = self._policy.min_apart, list(session.names)
        with self._ledger.locked():
            known = self._ledger.rosters(self._data)
            told = unpack_history(session.member.history, self._site)
            if pack_history([*known, names]) != pack_history([*told, names]):  # another process of this site was faster
                raise PolicyError(
                    "rule min_apart: these rows came into a session over other sites since this site told of its earlier ones; "
                    "begin this one anew"
                )
            shown = isolated([*known, *session.histories, names], rule)
            if shown:
                raise PolicyError(
                    f"rule min_apart = {rule}: rows of these sites were in secured sums over other sites before, so that the "
                    f"part of {' and '.join(shown[:MOST_SHOWN])} could be computed; ask the same sites as before "
                    f"(now {', '.join(names)})"
                )
            self._ledger.write(run=session.run, what="session", epoch=session.epoch, roster=names, data=self._data)

    def sent(self, request: Request, response: Response, columns: int = 0, again: bool = False) -> None:
        """Write down what is about to leave, unless another process of this site has sent the run's last reply meanwhile."""
        shapes, dtypes, size = describe(response.arrays)
        if not shapes:
            return
        try:
            with self._ledger.locked():
                if again:
                    self._check_repeats(request.run)
                else:
                    self._check_rounds(request.run)
                    self._check_columns(columns)
                    if request.step > 0:  # keys and digests say nothing of the rows
                        self._note_rows()
                self._ledger.write(
                    run=request.run,
                    what="sent again" if again else "sent",
                    to=COORDINATOR,
                    epoch=request.epoch,
                    step=max(0, request.step),  # 0, as at the coordinator, for what is no step
                    kind=request.kind,
                    function=request.function,
                    shapes=shapes,
                    dtypes=dtypes,
                    bytes=size,
                    columns=columns,
                    data=self._data,
                )
        except PolicyError as error:
            self.refused(request.run, with_notes(error), request.function)
            raise

    def refused(self, run: str, reason: str, function: str = "") -> None:
        """Write down a refusal."""
        named = {"function": shortened(function)} if function else {}
        self._ledger.refuse(run=shortened(run), reason=shortened(reason), **named)

    def failed(self, request: Request, reason: str, hidden: bool = False) -> None:
        """Write down that a function failed, which the coordinator is told, or which is ``hidden`` among all sites."""
        row = {"reason": shortened(reason), "function": request.function} | ({"data": self._data} if hidden else {})
        self._ledger.write(run=request.run, what="failed", **row)

    def is_silent(self, run: str) -> bool:
        """Whether secured sums failed too often because of these rows, so that only noise leaves; written down."""
        most = self._policy.max_failures
        with self._ledger.locked():
            silent = self._ledger.failures_about(self._data) >= most
            if silent:
                reason = f"rule max_failures = {most}: only noise leaves; see why it failed, then raise the rule"
                self._ledger.write(run=run, what="silent", reason=reason)
        return silent

    def _check_new(self, run: str, sent: int | None) -> None:
        """A plan that somebody recorded and sends again is old; the one that is carried out now may be told twice."""
        if sent is not None and sent <= self._ledger.last_sent and (run, sent) != (self._run, self._sent):
            raise PolicyError(
                "rule plan: one that was sent later was admitted here; this is a repeat, or the coordinator's clock was set back"
            )

    def _check_plan(self, plan: Plan) -> None:
        rules = self._policy
        if plan.solver not in rules.solvers:
            raise PolicyError(
                f"rule solvers: {plan.solver!r} is not allowed here; allowed are {', '.join(rules.solvers) or 'none'}"
            )
        if rules.secure == "required" and not plan.secure:
            raise PolicyError("rule secure = required: the sums of this run are not secured; run it with --secure (secure=True)")
        if plan.secure and plan.min_apart and not 0 < rules.min_apart <= plan.min_apart:
            raise PolicyError(
                f"rule min_apart = {rules.min_apart}: the plan would go on without {plan.min_apart} site(s) and show their part"
            )
        if plan.min_nonzero < rules.min_nonzero:
            raise PolicyError(
                f"rule min_nonzero = {rules.min_nonzero}: the plan keeps features of which fewer entries are not 0; fit with "
                f"min_nonzero={rules.min_nonzero}"
            )
        for kind in plan.kinds:
            self._check_kind(kind)
        for name in plan.functions:
            if name != rows_digest.name:  # which has a rule of its own, and is none that a sum may call
                self._check_listed(name, plan)
        if plan.max_rounds > rules.max_rounds:
            raise PolicyError(f"rule max_rounds = {rules.max_rounds}: the plan allows itself {plan.max_rounds}")
        if plan.n_components is not None and plan.n_components > rules.max_components:
            raise PolicyError(f"rule max_components = {rules.max_components}: the plan asks for {plan.n_components}")
        if self._n_rows < rules.min_rows:
            raise PolicyError(f"rule min_rows = {rules.min_rows}: this site has fewer")
        if self._rows is not None:
            self._ledger.versions.check(self._data, self._rows, rules.min_changed_rows)
        check_features(plan.features, self._features)
        check_weighable(plan.functions, weighted=self._weighted)
        self._holes.check_plan(plan.functions, fill=rules.fill_missing)

    def _check_listed(self, name: str, plan: Plan) -> None:
        """Whether a function may run here; some have rules of their own."""
        if name in self._policy.functions:
            if find_local(name).site_means and not self._policy.shows_site_means:
                raise PolicyError(
                    f"rule allow_site_means = false: {name!r} tells the means of few sites apart, in secured sums, too; fit with "
                    "center='pooled' and without preparation that needs it, or have all sites allow it"
                )
            return
        if name not in (count_nonzero.name, drop_rare.name):
            raise PolicyError(unlisted(name, plan.functions, self._policy.functions))
        if not (self._policy.min_nonzero or plan.secure):
            raise PolicyError(
                "rule min_nonzero = 0: this site tells how many entries are not 0 only in secured sums; run it with --secure "
                "(secure=True), or have all sites set min_nonzero"
            )

    def _note_rows(self) -> None:
        """Before anything of these rows leaves: others that another process let out meanwhile count, too."""
        if self._rows is not None:
            self._ledger.versions.check(self._data, self._rows, self._policy.min_changed_rows)
            self._ledger.versions.keep(self._data, self._rows)

    def _check_announced(self, run: str) -> Plan:
        if self._plan is None or run != self._run:
            raise NotAnnouncedError("rule plan: this run was not announced here; announce its plan first")
        if self._withdrawn:
            raise PolicyError(self._withdrawn)
        return self._plan

    def _check_secured(self) -> None:
        """Before something is done outside a session: whether it may be."""
        if self._policy.secure == "required":
            raise PolicyError("rule secure = required: this site replies to secured sums only; no session was begun")
        if self._plan is not None and self._plan.secure:
            raise PolicyError("rule plan: sums of this run are secured, and no session was begun; begin one")

    def _check_request(self, request: Request, function: LocalFunction) -> None:
        rules, plan = self._policy, self._check_announced(request.run)
        if self._ledger.failures(request.run) >= rules.max_rounds:
            raise PolicyError(f"rule max_rounds = {rules.max_rounds}: as many requests of this run failed here")
        if (request.kind, function) != (DIGEST, rows_digest):
            self._check_listed(function.name, plan)
        if function.name not in plan.functions:
            raise PolicyError(f"rule plan: {function.name!r} is not in the plan that was admitted")
        self._check_kind(request.kind)
        if request.kind not in plan.kinds:
            raise PolicyError(f"rule plan: {request.kind!r} is not in the plan that was admitted")
        if request.kind != "local":
            self._check_rounds(request.run)
        self._check_widths(function, request.args)
        wrong = function.check_meanings(request.args)
        if wrong:
            raise PolicyError(f"rule arguments: {wrong}")
        if self._ledger.begins(request.run, request.epoch) and self._ledger.epochs(request.run) >= rules.max_epochs:
            raise PolicyError(f"rule max_epochs = {rules.max_epochs}: this run began as often already")

    def _check_columns(self, columns: int) -> None:
        """Before the columns of a reply leave: how many left before, for these rows."""
        most = self._policy.max_columns
        if self._ledger.columns(self._data) + columns > most:
            raise PolicyError(f"rule max_columns = {most}: with this reply more columns about these rows would have left")

    def _check_rounds(self, run: str) -> None:
        most = self._policy.max_rounds
        if self._ledger.replies(run) >= most:
            raise PolicyError(f"rule max_rounds = {most}: as many replies of this run were sent already")

    def _check_repeats(self, run: str) -> None:
        most = self._policy.max_rounds
        if self._ledger.repeats(run) >= most:
            raise PolicyError(f"rule max_rounds = {most}: as many replies of this run were sent once more already")

    def _check_kind(self, kind: str) -> None:
        if kind in ALWAYS:
            return
        if kind not in SINGLE_REPLIES:
            raise PolicyError(f"rule collectives: {kind!r} is not allowed between institutions")
        if not getattr(self._policy, SINGLE_REPLIES[kind]):
            raise PolicyError(f"rule {SINGLE_REPLIES[kind]} = false: {kind!r} would show this site's own reply")

    def _check_widths(self, function: LocalFunction, args: Arrays) -> None:
        """Every axis but features and fixed ones is a number of columns the coordinator chose; so is a number named like one."""
        most = self._policy.max_components
        for (label, shape), array in zip(function.takes.items(), args, strict=True):
            axes = shape.text.split() if shape.text != "..." else ["..."] * array.ndim
            chosen = [n for axis, n in zip(axes, array.shape, strict=True) if axis != "d" and not axis.isdigit()]
            number = [int(array)] if array.ndim == 0 and label in function.size_names else []
            if max([*chosen, *number], default=0) > most:
                size = f"{number[0]}" if number else f"({shape.text}) of shape {array.shape}"
                raise PolicyError(f"rule max_components = {most}: argument {label!r} of {function.short_name} is {size}")
