"""The account of noise, against a second accountant and against what it must be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from eigenpact.errors import InputError
from eigenpact.numerics.accounting import deviation_for, epsilon_by_losses, epsilon_by_zcdp, epsilon_of, rho_for


@pytest.mark.parametrize("delta", [1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 3.0, 8.0])
def test_epsilon_is_that_of_a_second_accountant_within_one_percent(epsilon: float, delta: float) -> None:
    """Microsoft's prv-accountant composes the two queries of a fit by Fourier transforms, and knows nothing of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from prv_accountant import GaussianMechanism, PRVAccountant
    rho = rho_for(epsilon, delta)
    multipliers = [deviation_for(1.0, 0.1 * rho), deviation_for(1.0, 0.9 * rho)]
    account = PRVAccountant(
        [GaussianMechanism(multiplier) for multiplier in multipliers],
        max_self_compositions=[1, 1],
        eps_error=0.002 * epsilon,
        delta_error=delta / 1000,
    )
    low, estimate, high = account.compute_epsilon(delta, [1, 1])
    assert abs(estimate - epsilon) <= 0.01 * epsilon
    assert low <= epsilon * 1.0001
    assert epsilon <= high * 1.0001
    wrong = epsilon_of(2 * rho, delta)  # a sensitivity that is off by sqrt 2 is seen
    assert abs(estimate - wrong) > 0.2 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_three_conversions_of_one_cost(epsilon: float) -> None:
    """Loss distributions agree with the closed form; what holds for any mechanism of that cost is larger, by a tenth or so."""
    rho = rho_for(epsilon, 1e-6)
    assert epsilon_of(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_by_losses([0.1 * rho, 0.9 * rho], 1e-6) == pytest.approx(epsilon, rel=1e-3)
    assert epsilon < epsilon_by_zcdp(rho, 1e-6) < 1.15 * epsilon


def test_the_closed_form_is_the_definition() -> None:
    """delta(epsilon) = P(L > epsilon) - e^epsilon P'(L > epsilon) for two Gaussians, by numerical integration."""
    rho, epsilon = rho_for(1.0, 1e-5), 1.0
    s = deviation_for(1.0, rho)
    x = np.linspace(-20 * s, 20 * s, 2_000_001)
    here, there = (np.exp(-((x - at) ** 2) / (2 * s**2)) / (s * np.sqrt(2 * np.pi)) for at in (1.0, 0.0))
    delta = np.maximum(here - np.exp(epsilon) * there, 0).sum() * (x[1] - x[0])
    assert delta == pytest.approx(1e-5, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (51, 1e-6), (np.nan, 1e-6), (1, 0), (1, 1), (1, np.nan)])
def test_promises_that_are_none_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"epsilon=|delta="):
        rho_for(epsilon, delta)
