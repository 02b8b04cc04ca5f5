"""``PrivatePCA``: what it finds, promises, spends, repeats and refuses."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import eigenpact as ep
from eigenpact.algorithms.private.moments import noisy_moments
from eigenpact.algorithms.private.noisy_gram import noisy_triangle
from eigenpact.engines.inprocess import InProcess, InProcessConnection
from eigenpact.errors import InputError, NotIdentifiableWarning, PolicyError, TooFewSitesError
from eigenpact.numerics.accounting import epsilon_by_losses, rho_for
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import COORDINATOR, Request, Response, SiteServer, read_budget
from eigenpact.runtime.purse import total_rho

SCALES = np.array([2.0, 1.4, 0.3, 0.2, 0.1, 0.1])
ASKED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "row_bound": 6.0}
SMALL = ASKED | {"epsilon": 8.0}


def three_sites(n: int = 6000, offset: float = 1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: offset + rng.normal(size=(n + 100 * i, 6)) * SCALES for i, name in enumerate("ABC")}


def exact(sites: dict[str, np.ndarray], k: int) -> np.ndarray:
    X = np.concatenate(list(sites.values()))
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k].T


@pytest.mark.parametrize("solver", ["auto", "noisy-gram", "noisy-subspace"])
@pytest.mark.parametrize("honest", [None, 3])
def test_components_are_near_the_exact_ones(solver: str, honest: int | None) -> None:
    sites = three_sites()
    pca = ep.PrivatePCA(2, **ASKED, solver=solver, honest_sites=honest, random_state=0).fit(sites)
    truth = exact(sites, 2)
    sine = largest_sine(pca.components_.T, truth)
    assert sine < (0.25 if solver == "noisy-subspace" else 0.05)
    if solver != "noisy-subspace":
        assert pca.angle_estimate_ is not None
        assert sine <= pca.angle_estimate_ + 0.005  # cutting rows and the mean are not in it
    assert np.allclose(pca.mean_, 1, atol=0.1)
    assert abs(pca.n_samples_seen_ - 18300) < 300
    assert np.allclose(pca.explained_variance_, SCALES[:2] ** 2, rtol=0.1)
    assert np.allclose(pca.components_ @ pca.components_.T, np.eye(2))
    assert pca.transform(sites["A"]).shape == (6000, 2)
    assert pca.inverse_transform(pca.transform(sites["A"])).shape == (6000, 6)


def test_the_result_carries_what_is_promised_and_assumed() -> None:
    pca = ep.PrivatePCA(1, **ASKED, honest_sites=2).fit(three_sites(2000))
    assert (pca.epsilon_, pca.delta_, pca.unit_, pca.honest_sites_) == (pytest.approx(1.0), 1e-6, "row", 2)
    assert pca.rho_ == pytest.approx(rho_for(1.0, 1e-6))
    assert 1.0 < pca.epsilon_zcdp_ < 1.15
    assert pca.epsilon_single_reply_ > 1.3
    assert re.search(r"any one row was there .* exp\(1\), .* 1e-06, if 2 of 3 sites add their share", pca.promise_)
    assert "sums were not secured: to whoever sees single replies" in pca.promise_
    alone = ep.PrivatePCA(1, **ASKED).fit(three_sites(2000))
    assert alone.epsilon_single_reply_ == pytest.approx(1.0)
    assert "secured" not in alone.promise_
    assert pca.noise_deviation_ == pytest.approx(alone.noise_deviation_ / np.sqrt(2))


def test_only_declared_sums_with_noise_leave_and_their_costs_add_up(tmp_path: Path) -> None:
    """Every reply is paid for in the site's own file; the account of these lines is what is promised."""
    for solver, functions in {"noisy-gram": {"noisy_triangle"}, "noisy-subspace": {"noisy_product"}}.items():
        folder = tmp_path / solver
        pca = ep.PrivatePCA(2, **ASKED, solver=solver, budget=folder, random_state=0).fit(three_sites(500))
        sent = [m for m in pca.ledger_ if m.sender != COORDINATOR]
        assert {m.function for m in sent} == {"noisy_moments"} | functions
        assert {dtype for m in sent for dtype in m.dtypes} == {"int64"}
        for site in "ABC":
            lines = read_budget(folder / f"{site}.budget")
            assert len(lines) == sum(m.sender == site for m in sent)
            assert total_rho(lines) == pytest.approx(pca.rho_)
            assert epsilon_by_losses([line["rho"] for line in lines], 1e-6) == pytest.approx(pca.epsilon_, rel=1e-3)


def test_noise_is_new_in_every_fit_whatever_the_seed() -> None:
    fits = [ep.PrivatePCA(1, **ASKED, random_state=0).fit(three_sites(500)).components_ for _ in range(2)]
    assert (fits[0] != fits[1]).any()


def test_a_run_that_is_resumed_repeats_its_noise_and_spends_once(tmp_path: Path) -> None:
    """Killed after every round in turn; the answer is that of the noise that was drawn first."""

    class Killed(Exception):
        pass

    def kill(_: Any) -> None:
        raise Killed

    sites = three_sites(500)
    for name, solver in {"gram": "noisy-gram", "subspace": ep.solvers.NoisySubspace(rounds=3)}.items():
        shared: dict[str, Any] = {**ASKED, "solver": solver, "budget": tmp_path / name, "random_state": 0}
        journal = tmp_path / f"{name}.journal"
        with pytest.raises(Killed):
            ep.PrivatePCA(2, **shared, journal=journal, callback=kill).fit(sites)
        spent = total_rho(read_budget(tmp_path / name / "A.budget"))
        first = ep.PrivatePCA(2, **shared, journal=journal).fit(sites)
        again = ep.PrivatePCA(2, **shared, journal=journal).fit(sites)
        assert (first.components_ == again.components_).all()
        assert (first.mean_ == again.mean_).all()
        assert total_rho(read_budget(tmp_path / name / "A.budget")) == pytest.approx(first.rho_)
        assert spent <= first.rho_ * 1.0001


def test_a_journal_without_its_noise_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="journal= needs budget="):
        ep.PrivatePCA(1, **ASKED, journal=tmp_path / "j").fit(three_sites(100))
    assert not (tmp_path / "j").exists()


def test_what_is_more_than_the_budget_is_refused_by_name(tmp_path: Path) -> None:
    budget = {"folder": tmp_path, "max_epsilon": 1.2, "max_delta": 1e-6}
    pca = ep.PrivatePCA(1, **ASKED, budget=budget)
    pca.fit(three_sites(500))
    with pytest.raises(PolicyError, match=r"rule max_epsilon = 1.2: .* is spent, and this query would make it"):
        pca.fit(three_sites(500))
    assert len(read_budget(tmp_path / "A.budget")) == 3  # the tenth for the mean was still there


def test_persons_cost_more_noise_and_extra_rows_are_dropped() -> None:
    sites = three_sites(2000)
    persons = {name: np.arange(len(X)) // 4 for name, X in sites.items()}
    pca = ep.PrivatePCA(1, **ASKED, unit="person", rows_per_person=2).fit(sites, persons=persons)
    rows = ep.PrivatePCA(1, **ASKED).fit(sites)
    assert pca.noise_deviation_ == pytest.approx(2 * rows.noise_deviation_)
    assert abs(pca.n_samples_seen_ - 3150) < 600
    assert (pca.unit_, pca.rows_per_person_, pca.epsilon_) == ("person", 2, pytest.approx(1.0))
    assert "the rows of any one person, up to 2 at one site" in pca.promise_
    X, labels = np.concatenate(list(sites.values())), np.repeat(["A", "B", "C"], [len(X) for X in sites.values()])
    few = ep.PrivatePCA(1, **SMALL, unit="person", rows_per_person=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIdentifiableWarning)  # noise may hide the gap, or not
        joined = few.fit(X, sites=labels, persons=np.arange(len(X)) % 5)
    assert joined.n_samples_seen_ < 200  # 5 persons at each of 3 sites, and noise


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon=0 must be a number above 0"),
        ({"delta": 1.0}, "delta=1.0 must be between 0 and 1"),
        ({"row_bound": -1}, "row_bound=-1 must be a positive number"),
        ({"row_bound": None}, "row_bound=None must be a positive number"),
        ({"mean_bound": 0}, "mean_bound=0 must be a positive number"),
        ({"unit": "visit"}, "unit='visit' must be 'row' or 'person'"),
        ({"rows_per_person": 2}, "rows_per_person=2 with unit='row'"),
        ({"honest_sites": 4}, "honest_sites=4 of 3 sites"),
        ({"honest_sites": 0}, "honest_sites=0 must be a whole number"),
        ({"n_components": 7}, "n_components=7 must be at most the number of features, 6"),
        ({"n_components": 0.5}, "n_components=0.5 must be a whole number"),
        ({"solver": "gram"}, "unknown solver 'gram'; the solvers of PrivatePCA are noisy-gram, noisy-subspace, auto"),
        ({"origin": [1.0, 2.0]}, r"origin has shape \(2,\)"),
        ({"budget": {"max_epsilon": 1.0}}, "must have a folder"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ep.PrivatePCA(**{"n_components": 2} | ASKED | options).fit(three_sites(50))


def test_persons_are_given_for_persons_alone() -> None:
    with pytest.raises(InputError, match="persons= must be given for unit='person'"):
        ep.PrivatePCA(1, **ASKED, unit="person", rows_per_person=1).fit(three_sites(50))
    with pytest.raises(InputError, match="persons= must be given for unit='person'"):
        ep.PrivatePCA(1, **ASKED).fit(three_sites(50), persons={})
    with pytest.raises(InputError, match=r"site 'A' has 50 rows and 0 labels"):
        ep.PrivatePCA(1, **ASKED, unit="person", rows_per_person=1).fit(three_sites(50), persons={"B": [1] * 150})


def test_a_site_that_is_lost_ends_the_run() -> None:
    """To begin anew with the others would spend once more, and differences of sums would show the lost one's part."""

    asked: list[str] = []

    class Losing(InProcessConnection):
        def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
            asked.append(request.function)
            lost = request.function == noisy_triangle.name
            yield from (Response("B", lost=True) if lost and r.site == "B" else r for r in super().call(request, after))

    class Engine(InProcess):
        def execute(self, sites: Any, job: Any, **_: Any) -> Any:
            with Losing({name: SiteServer(name, X) for name, X in sites.items()}, 1) as connection:
                return job(connection)

    with pytest.raises(TooFewSitesError, match=r"lost B: 2 site\(s\) left, min_sites is 3"):
        ep.PrivatePCA(1, **ASKED, engine=Engine()).fit(three_sites(200))
    assert asked == [noisy_moments.name, noisy_triangle.name]


def test_sites_that_are_spoken_to_by_message_answer_alike() -> None:
    sites = three_sites(2000)
    pca = ep.PrivatePCA(2, **SMALL, engine=ep.engines.InProcess(round_timeout=60)).fit(sites)
    assert largest_sine(pca.components_.T, exact(sites, 2)) < 0.1
    assert (pca.n_setup_rounds_, pca.n_rounds_, pca.epsilon_) == (1, 1, pytest.approx(8.0))


def test_noise_that_hides_the_gap_is_told() -> None:
    with pytest.warns(NotIdentifiableWarning, match="noise hides whether component 2 has more variance than component 3"):
        pca = ep.PrivatePCA(2, **ASKED).fit(three_sites(10))
    assert pca.angle_estimate_ is None


def test_rows_far_from_zero_need_an_origin() -> None:
    sites = three_sites(6000, offset=50.0)
    near = ep.PrivatePCA(2, **ASKED, origin=np.full(6, 50.0)).fit(sites)
    assert largest_sine(near.components_.T, exact(sites, 2)) < 0.05


def test_it_can_be_cloned_and_sparse_and_single_rows_will_do() -> None:
    import scipy.sparse

    pca = clone(ep.PrivatePCA(1, **SMALL))
    X = three_sites(300)["A"].astype(np.float32)
    assert pca.fit(scipy.sparse.csr_matrix(X)).sites_ == ("site0",)
    assert pca.fit(X).transform(X).dtype == np.float32
