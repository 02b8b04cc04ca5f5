"""What people touch: scikit-learn style estimators."""

from .pca import FederatedPCA
from .personalized import PersonalizedPCA

__all__ = ["FederatedPCA", "PersonalizedPCA"]
