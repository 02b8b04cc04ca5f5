"""What people touch: scikit-learn style estimators."""

from .pca import FederatedPCA
from .robust import RobustPCA

__all__ = ["FederatedPCA", "RobustPCA"]
