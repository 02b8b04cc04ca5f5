"""Agreement on features: what the three ways do where a site lacks a third of them, alleles swapped at one site, units."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import eigenpact as ep
from benchmarks.table import Row, pytest_row
from eigenpact.data.agreement import Columns, agree_on_features
from eigenpact.data.alleles import other_strand
from eigenpact.data.files import find
from eigenpact.data.table import Variants
from eigenpact.data.take_columns import take_columns
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.units import KNOWN, quartiles, units_in_doubt


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    warnings.simplefilter("ignore")
    yield from _a_third_lacking()
    yield _thousand_genomes()
    yield _many_variants(1_000_000 if size == "paper" else 50_000)
    yield from _units()
    yield pytest_row(
        "any order of sites gives the sets' intersection and union; equal sites: nothing changes, the same bits",
        "pass",
        "tests/data/test_agreement.py",
        "tests/estimators/test_inputs_features.py",
    )
    yield pytest_row(
        "between institutions: one site lacks columns, plain and secured sums; other units told in its own log alone",
        "pass",
        "tests/runtime/test_lacking.py",
    )


def _heart() -> tuple[dict[str, Any], list[str]]:
    """Four hospitals' complete rows of nine columns, as DataFrames."""
    import pandas as pd

    names = ["age", "sex", "cp", "trestbps", "restecg", "thalach", "exang", "oldpeak", "fbs"]
    data = ep.datasets.heart_disease()
    X = data.X[:, [list(data.feature_names or ()).index(name) for name in names]]
    hospitals, whole = np.asarray(data.groups["site"]), np.isfinite(X).all(axis=1)
    return {str(h): pd.DataFrame(X[whole & (hospitals == h)], columns=names) for h in np.unique(hospitals)}, names


def _a_third_lacking() -> Iterator[Row]:
    """One of four hospitals lacks three of nine columns."""
    what = "one of 4 hospitals lacks 3 of 9 columns: "
    try:
        sites, names = _heart()
    except ep.errors.DataUnavailableError as error:
        yield Row(what + "strict, intersection", "told", "", None, str(error))
        return
    gone = ["restecg", "exang", "fbs"]
    sites["va"] = sites["va"].drop(columns=gone)
    try:
        ep.FederatedPCA(3).fit(sites)
        told = ""
    except ep.errors.InputError as error:
        told = str(error)
    named = "'va' lacks" in told and all(name in told for name in gone)
    yield Row(what + "strict", "refuses, names site and columns", told[: told.index("; every")] if named else told, named)
    pca = ep.FederatedPCA(3, scale="pooled", features="intersection").fit(sites)
    common = [name for name in names if name not in gone]
    Y = np.vstack([X[common].to_numpy() for X in sites.values()])
    Z = np.linalg.svd((Y - Y.mean(axis=0)) / Y.std(axis=0), full_matrices=False)[2][:3].T
    sine = largest_sine(Z, pca.components_.T)
    report = pca.features_report_
    lists = sum(set(site.dropped) == set(gone) for site in report.sites.values())
    good = sine <= 1e-8 and lists == 3 and set(report.sites["va"].lacking) == set(gone)
    reached = f"sine {sine:.1e} to the pooled PCA of 6 columns; dropped columns listed for {lists} sites, lacking ones for va"
    yield Row(what + "intersection", "sine <= 1e-8, all listed", reached, good)


def _variants(ids: Any, pairs: list[tuple[str, str]]) -> Variants:
    counted, other = zip(*pairs, strict=True)
    return Variants(("1",) * len(pairs), np.arange(1, len(pairs) + 1), tuple(ids), counted, other)


def _swapped(pairs: list[tuple[str, str]], swap: Any, flip: Any) -> list[tuple[str, str]]:
    told = [pair[::-1] if s else pair for pair, s in zip(pairs, swap, strict=True)]
    return [(other_strand(a), other_strand(b)) if f else (a, b) for (a, b), f in zip(told, flip, strict=True)]


def _thousand_genomes() -> Row:
    """Alleles swapped for half of the variants and flipped for a third, in another order, at one of 14 populations."""
    what = "1000 Genomes, 14 populations as sites, alleles swapped and flipped at one (YRI), columns in another order"
    path = find("kg_phase1_1092x14079.npz")
    if path is None:
        return Row(what, "the same bits", "", None, "needs EIGENPACT_DATA")
    rng = np.random.default_rng(0)
    with np.load(path) as file:
        data = {name: file[name] for name in ("a1", "a2", "snp", "genotypes", "population")}
    clear = np.array([other_strand(a) != b for a, b in zip(data["a1"], data["a2"], strict=True)])
    whole = np.flatnonzero(clear & (data["genotypes"] >= 0).all(axis=0))[:1500]
    pairs = [(str(data["a1"][j]), str(data["a2"][j])) for j in whole]
    ids, G, population = data["snp"][whole].tolist(), data["genotypes"][:, whole].astype(np.uint8), data["population"]
    sites = {str(name): G[population == name] for name in np.unique(population)}
    tables = {name: (X, _variants(ids, pairs)) for name, X in sites.items()}
    swap, flip, order = rng.random(len(ids)) < 0.5, rng.random(len(ids)) < 1 / 3, rng.permutation(len(ids))
    told = _swapped(pairs, swap, flip)
    other = Variants(("1",) * len(ids), order + 1, *(tuple(t) for t in (np.array(ids)[order], *np.array(told)[order].T)))  # type: ignore[arg-type]
    tables["YRI"] = (np.where(swap, 2 - sites["YRI"], sites["YRI"]).astype(np.uint8)[:, order], other)
    agreed = agree_on_features({name: Columns(len(v.ids), v.ids, v) for name, (_, v) in tables.items()})
    made = {name: take_columns(X, agreed.plans[name]) for name, (X, _) in tables.items()}
    same = all(np.array_equal(made[name], sites[name]) and made[name].dtype == np.uint8 for name in sites)
    fits = [ep.FederatedPCA(4, solver="krylov", random_state=0).fit(held) for held in (sites, made)]
    bits = fits[0].components_.tobytes() == fits[1].components_.tobytes()
    counts = agreed.report.sites["YRI"].counts
    reached = f"bytes {'equal' if same else 'differ'}, components {'equal' if bits else 'differ'}; {counts}"
    return Row(what, "the same bits", reached, same and bits)


def _many_variants(count: int) -> Row:
    """Time to bring two lists into line."""
    rng = np.random.default_rng(0)
    choices = [(a, b) for a in "ACGT" for b in "ACGT" if a != b]
    pairs = [choices[j] for j in rng.integers(0, len(choices), count)]
    swap, flip = rng.random(count) < 0.5, np.zeros(count, dtype=bool)
    ids = [f"rs{j}" for j in range(count)]
    there, here = _variants(ids, pairs), _variants(ids[::-1], _swapped(pairs, swap, flip)[::-1])
    here = replace(here, position=np.asarray(there.position)[::-1])
    begin = time.process_time()
    agreed = agree_on_features({"A": Columns(count, None, there), "B": Columns(count, None, here)}, "intersection")
    spent = time.process_time() - begin
    text = f"{spent:.1f} s of CPU time; {agreed.report.sites['B'].counts}"
    return Row(f"two lists of {count} variants in opposite order, half of them swapped", "reported", text, True)


def _units() -> Iterator[Row]:
    """False alarms on real tables, and hits where a unit is changed."""
    try:
        data = ep.datasets.heart_disease()
    except ep.errors.DataUnavailableError as error:
        yield Row("units: heart disease", "no false alarm", "", None, str(error))
        return
    X, hospitals = np.asarray(data.X), np.asarray(data.groups["site"])
    names = [str(h) for h in np.unique(hospitals)]
    found = units_in_doubt({h: quartiles(X[hospitals == h]) for h in names})
    yield Row("units: heart disease as it is, 4 hospitals, all columns", "no alarm", f"{len(found)} alarms", not found)
    factors = [factor.value for factor in KNOWN] + [10.0, 100.0, 1000.0]
    hits = tried = 0
    columns = [list(data.feature_names or ()).index(name) for name in ("age", "trestbps", "thalach")]
    for column in columns:
        for factor in (*factors, *(1 / f for f in factors)):
            for site in names:
                Y = X.copy()
                Y[hospitals == site, column] *= factor
                told = units_in_doubt({h: quartiles(Y[hospitals == h]) for h in names})
                hits, tried = hits + ([(d.site, d.column) for d in told] == [(site, column)]), tried + 1
    text = f"{hits} of {tried}"
    what = "units: age, trestbps or thalach of one hospital times a known factor: that site and column named, and no other"
    yield Row(what, ">= 95 %", text, hits >= 0.95 * tried)
