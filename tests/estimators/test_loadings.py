"""Loadings of plink2 and FlashPCA as models; the files are written here as these programs write theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import eigenpact as ep
from eigenpact.errors import FileError, InputError

N, D, K = 60, 200, 3


class Study:
    """Genotypes of three populations, and their PCA by numpy."""

    def __init__(self) -> None:
        random = np.random.default_rng(2)
        base = random.uniform(0.2, 0.8, size=D)
        p = np.clip(base + random.normal(scale=0.15, size=(3, D)), 0.05, 0.95)
        self.counts = random.binomial(2, np.repeat(p, N // 3, axis=0)).astype(float)
        self.p = self.counts.mean(axis=0) / 2
        self.Z = (self.counts - 2 * self.p) / np.sqrt(2 * self.p * (1 - self.p))
        _, self.lengths, Vt = np.linalg.svd(self.Z, full_matrices=False)
        self.V, self.values = Vt[:K].T, self.lengths[:K] ** 2 / D
        self.names = [f"rs{j}" for j in range(D)]

    def table(self, counts: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(counts, columns=self.names)

    def scores(self, counts: np.ndarray) -> np.ndarray:
        return ((counts - 2 * self.p) / np.sqrt(2 * self.p * (1 - self.p))) @ self.V


def write_plink2(study: Study, place: Path) -> Path:
    """Two rows for each variant, one for each allele, in another unit, with six digits."""
    lines = ["#CHROM\tID\tREF\tALT\tPROVISIONAL_REF?\tA1\t" + "\t".join(f"PC{j + 1}" for j in range(K))]
    for name, row in zip(study.names, study.V, strict=True):
        for allele, sign in (("A", 1.0), ("G", -1.0)):
            weights = "\t".join(f"{-sign * 3.7 * w:.6g}" for w in row)
            lines.append(f"1\t{name}\tA\tG\tY\t{allele}\t{weights}")
    (place / "ref.eigenvec.allele").write_text("\n".join(lines) + "\n")
    (place / "ref.eigenval").write_text("".join(f"{value:.6g}\n" for value in study.values))
    rows = [f"1\t{name}\tA\tG\tY\t{p:.6g}\t{2 * N}" for name, p in zip(study.names, study.p, strict=True)]
    (place / "ref.afreq").write_text("\n".join(["#CHROM\tID\tREF\tALT\tPROVISIONAL_REF?\tALT_FREQS\tOBS_CT", *rows]) + "\n")
    return place / "ref"


def write_flashpca(study: Study, place: Path) -> tuple[Path, Path, Path]:
    files = place / "loadings.txt", place / "meansd.txt", place / "eigenvalues.txt"
    lines = [f"{name}\tG\t" + "\t".join(f"{w:.9g}" for w in row) for name, row in zip(study.names, study.V, strict=True)]
    files[0].write_text("\n".join(["SNP\tRefAllele\tV1\tV2\tV3", *lines]) + "\n")
    sds = np.sqrt(2 * study.p * (1 - study.p))
    lines = [f"{name}\tG\t{2 * p:.9g}\t{sd:.9g}" for name, p, sd in zip(study.names, study.p, sds, strict=True)]
    files[1].write_text("\n".join(["SNP\tRefAllele\tMean\tSD", *lines]) + "\n")
    files[2].write_text("\n".join(f"{value:.9g}" for value in study.values) + "\n")
    return files


def same(found: np.ndarray, expected: np.ndarray, within: float) -> bool:
    """Up to the signs of components."""
    found = found * np.sign((found * expected).sum(axis=0))
    return bool(np.abs(found - expected).max() <= within * np.abs(expected).max())


@pytest.fixture(scope="module")
def study() -> Study:
    return Study()


def test_plink2_loadings_give_the_fits_scores(study: Study, tmp_path: Path):
    pca = ep.imports.plink2(write_plink2(study, tmp_path))
    assert same(pca.project(study.table(study.counts)).scores, study.scores(study.counts), 1e-5)
    assert np.allclose(pca.singular_values_, study.lengths[:K], rtol=1e-5)
    assert (pca.n_samples_seen_, pca.sites_, pca.feature_names_in_.tolist()) == (N, ("plink2",), study.names)
    assert not pca.converged_


def test_plink2_counts_of_the_other_allele(study: Study, tmp_path: Path):
    pca = ep.imports.plink2(write_plink2(study, tmp_path), alleles="REF")
    assert same(pca.project(study.table(2 - study.counts)).scores, study.scores(study.counts), 1e-5)


def test_plink2_frequencies_as_counts(study: Study, tmp_path: Path):
    prefix = write_plink2(study, tmp_path)
    (tmp_path / "ref.afreq").unlink()
    rows = [f"1\t{name}\tA\tG\t{2 * N * p:.0f}\t{2 * N}" for name, p in zip(study.names, study.p, strict=True)]
    (tmp_path / "other.acount").write_text("\n".join(["#CHROM\tID\tREF\tALT\tALT_CTS\tOBS_CT", *rows]) + "\n")
    with pytest.raises(FileError, match=r"neither of .*ref\.afreq and .*ref\.acount exists; make one with plink2 --freq"):
        ep.imports.plink2(prefix)
    pca = ep.imports.plink2(prefix, frequencies=tmp_path / "other.acount")
    assert same(pca.project(study.table(study.counts)).scores, study.scores(study.counts), 1e-5)


def test_flashpca_loadings_give_the_fits_scores(study: Study, tmp_path: Path):
    pca = ep.imports.flashpca(*write_flashpca(study, tmp_path), n_samples=N)
    assert same(pca.project(study.table(study.counts)).scores, study.scores(study.counts), 1e-7)
    rest = (study.Z**2).sum() / (N - 1) - (study.lengths[:K] ** 2).sum() / (N - 1)
    assert np.isclose(pca.noise_variance_, rest / (N - K), rtol=0.1)  # columns are taken to have variance 1


def test_an_imported_model_is_saved_and_projects_with_gaps(study: Study, tmp_path: Path):
    pca = ep.imports.flashpca(*write_flashpca(study, tmp_path), n_samples=N)
    ep.save_model(pca, tmp_path / "model")
    gaps = np.where(np.random.default_rng(0).random(study.counts.shape) < 0.3, np.nan, study.counts)
    found = ep.load_model(tmp_path / "model").project(study.table(gaps))
    assert np.corrcoef(found.scores[:, 0], pca.project(study.table(study.counts)).scores[:, 0])[0, 1] > 0.95
    assert found.covers(pca.project(study.table(study.counts)).scores, of="whole").mean() > 0.85


def test_files_that_do_not_fit_are_refused(study: Study, tmp_path: Path):
    files = write_flashpca(study, tmp_path)
    with pytest.raises(InputError, match="n_samples=1 must be"):
        ep.imports.flashpca(*files, n_samples=1)
    files[2].write_text("3.0\n2.0\n")
    with pytest.raises(InputError, match="3 components of 200 variants and 60 rows, and 2 eigenvalues"):
        ep.imports.flashpca(*files, n_samples=N)
    files[2].write_text("1.0\n2.0\n3.0\n")
    with pytest.raises(InputError, match="positive and descending"):
        ep.imports.flashpca(*files, n_samples=N)
    files[2].write_text("one\n")
    with pytest.raises(FileError, match="is not a list of eigenvalues"):
        ep.imports.flashpca(*files, n_samples=N)
    text = files[0].read_text()
    files[0].write_text(text.replace("rs7\t", "rs7"))
    with pytest.raises(FileError, match=r"loadings\.txt, line 9: 4 entries for 5 columns"):
        ep.imports.flashpca(*files, n_samples=N)
    files[0].write_text(text.replace("rs7", "rs1000"))
    with pytest.raises(InputError, match="differ in SNP"):
        ep.imports.flashpca(*files, n_samples=N)
    files[0].write_text("a\tb\n1\t2\n")
    with pytest.raises(FileError, match="lacks the column SNP; it has a, b"):
        ep.imports.flashpca(*files, n_samples=N)
    with pytest.raises(InputError, match="alleles='minor' must be"):
        ep.imports.plink2(tmp_path / "ref", alleles="minor")


def test_scores_are_no_loadings(study: Study, tmp_path: Path):
    files = write_flashpca(study, tmp_path)
    ones = "\n".join(f"{name}\tG\t1\t1\t2" for name in study.names)
    files[0].write_text(f"SNP\tRefAllele\tV1\tV2\tV3\n{ones}\n")
    with pytest.raises(InputError, match="not orthogonal"):
        ep.imports.flashpca(*files, n_samples=N)
