"""Federations carried by Flower."""
