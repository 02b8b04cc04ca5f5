"""What ``fit`` and ``compare`` share: reading one file per site, perhaps in several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.agreement import Agreement, Columns, agree_on_features, check_gaps
from ..data.categories import Dictionary, all_categories, categories_apart, categories_in, one_hot, one_hot_names
from ..data.checks import check_finite
from ..data.description import Description
from ..data.features_report import FeaturesReport
from ..data.readers import Table, Variants, read_sites, site_of
from ..data.splitting import split_tables
from ..data.take_columns import check_fits, is_sparse, take_columns
from ..engines.ranks import Alone, share, world
from ..errors import EigenpactError, InputError
from ..numerics.units import quartiles, units_in_doubt
from .consoles import stderr, tell
from .options import ALL_COLUMNS, ColumnOptions

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


def read_columns(
    files: list[str], said: Mapping[str, Description], memory: int | None, columns: ColumnOptions, comm: Any, *, quiet: bool
) -> dict[str, Table]:
    """Tables by site, with what the command line says of columns; what was found out about the files is told."""
    if columns.by is not None and comm.size > 1:
        raise InputError(f"--by {columns.by} is for one process: leave out mpiexec, or write a file for each site")
    marks: list[str] = []  # of cells that are missing, as any file's description has them

    def also(told: Description) -> Description:
        marks.extend((*told.missing, *told.missing_in.get(columns.by or "", ())))
        return columns.add_to(told)

    read = read_sites(files, said, memory=memory, also=also)
    if not quiet:
        tell_notes(read)
    return read if columns.by is None else split_tables(read, columns.by, marks)


@dataclass(frozen=True, eq=False)
class Read:
    """What was read: rows of this rank's sites, columns as agreed on; names of the features, if any; what is to be told.

    ``weights`` are those of the rows of this rank's sites; None if no site of any rank has some.
    """

    held: dict[str, Any]
    names: tuple[str, ...] | None
    report: FeaturesReport
    weights: dict[str, Any] | None = None


def read_together(
    files: list[str],
    comm: Any,
    proxy: str | None,
    check_outputs: Callable[[], None],
    descriptions: Mapping[str, Description] | None = None,
    memory: int | None = None,
    columns: ColumnOptions = ALL_COLUMNS,
    *,
    missing: bool = False,
    features: str = "strict",
    weights: bool = False,
    quiet: bool = False,
) -> Read:
    """Read this rank's sites and agree with the others on features; all ranks agree or all raise.

    Rank 0 calls ``check_outputs`` before anything is read.  ``proxy``, if given, must be one of its sites.
    ``memory`` is what each rank may take, in bytes; ``missing`` says that NaN stands for a missing entry; ``weights``, that rows
    may have some, which are refused else; ``quiet``, that what was found out about files is not printed.  Ranks tell each other
    names of columns, variants and categories, and quartiles, by which units are compared.  ``columns`` is said of every file.
    """
    read: dict[str, Table] = {}
    facts: dict[str, Any] = {}
    error = ""
    try:
        if comm.rank == 0:
            check_outputs()
        mine = files[comm.rank :: comm.size]
        sites = [site_of(file) for file in files]
        if unknown := sorted(set(descriptions or {}) - set(sites)):
            raise InputError(f"--describe names {unknown[0]!r}, which is no site; sites are {', '.join(sites)}")
        said = {name: said for name, said in (descriptions or {}).items() if name in {site_of(file) for file in mine}}
        read = read_columns(mine, said, memory, columns, comm, quiet=quiet) if mine else {}
        weighted = [name for name, table in read.items() if table.weights is not None]
        if weighted and not weights:
            told_of = "its description names weights, of which this command knows nothing; leave them out"
            raise InputError(f"site {weighted[0]!r}: {told_of}")
        for name, table in read.items():
            check_finite(name, table.X, table.feature_names, missing=missing)
        facts = {name: _facts(name, table) for name, table in read.items()}
    except EigenpactError as caught:
        if comm.size == 1:
            raise
        error = str(caught)
    told = share(comm, {"error": error, "sites": facts})
    everyone = _merge(told, len(files) if columns.by is None else len(facts))
    dictionary = all_categories(site["categories"] for site in everyone.values())
    apart = categories_apart({name: site["categories"] for name, site in everyone.items()}, features)
    agreed = agree_on_features({name: _columns(site, dictionary) for name, site in everyone.items()}, features)
    check_gaps(agreed, filled=missing)
    for name, site in everyone.items():
        check_fits(agreed.plans[name], sparse=site["sparse"])  # on every rank, whoever holds the site
    if proxy is not None and proxy not in told[0]["sites"]:
        where = "" if comm.size == 1 else " read by rank 0 (list its file first)"
        raise InputError(f"--proxy {proxy} is not a site{where}; allowed are {', '.join(told[0]['sites'])}")
    whole = {name: one_hot(table, dictionary, f"site {name!r}") for name, table in read.items()}
    held = {name: take_columns(table.X, agreed.plans[name]) for name, table in whole.items()}
    report = replace(agreed.report, notes=agreed.report.notes + apart + _units(everyone, agreed))
    return Read(held, agreed.features, report, _weights(read) if any(site["weighted"] for site in everyone.values()) else None)


def _weights(read: Mapping[str, Table]) -> dict[str, Any]:
    """Weights of the rows of each site: one for each row where it has none."""
    return {name: np.ones(table.X.shape[0]) if table.weights is None else table.weights for name, table in read.items()}


def _facts(name: str, table: Table) -> dict[str, Any]:
    """What a rank tells the others of a site, as JSON can hold it."""
    of = table.variants
    variants = None
    if of is not None:
        variants = [of.chromosome, np.asarray(of.position).tolist(), of.ids, of.counted, of.other]
    found = None if of is not None else quartiles(table.X)
    return {
        "count": int(table.X.shape[1]),
        "sparse": is_sparse(table.X),
        "weighted": table.weights is not None,
        "names": table.feature_names,
        "variants": variants,
        "categories": categories_in(table, f"site {name!r}"),
        "quartiles": None if found is None else found.tolist(),
    }


def _columns(site: Mapping[str, Any], dictionary: Dictionary) -> Columns:
    """A site's columns from what its rank told, those of categories among them."""
    names, added = site["names"], one_hot_names(dictionary, site["categories"])
    variants = None
    if site["variants"] is not None:
        chromosome, position, ids, counted, other = site["variants"]
        variants = Variants(tuple(chromosome), np.array(position, dtype=np.int64), tuple(ids), tuple(counted), tuple(other))
    return Columns(site["count"] + len(added), None if names is None else (*names, *added), variants)


def _units(everyone: Mapping[str, Mapping[str, Any]], agreed: Agreement) -> tuple[str, ...]:
    """Columns that look to be in another unit at one site; those of categories have none."""
    found: dict[str, Any] = {}
    for name, site in everyone.items():
        if site["quartiles"] is not None:
            plan, own = agreed.plans[name].columns, np.array(site["quartiles"])
            at = np.arange(agreed.report.n_features) if plan is None else plan
            rest = max(1, int(at.max(initial=0)) + 2 - own.shape[1])  # columns of categories; the last is what the site lacks
            found[name] = np.hstack([own, np.full((3, rest), np.nan)])[:, at]
    return tuple(doubt.told(agreed.features) for doubt in units_in_doubt(found))


def _merge(told: list[dict[str, Any]], n_files: int) -> dict[str, dict[str, Any]]:
    """What is told of the sites of all ranks, in the order of the files."""
    errors = [facts["error"] for facts in told if facts["error"]]
    if errors:
        raise InputError(errors[0])
    merged: dict[str, dict[str, Any]] = {}
    per_rank = [list(facts["sites"].items()) for facts in told]
    for i in range(n_files):
        name, site = per_rank[i % len(told)][i // len(told)]
        if name in merged:
            raise InputError(f"two sites are named {name!r}; rename a file, or write name=path to name its site")
        merged[name] = site
    return merged
