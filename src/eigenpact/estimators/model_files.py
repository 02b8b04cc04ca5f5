"""A fitted model as a folder: ``arrays.npz`` and ``manifest.json``, readable without running any code from it.

The folder appears complete or not at all: it is written under another name next to its place and then renamed.  The manifest
carries the checksum of the arrays, the ledger and the history, so that the account of what left each site travels with the model.

>>> import tempfile, numpy as np, eigenpact as ep
>>> pca = ep.FederatedPCA(n_components=1).fit({"A": np.eye(3), "B": np.ones((2, 3))})
>>> with tempfile.TemporaryDirectory() as place:
...     save_model(pca, Path(place, "model"))
...     load_model(Path(place, "model")).sites_
('A', 'B')
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..data.array_files import Archive
from ..data.features_report import FeaturesReport, OfSite
from ..errors import FileError, InputError, InputTypeError
from ..numerics.preparation import Step, flat
from ..release import __version__
from ..runtime import Ledger, RoundRecord
from ..runtime.forms import fits, shown
from ..storage import open_regular, parse_json, place_folder, read_regular, writing
from .choices import describe_solver
from .model_checks import (
    FEATURES,
    OPTIONAL,
    PARAMETERS,
    PREPARATION,
    SHAPES,
    checked_steps,
    names_of_steps,
    wrong_arrays,
    wrong_facts,
    wrong_total,
)
from .pca import FederatedPCA
from .remembered import Remembered

FORMAT = "eigenpact model"
FORMAT_VERSION = 3
"""The newest that is read.  Models whose rows were not prepared are written as version 1, which older eigenpacts read; others as
version 2, unless their scores are whitened."""

ARRAYS, MANIFEST = "arrays.npz", "manifest.json"

MOST_BYTES = 1 << 26
"""Of a manifest.  What it holds takes up to twenty times as much in memory."""

FACTS = {
    "sites_": "sites",
    "n_samples_seen_": "n_samples",
    "n_rounds_": "rounds",
    "n_setup_rounds_": "setup_rounds",
    "converged_": "converged",
    "stop_reason_": "stop_reason",
    "angle_estimate_": "angle_estimate",
    "between_site_share_": "between_site_share",
    "solver_": "solver_used",
    "solver_choice_": "solver_choice",
}
"""Fitted attributes and their names in the manifest."""

LATER_FACTS = {"between_site_share_before_": "between_site_share_before", "weight_sum_": "weight_sum"}
"""The same, of attributes that not every manifest has: None there."""


def save_model(pca: FederatedPCA, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fitted estimator to a new folder; ``overwrite`` replaces an earlier model there, and nothing else."""
    if not isinstance(pca, FederatedPCA):
        raise InputTypeError(f"{type(pca).__name__} has no model folder yet, only FederatedPCA has; pickle it instead")
    check_is_fitted(pca)
    check_model_target(folder, overwrite=overwrite)
    arrays = _npz({name: np.asarray(getattr(pca, f"{name}_")) for name in SHAPES} | flat(pca.preparation_, PREPARATION))
    manifest = facts_of(pca) | {"sha256": hashlib.sha256(arrays).hexdigest()}
    text = json.dumps(manifest, indent=1, default=_plain) + "\n"
    with writing(folder, "choose another folder"):
        place_folder(Path(folder).resolve(), {ARRAYS: arrays, MANIFEST: text.encode()})


def load_model(folder: str | os.PathLike[str]) -> FederatedPCA:
    """Read a model written by :func:`save_model`, or by ``export.to_json`` if it is a .json file: same bits, same ledger.

    A solver that was given as an instance comes back by its name; its parameters are in the manifest only.
    """
    place = Path(folder)
    if place.suffix.lower() == ".json" and place.is_file():
        from .exchange.model_json import from_json

        return from_json(place)
    manifest = _read_manifest(place)
    arrays, steps = _read_arrays(place, manifest["sha256"], manifest.get(PREPARATION, []))
    try:
        return model_of(manifest, arrays, steps)
    except InputError as error:
        raise _damaged(place, str(error)) from error


def model_of(manifest: Mapping[str, Any], arrays: Mapping[str, Any], steps: tuple[Step, ...]) -> FederatedPCA:
    """A fitted estimator from checked facts, arrays and steps; an InputError tells what does not go together."""
    pca = FederatedPCA(**_parameters(manifest))
    for name, array in arrays.items():
        setattr(pca, f"{name}_", array)
    pca.n_components_, pca.n_features_in_ = arrays["components"].shape
    pca.noise_variance_ = float(arrays["noise_variance"])
    for attribute, key in FACTS.items():
        setattr(pca, attribute, manifest[key])
    for attribute, key in LATER_FACTS.items():
        setattr(pca, attribute, manifest.get(key))
    pca.sites_, pca.dropped_features_ = tuple(manifest["sites"]), tuple(manifest.get("dropped_features", ()))
    pca.preparation_ = steps
    told = manifest.get(FEATURES)
    alike = FeaturesReport("strict", pca.n_features_in_, dict.fromkeys(pca.sites_, OfSite()))
    pca.features_report_ = alike if told is None else FeaturesReport.from_dict(told)
    if not set(pca.dropped_features_) <= set(range(pca.n_features_in_)):
        raise InputError(f"features were dropped that are none of {pca.n_features_in_}")
    wrong = wrong_total(pca.weight_sum_, pca.explained_variance_, pca.singular_values_)
    if wrong:
        raise InputError(wrong)
    names = manifest["feature_names"]
    if names is not None:
        if len(names) != pca.n_features_in_:
            raise InputError(f"{len(names)} feature names for {pca.n_features_in_} features")
        pca.feature_names_in_ = np.array(names, dtype=object)
    pca.ledger_ = Ledger()
    pca.ledger_.extend(manifest["ledger"])
    pca.history_ = [RoundRecord.from_dict(record) for record in manifest["history"]]
    return pca


def check_model_target(folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Raise a FileError unless a model can be written to ``folder``; call it before a long computation."""
    place = Path(folder).resolve()
    if Path(folder).is_symlink():
        raise FileError(f"{folder} is a link; give the folder that it stands for, or another")
    if place.is_file():
        raise FileError(f"{folder} is a file; choose a folder that does not exist yet")
    if place.exists():
        if not overwrite:
            raise FileError(f"{folder} exists already; choose another folder, or overwrite it (overwrite=True)")
        _check_replaceable(folder, place)
    above = next(parent for parent in place.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise FileError(f"{folder} cannot be written, because {above} is not a folder you may write to; choose another")


def _check_replaceable(folder: str | os.PathLike[str], place: Path) -> None:
    """Only a model, or an empty folder, may be replaced."""
    held = {path.name for path in place.iterdir()} if place.is_dir() else {place.name}
    others = sorted(held - {ARRAYS, MANIFEST})
    if others:
        raise FileError(f"{folder} does not hold a model only, but also {', '.join(others[:5])}; choose another folder")
    if held and not (MANIFEST in held and FORMAT.encode() in read_regular(place / MANIFEST, MOST_BYTES)):
        raise FileError(f"{folder} does not hold a model but {', '.join(sorted(held))}; choose another folder")


def facts_of(pca: FederatedPCA) -> dict[str, Any]:
    """Everything that is no array of a fitted estimator, as JSON can hold it."""
    names = getattr(pca, "feature_names_in_", None)
    given = pca.get_params(deep=False)
    parameters = {name: given[name] for name in (*PARAMETERS, *OPTIONAL) if name in given}
    parameters |= {"whiten": True} if pca.whiten else {}
    parameters["solver"] = pca.solver if isinstance(pca.solver, str) else describe_solver(pca.solver)
    parameters["random_state"] = pca.random_state if isinstance(pca.random_state, int) else None
    prepared = {}
    if pca.preparation_:
        parameters["prepare"] = [repr(preparer) for preparer in pca.prepare]
        prepared = {PREPARATION: [{"kind": step.kind, "arrays": _described(step)} for step in pca.preparation_]}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION if pca.whiten else 2 if prepared else 1,
        "eigenpact": __version__,
        "parameters": parameters,
        **{key: getattr(pca, attribute) for attribute, key in FACTS.items()},
        "feature_names": None if names is None else [str(name) for name in names],
        **({"dropped_features": list(pca.dropped_features_)} if pca.dropped_features_ else {}),
        **prepared,
        **_features_told(pca),
        **{key: told for attribute, key in LATER_FACTS.items() if (told := getattr(pca, attribute, None)) is not None},
        "history": [record.to_dict() for record in pca.history_],
        "ledger": pca.ledger_.since(0),
    }


def _features_told(pca: FederatedPCA) -> dict[str, Any]:
    """What became of the sites' features, where they were not all the same."""
    report = getattr(pca, "features_report_", None)
    return {} if report is None or report.nothing_changed else {FEATURES: report.to_dict()}


def _described(step: Step) -> dict[str, Any]:
    return {name: {"dtype": np.asarray(a).dtype.name, "shape": list(np.shape(a))} for name, a in step.arrays.items()}


def _plain(value: Any) -> Any:
    """NumPy numbers as JSON can hold them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written to a manifest")


def _npz(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _read_manifest(place: Path) -> dict[str, Any]:
    try:
        manifest = parse_json(read_regular(place / MANIFEST, MOST_BYTES))
    except FileError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "does not exist" if not place.exists() else f"is not a model folder: it has no {MANIFEST}"
        raise FileError(f"{place} {what}; give the folder of a model") from error
    except OSError as error:
        raise FileError(f"{place / MANIFEST} cannot be read: {error.strerror}; check its permissions") from error
    except InputError as error:
        raise _damaged(place, f"it is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FileError(f"{place} is not a model folder: its {MANIFEST} is not eigenpact's; give the folder of a model")
    written: Any = manifest.get("format_version")
    if not fits(written, int) or written < 1:
        raise _damaged(place, f"format_version is {shown(written)}")
    if written > FORMAT_VERSION:
        raise FileError(
            f"{place} has model format {written}, written by eigenpact {str(manifest.get('eigenpact'))[:20]}; "
            f"this is eigenpact {__version__}, which reads up to format {FORMAT_VERSION}: upgrade eigenpact"
        )
    wrong = wrong_facts(manifest)
    if wrong:
        raise _damaged(place, wrong)
    return manifest


def _read_arrays(
    place: Path, sha256: str, listed: list[dict[str, Any]]
) -> tuple[dict[str, np.ndarray[Any, Any]], tuple[Step, ...]]:
    """The model's arrays, and the steps that the manifest lists."""
    file = place / ARRAYS
    try:
        with open_regular(file) as stream:
            content = stream.read()
    except FileError:
        raise
    except OSError as error:
        raise _unusable(f"{file} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise _unusable(f"{file} was changed since it was written: its sha256 is {found}, the manifest says {shown(sha256)}")
    try:
        archive = Archive(io.BytesIO(content), compressed=False)
        wanted = [*SHAPES, *names_of_steps(listed)]
        missing, others = (sorted(names) for names in (set(wanted) - set(archive.names), set(archive.names) - set(wanted)))
        if missing or others:
            raise _unusable(
                f"{file} " + (f"lacks the arrays {', '.join(missing)}" if missing else f"holds {shown(others[0])} too")
            )
        read = {name: archive.read(name) for name in wanted}
    except InputError as error:
        raise _unusable(f"{file} is not a .npz file of numbers ({error})") from error
    arrays = {name: read[name] for name in SHAPES}
    wrong = wrong_arrays(arrays)
    if wrong:
        raise _unusable(f"{file}: {wrong}")
    try:
        return arrays, checked_steps(listed, read, arrays["components"].shape[1])
    except InputError as error:
        raise _unusable(f"{file}: {error}") from error


def _parameters(manifest: Mapping[str, Any]) -> dict[str, Any]:
    written = manifest["parameters"]
    solver = written["solver"] if isinstance(written["solver"], str) else str(written["solver"].get("name", "auto"))
    known = {name: written[name] for name in (*PARAMETERS, *OPTIONAL) if name in written and name in FederatedPCA().get_params()}
    prepare = tuple(Remembered(text) for text in written.get("prepare", ()))
    known |= {"whiten": written.get("whiten", False)}
    return known | {"solver": solver, "random_state": written["random_state"], "prepare": prepare}


def _damaged(place: Path, why: str) -> FileError:
    return _unusable(f"{place / MANIFEST} is damaged ({why})")


def _unusable(what: str) -> FileError:
    return FileError(f"{what}; copy the model again or fit it again")
