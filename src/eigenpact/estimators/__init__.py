"""What people touch: scikit-learn style estimators."""

from .pca import FederatedPCA
from .personalized import PersonalizedPCA
from .robust import RobustPCA

__all__ = ["FederatedPCA", "PersonalizedPCA", "RobustPCA"]
