"""Tests of one group run in one process, one after the other: a federation starts once, and two do not fight for the cores."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_kept(request: pytest.FixtureRequest) -> None:
    """pytest-xdist and pytest must agree on how a test tells its group; releases that do not split the groups without a word."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are not spread over processes by group")
    assert request.node.nodeid.endswith("@groups")
