"""Programs of others that engines need; they are imported only when such an engine is used."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import MissingExtraError

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
