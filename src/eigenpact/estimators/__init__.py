"""What people touch: scikit-learn style estimators."""

from .graph.kernel import GraphKernelPCA
from .graph.pca import GraphPCA
from .pca import FederatedPCA
from .personalized import PersonalizedPCA
from .robust import RobustPCA

__all__ = ["FederatedPCA", "GraphKernelPCA", "GraphPCA", "PersonalizedPCA", "RobustPCA"]
