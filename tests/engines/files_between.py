"""Files of three hospitals as they come - a decimal comma, holes, a column that one lacks - and joint fits of them.

What engines between institutions find is compared with ``eigenpact fit`` of the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import eigenpact as ep
from eigenpact.cli import app
from eigenpact.cli.running import Settings
from eigenpact.cli.site_settings import read_policy
from eigenpact.errors import PolicyError
from eigenpact.runtime import read_site_ledger

AGREED = ("age", "bmi", "chol", "rate", "pressure", "weight")
SITES = ("north", "south", "west")

RULES = """\
solvers = ["gram", "krylov", "em"]
fill_missing = true
prepare = ["scale", "residualize"]
compare_columns = true
exact_replies = true
"""
"""All digits leave, so that bits can be compared."""

WORDS: dict[str, dict[str, Any]] = {
    "mean": {"missing": "mean", "features": "union"},
    "em": {"missing": "em", "features": "union", "solver": "auto"},
    "some rounds of em": {"missing": "em", "features": "union", "solver": "auto", "max_rounds": 4},
    "prepared": {"missing": "mean", "features": "union", "prepare": ("residualize:age", "scale:max=3")},
    "one step": {"missing": "mean", "features": "union", "prepare": ("scale:max=3",)},
    "secured": {"missing": "mean", "features": "union", "secure": True},
}
"""What is asked for, in the words of the command line, by what is shown."""


def write_files(folder: Path) -> dict[str, dict[str, str]]:
    """Tables, and a description that does not lie beside its own; the facts of each site that tell of them."""
    rng = np.random.default_rng(5)
    mix = rng.normal(size=(3, 6)) * 2
    sizes = {"north": 40, "south": 35, "west": 30}
    rows = {name: np.round(rng.normal(size=(n, 3)) @ mix + rng.normal(size=(n, 6)) + 20, 3) for name, n in sizes.items()}
    rows["south"][rng.random((35, 6)) < 0.08] = np.nan
    folder.mkdir()
    header = ";".join(["Age", *AGREED[1:]])
    lines = [";".join(f"{x:.3f}".replace(".", ",") for x in row) for row in rows["north"]]
    (folder / "north.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "said.toml").write_text('separator = ";"\ndecimal = ","\n[rename]\nAge = "age"\n')
    lines = [",".join("" if np.isnan(x) else repr(float(x)) for x in row[::-1]) for row in rows["south"]]
    (folder / "south.csv").write_text("\n".join([",".join(AGREED[::-1]), *lines]) + "\n")
    lines = [",".join(repr(float(x)) for x in row[:5]) for row in rows["west"]]  # no weight
    (folder / "west.csv").write_text("\n".join([",".join(AGREED[:5]), *lines]) + "\n")
    opened = {"opener": "eigenpact.data.site_rows:open_rows"}
    facts = {name: opened | {"data": str(folder / f"{name}.csv")} for name in SITES}
    return facts | {"north": facts["north"] | {"description": str(folder / "said.toml")}}


def policy_of(folder: Path) -> dict[str, Any]:
    """The rules as a site's process has them."""
    (folder / "policy.toml").write_text(RULES)
    return read_policy(folder / "policy.toml").to_dict()


def in_one_process(folder: Path, label: str) -> ep.FederatedPCA:
    """``eigenpact fit`` of the same files."""
    words = {"solver": "gram", "max_rounds": 300} | WORDS[label]
    steps = [part for step in words.pop("prepare", ()) for part in ("--prepare", step)]
    flags = ["--secure"] if words.pop("secure", False) else []
    options = [part for name, value in words.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    files = [str(folder / f"{name}.csv") for name in SITES]
    told = ["fit", *files, "--describe", f"north={folder / 'said.toml'}", "-k", "2", "-o", str(folder / label), "-q"]
    result = CliRunner().invoke(app, [*told, *options, *steps, *flags, "--overwrite"])
    assert result.exit_code in (0, 1), result.output  # 1 where rounds were cut short
    return ep.load_model(folder / label)


def between(engine: Any, label: str) -> ep.FederatedPCA:
    """The same over an engine that is open."""
    words = {"solver": "gram", "max_rounds": 300} | WORDS[label]
    asked = Settings(components="2", output="", center="pooled", scale="none", tol=None, seed=0, overwrite=False, **words)
    pca = asked.estimator(AGREED, engine=engine)
    pca.column_names = AGREED
    return pca.fit()


def check_same(engine: Any, folder: Path, label: str) -> None:
    """To the bit: every site reads its own file to the same rows, and sums are added in the same order."""
    there, here = between(engine, label), in_one_process(folder, label)
    for name in ("components_", "mean_", "explained_variance_"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    assert [step.kind for step in there.preparation_ if step.kind != "features"] == [step.kind for step in here.preparation_]
    assert (there.n_samples_seen_, there.n_rounds_) == (here.n_samples_seen_, here.n_rounds_)


def check_refusal(engine: Any, kits: Path) -> None:
    """A run that fills nothing is refused before round 1 by the site with holes, whose own ledger alone says where."""
    before = {name: len(read_site_ledger(kits / name / "ledger.jsonl")) for name in SITES}
    with pytest.raises(PolicyError, match="refused before round 1 by south: rule fill_missing: this site takes part") as told:
        ep.FederatedPCA(2, solver="gram", features="intersection", max_rounds=300, engine=engine).fit()
    assert "missing in" not in str(told.value)
    rows = {name: read_site_ledger(kits / name / "ledger.jsonl")[before[name] :] for name in SITES}
    assert "column 'age' is missing in" in rows["south"][0]["reason"]
    assert [[row["what"] for row in rows[name]] for name in SITES] == [["admitted"], ["refused"], ["admitted"]]
