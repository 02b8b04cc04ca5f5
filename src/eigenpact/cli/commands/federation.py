"""``eigenpact federation``: make the start-up kits of a consortium, or an example to try."""

from __future__ import annotations

import csv
import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ...datasets import heart_disease
from ...engines.federation.kits import ENGINES, REVOKED, Federation
from ...engines.flower.app import write_app
from ...errors import DataUnavailableError, FileError, InputError
from ...storage import writing
from .. import tables
from ..consoles import stderr, stdout, tell
from ..kits import find_kit, make_all_kits
from ..site_settings import POLICY, SITE, read_toml

KEYS = ("name", "coordinator", "sites", "features", "valid_days", "engine")
EXAMPLE_FEATURES = ("age", "trestbps", "thalach", "oldpeak")
"""Columns of the heart-disease tables that all four hospitals recorded for most patients."""

EXAMPLE_PORT = 8102

app = typer.Typer(no_args_is_help=True, help="Make the start-up kits of a federation between institutions.")


@app.command("init", epilog="Example: eigenpact federation init consortium.toml")
def init(
    consortium: Annotated[Path, typer.Argument()],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the kits; by default the name.")] = None,
    engine: Annotated[str | None, typer.Option(help=f"{' or '.join(ENGINES)}; by default what CONSORTIUM says.")] = None,
) -> None:
    """Make mutually authenticated start-up kits, one folder for each site and one for the coordinator.

    CONSORTIUM is a TOML file with name, coordinator ("host:port" as sites reach it), sites (names), features (names of the agreed
    columns, or their number) and perhaps valid_days and engine.  Each kit holds a private key: hand it over safely, to its owner
    alone.
    """
    federation = read_consortium(consortium, engine)
    folder = output or Path(federation.name)
    make_all_kits(federation, folder)
    table = tables.compact(f"Kits of federation {federation.name}")
    for column in ("hand over", "to", "certificate until"):
        table.add_column(column)
    for site in federation.sites:
        _write(folder / site / "policy.toml", POLICY)
        _write(folder / site / "site.toml", SITE)
    for party in (*federation.sites, "coordinator"):
        kind, to = ("coordinator", "the coordinator") if party == "coordinator" else ("site", f"the data manager of {party}")
        table.add_row(str(folder / party), to, f"{find_kit(folder / party, kind).expires():%Y-%m-%d}")
    console = stdout()
    console.print(table)
    tell(console, f"\n{folder / 'authority'} holds the key that signs certificates; keep it offline, it is needed for no run.")


@app.command("example", epilog="Example: eigenpact federation example hospitals")
def example(
    folder: Annotated[Path, typer.Argument()],
    port: Annotated[
        int | None,
        typer.Option(envvar="EIGENPACT_EXAMPLE_PORT", help="Where the coordinator is to listen; by default 8102 or a free one."),
    ] = None,
) -> None:
    """Write an example to try: consortium.toml, the tables of four hospitals and a site.toml for each, in a new FOLDER.

    The tables are the UCI heart-disease data where EIGENPACT_DATA or the cache has them, else generated ones of the same form.
    """
    if folder.exists():
        raise FileError(f"{folder} exists already; choose another folder")
    sites, source = _hospitals()
    folder.mkdir(parents=True)
    for name, X in sites.items():
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["id", *EXAMPLE_FEATURES])
            writer.writerows([f"{name}-{i + 1}", *row] for i, row in enumerate(X.tolist()))
        _write(folder / f"{name}.toml", f'kit = "../heart/{name}"\ndata = "{name}.csv"\n')
    facts = {"name": "heart", "coordinator": f"localhost:{port or _port()}", "sites": sorted(sites), "features": EXAMPLE_FEATURES}
    _write(folder / "consortium.toml", "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items()))
    tell(stdout(), f"Wrote consortium.toml and {len(sites)} tables to {folder}: {source}")


@app.command("app", epilog="Example: eigenpact federation app eigenpact-app")
def flower_app(folder: Annotated[Path, typer.Argument()]) -> None:
    """Write the Flower App that flwr run starts on a SuperLink that exists already, in a new FOLDER.

    It names what the installed eigenpact does, and brings no code of its own.
    """
    write_app(folder)
    tell(stdout(), f"Wrote a Flower App to {folder}; run it with: flwr run {folder} SUPERLINK --stream -c 'components=\"2\" ...'")


@app.command("revoke", epilog="Example: eigenpact federation revoke heart/coordinator cleveland")
def revoke(kit: Annotated[Path, typer.Argument()], site: Annotated[str, typer.Argument()]) -> None:
    """Believe the key of SITE no longer: it takes part in no run from now on.  KIT is the coordinator's folder.

    Runs that are under way end as they were begun.  A new key for the site takes new kits: eigenpact federation init.
    """
    find_kit(kit, "coordinator").revoke(site)
    tell(stdout(), f"Site {site} takes part in no run from now on; it is listed in {kit / REVOKED}")


def read_consortium(path: Path, engine: str | None = None) -> Federation:
    """A consortium's file, checked; ``engine`` goes before what it says."""
    facts = read_toml(path, KEYS, needed=KEYS[:4])
    host, colon, port = str(facts["coordinator"]).rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InputError(f"{path}: coordinator = {facts['coordinator']!r} must be host:port, as sites reach it")
    features: Any = facts["features"]
    lists = [facts["sites"]] + ([] if isinstance(features, int) else [features])
    if not all(isinstance(some, list) and all(isinstance(item, str) for item in some) for some in lists):
        raise InputError(f"{path}: sites must be a list of names, features a list of names or a number")
    days = facts.get("valid_days", 360)
    if not isinstance(days, int):
        raise InputError(f"{path}: valid_days = {days!r} must be a whole number")
    features = features if isinstance(features, int) else tuple(features)
    engine = engine or str(facts.get("engine", "nvflare"))
    return Federation(str(facts["name"]), host, int(port), tuple(facts["sites"]), features, days, engine)


def _hospitals() -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """Four hospitals' complete rows of four columns, and where they come from."""
    try:
        data = heart_disease()
    except DataUnavailableError as error:
        tell(stderr(), f"{error}; generating rows instead", "yellow")
        rng = np.random.default_rng(0)
        sizes = {"cleveland": 303, "hungarian": 290, "switzerland": 117, "va": 140}
        spread, centre = np.array([9.4, 18.0, 25.0, 1.1]), np.array([53.0, 132.0, 138.0, 0.9])
        made = {name: (rng.normal(size=(n, 4)) * spread + centre).round(1) for name, n in sizes.items()}
        return made, "generated rows in the form of the UCI heart-disease data"
    columns = [list(data.feature_names or ()).index(name) for name in EXAMPLE_FEATURES]
    X, hospitals = data.X[:, columns], np.asarray(data.groups["site"])
    complete = np.isfinite(X).all(axis=1)
    plain = {str(name): str(name).lower().replace("_", "-").replace(" ", "-") for name in sorted(set(hospitals))}
    return {plain[name]: X[complete & (hospitals == name)] for name in plain}, "UCI heart disease, complete rows"


def _port() -> int:
    """A port of this machine that nobody uses now, if possible the usual one."""
    for port in (EXAMPLE_PORT, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("localhost", port))
            return int(probe.getsockname()[1])
    return EXAMPLE_PORT


def _write(path: Path, text: str) -> None:
    with writing(path, "choose another folder"):
        path.write_text(text, encoding="utf-8")
