"""The command itself: version, help, errors, and a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from eigenpact.cli import COMMANDS
from eigenpact.cli.options import SOLVERS
from eigenpact.errors import FileError
from eigenpact.estimators.choices import joint_solvers

EIGENPACT = Path(sys.executable).with_name("eigenpact")


def process(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([EIGENPACT, *args], cwd=cwd, env=os.environ | env, text=True, capture_output=True, timeout=60)


def test_version(run):
    assert run("--version").stdout == f"eigenpact {version('eigenpact')}\n"


@pytest.mark.parametrize("command", ["demo", "fit", "transform", "show"])
def test_help_has_an_example(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: eigenpact {command}" in result.stdout


def test_unknown_words_are_told_in_a_line(run):
    assert told(run, "fitt") == "error: eigenpact has no command 'fitt'; did you mean fit?\n"
    assert told(run, "xyzzy").startswith("error: eigenpact has no command 'xyzzy'; there is demo, fit, ")
    assert "no such option" in told(run, "fit", "--compnents", 3)
    assert "; see eigenpact fit --help" in told(run, "fit", "--compnents", 3)
    assert (
        told(run, "fit", "north.csv", "-k")
        == "error: eigenpact fit: option '-k' requires an argument; see eigenpact fit --help\n"
    )
    assert told(run, "site", "strt").count("start") == 1


def told(run, *words) -> str:
    """The one line about a wrong use."""
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    return str(result.stderr)


HEAVY = ("numpy", "scipy", "sklearn", "matplotlib", "networkx", "pandas", "rich", "typer", "click")


def imported(*args: str, cwd: Path) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """What a process of the command did, and the modules that it imported."""
    done = process(*args, cwd=cwd, PYTHONPROFILEIMPORTTIME="1")
    lines = done.stderr.splitlines()
    rest = "\n".join(line for line in lines if not line.startswith("import time:"))
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines if line.startswith("import time:")}
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout, rest), names


def test_help_version_and_typos_import_nothing_heavy_and_say_what_the_group_says(run, tmp_path):
    for words in (["--help"], ["--version"], [], ["fitt"], ["--hlep"]):
        done, names = imported(*words, cwd=tmp_path)
        assert names.isdisjoint(HEAVY), words
        assert "eigenpact" in names
        within = run(*words)
        assert done.returncode == within.exit_code
        if words and "--hlep" not in words:  # click has words and places of its own
            assert (done.stdout, done.stderr) == (within.stdout, within.stderr.rstrip("\n"))


@pytest.mark.parametrize("command", ["fit", "transform", "show", "compare", "describe", "export"])
def test_options_are_read_without_the_numeric_stack(tmp_path, command):
    numeric = set(HEAVY) - {"rich", "typer", "click"}
    done, names = imported(command, "--help", cwd=tmp_path)
    assert (done.returncode, "Usage: " in done.stdout) == (0, True)
    assert names.isdisjoint(numeric)
    done, names = imported(command, "--typo", cwd=tmp_path)
    assert done.returncode == 2
    assert names.isdisjoint(numeric | {"rich"})


def test_the_list_of_commands_says_what_each_says_of_itself(run):
    listed = run("--help").stdout
    for name, command in COMMANDS.items():
        assert f"  {name:11}  {command.summary}\n" in listed
        own = " ".join(run(name, "--help").stdout.split())
        assert " ".join(command.summary.split()[:4]) in own


def test_the_solvers_of_the_help_are_those_there_are():
    own = [name for name, solver in joint_solvers().items() if solver.__module__.startswith("eigenpact.")]
    assert list(SOLVERS) == own


def test_fit_as_a_process_and_transform(run, tmp_path):
    fitted = process("fit", "north.csv", "south.csv", "west.npy", "-k", "2", "-o", "model", cwd=tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    assert "sites          3: north, south, west" in fitted.stdout
    assert fitted.stderr.startswith("round 1 ")
    scored = run("transform", "model", "north.csv", "-o", "scores.npy")
    assert scored.exit_code == 0, scored.stderr
    assert np.load(tmp_path / "scores.npy").shape == (30, 2)


def test_error_is_one_line_unless_debugging(tmp_path):
    short = process("show", "nowhere", cwd=tmp_path)
    assert (short.returncode, short.stdout) == (2, "")
    assert short.stderr == "error: nowhere does not exist; give the folder of a model\n"
    long = process("show", "nowhere", cwd=tmp_path, EIGENPACT_DEBUG="1", PYTHONPROFILEIMPORTTIME="1")
    assert long.returncode == 1
    assert "Traceback" in long.stderr
    assert "eigenpact.estimators.model_files" in long.stderr
    assert "eigenpact.reproduce" not in long.stderr  # another command's
    assert "matplotlib" not in long.stderr  # a command that draws nothing does not wait for it


def test_debug_raises_the_error_itself(run, monkeypatch):
    monkeypatch.setenv("EIGENPACT_DEBUG", "1")
    assert isinstance(run("show", "nowhere").exception, FileError)


NUMERIC = ("numpy", "scipy", "sklearn", "pandas", "matplotlib", "rich", "eigenpact.runtime", "eigenpact.numerics")

ASK_ALL = """
import sys
from typer.testing import CliRunner
from eigenpact.cli.application import app
from eigenpact.cli import COMMANDS
import typer.main

group = typer.main.get_command(app)
asked = 0
for name in COMMANDS:
    inner = getattr(group.get_command(None, name), "makers", ())
    for words in [[name]] + [[name, part] for part in inner]:
        for option, code in (("--help", 0), ("--tyop", 2)):
            done = CliRunner().invoke(app, [*words, option], prog_name="eigenpact")
            assert done.exit_code == code, (words, option, done.output)
            if code:
                assert done.stderr.startswith(f"error: eigenpact {' '.join(words)}: no such option"), done.stderr
                assert done.stderr.count("\\n") == 1, done.stderr
            asked += 1
print(asked, *(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_help_and_misspelt_options_import_nothing_that_computes():
    """Of every command, and of every command of a group; one line tells what was misspelt."""
    done = subprocess.run([sys.executable, "-c", ASK_ALL, *NUMERIC], capture_output=True, text=True, check=True)
    asked, *imported = done.stdout.split()
    assert int(asked) >= 2 * (len(COMMANDS) + 14)
    assert imported == []
