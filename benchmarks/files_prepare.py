"""Rows that sites prepare by sums, beside those who pool them: numpy and scikit-allel for genotypes, scanpy for cells.

Sites are the 14 populations of 1000 Genomes, and four of unequal size for the cells.  Truth is computed from the pooled table in
the same run, by code that shares nothing with ours.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import eigenpact as ep
from benchmarks.table import Row
from eigenpact.data.readers import read_sites
from eigenpact.errors import EigenpactError

CELLS = {"small": (1500, 400, 120), "paper": (20_000, 3000, 1000)}
"""Cells, genes, and how many of these stay."""

EVERY = {"small": 4, "paper": 1}
"""Of the variants of 1000 Genomes, how many are taken."""

COMPONENTS = 10
LEADING = 4
"""Components of 1000 Genomes whose variances stand apart."""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time; ``size`` is "small" or "paper"."""
    for what, measure in (("1000 Genomes", lambda: _genomes(EVERY[size])), ("pbmc68k", _scaled_cells)):
        try:
            yield from measure()
        except EigenpactError as error:
            yield Row(what, "", "", None, str(error))
    yield from _cells(*CELLS[size])


def _sine(A: Any, B: Any) -> float:
    """Of the largest angle between the spans of rows."""
    return float(np.linalg.norm(A - (A @ B.T) @ B, 2))


def _genomes(every: int) -> Iterator[Row]:
    data = ep.datasets.load("genomes")
    G = data.X[:, ::every].astype(np.float64)
    G[G < 0] = np.nan
    populations = data.groups["population"]
    sites, form = _as_files(G, populations, data, every)
    before = time.perf_counter()
    pca = ep.FederatedPCA(COMPONENTS, prepare=[ep.prepare.GenotypeScale()], random_state=0).fit(sites)
    seconds = time.perf_counter() - before
    p = np.nanmean(G, axis=0) / 2
    vary = (p > 0) & (p < 1)
    Y = np.nan_to_num((G[:, vary] - 2 * p[vary]) / np.sqrt(p[vary] * (1 - p[vary])))
    truth = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)[2][:COMPONENTS]
    sine = _sine(truth, pca.components_[:, vary])
    what = f"1000 Genomes, {G.shape[1]} variants, {len(pca.sites_)} populations as sites ({form}), Patterson scaling"
    what += f", {COMPONENTS} components: sine to numpy's of the pooled table"
    reached = f"{sine:.1e} in {pca.n_rounds_} rounds and {pca.n_setup_rounds_} of set-up, {seconds:.0f} s; {pca.preparation_[0]}"
    yield Row(what, "<= 1e-8", reached, sine <= 1e-8)
    yield _beside_allel(G, p, vary, pca)
    yield _continents(pca.transform(G), data.groups["super_population"])


def _as_files(G: Any, populations: Any, data: Any, every: int) -> tuple[dict[str, Any], str]:
    """A site for each population, read from PLINK files that were written here, or else from memory; and which."""
    try:
        from bed_reader import to_bed
    except ImportError:
        return {name: G[populations == name] for name in np.unique(populations)}, "arrays"
    variants = {"sid": np.array(data.feature_names), "allele_1": data.extra["a1"], "allele_2": data.extra["a2"]}
    variants = {name: np.asarray(values)[::every] for name, values in variants.items()}
    with tempfile.TemporaryDirectory() as place:
        files = {name: Path(place, f"{name}.bed") for name in np.unique(populations)}
        for name, file in files.items():
            to_bed(file, G[populations == name], properties=variants | {"iid": data.extra["sample"][populations == name]})
        return {name: table.X for name, table in read_sites([str(file) for file in files.values()]).items()}, "PLINK files"


def _beside_allel(G: Any, p: Any, vary: Any, pca: Any) -> Row:
    what = "the same beside scikit-allel's pca(scaler='patterson')"
    try:
        import allel
    except ImportError:
        return Row(what, "<= 1e-6", "", None, "scikit-allel is not installed")
    filled = np.where(np.isnan(G[:, vary]), 2 * p[vary], G[:, vary])
    _, model = allel.pca(filled.T, n_components=COMPONENTS, scaler="patterson")
    sine = _sine(model.components_.astype(np.float64), pca.components_[:, vary])
    return Row(what, "<= 1e-6", f"{sine:.1e}; its components are {model.components_.dtype}", sine <= 1e-6)


def _continents(scores: Any, continent: Any) -> Row:
    """How many people are nearest, in the leading scores, to the mean of their own continent."""
    names = np.unique(continent)
    T = scores[:, :LEADING]
    means = np.array([T[continent == name].mean(axis=0) for name in names])
    nearest = names[np.argmin(((T[:, None, :] - means) ** 2).sum(axis=2), axis=1)]
    asked = continent != "AMR"  # who descend from several continents
    share = float(np.mean(nearest[asked] == continent[asked]))
    what = f"the same: people of Africa, Asia and Europe nearest to their continent's mean in PC1 to PC{LEADING}"
    return Row(
        what, ">= 99 %", f"{100 * share:.1f} %; with the Americas {100 * np.mean(nearest == continent):.1f} %", share >= 0.99
    )


def counts(n_cells: int, n_genes: int, seed: int = 0) -> Any:
    """Negative binomial counts of cells of eight types, sparse, with unequal depth."""
    rng = np.random.default_rng(seed)
    level = np.exp(rng.normal(-1.6, 1.3, n_genes))
    types = np.exp(rng.normal(0, 0.8, (8, n_genes)) * (rng.random((8, n_genes)) < 0.15))
    depth = np.exp(rng.normal(0, 0.4, n_cells))
    kind = rng.integers(0, 8, n_cells)
    parts = []
    for first in range(0, n_cells, 1000):
        here = slice(first, min(first + 1000, n_cells))
        mean = depth[here, None] * level * types[kind[here]]
        parts.append(scipy.sparse.csr_matrix(rng.negative_binomial(2.0, 2.0 / (2.0 + mean)).astype(np.float64)))
    return scipy.sparse.vstack(parts, format="csr")


def _cells(n: int, d: int, n_top: int) -> Iterator[Row]:
    X = counts(n, d)
    sites = np.random.default_rng(1).choice(["A", "B", "C", "D"], n, p=[0.1, 0.2, 0.3, 0.4])
    steps = [ep.prepare.LogNormalize("median"), ep.prepare.HighlyVariable(n_top), ep.prepare.Scale(max_value=10, center=False)]
    before = time.perf_counter()
    pca = ep.FederatedPCA(COMPONENTS, prepare=steps, random_state=0).fit(X, sites=sites)
    seconds = time.perf_counter() - before
    what = f"{n} cells x {d} genes, sparse, four sites: normalize, log1p, {n_top} variable genes, scaling"
    try:
        import anndata
        import scanpy
    except ImportError:
        yield Row(what, "equals scanpy", "", None, "scanpy is not installed")
        return
    before = time.perf_counter()
    cells = anndata.AnnData(X.copy())
    scanpy.pp.normalize_total(cells)
    scanpy.pp.log1p(cells)
    scanpy.pp.highly_variable_genes(cells, n_top_genes=n_top)
    chosen = cells.var["highly_variable"].to_numpy()
    cells = cells[:, chosen].copy()
    cells.X = cells.X.toarray()
    scanpy.pp.scale(cells, max_value=10)
    scanpy.pp.pca(cells, n_comps=COMPONENTS, svd_solver="full", dtype="float64")
    theirs = time.perf_counter() - before
    same = np.array_equal(pca.preparation_[1].arrays["kept"], chosen)
    yield Row(
        f"{what}: genes beside scanpy's of the pooled cells", "the same", f"{chosen.sum()} the same" if same else "others", same
    )
    variances = np.abs(pca.explained_variance_ / cells.uns["pca"]["variance"] - 1).max()
    T, U = pca.transform(X), cells.obsm["X_pca"]
    scores = float(np.abs(np.abs(T) - np.abs(U)).max() / np.abs(U).max())
    yield Row("the same: variances, relative", "<= 1e-5", f"{variances:.1e}", bool(variances <= 1e-5))
    told = (
        f"{scores:.1e}; {seconds:.1f} s in {pca.n_setup_rounds_} rounds of set-up and {pca.n_rounds_} more, scanpy {theirs:.1f} s"
    )
    yield Row("the same: scores, relative to the largest", "<= 1e-5", told, scores <= 1e-5)


def _scaled_cells() -> Iterator[Row]:
    data = ep.datasets.load("pbmc68k")
    X = data.X[:, data.extra["highly_variable"]].astype(np.float64)
    stored = data.extra["pca_variance"]
    sites = np.arange(len(X)) % 4
    pca = ep.FederatedPCA(len(stored), random_state=0).fit(X, sites=sites)
    truth = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[: len(stored)] ** 2 / (len(X) - 1)
    exact = float(np.abs(pca.explained_variance_ / truth - 1).max())
    off = np.abs(pca.explained_variance_ / stored - 1)
    good = int(np.argmax(off > 1e-5)) if np.any(off > 1e-5) else len(off)
    yield Row("pbmc68k (already scaled), four sites: 50 variances beside numpy's", "<= 1e-5", f"{exact:.1e}", exact <= 1e-5)
    why = "" if good == len(off) else "the stored ones are of a randomized SVD; numpy's exact ones are ours (row above)"
    reached = f"the first {good} within 1e-5, then up to {100 * off.max():.1f} % apart"
    yield Row("the same beside those stored with the data", "<= 1e-5", reached, good == len(off), why)
