"""The release that this is; nothing else says so."""

__version__ = "0.2.0"
