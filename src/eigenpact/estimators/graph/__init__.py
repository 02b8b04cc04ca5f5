"""Estimators on a graph of nodes without a coordinator."""
