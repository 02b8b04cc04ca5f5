"""Data to try eigenpact on: synthetic problems, real sets, and ways to split one table into sites.

- ``spectral_problem(n_features, n_rows, ...)``: sites with a known spectrum, the FAPS paper's matrices.
- ``personalized_problem(n_sites, n_features, n_global, n_local, ...)``: sites with known shared and own directions.
- ``corrupted_problem(n_features, n_rows, rank, share, ...)``: low-rank rows with sparse gross errors, the robust PCA paper's.
- ``load(name)``, or ``digits()``, ``mnist()``, ...: a ``Dataset`` with X (n_rows x n_features), y and natural groups.
- ``partition``: ``by_label``, ``by_group``, ``random``, ``unequal`` and ``dirichlet`` turn one X into named sites.

>>> from eigenpact import datasets
>>> digits = datasets.load("digits")
>>> sites = datasets.partition.by_label(digits.X, digits.y)
>>> len(sites), sites["label0"].shape
(10, (178, 64))
"""

from __future__ import annotations

from .data import partition
from .data.corrupted import corrupted_problem
from .data.loaders import (
    NAMES,
    Dataset,
    beijing_air,
    cifar10,
    debates,
    digits,
    fashion_mnist,
    femnist,
    genomes,
    har,
    heart_disease,
    load,
    mnist,
    mnist_test,
    pbmc68k,
    video_bmc,
    video_escalator,
)
from .data.synthetic import PersonalizedProblem, personalized_problem, spectral_problem

__all__ = [
    "NAMES",
    "Dataset",
    "PersonalizedProblem",
    "beijing_air",
    "cifar10",
    "corrupted_problem",
    "debates",
    "digits",
    "fashion_mnist",
    "femnist",
    "genomes",
    "har",
    "heart_disease",
    "load",
    "mnist",
    "mnist_test",
    "partition",
    "pbmc68k",
    "personalized_problem",
    "spectral_problem",
    "video_bmc",
    "video_escalator",
]
