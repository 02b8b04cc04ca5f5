"""The Flower App of eigenpact: a bundle that names classes of the installed eigenpact and brings no code of its own.

``flwr run`` builds the bundle from a folder with one file, sends it to the SuperLink, and the SuperLink to every site.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ...errors import FileError
from ...storage import writing

SERVER_APP = "eigenpact.cli.flower_server:server"
CLIENT_APP = "eigenpact.engines.flower.site:client"

SETTINGS: dict[str, str | int | float] = {
    "components": "",
    "features": "",
    "output": "",
    "solver": "auto",
    "center": "pooled",
    "scale": "none",
    "prepare": "",
    "missing": "refuse",
    "tol": 0.0,
    "max-rounds": 300,
    "seed": 0,
    "secure": False,
    "go-on-without": 0,
    "agreement": "strict",
    "check-units": False,
    "sites": "",
    "min-sites": 0,
    "round-timeout": 120.0,
    "start-timeout": 60.0,
    "overwrite": False,
    "relay": "",
    "relay-key": "",
}
"""What ``flwr run -c`` may set; those of a relay are for ``eigenpact coordinator run`` alone."""


def write_app(folder: Path, settings: Mapping[str, str | int | float] | None = None) -> None:
    """Write the app's folder, for ``flwr run``."""
    if folder.exists():
        raise FileError(f"{folder} exists already; choose another folder")
    values = SETTINGS | dict(settings or {})
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    text = f"""\
[project]
name = "eigenpact-app"
version = "1.0.0"
description = "Joint PCA over the sites of a Flower federation; runs what eigenpact the SuperLink and the sites have installed."
license = "BSD-3-Clause"
dependencies = []

[tool.flwr.app]
publisher = "eigenpact"

[tool.flwr.app.components]
serverapp = "{SERVER_APP}"
clientapp = "{CLIENT_APP}"

[tool.flwr.app.config]
{lines}"""
    with writing(folder, "choose another folder"):
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
