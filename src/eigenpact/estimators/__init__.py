"""What people touch: scikit-learn style estimators."""

from .graph_kernel import GraphKernelPCA
from .graph_pca import GraphPCA
from .pca import FederatedPCA
from .personalized import PersonalizedPCA
from .robust import RobustPCA

__all__ = ["FederatedPCA", "GraphKernelPCA", "GraphPCA", "PersonalizedPCA", "RobustPCA"]
