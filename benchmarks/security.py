"""Attacks: our own hostile coordinator, hostile sites and spoofer, and what honest runs pay for the defence.

A *theft* tries to take rows or single values from a site with 120 patients, under the rules of a new kit and with its own solvers
listed.  The *searcher* draws tables, set-ups and blocks, asks two sites that differ by one row, and compares.  The *grain* is the
share of the pooled trace that a site rounds its replies to, 2^-40 in a new kit.  The *sine* is that of the largest angle between
two answers.  *Questions needed* is how many replies an attacker would have to average until the rounding of one row stands out,
from the spread of replies that was measured; a new kit lets 200000 columns out.  "Before" is the commit before sites defended
themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.attacks import lies, searcher
from tests.attacks.coordinator import Coordinator, Victim
from tests.attacks.guarded import Guarded
from tests.attacks.honest import PROBLEMS, REAL, fitted
from tests.attacks.thefts import THEFTS, stolen, table_of

from benchmarks.table import Row, pytest_row
from eigenpact.cli.site_settings import SHIPPED
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime.fixed_point import quantum

ROOT = Path(__file__).parents[1]
COLUMNS = 200_000
BITS = (36, 40, 44, 48)


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    warnings.simplefilter("ignore")
    yield from _thefts()
    yield from _fineness()
    yield _searcher(100_000 if size == "paper" else 2_000)
    yield from _honest(size)
    yield _lies()
    yield _spoofer()
    yield _schedules(int(os.environ.get("SCHEDULES", "100" if size == "paper" else "0")))
    yield _fuzzed("messages", 100_000 if size == "paper" else 2_000)
    yield _fuzzed("files", 5_000 if size == "paper" else 100)


def _thefts() -> Iterator[Row]:
    for name in THEFTS:
        with tempfile.TemporaryDirectory() as folder:
            taken, victim = stolen(name, Path(folder))
        word = f"refused {len(victim.log)} times: {victim.log[0]}" if victim.log else "answered"
        yield Row(f"theft: {name}", "0 rows and values", f"{taken}; {word}", taken == 0)
    with tempfile.TemporaryDirectory() as folder:
        taken, _ = stolen("equal columns, orthonormal block", Path(folder), {"exact_replies": True})
    yield Row("the same theft of equal columns where all digits leave", "reported", f"{taken} of 120 rows", True)


def _fineness() -> Iterator[Row]:
    """Attack and accuracy for replies of several finenesses."""
    for bits in BITS:
        with tempfile.TemporaryDirectory() as folder:
            taken, _ = stolen("equal columns, orthonormal block", Path(folder), {"reply_bits": bits})
            needed = _questions(Path(folder), bits)
        turned = largest_sine(*(fitted(engine, "gram", "digits by label").components_.T for engine in _pair(bits)))
        text = f"{taken} rows; questions needed {needed:.0e}; sine {turned:.1e} on digits by label (gram)"
        yield Row(f"replies of 2^-{bits}: theft of equal columns, and accuracy", "0 rows", text, taken == 0)


def _pair(bits: int) -> tuple[Any, str]:
    return Guarded({"reply_bits": bits}), "inprocess"


def _questions(folder: Path, bits: int) -> float:
    """How many replies must be averaged until the rounding of one row, 2^-53 of its largest product, stands out.

    The same block is asked about with other traces, so that other bits round the replies.
    """
    X, replies = table_of("equal"), []
    deviations = X - X.mean(axis=0)
    victim = Victim(X, folder, {"solvers": ["krylov"], "reply_bits": bits}, name="asked")
    Z = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1], 8)))[0]
    for run in range(5):
        c = Coordinator(victim, f"asked{run}")
        for epoch in range(20):
            c.begin_anew()
            c.set_up(trace=2 * float((deviations**2).sum()) * (1 + 1e-6 * (20 * run + epoch)))
            replies.append(c.call("scatter_action", Z)[0])
    signal = np.spacing(np.abs(deviations).max(axis=1)).max() * np.abs(deviations).max()
    return float((np.std(replies, axis=0).max() / signal) ** 2)


def _searcher(calls: int) -> Row:
    tally: Counter[str] = searcher.search(calls)
    total = tally["answered"] + tally["refused"]
    reached = f"{total} calls, {tally['answered']} answered: no reply beyond the bound, no part below min_rows"
    bar = f"{calls} calls, half of them answered: a row changes a product by ||y||^2 ||z|| and one multiple at most"
    return Row("searcher", bar, reached, total >= calls and 2 * tally["answered"] >= total)


def _honest(size: str) -> Iterator[Row]:
    """Refusals, and how far answers are from those without gates and from those of before."""
    before = _before()
    refused, runs, exact, hard, rounds = 0, 0, [0.0], [0.0], []
    worst: dict[str, tuple[float, int]] = {}
    for problem in PROBLEMS | (REAL if size == "paper" else {}):
        for solver in SHIPPED:
            plain, gate, open_ = fitted("inprocess", solver, problem), Guarded(), Guarded({"exact_replies": True})
            behind, digits = fitted(gate, solver, problem), fitted(open_, solver, problem)
            refused, runs = refused + len(gate.refusals) + len(open_.refusals), runs + 2
            exact.append(largest_sine(digits.components_.T, plain.components_.T))
            if (old := before.get(f"{problem} {solver}")) is not None:
                exact.append(largest_sine(digits.components_.T, np.array(old["components"]).T))
                rounds.append(old["rounds"] - digits.n_rounds_)
            turned, more = largest_sine(behind.components_.T, plain.components_.T), behind.n_rounds_ - plain.n_rounds_
            hard.append(turned / noise_over_gap(plain, problem))
            sine, most = worst.get(problem, (0.0, 0))
            worst[problem] = max(sine, turned), max(most, more, key=abs)
    yield Row("honest runs under the policy of a new kit", "0 refusals", f"{refused} refusals in {runs} runs", refused == 0)
    compared = f"{len(rounds)} runs compared with before" if rounds else "the commit before is not in this checkout"
    what = "all digits: sine to runs without gates and to before; rounds"
    same = not any(rounds) and max(exact) <= 1e-12
    yield Row(what, "<= 1e-12; the same", f"{max(exact):.1e}; {compared}", same)
    yield Row("fixed point: sine over quantum noise over the gap", "<= 10", f"{max(hard):.2g} at most", max(hard) <= 10)
    told = "; ".join(f"{problem}: {sine:.0e} ({more:+d})" for problem, (sine, more) in worst.items())
    within = all(abs(more) <= 1 for _, more in worst.values())
    why = "" if within else "fewer, where 2^-40 does not allow the angle that exact replies reach: it stops there and says so"
    yield Row("fixed point: sine to the run without gates, worst of five solvers (rounds more)", "+-1 round", told, within, why)


def noise_over_gap(pca: Any, problem: str) -> float:
    """sqrt(k d) quanta of every site over the gap behind the last component, as lengths of what rounding adds to products."""
    make, options = (PROBLEMS | REAL)[problem]
    sites, k = make(), pca.components_.shape[0]
    X = [np.asarray(X.todense() if hasattr(X, "todense") else X, dtype=float) for X in sites.values()]
    centred = [x - x.mean(axis=0) for x in X] if options.get("center") == "site" else X
    Y = np.vstack(centred) - (pca.mean_ if options.get("center", "pooled") == "pooled" else 0.0)
    values = np.linalg.svd(Y / (pca.scale_ if options.get("scale") else 1.0), compute_uv=False) ** 2
    behind = values[k] if len(values) > k else 0.0
    return float(np.sqrt(len(sites) * k * Y.shape[1]) * quantum(values.sum(), 2.0**-40) / (values[k - 1] - behind))


BEFORE = "a4776d8"


def _before() -> dict[str, Any]:
    """What the commit before answers to the same problems, in a process of its own; empty where it is not in the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "-C", ROOT, "archive", BEFORE, "src"], capture_output=True)
        if packed.returncode:
            return {}
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.attacks.honest"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{folder}/src", "OMP_NUM_THREADS": "1"},
        )
    return json.loads(done.stdout) if done.returncode == 0 else {}


def _lies() -> Row:
    endings = [(solver, lie, ending) for solver, lie, ending in lies.table()]
    tally = Counter(ending.what for _, _, ending in endings)
    fooled = [f"{solver} by {lie}" for solver, lie, ending in endings if ending.what == "fooled"]
    reached = ", ".join(f"{what} {count}" for what, count in tally.most_common()) + (f": {fooled}" if fooled else "")
    return Row("9 solvers against 11 lies of one site of five", "0 fooled, no bare exception", reached, not fooled)


def _spoofer() -> Row:
    return pytest_row(
        "letters and replies without the sender's key, to the message engine and to FLARE's own listener",
        "refused, named in the log, nothing in the ledger",
        "tests/runtime/test_letters.py",
        "tests/engines/test_identities.py",
        "tests/engines/test_flare_hostile.py",
        "-m",
        "not faults",
    )


def _schedules(count: int) -> Row:
    what, bar = (
        "FLARE: schedules of killed jobs, daemons, sites and servers, suspensions, cuts",
        "0 avoidable stops, 0 wrong, 0 hangs",
    )
    if not count:
        return Row(what, bar, "", None, "make test-faults runs five, make attack 100: python -m tests.attacks.flare_schedules")
    return _command(what, f"{count}: {bar}", "tests.attacks.flare_schedules", "--count", str(count))


def _fuzzed(what: str, count: int) -> Row:
    bar = "no exception but ours, memory within 3 times the input and a constant, no hang"
    return _command(f"fuzz: {what}", f"{count}: {bar}", f"tests.fuzz.{what}", f"--{what}", str(count))


def _command(what: str, bar: str, module: str, *arguments: str) -> Row:
    """A row that is met if the module's own exit status is 0; its last line is what was reached."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True)
    last = (done.stdout.strip() or done.stderr.strip() or "no output").splitlines()[-1]
    return Row(what, bar, last, done.returncode == 0)
