"""What a fit ends with, carried to other processes; and what belongs to single sites."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError, SiteElsewhereError
from eigenpact.estimators.graph.kernel import KernelResult
from eigenpact.estimators.pca import JointResult
from eigenpact.estimators.personalized import PersonalResult
from eigenpact.estimators.results import OfSites, Result
from eigenpact.estimators.robust import RobustResult
from eigenpact.runtime import Ledger, Outcome

ROWS = {name: np.random.default_rng(i).normal(size=(20, 5)) * [4, 3, 2, 1, 1] for i, name in enumerate("abc")}


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [
        (JointResult, ep.FederatedPCA(2)),
        (JointResult, ep.FederatedPCA(2, solver="auto", scale="pooled")),
        (PersonalResult, ep.PersonalizedPCA(1, 1)),
        (RobustResult, ep.RobustPCA(2, tell_shares=True)),
        (KernelResult, ep.GraphKernelPCA(1, graph="ring:2")),
    ],
)
@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_a_result_is_the_same_in_every_process(kind: type[Result], estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, types and the order in memory, which decides on the last bits of products."""
    adopted: list[Result] = []
    monkeypatch.setattr(type(estimator), "_adopt", lambda _, result, __: adopted.append(result))
    monkeypatch.setattr(ep.RobustPCA, "_remember", lambda *_: None)
    estimator.set_params(random_state=0).fit(ROWS)
    (sent,) = adopted
    assert type(sent) is kind
    received = kind.from_outcome(Outcome.unpack(sent.to_outcome(SimpleNamespace(ledger=Ledger(), history=[])).pack()))
    for field in fields(kind):
        before, after = getattr(sent, field.name), getattr(received, field.name)
        assert type(before) is type(after), field.name
        if isinstance(before, np.ndarray):
            assert (before.tobytes(), before.dtype, before.flags.fnc) == (after.tobytes(), after.dtype, after.flags.fnc), (
                field.name
            )
        else:
            assert before == after, field.name


def test_what_belongs_to_sites_elsewhere() -> None:
    results = OfSites(("a", "b"), {"a": 1}, "the model", "ask the process that holds it", "node")
    assert results["a"] == 1
    assert dict(results) == {"a": 1}
    with pytest.raises(SiteElsewhereError, match=r"the model of node 'b' is at that node, not in this process .*here: a.*; ask"):
        results["b"]
    with pytest.raises(InputError, match="no node 'c' in this model; the nodes are a, b"):
        results["c"]
