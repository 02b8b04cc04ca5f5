"""Optional dependencies of the data layer, imported only when a caller needs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import MissingExtraError


def import_pandas(purpose: str) -> ModuleType:
    """Return the pandas module, or say how to install it.

    Parameters
    ----------
    purpose : str
        What pandas is needed for; it starts the message, for example "reading .parquet files".
    """
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs pandas, which is not installed; run: pip install 'eigenpact[pandas]'"
        ) from error
