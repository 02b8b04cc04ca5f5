"""A fitted model elsewhere: for scikit-learn, ONNX, skops, as one JSON file, and as a card for people.

- ``to_sklearn(pca)``: a fitted scikit-learn ``PCA``, or a ``Pipeline`` where rows are scaled or prepared first.
- ``to_onnx(pca, path)``, ``to_skops(pca, path)``: the same as a file; need ``eigenpact[export]``.
- ``to_json(pca, path)``: everything in one readable file, which ``ep.load_model`` reads.
- ``model_card(pca)``, ``to_card(pca, path)``: Markdown that says what the model is, and what was revealed.

>>> import numpy as np, eigenpact as ep
>>> pca = ep.FederatedPCA(1).fit({"A": np.eye(3), "B": np.ones((2, 3))})
>>> ep.export.to_sklearn(pca)
PCA(n_components=1)
"""

from .estimators.exchange.model_json import to_json
from .estimators.exchange.scikit import to_onnx, to_sklearn, to_skops
from .report.cards import model_card, to_card

__all__ = ["model_card", "to_card", "to_json", "to_onnx", "to_sklearn", "to_skops"]
