"""What must hold of a model that comes from a file: anybody may have written it.

A manifest's checksum tells of damage, not of a forger: who can write the folder can write the checksum.  So every fact is checked
that the package relies on: types, shapes, orthonormal components, scales that can be divided by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from ..numerics.preparation import KINDS, Step
from ..runtime.forms import fits, misfit, shown

Arrays = Mapping[str, np.ndarray[Any, Any]]

SHAPES = {
    "components": "kd",
    "explained_variance": "k",
    "explained_variance_ratio": "k",
    "singular_values": "k",
    "mean": "d",
    "scale": "d",
    "noise_variance": "",
}
"""Arrays of a model and their axes: k components, d features."""

PARAMETERS: dict[str, Any] = {
    "n_components": int | float | None,
    "center": Literal["pooled", "site", False],
    "scale": Literal["pooled"] | None,
    "tol": float | None,
    "max_rounds": int,
}
OPTIONAL: dict[str, Any] = {"min_nonzero": int | None, "missing": str, "features": str, "check_units": bool}
"""Parameters that a manifest may lack."""

PREPARATION = "preparation"
"""The manifest's list of steps, and what the names of their arrays begin with."""

FEATURES = "features_report"
"""What the manifest tells of the sites' features, where they were not all the same."""

FORMS: dict[str, Any] = {
    "sites": list[str],
    "n_samples": int,
    "rounds": int,
    "setup_rounds": int,
    "converged": bool,
    "stop_reason": str,
    "angle_estimate": float | None,
    "between_site_share": float,
    "between_site_share_before": float | None,
    "weight_sum": float | None,
    "solver_used": str,
    "solver_choice": list[dict[str, str | bool | float | None]],
    "parameters": dict[str, Any],
    "feature_names": list[str] | None,
    "dropped_features": list[int],
    "history": list[Any],
    "ledger": list[Any],
    "sha256": str,
}
"""What must be in a manifest; history and ledger check their rows themselves."""

ORTHONORMAL = 1e-5
SLACK = 1e-6
"""How far a share may be outside of 0 to 1: by rounding, in single precision."""

TOTAL = 1e-4
"""How far variances times the sum of weights may be from squared singular values: by rounding, in single precision."""


def wrong_facts(facts: Mapping[str, Any]) -> str:
    """What is wrong with a manifest; empty if nothing is."""
    not_in_all: dict[str, Any] = {"dropped_features": [], "between_site_share_before": None, "weight_sum": None}
    wrong = misfit(not_in_all | dict(facts), FORMS)
    if wrong:
        return wrong
    wrong = misfit(facts["parameters"], PARAMETERS | {"solver": str | dict[str, Any], "random_state": int | None})
    if wrong:
        return f"of the parameters, {wrong}"
    some = {"prepare": list[str], "whiten": bool} | OPTIONAL
    wrong = misfit(facts["parameters"], {name: form for name, form in some.items() if name in facts["parameters"]})
    if wrong:
        return f"of the parameters, {wrong}"
    if facts.get("format_version") == 1 and PREPARATION in facts:
        return f"{PREPARATION!r} is there, which version 1 does not have"
    if facts.get("format_version") in (1, 2) and facts["parameters"].get("whiten"):
        return "scores are whitened, which versions 1 and 2 do not have"
    wrong = _wrong_steps(facts.get(PREPARATION, [])) or _wrong_report(facts.get(FEATURES))
    if wrong:
        return wrong
    names, angle, share = facts["feature_names"], facts["angle_estimate"], facts["between_site_share"]
    weight = facts.get("weight_sum")
    good = {
        "sites": 0 < len(facts["sites"]) == len(set(facts["sites"])),
        "n_samples": facts["n_samples"] > 0,
        "weight_sum": weight is None or 1 < weight < float("inf"),
        "rounds": facts["rounds"] >= 0,
        "setup_rounds": facts["setup_rounds"] >= 0,
        "angle_estimate": angle is None or angle >= 0,
        "between_site_share": -SLACK <= share <= 1 + SLACK,
        "feature_names": names is None or len(set(names)) == len(names),
    }
    return next((f"{name!r} is {shown(facts[name])}, which no model has" for name in good if not good[name]), "")


def _wrong_report(told: Any) -> str:
    """What is wrong with what a manifest tells of the sites' features; empty if nothing is."""
    if told is None:
        return ""
    forms = {"mode": str, "n_features": int, "sites": dict[str, dict[str, Any]], "notes": list[str], "at_sites": dict[str, int]}
    wrong = misfit(told, forms) if isinstance(told, dict) else f"{shown(told)} is no table"
    of_site = {"dropped": list[str], "lacking": list[str], "counts": dict[str, int]}
    found = wrong or next((w for site in told["sites"].values() if (w := misfit(site, of_site))), "")
    return f"of {FEATURES!r}, {found}" if found else ""


def _wrong_steps(listed: Any) -> str:
    """What is wrong with a manifest's list of steps; empty if nothing is."""
    if not fits(listed, list[dict[str, Any]]):
        return f"{PREPARATION!r} is {shown(listed)}"
    for i, step in enumerate(listed):
        wrong = misfit(step, {"kind": str, "arrays": dict[str, dict[str, Any]]})
        if wrong:
            return f"of step {i} of the preparation, {wrong}"
        if step["kind"] not in KINDS:
            return f"step {i} of the preparation is {shown(step['kind'])}; known are {', '.join(KINDS)}"
        if set(step["arrays"]) != set(KINDS[step["kind"]].axes):
            wanted = ", ".join(KINDS[step["kind"]].axes) or "none"
            return f"step {i} of the preparation has other arrays than {step['kind']!r} needs: {wanted}"
        wrong = next((w for about in step["arrays"].values() if (w := misfit(about, {"dtype": str, "shape": list[int]}))), "")
        if wrong:
            return f"of an array of step {i} of the preparation, {wrong}"
    return ""


def names_of_steps(listed: list[dict[str, Any]]) -> list[str]:
    """Names of the arrays that the listed steps have in ``arrays.npz``."""
    return [f"{PREPARATION}/{i}/{step['kind']}/{name}" for i, step in enumerate(listed) for name in step["arrays"]]


def checked_steps(listed: list[dict[str, Any]], arrays: Arrays, n_features: int) -> tuple[Step, ...]:
    """The steps that a manifest lists, from their arrays; an InputError tells what is wrong with them."""
    steps = []
    for i, about in enumerate(listed):
        own = {name: arrays[f"{PREPARATION}/{i}/{about['kind']}/{name}"] for name in about["arrays"]}
        for name, array in own.items():
            told, found = about["arrays"][name], (array.dtype.name, list(array.shape))
            if (told["dtype"], told["shape"]) != found or array.dtype.kind not in "biuf":
                raise InputError(
                    f"array {name!r} of step {i} is {found[0]} of shape {tuple(found[1])}; the manifest says "
                    f"{shown(told['dtype'])} of shape {tuple(told['shape'])}, and only numbers are allowed"
                )
            if not np.all(np.isfinite(array)):
                raise InputError(f"array {name!r} of step {i} holds NaN or infinity")
            axes = KINDS[about["kind"]].axes[name].split()
            if any(axis == "d" and size != n_features for axis, size in zip(axes, array.shape, strict=False)):
                raise InputError(f"array {name!r} of step {i} has shape {array.shape} for {n_features} features")
        steps.append(Step(about["kind"], own))
    return tuple(steps)


def wrong_arrays(arrays: Arrays) -> str:
    """What is wrong with a model's arrays; empty if nothing is."""
    components = arrays["components"]
    sizes = dict(zip("kd", components.shape, strict=True)) if components.ndim == 2 else {"k": -1, "d": -1}
    for name, axes in SHAPES.items():
        array = arrays[name]
        if array.shape != tuple(sizes[axis] for axis in axes) or array.dtype.kind != "f":
            wanted = "(n_components, n_features)" if -1 in sizes.values() else str(tuple(sizes[axis] for axis in axes))
            return f"array {name!r} is {array.dtype} of shape {array.shape}, expected are floats of shape {wanted}"
        if not np.all(np.isfinite(array)):
            return f"array {name!r} holds NaN or infinity"
    if not 0 < sizes["k"] <= sizes["d"]:
        return f"there are {sizes['k']} components of {sizes['d']} features"
    return _wrong_numbers(arrays)


def _wrong_numbers(arrays: Arrays) -> str:
    Z = arrays["components"].astype(np.float64, copy=False)
    if np.abs(Z @ Z.T - np.eye(len(Z))).max() > ORTHONORMAL:
        return "its components are not orthonormal"
    if np.any(arrays["scale"] <= 0):
        return "array 'scale' holds a number that is not positive"
    for name in ("explained_variance", "explained_variance_ratio", "singular_values", "noise_variance"):
        if np.any(arrays[name] < 0):
            return f"array {name!r} holds a negative number"
    if arrays["explained_variance_ratio"].max() > 1 + SLACK:
        return "array 'explained_variance_ratio' holds a share above 1"
    return ""


def wrong_total(weight: float | None, variances: np.ndarray[Any, Any], singular: np.ndarray[Any, Any]) -> str:
    """What is wrong with a sum of weights, by which variances are divided (both k); empty if nothing is.

    >>> wrong_total(5.0, np.array([2.0]), np.array([8.0**0.5])), wrong_total(None, np.array([2.0]), np.array([1.0]))
    ('', '')
    >>> wrong_total(1e9, np.array([2.0]), np.array([8.0**0.5]))
    "'weight_sum' is 1000000000.0, by which the variances are not divided"
    """
    if weight is None:
        return ""
    squares = singular.astype(np.float64) ** 2
    good = np.abs(variances.astype(np.float64) * (weight - 1) - squares) <= TOTAL * squares.max(initial=0.0)
    return "" if bool(np.all(good)) else f"'weight_sum' is {shown(weight)}, by which the variances are not divided"
