"""``weights`` in the description of a site's file: in ``fit``, refused elsewhere, and at a site with a gate."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import eigenpact as ep
from eigenpact.cli.site_settings import describe, read_policy
from eigenpact.engines.federation.identities import public_of
from eigenpact.engines.federation.trust import own_from
from eigenpact.engines.threads import ThreadPost
from eigenpact.errors import EigenpactError, PolicyError
from eigenpact.estimators.plans import functions_of, functions_of_steps, functions_to_fill
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import Costs, MailConnection, Plan, Policy, SiteEndpoint, SiteLedger

NAMES = ("age", "bmi", "rate")
SIZES = {"a": 40, "b": 30, "c": 35}


@pytest.fixture
def weighted_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, Any]]:
    """Three files with a column "times", which says at two of them how often a row counts."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    found = {}
    for name, n in SIZES.items():
        X, times = np.round(rng.normal(size=(n, 3)) * [9, 4, 1] + [54, 25, 70], 4), rng.integers(0, 4, n)
        lines = [",".join([*NAMES, "times"]), *(",".join([*map(str, row), str(t)]) for row, t in zip(X, times, strict=True))]
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
        Path(f"{name}.csv.toml").write_text('drop = ["times"]\n' if name == "c" else 'weights = "times"\n')
        found[name] = X, np.ones(n) if name == "c" else times
    return found


def truth(sites: dict[str, tuple[Any, Any]]) -> Any:
    return np.concatenate([np.repeat(X, times.astype(int), axis=0) for X, times in sites.values()])


def test_fit_takes_the_weights_of_descriptions(run: Any, weighted_sites: Any) -> None:
    result = run("fit", "a.csv", "b.csv", "c.csv", "-k", "2", "-o", "model")
    assert result.exit_code == 0, result.output
    total = int(weighted_sites["a"][1].sum())
    assert f"rows are weighted by 'times', which adds up to {total}" in " ".join(result.stderr.split())
    pca, rows = ep.load_model("model"), truth(weighted_sites)
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / (len(rows) - 1))
    assert np.allclose(pca.explained_variance_, values[::-1][:2], rtol=1e-10)
    assert largest_sine(pca.components_.T, vectors[:, ::-1][:, :2]) < 1e-9
    assert pca.weight_sum_ == len(rows)
    assert "sum of weights" in run("show", "model", "--json", "model.json").stdout
    told = json.loads(Path("model.json").read_text())
    assert (told["weight_sum"], told["solver"], told["secured"]) == (len(rows), pca.solver_, False)
    assert run("transform", "model", "a.csv", "-o", "scores.npy").exit_code == 0
    assert np.allclose(np.load("scores.npy"), pca.transform(pd.DataFrame(weighted_sites["a"][0], columns=NAMES)))


@pytest.mark.usefixtures("weighted_sites")
@pytest.mark.parametrize("command", [("compare",), ("audit", "--real-rows")])
def test_commands_that_know_of_no_weights_refuse_them(run: Any, command: tuple[str, ...]) -> None:
    result = run(command[0], "a.csv", "b.csv", "c.csv", *command[1:])
    assert result.exit_code == 2
    assert "error: site 'a': its description names weights" in result.stderr


@pytest.mark.usefixtures("weighted_sites")
@pytest.mark.parametrize("options", [("--missing", "mean"), ("--prepare", "scale"), ("--solver", "one-shot")])
def test_options_that_do_not_go_with_weights(refused: Any, options: tuple[str, str]) -> None:
    told = refused("fit", "a.csv", "b.csv", "c.csv", "-k", "2", "-o", "model", "-q", *options)
    assert "weights of rows (sample_weight) do not go with" in told


@dataclass(frozen=True)
class Gated:
    """Sites behind their gates, in this process, as an engine between institutions serves them."""

    servers: dict[str, Any]
    spread = False
    min_sites = 3
    costs = Costs(latency=1e-4, bandwidth=5e9, flops=2e10)

    def execute(self, sites: Any, job: Any, *, graph: Any = None) -> Any:  # noqa: ARG002
        with closing(ThreadPost({name: SiteEndpoint(server) for name, server in self.servers.items()})) as post:
            return job(MailConnection(post, self.servers, round_timeout=30.0, announces=True, features=NAMES))


def gated(folder: Path, **rules: Any) -> Gated:
    keys = {name: public_of(own_from(SiteLedger(folder / f"{name}.jsonl").secret())) for name in SIZES}
    policy = Policy.from_dict(read_policy(None).to_dict() | {"min_rows": 5, "participants": keys} | rules)
    facts = {name: describe(name, folder / f"{name}.csv", NAMES, policy, folder / f"{name}.jsonl") for name in SIZES}
    return Gated({name: said.server()[0] for name, said in facts.items()})


def test_sites_with_gates_weigh_their_own_rows(weighted_sites: Any, tmp_path: Path) -> None:
    engine = gated(tmp_path, exact_replies=True)
    pca = ep.FederatedPCA(2, solver="krylov", engine=engine, random_state=0, max_rounds=300).fit(sample_weight=True)
    rows = truth(weighted_sites)
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / (len(rows) - 1))
    assert np.allclose(pca.explained_variance_, values[::-1][:2], rtol=1e-10)
    assert largest_sine(pca.components_.T, vectors[:, ::-1][:, :2]) < 1e-9


@pytest.mark.usefixtures("weighted_sites")
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    ("estimator", "told"),
    [
        (ep.FederatedPCA(2, solver="krylov"), "rule weights: .* of which this run knows nothing; run it with --weights"),
        (ep.FederatedPCA(2, solver="krylov", missing="mean"), "rule weights: .* without --missing and --prepare"),
        (ep.FederatedPCA(2, missing="em"), "rule weights: .* without --missing and --prepare"),
        (ep.FederatedPCA(2, solver="krylov", prepare=[ep.prepare.Scale()]), "rule weights: .* without --missing and --prepare"),
        (ep.PersonalizedPCA(1, 1, solver="varpro"), "rule weights: .* of which this run knows nothing"),
    ],
)
def test_gates_refuse_runs_that_know_of_no_weights(tmp_path: Path, secure: bool, estimator: Any, told: str) -> None:
    """More often than ``max_failures``: before a round, so that no failure is counted and no site falls silent."""
    rules: dict[str, Any] = {
        "exact_replies": True,
        "max_rounds": 1000,
        "fill_missing": True,
        "allow_site_means": True,
        "allow_gather": True,
    }
    rules["functions"] = [*read_policy(None).functions, *functions_to_fill(), *functions_of_steps(["scale"])]
    rules["functions"] = sorted({*rules["functions"], *functions_of("em"), *functions_of("varpro")})
    rules["solvers"] = ["krylov", "em", "varpro"]
    engine = gated(tmp_path, **rules)
    for _ in range(Policy.max_failures + 1):
        with pytest.raises(EigenpactError, match=told):
            clone(estimator).set_params(engine=engine, secure=secure, random_state=0, max_rounds=300).fit()
    for name in "ab":
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert {row["what"] for row in rows} == {"refused"}
    right = ep.FederatedPCA(2, solver="krylov", engine=engine, secure=secure, random_state=0, max_rounds=300)
    assert right.fit(sample_weight=True).converged_


@pytest.mark.usefixtures("weighted_sites")
def test_a_gate_refuses_a_plan_that_counts_rows_beside_their_weights(tmp_path: Path) -> None:
    """A coordinator who announces both functions could provoke failures with the one that does not take weights."""
    server = gated(tmp_path).servers["a"]
    names = ("eigenpact:count_and_sum/1", "eigenpact:weigh_and_sum/1")
    for functions, good in ((names, False), (names[:1], False), (names[1:], True)):
        plan = Plan("krylov", functions, ("sum",), 300, 2, NAMES)
        if good:
            server.admit("r", plan.to_dict())
        else:
            with pytest.raises(PolicyError, match="rule weights"):
                server.admit("r", plan.to_dict())


@pytest.mark.usefixtures("weighted_sites")
def test_min_rows_counts_rows_by_their_weights(tmp_path: Path) -> None:
    lines = Path("a.csv").read_text().splitlines()
    lines[1:] = [",".join([*line.split(",")[:3], "1" if i == 0 else "0.0001"]) for i, line in enumerate(lines[1:])]
    Path("a.csv").write_text("\n".join(lines) + "\n")
    engine = gated(tmp_path)
    with pytest.raises(EigenpactError, match="rule min_rows = 5: this site has fewer"):
        ep.FederatedPCA(2, solver="krylov", engine=engine, random_state=0, max_rounds=300).fit(sample_weight=True)
