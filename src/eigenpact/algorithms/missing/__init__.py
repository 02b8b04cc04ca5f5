"""Rows with missing entries (NaN): filled with agreed means, or modelled by maximum likelihood."""
