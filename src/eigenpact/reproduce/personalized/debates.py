"""Table 7: words of presidential debates by year."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from ...data import partition
from ...datasets import load
from ...numerics.linalg import Array
from ..registry import Cell, Grid, Reproduced, Size, Watch
from .fitting import fitted, parameters
from .scenes import lines_of_words

STOP_WORDS = {
    "applause", "going", "got", "laughter", "let", "ll", "mr", "president", "re", "said", "senator", "think", "ve", "way", "want",
}  # fmt: skip
"""Left out besides scikit-learn's English stop words: what transcripts say of everyone."""


def debates_by_year() -> tuple[dict[str, Any], list[str]]:
    """Word counts of every turn of speech (sparse rows) by year, without stop words, and the words."""
    data = load("debates")
    words = np.array(data.feature_names)
    keep = np.array([word not in ENGLISH_STOP_WORDS and word not in STOP_WORDS for word in words])
    X = data.X[:, np.flatnonzero(keep)].astype(float)
    return partition.by_group(X, data.groups["year"]), words[keep].tolist()


def leading_words(components: Array, words: list[str], count: int) -> list[str]:
    """Words of the largest entries of components, alternating from one component to the next."""
    orders = [np.argsort(-np.abs(component)) for component in components]
    found: dict[str, None] = {}
    for rank in range(len(words)):
        for order in orders:
            found.setdefault(words[order[rank]])
        if len(found) >= count:
            break
    return list(found)[:count]


def table7(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 7: words of local components by year, and of the global ones."""
    p = parameters("table7", size)
    sites, words = debates_by_year()
    pca = fitted(sites, p["n_global"], p["n_local"], seed, max_rounds=p["rounds"], tol=1e-3)
    watch.on_run(f"{pca.n_rounds_} rounds, theta {pca.misalignment_:.3f}")
    topics = {site: leading_words(pca.local_components_[site], words, p["words"]) for site in pca.sites_}
    common = leading_words(pca.components_, words, p["words"])
    lines = {site[-4:]: found for site, found in topics.items()} | {"common": common}
    rows: list[list[Cell]] = []
    for year, found in lines.items():
        told = [word.strip().lower() for word in p[year].split(",")]
        rows.append([year, ", ".join(found[:8]), f"{sum(word in found for word in told)} of {len(told)}"])
    title = "Personalized PCA paper, Table 7: words of presidential debates"
    remarks = [
        f"Of {len(words)} words those with the largest entries; last column: the paper's that are among our {p['words']}.",
        "Words are those of at least 5 turns, without scikit-learn's English stop words and some of transcripts.",
    ]
    figure = lines_of_words(title, {year: found[:10] for year, found in lines.items()})
    grid = Grid(title, ["year", "ours", "of the paper's"], rows)
    return Reproduced(title, [grid], remarks, figure, {"topics": topics, "common": common})
