"""Consensus on subspaces: all sites agree on one joint basis."""
