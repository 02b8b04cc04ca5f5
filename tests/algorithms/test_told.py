"""What a coordinator makes of what a site told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.algorithms.consensus.faps import consensus_step
from eigenpact.algorithms.consensus.localpower import local_power
from eigenpact.algorithms.setup import count_and_sum, spread
from eigenpact.algorithms.start import leading_directions
from eigenpact.algorithms.statistical.one_shot import own_directions
from eigenpact.algorithms.told import COARSEST
from eigenpact.runtime.doubts import Doubts, Told

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)) * [5, 3, 1, 1, 1, 0.1] + [3, -2, 0, 1e3, 0, 0]
SITES = {"A": X[:15], "B": X[15:20], "C": X[20:]}


def doubt(function: Any, told: Told, *args: Any) -> str:
    assert function.doubt is not None
    return str(function.doubt(told, *args))


def known(trace: float = 10.0) -> Told:
    return Told(facts={"trace": trace, "slack": 1e-11 * trace, "n": 60.0})


@pytest.mark.parametrize("center", ["pooled", "site", False])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_the_trace_of_every_site_is_known_after_the_set_up(center: Any, scale: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Doubts] = []
    original = Doubts.__init__
    monkeypatch.setattr(Doubts, "__init__", lambda self, *given: (noted.append(self), original(self, *given))[1])
    pca = ep.FederatedPCA(2, solver="krylov", center=center, scale=scale).fit(SITES)
    told = noted[-1].numbers()
    for name, rows in SITES.items():
        centre = {"pooled": X.mean(axis=0), "site": rows.mean(axis=0), False: 0.0}[center]
        np.testing.assert_allclose(told[name]["trace"], np.sum(((rows - centre) / pca.scale_) ** 2), rtol=1e-12)
        assert told[name]["slack"] < 1e-10 * told[name]["trace"]


@pytest.mark.parametrize("solver", ["gram", "krylov", "power"])
@pytest.mark.parametrize("center", ["pooled", "site", False])
@pytest.mark.parametrize("kind", ["far", "constant", "one row", "sparse", "tiny", "mixed", "single"])
def test_no_honest_site_is_doubted(solver: str, center: Any, kind: str) -> None:
    """In one process a doubt would be an error."""
    Y = RNG.normal(size=(60, 8)) * np.arange(1, 9)
    sites: dict[str, Any] = {"A": Y[:30], "B": Y[30:]}
    sites |= {
        "far": {"B": Y[30:] + 1e9},
        "constant": {"C": np.full((7, 8), 0.1)},
        "one row": {"C": Y[:1] + 1},
        "sparse": {"B": scipy.sparse.random(50, 8, 0.3, format="csr", random_state=0)},
        "tiny": {"C": Y[:5] * 1e-120},
        "mixed": {"B": Y[30:] * [1e9, 1, 1, 1, 1, 1e-9, 1, 1]},
        "single": {"B": Y[30:].astype(np.float32)},
    }[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # whether such data have an answer is not the question
        assert set(ep.FederatedPCA(1, solver=solver, center=center, max_rounds=30, random_state=0).fit(sites).sites_) == set(
            sites
        )


def test_counts_and_sums() -> None:
    one, none, sums = np.int64(1), np.int64(0), np.ones(3)
    assert doubt(count_and_sum, Told(), one, none, np.int64(5), sums) == ""
    assert "2 site(s)" in doubt(count_and_sum, Told(), np.int64(2), none, np.int64(5), sums)
    assert "0 rows" in doubt(count_and_sum, Told(), one, none, none, sums)
    assert doubt(count_and_sum, Told(2), np.int64(2), none, np.int64(5), sums) == ""


def test_the_spread_follows_from_the_sums() -> None:
    def told() -> Told:
        return Told(facts={"n": 10.0, "mean": np.array([1.0, 2.0])})

    mean, exact = np.zeros(2), np.float64(0.0)
    assert doubt(spread, told(), mean, np.float64(7.0), np.float64(50.0), exact) == ""
    assert "distance of its mean" in doubt(spread, told(), mean, np.float64(7.0), np.float64(50.001), exact)
    assert "overflow" in doubt(spread, told(), mean, np.float64(np.inf), np.float64(50.0), exact)
    assert "rounds replies" in doubt(spread, told(), mean, np.float64(7.0), np.float64(50.0), np.float64(4 * COARSEST**2))
    assert doubt(spread, told(), np.full(2, 1e200), np.float64(7.0), np.float64(np.inf), exact) == "", "another site is to blame"


def test_messages_are_within_the_trace() -> None:
    Z, q = np.eye(4)[:, :2], np.int64(3)
    for size, wrong in ((9.9, False), (10.1, True)):
        G = np.zeros((4, 2))
        G[0, 0] = size
        assert bool(doubt(local_power, known(), Z, q, q, G)) is wrong
        assert bool(doubt(leading_directions, known(), q, np.sqrt(G))) is wrong
        step = Z, q, q, np.float64(0.12), np.float64(1.0), np.float64(0.2)
        assert bool(doubt(consensus_step, known(), *step, 3.55 * G, np.float64(1.0), np.zeros(7))) is wrong
        assert bool(doubt(consensus_step, known(), *step, G, np.float64(size), np.zeros(7))) is wrong
    assert "60 before" in doubt(own_directions, known(), q, q, np.zeros((4, 2)), np.int64(61))
    assert doubt(own_directions, known(), q, q, np.zeros((4, 2)), np.int64(60)) == ""


def test_without_a_set_up_nothing_is_compared() -> None:
    """As after a resume whose journal lacks it: forms are still looked at."""
    G = np.full((4, 2), 1e9)
    assert doubt(local_power, Told(), np.eye(4)[:, :2], np.int64(3), np.int64(0), G) == ""
    assert "not finite" in Doubts().about(local_power, "A", (np.eye(4)[:, :2], np.int64(3), np.int64(0)), (np.inf * G,))
