"""What people touch: scikit-learn style estimators."""

from .graph.kernel import GraphKernelPCA
from .graph.pca import GraphPCA
from .model_files import load_model, save_model
from .pca import FederatedPCA
from .personalized import PersonalizedPCA
from .private import PrivatePCA
from .robust import RobustPCA

__all__ = ["FederatedPCA", "GraphKernelPCA", "GraphPCA", "PersonalizedPCA", "PrivatePCA", "RobustPCA", "load_model", "save_model"]
