"""Preparers as the command line and the settings of a run write them: a name, and after a colon what it takes."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from ..algorithms.method import Part
from ..algorithms.prepare.batch_adjust import BatchAdjust
from ..algorithms.prepare.genotypes import GenotypeScale
from ..algorithms.prepare.highly_variable import HighlyVariable
from ..algorithms.prepare.log_normalize import LogNormalize
from ..algorithms.prepare.residualize import RESIDUALIZE, Residualize
from ..algorithms.prepare.scale import Scale
from ..algorithms.preparing import Preparer
from ..errors import InputError

FORMS = {
    "log-normalize": "log-normalize, log-normalize:10000 or log-normalize:median",
    "hvg": "hvg or hvg:2000",
    "scale": "scale, scale:robust, scale:iqr, scale:max=10 or scale:sparse, several with commas",
    "genotypes": "genotypes, genotypes:patterson, genotypes:plink or genotypes:hail",
    "residualize": "residualize:age,sex, with the word +site for intercepts of sites",
    "batches": "batches, or batches:plain without shrinkage",
}
"""Names, and how each is written."""


PARTS: dict[str, Part] = {
    "log-normalize": LogNormalize.part,
    "hvg": HighlyVariable.part,
    "scale": Scale.part,
    "genotypes": GenotypeScale.part,
    "residualize": RESIDUALIZE,
    "batches": BatchAdjust.part,
}
"""The local functions of each, whatever it takes."""


def parse_preparer(text: str) -> Preparer:
    """A preparer from a text such as "hvg:2000".

    >>> parse_preparer("scale:robust,max=10")
    Scale(by='robust', max_value=10.0, center=True)
    >>> parse_preparer("log-normalise")
    Traceback (most recent call last):
    eigenpact.errors.InputError: --prepare log-normalise: no preparer is called 'log-normalise'; did you mean log-normalize?
    """
    name, colon, rest = text.strip().partition(":")
    if name not in FORMS:
        near = get_close_matches(name, FORMS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FORMS)}"
        raise InputError(f"--prepare {text}: no preparer is called {name!r}; {hint}")
    given = [word.strip() for word in rest.split(",")] if colon else []
    try:
        return _MAKERS[name](given)
    except InputError as error:
        raise InputError(f"--prepare {text}: {error}; write {FORMS[name]}") from error


def _one(given: list[str]) -> str | None:
    if len(given) > 1:
        raise InputError(f"{len(given)} values are given, and one is taken")
    return given[0] if given else None


def _number(text: str, whole: bool = False) -> Any:
    try:
        return int(text) if whole else float(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no {'whole ' if whole else ''}number") from error


def _log_normalize(given: list[str]) -> Preparer:
    target = _one(given)
    if target is None:
        return LogNormalize()
    return LogNormalize("median" if target == "median" else _number(target))


def _highly_variable(given: list[str]) -> Preparer:
    n_top = _one(given)
    return HighlyVariable() if n_top is None else HighlyVariable(_number(n_top, whole=True))


def _scale(given: list[str]) -> Preparer:
    options: dict[str, Any] = {}
    for word in given:
        what, equals, value = word.partition("=")
        if equals and what == "max":
            options["max_value"] = _number(value)
        elif word == "sparse":
            options["center"] = False
        else:
            options["by"] = word
    return Scale(**options)


def _genotypes(given: list[str]) -> Preparer:
    by = _one(given)
    return GenotypeScale() if by is None else GenotypeScale(by)  # type: ignore[arg-type]


def _residualize(given: list[str]) -> Preparer:
    columns = tuple(word for word in given if word and word != "+site")
    return Residualize(columns, site="+site" in given)


def _batches(given: list[str]) -> Preparer:
    plain = _one(given)
    if plain not in (None, "plain"):
        raise InputError(f"{plain!r} is not known")
    return BatchAdjust(shrink=plain is None)


_MAKERS: dict[str, Callable[[list[str]], Preparer]] = {
    "log-normalize": _log_normalize,
    "hvg": _highly_variable,
    "scale": _scale,
    "genotypes": _genotypes,
    "residualize": _residualize,
    "batches": _batches,
}
