"""The source keeps to its layers: who may import whom, and what an algorithm may not do.

Every rule is a function from a parsed file to the places that break it, is asked of all files in one test, and is also tried
on snippets that break it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "eigenpact"
FILES = sorted(SOURCE.rglob("*.py"))
ALGORITHMS = [path for path in FILES if path.is_relative_to(SOURCE / "algorithms")]

BOTTOM = {"errors", "release", "storage", "numerics"}
ROOMS = {"algorithms", "engines", "privacy", "data"}
PEOPLE = {"estimators", "cli", "report", "reproduce"}
FACADES = {"datasets", "export", "imports", "plot", "pp", "prepare", "solvers", "__init__"}

MAY_IMPORT = (
    dict.fromkeys(BOTTOM, BOTTOM)
    | {"runtime": BOTTOM | {"runtime"}}
    | {room: BOTTOM | {"runtime", room} for room in ROOMS}
    | {
        "estimators": BOTTOM | ROOMS | {"runtime", "estimators"},
        "report": BOTTOM | ROOMS | {"runtime", "estimators", "report", "datasets"},
        "reproduce": BOTTOM | ROOMS | {"runtime", "estimators", "report", "reproduce", "datasets"},
        "cli": BOTTOM | ROOMS | PEOPLE | FACADES | {"runtime"},
        "datasets": BOTTOM | {"data"},
        "solvers": BOTTOM | {"estimators"},
        "prepare": BOTTOM | {"algorithms", "estimators"},
        "export": BOTTOM | {"estimators", "report"},
        "imports": BOTTOM | {"estimators"},
        "plot": BOTTOM | {"report"},
        "pp": BOTTOM | {"estimators"},
        "__init__": BOTTOM | ROOMS | PEOPLE | {"runtime", *FACADES} - {"__init__"},
    }
)
"""Part -> parts of the package it may import."""

NAMED_ABOVE = {
    # Flower starts the coordinator's process from the name of a class in the app's bundle.  The class reads settings and writes
    # a model as the commands do, so it is in the command line's room; the bundle is written by the engine.
    ("engines/flower/app.py", "eigenpact.cli.flower_server"),
    # A site finds a local function by the name in a request.  This room alone is imported for that; the runtime knows none of
    # its modules.
    ("runtime/local.py", "eigenpact.algorithms"),
    # The group of entry points by which other packages tell of their solvers; it is named as the page they appear on.
    ("runtime/local.py", "eigenpact.solvers"),
}
"""File and module of another layer that it names by a string, never importing it: the exceptions, and why."""

READS_ROWS_FOR_LOCALS = {
    "rows_of",
    "_spread_by_feature",
    "own_mean_of",
    "_check_trace",
    "entries_of",
    "entries_there",
    "covariance_of",
    "held_out_error",
    "holed_rows",
}
"""Helpers in setup.py, spread.py, robust/entries.py, personalized/parts.py and missing/observed.py that touch rows; only @local
functions call them."""

FORBIDDEN_IN_ALGORITHMS = {
    "time", "datetime", "timeit", "io", "os", "pathlib", "shutil", "tempfile", "subprocess", "socket", "threading", "asyncio",
    "multiprocessing", "concurrent", "logging", "sys", "mpi4py", "dask", "flwr", "nvflare", "random", "rich", "typer",
}  # fmt: skip
PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
SEEDED = {"default_rng", "Generator", "SeedSequence", "BitGenerator", "PCG64", "Philox", "RandomState"}


def part_of(path: Path) -> str:
    """The layer or room a file belongs to."""
    inside = path.relative_to(SOURCE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def package_of(path: Path) -> list[str]:
    return ["eigenpact", *path.relative_to(SOURCE).parent.parts]


def imported(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported; names from packages are given one by one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _dotted(node.func) in ("importlib.import_module", "import_module", "__import__"):
            (name,) = node.args or [None]
            yield node.lineno, name.value if isinstance(name, ast.Constant) else "?"


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of modules of the package that stand in strings (as other programs are told what to import), or patterns.

    Docstrings may speak of any.
    """
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            for name in re.findall(r"\beigenpact(?:\.[A-Za-z_]\w*)+", node.value.replace("\\.", ".")):
                if _is_module(name):
                    yield node.lineno, name


def _is_module(name: str) -> bool:
    """Whether a dotted name is that of a module or package in the source, or of something in one."""
    parts = name.split(".")[1:]
    return (SOURCE / parts[0]).is_dir() or (SOURCE / f"{parts[0]}.py").exists()


def parts_imported(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and part of the package for every import from within it."""
    for line, name in imported(tree, package):
        first, *rest = name.split(".")
        if first == "eigenpact":
            yield line, rest[0] if rest and (rest[0] in MAY_IMPORT or (SOURCE / rest[0]).exists()) else "__init__"


def wrong_layer(tree: ast.AST, part: str, package: list[str]) -> list[str]:
    return [f"{line}: {part} imports {other}" for line, other in parts_imported(tree, package) if other not in MAY_IMPORT[part]]


def named_wrong_layer(tree: ast.AST, part: str) -> list[tuple[int, str]]:
    """Line and module for every string that names a module which the part may not import."""
    return [(line, name) for line, name in named(tree) if name.split(".")[1] not in MAY_IMPORT[part]]


def not_for_algorithms(tree: ast.AST, package: list[str]) -> list[str]:
    """Imports, calls of ``print``, ``open`` and the like that an algorithm must not make."""
    found = [f"{line}: imports {name}" for line, name in imported(tree, package) if name.split(".")[0] in FORBIDDEN_IN_ALGORITHMS]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            last = name.split(".")[-1]
            if name in ("print", "open", "input", "exec", "eval", "breakpoint") or last in (
                "read_text", "write_text", "read_bytes", "write_bytes", "tofile", "fromfile", "savez", "save", "load", "loadtxt",
                "savetxt", "memmap", "perf_counter", "monotonic", "warn",
            ):  # fmt: skip
                found.append(f"{node.lineno}: calls {name}")
    return found


def global_random(tree: ast.AST) -> list[str]:
    """Uses of numpy's global stream, of streams without a seed, and of the standard library's ``random``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            before, _, last = _dotted(node).rpartition(".")
            if before in ("np.random", "numpy.random") and last not in SEEDED:
                found.append(f"{node.lineno}: {before}.{last}")
        if (
            isinstance(node, ast.Call)
            and _dotted(node.func).endswith(("default_rng", "RandomState"))
            and not node.args + node.keywords
        ):
            found.append(f"{node.lineno}: {_dotted(node.func)}() without a seed")
    return found + [f"{line}: imports {name}" for line, name in imported(tree, []) if name.split(".")[0] == "random"]


def pickling(tree: ast.AST) -> list[str]:
    found = [f"{line}: imports {name}" for line, name in imported(tree, []) if name.split(".")[0] in PICKLERS]
    return found + [
        f"{node.value.lineno}: allow_pickle"
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == "allow_pickle"
        and not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]


def rows_outside_local(tree: ast.Module, helpers: set[str]) -> list[str]:
    """Places that touch ``site.X`` or call a helper that does, outside functions marked @local and the helpers themselves."""
    found = []

    def visit(node: ast.AST, allowed: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            allowed = allowed or node.name in helpers or any(_is_local(decorator) for decorator in node.decorator_list)
        if not allowed:
            if isinstance(node, ast.Attribute) and node.attr == "X" and "site" in _dotted(node.value):
                found.append(f"{node.lineno}: {_dotted(node)}")
            if isinstance(node, ast.Name) and node.id in READS_ROWS_FOR_LOCALS and isinstance(node.ctx, ast.Load):
                found.append(f"{node.lineno}: {node.id} outside @local")
        for child in ast.iter_child_nodes(node):
            visit(child, allowed)

    visit(tree, False)
    return found


def _is_local(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and _dotted(decorator.func) == "local"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


@cache
def parsed(path: Path) -> ast.Module:
    """A file's tree, made when a test wants it: every process that collects tests imports this module."""
    return ast.parse(path.read_text(), str(path))


def broken(rule: Callable[[Path, ast.Module], Iterable[str]], files: Iterable[Path] = FILES) -> list[str]:
    """Where files break a rule, as file and line."""
    return [f"{path.relative_to(SOURCE)}:{found}" for path in files for found in rule(path, parsed(path))]


def test_every_file_has_a_layer():
    assert [str(path) for path in FILES if part_of(path) not in MAY_IMPORT] == [], "add it to this test and to the design"
    assert len(ALGORITHMS) > 20


def test_a_file_imports_only_from_below_its_own_layer():
    assert broken(lambda path, tree: wrong_layer(tree, part_of(path), package_of(path))) == []


def test_a_file_names_only_modules_below_its_own_layer():
    """What a string names is imported in the end; what must be is said in ``NAMED_ABOVE``, and no more than that."""
    found = [
        (str(path.relative_to(SOURCE)), line, name)
        for path in FILES
        for line, name in named_wrong_layer(parsed(path), part_of(path))
    ]
    assert [f"{file}:{line}: names {name}" for file, line, name in found if (file, name) not in NAMED_ABOVE] == []
    assert {(file, name) for file, _, name in found} == NAMED_ABOVE


def test_no_global_random_numbers():
    assert broken(lambda _, tree: global_random(tree)) == []


def test_nothing_is_pickled():
    assert broken(lambda _, tree: pickling(tree)) == []


def test_algorithms_know_no_engine_no_file_no_clock():
    assert broken(lambda path, tree: not_for_algorithms(tree, package_of(path)), ALGORITHMS) == []


def test_rows_are_touched_in_local_functions_only():
    def rule(path: Path, tree: ast.Module) -> list[str]:
        return rows_outside_local(
            tree,
            READS_ROWS_FOR_LOCALS if path.name in ("setup.py", "spread.py", "entries.py", "parts.py", "observed.py") else set(),
        )

    assert broken(rule, ALGORITHMS) == []


def test_modules_do_not_import_one_another_in_circles():
    """Which one is imported first must not matter."""
    names = {".".join([*package_of(path), path.stem]).removesuffix(".__init__"): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        top_level = ast.Module([node for node in parsed(path).body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        wanted = {found for _, found in imported(top_level, package_of(path))}
        targets = {target if target in names else target.rpartition(".")[0] for target in wanted}
        graph[name] = {target for target in targets & set(names) if target != name and not name.startswith(target + ".")}
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for other in sorted(graph[name]):
                walk(other, (*trail, name))
            done.add(name)

    for name in graph:
        walk(name, ())
    assert len(done) == len(FILES)


@pytest.mark.parametrize(
    ("part", "package", "source"),
    [
        ("errors", "eigenpact", "from .runtime import Driver"),
        ("numerics", "eigenpact.numerics", "import eigenpact.estimators.pca"),
        ("runtime", "eigenpact.runtime", "from ..algorithms import setup"),
        ("runtime", "eigenpact.runtime", "from .. import engines"),
        ("runtime", "eigenpact.runtime", "import eigenpact"),
        ("algorithms", "eigenpact.algorithms.consensus", "from ...engines.inprocess import InProcess"),
        ("algorithms", "eigenpact.algorithms", "def f():\n    from ..data import partition"),
        ("engines", "eigenpact.engines", "import importlib\nimportlib.import_module('eigenpact.algorithms.setup')"),
        ("data", "eigenpact.data", "from eigenpact.privacy import x"),
        ("estimators", "eigenpact.estimators", "from ..cli import main"),
        ("report", "eigenpact.report", "from ..reproduce import find"),
        ("reproduce", "eigenpact.reproduce", "from ..cli import app"),
        ("datasets", "eigenpact", "from .algorithms import setup"),
    ],
)
def test_the_rule_of_layers_can_fail(part, package, source):
    assert len(wrong_layer(ast.parse(source), part, package.split("."))) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("engines", "SERVER = 'eigenpact.cli.flower_server:server'"),
        ("runtime", "run(['-m', 'eigenpact.engines.flare.main'])"),
        ("algorithms", "f'eigenpact.estimators.{name}'"),
        ("runtime", r"TRUSTED = re.compile(r'eigenpact\.algorithms\.\w+')"),
        ("data", "def f():\n    return 'import eigenpact.engines.mpi'"),
    ],
)
def test_the_rule_of_layers_sees_modules_named_by_strings(part, source):
    assert len(named_wrong_layer(ast.parse(source), part)) == 1


def test_the_rule_of_layers_allows_strings_that_name_no_module():
    tree = ast.parse("log = getLogger('eigenpact.site')\nopener = 'eigenpact.data.site_rows:open_rows'\n'see eigenpact.cli'")
    assert named_wrong_layer(tree, "data") == []
    assert [name for _, name in named(tree)] == ["eigenpact.data.site_rows"]


def test_the_rule_of_layers_allows_what_is_below():
    tree = ast.parse("import numpy\nfrom ...numerics.linalg import Array\nfrom ...runtime import Sum\nfrom ..setup import agree")
    assert wrong_layer(tree, "algorithms", ["eigenpact", "algorithms", "consensus"]) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import perf_counter",
        "print(1)",
        "open('x')",
        "import pathlib",
        "from mpi4py import MPI",
        "np.save(f, a)",
        "path.read_text()",
        "import logging",
        "warnings.warn('x')",
    ],
)
def test_the_rule_for_algorithms_can_fail(source):
    assert not_for_algorithms(ast.parse(source), ["eigenpact", "algorithms"])


@pytest.mark.parametrize(
    "source",
    [
        "np.random.rand(3)",
        "np.random.seed(0)",
        "numpy.random.normal()",
        "np.random.default_rng()",
        "import random",
        "f = np.random.shuffle",
    ],
)
def test_the_rule_for_random_numbers_can_fail(source):
    assert global_random(ast.parse(source))


@pytest.mark.parametrize(
    "source", ["import pickle", "from pickle import loads", "import joblib", "np.load(f, allow_pickle=True)", "f(allow_pickle=x)"]
)
def test_the_rule_for_pickle_can_fail(source):
    assert pickling(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "def f(site):\n    return site.X",
        "def rows_of(site):\n    return site.X",
        "async def fit(self):\n    return rows_of(self.site)",
        "class A:\n    def f(self):\n        return self.site.X",
        "@other(1)\ndef f(site):\n    return site.X.T",
        "g = lambda s: rows_of(s)",
    ],
)
def test_the_rule_for_rows_can_fail(source):
    assert rows_outside_local(ast.parse(source), set())


def test_the_rule_for_rows_allows_local_functions_and_helpers():
    source = "@local(sends={})\ndef f(site):\n    return rows_of(site), site.X\n\ndef rows_of(site):\n    return site.X"
    assert rows_outside_local(ast.parse(source), READS_ROWS_FOR_LOCALS) == []
