"""What every engine must do alike: all solvers, and a small program for each collective.

``suite(run)`` carries out all cases, where ``run(case)`` is how an engine executes one (``on(engine, sites)`` for engines that
take sites as ``fit`` does).  Answers hold bits as hexadecimal text and ledger rows as lists, so that they can be written as
JSON by another process and compared with ``==``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.algorithms import setup
from eigenpact.algorithms.personalized import parts, perpca, start, varpro
from eigenpact.algorithms.personalized.parts import agree_on_parts
from eigenpact.algorithms.setup import Problem, agree
from eigenpact.runtime import (
    Agreed,
    At,
    Chain,
    Connection,
    Driver,
    Exchange,
    Gather,
    Ledger,
    Local,
    LocalFunction,
    Max,
    Outcome,
    Plan,
    Progress,
    Sum,
)
from eigenpact.runtime.keys import session_key, session_roster
from tests.engines.functions import (
    action,
    addressed,
    average,
    averaged,
    begin_average,
    count,
    end_average,
    extremes,
    keep_scores,
    knock,
    knocks,
    mean_score,
    orthogonality,
    own_width,
    pass_on,
    seen,
    some_rows,
)
from tests.engines.problems import OWN, PERSONALIZED, ROBUST, SOLVERS, directed_ring, ring

Answer = dict[str, Any]

KINDS = ("at", "chain", "gather", "local", "max", "sum")
"""Collectives with a coordinator."""

JOINT = partial(ep.FederatedPCA, 3)
PERSONAL = partial(ep.PersonalizedPCA, n_global=2, n_local=2)
ROBUST_MODEL = partial(ep.RobustPCA, 3)


@dataclass(frozen=True)
class Case:
    """An estimator with its options, or a program (of no arguments) with perhaps a graph.

    ``own`` is the coordinator's own site, which must be in the coordinator's process; ``estimator`` is given with its parameters
    that have no default.
    """

    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    program: Callable[[], Any] | None = None
    graph: Mapping[str, tuple[str, ...]] | None = None
    own: str | None = None
    estimator: Callable[..., Any] = JOINT


# -- a program for each collective ------------------------------------------------------------------------------------------


async def sums() -> Any:
    """Sum: a set-up round, then products."""
    n, total = await Sum(count)
    Z = np.linalg.qr(np.outer(np.arange(len(total)), [1.0, 0.0]) + np.eye(len(total), 2))[0]
    for _ in range(3):
        Z = np.linalg.qr(await Sum(action, Z))[0]
        await Progress(basis=Z)
    return n, total, Z


async def gathers() -> Any:
    """Gather: different shapes at each site."""
    replies = await Gather(some_rows)
    return tuple(array for name in sorted(replies) for array in replies[name])


async def maxima() -> Any:
    """Max: several arrays of different dtypes."""
    return *(await Max(extremes, np.float64(1))), *(await Max(extremes, np.float64(-1)))


async def at_sites() -> Any:
    """At: one site after the other, among them the coordinator's own."""
    return *(await At("quito", count)), *(await At(OWN, count)), *(await At("accra", some_rows))


async def chains() -> Any:
    """Chain: twice around."""
    v, hops = await Chain(pass_on, np.ones(20), np.int64(0))
    return await Chain(pass_on, v, hops)


async def kept() -> Any:
    """Local: state kept at the sites from step to step, also at sites that had other steps in between."""
    await Local(keep_scores, np.ones(20))
    await At("lima", count)
    await Local(keep_scores, np.arange(20.0))
    replies = await Gather(mean_score)
    return tuple(array for name in sorted(replies) for array in replies[name])


async def orthogonal(solver: Any) -> Any:
    """Personalized PCA, watched from the sites: how far global and local parts are from orthonormal after every round."""
    worst = []
    agreed = await agree_on_parts(await agree(Problem(2, max_rounds=6, tol=0.0, seed=5)), 2, 0.0)
    body, value = solver.fit(agreed), None
    while True:
        try:
            collective = body.send(value)
        except StopIteration:
            break
        value = await collective
        if isinstance(collective, Sum):
            worst.append(await Max(orthogonality, collective.args[0]))
    return (np.array(worst),)


WATCHED = {
    "varpro, every round": ep.solvers.VarPro(),
    "perpca, every round": ep.solvers.PerPCA(),
    "perpca by choice 2, every round": ep.solvers.PerPCA(choice=2, retraction="qr", start="random"),
}


async def consensus() -> Any:
    """Exchange: averages with the neighbours; then the largest and the least by Max."""
    await Local(begin_average)
    for _ in range(8):
        await Exchange(average)
    await Local(end_average)
    return await Max(averaged, np.float64(1)), await Max(averaged, np.float64(-1))


async def maximum_on_graph() -> Any:
    """Max on a graph: by passing on the largest value."""
    return await Max(action, np.eye(20, 2)), await Max(action, -np.eye(20, 2))


async def in_turn() -> Any:
    """Exchange and Local at some nodes while the others wait; and a value that all have."""
    await Local(begin_average)
    for name in sorted(ring()):
        await Exchange(average, nodes=(name,))
        await Local(end_average, nodes=ring()[name][:1])
    await Local(begin_average, nodes=("accra",))
    return await Max(averaged, np.float64(1)), await Max(averaged, np.float64(-1)), await Agreed(own_width)


async def addresses() -> Any:
    """Exchange: a message of its own shape for some neighbours, none for others, and messages without arrays."""
    await Exchange(addressed)
    first = await Max(seen)
    await Exchange(knock)
    return first, await Max(knocks)


CASES: tuple[Case, ...] = (
    *(
        Case(label, options={"solver": solver, **options}, own=OWN if label.endswith("-proxy") else None)
        for label, (solver, options) in SOLVERS.items()
    ),
    *(Case(label, options={"solver": s, **o}, estimator=PERSONAL) for label, (s, o) in PERSONALIZED.items()),
    *(Case(label, program=partial(orthogonal, solver)) for label, solver in WATCHED.items()),
    *(Case(label, options=options, estimator=ROBUST_MODEL) for label, options in ROBUST.items()),
    *(Case(f"{solver}, secured", options={"solver": solver, "secure": True}) for solver in ("gram", "krylov")),
    Case("personalized, secured", options={"solver": "varpro", "tol": 1e-2, "secure": True}, estimator=PERSONAL),
    Case("robust, secured", options={"tol": 0.05, "secure": True}, estimator=ROBUST_MODEL),
    Case("Sum", program=sums),
    Case("Gather", program=gathers),
    Case("Max", program=maxima),
    Case("At", program=at_sites, own=OWN),
    Case("Chain", program=chains),
    Case("Local", program=kept),
    Case("Exchange on a ring", program=consensus, graph=ring()),
    Case("Exchange at some nodes", program=in_turn, graph=ring()),
    Case("Exchange with addresses", program=addresses, graph=ring()),
    Case("Exchange one way", program=consensus, graph=directed_ring()),
    Case("Exchange one way with addresses", program=addresses, graph=directed_ring()),
    Case("Max on a graph", program=maximum_on_graph, graph=ring()),
)


USED = [*globals().values(), *(f for module in (setup, parts, start, varpro, perpca) for f in vars(module).values())]
PLAN = Plan("programs", tuple(sorted({f.name for f in USED if isinstance(f, LocalFunction)})), KINDS, max_rounds=100)
"""What the programs tell sites that have a policy."""


# -- carrying them out ------------------------------------------------------------------------------------------------------


def suite(run: Callable[[Case], Answer], *, graphs: bool = True, own: bool = True) -> dict[str, Answer]:
    """Answers of an engine by label; without graph programs, or without an own site, where the engine has none."""
    cases = [case for case in CASES if (graphs or case.graph is None) and (own or case.own is None)]
    return {case.label: run(case) for case in cases}


def on(engine: Any, sites: Mapping[str, Any], names: Iterable[str] | None = None) -> Callable[[Case], Answer]:
    """How to run a case on an engine; ``sites`` are those of this process, perhaps none; ``names`` those of the whole run."""

    def run(case: Case) -> Answer:
        if case.program is not None:
            return execute(case, engine, sites)
        made = model(case, engine)
        if names is not None and isinstance(case.options.get("n_local"), Mapping):
            made.set_params(n_local={name: case.options["n_local"][name] for name in names})
        return of_model(made.fit(sites or None))

    return run


def model(case: Case, engine: Any) -> Any:
    """The estimator of a case that has no program."""
    return case.estimator(**{"random_state": 0, "engine": engine, **case.options})


def execute(case: Case, engine: Any, sites: Mapping[str, Any]) -> Answer:
    """Run a program through the driver."""

    def job(connection: Connection) -> Outcome:
        async def program(_start: Any, _state: Any) -> Any:
            return await case.program()

        driver = Driver(connection, own=case.own, graph=case.graph, plan=PLAN if case.graph is None else None)
        result = driver.run(program)
        facts = {"rounds": driver.rounds, "setup_rounds": driver.setup_rounds}
        return Outcome({str(i): np.asarray(a) for i, a in enumerate(result)}, facts, driver.ledger)

    outcome = engine.execute(sites, job, graph=case.graph)
    return {"bits": {name: bits(a) for name, a in outcome.arrays.items()}, "ledger": rows(outcome.ledger)} | outcome.facts


def of_model(pca: Any) -> Answer:
    """What a fit ended with, as every process knows it."""
    names = ["components_", "explained_variance_", "mean_", "scale_", "singular_values_", "noise_variance_"]
    names += ["misalignment_", "threshold_"]
    return {
        "bits": {name: bits(getattr(pca, name)) for name in names if getattr(pca, name, None) is not None},
        "ledger": rows(pca.ledger_),
        "rounds": pca.n_rounds_,
        "setup_rounds": pca.n_setup_rounds_,
        "sites": list(pca.sites_),
        "stop": pca.stop_reason_,
        "solver": pca.solver_,
    }


def bits(value: Any) -> str:
    """Dtype, shape and bytes of an array as text."""
    a = np.asarray(value)
    return f"{a.dtype.name}{list(a.shape)} {a.tobytes().hex()}"


SESSION = (session_key.short_name, session_roster.short_name)
"""Their messages hold earlier rosters, of which a site without a ledger knows none."""


def rows(ledger: Ledger) -> list[list[Any]]:
    """The messages, as JSON can hold them."""
    return [
        [
            m.round, m.epoch, m.step, m.function, m.sender, m.receiver,
            [] if m.function in SESSION else [list(shape) for shape in m.shapes], list(m.dtypes),
            0 if m.function in SESSION else m.bytes, m.note,
        ]
        for m in ledger
    ]  # fmt: skip


def differences(found: Mapping[str, Answer], expected: Mapping[str, Answer]) -> list[str]:
    """Where answers differ: label and what."""
    return [
        f"{label}: {key} differs"
        for label, answer in found.items()
        for key in sorted(answer.keys() | expected[label].keys())
        if answer.get(key) != expected[label].get(key)
    ]
