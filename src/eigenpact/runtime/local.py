"""``@local``: the only functions that touch rows, known by name, with declared shapes.

Engines send a function's name and arrays, never code.  The declaration is used four times: by the site before it runs the
function and before it answers, by the driver when the answer arrives, by secure sums (the bounds), and by the generated
table of everything a method sends.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import WireError
from .meanings import MEANINGS, wrong_form, wrong_reply
from .shapes import Shape

Arrays = tuple[np.ndarray[Any, Any], ...]

OWN, OWN_ROOM, ENTRY_POINTS = "eigenpact", "eigenpact.algorithms", "eigenpact.solvers"
"""What names of the package's own functions begin with; where these are; and the group of entry points by which an installed
package tells of its solvers."""

NAME = re.compile(r"[A-Za-z_][\w.-]*:[A-Za-z_]\w*")
"""A declared name: whose function, and which."""

OLD_NAME = re.compile(r"eigenpact(?:\.[a-z_]+)+:[A-Za-z_]\w*")
"""A name as eigenpact wrote it before 0.1.0: a module's path and a function."""

DTYPES = frozenset({"float64", "float32", "int64", "int32", "uint64", "uint8", "bool"})
"""What may cross a boundary."""

DTYPE_NAMES = {np.dtype(name): name for name in DTYPES}
"""Their names; looked up here because numpy composes ``dtype.name`` anew each time."""

BOUNDS = {
    "trace": "|sum of entries| <= tr C, the pooled scatter's trace (products of C with an orthonormal block)",
    "traces": "|sum of entries| <= 8 tr C (products of C, and of multiples of lambda_1 up to 5, with orthonormal blocks)",
    "unit": "entries of orthonormal vectors, at most 1",
    "rows": "sums of rows, at most sqrt(n tr C) about the origin",
    "squares": "sums of squares, not negative, at most n times the trace about the origin",
    "pair": "sums of rows or of squares, each as a double and what rounding left of it (numerics/pairs.py)",
    "count": "a number of rows",
    "whole": "whole numbers of either sign, noise among them; the sum fits into 64 bits",
    "none": "no bound known before the run",
}
"""Names of magnitude bounds, for secure sums and for readers."""

Doubt = Callable[..., str]
"""From what a site told before, the arguments and its reply to what cannot be true of the reply; empty if all can."""

_registry: dict[str, LocalFunction] = {}


@dataclass(frozen=True)
class Reply:
    """What a local function returns when it remembers something: ``send`` leaves the site, ``keep`` stays.

    ``keep`` updates what the site remembers under the declared names; a later local function that declares to read them finds it
    in ``site.kept``.
    """

    send: Any = ()
    keep: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LocalFunction:
    """A function that runs at a site, with its declaration.

    ``name`` is what requests, plans, policies and journals call it, such as "eigenpact:scatter_action/1": whose it is, which one,
    and the version of what it does.  No module is in it, so that files may move.
    """

    name: str
    body: Callable[..., Any]
    takes: Mapping[str, Shape]
    sends: Mapping[str, Shape]
    keeps: tuple[str, ...]
    reads: tuple[str, ...]
    bounds: Mapping[str, str]
    means: Mapping[str, str]
    setup: bool
    once: bool = False
    site_means: bool = False
    holes: bool = False
    weights: bool | None = None
    doubt: Doubt | None = None

    def __call__(self, site: Any, *args: Any) -> Any:
        return self.body(site, *args)

    @property
    def short_name(self) -> str:
        """The function's name by itself."""
        return short_name(self.name)

    @cached_property
    def size_names(self) -> frozenset[str]:
        """Names that stand for sizes in what the function takes or sends; other numbers are seeds, steps, tolerances."""
        return frozenset(name for shape in (*self.takes.values(), *self.sends.values()) for name in shape.names)

    def check_args(self, args: Arrays, n_features: int) -> dict[str, int]:
        """Check arguments against ``takes`` and return the sizes they determine; a number that has a size's name is that size."""
        sizes = {"d": n_features}
        if not self.takes and not args:  # nothing to look at, as in most steps on a graph
            return sizes
        self._check("argument", self.takes, args, sizes)
        for label, a in zip(self.takes, args, strict=True):
            if a.ndim or label not in self.size_names:
                continue
            if a.dtype.kind not in "iu":
                raise WireError(f"{self.name}: argument {label!r} is a size and must be a whole number, not {a.dtype}")
            if sizes.setdefault(label, int(a)) != a:
                raise WireError(f"{self.name}: argument {label!r} is {a}, but size {label!r} is {sizes[label]} already")
        return sizes

    def check_meanings(self, args: Arrays) -> str:
        """Why an argument cannot be what it is declared to be; empty if all can."""
        for label, a in zip(self.takes, args, strict=True):
            wrong = wrong_form(self.means[label], a)
            if wrong:
                return f"argument {label!r} of {self.short_name} is to be {MEANINGS[self.means[label]][0]}, but {wrong}"
        return ""

    def check_reply(self, arrays: Arrays, sizes: dict[str, int]) -> None:
        """Check what leaves the site against ``sends``."""
        self._check("reply", self.sends, arrays, dict(sizes))

    def reply_shapes(self, sizes: dict[str, int]) -> list[tuple[int, ...]]:
        """The shapes of what leaves the site, by what it was sent; a WireError where they depend on the rows."""
        try:
            return [shape.lengths(sizes) for shape in self.sends.values()]
        except WireError as error:
            raise WireError(
                f"{self.name}: the shape of its reply depends on the rows, which a mask does not hide: {error}"
            ) from error

    def check_forms(self, arrays: Arrays, summed: bool = False) -> str:
        """Why an array of a reply cannot be what it is declared to be; empty if all can.  Sums may have another dtype."""
        for label, a in zip(self.sends, arrays, strict=True):
            wrong = wrong_reply("none" if summed else self.bounds[label], a)
            if wrong:
                return f"{label!r}: {wrong}"
        return ""

    def _check(self, what: str, declared: Mapping[str, Shape], arrays: Arrays, sizes: dict[str, int]) -> None:
        if len(arrays) != len(declared):
            raise WireError(
                f"{self.name}: {len(arrays)} {what} array(s), declared are {len(declared)} ({', '.join(declared) or 'none'})"
            )
        for (label, shape), array in zip(declared.items(), arrays, strict=True):
            if array.dtype not in DTYPE_NAMES:
                allowed = ", ".join(sorted(DTYPES))
                raise WireError(f"{self.name}: {what} {label!r} has dtype {array.dtype}; allowed are {allowed}")
            if not shape.fits(array.shape, sizes):
                known = ", ".join(f"{k}={v}" for k, v in sizes.items())
                raise WireError(f"{self.name}: {what} {label!r} has shape {array.shape}, declared is ({shape.text}) with {known}")


class Kept(Mapping[str, Any]):
    """What a site keeps, as one local function sees it: the names that it declares to read, and no other."""

    def __init__(self, function: LocalFunction, everything: Mapping[str, Any]) -> None:
        self._function, self._everything = function, everything

    def __getitem__(self, name: str) -> Any:
        if name not in self._function.reads:
            raise WireError(
                f"{self._function.name} reads site.kept[{name!r}], declared are {list(self._function.reads)}; add it to reads="
            )
        return self._everything[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._function.reads if name in self._everything)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def local(
    *,
    takes: Mapping[str, str] | None = None,
    sends: Mapping[str, str] | None = None,
    reads: Iterable[str] = (),
    keeps: Iterable[str] = (),
    bound: str | Mapping[str, str] = "none",
    means: Mapping[str, str] | None = None,
    doubt: Doubt | None = None,
    setup: bool = False,
    once: bool = False,
    site_means: bool = False,
    holes: bool = False,
    weights: bool | None = None,
    name: str | None = None,
    version: int = 1,
) -> Callable[[Callable[..., Any]], LocalFunction]:
    """Mark a module-level function as one that runs at a site.

    Parameters
    ----------
    takes, sends : name -> shape
        Arguments after ``site``, in order, and what leaves the site: an array for one name, a tuple for several.
    reads, keeps : names
        What it reads of ``site.kept``, also of what it keeps itself; and what it may keep there through ``Reply(keep=...)``.
    bound : name of a bound, or name -> bound
        Magnitude of the summed arrays; one of ``BOUNDS``.
    means : name -> meaning
        What arguments are, one of ``MEANINGS``; a gate refuses what cannot be that.  By default numbers of ordinary size.
    doubt : function from what the site told before (``doubts.py``), arguments and reply to what cannot be true of the reply
    setup, once, site_means, holes : bool
        Whether its rounds are counted as set-up; whether what it keeps is agreed once, so that a gate refuses a second call
        within an epoch; whether sums, of it or after it, tell the means of few sites apart, which a policy must allow; whether it
        takes rows with missing entries (NaN), else a gate refuses it until these are filled in (``holes.py``).
    weights : bool, optional; True if a run learns of rows' weights by it, False if it takes no rows that have them
    name, version : str, optional, and int
        What it is called on the wire, as "package:function", by default its module and function (ours need none); and a number to
        be raised when the function gives other replies to the same arguments, so that a site with an older one refuses.
    """

    def mark(body: Callable[..., Any]) -> LocalFunction:
        _check_signature(body, tuple(takes or ()))
        taken, sent = ({k: Shape.parse(v) for k, v in (shapes or {}).items()} for shapes in (takes, sends))
        flags: Any = {"setup": setup, "once": once, "site_means": site_means, "holes": holes, "weights": weights}
        function = LocalFunction(
            name=f"{_declared_name(name, body)}/{int(version)}",
            body=body,
            takes=taken,
            sends=sent,
            keeps=tuple(keeps),
            reads=tuple(reads),
            bounds=_bounds(bound, sent, body),
            means=_meanings(means or {}, takes or {}, body),
            **flags,
            doubt=doubt,
        )
        function.__dict__["__doc__"] = body.__doc__
        return _registered(function)

    return mark


def _check_signature(body: Callable[..., Any], taken: tuple[str, ...]) -> None:
    if "<" in body.__qualname__ or "." in body.__qualname__:
        raise WireError(f"@local function {body.__qualname__!r} must stand at module level, so that sites find it by name")
    arguments = tuple(inspect.signature(body).parameters)[1:]
    if arguments != taken:
        raise WireError(f"@local function {body.__qualname__!r} has arguments {arguments}, declared are {taken}")


def _bounds(bound: str | Mapping[str, str], sent: Collection[str], body: Callable[..., Any]) -> dict[str, str]:
    """The bound of every array that is sent."""
    bounds = dict.fromkeys(sent, bound) if isinstance(bound, str) else dict.fromkeys(sent, "none") | dict(bound)
    for label, value in bounds.items():
        if value not in BOUNDS or label not in sent:
            raise WireError(
                f"bound {value!r} of {label!r} in {body.__qualname__}: allowed are {', '.join(BOUNDS)}, "
                f"for what it sends ({', '.join(sent) or 'nothing'})"
            )
    return bounds


def _meanings(means: Mapping[str, str], taken: Collection[str], body: Callable[..., Any]) -> dict[str, str]:
    """The meaning of every argument."""
    for label, value in means.items():
        if value not in MEANINGS or label not in taken:
            raise WireError(
                f"meaning {value!r} of {label!r} in {body.__qualname__}: allowed are {', '.join(MEANINGS)}, "
                f"for what it takes ({', '.join(taken) or 'nothing'})"
            )
    return dict.fromkeys(taken, "numbers") | dict(means)


def _registered(function: LocalFunction) -> LocalFunction:
    """The function, from now on found by its name, which no other may have taken; a module that is loaded again may."""
    known = _registry.get(function.name, function)
    ours, theirs = ((f.body.__module__, f.body.__qualname__) for f in (function, known))
    if ours != theirs:
        told = [f"{name} of {module}" for module, name in (theirs, ours)]
        raise WireError(f"{function.name!r} is declared by {told[0]} and by {told[1]}; give one another name")
    _registry[function.name] = function
    return function


def short_name(name: str) -> str:
    """A function's name by itself, from what it is called on the wire.

    >>> short_name("eigenpact:scatter_action/1")
    'scatter_action'
    """
    return name.rpartition(":")[2].partition("/")[0]


def _declared_name(name: str | None, body: Callable[..., Any]) -> str:
    """What a function is called on the wire, without its version."""
    if name is None:
        package = body.__module__.partition(".")[0]
        return f"{OWN if package == OWN else body.__module__}:{body.__qualname__}"
    if not NAME.fullmatch(name) or name.partition(":")[0] == OWN:
        raise WireError(f"name={name!r} of @local function {body.__qualname__!r} must be 'package:function', your own package's")
    return name


def find_local(name: str) -> LocalFunction:
    """The local function of that name; a site calls this on names it is sent.

    Nothing is imported because a name says so.  Where a name is not known yet, the package's own algorithms are imported, then
    the solvers of packages that the site's owner has installed; everything else the owner must have imported.
    """
    for load in (lambda: None, own_modules, installed_solvers):
        load()
        if name in _registry:
            return _registry[name]
    if OLD_NAME.fullmatch(name):
        raise WireError(
            f"unknown function {name!r}: this is a name by module, as before 0.1.0; names are now as in "
            f"'{OWN}:{name.rpartition(':')[2]}/1': write it so, or upgrade eigenpact where it comes from"
        )
    raise WireError(
        f"unknown function {name!r}: sites run only functions marked @local in {OWN_ROOM}, in installed solvers, or imported at "
        "the site; the versions of eigenpact may differ"
    )


@cache
def own_modules() -> tuple[ModuleType, ...]:
    """The modules of the package's own algorithms, imported: their functions become known."""
    room = importlib.import_module(OWN_ROOM)
    return tuple(importlib.import_module(info.name) for info in pkgutil.walk_packages(room.__path__, f"{OWN_ROOM}."))


@cache
def installed_solvers() -> tuple[tuple[str, Any], ...]:
    """Name and class of every solver that an installed package tells of, or the error with which the package ends.

    A package that cannot be imported must not keep a site from the other solvers; who asks for its solver is told.
    """
    found = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            found.append((entry.name, entry.load()))
        except (Exception, SystemExit) as error:  # whatever a stranger's package does when it is imported
            found.append((entry.name, error))
    return tuple(found)


def as_arrays(value: Any) -> Arrays:
    """What a local function returned, as a tuple of C-ordered arrays of native byte order; scalars become arrays without axes.

    One memory order everywhere is part of "the same bits on every engine": a product of a transposed copy may round otherwise.
    """
    items = value if isinstance(value, tuple) else (value,)
    arrays = (np.asarray(item, order="C") for item in items)
    return tuple(a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("=")) for a in arrays)


def frozen(arrays: Arrays) -> Arrays:
    """Read-only views: what crosses a boundary is shared in one process and must not be changed by either side."""
    views = tuple(a.view() for a in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def frozen_copies(arrays: Arrays) -> Arrays:
    """Copies that nobody can change."""
    copies = tuple(a.copy() for a in arrays)
    for copy in copies:
        copy.flags.writeable = False
    return copies


def wire_table(functions: Iterable[LocalFunction]) -> list[dict[str, str]]:
    """One row for every array that the functions declare to take, send, keep or read: the generated account of a method."""
    rows = []
    for function in functions:
        base = {"function": function.short_name}
        rows += [
            base | {"way": "to site", "array": k, "shape": s.text, "bound": function.means[k]} for k, s in function.takes.items()
        ]
        rows += [
            base | {"way": "from site", "array": k, "shape": s.text, "bound": function.bounds[k]}
            for k, s in function.sends.items()
        ]
        rows += [base | {"way": "kept at site", "array": k, "shape": "", "bound": ""} for k in function.keeps]
        rows += [base | {"way": "read at site", "array": k, "shape": "", "bound": ""} for k in function.reads]
    return rows
