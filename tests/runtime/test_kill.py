"""A fit killed by SIGKILL at any moment goes on, in another process, to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SOLVERS = ("krylov", "subspace", "faps")
TRIALS = 10  # of each solver

SCRIPT = '''
import json, os, random, signal, sys, traceback
from pathlib import Path

import numpy as np
import eigenpact as ep
from eigenpact.runtime import journal
from eigenpact.runtime import steps as runtime_steps

folder, trials, solvers = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
digits = ep.datasets.load("digits")
sites = ep.datasets.partition.by_label(digits.X, digits.y)


def fit(solver, journal_path, answer):
    tol = 1e-4 if solver == "faps" else 1e-7
    pca = ep.FederatedPCA(3, solver=solver, random_state=7, journal=journal_path, tol=tol).fit(sites)
    kept = [m for m in pca.ledger_ if m.note != "resent" and m.function != "rows_digest"]
    facts = {"rounds": pca.n_rounds_, "history": len(pca.history_), "messages": len(kept)}
    arrays = [pca.components_, pca.explained_variance_, pca.mean_]
    answer.write_text(json.dumps(facts | {"bits": [a.tobytes().hex() for a in arrays]}))


def kill_at(step, how):
    """End this process before, while or after the journal's entry number ``step`` is written."""
    append, count = journal.Journal.append, [0]

    def counted(self, entry):
        count[0] += 1
        if count[0] == step and how == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if count[0] == step and how == "while":
            record = journal._record(entry, self._last)
            self._file.write(record[: len(record) // 2])
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, entry)
        if count[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    journal.Journal.append = counted


def in_child(work):
    """Run in a process of its own, which has never seen a journal; give its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def trial(solver, i, steps):
    rng = random.Random(f"{solver} {i}")
    path, answer = folder / f"{solver}{i}.journal", folder / f"{solver}{i}.json"
    step, how, cut = rng.randint(1, steps), rng.choice(["before", "while", "after"]), rng.random() < 0.5

    def killed():
        if cut:
            runtime_steps.CUT_AFTER = 20_000
        kill_at(step, how)
        fit(solver, path, answer)

    status = in_child(killed)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and not answer.exists(), status
    torn = 0
    if i % 2:
        content = path.read_bytes()
        header = len(journal.MAGIC) + 24 + int.from_bytes(content[len(journal.MAGIC) :][:8], "little")
        torn = rng.randint(0, min(4000, len(content) - header))
        path.write_bytes(content[: len(content) - torn])
    status = in_child(lambda: fit(solver, path, answer))
    assert status == 0, status
    about = f"{solver} {i}: killed {how} step {step} of {steps}, cut {cut}, {torn} bytes torn off"
    return {"trial": about, "torn": torn} | json.loads(answer.read_text())


for solver in solvers:
    answer = folder / f"{solver}.json"
    assert in_child(lambda: fit(solver, None, answer)) == 0
    whole = json.loads(answer.read_text())
    done = [trial(solver, i, whole["rounds"] + 6) for i in range(trials)]
    print(json.dumps({"solver": solver, "whole": whole, "trials": done}))
'''


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    (folder / "script.py").write_text(SCRIPT)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    command = [sys.executable, str(folder / "script.py"), str(folder), str(TRIALS), *SOLVERS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {outcome["solver"]: outcome for outcome in map(json.loads, done.stdout.splitlines())}


@pytest.mark.faults
@pytest.mark.parametrize("solver", SOLVERS)
def test_killed_runs_end_with_the_bits_of_uninterrupted_ones(outcomes, solver):
    whole, trials = outcomes[solver]["whole"], outcomes[solver]["trials"]
    assert len(trials) == TRIALS
    for trial in trials:
        assert trial["bits"] == whole["bits"], trial["trial"]
        if not trial["torn"]:
            counted = ("rounds", "history", "messages")
            assert [trial[name] for name in counted] == [whole[name] for name in counted], trial["trial"]
