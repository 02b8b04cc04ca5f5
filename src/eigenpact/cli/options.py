"""Options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..data.description import Description

SOLVERS = (
    "faps",
    "gram",
    "krylov",
    "localpower",
    "subspace",
    "davidson",
    "lanczos",
    "power",
    "shift-invert",
    "hot-potato",
    "one-shot",
)
"""Solvers of this package for the joint PCA, by name; those of other packages are found when they are asked for."""

BETWEEN = ("nvflare", "flower")
"""Engines between institutions, by name."""


@dataclass(frozen=True)
class ColumnOptions:
    """What is said of columns on the command line, for every file: row names, those not used, the one that tells sites apart."""

    id: str | None = None
    drop: tuple[str, ...] = ()
    by: str | None = None

    def add_to(self, said: Description) -> Description:
        """A file's description, and what is said here."""
        return said.with_columns(self.id, self.drop, self.by)


ALL_COLUMNS = ColumnOptions()
"""Nothing is said of them."""


class Center(StrEnum):
    """What is subtracted from the rows."""

    pooled = "pooled"
    site = "site"
    none = "none"


class Scale(StrEnum):
    """What the columns are divided by."""

    none = "none"
    pooled = "pooled"


class Missing(StrEnum):
    """What is done where entries are missing."""

    refuse = "refuse"
    mean = "mean"
    em = "em"


class Features(StrEnum):
    """What is done where sites have different columns."""

    strict = "strict"
    intersection = "intersection"
    union = "union"


Files = Annotated[list[str], typer.Argument()]
CenterOption = Annotated[Center, typer.Option(help="Subtract the pooled mean, each site's own, or nothing.")]
ScaleOption = Annotated[Scale, typer.Option(help="Divide by the pooled standard deviations, or not.")]
FeaturesOption = Annotated[
    Features,
    typer.Option(help="Where sites have different columns: refuse (strict), use those that all have, or those that any has."),
]
CheckUnits = Annotated[
    bool, typer.Option("--check-units", help="Have sites look for columns in another unit; each tells its own log alone.")
]
Weights = Annotated[
    bool,
    typer.Option("--weights", help="Rows count by the weights that sites name in the descriptions of their files; else refused."),
]
Prepare = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STEP",
        help="What sites agree on and do to their rows first, as log-normalize, hvg:2000, scale, genotypes or "
        "residualize:age,sex; may be given several times, in order.",
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(help="Missing entries: refuse them, fill them with pooled means, or fit the most likely components (em)."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random starts.")]
Tol = Annotated[float | None, typer.Option(help="Stop at this scaled KKT residual; by default, at a small estimated angle.")]
Secure = Annotated[
    bool, typer.Option("--secure", help="Secure the sums: nobody sees a single site's reply; a lost site stops the run.")
]
GoOnWithout = Annotated[
    int,
    typer.Option(metavar="N", help="With --secure: go on if N sites or more are lost at once, whose part can then be computed."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="For example 512MB: read larger files a piece at a time.  By default, all but .npy files over 1 GB are loaded.",
    ),
]
Describe = Annotated[
    list[str] | None,
    typer.Option(metavar="SITE=TOML", help="Description of a site's file; by default the TOML beside it.  May be repeated."),
]
RowNames = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="The column that names the rows.")]
Drop = Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column that is not used; may be repeated.")]
By = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column that says to which site a row belongs: a file then holds several sites."),
]
DescribeTable = Annotated[
    Path | None, typer.Option(metavar="TOML", help="Description of the table; by default the TOML beside it.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="PATH", help="Write all numbers, round by round, to this file.")]
Data = Annotated[Path, typer.Option("--data", help="This site's table: .csv, .tsv, .npy, .npz or .parquet.")]
Scores = Annotated[
    Path, typer.Option("-o", "--output", help="Scores: .csv, .parquet, .h5ad (as scanpy), .eigenvec (as PLINK) or .npy.")
]


def preprocessing(center: str, scale: str) -> dict[str, Any]:
    """The estimator's parameters for these options."""
    return {"center": False if center == "none" else str(center), "scale": None if scale == "none" else str(scale)}
