"""The four hospitals of the heart disease data, exported cleanly and as hospitals export."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import eigenpact as ep

TOWNS = {"cleveland": "Cleveland", "hungarian": "Óbuda", "switzerland": "Zürich", "va": "Long Beach"}
USED = ("age", "sex", "cp", "trestbps", "chol", "thalach", "exang", "oldpeak")
"""Columns that are nearly complete at all four."""


def tables() -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Names of all 13 columns, and a table (n x 13) for each hospital: rows that are complete in ``USED``."""
    data = ep.datasets.load("heart_disease")
    names = tuple(data.feature_names)
    whole = np.isfinite(data.X[:, [names.index(name) for name in USED]]).all(axis=1)
    return names, {site: data.X[(data.groups["site"] == site) & whole] for site in TOWNS}


def write_clean(folder: Path, columns: tuple[str, ...] | None = None) -> list[Path]:
    """Files as this package likes them: commas, points, UTF-8, empty cells; all columns or some."""
    names, found = tables()
    used = [names.index(name) for name in columns or names]
    paths = []
    for site, X in found.items():
        lines = [",".join(names[j] for j in used), *(",".join(_cell(row[j], ".", "") for j in used) for row in X)]
        paths.append(folder / f"{site}.csv")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def write_messy(folder: Path) -> list[Path]:
    """The same tables with semicolons, decimal commas, latin-1, other column orders, a renamed column, NA and ?."""
    names, found = tables()
    rng = np.random.default_rng(0)
    paths = []
    for site, X in found.items():
        order = rng.permutation(len(names))
        header = [{"trestbps": "trest_bps"}.get(names[j], names[j]) if site == "va" else names[j] for j in order]
        mark = "?" if site in ("hungarian", "va") else "NA"
        lines = [";".join([*header, "hospital"])]
        lines += [";".join([*(_cell(row[j], ",", mark) for j in order), TOWNS[site]]) for row in X]
        paths.append(folder / f"{site}.csv")
        paths[-1].write_bytes(("\r\n".join(lines) + "\r\n").encode("latin-1"))
    return paths


def _cell(value: float, decimal: str, missing: str) -> str:
    if np.isnan(value):
        return missing
    return str(int(value)) if value == int(value) else repr(float(value)).replace(".", decimal)
