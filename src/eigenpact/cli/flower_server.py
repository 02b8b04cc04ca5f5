"""The coordinator's part of a Flower run: Flower's ServerApp, started by ``flwr run`` or by ``eigenpact coordinator run``.

Started by ``flwr run`` on a SuperLink that somebody has already, it fits the joint PCA here, with the settings of ``-c``, and
writes the model to a folder of the SuperLink's machine.  Started by ``eigenpact coordinator run``, it passes bytes on to that
process.
"""

from __future__ import annotations

import logging
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ..engines.federation.engine import OpenFederation
from ..engines.flower.engine import COSTS
from ..engines.flower.grid import find_sites, log_to_console, relay
from ..errors import InputError
from ..estimators import FederatedPCA
from .running import Settings, fit_and_save

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
    log_to_console("eigenpact: %(message)s")  # what flwr log and flwr run --stream show
    fit(grid, settings)


def fit(grid: Grid, settings: Any) -> FederatedPCA:
    """Find the sites, fit, and write the model where the settings say."""
    if not all(settings[key] for key in ("components", "features", "output")):
        raise InputError(
            "give components, features (the agreed columns in order, separated by commas, or their number) and output: "
            'flwr run ... -c \'components="2" features="age,bmi,rate" output="folder-of-the-model"\''
        )
    features = _features(str(settings["features"]))
    asked = Settings(
        components=str(settings["components"]),
        solver=str(settings["solver"]),
        center=str(settings["center"]),
        scale=str(settings["scale"]),
        prepare=_steps(str(settings["prepare"])),
        missing=str(settings["missing"]),
        output=str(Path(str(settings["output"])).expanduser().absolute()),
        overwrite=bool(settings["overwrite"]),
        tol=float(settings["tol"]) or None,
        max_rounds=int(settings["max-rounds"]),
        seed=int(settings["seed"]),
        secure=bool(settings["secure"]),
        go_on_without=int(settings["go-on-without"]),
        features=str(settings["agreement"]),
        check_units=bool(settings["check-units"]),
    )
    asked.check_output()
    wanted = tuple(name.strip() for name in str(settings["sites"]).split(",") if name.strip())
    min_sites, round_timeout = int(settings["min-sites"]), float(settings["round-timeout"])
    post = find_sites(grid, wanted, min_sites, float(settings["start-timeout"]))
    sites = tuple(sorted(wanted or post.nodes))
    log.info("sites: %s", ", ".join(sites))
    least = min_sites or len(sites)
    engine = OpenFederation("flower", post, sites, features, COSTS, least, round_timeout)
    pca = asked.estimator(
        features, engine=engine, callback=lambda record: log.info("round %d of %s sites", record.round, record.sites)
    )
    for note in fit_and_save(asked, pca, features=features):
        log.warning("%s", note)
    log.info(
        "exactly the PCA of %s: %d rounds and %d of set-up, %s sums, %s; solver %s; the model is in %s",
        ", ".join(pca.sites_), pca.n_rounds_, pca.n_setup_rounds_, "secured" if asked.secure else "plain",
        pca.stop_reason_, pca.solver_, asked.output,
    )  # fmt: skip
    return pca


def _steps(text: str) -> tuple[str, ...]:
    """Steps by which rows are prepared, in their order.

    >>> _steps("residualize:age,sex; scale"), _steps("")
    (('residualize:age,sex', 'scale'), ())
    """
    return tuple(step.strip() for step in text.split(";") if step.strip())


def _features(text: str) -> tuple[str, ...] | int:
    """Names of columns, or their number.

    >>> _features("age, bmi"), _features("20")
    (('age', 'bmi'), 20)
    """
    return int(text) if text.strip().isdigit() else tuple(name.strip() for name in text.split(","))
