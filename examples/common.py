"""What the examples share: a folder for pictures, and a clear word when data are not here."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import eigenpact as ep


def folder(description: str | None) -> Path:
    """The folder named on the command line, made if need be."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("eigenpact-examples"), help="where pictures are written")
    path: Path = parser.parse_args().folder
    path.mkdir(parents=True, exist_ok=True)
    return path


def dataset(name: str) -> ep.datasets.Dataset:
    """A data set, or an end with what to do to have it."""
    try:
        return ep.datasets.load(name)
    except ep.errors.EigenpactError as error:
        sys.exit(f"This example needs the data set {name!r}: {error}\nexamples/icons.py makes its own data.")


def write(figure: Any, path: Path) -> None:
    """Save a picture and say where."""
    figure.savefig(path)
    print(f"wrote {path}")
