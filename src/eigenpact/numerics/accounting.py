"""The account of noise: from zCDP, which adds up, to epsilon and delta, which people ask for; and back.

Every query here is a Gaussian one.  A query whose answer changes by at most D (in length) when one row comes or goes, with noise
of standard deviation s, costs rho = (D / s)^2 / 2 in zero-concentrated differential privacy (zCDP).  Costs add up, also where
later queries depend on earlier answers.  Gaussian queries of cost rho together reveal what one of that cost does, and its epsilon
at a delta is known exactly (Balle and Wang, Theorem 8).  So the account is kept in rho, and ``epsilon_of`` is tight.

Two other conversions of the same rho stand beside it.  ``epsilon_by_zcdp`` holds for any mechanism of that rho, and is larger;
``epsilon_by_losses`` composes the queries' privacy loss distributions numerically.  All three are Google's dp-accounting's.
Noise is drawn from the *discrete* Gaussian, as a sum of several (Kairouz, Liu, Steinke); with standard deviations of a thousand
steps and more, as here (``LEAST_DEVIATION``), the difference is far below what a double can hold.

References
    M. Bun, T. Steinke, "Concentrated differential privacy", TCC 2016.
    B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.
    C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
    P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete Gaussian mechanism for federated learning", ICML 2021, Theorem 1.
    A. Smith, A. Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022: limits on a sum of rho hold
    even if what is asked next depends on all answers.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from typing import Any

from ..errors import InputError, MissingExtraError

LEAST_DEVIATION = 1000.0
"""Of a site's noise, in steps: below it the discrete Gaussians of several sites need not add up to one."""

LARGEST_EPSILON = 50.0
"""Beyond it nothing is promised, and numbers overflow."""


def rho_for(epsilon: float, delta: float) -> float:
    """The zCDP cost of Gaussian queries that are (epsilon, delta)-private together, and no more than that.

    >>> round(rho_for(1.0, 1e-6), 5)
    0.02801
    """
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise InputError(f"epsilon={epsilon!r} must be a number above 0 and at most {LARGEST_EPSILON:g}; 1 is usual, 10 is weak")
    if not 0 < delta < 1:
        raise InputError(f"delta={delta!r} must be between 0 and 1, well below one over the number of rows, such as 1e-6")
    return _rho(float(_accounting("").get_sigma_gaussian(float(epsilon), float(delta))))


def epsilon_of(rho: float, delta: float) -> float:
    """The epsilon at this delta of Gaussian queries that cost rho together; 0 for none.

    >>> round(epsilon_of(rho_for(1.0, 1e-6), 1e-6), 6), epsilon_of(0.0, 1e-6)
    (1.0, 0.0)
    """
    return 0.0 if rho <= 0 else float(_accounting("").get_epsilon_gaussian(_deviation(rho), delta))


def epsilon_by_zcdp(rho: float, delta: float) -> float:
    """The epsilon at this delta of any mechanism of that rho: what somebody who knows nothing but rho may say.

    >>> 1.0 < epsilon_by_zcdp(rho_for(1.0, 1e-6), 1e-6) < 1.1
    True
    """
    account = _accounting(".rdp").RdpAccountant()
    account.compose(_accounting("").ZCDpEvent(rho))
    return float(account.get_epsilon(delta))


def epsilon_by_losses(rhos: Iterable[float], delta: float) -> float:
    """The epsilon at this delta of Gaussian queries of these costs, from their privacy loss distributions.

    >>> rho = rho_for(1.0, 1e-6)
    >>> round(epsilon_by_losses([0.1 * rho, 0.9 * rho], 1e-6), 4)
    1.0
    """
    account = _accounting(".pld").PLDAccountant()
    for rho in rhos:
        account.compose(_accounting("").GaussianDpEvent(_deviation(rho)))
    return float(account.get_epsilon(delta))


def deviation_for(sensitivity: float, rho: float) -> float:
    """The standard deviation of the noise with which a query costs rho.

    >>> deviation_for(2.0, 0.5)
    2.0
    """
    return sensitivity / math.sqrt(2 * rho)


def _deviation(rho: float) -> float:
    return 1 / math.sqrt(2 * rho)


def _rho(deviation: float) -> float:
    return 1 / (2 * deviation**2)


def _accounting(part: str) -> Any:
    try:
        return importlib.import_module(f"dp_accounting{part}")
    except ImportError as error:
        raise MissingExtraError(
            f"differential privacy needs dp-accounting ({error}): pip install 'eigenpact[private]'"
        ) from error
