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

from .data import loaders, partition
from .data.corrupted import corrupted_problem
from .data.loaders import *  # noqa: F403
from .data.synthetic import PersonalizedProblem, personalized_problem, spectral_problem

__all__ = ["PersonalizedProblem", "corrupted_problem", "partition", "personalized_problem", "spectral_problem"]
__all__ += loaders.__all__
