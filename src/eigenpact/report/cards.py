"""A model card: what a model is, of whose data, how exact, and what was revealed, in Markdown for people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..estimators import FederatedPCA
from ..estimators.exchange.scikit import check_exportable
from ..numerics.preparation import KINDS
from ..storage import check_file_target, replacing
from .messages import bytes_text, sums_told, what_left

NOT_STATED = "Not stated. Ask the sites before you use this model for anything."
SHOWN_SITES, SHOWN_FEATURES, SHOWN_COMPONENTS = 50, 10, 10

MISSING = {
    "refuse": "refused, unless preparation fills them",
    "mean": "filled with the means of all sites",
    "em": "left out: components make the entries that are there most likely",
}
"""What was done where entries were missing, by the estimator's word for it."""


def model_card(pca: FederatedPCA, *, title: str = "", use: str = "") -> str:
    """Markdown about a fitted model; ``use`` says who may use it for what, which nobody but its makers can know.

    >>> import numpy as np, eigenpact as ep
    >>> pca = ep.FederatedPCA(1).fit({"A": np.eye(3), "B": np.ones((2, 3))})
    >>> print(model_card(pca, use="For the study's own analyses.").partition("## Data")[0].strip())
    # Principal components of 2 sites
    <BLANKLINE>
    ## Who may use it
    <BLANKLINE>
    For the study's own analyses.
    """
    check_exportable(pca)
    parts = [
        f"# {_line(title) or f'Principal components of {len(pca.sites_)} site{_s(len(pca.sites_))}'}",
        f"## Who may use it\n\n{use.strip() or NOT_STATED}",
        _table("Data", _data(pca)),
        _table("Rows before the components", _rows(pca)),
        _table("How exact", _exact(pca)),
        _variances(pca),
        _revealed(pca),
    ]
    return "\n\n".join(parts) + "\n"


def to_card(pca: FederatedPCA, path: str | os.PathLike[str], *, title: str = "", use: str = "", overwrite: bool = False) -> None:
    """Write :func:`model_card` to a file."""
    target = Path(path)
    check_file_target(target, (".md",), overwrite=overwrite)
    text = model_card(pca, title=title, use=use)
    with replacing(target) as part:
        part.write_text(text)


def _data(pca: FederatedPCA) -> Iterator[tuple[str, str]]:
    more = f" and {len(pca.sites_) - SHOWN_SITES} more" if len(pca.sites_) > SHOWN_SITES else ""
    names = getattr(pca, "feature_names_in_", None)
    yield "sites", f"{len(pca.sites_)}: {', '.join(pca.sites_[:SHOWN_SITES])}{more}"
    yield "rows", str(pca.n_samples_seen_)
    shown = (
        ""
        if names is None
        else f": {', '.join(map(str, names[:SHOWN_COMPONENTS]))}{', ...' if len(names) > SHOWN_COMPONENTS else ''}"
    )
    yield "features", f"{pca.n_features_in_}{shown}"
    yield "components", str(pca.n_components_)


def _rows(pca: FederatedPCA) -> Iterator[tuple[str, str]]:
    centre = {"pooled": "the mean of all rows is subtracted", "site": "each site's own mean is subtracted", False: "none"}
    yield "centring", centre[pca.center]
    yield "scaling", "divided by the pooled standard deviations" if pca.scale else "none"
    yield "preparation", "; ".join(KINDS[step.kind].tells(step.arrays) for step in pca.preparation_) or "none"
    yield "missing entries", MISSING[str(getattr(pca, "missing", "refuse"))]
    if pca.dropped_features_:
        yield "features dropped", f"{len(pca.dropped_features_)}, with too few entries that are not zero"
    before = getattr(pca, "between_site_share_before_", None)
    told = "" if before is None else f", {100 * before:.1f} % before preparation"
    yield "between sites", f"{100 * pca.between_site_share_:.1f} % of the variance lies between the sites' means{told}"


def _exact(pca: FederatedPCA) -> Iterator[tuple[str, str]]:
    angle = "unknown" if pca.angle_estimate_ is None else f"{pca.angle_estimate_:.1e}"
    yield "converged", ("yes: " if pca.converged_ else "no: ") + pca.stop_reason_
    yield "angle", f"{angle}, estimated sine of the largest angle to the exact components"
    yield "solver", f"{pca.solver_}, {pca.n_rounds_} rounds and {pca.n_setup_rounds_} of set-up"


def _variances(pca: FederatedPCA) -> str:
    shown = min(SHOWN_COMPONENTS, pca.n_components_)
    rows = [
        f"| PC{j + 1} | {pca.explained_variance_[j]:.6g} | {100 * pca.explained_variance_ratio_[j]:.2f} % |" for j in range(shown)
    ]
    more = [f"\nThe first {shown} of {pca.n_components_}."] if shown < pca.n_components_ else []
    return "\n".join(["## Explained variance\n", "| component | variance | share |", "|---|---|---|", *rows, *more])


def _revealed(pca: FederatedPCA) -> str:
    left = what_left(pca.ledger_)
    if not left:
        return "## What left the sites\n\nThe model comes without a ledger: what was revealed is not known."
    rows = [
        f"| {_line(row.function)}{' (set-up)' if row.setup else ''} | {row.receiver} | {row.shapes} | {row.times} | "
        f"{bytes_text(row.bytes_per_site)} |"
        for row in left
    ]
    head = ["| computed by | to | arrays | times | bytes of a site |", "|---|---|---|---|---|"]
    told = f"Sums were {sums_told(pca.ledger_)}. No rows left a site; what can be concluded from sums is another question."
    return "\n".join(["## What left the sites\n", told + "\n", *head, *rows])


def _table(title: str, facts: Iterator[tuple[str, str]]) -> str:
    rows = [f"| {name} | {_line(value)} |" for name, value in facts]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *rows])


def _line(text: Any) -> str:
    """A text that cannot end its cell or its line."""
    return " ".join(str(text).split()).replace("|", "\\|")


def _s(n: int) -> str:
    return "" if n == 1 else "s"
