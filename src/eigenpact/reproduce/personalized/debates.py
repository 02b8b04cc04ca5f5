"""Table 7: words of presidential debates by year."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from ...data import partition
from ...datasets import load
from ...estimators.personalized import PersonalizedPCA
from ...numerics.linalg import Array
from ..registry import Cell, Grid, Reproduced, Size, Watch
from .fitting import fitted, parameters, published
from .scenes import lines_of_words

Weights = Literal["counts", "tf-idf"]

LEAST_TURNS, MOST_TURNS = 5, 0.065
"""A word occurs in at least so many turns of speech; with tf-idf at most in this share of them, a little above that of "tax"."""


def debates_by_year(weights: Weights = "tf-idf") -> tuple[dict[str, Any], list[str]]:
    """Every turn of speech as a sparse row of its words' weights, by year, without English stop words; and the words.

    "counts" is the paper's: how often a word occurs.  "tf-idf" weighs (1 + log count) by how rare a word is; a row is not scaled
    to length 1, because turns of a few words, by which moderators hand over, would then count like speeches.
    """
    options: dict[str, Any] = {"stop_words": "english", "min_df": LEAST_TURNS}
    if weights == "counts":
        vectorizer = CountVectorizer(**options)
    else:
        vectorizer = TfidfVectorizer(**options, max_df=MOST_TURNS, sublinear_tf=True, norm=None)
    data = load("debates")
    X = vectorizer.fit_transform(data.extra["text"]).astype(float).tocsr()
    return partition.by_group(X, data.groups["year"]), vectorizer.get_feature_names_out().tolist()


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


def topics_of(pca: PersonalizedPCA, words: list[str], count: int) -> dict[str, list[str]]:
    """Leading words of every year's local components, and of the global ones as "common"."""
    own = {site[-4:]: leading_words(pca.local_components_[site], words, count) for site in pca.sites_}
    return own | {"common": leading_words(pca.components_, words, count)}


def shared_words(found: Mapping[str, list[str]], p: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Year -> how many of the paper's words are among those found, and how many the paper has."""
    told = {year: [word.strip().lower() for word in p[year].split(",")] for year in found}
    return {year: (sum(word in found[year] for word in words), len(words)) for year, words in told.items()}


def table7(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 7: words of local components by year, and of the global ones."""
    p = parameters("table7", size)
    runs: dict[str, dict[str, list[str]]] = {}
    grids, remarks = [], []
    weighted: tuple[Weights, ...] = ("tf-idf", "counts")
    for weights in weighted:
        sites, words = debates_by_year(weights)
        perpca = {"solver": published(sites, p["choice"], p["times"]), "tol": 0.0, "max_rounds": p["rounds"] + 1}
        for solver, options in (("perpca", perpca), ("varpro", {"tol": 1e-2, "max_rounds": 3 * p["rounds"]})):
            pca = fitted(sites, p["n_global"], p["n_local"], seed, misalignment=False, **options)
            name = f"{solver}, {weights}"
            runs[name] = topics_of(pca, words, p["words"])
            alike = shared_words(runs[name], p)
            rows: list[list[Cell]] = [[year, ", ".join(runs[name][year][:8]), "{} of {}".format(*alike[year])] for year in alike]
            grids.append(Grid(name, ["year", "ours", "of the paper's"], rows))
            total = "{} of {}".format(*np.sum(list(alike.values()), axis=0))
            remarks.append(f"{name}: {total} of the paper's words; {len(words)} words, {pca.n_rounds_} rounds.")
            watch.on_run(remarks[-1])
    title = "Personalized PCA paper, Table 7: words of presidential debates"
    remarks += [
        f"Words with the largest entries; the last column has the paper's that are among our {p['words']}.  Of its 20 the paper "
        "shows the most informative, chosen by hand; ours are the first.",
        f"perpca: choice {p['choice']} from the paper's start, step {p['times']:g} / max_i lambda_1, a round for the start and "
        f"{p['rounds']} more.  Counts are the paper's rows; tf-idf leaves out words of more than {MOST_TURNS:.1%} of turns.",
    ]
    figure = lines_of_words(title, {year: found[:10] for year, found in runs["perpca, tf-idf"].items()})
    return Reproduced(title, grids, remarks, figure, {"topics": runs})
