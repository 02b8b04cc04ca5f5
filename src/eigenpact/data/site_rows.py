"""A site's rows for a federation: read from its own file, columns in the agreed order.  Runs at the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import PolicyError
from .checks import check_finite
from .readers import Table, read_table

SHOWN = 5


def open_rows(name: str, data: str, features: tuple[str, ...] | int) -> Any:
    """Rows (n x d) of a file; an error names the columns that are missing, not agreed on, or not finite.

    Wrong features break a rule, whose text the coordinator is told: it names what was agreed on, and nothing of the file.
    """
    return agreed_rows(name, read_table(Path(data)), features)


def agreed_rows(name: str, table: Table, features: tuple[str, ...] | int) -> Any:
    """Rows (n x d) of a table that was read; errors are as those of :func:`open_rows`."""
    names = table.feature_names
    wanted = features if isinstance(features, int) else len(features)
    if isinstance(features, int) or names is None:
        if table.X.shape[1] != wanted:
            raise PolicyError(
                f"rule features: this site's table has {table.X.shape[1]} columns, agreed on are {wanted}; give those"
            )
        X = table.X
    else:
        missing = [feature for feature in features if feature not in names]
        if missing:
            more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            named = ", ".join(missing[:SHOWN])
            raise PolicyError(
                f"rule features: this site's table lacks the agreed columns {named}{more}; add them, or rename columns"
            )
        X = table.X[:, [names.index(feature) for feature in features]]
    check_finite(name, X, None if isinstance(features, int) else features)
    return X
