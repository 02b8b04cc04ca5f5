"""What a site says of its file, once: which columns to use, how numbers and missing cells are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Description:
    """What is said of a file; whatever is left out is found out by the reader.

    Attributes
    ----------
    columns : tuple of str, or None
        Columns to use, by their names after ``rename``; None uses all that are not dropped.
    drop : tuple of str
        Columns that are not features, by their names in the file.
    rename : mapping of str to str
        Name in the file -> agreed name.
    id : str, or None
        The column that holds row names.
    units : mapping of str to (str, float)
        Column -> its unit and the factor by which its numbers are multiplied.
    missing : tuple of str, or None
        Cells that stand for a missing number, in every column; None: the usual ones.
    missing_in : mapping of str to tuple of str
        Column -> cells that stand for a missing number in it alone, in addition.
    decimal, separator, encoding : str, or None
    categorical : tuple of str
        Columns of categories: they become texts.
    labels : tuple of str
        Columns of labels for plots: they become texts.
    dataset : str, or None
        Name of the table within a file that holds several (HDF5, zarr, npz).
    """

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None
    units: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    missing: tuple[str, ...] | None = None
    missing_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal: str | None = None
    separator: str | None = None
    encoding: str | None = None
    categorical: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    dataset: str | None = None
