"""What engines have in common: modules they need, limits and graphs they refuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eigenpact.engines.extras import bring, check_limits, refuse_graph
from eigenpact.errors import InputError, MissingExtraError, ProgramError


def test_a_module_that_is_there_and_one_that_is_not() -> None:
    assert bring("mpi", "json").dumps(1) == "1"
    with pytest.raises(MissingExtraError, match=r"engine 'mpi' needs mpi4py and MPI \(No .*\): pip install 'eigenpact\[mpi\]'"):
        bring("mpi", "eigenpact_has_no_such_module")


class Limited(SimpleNamespace):
    wait: Any = 1.0
    most: Any = None


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"least": 0}, "least=0 must be at least 1"),
        ({"wait": float("nan")}, "wait=nan must be a number of seconds > 0$"),
        ({"most": -1.0}, "most=-1.0 must be a number of seconds > 0, or None to wait"),
    ],
)
def test_limits(limits: dict[str, Any], told: str) -> None:
    good: dict[str, Any] = {"least": None, "wait": 0.5, "most": None}
    check_limits(Limited(**good), counts=("least",), seconds=("wait", "most"))
    with pytest.raises(InputError, match=told):
        check_limits(Limited(**good | limits), counts=("least",), seconds=("wait", "most"))


def test_graphs() -> None:
    refuse_graph("dask", None)
    with pytest.raises(ProgramError, match="do not run on Dask, whose sites do not reach each other; use engine='inprocess'"):
        refuse_graph("dask", {"a": ()})
