"""``eigenpact show``: what a model is, and what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..consoles import stdout, tell

if TYPE_CHECKING:
    from ...estimators import FederatedPCA


def command(
    model: Annotated[Path, typer.Argument()],
    ledger: Annotated[
        bool, typer.Option("--ledger", help="List every message (round, function, from, to, bytes) instead of the summary.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw variances and loadings: .png, .pdf or .svg.")] = None,
    loadings: Annotated[
        Path | None, typer.Option(help="Write what each feature weighs in each component, its mean and its scale: .csv.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="PATH", help="Write what is printed as JSON, too.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture or file.")] = False,
) -> None:
    """Show a model: sites, rows, solver, convergence, explained variance, and what left each site.

    MODEL is a folder written by eigenpact fit.
    """
    from ...estimators.model_files import load_model
    from ...report.summaries import summary_of
    from ...storage import check_file_target, write_json
    from .. import tables
    from ..outputs import check_json, check_picture
    from ..score_files import write_loadings

    if picture is not None:
        check_picture(picture, overwrite=overwrite)
    if loadings is not None:
        check_file_target(loadings, (".csv",), overwrite=overwrite)
    check_json(json_file, overwrite=overwrite)
    pca = load_model(model)
    console = stdout()
    tables.report(pca, console, every_message=ledger)
    if json_file is not None:
        write_json(json_file, summary_of(pca))
        tell(console, f"The numbers are in {json_file}")
    if picture is not None:
        _draw(pca, picture)
        tell(console, f"The picture is in {picture}")
    if loadings is not None:
        write_loadings(loadings, pca)
        tell(console, f"The loadings are in {loadings}")


def _draw(pca: FederatedPCA, picture: Path) -> None:
    from ...report import pictures

    names = getattr(pca, "feature_names_in_", None)
    title = f"Joint PCA of {len(pca.sites_)} site{'s' * (len(pca.sites_) != 1)}, {pca.n_samples_seen_} rows"
    shares = [float(share) for share in pca.explained_variance_ratio_]
    figure = pictures.scree(pca.components_, shares, None if names is None else [str(name) for name in names], title)
    pictures.save_picture(figure, picture)
