"""Nodes of a graph that talk to their neighbours only: no coordinator sees anything."""
