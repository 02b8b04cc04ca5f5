"""``eigenpact federation``: make the start-up kits of a consortium, or an example to try."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import DataUnavailableError, FileError, InputError
from ..consoles import stderr, stdout, tell
from ..options import BETWEEN

if TYPE_CHECKING:
    import numpy as np

    from ...engines.federation.kits import Federation
    from ...engines.flare.kits import Kit
    from ...engines.flower.kits import FlowerKit

KEYS = ("name", "coordinator", "sites", "features", "valid_days", "engine")
EXAMPLE_FEATURES = ("age", "trestbps", "thalach", "oldpeak")
"""Columns of the heart-disease tables that all four hospitals recorded for most patients."""

EXAMPLE_PORT = 8102

SECURED = "Policies ask for secured sums (coordinator run --secure), of which nobody sees a single site's part"

app = typer.Typer(no_args_is_help=True, help="Make the start-up kits of a federation between institutions.")


@app.command("init", epilog="Example: eigenpact federation init consortium.toml")
def init(
    consortium: Annotated[Path, typer.Argument()],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the kits; by default the name.")] = None,
    engine: Annotated[str | None, typer.Option(help=f"{' or '.join(BETWEEN)}; by default what CONSORTIUM says.")] = None,
    plain_sums: Annotated[
        bool, typer.Option("--plain-sums", help="Let policies allow sums of which the coordinator sees every site's part.")
    ] = False,
) -> None:
    """Make mutually authenticated start-up kits, one folder for each site and one for the coordinator.

    CONSORTIUM is a TOML file with name, coordinator ("host:port" as sites reach it), sites (names), features (names of the agreed
    columns, their number, or a file: a name a line, or variants as in PLINK's .bim) and perhaps valid_days and engine.  Each kit
    holds a private key: hand it over safely, to its owner alone.  With three sites or more their policies ask for secured sums,
    unless --plain-sums is given.
    """
    from ...runtime.keys import LEAST_SITES
    from .. import tables
    from ..kit_readme import readme
    from ..kits import find_kit, make_all_kits

    federation = read_consortium(consortium, engine)
    federation = replace(federation, secure=not plain_sums and len(federation.sites) >= LEAST_SITES)
    folder = output or Path(federation.name)
    make_all_kits(federation, folder)
    table = tables.compact(f"Kits of federation {federation.name}")
    for column in ("hand over", "to", "certificate until"):
        table.add_column(column)
    for site in federation.sites:
        write_settings(folder / site, federation)
    for party in (*federation.sites, "coordinator"):
        kind, to = ("coordinator", "the coordinator") if party == "coordinator" else ("site", f"the data manager of {party}")
        until = find_kit(folder / party, kind).expires()
        _write(folder / party / "README.md", readme(party, federation, until))
        table.add_row(str(folder / party), to, f"{until:%Y-%m-%d}")
    console = stdout()
    console.print(table)
    signs = f"{folder / 'authority'} holds the keys that sign kits and the list of parties"
    tell(console, f"\n{signs}; keep it offline, it is needed for no run.")
    if federation.secure:
        tell(console, f"{SECURED}; the price: a site that is lost stops a run until it is back (--plain-sums makes others).")


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
    import csv

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
    from ...engines.flower.app import write_app

    write_app(folder)
    tell(stdout(), f"Wrote a Flower App to {folder}; run it with: flwr run {folder} SUPERLINK --stream -c 'components=\"2\" ...'")


@app.command("add", epilog="Example: eigenpact federation add heart uppsala")
def add(
    folder: Annotated[Path, typer.Argument()],
    site: Annotated[str, typer.Argument()],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The new kit; by default SITE in FOLDER.")] = None,
) -> None:
    """Let one more SITE take part: make its kit, signed by the authority in FOLDER.  The kits of the others go on working.

    FOLDER is what eigenpact federation init made, with authority/ in it.  The new list of parties, parties.json in FOLDER, goes
    into the coordinator's kit: at once if that is in FOLDER, else by eigenpact federation install.
    """
    from ...engines.federation.changes import add_site
    from ...storage import alone
    from ..kit_readme import readme
    from ..kits import authority_and_coordinator, find_kit

    kit = output or folder / site
    with alone(folder):
        authority, coordinator = authority_and_coordinator(folder)
        version = add_site(authority, site, kit).version
        write_settings(kit, authority.federation)
        until = find_kit(kit, "site").expires()
        _write(kit / "README.md", readme(site, authority.federation, until))
        tell(stdout(), f"Hand {kit} to the data manager of {site}, over a channel you trust; it is valid until {until:%Y-%m-%d}")
        _spread(folder, coordinator, f"knows {site} from the next run on", version)
        if authority.federation.secure:
            _hand_out(folder, f"the other sites, too: in secured sums they take part with {site} once they know its key")
    if not authority.federation.secure:
        tell(stdout(), "The other sites go on as they are")


@app.command("renew", epilog="Example: eigenpact federation renew heart cleveland")
def renew(
    folder: Annotated[Path, typer.Argument()],
    party: Annotated[str, typer.Argument()],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to put them; by default PARTY-renewed-VERSION in FOLDER.")
    ] = None,
) -> None:
    """Make a new certificate and new keys for PARTY, a site or the coordinator, signed by the authority in FOLDER.

    They lie in a new folder, to be put into the party's kit by eigenpact federation install; the old keys are believed no longer
    by whoever has the new list of parties, parties.json in FOLDER.  A site that was revoked takes part again with its new key.
    """
    from ...engines.federation.changes import renew_party
    from ...engines.federation.parties import COORDINATOR
    from ...storage import alone
    from ..kits import authority_and_coordinator, find_kit

    with alone(folder):
        authority, coordinator = authority_and_coordinator(folder)
        made = output or folder / f"{party}-renewed-{authority.parties.version + 1}"
        version = renew_party(authority, party, made).version
        until = find_kit(made, ("site", COORDINATOR)).expires()
        to = "the coordinator" if party == COORDINATOR else f"the data manager of {party}"
        tell(stdout(), f"Hand {made} to {to}, over a channel you trust; it is valid until {until:%Y-%m-%d}")
        tell(stdout(), f"It is put in with: eigenpact federation install KIT {made.name}")
        if party == COORDINATOR:
            _hand_out(folder, "every site, which believes the old key until it is put in")
        else:
            done = f"believes the new key of {party} from the next run on, and the old one no longer"
            _spread(folder, coordinator, done, version)
            if authority.federation.secure:
                _hand_out(folder, f"the other sites, too: in secured sums they take part with {party} once they know its new key")


@app.command("install", epilog="Example: eigenpact federation install heart/cleveland cleveland-renewed-2")
def put_in(kit: Annotated[Path, typer.Argument()], source: Annotated[Path, typer.Argument()]) -> None:
    """Put what is new into a kit: SOURCE is a folder made by eigenpact federation renew, or a parties.json.

    KIT is the folder of a site or of the coordinator.  Only keys, certificates and the list of parties are replaced, and kept in
    KIT/replaced-VERSION; policy, table, ledger and secret stay.  What another authority signed, or an older list, is refused.
    """
    from ...engines.federation.parties import COORDINATOR
    from ..kits import find_kit, install

    owned = find_kit(kit, ("site", COORDINATOR))
    parties = install(owned, source)
    for site in sorted(set(owned.revoked()) - set(find_kit(kit, ("site", COORDINATOR)).revoked())):
        tell(
            stderr(),
            f"{site} was revoked, and has another key in this list: it takes part again; if not, revoke it again",
            "yellow",
        )
    again = f"; stop and start {owned.party} again" if source.is_dir() else ""
    tell(stdout(), f"{kit} has version {parties.version} of the list of parties: {', '.join(parties.keys)}{again}")


@app.command("revoke", epilog="Example: eigenpact federation revoke heart/coordinator cleveland")
def revoke(kit: Annotated[Path, typer.Argument()], site: Annotated[str, typer.Argument()]) -> None:
    """Believe the key of SITE no longer: it takes part in no run from now on.  KIT is the coordinator's folder.

    Runs that are under way end as they were begun.  A site comes back with a new key alone: eigenpact federation renew.
    """
    from ...engines.federation.kits import REVOKED
    from ..kits import find_kit

    find_kit(kit, "coordinator").revoke(site)
    tell(stdout(), f"Site {site} takes part in no run from now on; its key is listed in {kit / REVOKED}")


def _spread(folder: Path, coordinator: Kit | FlowerKit | None, what: str, version: int) -> None:
    """Put the new list of parties into the coordinator's kit if that is there, else say who must."""
    from ...engines.federation.parties import COORDINATOR, PARTIES
    from ..kits import install

    if coordinator is None:
        _hand_out(folder, "the coordinator")
    else:
        _hand_out(folder)
        install(coordinator, folder / PARTIES)
        tell(stdout(), f"{folder / COORDINATOR} {what} (list of parties, version {version})")


def _hand_out(folder: Path, to: str = "") -> None:
    """Write the new list of parties where it can be handed out; it is public and signed, so any channel will do."""
    from ...engines.federation.parties import AUTHORITY, PARTIES, place_parties
    from ...storage import writing

    with writing(folder / PARTIES, "hand out parties.json of authority/ instead"):
        place_parties(folder / PARTIES, (folder / AUTHORITY / PARTIES).read_bytes())
    if to:
        tell(stdout(), f"Hand {folder / PARTIES} to {to}: eigenpact federation install KIT {PARTIES}")


def write_settings(kit: Path, federation: Federation) -> None:
    """What the data manager of a new site changes."""
    from ..site_settings import SITE, policy_text

    _write(kit / "policy.toml", policy_text(secure=federation.secure))
    _write(kit / "site.toml", SITE)


def read_consortium(path: Path, engine: str | None = None) -> Federation:
    """A consortium's file, checked; ``engine`` goes before what it says."""
    from ...data.agreed_list import read_features
    from ...engines.federation.kits import Federation
    from ..site_settings import read_toml

    facts = read_toml(path, KEYS, needed=KEYS[:4])
    host, colon, port = str(facts["coordinator"]).rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InputError(f"{path}: coordinator = {facts['coordinator']!r} must be host:port, as sites reach it")
    features: Any = facts["features"]
    if isinstance(features, str):
        features = list(read_features(path.absolute().parent / features))
    lists = [facts["sites"]] + ([] if isinstance(features, int) else [features])
    if not all(isinstance(some, list) and all(isinstance(item, str) for item in some) for some in lists):
        raise InputError(f"{path}: sites must be a list of names, features a list of names, a file of them, or a number")
    days = facts.get("valid_days", 360)
    if not isinstance(days, int):
        raise InputError(f"{path}: valid_days = {days!r} must be a whole number")
    features = features if isinstance(features, int) else tuple(features)
    engine = engine or str(facts.get("engine", "nvflare"))
    return Federation(str(facts["name"]), host, int(port), tuple(facts["sites"]), features, days, engine)


def _hospitals() -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """Four hospitals' complete rows of four columns, and where they come from."""
    import numpy as np

    from ...datasets import heart_disease

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
    import socket

    for port in (EXAMPLE_PORT, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("localhost", port))
            return int(probe.getsockname()[1])
    return EXAMPLE_PORT


def _write(path: Path, text: str) -> None:
    from ...storage import writing

    with writing(path, "choose another folder"):
        path.write_text(text, encoding="utf-8")
