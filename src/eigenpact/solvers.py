"""Solvers, to be given to an estimator with parameters: ``FederatedPCA(solver=solvers.Krylov(start="one-shot"))``.

Every solver is here that is declared (``algorithms/method.py``), also those of installed packages; ``dir(solvers)`` names them.

>>> from eigenpact import solvers
>>> solvers.LocalPower(q=8).q, "Krylov" in dir(solvers)
(8, True)
"""

from typing import Any

from .estimators.registry import all_solvers


def _classes() -> dict[str, Any]:
    return {solver.__name__: solver for solver in reversed(all_solvers())}  # of two with the same name, the package's own


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name.startswith("__") or name not in _classes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; the solvers are {', '.join(sorted(_classes()))}")
    return _classes()[name]


def __dir__() -> list[str]:
    return sorted(_classes())
