"""A site's rows for a federation: read from its own file, columns as they were agreed on.  Runs at the site.

The agreed list of features is in the site's kit, and says all that is agreed: names of columns in their order; ``sex=f``,
``sex=m`` for the categories of a column; variants with their alleles (``alleles.py``).  A column that the table lacks holds NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, PolicyError
from ..numerics.placed import Placed
from .agreement import SitePlan, plan_for
from .alleles import AMBIGUOUS, BOTH, FLIPPED, MISMATCHED, SWAPPED, Matched, match_variants, variants_named
from .categories import categories_named, one_hot
from .checks import check_finite
from .description import Description
from .near_misses import near_misses
from .readers import Table, read_table
from .take_columns import is_sparse, take_columns
from .weighing import weighed

SHOWN = 5


def open_rows(name: str, data: str, features: tuple[str, ...] | int, *, description: str = "", missing: bool = False) -> Any:
    """Rows (n x d) of a file; an error names the columns that are not finite, or says that the agreed ones are not there.

    Where the file's description names a column of weights, rows have them, and those of weight zero are left out.  Wrong features
    break a rule, whose text the coordinator is told: it names what was agreed on, and nothing of the file.  ``description`` is
    the path of the TOML that describes the file, empty for the one beside it; with ``missing``, NaN stands for a missing entry
    and is allowed.
    """
    table = read_agreed(Path(data), Description.read(description) if description else None, features)
    return weighed(agreed_rows(name, table, features, missing=missing), table)


def read_agreed(data: Path, description: Description | None, features: tuple[str, ...] | int) -> Table:
    """A site's table; of a file of text or columns that has all agreed ones, nothing else is read, whatever it holds."""
    wanted = None if isinstance(features, int) else features
    return read_table(data, description, also=lambda said: replace(said, wanted=wanted))


def agreed_rows(name: str, table: Table, features: tuple[str, ...] | int, *, missing: bool = False) -> Any:
    """Rows (n x d) of a table that was read; errors are as those of :func:`open_rows`."""
    missing = missing and not is_sparse(table.X)  # what sparse rows do not store is zero, and NaN would stay
    if isinstance(features, int) or table.feature_names is None:
        wanted = features if isinstance(features, int) else len(features)
        if table.X.shape[1] != wanted:
            raise PolicyError(
                f"rule features: this site's table has {table.X.shape[1]} columns, agreed on are {wanted}; give those"
            )
        check_finite(name, table.X, None if isinstance(features, int) else features, missing=missing)
        return table.X
    table, plan = fitted_to(table, features, f"site {name!r}")
    if plan.lacking.size == len(features):
        shown = ", ".join(features[:SHOWN])
        raise PolicyError(f"rule features: this site's table has none of the agreed columns ({shown}, ...); rename columns")
    own = np.arange(table.X.shape[1]) if plan.columns is None else plan.columns[plan.columns >= 0]
    names = [table.feature_names[j] for j in own] if table.feature_names else None
    check_finite(name, table.X[:, own], names, missing=missing)
    return take_columns(table.X, plan)


def fitted_to(table: Table, features: Sequence[str], whose: str = "the table") -> tuple[Table, SitePlan]:
    """A table with columns for its categories, and how its columns become the agreed ones; -1 for those that it lacks.

    Variants whose alleles cannot be compared with the agreed ones are lacking.
    """
    if table.categorical:
        table = one_hot(table, categories_named(features, table.categorical), whose)
    reference = None if table.variants is None else variants_named(features)
    if table.variants is None:
        return table, plan_for(features, table.feature_names or ())
    if reference is None:
        raise InputError(
            f"{whose} has genotypes with their alleles, but the agreed features, such as {features[0]!r}, do not say which "
            "allele is counted; agree on a .bim file, or fit a model of genotype files"
        )
    found = match_variants(reference, table.variants)
    columns, swapped = np.where(_unusable(found), -1, found.columns), np.isin(found.relation, (SWAPPED, BOTH))
    as_is = np.array_equal(columns, np.arange(table.X.shape[1]))
    return table, SitePlan(None if as_is else columns, swapped if swapped.any() else None)


def _unusable(found: Matched) -> Any:
    """Variants in doubt: other alleles, or ambiguous ones that are written otherwise or in a table with flipped strands."""
    flips = bool(np.isin(found.relation, (FLIPPED, BOTH)).any())
    return (found.relation == MISMATCHED) | ((found.relation == AMBIGUOUS) & (flips | ~found.verbatim))


def compared_with(name: str, table: Table, features: tuple[str, ...] | int, *, missing: bool = False) -> tuple[Any, str]:
    """As :func:`agreed_rows`, and what the site's owner should know of the agreed columns that the file lacks; empty if none.

    It names columns of the file, so it is for the owner's eyes alone.
    """
    try:
        X = agreed_rows(name, table, features, missing=missing)
    except PolicyError as error:
        raise PolicyError(f"{error}{_hints(table, features)}") from error
    if isinstance(features, int) or table.feature_names is None:
        return X, ""
    lacking = [features[j] for j in fitted_to(table, features)[1].lacking]
    if not lacking:
        return X, ""
    named = ", ".join(lacking[:SHOWN]) + (f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else "")
    return X, f"lacks the agreed columns {named} ({len(lacking)} of {len(features)}){_hints(table, features)}"


def _hints(table: Table, features: tuple[str, ...] | int) -> str:
    """Columns of the file that may be agreed ones under another name, in words."""
    if isinstance(features, int) or table.feature_names is None or table.variants is not None:
        return ""
    known = set(table.feature_names)
    near = near_misses([f for f in features if f not in known], [f for f in table.feature_names if f not in set(features)])
    return "".join(f"; is {own!r} of the file {agreed!r}?" for own, agreed in near[:SHOWN])


def rows_for_model(table: Table, features: Sequence[str], whose: str) -> Any:
    """Rows (n x d) of a table with columns as a model has them, alleles swapped where the model counts the other one.

    An error names what the table lacks; further columns are refused, too, except for variants.
    """
    table, plan = fitted_to(table, features, whose)
    lacking = [features[j] for j in plan.lacking]
    extra = [] if table.variants is not None else [f for f in table.feature_names or () if f not in set(features)]
    if lacking or extra:
        told = " and ".join(
            f"{what} {some[:SHOWN]}" + (f" and {len(some) - SHOWN} more" if len(some) > SHOWN else "")
            for what, some in (("lacks", lacking), ("has in addition", extra))
            if some
        )
        hints = _hints(table, tuple(features))
        raise InputError(f"{whose}, compared with the model, {told}; rename, drop or add columns, or use --project{hints}")
    return take_columns(table.X, plan)


def rows_with_gaps(table: Table, features: Sequence[str], whose: str) -> tuple[Any, list[str], list[str]]:
    """As :func:`rows_for_model`, NaN in columns that the table lacks: the rows, features that it lacks, columns not in use.

    A variant whose alleles cannot be compared with the model's is lacking; a category that the model does not know is refused.
    """
    known = tuple(name for name, values in categories_named(features, table.categorical).items() if values)
    unknown = [name for name in table.categorical if name not in known]
    table, plan = fitted_to(replace(table, categorical=known), features, whose)
    columns = np.arange(table.X.shape[1]) if plan.columns is None else plan.columns
    used = set(columns.tolist())
    extra = [name for j, name in enumerate(table.feature_names or ()) if j not in used]
    X = Placed(table.X, columns) if plan.swapped is None else take_columns(table.X, plan)
    return X, [features[j] for j in plan.lacking], sorted(extra + unknown)
