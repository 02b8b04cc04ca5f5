"""Tables and figures of the papers, computed again and printed beside the papers' own numbers.

One folder per paper, with a function for each table or figure; beside them ``paper.toml`` with the numbers that the paper prints,
and ``small.toml`` with the problems of the small size.  A new paper is added to ``PAPERS``.

>>> find("faps-table4").what
'uneven sites: rounds, KKT and errors of SSI, LocalPower and FAPS'
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from ..errors import InputError
from .registry import Grid, Reproduced, Reproduction, Size, Watch, paper_numbers

PAPERS: dict[str, dict[str, str]] = {
    "faps": {
        "one_problem.table1": "one synthetic problem: rounds of SSI and FAPS",
        "synthetic.table2": "synthetic data: average KKT and relative errors",
        "images.table3": "image sets: average KKT and relative errors",
        "one_problem.table4": "uneven sites: rounds, KKT and errors of SSI, LocalPower and FAPS",
        "leakage.fig1": "what the messages of SSI tell about one site's data",
        "synthetic.fig2": "synthetic data: rounds when features, rows, components or decay vary",
        "images.fig3": "image sets: rounds",
        "synthetic.fig4": "arithmetic spectrum: convergence rates",
    },
    "kernel": {
        "similarity.fig3": "projection consensus: similarity and time by number of nodes",
        "similarity.fig4": "projection consensus: similarity by images on a node, beside own rows only",
        "similarity.fig5": "projection consensus: similarity after every iteration, by number of neighbours",
    },
    "oneshot": {
        "one_round.fig1": "one round: errors of averages, sign fixing and projections beside the centralized one",
        "rounds.table1": "rounds and errors of power, Lanczos, hot potato, one-shot, shift-and-invert, Davidson",
    },
    "personalized": {
        "two_sites.fig1": "two sites: pooled and personalized components",
        "two_sites.fig3": "PerPCA's convergence for several theta",
        "statistics.fig4": "subspace error by number of rows, beside distPCA",
        "statistics.fig5": "subspace error by number of features",
        "statistics.fig6": "subspace error by number of sites",
        "statistics.table2": "test errors of sites with few and with many rows",
        "ranks.table3": "theta for too many local components",
        "ranks.fig7": "too many local components",
        "ranks.fig8": "too many global components",
        "statistics.fig9": "sites of ten groups, clustered by local components",
        "two_sites.fig10": "global error by eigengap",
        "two_sites.fig11": "global error by misalignment",
        "pictures.table4": "icons on a texture",
        "writing.table5": "reconstruction errors on FEMNIST and CIFAR-10",
        "pictures.table6": "background and moving objects of videos",
        "debates.table7": "words of presidential debates by year",
    },
    "robust": {
        "figures.fig1": "convergence of DCF-PCA, CF-PCA, APGM, Goldfarb's and Lin's ALM, and ours",
        "figures.fig2": "errors by rank and sparsity",
        "figures.fig3": "singular values with an upper bound on the rank",
        "figures.fig4": "local steps K, and the number of sites",
        "figures.table1": "singular value errors with an upper bound on the rank",
    },
}
"""Paper -> its tables and figures, each behind the module that computes it -> what they show in a line."""

CITED = {
    "faps": "L. Wang, X. Liu, Y. Zhang, Seeking consensus on subspaces in federated PCA",
    "kernel": "F. He, R. Yang, L. Shi, X. Huang, A decentralized framework for kernel PCA",
    "oneshot": "D. Garber, O. Shamir, N. Srebro, Communication-efficient algorithms for distributed stochastic PCA",
    "personalized": "N. Shi, R. Al Kontar, Personalized PCA: decoupling shared and unique features",
    "robust": "W. Chu, Distributed robust principal component analysis",
}
"""Paper -> how its figures name it."""

OPTIONS = {"oneshot-fig1": {"distribution": ("normal", "uniform")}}
"""What can be chosen besides size and seed."""


def _made(paper: str, module: str, part: str, size: Size, seed: int, watch: Watch, **chosen: str) -> Reproduced:
    """Compute it.  Its module is imported only now: it draws, and commands that draw nothing do not wait for matplotlib."""
    made: Reproduced = getattr(import_module(f"{__name__}.{paper}.{module}"), part)(size, seed, watch, **chosen)
    said = f"after {CITED[paper]}; size {size.value}, seed {seed}" + "".join(f", {value}" for value in chosen.values())
    import_module(f"{__name__}.drawing").sign(made.figure, said)
    return made


def _reproduction(paper: str, where: str, what: str) -> Reproduction:
    module, part = where.split(".")
    name = f"{paper}-{part}"
    return Reproduction(name, what, partial(_made, paper, module, part), OPTIONS.get(name, {}))


REPRODUCTIONS: dict[str, Reproduction] = {
    made.name: made
    for paper, parts in PAPERS.items()
    for made in (_reproduction(paper, where, what) for where, what in parts.items())
}
"""Name -> Reproduction."""


def find(name: str) -> Reproduction:
    """The reproduction of this name."""
    if name not in REPRODUCTIONS:
        raise InputError(f"unknown table or figure {name!r}; choose one of {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name]


def chosen(reproduction: Reproduction, **asked: str | None) -> dict[str, str]:
    """The options that were asked for (not None), if the reproduction has them and knows their values.

    >>> chosen(find("oneshot-fig1"), distribution="uniform"), chosen(find("faps-table4"), distribution=None)
    ({'distribution': 'uniform'}, {})
    """
    given = {option: value for option, value in asked.items() if value is not None}
    for option, value in given.items():
        if option not in reproduction.options:
            able = [other.name for other in REPRODUCTIONS.values() if option in other.options]
            raise InputError(f"{reproduction.name} has no --{option}; leave it out, or choose {' or '.join(able)}, which has one")
        if value not in reproduction.options[option]:
            allowed = ", ".join(reproduction.options[option])
            raise InputError(f"--{option} {value!r} is not known to {reproduction.name}; choose one of {allowed}")
    return given


__all__ = ["PAPERS", "REPRODUCTIONS", "Grid", "Reproduced", "Reproduction", "Size", "Watch", "chosen", "find", "paper_numbers"]
