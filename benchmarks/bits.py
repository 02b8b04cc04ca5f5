"""Do two commits give the same bits?  The conformance tests of every engine, run in both checkouts, answer by answer.

Usage: python -m benchmarks.bits COMMIT [ENGINE ...]

Each checkout runs its own tests (in-process, MPI, Dask, NVIDIA FLARE, Flower) with its own source, while this file, as a plugin
of pytest, writes down every answer there: bits of all arrays, rows of the ledger, rounds, reasons.  How many are equal in both is
printed for each engine; the exit code is 1 if one differs or is missing.  The same
answer in several tests counts for each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = "EIGENPACT_BITS_RECORD"
"""Environment variable: the file that answers are written to."""

FILES = {
    "graph": (),
    "inprocess": ("test_conformance.py",),
    "mpi": ("test_mpi.py",),
    "dask": ("test_dask.py",),
    "nvflare": ("test_flare.py", "test_nvflare.py"),  # which of the two depends on the commit
    "flower": ("test_flower.py",),
}
RING = {"a": ["b", "c"], "b": ["a", "d"], "c": ["a", "d"], "d": ["b", "c"]}
CHOSEN = "conformance or same_bits"


def pytest_collection_finish() -> None:
    """In pytest: listen to every fit, and to what ranks of MPI have written and a test compares."""
    from tests.engines import conformance

    from eigenpact.estimators.base import SiteEstimator

    differences, fit = conformance.differences, SiteEstimator.fit

    def compared(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
        _write(dict(found))
        return differences(found, expected)

    def fitted(self: Any, *data: Any, **options: Any) -> Any:
        fit(self, *data, **options)
        _write({f"fitted by {type(self.engine).__name__}": conformance.of_model(self)})
        return self

    conformance.differences, SiteEstimator.fit = compared, fitted


def _write(answers: dict[str, Any]) -> None:
    test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2]
    with Path(os.environ[RECORD]).open("a") as file:
        for label, answer in answers.items():
            file.write(json.dumps([test, label, answer], sort_keys=True) + "\n")


def write_graphs(record: Path) -> None:
    """The estimators on a graph, which the tests of engines do not have; in a process of its own, with either checkout."""
    import numpy as np

    import eigenpact as ep

    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(20 + i, 12)) * np.linspace(3, 1, 12) for i, name in enumerate(RING)}
    word = "solver" if "solver" in ep.GraphPCA().get_params() else "method"
    solvers = ("projection-consensus", "random-features", "landmarks", "own", "neighbourhood", "central", "best-local")
    shared = {"graph": RING, "random_state": 0, "max_iterations": 30}
    models = {name: ep.GraphKernelPCA(2, landmarks=rng.normal(size=(15, 12)), **shared, **{word: name}) for name in solvers}
    warnings.simplefilter("ignore")
    with record.open("w") as file:
        for name, model in ({"tracking": ep.GraphPCA(3, **shared)} | models).items():
            pca = model.fit(rows)
            scores = {node: pca.transform(rows[node], site=node).tobytes().hex() for node in rows}
            ledger = [[m.function, m.sender, m.receiver, m.bytes] for m in pca.ledger_]
            reason = pca.stop_reason_.replace("method=", "solver=")
            file.write(json.dumps([name, "fitted", [scores, ledger, pca.n_rounds_, reason]]) + "\n")


def answers_of(checkout: Path, engine: str, record: Path) -> list[str]:
    """All answers of a checkout's tests of an engine, or of graphs, in their order: test, label, bits, ledger."""
    folder = checkout / "tests" / "engines"
    files = [str(folder / name) for name in FILES[engine] if (folder / name).exists()]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout), str(Path(__file__).parent)]),
        "OMP_NUM_THREADS": "1",
        RECORD: str(record),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", Path(__file__).stem, "-k", CHOSEN, "-m", "not faults", *files]
    if engine == "graph":
        command = [sys.executable, "-c", f"import bits, pathlib; bits.write_graphs(pathlib.Path({str(record)!r}))"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the tests of {engine} fail in {checkout}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return record.read_text().splitlines()


def main() -> None:
    """Compare the working tree with a commit."""
    parser = argparse.ArgumentParser(description="Compare all conformance answers with those of another commit.")
    parser.add_argument("commit")
    parser.add_argument("engines", nargs="*", default=list(FILES), help=f"some of {', '.join(FILES)}")
    asked = parser.parse_args()
    worst = 0
    with tempfile.TemporaryDirectory() as place:
        before = Path(place, "before")
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", before, asked.commit], check=True)
        try:
            for engine in asked.engines or FILES:
                old, new = (
                    answers_of(checkout, engine, Path(place, f"{engine}-{name}"))
                    for name, checkout in (("old", before), ("new", ROOT))
                )
                answers = [{json.dumps(json.loads(line)[1:]) for line in lines} for lines in (old, new)]
                strange = [line for line in new if json.dumps(json.loads(line)[1:]) not in answers[0]]
                gone = [line for line in old if json.dumps(json.loads(line)[1:]) not in answers[1]]
                same = len(new) - len(strange)
                worst = max(worst, len(strange), len(gone))
                print(f"{engine}: {same} of {len(new)} answers equal those of {asked.commit}, which has {len(old)}", flush=True)
                for line in [*strange, *gone][:10]:
                    print("  differs, or is in one of both only:", *json.loads(line)[:2])
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", before], check=True)
    raise SystemExit(min(worst, 1))


if __name__ == "__main__":
    main()
