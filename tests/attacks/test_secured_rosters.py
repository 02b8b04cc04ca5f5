"""Rosters that together show one site, in sessions that are begun at the same time by several processes of each site."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attacks.coordinator import Coordinator, Refused, Victim, begin_session, join_session, session_keys

RULES = {"secure": "required", "min_apart": 2}
TOGETHER = ("ABCD", "CDE", "ABE")
"""The second and third, less the first, are twice E's part."""


def process(tmp_path, name, run):
    """Another process of a site, that a coordinator asks."""
    X = np.random.default_rng(ord(name)).normal(size=(30, 3))
    return Coordinator(Victim(X, tmp_path, RULES, name), run, secure=True)


def test_what_was_told_of_earlier_sessions_must_still_be_all_when_one_is_joined(tmp_path):
    jobs = [{name: process(tmp_path, name, f"r{i}") for name in roster} for i, roster in enumerate(TOGETHER)]
    begun = [session_keys(job, bytes([i] * 32)) for i, job in enumerate(jobs)]  # nobody was in any session yet
    join_session(jobs[0], begun[0])
    with pytest.raises(Refused, match=r"rule min_apart: these rows came into a session over other sites .* begin this one anew"):
        join_session(jobs[1], begun[1])
    begin_session({name: process(tmp_path, name, "r3") for name in "CDE"}, bytes([3] * 32))
    with pytest.raises(Refused, match=r"rule min_apart = 2: .* the part of E could be computed"):
        begin_session({name: process(tmp_path, name, "r4") for name in "ABE"}, bytes([4] * 32))


def test_jobs_of_the_same_sites_do_not_hinder_each_other(tmp_path):
    jobs = [{name: process(tmp_path, name, f"r{i}") for name in "ABC"} for i in range(2)]
    begun = [session_keys(job, bytes([i] * 32)) for i, job in enumerate(jobs)]
    for job, roster in zip(jobs, begun, strict=True):
        join_session(job, roster)
        assert sum(int(c.call("count_and_sum")[2]) for c in job.values()) % 2**64 == 90
