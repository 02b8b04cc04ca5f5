"""Loadings that other programs computed of genotypes, as models for projection: those of plink2 and of FlashPCA.

Both standardize a variant's allele counts g as (g - 2 p) / sqrt(2 p (1 - p)), p the frequency of the counted allele, and give
eigenvalues of the products of the rows divided by the number of variants.  So singular values are sqrt(eigenvalue x variants).
Neither file has the variance outside the components; standardized columns are taken to have variance 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileError, InputError
from ...numerics.linalg import Array, fix_signs
from ...storage import read_regular
from ..model_checks import wrong_arrays
from ..model_files import FORMAT, model_of
from ..pca import FederatedPCA

MOST_BYTES = 1 << 32
FAR_FROM_ORTHONORMAL = 0.05
"""Loadings are printed with a few digits, and are made orthonormal; what is farther off is not what they are said to be."""

PARAMETERS: dict[str, Any] = {
    "center": "pooled",
    "scale": "pooled",
    "tol": None,
    "max_rounds": 3000,
    "solver": "auto",
    "random_state": None,
}
"""Of the estimator, which nobody has fitted."""


def plink2(
    prefix: str | os.PathLike[str], *, frequencies: str | os.PathLike[str] | None = None, alleles: str = "ALT"
) -> FederatedPCA:
    """A model from ``plink2 --pca allele-wts``: PREFIX.eigenvec.allele, PREFIX.eigenval, and frequencies.

    Parameters
    ----------
    prefix : path
        What plink2 was given as ``--out``.
    frequencies : path, optional
        A file of ``--freq`` (.afreq) or ``--freq counts`` (.acount); else PREFIX.afreq or PREFIX.acount.
    alleles : "ALT" or "REF"
        Which allele's copies new rows count.

    Features are named by the variants' ids.  Scores have the sizes of the fit's own: plink2's .eigenvec has unit length instead.
    """
    if alleles not in ("ALT", "REF"):
        raise InputError(f"alleles={alleles!r} must be 'ALT' or 'REF', the allele whose copies rows count")
    place = Path(prefix)
    weights = _read(_beside(place, ".eigenvec.allele"), ("ID", "REF", "ALT", "A1"))
    counted = [i for i, a1 in enumerate(weights["A1"]) if a1 == weights[alleles][i]]
    names = [weights["ID"][i] for i in counted]
    columns = [name for name in weights if name.startswith("PC")]
    W = _numbers(weights, columns)[counted]
    file = Path(frequencies) if frequencies is not None else _first(place, (".afreq", ".acount"))
    told = _read(file, ("ID", "OBS_CT"))
    chances = {name: i for i, name in enumerate(told["ID"])}
    lacking = [name for name in names if name not in chances]
    if lacking:
        raise InputError(
            f"{file} lacks {len(lacking)} variants of the loadings, such as {lacking[0]}; give the fit's own frequencies"
        )
    at = [chances[name] for name in names]
    observed = _numbers(told, ["OBS_CT"])[at, 0]
    p = _numbers(told, ["ALT_FREQS"])[at, 0] if "ALT_FREQS" in told else _numbers(told, ["ALT_CTS"])[at, 0] / observed
    p = p if alleles == "ALT" else 1 - p
    values = _values(_beside(place, ".eigenval"))
    return _model("plink2", W, values, 2 * p, np.sqrt(2 * p * (1 - p)), names, int(observed.max()) // 2)


def flashpca(
    loadings: str | os.PathLike[str],
    meansd: str | os.PathLike[str],
    eigenvalues: str | os.PathLike[str],
    *,
    n_samples: int,
) -> FederatedPCA:
    """A model from ``flashpca --outload LOADINGS --outmeansd MEANSD --outval EIGENVALUES``; ``n_samples`` rows were fitted.

    Rows are to count copies of the files' RefAllele.  Features are named by the variants' ids.
    """
    if n_samples < 2:
        raise InputError(f"n_samples={n_samples!r} must be the number of rows that were fitted, at least 2")
    told, spread = _read(Path(loadings), ("SNP", "RefAllele", "V1")), _read(Path(meansd), ("SNP", "RefAllele", "Mean", "SD"))
    for column in ("SNP", "RefAllele"):
        if told[column] != spread[column]:
            raise InputError(f"{loadings} and {meansd} differ in {column}; give the files of one run")
    W = _numbers(told, [name for name in told if name.startswith("V") and name[1:].isdigit()])
    mean, scale = _numbers(spread, ["Mean", "SD"]).T
    return _model("FlashPCA", W, _values(Path(eigenvalues)), mean, scale, told["SNP"], int(n_samples))


def _model(program: str, W: Array, values: Array, mean: Array, scale: Array, names: Sequence[str], n: int) -> FederatedPCA:
    d, k = W.shape
    if len(values) < k or not 0 < k <= min(n, d):
        raise InputError(
            f"there are {k} components of {d} variants and {n} rows, and {len(values)} eigenvalues; give those of one run"
        )
    if np.any(values[:k] <= 0) or np.any(np.diff(values[:k]) > 0):
        raise InputError(f"eigenvalues must be positive and descending, and are {', '.join(f'{v:g}' for v in values[:k])}")
    if len(set(names)) < len(names):
        raise InputError("two variants have one id; rename them apart before the fit")
    varies = scale > 0
    W, scale = np.where(varies[:, None], W, 0.0), np.where(varies, scale, 1.0)
    squares, total = values[:k] * d, float(n) * d
    rest = max(0.0, total - float(squares.sum())) / (n - 1)
    arrays = {
        "components": np.ascontiguousarray(fix_signs(_orthonormal(W)).T),
        "explained_variance": squares / (n - 1),
        "explained_variance_ratio": np.minimum(squares / total, 1.0),
        "singular_values": np.sqrt(squares),
        "mean": mean,
        "scale": scale,
        "noise_variance": np.array(rest / (min(n, d) - k) if k < min(n, d) else 0.0),
    }
    wrong = wrong_arrays(arrays)
    if wrong:
        raise InputError(f"these loadings are no model: {wrong}")
    return model_of(_facts(program, k, n, names), arrays, ())


def _orthonormal(W: Array) -> Array:
    """The orthonormal columns nearest to W (d x k), once its columns have unit length."""
    lengths = np.linalg.norm(W, axis=0)
    if not np.all(lengths > 0):
        raise InputError("a component has no loadings")
    U, s, Vt = np.linalg.svd(W / lengths, full_matrices=False)
    if np.abs(s - 1).max() > FAR_FROM_ORTHONORMAL:
        raise InputError(
            f"components are not orthogonal (singular values {s.min():.3f} to {s.max():.3f}); give loadings, not scores"
        )
    return np.asarray(U @ Vt)


def _facts(program: str, k: int, n: int, names: Sequence[str]) -> dict[str, Any]:
    """As a manifest has them."""
    return {
        "format": FORMAT,
        "parameters": PARAMETERS | {"n_components": k},
        "sites": [program],
        "n_samples": n,
        "rounds": 0,
        "setup_rounds": 0,
        "converged": False,
        "stop_reason": f"computed by {program}, which does not tell how exactly",
        "angle_estimate": None,
        "between_site_share": 0.0,
        "solver_used": program,
        "solver_choice": [],
        "feature_names": list(names),
        "history": [],
        "ledger": [],
    }


def _read(file: Path, needed: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a table with a header, separated by blanks."""
    try:
        lines = read_regular(file, MOST_BYTES, follow=True).decode().splitlines()
    except FileNotFoundError as error:
        raise FileError(f"{file} does not exist; give the file that {needed[0]} stands in") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not text; give a file of loadings") from error
    rows = [line.split() for line in lines if line and not line.startswith("##")]
    header = [name.removeprefix("#") for name in rows[0]] if rows else []
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise FileError(f"{file} lacks the column {lacking[0]}; it has {', '.join(header[:10]) or 'none'}")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise FileError(f"{file}, line {number}: {len(row)} entries for {len(header)} columns; copy the file again")
    return {name: list(column) for name, column in zip(header, zip(*rows[1:], strict=True), strict=False)}


def _numbers(table: Mapping[str, list[str]], columns: Sequence[str]) -> Array:
    try:
        return np.array([[float(text) for text in table[name]] for name in columns]).T
    except KeyError as error:
        raise InputError(f"there is no column {error}; columns are {', '.join(table)}") from error
    except ValueError as error:
        raise InputError(f"columns {', '.join(columns[:3])}: {error}") from error


def _values(file: Path) -> Array:
    try:
        return np.array([float(text) for text in read_regular(file, MOST_BYTES, follow=True).split()])
    except (FileNotFoundError, ValueError) as error:
        raise FileError(f"{file} is not a list of eigenvalues ({error}); give the file of the same run") from error


def _beside(prefix: Path, ending: str) -> Path:
    return prefix.with_name(prefix.name + ending)


def _first(prefix: Path, endings: Sequence[str]) -> Path:
    found = next((_beside(prefix, ending) for ending in endings if _beside(prefix, ending).is_file()), None)
    if found is None:
        named = " and ".join(str(_beside(prefix, ending)) for ending in endings)
        raise FileError(f"neither of {named} exists; make one with plink2 --freq, or give frequencies=")
    return found
