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
        Columns to use, in this order; None uses all that are not dropped.  In a file without a header: the names of all columns.
    drop : tuple of str
        Columns that are not used.
    rename : mapping of str to str
        Name in the file -> agreed name; every other key has the agreed names.
    id : str, or None
        The column that holds row names.
    units : mapping of str to (str, float)
        Column -> its unit and the factor by which its numbers are multiplied.
    missing : tuple of str
        Cells that stand for a missing number, in every column, in addition to the usual ones.  Numbers are among them.
    missing_in : mapping of str to tuple of str
        Column -> cells that stand for a missing number in it alone.
    decimal, separator, encoding : str, or None
    header : bool, or None
        Whether a text table begins with the names of its columns.
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
    missing: tuple[str, ...] = ()
    missing_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal: str | None = None
    separator: str | None = None
    encoding: str | None = None
    header: bool | None = None
    categorical: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    dataset: str | None = None
