"""Shift-and-invert: inner solvers against dense ones, Algorithm 1 against its dense form, deflation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.statistical.linear_systems import Deflated, System, conjugate_gradient, nesterov
from eigenpact.algorithms.statistical.preconditioner import Preconditioner, spectrum_of
from eigenpact.errors import InputError
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows
from eigenpact.runtime import Sum

Matrix = np.ndarray[Any, Any]


def run(body: Any, C: Matrix) -> Any:
    """Advance a coroutine that awaits sums of C times blocks, without an engine."""
    value = None
    while True:
        try:
            collective = body.send(value)
        except StopIteration as stop:
            return stop.value
        assert isinstance(collective, Sum)
        value = C @ collective.args[0]


def problem(seed: int = 0) -> tuple[Matrix, Matrix]:
    X = np.random.default_rng(seed).normal(size=(300, 10)) * np.linspace(2, 1, 10)
    return X, X.T @ X


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("inner", ["cg", "nesterov"])
def test_inner_solvers(inner: str, preconditioned: bool) -> None:
    """Above the spectrum both give the dense solution, and the residual they return is the true one."""
    X, C = problem()
    spectrum = spectrum_of(Rows(X[:100]), float(np.trace(C)))
    inverse = Preconditioner(spectrum, spectrum.values[:2], spectrum.mu) if preconditioned else None
    top = np.linalg.eigvalsh(C)[-1]
    operator = Deflated(np.zeros((10, 0)), np.zeros((10, 0)), 0, 10_000)
    system = System(operator, 1.05 * top, inverse)
    w = np.random.default_rng(1).normal(size=10)
    body = (
        conjugate_gradient(system, np.zeros(10), w, 1e-11)
        if inner == "cg"
        else nesterov(system, np.zeros(10), w, 1e-11, 0.05 * top)
    )
    solved = run(body, C)
    M = 1.05 * top * np.eye(10) - C
    np.testing.assert_allclose(solved.z, np.linalg.solve(M, w), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(solved.residual, w - M @ solved.z, atol=1e-10)
    assert operator.rounds < 400


@pytest.mark.parametrize("inner", ["cg", "nesterov"])
def test_negative_curvature_is_reported(inner: str) -> None:
    """Below the spectrum a direction with a larger Rayleigh quotient comes back, with its product."""
    _, C = problem()
    top = np.linalg.eigh(C)[1][:, -1]
    shift = 0.8 * np.linalg.eigvalsh(C)[-1]
    system = System(Deflated(np.zeros((10, 0)), np.zeros((10, 0)), 0, 1000), shift, None)
    solve = (
        conjugate_gradient(system, np.zeros(10), top, 1e-8) if inner == "cg" else nesterov(system, np.zeros(10), top, 1e-8, shift)
    )
    p, Cp = run(solve, C).negative
    np.testing.assert_allclose(Cp, C @ p, rtol=1e-12)
    assert p @ Cp > shift * (p @ p)


@pytest.mark.parametrize("inner", ["cg", "nesterov"])
def test_several_components_by_deflation(inner: Any) -> None:
    """Three components equal the pooled ones, found one after the other, and the history tells their number."""
    X, C = problem()
    sites = {"a": X[:120], "b": X[120:]}
    widths: list[int] = []
    pca = ep.FederatedPCA(
        3,
        solver=ep.solvers.ShiftInvert(proxy="a", inner=inner),
        center=False,
        tol=1e-11,
        random_state=0,
        callback=lambda r: widths.append(r.basis.shape[1]),
    ).fit(sites)
    values, vectors = np.linalg.eigh(C)
    assert largest_sine(pca.components_.T, vectors[:, ::-1][:, :3]) < 1e-8
    np.testing.assert_allclose(pca.singular_values_**2, values[::-1][:3], rtol=1e-10)
    assert widths == sorted(widths)
    assert set(widths) == {1, 2, 3}


@pytest.mark.parametrize("inner", ["cg", "nesterov"])
@pytest.mark.parametrize("public", [False, True])
def test_theorem_6s_mu(inner: Any, public: bool) -> None:
    """A bound on the rows changes how the systems are preconditioned, not the answer; the proxy is a site or public rows."""
    X, C = problem()
    sites = {"a": X[:120], "b": X[120:]}
    solver = ep.solvers.ShiftInvert(proxy=X[:120] if public else "a", row_bound=float(np.sum(X**2, axis=1).max()), inner=inner)
    pca = ep.FederatedPCA(2, solver=solver, center=False, tol=1e-11, random_state=0).fit(sites)
    assert pca.converged_
    assert largest_sine(pca.components_.T, np.linalg.eigh(C)[1][:, ::-1][:, :2]) < 1e-8
    own = {message.function for message in pca.ledger_ if message.note == "own"}
    assert own == (set() if public else {"keep_bounded_spectrum", "precondition"})


@pytest.mark.parametrize("row_bound", [None, 12.3])
def test_literal_is_algorithm_1(row_bound: float | None) -> None:
    """With exact inverses in dense numpy and the same constants, the same vector and about the same final shift.

    With a bound on rows these are the constants of Theorem 6: b for the bound on lambda_1, and p / 3 for p.
    """
    X = np.random.default_rng(2).choice([-1.0, 1.0], size=(100, 3)) * [3, 1.5, 1]  # all rows have the squared length 12.25
    C = X.T @ X
    trace, values = float(np.trace(C)), np.linalg.eigvalsh(C)
    gap = float((values[-1] - values[-2]) / trace)
    proxy = None if row_bound is None else X[:50]
    solver = ep.solvers.ShiftInvert(literal=True, gap=gap, angle_tol=1e-3, proxy=proxy, row_bound=row_bound)
    pca = ep.FederatedPCA(1, solver=solver, center=False, random_state=0, max_rounds=20_000).fit({"a": X[:50], "b": X[50:]})
    assert pca.converged_
    assert "Algorithm 1" in pca.stop_reason_
    assert largest_sine(pca.components_.T, np.linalg.eigh(C)[1][:, -1:]) < 1e-3
    delta = 5 / 8 * gap * trace
    unit, p = (trace, 0.1) if row_bound is None else (100 * row_bound, 0.1 / 3)
    m_1, m_2 = int(np.ceil(8 * np.log(144 * 3 / p**2))), int(np.ceil(1.5 * np.log(18 * 3 / (p**2 * 1e-6))))
    shift, step, solves = unit + delta, np.inf, 0
    while step > delta:
        step = 0.5 * (shift - values[-1])  # what 1 / (w^T M^-1 w) comes to once w is the eigenvector
        shift, solves = shift - step / 2, solves + m_1 + 1
    solves += m_2
    told = [r.details["angle"] for r in pca.history_ if "angle" in r.details]
    assert len(told) == solves  # every linear system of Algorithm 1 was solved, and no more: the shifts fell as often


def test_literal_out_of_rounds() -> None:
    """A unit vector, its own variance, and no claim: the iterations were not done."""
    X, C = problem()
    for rounds in (3, 100):
        with pytest.warns(ep.errors.NotConvergedWarning, match="max_rounds reached before Algorithm 1 was done"):
            pca = ep.FederatedPCA(
                1, solver=ep.solvers.ShiftInvert(literal=True, gap=0.02), center=False, random_state=0, max_rounds=rounds
            ).fit({"a": X[:120], "b": X[120:]})
        w = pca.components_[0]
        assert np.linalg.norm(w) == pytest.approx(1)
        assert pca.singular_values_[0] ** 2 == pytest.approx(w @ C @ w)
        assert pca.n_rounds_ == rounds
        assert (
            pca.angle_estimate_ is None or pca.angle_estimate_ >= largest_sine(w[:, None], np.linalg.eigh(C)[1][:, -1:]) - 1e-12
        )


def test_parameters_are_checked() -> None:
    """Each message names the value and what is allowed."""
    with pytest.raises(InputError, match="inner='gmres' must be 'cg' or 'nesterov'"):
        ep.solvers.ShiftInvert(inner="gmres")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gap=2 must be a share"):
        ep.solvers.ShiftInvert(gap=2)
    with pytest.raises(InputError, match="literal=True needs an estimate of the gap"):
        ep.solvers.ShiftInvert(literal=True)
    with pytest.raises(InputError, match="inner='nesterov': literal=True solves"):
        ep.solvers.ShiftInvert(literal=True, gap=0.1, inner="nesterov")
    with pytest.raises(InputError, match="row_bound=-1 must be a number > 0, or None to estimate mu"):
        ep.solvers.ShiftInvert(proxy=0, row_bound=-1)
    with pytest.raises(InputError, match=r"row_bound=2\.0 must be left out without proxy="):
        ep.solvers.ShiftInvert(row_bound=2.0)
    X, _ = problem()
    with pytest.raises(InputError, match=r"row_bound=2\.0 is below the mean squared length of all rows, 2\d\.\d+; give a bound"):
        ep.FederatedPCA(1, solver=ep.solvers.ShiftInvert(proxy=0, row_bound=2.0), center=False).fit([X[:100], X[100:]])
    with pytest.raises(InputError, match="n_components=2: literal=True is the paper's algorithm for one component"):
        ep.FederatedPCA(2, solver=ep.solvers.ShiftInvert(literal=True, gap=0.1)).fit([X[:100], X[100:]])
    with pytest.raises(InputError, match="max_rounds=3 is too few for n_components=3"):
        ep.FederatedPCA(3, solver="shift-invert", max_rounds=3).fit([X[:100], X[100:]])
    with pytest.warns(ep.errors.NotConvergedWarning, match=r"max_rounds=5 reached"):
        ep.FederatedPCA(1, solver="shift-invert", random_state=0, max_rounds=5).fit([X[:100], X[100:]])


def test_power_is_the_power_method() -> None:
    """Round by round w <- C w / ||C w||, and its own stopping rule is near the truth."""
    X, C = problem()
    sites = {"a": X[:120], "b": X[120:]}
    seen: list[Matrix] = []
    ep.FederatedPCA(1, solver="power", center=False, random_state=0, callback=lambda r: seen.append(r.basis)).fit(sites)
    w = seen[0]
    for Z in seen[1:8]:
        w = C @ w / np.linalg.norm(C @ w)
        assert largest_sine(Z, w) < 1e-12
    early = ep.FederatedPCA(1, solver=ep.solvers.Power(angle_tol=1e-4), center=False, random_state=0).fit(sites)
    sine = largest_sine(early.components_.T, np.linalg.eigh(C)[1][:, -1:])
    assert 1e-5 < sine < 2e-4
    assert early.converged_
    with pytest.raises(InputError, match="angle_tol=0 must be a sine between 0 and 1"):
        ep.solvers.Power(angle_tol=0)


@pytest.mark.parametrize("proxy", [None, "a"])
def test_more_components_than_directions_with_variance(proxy: str | None) -> None:
    """Directions of rounding errors alone end at once: no step changes them, and none may be tried for ever."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 36))
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="fewer than 12"):
        pca = ep.FederatedPCA(12, solver=ep.solvers.ShiftInvert(proxy=proxy), random_state=0).fit({"a": X[:20], "b": X[20:]})
    exact = np.linalg.svd(X - X.mean(axis=0))[2][:4].T
    assert pca.converged_
    assert pca.n_rounds_ <= 100
    assert largest_sine(pca.components_[:4].T, exact) <= 1e-6
