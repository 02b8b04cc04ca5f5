"""Where a run takes place."""

from .inprocess import InProcess

__all__ = ["InProcess"]
