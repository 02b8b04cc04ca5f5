"""What solvers declare of themselves is what their source says and what their runs send."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact import algorithms
from eigenpact.algorithms.consensus.krylov import Krylov
from eigenpact.algorithms.families import FAMILIES
from eigenpact.algorithms.method import Part, declaration_of, method
from eigenpact.algorithms.products import scatter_action
from eigenpact.errors import InputError, ProgramError
from eigenpact.estimators import registry
from eigenpact.estimators.choices import joint_solvers
from eigenpact.estimators.plans import ESTIMATORS, functions_of, plan_of
from eigenpact.estimators.registry import estimator_of, solvers_for
from eigenpact.runtime import At, Collective, Gather, LocalFunction, Progress, Sum

SOLVERS = solvers_for(*ESTIMATORS)
RING = {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}
Call = tuple[str, str]
"""A kind of collective and a function's name on the wire."""


@cache
def calls_in(module: str) -> frozenset[Call]:
    """Collectives that a module's source makes with local functions given by name."""
    names = vars(importlib.import_module(module))
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            collective = names.get(node.func.id)
            if inspect.isclass(collective) and issubclass(collective, Collective) and collective is not Progress:
                called = [names.get(arg.id) for arg in node.args if isinstance(arg, ast.Name)]
                found |= {(collective.kind, function.name) for function in called if isinstance(function, LocalFunction)}
    return frozenset(found)


def names_read(function: Callable[..., Any]) -> list[str]:
    """Names that a function's source reads of ``site.kept``, also through functions that it gives its site to."""
    tree, known = ast.parse(inspect.getsource(function)), function.__globals__
    aliases = {ast.unparse(name) for node in ast.walk(tree) for name, value in assignments(node) if is_kept(value, set())}
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=holder, slice=key) if is_kept(holder, aliases):
                found[literal(key, known)] = None
            case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[key, *_]) if is_kept(holder, aliases):
                found[literal(key, known)] = None
            case ast.Compare(left=key, comparators=[holder]) if is_kept(holder, aliases):
                found[literal(key, known)] = None
            case ast.Call(func=ast.Name(id=name), args=args) if any(isinstance(a, ast.Name) and a.id == "site" for a in args):
                helper = known[name]
                found |= dict.fromkeys(names_read(getattr(helper, "body", helper)))
    return list(found)


def assignments(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    if not isinstance(node, ast.Assign):
        return []
    if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        return list(zip(node.targets[0].elts, node.value.elts, strict=True))
    return [(node.targets[0], node.value)]


def is_kept(node: ast.expr, aliases: set[str]) -> bool:
    return ast.unparse(node) in {"site.kept", *aliases}


def literal(key: ast.expr, known: dict[str, Any]) -> str:
    """A name as it is written, or as a constant of the module says it."""
    value = key.value if isinstance(key, ast.Constant) else known[ast.unparse(key)]
    assert isinstance(value, str)
    return value


def modules() -> list[str]:
    return [info.name for info in pkgutil.walk_packages(algorithms.__path__, f"{algorithms.__name__}.")]


def own_functions() -> list[LocalFunction]:
    """All local functions of the package, each once."""
    rooms = (*modules(), "eigenpact.runtime.consensus", "eigenpact.runtime.fingerprint")
    found = (value for module in rooms for value in vars(importlib.import_module(module)).values())
    return list({value.name: value for value in found if isinstance(value, LocalFunction)}.values())


def declared_in(parts: tuple[Part, ...]) -> set[Call]:
    return {(kind.kind, function.name) for part in parts for kind, functions in part.uses.items() for function in functions}


def everything_declared() -> set[Call]:
    own = [declared_in(solver.declared.parts) for solver in SOLVERS.values()]
    return set().union(*own, *(declared_in(family.parts) for family in FAMILIES.values()))


def test_every_call_in_the_source_is_declared_and_every_declaration_is_called() -> None:
    called = frozenset().union(*(calls_in(module) for module in modules()))
    assert called == everything_declared()


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_declares_what_its_own_file_calls(name: str) -> None:
    """A file with several solvers: all of them together."""
    module = SOLVERS[name].__module__
    beside = [solver for solver in SOLVERS.values() if solver.__module__ == module]
    allowed = set().union(*(declared_in((*s.declared.parts, *FAMILIES[s.declared.family].parts)) for s in beside))
    assert calls_in(module) <= allowed


def fitted(name: str) -> Any:
    X = np.random.default_rng(0).normal(size=(90, 12)) * np.linspace(3, 1, 12)
    sites = {"a": X[:40], "b": X[40:60], "c": X[60:]}
    estimator = estimator_of(SOLVERS[name])
    if estimator == "FederatedPCA":
        return ep.FederatedPCA(2, solver=name, random_state=0).fit(sites)
    if estimator == "FederatedPCA(missing='em')":
        return ep.FederatedPCA(2, missing="em", random_state=0).fit(sites)
    if estimator == "PersonalizedPCA":
        share = None if name == "pooled" else 0.2
        return ep.PersonalizedPCA(2, 2, solver=name, validation_fraction=share, random_state=0, tol=1e-3).fit(sites)
    if estimator == "RobustPCA":
        return ep.RobustPCA(2, solver=name, tell_shares=True, random_state=0, tol=0.05).fit(sites)
    if estimator == "PrivatePCA":
        return ep.PrivatePCA(2, epsilon=8, delta=1e-6, row_bound=9, solver=name, secure=False, random_state=0).fit(sites)
    if estimator == "GraphPCA":
        return ep.GraphPCA(2, graph=RING, random_state=0).fit(sites)
    landmarks = X[:9] if name == "landmarks" else None
    return ep.GraphKernelPCA(2, graph=RING, solver=name, landmarks=landmarks, random_state=0).fit(sites)


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning", "ignore::eigenpact.errors.NotIdentifiableWarning")
@pytest.mark.parametrize("name", SOLVERS)
def test_every_function_of_a_run_is_declared_and_planned(name: str) -> None:
    """Also those that a shared loop, a confirmation or the family's set-up asks for."""
    sent = {message.function for message in fitted(name).ledger_} - {"agreed_maximum", "pass_on_maximum", "maximum"}
    short = {function.rpartition(":")[2].partition("/")[0] for function in functions_of(name)}
    assert sent <= short
    plan = plan_of(SOLVERS[name]() if name != "auto" else ep.solvers.Auto(), 3000, 2)
    assert set(plan.functions) <= set(functions_of(name))


@pytest.mark.parametrize("name", SOLVERS)
def test_results_are_among_what_is_kept(name: str) -> None:
    declared = SOLVERS[name].declared
    kept = {key for part in declared.parts for function in part.functions for key in function.keeps}
    assert set(declared.results) <= kept


def test_wire_names_hold_no_module() -> None:
    names = {function for name in SOLVERS for function in functions_of(name)}
    assert all(re.fullmatch(r"eigenpact:\w+/[12]", name) for name in names)


@pytest.mark.parametrize("function", own_functions(), ids=lambda function: function.short_name)
def test_a_local_function_declares_what_it_reads_of_what_is_kept(function: LocalFunction) -> None:
    assert sorted(function.reads) == sorted(names_read(function.body))


@dataclass(frozen=True)
class Undeclared:
    """A solver in all but the declaration."""

    name = "undeclared"

    async def fit(self, setup: Any, start: Any = None, state: Any = None) -> Any:
        raise NotImplementedError


def test_what_is_not_declared_is_refused_with_advice() -> None:
    sites = {"a": np.eye(3), "b": 2 * np.eye(3)}
    with pytest.raises(InputError, match="Undeclared is not declared to be a solver: write @method"):
        ep.FederatedPCA(1, solver=Undeclared()).fit(sites)
    with pytest.raises(InputError, match="must have a name"):
        method("consensus", {Sum: ()})(type("Nameless", (), {}))


def test_a_solver_of_another_estimator_is_refused() -> None:
    sites = {"a": np.eye(3), "b": 2 * np.eye(3)}
    with pytest.raises(InputError, match="is one of RobustPCA; the solvers of FederatedPCA are auto, faps"):
        ep.FederatedPCA(1, solver=ep.solvers.DCF()).fit(sites)
    with pytest.raises(InputError, match="unknown solver 'gram'; the solvers of RobustPCA are dcf, shrinking"):
        ep.RobustPCA(1, solver="gram").fit(sites)


def test_a_part_knows_its_functions_once() -> None:
    function = declaration_of(ep.solvers.Gram).own.functions[0]
    assert Part("twice", {Sum: (function,), Gather: (function,)}).functions == (function,)


@method("consensus")
@dataclass(frozen=True)
class Forgetful:
    """A solver that declares less than it does."""

    name = "forgetful"
    default_angle = 1e-8

    async def fit(self, setup: Any, start: Any = None, state: Any = None) -> Any:  # noqa: ARG002
        return await Sum(scatter_action, np.eye(setup.n_features, 1))


def test_what_is_not_declared_is_not_run() -> None:
    """On an engine without policies, too."""
    with pytest.raises(ProgramError, match=r"'forgetful' asks for sum of eigenpact:scatter_action/1, which it does not declare"):
        ep.FederatedPCA(1, solver=Forgetful()).fit({"a": np.eye(3), "b": 2 * np.eye(3)})


def test_a_package_that_is_broken_costs_its_own_solver_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with it: who asks for that solver is told, and all others are there as before."""
    hijacker = type("Hijacker", (Forgetful,), {"name": "gram"})
    told = (
        ("broken", ZeroDivisionError("at import")),
        ("leaving", SystemExit(3)),
        ("nothing", 3),
        ("instance", Forgetful()),
        ("mine", ep.solvers.Krylov),
        ("hijacker", hijacker),
        ("stray", method("consensus", estimator="FederatedPca")(type("Stray", (), {"name": "stray"}))),
        ("forgetful", Forgetful),
    )
    registry._found.cache_clear()
    monkeypatch.setattr(registry, "installed_solvers", lambda: told)
    try:
        assert set(solvers_for("FederatedPCA")) == {*joint_solvers(), "auto", "forgetful"}
        sites = {"a": np.diag([3.0, 2.0, 1.0]), "b": np.diag([3.0, 1.0, 1.0])}
        reasons = {
            "broken": "ZeroDivisionError: at import",
            "leaving": "SystemExit: 3",
            "nothing": "3 is not a class",
            "instance": "is not a class",
            "mine": "'krylov' is taken",
            "hijacker": "Hijacker is not declared to be a solver",
            "stray": "is for FederatedPca; the estimators are FederatedPCA, ",
        }
        for name, reason in reasons.items():
            with pytest.raises(InputError, match=f"solver='{name}' of an installed package cannot be used: .*{reason}"):
                ep.FederatedPCA(1, solver=name).fit(sites)
            with pytest.raises(InputError, match=f"unknown solver '{name}'; an installed package tells of it, but: .*{reason}"):
                functions_of(name)
        assert ep.FederatedPCA(1, solver="krylov", center=False).fit(sites).solver_ == "krylov"
        assert ep.solvers.Krylov is Krylov
        assert not {"Hijacker", "Stray"} & set(dir(ep.solvers))
    finally:
        registry._found.cache_clear()


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"family": "linear"}, "family 'linear' must be one of consensus, "), ({"role": "approx"}, "role 'approx' must be one of")],
)
def test_a_declaration_with_unknown_words_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        method(**{"family": "consensus"} | options)(type("Odd", (), {"name": "odd"}))


def test_a_subclass_declares_itself() -> None:
    """Else it would announce the plan, and the name, of the class above it."""
    own = type("OwnKrylov", (Krylov,), {"name": "own-krylov"})
    with pytest.raises(InputError, match="OwnKrylov is not declared to be a solver"):
        ep.FederatedPCA(1, solver=own()).fit({"a": np.eye(3), "b": 2 * np.eye(3)})


@method("consensus", {At: (scatter_action,)})
class Asking:
    """A solver that asks one site, and has no proxy."""

    site: str

    name = "asking"
    default_angle = 1e-8

    async def fit(self, setup: Any, start: Any = None, state: Any = None) -> Any:  # noqa: ARG002
        await At(self.site, scatter_action, np.eye(setup.n_features, 1))
        raise InterruptedError("asked")


def test_what_is_declared_is_planned() -> None:
    """Only the own site of solvers that have a proxy depends on whether there is one."""
    assert "at" in plan_of(Asking("a"), 10, 1).kinds
    assert "at" not in plan_of(Krylov(), 10, 1).kinds
    assert "at" not in plan_of(ep.solvers.Auto(), 10, 1).kinds
    assert "at" in plan_of(Krylov(proxy="a"), 10, 1).kinds
    with pytest.raises(InterruptedError):
        ep.FederatedPCA(1, solver=Asking("a")).fit({"a": np.eye(3), "b": 2 * np.eye(3)})


def test_a_solver_that_needs_arguments_is_given_as_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    registry._found.cache_clear()
    monkeypatch.setattr(registry, "installed_solvers", lambda: (("asking", Asking),))
    try:
        with pytest.raises(InputError, match=r"solver='asking' has parameters without a default .*site.*; pass an instance"):
            ep.FederatedPCA(1, solver="asking").fit({"a": np.eye(3), "b": 2 * np.eye(3)})
    finally:
        registry._found.cache_clear()
