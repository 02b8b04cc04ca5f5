"""What a solver returns is believed only where it can be true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.algorithms.setup import Setup
from eigenpact.algorithms.solution import Solution, believed


def setup(tol: float | None = None) -> Setup:
    numbers: dict[str, Any] = {"n_sites": 2, "n_samples": 50, "n_features": 3, "n_components": 2, "max_rounds": 10, "seed": 0}
    facts: dict[str, Any] = {"single": False, "center": "pooled", "tol": tol, "between_share": 0.0, "offset": 0.0, "grain": 0.0}
    return Setup(mean=np.zeros(3), scale=np.ones(3), trace=10.0, **numbers, **facts)


def answer(values: list[float], angle: float | None) -> Solution:
    return Solution(np.eye(3)[:, : len(values)], np.array(values), 0.0, angle, True, "it stopped")


@pytest.mark.parametrize(
    ("values", "angle", "why"),
    [
        ([6.0, 4.0], 1e-9, ""),
        ([6.0, 4.1], 1e-9, "more than all"),
        ([np.nan, 1.0], 1e-9, "more than all"),
        ([6.0, 3.0], 0.95, "any directions"),
        ([6.0, 3.0], np.nan, "any directions"),
        ([6.0, 3.0], None, ""),
    ],
)
def test_no_answer_with_too_much_variance_or_without_an_angle_is_converged(values: Any, angle: Any, why: str) -> None:
    judged = believed(setup(), answer(values, angle), 1e-8)
    assert judged.converged is (why == "")
    assert why in judged.reason
    assert judged.reason.endswith("it stopped")


def test_where_a_residual_was_asked_for_such_an_angle_is_unknown() -> None:
    judged = believed(setup(tol=1e-3), answer([6.0, 3.0], 0.95), 1e-8)
    assert judged.converged
    assert judged.angle is None
    assert believed(setup(tol=1e-3), answer([6.0, 3.0], 0.5), 1e-8).angle == 0.5


def test_an_estimate_promises_no_angle() -> None:
    assert believed(setup(), answer([6.0, 3.0], 0.95), float("inf")).converged
