"""Federations carried by NVIDIA FLARE."""
