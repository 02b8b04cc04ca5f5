"""What people touch: scikit-learn style estimators."""

from .graph import GraphKernelPCA, GraphPCA
from .pca import FederatedPCA

__all__ = ["FederatedPCA", "GraphKernelPCA", "GraphPCA"]
