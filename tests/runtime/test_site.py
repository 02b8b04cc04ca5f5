"""A site runs one step after the other, each once."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.errors import EigenpactError, InputError, SiteError, StepError, WireError
from eigenpact.runtime import Reply, Request, Site, SiteServer, local

runs: list[str] = []


@local(takes={"a": ""}, sends={"total": ""}, reads=("total",), keeps=("total",))
def add(site: Site, a):
    """Running total of what was sent, kept at the site."""
    runs.append("add")
    total = site.kept.get("total", 0.0) + a
    return Reply(send=total, keep={"total": total})


@local(sends={"names": "m"}, reads=("total", "more"))
def kept_names(site: Site):
    """Lengths of the names under which something is kept."""
    return np.array([len(name) for name in site.kept], dtype=np.int64)


@local(keeps=("a",))
def keeps_too_much(_site: Site):
    """Keeps what it did not declare."""
    return Reply(keep={"a": 1, "b": 2})


@local(sends={"a": "d"})
def wrong_shape(site: Site):
    """Sends more than it declared."""
    return site.X


@local(sends={"a": "d"})
def ragged(_site: Site):
    """Cannot become an array."""
    return [[1.0], [2.0, 3.0]]


@local(sends={"a": ""})
def breaks(site: Site):
    """Fails for a reason of its own."""
    return 1 // int(site.X[0, 0] * 0)


@local(sends={"a": ""})
def complains(_site: Site):
    """Refuses its input."""
    raise InputError("not these rows")


def request(step, a=1.0, *, digest="one", run="r", epoch=0, function=add, kind="gather"):
    args = (np.array(a),) if function is add else ()
    return Request(run, epoch, step, kind, function if isinstance(function, str) else function.name, args, digest)


@pytest.fixture
def server():
    runs.clear()
    return SiteServer("A", np.ones((2, 3)))


def total(response):
    return response.arrays[0].item()


def test_steps_follow_one_another(server):
    assert [total(server.execute(request(step, 2.0), after=step - 1)) for step in (1, 2, 3)] == [2, 4, 6]
    assert server.position("r", 0) == 3


def test_steps_of_other_sites_are_passed_over(server):
    server.execute(request(1), after=0)
    assert total(server.execute(request(5), after=1)) == 2


def test_a_repeated_step_gets_the_cached_reply_and_runs_once(server):
    server.execute(request(1), after=0)
    first = server.execute(request(2, 5.0), after=1)
    assert server.execute(request(2, 5.0), after=1) is first
    assert server.execute(request(2, 5.0), after=2) is first
    assert runs == ["add", "add"]
    assert total(server.execute(request(3), after=2)) == 7


def test_a_repeated_step_with_other_arguments_is_refused(server):
    server.execute(request(1), after=0)
    with pytest.raises(StepError, match="site 'A': step 1 was already executed with other arguments"):
        server.execute(request(1, 9.0, digest="two"), after=0)
    assert runs == ["add"]


@pytest.mark.parametrize(
    ("step", "after", "epoch"),
    [(4, 3, 1), (1, 0, 1), (1, 2, 1), (3, 1, 1), (3, 2, 0), (2, 2, 0)],
    ids=[
        "skipped",
        "older",
        "backwards",
        "believes an older last step",
        "older epoch",
        "older epoch, same step",
    ],
)
def test_anything_else_is_refused_naming_both_steps_and_changes_nothing(server, step, after, epoch):
    server.execute(request(1, epoch=1), after=0)
    server.execute(request(2, epoch=1), after=1)
    with pytest.raises(
        StepError, match=f"executed step 2 of epoch 1 last; refused step {step} of epoch {epoch} after step {after}"
    ):
        server.execute(request(step, epoch=epoch), after=after)
    assert runs == ["add", "add"]
    assert total(server.execute(request(3, epoch=1), after=2)) == 3


@pytest.mark.parametrize(("run", "epoch"), [("r", 1), ("other", 0), ("other", 5)])
def test_a_new_epoch_or_run_clears_what_was_kept(server, run, epoch):
    server.execute(request(1), after=0)
    assert server.execute(request(2, function=kept_names), after=1).arrays[0].tolist() == [5]
    assert total(server.execute(request(1, run=run, epoch=epoch), after=0)) == 1
    assert server.position("r", 0) == 0
    assert server.position(run, epoch) == 1


@pytest.mark.parametrize(
    ("run", "epoch", "step", "after"), [("other", 0, 8, 7), ("r", 1, 4, 3), ("other", 0, 1, 1), ("other", 0, 0, 0)]
)
def test_a_refused_request_of_another_run_does_not_clear_it(server, run, epoch, step, after):
    server.execute(request(1), after=0)
    with pytest.raises(StepError):
        server.execute(request(step, run=run, epoch=epoch), after=after)
    assert total(server.execute(request(2), after=1)) == 2


def test_another_runs_step_is_never_answered_from_the_cache(server):
    server.execute(request(1, 5.0), after=0)
    assert total(server.execute(request(1, 1.0, run="other"), after=0)) == 1


def test_an_unknown_function_is_refused_and_changes_nothing(server):
    server.execute(request(1), after=0)
    with pytest.raises(WireError, match="unknown function 'somewhere:f'"):
        server.execute(request(1, run="other", function="somewhere:f"), after=0)
    assert total(server.execute(request(2), after=1)) == 2


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (keeps_too_much, WireError, r"keeps \['b'\], declared are \['a'\]"),
        (wrong_shape, WireError, r"reply 'a' has shape \(2, 3\), declared is \(d\)"),
        (ragged, SiteError, "ValueError"),
        (breaks, SiteError, "ZeroDivisionError"),
        (complains, InputError, "not these rows"),
    ],
    ids=lambda value: getattr(value, "short_name", None),
)
def test_what_goes_wrong_names_function_and_site_and_may_be_tried_again(server, function, error, message):
    server.execute(request(1), after=0)
    with pytest.raises(error, match=message) as caught:
        server.execute(request(2, function=function), after=1)
    assert function.short_name in str(caught.value)
    assert "site 'A'" in str(caught.value)
    assert isinstance(caught.value, EigenpactError)
    assert total(server.execute(request(2, digest="two"), after=1)) == 2
    assert server.execute(request(3, function=kept_names), after=2).arrays[0].tolist() == [5]


def test_arguments_are_checked_before_the_function_runs(server):
    with pytest.raises(WireError, match=r"site 'A'.*argument 'a' has shape \(2,\)"):
        server.execute(request(1, [1.0, 2.0]), after=0)
    assert runs == []


def test_a_local_step_sends_nothing(server):
    assert server.execute(request(1, kind="local"), after=0).arrays == ()
    assert total(server.execute(request(2), after=1)) == 2


def test_random_streams_depend_on_seed_and_name_only():
    draws = {(name, seed): Site(name, None).rng(seed).integers(1 << 40) for name in ("A", "B") for seed in (0, 1)}
    assert len(set(draws.values())) == 4
    assert Site("A", np.ones(3), kept={"x": 1}).rng(0).integers(1 << 40) == draws["A", 0]
