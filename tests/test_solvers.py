"""The front door: what a user finds in ``eigenpact`` and in ``eigenpact.solvers``."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eigenpact as ep
from eigenpact.estimators.registry import all_solvers


def test_the_front_door_shows_what_users_need_and_nothing_else() -> None:
    estimators = {"FederatedPCA", "PersonalizedPCA", "PrivatePCA", "RobustPCA", "GraphPCA", "GraphKernelPCA"}
    modules = {"datasets", "engines", "errors", "export", "imports", "metrics", "plot", "pp", "prepare", "solvers"}
    others = {"audit", "suggest_components", "load_model", "save_model", "OnDevice", "Secured"}
    assert set(dir(ep)) == estimators | modules | others
    assert all(getattr(ep, name) is not None for name in dir(ep))
    for name, place in {"Krylov": "solvers", "InputError": "errors"}.items():
        with pytest.raises(AttributeError, match=f"'eigenpact' has no attribute '{name}'; there is eigenpact.{place}.{name}"):
            getattr(ep, name)
    with pytest.raises(AttributeError, match=r"no attribute 'PCA'; it has FederatedPCA, .*solvers"):
        ep.PCA  # noqa: B018


def test_every_declared_solver_is_in_solvers() -> None:
    assert set(dir(ep.solvers)) == {solver.__name__ for solver in all_solvers()}
    assert {"Krylov", "FAPS", "OneShot", "VarPro", "Shrinking", "Tracking", "ProjectionConsensus"} <= set(dir(ep.solvers))
    assert ep.solvers.Krylov(proxy="A").proxy == "A"
    with pytest.raises(AttributeError, match=r"'eigenpact.solvers' has no attribute 'Kyrlov'; the solvers are Auto, .*Krylov"):
        ep.solvers.Kyrlov  # noqa: B018


def test_a_star_import_brings_the_solvers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from eigenpact.solvers import *; print(Gram().name)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "gram"
