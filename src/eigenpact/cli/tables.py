"""Tables that more than one command prints."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from ..estimators import FederatedPCA
from ..report.messages import bytes_text, steps, sums_told, were_secured, what_left
from ..runtime import Ledger
from ..runtime.ledger import COORDINATOR
from .consoles import harmless
from .wording import in_options

SHOWN_COMPONENTS = 10
SHOWN_SITES = 12

MUCH = 0.1
"""A share of the variance between the sites' means from which on the first components may show the sites."""


def report(pca: FederatedPCA, console: Console, *, every_message: bool = False) -> None:
    """Print what a model is, its variances, and what left each site: condensed, or every message."""
    for table in (facts(pca), variance(pca), messages(pca.ledger_) if every_message else left(pca.ledger_)):
        console.print(table)
        console.print()


def facts(pca: FederatedPCA) -> Table:
    """What the model is: sites, rows, preprocessing, solver, convergence."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(pca):
        table.add_row(name, harmless(value))
    return table


def _facts(pca: FederatedPCA) -> list[tuple[str, str]]:
    names = ", ".join(pca.sites_[:SHOWN_SITES]) + (", ..." if len(pca.sites_) > SHOWN_SITES else "")
    named = "named" if hasattr(pca, "feature_names_in_") else "without names"
    up, down = bytes_text(pca.ledger_.bytes_up), bytes_text(pca.ledger_.bytes_down)
    angle = "unknown" if pca.angle_estimate_ is None else f"{pca.angle_estimate_:.1e}"
    report = getattr(pca, "features_report_", None)
    agreed = [] if report is None or report.nothing_changed else [("features", report.in_short())]
    weighed = "" if pca.weight_sum_ is None else f"; sum of weights: {pca.weight_sum_:.10g}"
    return [
        ("sites", f"{len(pca.sites_)}: {names}"),
        ("rows", f"{pca.n_samples_seen_} of {pca.n_features_in_} features, {named}{weighed}"),
        *agreed,
        ("centre", f"{pca.center or 'none'}, scale: {pca.scale or 'none'}"),
        *([("prepared", "; ".join(map(str, pca.preparation_)))] if pca.preparation_ else []),
        ("solver", pca.solver_ + (" (chosen by auto)" if pca.solver == "auto" else "")),
        ("rounds", f"{pca.n_rounds_}, and {pca.n_setup_rounds_} of set-up"),
        ("sums", sums_told(pca.ledger_)),
        ("bytes", f"{up} from sites, {down} to sites"),
        ("converged", in_options(("yes: " if pca.converged_ else "NO: ") + pca.stop_reason_)),
        ("angle", f"{angle}, estimated sine of the largest angle to the exact components"),
        ("between sites", between_in_words(pca)),
    ]


def between_in_words(pca: FederatedPCA) -> str:
    """What of the variance lies between the sites' means, before and after preparation, and what to do about it."""
    before, after = pca.between_site_share_before_, pca.between_site_share_
    told = f"{100 * after:.1f} % of the variance lies between the sites' means"
    if before is not None:
        told += f", {100 * before:.1f} % before the rows were prepared"
    modelled = any(step.kind == "expect" for step in pca.preparation_)  # by one mean for all
    if after >= MUCH and pca.center != "site" and not modelled:
        between = were_secured(pca.ledger_) or not isinstance(pca.engine, str)  # institutions, whose policies have a say
        rule = ", where the sites' policies say allow_site_means = true" if between else ""
        return f"{told}: if sites differ by how they measure, and not by whom, use --center site{rule}"
    if before is not None and before >= MUCH and after < before / 2:
        return f"{told}: preparation has taken most of it out"
    return told


def variance(pca: FederatedPCA) -> Table:
    """Explained variance of the first components."""
    shown = min(SHOWN_COMPONENTS, pca.n_components_)
    title = "Explained variance" if shown == pca.n_components_ else f"Explained variance, first {shown} of {pca.n_components_}"
    table = compact(title)
    for column in ("component", "variance", "share", "all up to it"):
        table.add_column(column, justify="right")
    total = 0.0
    for j in range(shown):
        share = float(pca.explained_variance_ratio_[j])
        total += share
        table.add_row(f"PC{j + 1}", f"{pca.explained_variance_[j]:.6g}", f"{100 * share:.2f} %", f"{100 * total:.2f} %")
    return table


def left(ledger: Ledger) -> Table:
    """What left each site, one row per local function; who received it, unless it was the coordinator every time."""
    rows = what_left(ledger)
    receivers = {row.receiver for row in rows}
    table = compact(f"What left each site, to the {COORDINATOR}" if receivers == {COORDINATOR} else "What left each site")
    table.add_column("computed by", overflow="fold")
    table.add_column("arrays")
    for column in ("times", "each site", "all sites"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        name = row.function + (" (set-up)" if row.setup else "")
        name += f" to {row.receiver}" if len(receivers) > 1 else ""
        table.add_row(harmless(name), row.shapes, str(row.times), bytes_text(row.bytes_per_site), bytes_text(row.bytes))
    return table


def messages(ledger: Ledger) -> Table:
    """Every message, one row per step and way."""
    table = compact(f"Ledger: {len(ledger)} messages")
    table.add_column("round", justify="right")
    for column in ("function", "from", "to"):
        table.add_column(column, no_wrap=True)
    table.add_column("arrays", overflow="fold")
    table.add_column("type", overflow="fold", min_width=len("float64"))
    table.add_column("bytes each", justify="right")
    table.add_column("note", overflow="fold")
    for s in steps(ledger):
        texts = (str(s.round), s.function, s.sender, s.receiver, s.shapes, s.dtypes, str(s.bytes_each), s.note)
        table.add_row(*map(harmless, texts))
    return table


def compact(title: str) -> Table:
    """A table without edges."""
    return Table(title=title, title_justify="left", box=box.SIMPLE, show_edge=False, padding=(0, 1, 0, 0))
