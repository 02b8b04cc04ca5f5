"""What a site remembers comes back as it was: bits, dtypes, order in memory, nesting; and nothing else can be kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eigenpact.errors import PolicyError, StepError, WireError
from eigenpact.runtime import Gate, Plan, Policy, Reply, Request, Site, SiteLedger, SiteServer, local, wire
from eigenpact.runtime.memory import pack_memory, unpack_memory

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        -0.0,
        float("inf"),
        "text",
        np.float64(1 / 3),
        np.int32(4),
        RNG.normal(size=(5, 3)),
        np.asfortranarray(RNG.normal(size=(5, 3))),
        RNG.normal(size=(6, 4)).astype(np.float32),
        np.zeros((0, 3)),
        np.array(2.5),
        np.array([True, False]),
        (1, (None, np.arange(3)), ["x", 2.0]),
        {"a": {"b": np.eye(2)}},
    ],
)
def test_what_is_kept_comes_back(value: Any) -> None:
    found = unpack_memory(pack_memory({"it": value}))["it"]
    same(found, value)


def same(found: Any, value: Any) -> None:
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
        assert found.flags.c_contiguous == value.flags.c_contiguous
        assert found.flags.writeable
    elif isinstance(value, tuple | list):
        assert len(found) == len(value)
        for a, b in zip(found, value, strict=True):
            same(a, b)
    elif isinstance(value, dict):
        assert list(found) == list(value)
        for key in value:
            same(found[key], value[key])
    else:
        assert found == value
        assert np.signbit(found) == np.signbit(value) if isinstance(value, float) else True


MASKED = np.ma.MaskedArray([1.0, 2.0], mask=[True, False])


@pytest.mark.parametrize(
    "value",
    [object(), {1: 2}, SimpleNamespace(a=1), np.array(["x"]), 1j, np.zeros(2, dtype=np.complex128), MASKED],
)
def test_other_things_cannot_be_kept(value: Any) -> None:
    with pytest.raises(WireError, match=r"cannot be kept|dtype"):
        pack_memory({"it": value})


@pytest.mark.parametrize("header", [{}, {"memory": {"array": 4, "turned": False, "scalar": False}}, {"memory": {"plain": 3}}])
def test_damaged_memory_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="what the site remembered"):
        unpack_memory(wire.pack(header))


@local(takes={"v": "d"}, sends={"n": ""}, reads=("v", "times"), keeps=("v", "times"))
def count_calls(site: Site, v: Any) -> Reply:
    times = site.kept.get("times", 0) + 1
    return Reply(np.float64(times + np.sum(site.kept.get("v", 0.0))), {"v": v, "times": times})


def server(tmp_path: Any, **rules: Any) -> SiteServer:
    policy = Policy(("own",), (count_calls.name,), **{"min_rows": 1} | rules)
    gate = Gate("A", policy, SiteLedger(tmp_path / "ledger"), n_rows=4, features=2)
    return SiteServer("A", np.eye(4, 2), gate=gate)


def ask(site: SiteServer, step: int, after: int, digest: str = "") -> float:
    request = Request("r", 0, step, "sum", count_calls.name, (np.full(2, float(step)),), digest)
    return float(site.execute(request, after).arrays[0])


def test_a_server_goes_on_where_another_stopped(tmp_path: Any) -> None:
    """Position, kept state, the admitted plan and the last reply; a wrong step is refused as ever."""
    first = server(tmp_path)
    first.admit("r", Plan("own", (count_calls.name,), ("sum",), 10).to_dict())
    whole = [ask(first, 1, 0), ask(first, 2, 1)]
    second = server(tmp_path)
    second.recall(first.remember())
    assert second.position("r", 0) == 2
    assert ask(second, 2, 1) == whole[1]  # repeated, not computed again
    assert ask(second, 3, 2) == ask(first, 3, 2) == 3 + 4
    with pytest.raises(StepError, match="refused step 9"):
        ask(second, 9, 7)
    with pytest.raises(PolicyError, match="not announced"):
        ask(server(tmp_path), 1, 0)


def test_rules_that_became_stricter_hold_for_what_was_admitted(tmp_path: Any) -> None:
    first = server(tmp_path)
    first.admit("r", Plan("own", (count_calls.name,), ("sum",), 10).to_dict())
    stricter = server(tmp_path, max_rounds=5)
    stricter.recall(first.remember())
    with pytest.raises(PolicyError, match="rule max_rounds = 5: the plan allows itself 10"):
        ask(stricter, 1, 0)
    stricter.admit("s", Plan("own", (count_calls.name,), ("sum",), 5).to_dict())
    request = Request("s", 0, 1, "sum", count_calls.name, (np.zeros(2),), "")
    assert float(stricter.execute(request, 0).arrays[0]) == 1.0
