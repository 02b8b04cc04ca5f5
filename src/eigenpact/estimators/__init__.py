"""What people touch: scikit-learn style estimators."""

from .pca import FederatedPCA

__all__ = ["FederatedPCA"]
