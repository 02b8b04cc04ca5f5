"""Run by test_installed_solvers in a process that has the packages installed: one JSON object of what it saw."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.cli.site_settings import read_policy
from eigenpact.estimators.plans import functions_of
from eigenpact.estimators.registry import estimator_of, solvers_for
from eigenpact.report.comparison import compare
from eigenpact.runtime import Gate, MailConnection, Policy, SiteEndpoint, SiteLedger, SiteServer

NEW = {"thrice": "FederatedPCA", "nystrom": "FederatedPCA", "projectors": "PersonalizedPCA", "clipped": "RobustPCA"}
RING = {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}


class Mail:
    """An engine by messages: every site is an endpoint with a policy of its own, asked by bytes."""

    spread, min_sites, costs = False, 1, ep.engines.InProcess().costs

    def __init__(self, folder: Path, policy: Policy) -> None:
        folder.mkdir()
        self.folder, self.policy, self.bytes = folder, policy, 0

    def execute(self, held: Any, job: Any, graph: Any = None) -> Any:  # noqa: ARG002
        features = next(iter(held.values())).shape[1]
        self.endpoints = {}
        for name, X in held.items():
            gate = Gate(name, self.policy, SiteLedger(self.folder / name), n_rows=len(X), features=features)
            self.endpoints[name] = SiteEndpoint(SiteServer(name, np.asarray(X), gate=gate))
        self.replies: list[tuple[str, bytes]] = []
        return job(MailConnection(self, self.endpoints, round_timeout=5.0, announces=True, features=features))

    def now(self) -> float:
        return 0.0

    def send(self, site: str, data: bytes) -> None:
        self.bytes += len(data)
        self.replies.append((site, self.endpoints[site].handle(data)))

    def receive(self, _until: float) -> tuple[str, bytes] | None:
        return self.replies.pop(0) if self.replies else None


def main(folder: Path, docs: Path) -> dict[str, Any]:
    """What the installed solvers do, each in its place."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6)) * [9.0, 5.0, 2.0, 1.0, 1.0, 1.0]
    sites = {"a": X[:40], "b": X[40:80], "c": X[80:]}
    exact = ep.FederatedPCA(2, solver="gram").fit(sites).components_
    seen: dict[str, Any] = {"estimators": {name: estimator_of(solvers_for(*set(NEW.values()))[name]) for name in NEW}}
    make = {
        "thrice": lambda engine: ep.FederatedPCA(2, solver="thrice", random_state=0, engine=engine),
        "nystrom": lambda engine: ep.FederatedPCA(2, solver="nystrom", random_state=0, engine=engine),
        "projectors": lambda engine: ep.PersonalizedPCA(2, 1, solver="projectors", misalignment=False, engine=engine),
        "clipped": lambda engine: ep.RobustPCA(2, solver="clipped", engine=engine),
    }
    allowed = {
        "solvers": list(NEW),
        "functions": sorted({f for name in NEW for f in functions_of(name)}),
        "min_rows": 5,
        "max_rounds": 5000,
    }
    for name, estimator in make.items():
        engine = Mail(folder / name, Policy.from_dict(allowed))
        found = estimator(engine).fit(sites).components_
        seen[name] = [float(abs(np.linalg.det(found @ exact.T))), engine.bytes > 0]
    node = ep.GraphKernelPCA(1, kernel="linear", center=False, solver="alone", graph=RING).fit(sites)
    unit = sites["a"] / np.linalg.norm(sites["a"], axis=1, keepdims=True)  # kernels are scaled to cosines
    exact_scores, scores = unit @ np.linalg.svd(unit)[2][0], node.transform(sites["a"], site="a")[:, 0]
    seen["alone"] = float(abs(scores @ exact_scores) / np.linalg.norm(scores) / np.linalg.norm(exact_scores))
    try:
        narrow = Policy.from_dict(allowed | {"solvers": ["gram"], "functions": list(functions_of("gram"))})
        make["nystrom"](Mail(folder / "narrow", narrow)).fit(sites)
    except ep.errors.EigenpactError as error:
        seen["refused"] = str(error)
    seen["compared"] = [run.name for run in compare(sites, 2).runs]
    listing = folder / "policy.toml"
    listing.write_text(f"solvers = {json.dumps(list(NEW))}\n")
    for label, path in {"default policy": None, "policy that lists them": listing}.items():
        seen[label] = [f for f in read_policy(path).functions if not f.startswith("eigenpact:")]
    spec = importlib.util.spec_from_file_location("docs_generate", docs / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    seen["wire table"] = [line for line in generate.wire_page().splitlines() if line.startswith("## ")]
    seen["solvers page"] = [line.split("`")[1] for line in generate.solvers_page().splitlines() if line.startswith("| `")]
    return seen


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
