"""``eigenpact site``: take part in a federation with a table that stays here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import EigenpactError, FileError, InputError
from ..consoles import stderr, stdout, tell
from ..options import Data, DescribeTable, Scores

if TYPE_CHECKING:
    from ...engines.federation.kits import PartyKit
    from ...engines.flare.kits import Kit
    from ...engines.flower.kits import FlowerKit
    from ..site_settings import SiteFile

LEAST_TIMEOUT = 5.0
"""The coordinator gives a sign of life every two seconds."""

app = typer.Typer(no_args_is_help=True, help="Take part in a federation with a table that stays here.")


@app.command("start", epilog="Example: eigenpact site start heart/cleveland")
def start(
    kit: Annotated[Path, typer.Argument()],
    data: Annotated[Path | None, typer.Option("--data", help="This site's table; by default what site.toml says.")] = None,
    describe: DescribeTable = None,
    policy: Annotated[Path | None, typer.Option(help="What this site allows; by default what site.toml says.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="This site's own ledger; by default ledger.jsonl in the kit.")] = None,
    coordinator_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds without a word of the coordinator until a run is over here; 60 by default."),
    ] = None,
    trusted_entities: Annotated[
        Path | None, typer.Option(help="Flower alone: run only bundles signed by who is named in this YAML file.")
    ] = None,
) -> None:
    """Connect to the coordinator and answer what the policy allows, until stopped with Ctrl-C.

    KIT is the folder this site was given, or a site.toml that names it.  What is not given here stands in site.toml in the kit.
    Rows are read by a process of this machine for each run, and never leave it; what does leave is written to the ledger first.
    Table and policy are those of the start: one that changes is not answered with until the site is started again.

    Exit code: 130 after Ctrl-C, 143 after SIGTERM, 2 error, as when the kit is started already.
    """
    from ...engines.federation import running
    from ...engines.flower.kits import FlowerKit
    from ..kits import check_installed, find_kit
    from ..site_settings import SiteFile
    from ..stopping import ended_in_order
    from .site_check import look

    if coordinator_timeout is not None and not coordinator_timeout >= LEAST_TIMEOUT:
        raise InputError(f"--coordinator-timeout {coordinator_timeout:g} must be at least {LEAST_TIMEOUT:g} seconds")
    with ended_in_order("the site was not connected yet"):
        owned = find_kit(SiteFile.read(kit).kit if kit.suffix == ".toml" else kit, "site")
        if trusted_entities is not None and not isinstance(owned, FlowerKit):
            raise InputError("--trusted-entities is for kits made with --engine flower; FLARE's sites take no bundles with code")
        check_installed(owned)
        owned.identity()
        with running.locked(owned) as lock:
            site = SiteFile.given(kit, data, policy, ledger, coordinator_timeout, describe)
            if not look(site, owned):
                raise InputError("this site is not ready; see the lines marked NO")
            _answer(site, owned, lock, trusted_entities)


def _answer(site: SiteFile, kit: Kit | FlowerKit, lock: dict[str, str], trusted_entities: Path | None) -> None:
    """Say what is about to happen, and let the kit's engine take over."""
    from ...engines.flare.kits import DIGEST_VARIABLE, SITE_VARIABLE
    from ...engines.flower.engine import free_port
    from ...engines.flower.kits import FlowerKit
    from ..site_settings import read_policy

    facts, digest = site.write_facts(kit, read_policy(site.policy, secure=kit.federation.secure))
    tell(stdout(), f"\nAnswering the coordinator at {kit.federation.host}:{kit.federation.port}; stop with Ctrl-C")
    if isinstance(kit, FlowerKit):
        tell(stdout(), f"What leaves this site is written to {site.ledger}; what is refused, below")
        trusted = None if trusted_entities is None else trusted_entities.absolute()
        become(kit.supernode(facts, free_port(), trusted, digest), kit.environment() | lock)
    else:
        tell(stdout(), f"What leaves this site is written to {site.ledger}; the log is {kit.log}")
        become(kit.command(), {SITE_VARIABLE: str(facts), DIGEST_VARIABLE: digest} | lock)


@app.command("key", epilog="Example: eigenpact site key heart/cleveland")
def key(
    kit: Annotated[Path, typer.Argument()],
    renew: Annotated[
        bool, typer.Option("--renew", help="Make another in place of one that is there; the other sites must then be told.")
    ] = False,
) -> None:
    """Make a key for secured sums that nobody else has seen, and print the line that the other sites write into their policies.

    KIT is the folder this site was given; the private key is written there, to secure.key, and stays.  If there is one already,
    its line is printed again.
    """
    from ...engines.federation.trust import OWN_KEY, make_own_key
    from ..kits import find_kit

    owned = find_kit(kit, "site")
    public, new = make_own_key(owned, renew=renew)
    tell(stdout(), f'{owned.party} = "{public}"')
    others = ", ".join(site for site in owned.federation.sites if site != owned.party)
    tell(stderr(), f"{'Made' if new else 'Printed'} the key of {owned.party}; the private half is {owned.folder / OWN_KEY}")
    tell(
        stderr(),
        f"Hand this line to the data managers of {others}, by a way that neither the coordinator nor whoever made the kits can "
        "change, such as the telephone: each writes it below [participants] in policy.toml, as you do with theirs",
    )


@app.command("describe", epilog="Example: eigenpact site describe cleveland --data patients.csv -o site.json")
def describe(
    name: Annotated[str, typer.Argument()],
    data: Data,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write, for the node's configuration.")],
    describe: DescribeTable = None,
    features: Annotated[
        str | None, typer.Option(help="The agreed columns in order, separated by commas; by default all of the table.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="What this site allows; by default nothing but sums.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="This site's own ledger; by default beside the output, by its name.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what a node that was stopped answered by.")] = False,
) -> None:
    """Describe a site for a Flower SuperNode that it runs already: its NAME, its table, and what it allows.  Nothing is sent.

    The SuperNode is then told where the description is: flower-supernode --node-config 'eigenpact-site="/path/to/site.json"'.
    """
    from ...data.description import Description
    from ...data.readers import read_table
    from ...data.site_rows import compared_with, read_agreed
    from ...data.weighing import weighed
    from ...engines.federation.identities import public_of
    from ...engines.federation.kits import NAME
    from ...engines.federation.trust import own_from
    from ...engines.flower.kits import SITE_KEY as FLOWER_SITE
    from ...engines.flower.kits import node_config
    from ...runtime import SiteLedger
    from ...runtime.holes import Holes
    from .. import site_settings
    from ..site_settings import read_policy
    from .site_check import check_holes, check_lacking, check_rows

    if not NAME.fullmatch(name) or name == "coordinator":
        raise InputError(f"name {name!r} must be letters, digits, - or _, and not 'coordinator'")
    if output.exists() and not overwrite:
        raise FileError(
            f"{output} exists already, and a SuperNode that was started with it answers by it: stop the node first and give "
            "--overwrite, or write another file"
        )
    said = None if describe is None else Description.read(describe)
    named = None if features is None else tuple(column.strip() for column in features.split(","))
    table = read_table(data, said) if named is None else read_agreed(data, said, named)
    agreed = named or table.feature_names or table.X.shape[1]
    X, lacking = compared_with(name, table, agreed, missing=True)
    rules = read_policy(policy)
    rules.load()
    check_lacking(data, lacking, compares=rules.compare_columns)
    check_holes(data, Holes.of(X, agreed).told(), fills=rules.fill_missing, weighted=table.weights is not None)
    check_rows(weighed(X, table), rules)
    written = ledger.absolute() if ledger else output.absolute().with_name(f"{output.stem}.ledger.jsonl")
    facts = site_settings.describe(
        name, data.absolute(), agreed, rules, written, description=describe.absolute() if describe else None
    )
    facts.pinned().write(output.absolute())
    tell(stdout(), f"Site {name}: {X.shape[0]} rows of {X.shape[1]} columns; what leaves it will be written to {written.name}")
    line = f'{name} = "{public_of(own_from(SiteLedger(written).secret()))}"'
    tell(stdout(), f"For secured sums, the other sites write into their policies, below [participants]: {line}")
    tell(stdout(), f"Start the SuperNode with: --node-config '{node_config({FLOWER_SITE: str(output.absolute())})}'")


@app.command("transform", epilog="Example: eigenpact site transform heart/cleveland model/ -o scores.csv")
def transform(
    kit: Annotated[Path, typer.Argument()],
    model: Annotated[Path, typer.Argument()],
    output: Scores,
    data: Annotated[Path | None, typer.Option("--data", help="The table; by default the one that was started last.")] = None,
    describe: DescribeTable = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output file.")] = False,
) -> None:
    """Write the scores of this site's own rows on the joint components.  Nothing leaves this machine.

    KIT is the folder this site was given, MODEL the folder that eigenpact coordinator run wrote, as the coordinator hands it out.
    """
    from ...data.description import Description
    from ...data.site_rows import compared_with, read_agreed
    from ...estimators.model_files import load_model
    from ..kits import find_kit
    from ..scoring import check_target, write_scores

    owned = find_kit(kit, "site")
    file, said = _last_table(owned) if data is None else (data, None)
    said = describe or said
    check_target(output, file, overwrite)
    pca = load_model(model)
    if owned.party not in pca.sites_:
        raise InputError(f"{model} is the PCA of {', '.join(pca.sites_)}, without {owned.party}; ask for a model of your own run")
    features = owned.federation.features
    table = read_agreed(file, None if said is None else Description.read(said), features)
    X, lacking = compared_with(owned.party, table, features, missing=pca.fills_holes)
    if lacking and not pca.fills_holes and not any(step.kind == "features" for step in pca.preparation_):
        raise InputError(f"{file} {lacking}, and the model is of sites that have all of them; add them")
    names = () if isinstance(features, int) else features
    if pca.n_features_in_ != X.shape[1] or tuple(getattr(pca, "feature_names_in_", ())) != names:
        raise InputError(f"{model} has other features than the federation of {kit}; ask for the model of your own run")
    write_scores(output, pca, X, table.row_ids)


def become(command: list[str], environment: dict[str, str]) -> None:
    """Let FLARE or Flower take this process over, so that it ends when the command is stopped."""
    from ...engines import signals

    sys.stdout.flush()
    signals.block()
    os.execve(command[0], command, {"MALLOC_ARENA_MAX": "2"} | os.environ | environment)  # FLARE has hundreds of threads


def _last_table(kit: PartyKit) -> tuple[Path, Path | None]:
    """The table that was started last, and its description, if that does not lie beside it."""
    from ...engines.federation.sites import SiteFacts

    try:
        last = SiteFacts.read(str(kit.folder / "site.json"), "the kit")
    except EigenpactError as error:
        raise FileError(f"{kit.folder} was not started with a table yet; name it with --data") from error
    return Path(last.data), Path(last.description) if last.description else None
