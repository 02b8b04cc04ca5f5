"""Every error of the package.

One root, :class:`EigenpactError`, so that a caller can catch what eigenpact says and nothing else; each error is also the
built-in exception a Python user would expect.  A message names the value that was wrong, what is allowed, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class EigenpactError(Exception):
    """Root of every error raised on purpose by eigenpact."""


class InputError(EigenpactError, ValueError):
    """Data or a parameter that cannot be used; nothing has been computed or changed."""


class InputTypeError(EigenpactError, TypeError):
    """A value of a type that cannot be used."""


class MissingExtraError(EigenpactError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class FileError(EigenpactError, OSError):
    """A file or folder that cannot be read or written."""


class ProblemsError(FileError, InputError):
    """Files that cannot be used as they are; ``problems`` are texts, one for each, with its place; ``advice`` is what to know."""

    def __init__(self, problems: Iterable[str], advice: Iterable[str] = ()) -> None:
        self.problems, self.advice = tuple(problems), tuple(advice)
        super().__init__("\n".join((*self.problems, *self.advice)))

    def __reduce__(self) -> tuple[type[ProblemsError], tuple[tuple[str, ...], tuple[str, ...]]]:
        return type(self), (self.problems, self.advice)


class DataUnavailableError(EigenpactError, OSError):
    """A data set is neither in EIGENPACT_DATA nor in the cache, and cannot be downloaded."""


class WireError(EigenpactError, ValueError):
    """A message that breaks its declaration: an unknown function, a wrong shape, dtype or size."""


class StepError(EigenpactError, RuntimeError):
    """A request that does not follow the last step a site executed."""


class PolicyError(EigenpactError, PermissionError):
    """A site's policy does not allow what a coordinator asks; the message begins with the rule's name."""


class NotAnnouncedError(PolicyError):
    """A request of a run whose plan a site does not know: it was never told, or the site was started anew since."""


class ProtocolError(PolicyError):
    """Parties of a run whose releases speak no protocol in common; the message names who must upgrade."""


class BudgetError(PolicyError, InputError):
    """Noise that a site does not give, by what it is asked for and what was spent: nothing of the rows is in it."""


class JournalError(EigenpactError, RuntimeError):
    """A journal that does not belong to this run or contradicts it."""


class SiteError(EigenpactError, RuntimeError):
    """A local function failed at a site; the message names the site and the function."""


class SiteElsewhereError(EigenpactError, KeyError):
    """A result that only a site has, asked for where the site is not; the message says what to do there."""

    def __str__(self) -> str:
        return str(self.args[0])


class TooFewSitesError(EigenpactError, RuntimeError):
    """Fewer sites are left than the engine's ``min_sites``; ``basis`` (n_features x k) is the last good subspace, if any."""

    basis: Any = None


class ProgramError(EigenpactError, RuntimeError):
    """A program used a collective in a way its engine or kind of program does not allow."""


class DoubtfulFeatureWarning(UserWarning):
    """A column of a DataFrame is fitted as a feature, and looks to number the rows, or to hold days written as 20200131."""


class NotConvergedWarning(UserWarning):
    """The solver stopped before it was certain of what was asked for; ``stop_reason_`` says why and what to do."""


class NotIdentifiableWarning(UserWarning):
    """The answer is one of many: components of equal variance at the cut, or global and local components with a common
    direction."""


class SiteLeftOutWarning(UserWarning):
    """A site's replies could not be true, and the answer was found without it; the message names the site and says why."""


class UnitsWarning(UserWarning):
    """A column looks to be in another unit at one site: off by a power of ten, or by a known factor between two units."""
