"""The coordinator's part of a Flower run: Flower's ServerApp, started by ``flwr run`` or by ``eigenpact coordinator run``.

Started by ``flwr run`` on a SuperLink that somebody has already, it fits the joint PCA here, with the settings of ``-c``, and
writes the model to a folder of the SuperLink's machine.  Started by ``eigenpact coordinator run``, it passes bytes on to that
process.
"""

from __future__ import annotations

import logging
import sys
import warnings
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ..engines.federation.relay import OpenFederation
from ..engines.flower.engine import COSTS
from ..engines.flower.grid import find_sites, relay
from ..errors import InputError, NotConvergedWarning, NotIdentifiableWarning
from ..estimators import FederatedPCA
from ..estimators.model_files import check_model_target, save_model
from .site_files import parse_components

log = logging.getLogger("eigenpact.coordinator")

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Fit with the run's settings, or relay for the process that does."""
    settings = context.run_config
    if settings["relay"]:
        with Client(str(settings["relay"]), "AF_UNIX", authkey=Path(str(settings["relay-key"])).read_bytes()) as driver:
            relay(grid, driver)
        return
    _log_to_run()
    fit(grid, settings)


def fit(grid: Grid, settings: Any) -> FederatedPCA:
    """Find the sites, fit, and write the model where the settings say."""
    if not all(settings[key] for key in ("components", "features", "output")):
        raise InputError(
            "give components, features (the agreed columns in order, separated by commas, or their number) and output: "
            'flwr run ... -c \'components="2" features="age,bmi,rate" output="folder-of-the-model"\''
        )
    features = _features(str(settings["features"]))
    output = Path(str(settings["output"])).expanduser().absolute()
    check_model_target(output, overwrite=bool(settings["overwrite"]))
    wanted = tuple(name.strip() for name in str(settings["sites"]).split(",") if name.strip())
    min_sites, round_timeout = int(settings["min-sites"]), float(settings["round-timeout"])
    post = find_sites(grid, wanted, min_sites, float(settings["start-timeout"]))
    sites = tuple(sorted(wanted or post.nodes))
    log.info("sites: %s", ", ".join(sites))
    least = min_sites or len(sites)
    names = ("flower", "Flower")
    engine = OpenFederation(post, sites, features, costs=COSTS, min_sites=least, round_timeout=round_timeout, names=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # told below
        warnings.simplefilter("ignore", NotIdentifiableWarning)  # told by the reason
        pca = FederatedPCA(
            parse_components(str(settings["components"])),
            solver=str(settings["solver"]),
            center=False if settings["center"] == "none" else settings["center"],
            scale=None if settings["scale"] == "none" else settings["scale"],
            tol=float(settings["tol"]) or None,
            max_rounds=int(settings["max-rounds"]),
            random_state=int(settings["seed"]),
            engine=engine,
            callback=lambda record: log.info("round %d of %s sites", record.round, record.sites),
        ).fit()
    if not isinstance(features, int):
        pca.feature_names_in_ = np.array(features, dtype=object)
    save_model(pca, output, overwrite=bool(settings["overwrite"]))
    for message in pca.ledger_:
        if message.note.startswith(("lost", "joined", "refused")):
            log.warning("%s %s", message.sender, message.note)
    log.info(
        "exactly the PCA of %s: %d rounds and %d of set-up, %s; solver %s; the model is in %s",
        ", ".join(pca.sites_), pca.n_rounds_, pca.n_setup_rounds_, pca.stop_reason_, pca.solver_, output,
    )  # fmt: skip
    return pca


def _features(text: str) -> tuple[str, ...] | int:
    """Names of columns, or their number.

    >>> _features("age, bmi"), _features("20")
    (('age', 'bmi'), 20)
    """
    return int(text) if text.strip().isdigit() else tuple(name.strip() for name in text.split(","))


def _log_to_run() -> None:
    """Into what ``flwr log`` and ``flwr run --stream`` show."""
    root = logging.getLogger("eigenpact")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("eigenpact: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
