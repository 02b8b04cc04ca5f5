"""What messages reveal: attacks on single replies, sums and models, the eavesdropping that they need, and an audit."""

from .audit import audit_ledger
from .eavesdropping import Eavesdropper, Overheard
from .findings import VERDICTS, Audit, Finding
from .fitting import Fit, fit_scatter
from .recovery import first_message, minimum_norm, symmetric
from .replies import Recorded, attack_replies
from .sums import Totals, auc, isolated, lost_site, membership, rare_rows, row_between, row_between_components
from .unequal import Unequal

__all__ = [
    "VERDICTS", "Audit", "Eavesdropper", "Finding", "Fit", "Overheard", "Recorded", "Totals", "Unequal", "attack_replies", "auc",
    "audit_ledger", "first_message", "fit_scatter", "isolated", "lost_site", "membership", "minimum_norm", "rare_rows",
    "row_between", "row_between_components", "symmetric",
]  # fmt: skip
