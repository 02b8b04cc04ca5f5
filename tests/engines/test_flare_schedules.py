"""A few schedules of violence against a FLARE federation; ``python -m tests.attacks.flare_schedules`` draws many more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.attacks.flare_schedules import SITES, Schedule, check, federation

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flare-schedules")]

CASES = (
    (Schedule("suspended", 3, ((5, "suspend", "oslo"),)), "exact for lima, oslo, quito"),
    (Schedule("job", 2, ((5, "kill job", "oslo"),)), "exact for lima, quito"),
    (Schedule("two jobs", 2, ((5, "kill job", "oslo"), (20, "kill job", "lima"))), "stopped by TooFewSitesError: lost lima"),
    (Schedule("cut", 1, ((5, "cut", "quito"),)), "exact for "),
    (Schedule("server", 3, ((9, "kill server", "lima"),)), "resumed for lima, oslo, quito"),
)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with federation(tmp_path_factory.mktemp("schedules")) as made:
        yield made


@pytest.mark.parametrize(("schedule", "ends"), CASES, ids=[schedule.name for schedule, _ in CASES])
def test_a_schedule_ends_in_an_exact_answer_or_an_unavoidable_stop(
    parties: Any, tmp_path: Path, schedule: Schedule, ends: str
) -> None:
    assert check(parties, schedule, tmp_path).startswith(ends)


def test_schedules_are_drawn_with_all_kinds_of_violence() -> None:
    drawn = [Schedule.drawn(seed) for seed in range(100)]
    assert {what for schedule in drawn for _, what, _ in schedule.events} == {
        "kill job", "kill daemon", "kill site", "suspend", "suspend for long", "cut", "kill server",
    }  # fmt: skip
    assert any(len(schedule.spared) >= schedule.min_sites < len(SITES) for schedule in drawn)
