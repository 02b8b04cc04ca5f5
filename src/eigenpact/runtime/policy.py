"""What a site allows, whoever asks: rules that its owner writes, and a gate (``gate.py``) enforces."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from ..errors import InputError, WireError
from ..numerics.accounting import LARGEST_EPSILON
from .fingerprint import DIGEST
from .forms import fits, shown
from .local import find_local
from .plan import are_texts
from .purse import Limits

SINGLE_REPLIES = {"gather": "allow_gather", "at": "allow_at", "max": "allow_max", "chain": "allow_chain", DIGEST: "allow_digest"}
"""Collectives in which somebody sees a single site's reply by intent, and the rule that allows each."""

MOST_BITS = 48
"""Of replies in fixed point: beyond, what one reply rounds away is found by averaging over fewer than a policy lets out."""

MOST = {"max_epsilon": LARGEST_EPSILON, "max_delta": 0.01}
"""Beyond it nothing would be promised."""

ALWAYS = frozenset({"sum", "local"})
"""Collectives that need no rule of their own."""


FURTHER: dict[str, tuple[Any, str, Callable[[Any], bool]]] = {
    "secure": (str, '"allowed" or "required"', lambda value: value in ("allowed", "required")),
    "min_participants": (int, "a whole number >= 3: of two, each knows the other's part", lambda value: value >= 3),
    "allow_site_means": (bool, "true or false", lambda _: True),
    "min_apart": (int, "a whole number >= 0", lambda value: value >= 0),
    "min_nonzero": (int, "a whole number >= 0", lambda value: value >= 0),
    "participants": (
        dict[str, str],
        "a table of sites with their public keys, 64 hexadecimal digits each",
        lambda value: all(re.fullmatch(r"[0-9a-f]{64}", key) for key in value.values()),
    ),
}
"""Rules of other forms: what they must be, in types and in words."""


@dataclass(frozen=True)
class Policy:
    """A site's own rules.

    Parameters
    ----------
    solvers : tuple of str
        Solvers by name.
    functions : tuple of str
        Full names of local functions that may run here.
    modules : tuple of str
        Modules of the site's own, imported at the start, whose local functions may be named in ``functions``.
    min_rows : int
        With fewer rows the site takes no part.
    max_rounds : int
        Replies of one run, set-up included; counted over restarts of site and coordinator.  As many may be sent once more, and
        as many requests may fail.
    max_runs_per_day : int
        Runs admitted within 24 hours.
    max_runs, max_columns : int
        Runs admitted, and columns answered, for one version of the site's rows; a scatter matrix counts as all its columns.
        Whoever has as many columns as there are features knows the scatter matrix; what more could tell is rounding.
    max_epochs : int
        Times that one run may begin anew, as it does when sites are lost or come back: as often centre and scale are agreed.
    max_components : int
        Columns of any array that is sent here, and components that may be asked for.
    max_message_bytes : int
        Larger messages are refused unread.
    max_seconds : int
        Seconds that one request may be computed here; then this site's part of the run ends.
    allow_gather, allow_at, allow_max, allow_chain : bool
        Whether collectives are allowed that show this site's reply, and not only its part of a sum, to someone.
    exact_replies : bool
        Whether replies leave with all their digits; else in fixed point (``fixed_point.py``), which closes the rounding of single
        rows as a channel and costs accuracy that results tell.
    reply_bits : int
        Binary digits of replies that are not exact, below the pooled trace.
    secret_streams : bool
        Whether random streams here, which choose rows to hold out, begin with what only this site knows; else with the seed and
        the site's name, which a coordinator knows.
    max_epsilon, max_delta : float
        What private solvers may reveal in all runs together, for one row or one person; spent is what stands in the budget file
        beside the site's ledger.  It promises nothing where ``solvers`` holds exact ones, too.
    max_shares : int
        The most sites that noise may be divided among, on trust that they add their shares; 1 where sums are not secured.
    rows_per_person : int
        The most rows of one person in the table, as its owner knows: all of them are hidden together.
    allow_digest : bool
        Whether runs with a journal are allowed, which ask for a keyed digest of the rows (``fingerprint.py``).  The function
        that makes it need not be listed.
    secure : "allowed" or "required"
        Whether this site replies to sums only where they are secured, so that nobody sees its reply (``secure_sum.py``).
    min_participants : int
        Fewest sites of a secured sum; at least 3.
    participants : mapping from site to public key
        With whom this site takes part in secured sums, by the keys that they made (``eigenpact site key``); empty for the keys
        of the federation's kits.
    allow_site_means : bool
        Whether functions may run whose sums tell the means of few sites apart, also secured ones: those of ``center="site"``.
        By default only where ``secure`` is "allowed", for then single replies can be had in any case.
    max_failures : int
        Secured sessions that may fail because of this site's rows, for one version of them.  That some site failed shows, so
        whoever provokes it learns a little each time; afterwards only noise leaves, until the owner, who finds the reasons in
        the site's ledger, raises this.
    min_apart : int
        Fewest sites by which rosters of secured runs over the same rows may differ, as far as the sites that take part know of
        them (``rosters.py``); 0 if they must all be the same.
    min_changed_rows : int
        Fewest rows by which this site's may differ from those of any earlier run (``versions.py``); 1 for any.
    min_nonzero : int
        Features of which fewer entries are not zero, at all sites together, must be dropped before anything else is asked
        (``rare.py``); 0 if all may stay.
    compare_columns : bool
        Whether this site tells, as parts of sums, which of the agreed columns it has (``lacking.py``) and, where that is asked,
        where their medians lie (``units.py``); else it must have all of them.
    fill_missing : bool
        Whether this site takes part in runs that fill in missing entries, its own among them (``holes.py``); else its rows must
        have none.  What a coordinator tells to fill them in with, or to model them by, meets single entries.
    prepare : tuple of str
        Steps of ``--prepare``, by name, by which rows may be prepared here; a file of rules that names them need not list their
        functions.
    """

    solvers: tuple[str, ...]
    functions: tuple[str, ...]
    modules: tuple[str, ...] = ()
    min_rows: int = 20
    max_rounds: int = 500
    max_runs_per_day: int = 50
    max_runs: int = 1000
    max_columns: int = 200_000
    max_epochs: int = 20
    max_components: int = 100
    max_message_bytes: int = 1 << 28
    max_seconds: int = 3600
    allow_gather: bool = False
    allow_at: bool = False
    allow_max: bool = False
    allow_chain: bool = False
    allow_digest: bool = True
    exact_replies: bool = False
    reply_bits: int = 40
    secret_streams: bool = True
    secure: Literal["allowed", "required"] = "allowed"
    min_participants: int = 3
    participants: Mapping[str, str] = field(default_factory=dict, hash=False)
    allow_site_means: bool | None = None
    max_failures: int = 3
    min_apart: int = 0
    min_changed_rows: int = 10
    max_epsilon: float = 1.0
    max_delta: float = 1e-6
    max_shares: int = 1
    rows_per_person: int = 1
    min_nonzero: int = 0
    compare_columns: bool = False
    fill_missing: bool = False
    prepare: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], where: str = "policy") -> Policy:
        """Rules as a TOML or JSON file holds them.

        >>> Policy.from_dict({"solvers": ["gram"], "functions": [], "min_rows": 5}).min_rows
        5
        """
        known = {field.name: field for field in fields(cls)}
        for name, value in facts.items():
            if name not in known:
                raise InputError(f"{where}: unknown rule {shown(name)}; the rules are {', '.join(known)}")
            good, wanted = {
                "bool": (isinstance(value, bool), "true or false"),
                "int": (fits(value, int) and value > 0, "a whole number > 0"),
                "float": (fits(value, float) and value > 0, "a number > 0"),
                "tuple[str, ...]": (are_texts(value), "a list of texts"),
            }.get(str(known[name].type), (True, ""))
            if name in FURTHER:
                form, wanted, check = FURTHER[name]
                good = fits(value, form) and check(value)
            if name == "reply_bits" and good and value > MOST_BITS:
                good, wanted = False, f"at most {MOST_BITS}, or exact_replies = true"
            if name in MOST and good and value > MOST[name]:
                good, wanted = False, f"at most {MOST[name]:g}"
            if not good:
                raise InputError(f"{where}: rule {name} = {shown(value)} must be {wanted}")
        missing = [name for name in ("solvers", "functions") if name not in facts]
        if missing:
            raise InputError(f"{where}: rule {missing[0]} is missing; it must be a list of texts")
        rules: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
        return cls(**rules)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; what follows from other rules is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def grain(self) -> float:
        """The share of the pooled trace that replies are rounded to; 0 where they are exact."""
        return 0.0 if self.exact_replies else 2.0**-self.reply_bits

    @property
    def shows_site_means(self) -> bool:
        """Whether functions may run whose sums tell the means of few sites apart."""
        return self.secure != "required" if self.allow_site_means is None else self.allow_site_means

    @property
    def limits(self) -> Limits:
        """What may be spent on noise."""
        return Limits(float(self.max_epsilon), float(self.max_delta), self.max_shares, self.rows_per_person)

    def load(self) -> None:
        """Import the owner's modules, and see that every function is known that the rules name: a slip would allow less."""
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise InputError(
                    f"rule modules: {module!r} cannot be imported here ({error}); install it, or leave it out"
                ) from error
        for function in self.functions:
            try:
                find_local(function)
            except WireError as error:
                raise InputError(f"rule functions: {error}; check its name, and the modules") from error

    def kinds(self) -> frozenset[str]:
        """Collectives that are allowed."""
        return ALWAYS | {kind for kind, rule in SINGLE_REPLIES.items() if getattr(self, rule)}
