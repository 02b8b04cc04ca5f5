"""What ``fit`` and ``compare`` share: reading one file per site, perhaps in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..data.checks import check_finite, check_same_features
from ..data.description import Description
from ..data.readers import Table, read_sites, site_of
from ..engines.ranks import Alone, share, world
from ..errors import EigenpactError, InputError
from .consoles import stderr, tell

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Environment variables in which MPI launchers tell how many ranks they started."""


def communicator(engine: str) -> Any:
    """What connects the processes that read files together; refuse ranks of mpiexec that would all do the same."""
    if engine == "mpi":
        return world()
    started = max((int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()), default=1)
    if started > 1:
        raise InputError(f"{started} ranks were started, and each would do all the work; add --engine mpi, or leave out mpiexec")
    return Alone()


def parse_components(text: str) -> int | float | None:
    """A number of components, a share of the variance, or None for "all".

    >>> parse_components("10"), parse_components("0.95"), parse_components("all")
    (10, 0.95, None)
    """
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        pass  # perhaps a share
    try:
        share = float(text)
    except ValueError:
        share = np.nan
    if not 0 < share < 1:
        raise InputError(f"-k {text} is not allowed; give a number such as 10, a share of the variance such as 0.95, or all")
    return share


def parse_descriptions(given: list[str] | None) -> dict[str, Description]:
    """Descriptions of sites' files, each given as name=path."""
    found: dict[str, Description] = {}
    for entry in given or ():
        name, sign, path = entry.partition("=")
        if not sign or not name.strip() or not path:
            raise InputError(f"--describe {entry} is not SITE=TOML; write for example --describe north=north.toml")
        found[name.strip()] = Description.read(path)
    return found


def tell_notes(tables: Mapping[str, Table]) -> None:
    """Say what was found out about the files."""
    for name, table in tables.items():
        for note in table.notes:
            tell(stderr(), f"{name}: {note}")


def read_together(
    files: list[str],
    comm: Any,
    proxy: str | None,
    check_outputs: Callable[[], None],
    descriptions: Mapping[str, Description] | None = None,
    memory: int | None = None,
    *,
    missing: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """Rows of this rank's sites, columns in the common order, and the feature names; all ranks agree or all raise.

    Rank 0 calls ``check_outputs`` before anything is read.  ``proxy``, if given, must be one of its sites.
    ``memory`` is what each rank may take, in bytes; ``missing`` says that NaN stands for a missing entry.
    """
    read: dict[str, Table] = {}
    error = ""
    try:
        if comm.rank == 0:
            check_outputs()
        mine = files[comm.rank :: comm.size]
        sites = [site_of(file) for file in files]
        if unknown := sorted(set(descriptions or {}) - set(sites)):
            raise InputError(f"--describe names {unknown[0]!r}, which is no site; sites are {', '.join(sites)}")
        said = {name: said for name, said in (descriptions or {}).items() if name in {site_of(file) for file in mine}}
        read = read_sites(mine, said, memory=memory) if mine else {}
        tell_notes(read)
        for name, table in read.items():
            check_finite(name, table.X, table.feature_names, missing=missing)
    except EigenpactError as caught:
        if comm.size == 1:
            raise
        error = str(caught)
    told = share(comm, {"error": error, "sites": {name: (t.X.shape[1], t.feature_names) for name, t in read.items()}})
    features = _merge(told, len(files))
    orders = check_same_features(features)
    if proxy is not None and proxy not in told[0]["sites"]:
        where = "" if comm.size == 1 else " read by rank 0 (list its file first)"
        raise InputError(f"--proxy {proxy} is not a site{where}; allowed are {', '.join(told[0]['sites'])}")
    names = next((names for _, names in features.values() if names is not None), None)
    held = {name: table.X if orders[name] is None else table.X[:, orders[name]] for name, table in read.items()}
    return held, names


def _merge(told: list[dict[str, Any]], n_files: int) -> dict[str, tuple[int, tuple[str, ...] | None]]:
    """Number of features and their names for the sites of all ranks, in the order of the files."""
    errors = [facts["error"] for facts in told if facts["error"]]
    if errors:
        raise InputError(errors[0])
    merged: dict[str, tuple[int, tuple[str, ...] | None]] = {}
    per_rank = [list(facts["sites"].items()) for facts in told]
    for i in range(n_files):
        name, (count, names) = per_rank[i % len(told)][i // len(told)]
        if name in merged:
            raise InputError(f"two sites are named {name!r}; rename a file, or write name=path to name its site")
        merged[name] = count, None if names is None else tuple(names)
    return merged
