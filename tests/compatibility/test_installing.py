"""The package as others install it: a wheel and an sdist, built here, that need nothing of this folder."""

from __future__ import annotations

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import eigenpact as ep

pytestmark = pytest.mark.xdist_group("installing")  # built once

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
WHEEL = f"eigenpact-{ep.__version__}-py3-none-any.whl"
QUIET = ["--quiet", "--disable-pip-version-check"]
BARE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "EIGENPACT_DATA")}
"""The environment of somebody who has no checkout."""


@dataclass(frozen=True)
class Built:
    """What ``python -m build`` wrote."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    missing = [name for name in ("build", "hatchling") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed; it is in the extra test")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", str(folder), str(ROOT)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(folder / WHEEL, folder / f"eigenpact-{ep.__version__}.tar.gz")


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    """Also py.typed and the settings of reproductions; it was built from the sdist."""
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "eigenpact").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"eigenpact/py.typed", "eigenpact/reproduce/faps/small.toml"} <= source
    with zipfile.ZipFile(built.wheel) as archive:
        held = {name for name in archive.namelist() if not name.startswith(f"eigenpact-{ep.__version__}.dist-info/")}
    assert held == source


def test_the_wheel_says_what_pyproject_says(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        told = email.message_from_bytes(archive.read(f"eigenpact-{ep.__version__}.dist-info/METADATA"))
        entry = archive.read(f"eigenpact-{ep.__version__}.dist-info/entry_points.txt").decode()
    assert told["Version"] == ep.__version__
    assert told["Requires-Python"] == PYPROJECT["requires-python"]
    assert set(told.get_all("Provides-Extra") or []) == set(PYPROJECT["optional-dependencies"])
    assert "eigenpact = eigenpact.cli:main" in entry


def test_the_sdist_can_be_tested_by_whoever_packs_it(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src/eigenpact/py.typed", "tests/conftest.py"} <= held
    assert not [name for name in held if name.endswith(".pyc") or name.startswith((".venv", "dist", ".git/"))]


def test_pages_name_the_wheel_of_this_release() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs" / "how-to").glob("*.md"), ROOT / "docs" / "tutorial.md"]
    named = {name for page in pages for name in re.findall(r"eigenpact-[\w.]+-py3-none-any\.whl", page.read_text())}
    assert named == {WHEEL}


def ready(environment: Path, folder: Path, *, python: str) -> None:
    """What the README shows, by an installed eigenpact, in a folder that is no checkout."""
    command = str(environment / "bin" / "eigenpact")
    options = {"cwd": folder, "env": BARE, "capture_output": True, "text": True, "timeout": 300}
    where = "import eigenpact, sys; print(eigenpact.__file__, '%d.%d' % sys.version_info[:2])"
    told = subprocess.run([str(environment / "bin" / "python"), "-c", where], **options).stdout.split()
    assert told[0].startswith(str(environment))
    assert told[1] == python
    hospitals = [f"hospitals/{name}.csv" for name in ("cleveland", "hungarian", "va")]
    for words, expected in {
        ("--version",): f"eigenpact {ep.__version__}\n",
        ("federation", "example", "hospitals"): "Wrote consortium.toml and 4 tables",
        ("fit", *hospitals, "-k", "2", "-o", "model"): "scatter_triangle",
        ("transform", "model", hospitals[0], "-o", "scores.csv"): "rows of 2 scores to scores.csv",
    }.items():
        done = subprocess.run([command, *words], **options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout, done.stdout + done.stderr
    assert (folder / "scores.csv").stat().st_size > 1000


def test_the_wheel_works_outside_of_this_folder(built: Built, tmp_path: Path) -> None:
    """In an environment that borrows what eigenpact needs from the tests' own, and eigenpact from the wheel alone."""
    environment, folder = tmp_path / "environment", tmp_path / "elsewhere"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", *QUIET, "--no-deps", "--no-index", str(built.wheel)]
    subprocess.run(install, check=True, env=BARE)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    ready(environment, folder, python="{}.{}".format(*sys.version_info[:2]))


# -- with an index ----------------------------------------------------------------------------------


def pythons() -> dict[str, str]:
    """Those of 3.11 to 3.14 that are on this machine and can make an environment."""
    kept = sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    found = {}
    for name in PYTHONS:
        for place in [shutil.which(f"python{name}"), *(shutil.which(f"python{name}", path=str(path)) for path in kept)]:
            works = [place, "-c", "import ensurepip, venv"] if place else []
            if works and name not in found and not subprocess.run(works, capture_output=True).returncode:
                found[name] = str(place)
    return found


def empty(python: str, folder: Path) -> list[str]:
    """pip of a new environment; the test is skipped where pip reaches no index."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True, env=BARE)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    tried = subprocess.run(
        [*pip, "install", "--dry-run", "--no-deps", *QUIET, "threadpoolctl"], capture_output=True, text=True, env=BARE
    )
    if tried.returncode:
        pytest.skip(f"pip reaches no index here: {tried.stderr.strip().splitlines()[-1]}")
    return pip


@pytest.mark.faults
@pytest.mark.parametrize("name", PYTHONS)
def test_the_wheel_is_installed_into_an_empty_environment(built: Built, name: str, tmp_path: Path) -> None:
    """With all that it needs, from an index, on every Python that is here."""
    known = pythons()
    if name not in known:
        pytest.skip(f"there is no Python {name} on this machine; there are {', '.join(known)}")
    pip = empty(known[name], tmp_path / "environment")
    install = [
        *pip,
        "install",
        *QUIET,
        "--no-compile",
        str(built.wheel),
    ]  # Python compiles what it imports; pip would compile all
    done = subprocess.run(install, capture_output=True, text=True, env=BARE)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([*pip, "check"], capture_output=True, env=BARE).returncode == 0
    (tmp_path / "elsewhere").mkdir()
    ready(tmp_path / "environment", tmp_path / "elsewhere", python=name)


@pytest.mark.faults
def test_all_extras_resolve_together(built: Built, tmp_path: Path) -> None:
    """Those of users; the tests' own environment has them beside the extra test."""
    extras = sorted(set(PYPROJECT["optional-dependencies"]) - {"test"})
    pip = empty(sys.executable, tmp_path / "environment")
    wanted = f"{built.wheel}[{','.join(extras)}]"
    done = subprocess.run([*pip, "install", "--dry-run", *QUIET, wanted], capture_output=True, text=True, env=BARE)
    assert done.returncode == 0, done.stderr
