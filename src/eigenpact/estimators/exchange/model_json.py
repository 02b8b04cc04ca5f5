"""A fitted model as one JSON file: facts, arrays and preparation, for people and for programs that read JSON.

Numbers are written so that they read back to the same bits.  The schema is in docs/reference/model-files.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import FileError, InputError
from ...runtime.forms import fits, misfit, shown
from ...storage import check_file_target, parse_json, read_regular, replacing
from ..model_checks import PREPARATION, SHAPES, checked_steps, names_of_steps, wrong_arrays, wrong_facts
from ..model_files import facts_of, model_of
from ..pca import FederatedPCA
from .scikit import check_exportable

FORMAT = "eigenpact model as JSON"
FORMAT_VERSION = 2
"""The newest that is read.  Models whose scores are not whitened are written as version 1, which older eigenpacts read."""

MOST_BYTES = 1 << 30
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")


def to_json(pca: FederatedPCA, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fitted model as one JSON file; :func:`from_json` and ``ep.load_model`` read it.

    >>> import tempfile, eigenpact as ep
    >>> pca = ep.FederatedPCA(n_components=1).fit({"A": np.eye(3), "B": np.ones((2, 3))})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     ep.export.to_json(pca, Path(place, "model.json"))
    ...     bool(np.array_equal(ep.load_model(Path(place, "model.json")).components_, pca.components_))
    True
    """
    check_exportable(pca)
    target = Path(path)
    check_file_target(target, (".json",), overwrite=overwrite)
    facts = facts_of(pca)
    for step, about in zip(pca.preparation_, facts.get(PREPARATION, []), strict=True):
        about["arrays"] = {name: _written(step.arrays[name]) for name in step.arrays}
    arrays = {name: _written(np.asarray(getattr(pca, f"{name}_"))) for name in SHAPES}
    whole = facts | {"format": FORMAT, "format_version": FORMAT_VERSION if pca.whiten else 1, "arrays": arrays}
    text = json.dumps(whole, indent=1, allow_nan=False, default=_plain) + "\n"
    with replacing(target) as part:
        part.write_text(text)


def from_json(path: str | os.PathLike[str]) -> FederatedPCA:
    """Read a model written by :func:`to_json`: the same bits, the same ledger."""
    place = Path(path)
    try:
        whole = parse_json(read_regular(place, MOST_BYTES, follow=True))
    except (FileNotFoundError, InputError) as error:
        raise FileError(f"{place} cannot be read ({error}); give a file written by eigenpact export --to json") from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise FileError(f"{place} is not a model written by eigenpact export --to json; give such a file")
    written: Any = whole.get("format_version")
    if fits(written, int) and written > FORMAT_VERSION:
        raise FileError(f"{place} has format {written}, and up to {FORMAT_VERSION} are read here: upgrade eigenpact")
    try:
        if not fits(written, int) or written < 1:
            raise InputError(f"format_version is {shown(written)}")
        return _model(whole)
    except InputError as error:
        raise FileError(f"{place} is damaged ({error}); export the model again") from error


def _model(whole: dict[str, Any]) -> FederatedPCA:
    facts = whole | {"format_version": whole["format_version"] + 1, "sha256": ""}  # 2 and 3 of a folder hold the same
    wrong = wrong_facts(facts)
    if wrong:
        raise InputError(wrong)
    if not fits(whole.get("arrays"), dict[str, dict[str, Any]]) or set(whole["arrays"]) != set(SHAPES):
        raise InputError(f"'arrays' must be {', '.join(SHAPES)}")
    arrays = {name: _read(name, about) for name, about in whole["arrays"].items()}
    wrong = wrong_arrays(arrays)
    if wrong:
        raise InputError(wrong)
    listed = whole.get(PREPARATION, [])
    read = [_read(name, about) for step in listed for name, about in step["arrays"].items()]
    steps = checked_steps(listed, dict(zip(names_of_steps(listed), read, strict=True)), arrays["components"].shape[1])
    return model_of(facts, arrays, steps)


def _written(array: Any) -> dict[str, Any]:
    """An array row by row; "column by column" says how it lies in memory, on which last bits of products may depend."""
    array = np.asarray(array)
    lies = {"column_by_column": True} if array.flags.fnc else {}
    return {"dtype": array.dtype.name, "shape": list(array.shape), **lies, "values": array.ravel().tolist()}


def _read(name: str, about: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """An array from its description."""
    wrong = misfit(dict(about), {"dtype": str, "shape": list[int], "values": list[float | bool]})
    if wrong or about["dtype"] not in DTYPES or any(n < 0 for n in about["shape"]):
        raise InputError(f"array {name!r} is none: {wrong or 'its dtype or shape is not one of an array'}")
    if len(about["values"]) != int(np.prod(about["shape"], dtype=object)):
        raise InputError(f"array {name!r} has {len(about['values'])} values for shape {tuple(about['shape'])}")
    try:
        found = np.array(about["values"], dtype=about["dtype"]).reshape(about["shape"])
        return np.asfortranarray(found) if about.get("column_by_column") is True else found
    except (OverflowError, ValueError) as error:
        raise InputError(f"array {name!r} does not hold {about['dtype']} ({error})") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
