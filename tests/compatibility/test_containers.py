"""The container of a site: it has no secrets, no root and no table of its own; built where something can build it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "containers" / "site" / "Containerfile"
PAGE = ROOT / "docs" / "how-to" / "federate.md"
SECRETS = re.compile(r"secret|token|password|passwd|private|credential|api_?key|\.pem|\.key|kit/|parties\.json", re.IGNORECASE)


def instructions(text: str) -> list[tuple[str, str]]:
    """What each line says, long lines put together and comments left out."""
    bare = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", bare).splitlines()
    return [(line.split()[0].upper(), line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def wrong(text: str) -> list[str]:
    """Rules that a container file breaks."""
    found, user, stages = [], "root", set[str]()
    for what, rest in instructions(text):
        words = rest.split()
        if what == "FROM":
            user = "root"
            if words[0] not in stages and not re.search(r":\d+\.\d+\.\d+-slim-\w+$", words[0]):
                found.append(f"the base {words[0]} is not a Debian slim one pinned by its version")
            stages |= set(words[2:])
        if what == "USER":
            user = words[0]
        if what == "ADD":
            found.append(f"ADD {rest} may fetch or unpack; use COPY")
        if what == "COPY" and not (words[0].startswith("--from=") or words[:-1] == ["dist/*.whl"]):
            found.append(f"COPY {rest} brings more than the wheel")
        if what in ("ENV", "ARG", "COPY", "LABEL") and SECRETS.search(rest):
            found.append(f"{what} {rest} looks like a secret in a layer")
        if what == "RUN" and re.search(r"https?://|curl|wget|index-url|find-links|chmod [ugoa+]*s|sudo", rest):
            found.append(f"RUN {rest} fetches or raises rights")
        if what == "RUN" and "pip install" in rest and "--no-cache-dir" not in rest:
            found.append("pip leaves its cache in a layer")
    uid = user.partition(":")[0]
    if not uid.isdigit() or int(uid) < 1000:
        found.append(f"the last stage runs as {user}; it must be a number of a user that is not root")
    return found


def commands(page: str) -> list[str]:
    """Commands that run the container, as the page writes them."""
    section = page.split("## A site in a container")[1].split("\n## ")[0]
    joined = section.replace("\\\n", " ")
    return [line for line in re.findall(r"^\$ (.*)$", joined, re.MULTILINE) if re.match(r"(podman|docker) run", line)]


def lax(command: str) -> list[str]:
    """What a documented command leaves open."""
    mounts = re.findall(r"(?:-v|--volume) (\S+)", command)
    found = [f"{mount} is not read-only" for mount in mounts if ":/data" in mount and not mount.rstrip('"').endswith(":/data:ro")]
    found += [] if any(":/data" in mount for mount in mounts) else ["no table is mounted"]
    found += [
        f"{option} is missing" for option in ("--read-only", "--cap-drop all", "no-new-privileges") if option not in command
    ]
    return found + [f"{option} is there" for option in ("--privileged", "--network host", "docker.sock") if option in command]


def test_the_container_of_a_site_keeps_the_rules() -> None:
    assert wrong(FILE.read_text()) == []
    ignored = (FILE.parent / "Containerfile.containerignore").read_text().splitlines()
    assert [line for line in ignored if not line.startswith("#")] == ["*", "!dist", "dist/*", "!dist/*.whl"]


def test_the_page_mounts_the_table_read_only() -> None:
    found = commands(PAGE.read_text())
    assert len(found) >= 2
    assert {command: lax(command) for command in found} == {command: [] for command in found}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("USER 10001", "USER root", "runs as root"),
        ("USER 10001", "USER 0:0", "runs as 0:0"),
        ("USER 10001\n", "", "runs as root"),
        (":3.12.8-slim-bookworm", ":latest", "pinned"),
        (":3.12.8-slim-bookworm", ":3-slim", "pinned"),
        ("COPY dist/*.whl /wheels/", "COPY . /wheels/", "more than the wheel"),
        ("COPY dist/*.whl /wheels/", "ADD https://example.org/eigenpact.whl /wheels/", "use COPY"),
        ("ARG EXTRAS=nvflare", "ARG EXTRAS=nvflare\nENV API_TOKEN=abc", "secret in a layer"),
        ("--no-cache-dir ", "", "cache in a layer"),
        ("RUN useradd", "RUN curl -O x && useradd", "fetches"),
    ],
)
def test_the_rules_can_fail(old: str, new: str, told: str) -> None:
    text = FILE.read_text()
    assert old in text
    assert any(told in line for line in wrong(text.replace(old, new)))


def test_the_rules_of_commands_can_fail() -> None:
    good = commands(PAGE.read_text())[0]
    assert lax(good.replace(":/data:ro", ":/data")) != []
    assert lax(good.replace("--read-only", "")) == ["--read-only is missing"]
    assert lax(good + " --privileged") == ["--privileged is there"]


def builder() -> str:
    """What can build a container here; empty if nothing can."""
    for name, asks in {"podman": ["info"], "buildah": ["info"], "docker": ["info"]}.items():
        if shutil.which(name) and not subprocess.run([name, *asks], capture_output=True, timeout=30).returncode:
            return name
    return ""


@pytest.mark.faults
def test_the_container_is_built_and_says_its_version(tmp_path: Path) -> None:
    """By a wheel that was built from this source; the container runs without a network, as nobody."""
    import eigenpact

    name = builder()
    if name not in ("podman", "docker"):
        pytest.skip("there is no podman or docker that works here; the container file was linted")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "-w", "-o", str(tmp_path / "dist"), str(ROOT)], check=True)
    built = subprocess.run(
        [name, "build", "-q", "-f", str(FILE), "--build-arg", "EXTRAS=secure", str(tmp_path)], capture_output=True, text=True
    )
    if built.returncode and re.search(r"registry|resolve|dial|timeout|pull", built.stderr):
        pytest.skip(f"the base image cannot be fetched here: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    run = [name, "run", "--rm", "--read-only", "--network", "none", "--cap-drop", "all", built.stdout.split()[-1]]
    told = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True).stdout
    assert told == f"eigenpact {eigenpact.__version__}\n"
