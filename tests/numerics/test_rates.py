"""Rates of this process: there, kept, and coarse enough not to change with noise."""

from __future__ import annotations

import pytest

from eigenpact.numerics import rates


def test_rates_are_measured_once() -> None:
    """The second call gives what the first one found; a product of square matrices is no slower than a narrow one by far."""
    found = rates.measured_rates()
    assert rates.measured_rates() is found
    assert 0.3 * found.narrow < found.square


@pytest.mark.parametrize("noise", [0.51, 0.8, 1.0, 1.3, 1.95])
@pytest.mark.parametrize("true", [0.25, 1.0, 16.0])
def test_noise_within_a_factor_of_two_changes_nothing(noise: float, true: float) -> None:
    assert rates.near(3e10, 3e10 * true * noise) == 3e10 * true


def test_the_fastest_of_some_tries_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the machine does in one of them."""
    clock = iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0, 10.0, 14.0, 14.0, 24.0])
    monkeypatch.setattr(rates.time, "thread_time", lambda: next(clock))
    assert rates._seconds(lambda: None) == 2.0


def test_a_device_is_measured_once() -> None:
    pytest.importorskip("torch")
    found = rates.device_rates("cpu")
    assert rates.device_rates("cpu") is found
    assert min(found.square, found.narrow) > 0
