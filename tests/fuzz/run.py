"""Fuzz every solver: ``python -m tests.fuzz.run --fits 5000 --seed 0 --minutes 60 --jobs 2``.

Draws problems and solvers, fits, judges, and prints a table by solver.  Every wrong fit is printed with the command that repeats
it.  Exit status 1 means that a fit was wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

import numpy as np

import eigenpact as ep
from tests.fuzz.judge import Asked, Verdict, Word, answer, judge
from tests.fuzz.problems import FAMILIES, problem
from tests.fuzz.truth import truth

EXACT, LINEAR = 1e-8, 1e-6
"""The angle that tol=None stops at: of solvers that grow a space or see all of C, and of those that converge linearly."""

SOLVERS: dict[str, tuple[Callable[..., Any], float | None]] = {
    "gram": (ep.solvers.Gram, EXACT),
    "krylov": (ep.solvers.Krylov, EXACT),
    "krylov+one-shot": (lambda **more: ep.solvers.Krylov(start="one-shot", **more), EXACT),
    "krylov+proxy": (lambda **more: ep.solvers.Krylov(proxy=0, **more), EXACT),
    "krylov+one-shot+proxy": (lambda **more: ep.solvers.Krylov(start="one-shot", proxy=0, **more), EXACT),
    "lanczos": (ep.solvers.Lanczos, EXACT),
    "lanczos+one-shot": (lambda **more: ep.solvers.Lanczos(start="one-shot", **more), EXACT),
    "davidson": (ep.solvers.Davidson, EXACT),
    "davidson+proxy": (lambda **more: ep.solvers.Davidson(proxy=0, **more), EXACT),
    "auto": (ep.solvers.Auto, EXACT),
    "subspace": (ep.solvers.Subspace, LINEAR),
    "subspace+one-shot": (lambda **more: ep.solvers.Subspace(start="one-shot", **more), LINEAR),
    "power": (ep.solvers.Power, LINEAR),
    "localpower": (ep.solvers.LocalPower, LINEAR),
    "faps": (ep.solvers.FAPS, LINEAR),
    "shift-invert": (ep.solvers.ShiftInvert, LINEAR),
    "shift-invert+proxy": (lambda **more: ep.solvers.ShiftInvert(proxy=0, **more), LINEAR),
    "one-shot": (ep.solvers.OneShot, None),
    "hot-potato": (ep.solvers.HotPotato, None),
}
"""Label -> what makes the solver, and the angle it stops at by itself; None for those that only estimate."""

ROUNDS, REPLIES = 3000, 15000
"""No fit takes more rounds, or (with up to 150 sites) asks for more replies of sites: what keeps a fit within seconds."""

WORDS: tuple[Word, ...] = get_args(Word)
CLEAR_GAP = 1e-4
"""From this relative gap on, a solver should know its angle."""


@dataclass(frozen=True)
class Case:
    """One fit: a problem by family and seed, a solver, and what it is asked for.  The seed is the solver's, too."""

    family: str
    seed: int
    solver: str
    tol: float | None = None
    angle_tol: float | None = None

    def __str__(self) -> str:
        return "/".join(map(str, dataclasses.astuple(self)))

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that ``str`` writes so."""
        form = "family/seed/solver/tol/angle_tol, tol and angle_tol a number or None"
        try:
            family, seed, solver, tol, angle_tol = text.split("/")
            case = cls(family, int(seed), solver, *(None if x == "None" else float(x) for x in (tol, angle_tol)))
        except ValueError as error:
            raise SystemExit(f"{text!r} is no case: it must be {form}") from error
        if family not in FAMILIES or solver not in SOLVERS:
            raise SystemExit(f"{text!r} is no case; families: {', '.join(FAMILIES)}; solvers: {', '.join(SOLVERS)}")
        return case

    @property
    def command(self) -> str:
        """What repeats it."""
        return f'python -m tests.fuzz.run --repeat "{self}"'


@dataclass(frozen=True)
class Tried:
    """A case, its verdict, and the seconds that the fit took."""

    case: Case
    verdict: Verdict
    seconds: float


def angle_option(solver: str) -> str | None:
    """The solver's parameter for the angle to stop at, if it has one."""
    return next((field.name for field in dataclasses.fields(SOLVERS[solver][0]()) if field.name == "angle_tol"), None)


def draw(seed: int) -> Iterator[Case]:
    """Cases without end: all pairs of family and solver in turn, each with a new problem; mostly with the default tolerance."""
    families, solvers = list(FAMILIES), list(SOLVERS)
    i = 0
    while True:
        sweep, f = divmod(i, len(families))
        rng = np.random.default_rng([seed, i])
        label = solvers[(f + sweep) % len(solvers)]
        tol = (1e-4, 1e-6, 1e-9)[rng.integers(3)] if rng.random() < 0.3 else None
        angle = (1e-2, 1e-4)[rng.integers(2)] if tol is None and rng.random() < 0.25 and angle_option(label) else None
        yield Case(families[f], int(rng.integers(2**31)), label, tol, angle)
        i += 1


def attempt(case: Case, rounds: int = ROUNDS, replies: int = REPLIES) -> Tried:
    """Fit one case, with so many rounds and about so many replies of sites at most, and judge it."""
    made = problem(case.family, case.seed)
    make, angle = SOLVERS[case.solver]
    solver = make() if case.angle_tol is None else make(**{str(angle_option(case.solver)): case.angle_tol})
    pca = ep.FederatedPCA(
        made.k,
        solver=solver,
        center=made.center,
        scale=made.scale,
        tol=case.tol,
        max_rounds=max(replies // 150, min(rounds, replies // len(made.sites))),
        random_state=case.seed,
        engine=ep.engines.InProcess(threads=1, blas_threads=1),
    )
    begin = time.perf_counter()
    told = answer(pca, made.sites)
    seconds = time.perf_counter() - begin
    asked = Asked(case.angle_tol or angle or 1.0, case.tol, exact=angle is not None)
    return Tried(case, judge(told, truth(made), asked), seconds)


def explore(
    cases: Iterable[Case],
    fits: int,
    minutes: float,
    jobs: int,
    say: Callable[[str], Any] = lambda _: None,
    rounds: int = ROUNDS,
    replies: int = REPLIES,
) -> list[Tried]:
    """Try the first so many cases, or as many as the minutes allow, in so many processes with one BLAS thread each."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    source = enumerate(islice(cases, fits))
    begin, told = time.monotonic(), 0.0
    done: dict[int, Tried] = {}
    with ProcessPoolExecutor(jobs) as pool:
        running: dict[Future[Tried], int] = {}
        while True:
            open_places = 2 * jobs - len(running) if time.monotonic() - begin <= 60 * minutes else 0
            running |= {pool.submit(attempt, case, rounds, replies): i for i, case in islice(source, open_places)}
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                tried = done[running.pop(future)] = future.result()
                if tried.verdict.word == "wrong":
                    say(f"{tried.verdict}\n    {tried.case.command}")
            passed = time.monotonic() - begin
            if passed - told > 10:
                told = passed
                wrong = sum(t.verdict.word == "wrong" for t in done.values())
                longest = max(done.values(), key=lambda t: t.seconds)
                say(f"... {len(done)} of {fits}, {wrong} wrong, {passed:.0f} s; longest {longest.seconds:.1f} s, {longest.case}")
    if len(done) < fits:
        say(f"stopped after {minutes:g} minutes")
    return [done[i] for i in sorted(done)]


def counts(tried: Iterable[Tried]) -> dict[str, Counter[str]]:
    """By solver: fits, each verdict, and of those with a clear gap how many there are and how many leave the angle unknown."""
    table: dict[str, Counter[str]] = {label: Counter() for label in SOLVERS}
    for t in tried:
        row, verdict = table[t.case.solver], t.verdict
        row["fits"] += 1
        row[verdict.word] += 1
        if verdict.cut == "clear" and (verdict.gap or 0.0) >= CLEAR_GAP:
            row["clear"] += 1
            row["clear, unknown"] += verdict.word == "unknown"
    return table


def table(tried: list[Tried]) -> str:
    """The counts as text."""
    found = {label: row for label, row in counts(tried).items() if row["fits"]}
    columns = ("fits", *WORDS)
    total: Counter[str] = sum(found.values(), Counter())
    lines = [f"{'solver':24s}" + "".join(f"{name:>18s}" for name in columns)]
    lines += [f"{label:24s}" + "".join(f"{row[name]:18d}" for name in columns) for label, row in [*found.items(), ("all", total)]]
    for word in ("refused", "honest", "unknown", "coarse", "wrong"):
        by = Counter(t.case.family for t in tried if t.verdict.word == word)
        lines += [f"{word}: " + ", ".join(f"{name} {n}" for name, n in by.most_common())] if by else []
    return "\n".join(lines)


def _positive(text: str) -> int:
    """A whole number above zero, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number >= 1")
    return int(text)


def main() -> int:
    """Explore, or repeat one case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=_positive, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs", type=_positive, default=2)
    parser.add_argument("--repeat", metavar="CASE", help="family/seed/solver/tol/angle_tol, as printed beside a wrong fit")
    parser.add_argument("--family", choices=list(FAMILIES), help="of this family only")
    parser.add_argument("--solver", choices=list(SOLVERS), help="by this solver only")
    arguments = parser.parse_args()
    if arguments.repeat:
        tried = attempt(Case.parse(arguments.repeat))
        print(f"{tried.verdict}, {tried.seconds:.1f} s")
        return int(tried.verdict.word == "wrong")
    chosen = (
        case
        for case in draw(arguments.seed)
        if arguments.family in (None, case.family) and arguments.solver in (None, case.solver)
    )
    done = explore(chosen, arguments.fits, arguments.minutes, arguments.jobs, lambda line: print(line, flush=True))
    print(table(done))
    return int(any(t.verdict.word == "wrong" for t in done))


if __name__ == "__main__":
    sys.exit(main())
