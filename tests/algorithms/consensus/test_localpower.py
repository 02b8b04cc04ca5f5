"""LocalPower: what local steps are, why bases must be aligned, and that it ends as subspace iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import eigenpact as ep
from eigenpact.errors import InputError, NotConvergedWarning
from eigenpact.numerics.metrics import largest_sine
from eigenpact.privacy import Eavesdropper

Array = np.ndarray[Any, Any]


def make_sites(seed: int = 0, n: int = 12, sizes: tuple[int, ...] = (30, 80, 20)) -> dict[str, Array]:
    """Samples of one distribution, at sites of different sizes, with zero column sums."""
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.normal(size=(n, n)))[0] * 1.3 ** -np.arange(n)
    made = {f"s{i}": rng.normal(size=(rows, n)) @ mixing.T for i, rows in enumerate(sizes)}
    return {name: X - X.mean(axis=0) for name, X in made.items()}


def first_bases(sites: dict[str, Array], k: int, rounds: int, **parameters: Any) -> list[Array]:
    """Bases after the first rounds, all with local steps."""
    bases: list[Array] = []
    solver = ep.solvers.LocalPower(patience=rounds, **parameters)
    pca = ep.FederatedPCA(
        k, solver=solver, random_state=0, max_rounds=rounds + 1, tol=0, callback=lambda r: bases.append(r.basis)
    )
    with pytest.warns(NotConvergedWarning):
        pca.fit(sites)
    return bases[:rounds]


def truth(sites: dict[str, Array], k: int) -> Array:
    return np.linalg.eigh(sum(X.T @ X for X in sites.values()))[1][:, ::-1][:, :k]


@pytest.mark.parametrize("start", ["random", "one-shot"])
def test_one_local_step_is_subspace_iteration(start: Any) -> None:
    """q = 1: the same bits, rounds and messages."""
    sites = make_sites()
    one = ep.FederatedPCA(3, solver=ep.solvers.LocalPower(q=1, start=start), random_state=0).fit(sites)
    other = ep.FederatedPCA(3, solver=ep.solvers.Subspace(start=start), random_state=0).fit(sites)
    assert one.components_.tobytes() == other.components_.tobytes()
    assert (one.n_rounds_, one.stop_reason_, one.ledger_.bytes_up) == (
        other.n_rounds_,
        other.stop_reason_,
        other.ledger_.bytes_up,
    )
    assert [record.kkt for record in one.history_] == [record.kkt for record in other.history_]


@pytest.mark.parametrize("align", ["procrustes", "sign", "none"])
@pytest.mark.parametrize("q", [2, 5])
def test_local_steps_by_dense_matrices(align: Any, q: int) -> None:
    """Every site's reply is C_i times its aligned basis after q - 1 own iterations, and the sum weighs sites by their rows."""
    sites, k = make_sites(), 3
    spy = Eavesdropper(ep.engines.InProcess())
    solver = ep.solvers.LocalPower(q=q, patience=4, align=align)
    pca = ep.FederatedPCA(k, solver=solver, engine=spy, random_state=0, tol=1e-6).fit(sites)
    n = sum(len(X) for X in sites.values())
    for t in range(3):
        replies = {name: spy.replies(name, "local_power")[t] for name in sites}
        Z = replies["s0"].args[0]
        weighted = np.zeros_like(Z)
        for name, X in sites.items():
            C, reply = X.T @ X, replies[name].arrays[0]
            V = np.linalg.qr(np.linalg.matrix_power(C / np.trace(C), q - 1) @ Z)[0]
            if align == "procrustes":
                V = V @ scipy.linalg.orthogonal_procrustes(V, Z)[0]
            elif align == "sign":
                V = V * np.where(np.sum(V * Z, axis=0) < 0, -1.0, 1.0)
            else:  # columns of a QR are defined up to their signs
                V = V * np.sign(np.sum(reply * (C @ V), axis=0))
            np.testing.assert_allclose(reply, C @ V, atol=1e-9 * np.trace(C))
            weighted += len(X) / n * (C / len(X) @ V)
        after = spy.replies("s0", "local_power")[t + 1].args[0]
        assert largest_sine(after, np.linalg.qr(weighted)[0]) <= 1e-9
    assert pca.converged_


def test_alignment_is_needed_for_several_components() -> None:
    """Bases added as they are cancel: over many starts the angle to the truth is larger, often hopelessly."""
    apart = {"procrustes": [], "sign": [], "none": []}
    for seed in range(12):
        sites = make_sites(seed, sizes=(40,) * 8)
        for align, sines in apart.items():
            sines.append(largest_sine(truth(sites, 4), first_bases(sites, 4, 3, q=4, align=align)[-1]))
    procrustes, sign, none = (np.array(apart[align]) for align in ("procrustes", "sign", "none"))
    assert np.median(procrustes) < 0.5 * np.median(none)
    assert np.median(procrustes) <= np.median(sign)


def test_local_steps_save_rounds_at_first() -> None:
    """On sites that are alike, three rounds with q = 4 are closer to the truth than three products."""
    sites = make_sites(sizes=(400, 400))
    exact = truth(sites, 3)
    sines = {q: largest_sine(exact, first_bases(sites, 3, 3, q=q)[-1]) for q in (2, 4)}
    bases: list[Array] = []
    solver = ep.solvers.Subspace()
    ep.FederatedPCA(3, solver=solver, random_state=0, callback=lambda record: bases.append(record.basis)).fit(sites)
    products = largest_sine(exact, bases[3])  # reported in round 4: after three products
    assert sines[4] < sines[2] < products


@pytest.mark.parametrize(
    ("q", "patience", "steps"), [(8, 1, [8, 4, 2]), (8, 3, [8, 8, 8, 4, 4, 4, 2, 2, 2]), (5, 2, [5, 5, 2, 2]), (1, 7, [])]
)
def test_q_is_halved_after_patience(q: int, patience: int, steps: list[int]) -> None:
    """As told to the sites, and as reported; then products only."""
    spy = Eavesdropper(ep.engines.InProcess())
    solver = ep.solvers.LocalPower(q=q, patience=patience)
    pca = ep.FederatedPCA(2, solver=solver, engine=spy, random_state=0).fit(make_sites())
    asked = [heard for heard in spy.heard if heard.site == "s0" and heard.function in ("local_power", "scatter_action")]
    assert [int(heard.args[1]) for heard in asked if heard.function == "local_power"] == steps
    assert [heard.function for heard in asked[len(steps) :]] == ["scatter_action"] * (pca.n_rounds_ - len(steps))
    assert [record.details["q"] for record in pca.history_ if "q" in record.details] == steps


def test_max_rounds_leaves_one_for_the_residual() -> None:
    with pytest.warns(NotConvergedWarning, match="max_rounds=2 reached at scaled KKT residual"):
        pca = ep.FederatedPCA(2, solver=ep.solvers.LocalPower(q=8, patience=5), random_state=0, max_rounds=2).fit(make_sites())
    assert pca.n_rounds_ == 2
    assert pca.history_[-1].kkt is not None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"q": 0}, "q=0 must be a whole number >= 1"),
        ({"q": 2.5}, "q=2.5 must be a whole number >= 1"),
        ({"patience": -1}, "patience=-1 must be a whole number >= 1"),
        ({"align": "rotate"}, "align='rotate' must be one of procrustes, sign, none"),
        ({"start": "warm"}, "start='warm' must be one of random, one-shot"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ep.solvers.LocalPower(**parameters)
    assert message in str(caught.value)
