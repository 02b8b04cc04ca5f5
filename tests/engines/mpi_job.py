"""Run on ranks by test_mpi.py: every rank takes part with its share of the sites; rank 0 writes what came out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import eigenpact as ep
from tests.engines import conformance
from tests.engines.problems import OWN, problem_sites


def rank_of(placement: str, i: int, size: int) -> int:
    """The rank that holds site number i (the own site is number 0)."""
    return {
        "dealt": i % size,
        "reversed": (size - i) % size,  # the own site stays where it was
        "pairs": (i // 2) % size,
        "last": size - 1,  # rank 0 holds nothing
    }[placement]


def main(comm: Any, folder: str, placements: list[str]) -> None:
    """Run the suite with the sites placed in each of these ways."""
    for placement in placements:
        ranks = {name: rank_of(placement, i, comm.size) for i, name in enumerate(problem_sites())}
        mine = {name: X for name, X in problem_sites().items() if ranks[name] == comm.rank}
        answers = conformance.suite(conformance.on(ep.engines.MPI(), mine), own=ranks[OWN] == 0)
        text = json.dumps(answers)
        assert len(set(comm.allgather(text))) == 1, "ranks ended with different answers"
        if comm.rank == 0:
            Path(folder, f"{placement}.json").write_text(text)
