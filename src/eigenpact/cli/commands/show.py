"""``eigenpact show``: what a model is, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...estimators import FederatedPCA
from ...estimators.model_files import load_model
from ...storage import check_file_target
from .. import tables
from ..consoles import stdout, tell
from ..outputs import check_picture
from ..score_files import write_loadings


def command(
    model: Annotated[Path, typer.Argument()],
    ledger: Annotated[
        bool, typer.Option("--ledger", help="List every message (round, function, from, to, bytes) instead of the summary.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw variances and loadings: .png, .pdf or .svg.")] = None,
    loadings: Annotated[
        Path | None, typer.Option(help="Write what each feature weighs in each component, its mean and its scale: .csv.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture or file of loadings.")] = False,
) -> None:
    """Show a model: sites, rows, solver, convergence, explained variance, and what left each site.

    MODEL is a folder written by eigenpact fit.
    """
    if picture is not None:
        check_picture(picture, overwrite=overwrite)
    if loadings is not None:
        check_file_target(loadings, (".csv",), overwrite=overwrite)
    pca = load_model(model)
    console = stdout()
    tables.report(pca, console, every_message=ledger)
    if picture is not None:
        _draw(pca, picture)
        tell(console, f"The picture is in {picture}")
    if loadings is not None:
        write_loadings(loadings, pca)
        tell(console, f"The loadings are in {loadings}")


def _draw(pca: FederatedPCA, picture: Path) -> None:
    from ...report import pictures

    names = getattr(pca, "feature_names_in_", None)
    title = f"Joint PCA of {len(pca.sites_)} sites, {pca.n_samples_seen_} rows"
    shares = [float(share) for share in pca.explained_variance_ratio_]
    figure = pictures.scree(pca.components_, shares, None if names is None else [str(name) for name in names], title)
    pictures.save_picture(figure, picture)
