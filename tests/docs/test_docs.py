"""The pages do what they say: their Python and their commands run, their links resolve, generated pages are up to date.

Blocks of a page run in order, in one namespace and one empty folder, with warnings as errors:

- ```python runs here; a ```text block right after it is what it prints ("..." stands for anything).
- ```console runs its lines "$ eigenpact ..." and "$ mpiexec ...", and sets what "$ export" says.  The exit code must be 0, or the
  one in a comment "# exit 2"; lines below a command are what it prints.  One that ends in "&" runs until the page ends, and has
  printed what stands below it before the next command runs.  Commands of Flower run too.
- "needs-data" after the language skips a block without EIGENPACT_DATA, "needs-mpi" without mpi4py, "needs-nvflare" without NVIDIA
  FLARE, "needs-flower" without Flower, "not-run" always.

Federations listen on a free port, so that several test runs may share a machine: "localhost:8102" and "--port N" stand
for others.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
from typer.testing import CliRunner

import eigenpact as ep
from eigenpact import errors
from eigenpact.cli import app

DOCS = Path(__file__).parents[2] / "docs"
ROOT = DOCS.parent
PAGES = sorted(path for path in DOCS.rglob("*.md") if "adr" not in path.relative_to(DOCS).parts)
ALL_PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
RESULTS = sorted((DOCS / "results").glob("*.md"))
README_BYTES = 6000
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PRINTED = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
COMMANDS = {"eigenpact", "mpiexec", "flwr", "flower-supernode"}
HERE = {"audit", "compare", "describe", "export", "fit", "show", "suggest", "transform"}
"""Subcommands of eigenpact that start no other process and are run in this one; ``tests/cli/test_cli.py`` starts real ones."""

SLOW = {"federate.md": "federate", "federate-with-flower.md": "federate-flower", "reproduce-the-papers.md": "reproduce"}
"""Pages that take minutes, and the group of tests that they run in: their commands run with the tests of faults."""

NEEDS = {
    "needs-data": "EIGENPACT_DATA" in os.environ,
    "needs-mpi": importlib.util.find_spec("mpi4py"),
    "needs-flower": importlib.util.find_spec("flwr"),
    "needs-nvflare": importlib.util.find_spec("nvflare"),
    "not-run": False,
}
WITHIN = 600
"""Seconds a command may take."""


@dataclass
class Page:
    """A page being read: its namespace, its environment, its folder, and what the last block printed."""

    folder: Path
    module: types.ModuleType
    environment: dict[str, str] = field(default_factory=dict)
    printed: str | None = None
    background: list[subprocess.Popen[str]] = field(default_factory=list)

    def python(self, code: str, where: str) -> None:
        """Run a block."""
        with contextlib.redirect_stdout(io.StringIO()) as stream, warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(code, where, "exec"), vars(self.module))
        self.printed = stream.getvalue()

    def console(self, text: str, where: str) -> None:
        """Run a block's commands."""
        self.printed = None
        assert text.startswith("$ "), f"{where}: a console block begins with a command"
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, expected = part.partition("\n")
            words = self.on_free_ports(shlex.split(line, comments=True))
            if words[0] == "export":
                self.environment |= dict(word.split("=", 1) for word in words[1:])
                continue
            assert words[0] in COMMANDS, f"{where}: {words[0]} is not run by this test; mark the block not-run"
            if words[-1] == "&":
                self.begin(words[:-1], expected, where)
                continue
            code = int(match[1]) if (match := re.search(r"# exit (\d+)$", line)) else 0
            ended, *streams = self.here(words[1:]) if words[0] == "eigenpact" and words[1] in HERE else self.process(words)
            printed = "".join(streams)
            assert ended == code, f"{where}: {line}\n{printed}"
            shown = any(PRINTED.check_output(expected, stream, FLAGS) for stream in streams)
            assert not expected.strip() or shown, f"{where}: {line} printed\n{printed}"

    def process(self, words: list[str]) -> tuple[int, str, str]:
        """Run a command in a process of its own; its exit code, and what it printed on both streams."""
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=WITHIN)
        return done.returncode, done.stdout, done.stderr

    def here(self, words: list[str]) -> tuple[int, str, str]:
        """The same for ``eigenpact``, in this process: a new one takes seconds to import what is imported here already."""
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # as in a process of its own, the command may warn
            done = CliRunner().invoke(app, words, prog_name="eigenpact", env={"COLUMNS": None} | self.environment)
        assert done.exception is None or isinstance(done.exception, SystemExit), "".join(format_exception(done.exception))
        return done.exit_code, done.stdout, done.stderr

    def on_free_ports(self, words: list[str]) -> list[str]:
        """The command, listening where nobody else does."""
        address = f"localhost:{self.environment['EIGENPACT_EXAMPLE_PORT']}"
        ports = [_free_port() if before == "--port" else word for before, word in zip(["", *words], words, strict=False)]
        return [word.replace("localhost:8102", address) for word in ports]

    def begin(self, words: list[str], expected: str, where: str) -> None:
        """Run a command in the background; wait until it has printed what it is to print."""
        path = self.folder / f"background{len(self.background)}.txt"
        with path.open("w") as output:
            self.background.append(subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=output, stderr=output))
        deadline = time.monotonic() + WITHIN
        while not PRINTED.check_output(expected.rstrip() + "...\n", path.read_text() + "\n", FLAGS):
            assert time.monotonic() < deadline, f"{where}: {words} printed\n{path.read_text()}"
            assert self.background[-1].poll() is None, f"{where}: {words} ended\n{path.read_text()}"
            time.sleep(0.1)

    def end(self) -> None:
        """Stop what runs in the background."""
        for process in self.background:
            process.terminate()
        for process in self.background:
            process.wait(WITHIN)

    def text(self, expected: str, where: str) -> None:
        """Compare with what the block before printed."""
        if self.printed is not None:
            assert PRINTED.check_output(expected, self.printed, FLAGS), f"{where}: printed was\n{self.printed}"
        self.printed = None


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A fresh folder and namespace."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look themselves up
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "EIGENPACT_DEBUG"}}
    kept |= {"PATH": path, "OMP_NUM_THREADS": "1", "EIGENPACT_EXAMPLE_PORT": _free_port(), "FLWR_HOME": str(tmp_path / ".flwr")}
    kept |= {"OMPI_MCA_mpi_yield_when_idle": "1"}  # other tests run beside
    made = Page(tmp_path, module, kept)
    try:
        yield made
    finally:
        made.end()


def _blocks(path: Path) -> Any:
    marks = [pytest.mark.faults, pytest.mark.xdist_group(SLOW[path.name])] if path.name in SLOW else []
    return pytest.param(path, id=str(path.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("path", [_blocks(path) for path in ALL_PAGES])
def test_blocks_run(path: Path, page: Page) -> None:
    """Every block of the page does what it shows."""
    content = path.read_text()
    for match in BLOCK.finditer(content):
        language, marks, code = match[1], match[2].split(), match[3]
        where = f"{path.name}:{content.count(chr(10), 0, match.start()) + 1}"
        assert set(marks) <= set(NEEDS), f"{where}: unknown mark {marks}; known are {', '.join(NEEDS)}"
        if language not in {"python", "console", "text"} or not all(NEEDS[mark] for mark in marks):
            page.printed = None
            continue
        getattr(page, language)(code, where)


@pytest.mark.parametrize("path", ALL_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    """Relative links lead to files, and their anchors to headings."""
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in _anchors(file), f"{path.name} links to {target}; the headings are {sorted(_anchors(file))}"


def test_the_readme_is_one_screen() -> None:
    """It leads to the pages and does not replace them."""
    assert len((ROOT / "README.md").read_bytes()) <= README_BYTES


def test_five_commands_lead_to_own_scores() -> None:
    """From the README's first line, set-up among them."""
    commands = re.findall(r"^\$ (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    (scores,) = [number for number, command in enumerate(commands, 1) if command.startswith("eigenpact transform")]
    assert scores <= 5


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_name_their_command(path: Path) -> None:
    """A page of results can be measured again: it names a command that knows its family and writes this page."""
    command = f"$ python -m benchmarks.results {path.stem} --size "
    assert re.search(rf"^{re.escape(command)}(small|paper) --page docs/results/{path.name}$", path.read_text(), re.MULTILINE)


def test_every_family_has_a_page_of_results() -> None:
    """And no page is of a family that is no more."""
    listed = re.search(r"^FAMILIES = \((.*?)^\)", (ROOT / "benchmarks" / "results.py").read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"(\w+)",', listed[1])) == {path.stem for path in RESULTS}


def test_every_page_is_in_the_map() -> None:
    """The index links to every page."""
    linked = {(DOCS / target).resolve() for target in LINK.findall((DOCS / "index.md").read_text())}
    assert {path for path in PAGES if path.name != "index.md"} <= linked


def test_generated_pages_are_up_to_date() -> None:
    """Commands and wire table are what docs/generate.py writes now."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, content in generate.pages().items():
        assert path.read_text() == content, f"{path} is out of date; run python docs/generate.py"


def test_the_wire_table_lists_every_local_function() -> None:
    """A solver that was forgotten there would send what no page tells."""
    algorithms = DOCS.parent / "src" / "eigenpact" / "algorithms"
    page = (DOCS / "reference" / "wire-table.md").read_text()
    declared = {
        name for path in algorithms.rglob("*.py") for name in re.findall(r"^@local\(.*?^def (\w+)", path.read_text(), re.M | re.S)
    }
    assert {"scatter_action", "consensus_step", "local_power"} <= declared
    assert not [name for name in declared if f"| `{name}` |" not in page]


def test_reference_names_everything_public() -> None:
    """Every public name, parameter and error class has its place in the reference."""
    api = (DOCS / "reference" / "python-api.md").read_text()
    attributes = [name for name in vars(ep.FederatedPCA(1).fit([[0.0, 1.0], [2.0, 0.0]])) if name.endswith("_")]
    for name in [*ep.__all__, *ep.datasets.__all__, *ep.FederatedPCA().get_params(), *attributes]:
        assert re.search(rf"\b{name}\b", api), f"python-api.md does not mention {name}"
    listed = (DOCS / "reference" / "errors.md").read_text()
    for name, value in vars(errors).items():
        if isinstance(value, type) and value.__module__ == errors.__name__:
            assert f"`{name}`" in listed, f"errors.md does not mention {name}"


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def _anchors(file: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", file.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
