"""What messages reveal: attacks on single replies, and the eavesdropping that they need."""

from .eavesdropping import Eavesdropper, Overheard
from .fitting import Fit, fit_scatter
from .recovery import first_message, minimum_norm, symmetric

__all__ = ["Eavesdropper", "Fit", "Overheard", "first_message", "fit_scatter", "minimum_norm", "symmetric"]
