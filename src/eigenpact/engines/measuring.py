"""What an engine's constants become where a process can measure its own arithmetic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ..errors import InputError
from ..numerics.rates import device_rates, measured_rates, near
from ..runtime import Costs

VARIABLE, UNMEASURED = "EIGENPACT_RATES", "usual"
"""An environment variable, and its value with which nothing is measured: the same choice on machines of any speed."""


def measured_here(usual: Costs, at_once: int, devices: Sequence[str] = (), processes: int = 1) -> Costs:
    """Costs with the rates of this process, rounded coarsely, and so many sites, or threads of one, that compute at once.

    ``devices`` are those that hold the rows of each site here, "" for none.  If all have one, these are measured; several sites
    share one, and ``processes`` have as many as this one.
    """
    told = os.environ.get(VARIABLE, "")
    if told not in ("", UNMEASURED):
        raise InputError(f"{VARIABLE}={told!r} in the environment; {UNMEASURED!r} takes usual rates, unset it to measure them")
    if told:
        return replace(usual, at_once=at_once)
    rates = measured_rates()
    flops = near(usual.flops, rates.square)
    narrow = usual.narrow and min(near(usual.narrow, rates.narrow), flops)
    found = replace(usual, flops=flops, narrow=narrow, at_once=at_once)
    if not devices or not all(devices):
        return found
    there = [device_rates(device) for device in sorted(set(devices))]
    square, of_narrow = (processes * sum(rates) for rates in zip(*((one.square, one.narrow) for one in there), strict=True))
    return replace(found, device=near(usual.flops, square), device_narrow=near(usual.flops, of_narrow))
