"""Models that other programs computed, for projection with eigenpact.

- ``plink2(prefix)``: allele weights of ``plink2 --pca allele-wts``, with eigenvalues and frequencies.
- ``flashpca(loadings, meansd, eigenvalues, n_samples=...)``: loadings of ``flashpca --outload --outmeansd --outval``.
- ``from_json(path)``: a model that ``ep.export.to_json`` wrote.

>>> import eigenpact as ep
>>> ep.imports.plink2("nowhere")
Traceback (most recent call last):
eigenpact.errors.FileError: nowhere.eigenvec.allele does not exist...
"""

from .estimators.exchange.loadings import flashpca, plink2
from .estimators.exchange.model_json import from_json

__all__ = ["flashpca", "from_json", "plink2"]
