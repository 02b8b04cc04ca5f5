"""A person who knows of eigenpact what the pages say, and types nothing else.

A command is given as it stands on a page, and the person's own names for what it names: files, columns, folders, numbers.
Options and subcommands cannot be changed; a line that is not on the page fails, and so does one that asks for another exit code
than the script says.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eigenpact.cli import app

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("eigenpact", "mpiexec", "export")
WITHIN = 300.0
"""Seconds a command may take."""


def commands_of(text: str) -> set[str]:
    """Commands that a page shows: in console blocks, in indented lines, in code within a sentence."""
    blocks = [match[3] for match in FENCED.finditer(text) if match[1] == "console"]
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    prose = FENCED.sub("", text)
    lines += re.findall(r"^ {4,}(eigenpact .+)$", prose, re.MULTILINE) + re.findall(r"`(eigenpact [^`\n]+)`", prose)
    return {re.sub(r"\s+#.*$", "", line).removesuffix(" &").strip() for line in lines}


def python_of(text: str) -> set[str]:
    """Lines of Python that a page shows."""
    return {line for match in FENCED.finditer(text) if match[1] == "python" for line in match[3].splitlines()}


def in_own_words(line: str, own: Mapping[str, str]) -> list[str]:
    """The command with the person's own names; they may be parts of a word that an = or a comma bounds.

    >>> in_own_words("eigenpact fit north.csv -k 2 -o model", {"north.csv": "a.csv b.csv", "2": "5"})
    ['eigenpact', 'fit', 'a.csv', 'b.csv', '-k', '5', '-o', 'model']
    >>> in_own_words("eigenpact fit north.csv -k 2", {"-k": "-q"})
    Traceback (most recent call last):
    AssertionError: '-k' of the page is no name of the person's own
    """
    words = shlex.split(line)
    operands = [word for i, word in enumerate(words) if not word.startswith("-") and i > _subcommand(words)]
    for name, other in own.items():
        assert any(name in re.split(r"[=,]", word) or name == word for word in operands), (
            f"{name!r} of the page is no name of the person's own"
        )
        assert not any(word.startswith("-") for word in other.split()), f"{other!r} is an option"
    made: list[str] = []
    for i, word in enumerate(words):
        changed = (
            word if i <= _subcommand(words) else own.get(word) or re.sub(r"[^=,]+", lambda part: own.get(part[0], part[0]), word)
        )
        made += changed.split() if word in own else [changed]
    return made


def _subcommand(words: list[str]) -> int:
    """Place of the last word that says what is done; the words behind it are its operands and options."""
    if words[0] == "mpiexec":
        return words.index("eigenpact") + 1
    return 2 if len(words) > 2 and words[1] in ("site", "federation", "coordinator") else 1


class Person:
    """Somebody with a folder and a terminal.

    With ``here``, short commands run in this process, which has imported already what a new one takes seconds to import.
    """

    def __init__(self, folder: Path, *, here: bool = False) -> None:
        self.folder, self.here = folder, here
        self.processes: list[subprocess.Popen[bytes]] = []
        self.peaks: list[int] = []
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "EIGENPACT_DEBUG"}}
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.environment = kept | {"PATH": path, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp"), "MPLBACKEND": "Agg"}

    def reads(self, page: str) -> str:
        """A page of ours, or one that came with a kit."""
        path = ROOT / page
        return (path if path.exists() else self.folder / page).read_text()

    def words(self, page: str, line: str, own: Mapping[str, str] | None = None) -> list[str]:
        """A command of a page in the person's own words."""
        shown = commands_of(self.reads(page))
        assert line in shown, f"{page} does not say: {line}\nit says:\n" + "\n".join(sorted(shown))
        assert line.split()[0] in PROGRAMS
        return in_own_words(line, own or {})

    def types(self, page: str, line: str, own: Mapping[str, str] | None = None, *, code: int = 0) -> str:
        """Type a command of a page, and read what it prints; the most memory of its own that it had is kept."""
        words = self.words(page, line, own)
        if words[0] == "export":
            self.environment |= dict(word.split("=", 1) for word in words[1:])
            return ""
        if self.here and words[0] == "eigenpact":
            with contextlib.chdir(self.folder), warnings.catch_warnings():
                warnings.simplefilter("default")  # as in a process of its own, the command may warn
                done = CliRunner().invoke(app, words[1:], prog_name="eigenpact", env={"COLUMNS": None})
            assert done.exit_code == code, f"{shlex.join(words)}\n{done.output}"
            return str(done.output)
        output = self.folder / "tmp" / "printed.txt"
        with output.open("wb") as stream:
            process = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=stream, stderr=stream)
            self.peaks.append(_peak_of(process))
        printed = output.read_text(errors="replace")
        assert process.returncode == code, f"{shlex.join(words)}\n{printed}"
        assert "Traceback" not in printed, printed
        return printed

    def writes_python(self, page: str, lines: str, mine: str = "") -> None:
        """Run lines of Python that stand on a page, after some of the person's own, which need nothing of eigenpact."""
        shown = python_of(self.reads(page))
        for line in lines.strip().splitlines():
            assert line in shown, f"{page} does not say: {line}"
        assert "eigenpact" not in mine
        assert "ep." not in mine
        script = self.folder / "own.py"
        script.write_text(f"{mine}\n{lines}")
        if self.here:
            with contextlib.chdir(self.folder):
                exec(compile(script.read_text(), script, "exec"), {})
            return
        words = [sys.executable, script.name]
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=WITHIN, check=False
        )
        assert done.returncode == 0, done.stderr


def _peak_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for its end; the most bytes of its own that the process had, by looking again and again."""
    most, deadline = 0, time.monotonic() + WITHIN
    while process.poll() is None:
        assert time.monotonic() < deadline, process.args
        try:
            text = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:  # no such files here, or it has just ended
            text = ""
        most = max(most, *(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon:")), 0)
        time.sleep(0.01)
    return most


def is_picture(path: Path) -> bool:
    """Whether a PNG was drawn."""
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000


def needs(*modules: str) -> None:
    """Skip a person who lacks an extra."""
    for module in modules:
        pytest.importorskip(module)
