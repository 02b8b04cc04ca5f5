"""From settings to a fitted and saved model: the one road of ``fit``, ``coordinator run`` and the Flower App's server."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.features_report import FeaturesReport
from ..errors import InputError
from ..estimators import FederatedPCA
from ..estimators.choices import find_joint_solver
from ..estimators.model_files import check_model_target, save_model
from ..estimators.preparers import parse_preparer
from ..report.summaries import summary_of
from ..report.watching import unwarned
from ..runtime import Secured
from ..storage import write_json
from . import tables
from .consoles import stderr, stdout, tell
from .options import preprocessing
from .progress import shown_rounds
from .site_files import parse_components
from .wording import in_options


@dataclass(frozen=True)
class Settings:
    """What was asked for, in the words of the command line."""

    components: str
    output: str
    solver: str
    center: str
    scale: str
    tol: float | None
    max_rounds: int
    seed: int
    overwrite: bool
    _: KW_ONLY
    secure: bool = False
    go_on_without: int = 0
    prepare: tuple[str, ...] | list[str] = ()
    missing: str = "refuse"
    features: str = "strict"
    check_units: bool = False
    weights: bool = False

    def estimator(self, features: Any = None, **parameters: Any) -> FederatedPCA:
        """The estimator; ``parameters`` go before what the settings say, ``features`` are the columns, once they are known."""
        said: dict[str, Any] = {"solver": self.solver, "tol": self.tol, "max_rounds": self.max_rounds, "random_state": self.seed}
        if self.go_on_without and not self.secure:
            raise InputError("--go-on-without is for --secure; runs with plain sums go on as --min-sites says")
        if self.go_on_without < 0:
            raise InputError(f"--go-on-without {self.go_on_without} must be a whole number >= 0")
        said["secure"] = Secured(self.go_on_without) if self.secure else False
        said["prepare"] = tuple(parse_preparer(text) for text in self.prepare)
        said["missing"] = str(self.missing)
        said |= {"features": self.features, "check_units": self.check_units}
        chosen = said | preprocessing(self.center, self.scale) | parameters
        pca = FederatedPCA(parse_components(self.components), **chosen)
        return pca if features is None else pca.set_params(prepare=pca.preparers(features))

    def check_solver(self) -> None:
        """Refuse a solver that there is not."""
        if self.missing != "em":  # which has its own, and tells itself
            find_joint_solver(self.solver)

    def check_output(self) -> None:
        """Refuse a folder that the model cannot be written to."""
        check_model_target(self.output, overwrite=self.overwrite)


def fit_and_save(
    settings: Settings,
    pca: FederatedPCA,
    X: Any = None,
    features: Any = None,
    *,
    report: FeaturesReport | None = None,
    weights: Any = None,
    leads: bool = True,
) -> list[str]:
    """Fit and write the model; give what happened to sites.

    ``X`` is None where the engine holds the rows; ``features`` are the names of the columns, if these are names, and ``report``
    what was done to agree on them before; ``weights`` are those of the rows, by site.  Of several processes that fit
    together only the one that ``leads`` writes.
    """
    if isinstance(features, tuple):
        pca.column_names = features
    with unwarned():  # told with the result
        pca.fit(X, sample_weight=(settings.weights or None) if X is None else weights)
    if not leads:
        return []
    if isinstance(features, tuple):
        pca.feature_names_in_ = np.array(features, dtype=object)
        pca.features_report_ = pca.features_report_.named(features)
    if report is not None:
        pca.features_report_ = report
    save_model(pca, settings.output, overwrite=settings.overwrite)
    noted = ("lost", "joined", "refused")
    return [f"{message.sender} {message.note}" for message in pca.ledger_ if message.note.startswith(noted)]


def run(
    settings: Settings,
    pca: FederatedPCA,
    X: Any = None,
    features: Any = None,
    *,
    report: FeaturesReport | None = None,
    weights: Any = None,
    leads: bool = True,
    quiet: bool = False,
    json_file: Path | None = None,
) -> int:
    """As :func:`fit_and_save`, shown on the console and written as JSON; give the exit code: 0 converged, 1 not converged."""
    told: dict[str, Any] = {"report": report, "weights": weights}
    with shown_rounds(stderr(), quiet=quiet or not leads) as callback:
        happened = fit_and_save(settings, pca.set_params(callback=callback), X, features, **told, leads=leads)
    for note in happened:
        tell(stderr(), note, "yellow")
    if leads and json_file is not None:
        write_json(json_file, summary_of(pca))
    if leads and not quiet:
        tables.report(pca, stdout())
        shown = os.path.relpath(settings.output)
        tell(stdout(), f"The model, with the ledger, is in {settings.output if shown.startswith('..') else shown}")
    if leads and not pca.converged_:
        why = in_options(pca.stop_reason_)
        tell(stderr(), f"not converged: {why}; the model was written to {settings.output} all the same", "yellow")
    return 0 if pca.converged_ else 1
