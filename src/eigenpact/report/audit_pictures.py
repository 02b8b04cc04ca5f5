"""The audit's picture: how an attacker's error falls from round to round, site by site."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ..privacy.findings import EXACT, Audit, Finding
from .styles import COLOURS, MARKERS

LOWEST = 1e-17
"""Errors of zero are drawn here, on a logarithmic axis."""

MANY_ROUNDS = 20
"""From here on the axis of rounds is logarithmic."""

MOST_SITES = 8
"""More in one picture are not told apart."""

ATTACKS = {"products, minimum norm": "minimum norm", "products, symmetric": "symmetric"}


def errors_by_round(told: Audit, title: str) -> Figure:
    """A panel for each linear attack: a line for every site, dots for what other attacks reached, dotted the baseline."""
    figure = Figure(figsize=(13, 6), dpi=110, layout="constrained")
    figure.suptitle(title, fontsize=13, parse_math=False)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (attack, name) in zip(axes, ATTACKS.items(), strict=True):
        _lines(ax, told.of(attack)[:MOST_SITES])
        ax.set_title(f"C_i from a site's single replies, {name}", fontsize=11, parse_math=False)
    _single_points(axes[1], told)
    axes[0].set_ylabel("relative error of the attacker's C_i")
    handles, labels = axes[1].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _lines(ax: Axes, findings: list[Finding]) -> None:
    ax.set_yscale("log")
    for i, one in enumerate(findings):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        if one.curve:
            rounds, errors = zip(*one.curve, strict=True)
            shown = [max(error, LOWEST) for error in errors]
            ax.plot(rounds, shown, color=colour, marker=marker, markersize=5, alpha=0.85, label=_plain(one.site))
        if one.baseline is not None:
            ax.axhline(max(one.baseline, LOWEST), color=colour, linestyle=":", linewidth=1.0)
    if not any(one.curve for one in findings):
        ax.text(0.5, 0.5, "no reply is a product that can be read", transform=ax.transAxes, ha="center", color="0.35")
        ax.set_ylim(LOWEST, 10)
    label = "guess: pooled scatter (dotted, by site)"
    if findings:
        ax.plot([], [], color="0.35", linestyle=":", label=label)
    ax.axhline(EXACT, color="0.35", linestyle="--", linewidth=1.0, label=f"called computed: {EXACT:g}")
    ax.set_xlabel("round")
    if max((r for one in findings for r, _ in one.curve), default=1) > MANY_ROUNDS:  # most happens in the first ones
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.grid(True, which="major", color="0.9", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)


def _single_points(ax: Axes, told: Audit) -> None:
    """What one-shot messages and the fit of FAPS reached, at the round until which they used messages."""
    for attack, marker in (("one-shot truncation", "*"), ("FAPS, simulated site", "P")):
        found = [one for one in told.of(attack)[:MOST_SITES] if one.error is not None]
        if found:
            rounds, errors = [one.rounds or 1 for one in found], [max(one.error or 0.0, LOWEST) for one in found]
            ax.scatter(rounds, errors, marker=marker, s=110, color="black", zorder=3, label=attack)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:24]).replace("$", r"\$").lstrip("_") or "?"
