"""What engines have in common: programs of others that they need, and parameters that they refuse."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ..errors import InputError, MissingExtraError, ProgramError
from ..runtime import Graph
from ..runtime.keys import crypto

__all__ = ["bring", "check_limits", "crypto", "missing", "refuse_graph"]

NAMES = {"dask": "Dask", "flower": "Flower", "mpi": "mpi4py and MPI", "nvflare": "NVIDIA FLARE"}
"""Engine, and the extra that brings what it needs -> what that is called."""


def bring(engine: str, module: str) -> Any:
    """A module that an engine needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(engine, str(error)) from error


def missing(engine: str, why: str) -> MissingExtraError:
    """The error for what is not installed."""
    return MissingExtraError(f"engine {engine!r} needs {NAMES[engine]} ({why}): pip install 'eigenpact[{engine}]'")


def check_limits(engine: Any, counts: Sequence[str] = (), seconds: Sequence[str] = ()) -> None:
    """Refuse numbers below 1 and times that are not positive among an engine's parameters; None is no limit."""
    for name in (*counts, *seconds):
        value = getattr(engine, name)
        if value is not None and name in counts and value < 1:
            raise InputError(f"{name}={value!r} must be at least 1")
        if value is not None and name in seconds and not value > 0:
            waits = ", or None to wait" if getattr(type(engine), name) is None else ""
            raise InputError(f"{name}={value!r} must be a number of seconds > 0{waits}")


def refuse_graph(engine: str, graph: Graph | None) -> None:
    """Graph programs need sites that reach each other."""
    if graph is not None:
        what = f"graph programs do not run on {NAMES[engine]}, whose sites do not reach each other"
        raise ProgramError(f"{what}; use engine='inprocess'")
