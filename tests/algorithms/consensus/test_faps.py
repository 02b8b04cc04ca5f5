"""FAPS against its paper: Algorithm 1 written down with dense matrices, the convergence theory, and the costs it claims.

Here n is the number of features, p of components, A_i a site's rows transposed; numbers are those of the paper's equations.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.consensus import faps
from eigenpact.algorithms.consensus.subproblem import WATCHED, strictness
from eigenpact.errors import InputError, NotConvergedWarning
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows
from eigenpact.privacy import Eavesdropper
from eigenpact.runtime import Reply, Site

Array = np.ndarray[Any, Any]


# -- Algorithm 1 with dense matrices ------------------------------------------------------------------------------------------


def leading(S: Array, p: int) -> Array:
    return np.linalg.eigh(S)[1][:, ::-1][:, :p]


@dataclass
class DenseClient:
    """One client of Algorithm 1: A_i A_i^T, X_i and Lambda_i as dense matrices, and the theory's quantities by definition."""

    C: Array
    X: Array
    beta: float
    sites: int = 3
    Lambda: Array = field(init=False)
    distances: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.Lambda = self.multiplier(self.X)

    def multiplier(self, X: Array) -> Array:
        """(8)."""
        P = X @ X.T
        return -P @ self.C @ (np.eye(len(P)) - P) - (np.eye(len(P)) - P) @ self.C @ P

    def H(self, Z: Array) -> Array:
        """(12)."""
        return self.C + self.Lambda + self.beta * Z @ Z.T

    def update(self, Z: Array, X_new: Array) -> tuple[Array, dict[str, float]]:
        """Lines 6 and 7 with a solution of (11): Y_i, and what is watched of the step from X_i to it."""
        D, H = self.X @ self.X.T - Z @ Z.T, self.H(Z)
        decrease = (np.trace(X_new.T @ H @ X_new) - np.trace(self.X.T @ H @ self.X)) / 2
        before, after = (np.linalg.norm(H @ V - V @ V.T @ H @ V) for V in (self.X, X_new))
        largest = np.linalg.eigvalsh(self.C)[-1]
        slack = 1e-12 * (largest + self.beta)
        augmented = -np.trace(self.X.T @ self.C @ self.X) / 2 - np.sum(self.Lambda * D) / 2 + self.beta / 4 * np.sum(D**2)  # (10)
        watched = {
            "distance2": np.sum(D**2),
            "lagrangian": augmented,
            "decrease": decrease,
            "gradient2": before**2,
            "gradient_after2": after**2,
            "met_13": float(decrease + slack >= 0.25 / (2 * largest + self.beta) * before**2),
            "met_14": float(after < np.sqrt(1 - 1 / (2 * self.sites)) / (2 * np.sqrt(self.sites)) * before + slack),
        }
        self.distances.append(float(np.linalg.norm(D)))
        self.X, self.Lambda = X_new, self.multiplier(X_new)
        return (self.beta * X_new @ X_new.T - self.Lambda) @ Z, watched  # (18), (19)

    def adapt(self, k: int) -> bool:
        """(25) with theta = .1, mu = .01; whether beta_i grew."""
        grows = k > 0 and k % 5 == 0 and self.distances[k - 5] <= 1.01 * self.distances[k]
        self.beta *= 1.1 if grows else 1.0
        return grows


def unequal_sites(n: int = 9, seed: int = 0) -> dict[str, Array]:
    """Three sites with zero column sums, so that centring changes nothing, of different sizes and directions."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, rows in (("A", 25), ("B", 40), ("C", 14)):
        X = rng.normal(size=(rows, n)) @ (np.linalg.qr(rng.normal(size=(n, n)))[0] * 1.5 ** -np.arange(n)) + rng.normal(
            size=(rows, n)
        ) * np.linspace(3, 0.5, n)
        made[name] = X - X.mean(axis=0)
    return made


def scatters(sites: dict[str, Array]) -> dict[str, Array]:
    return {name: X.T @ X for name, X in sites.items()}


def fit(sites: dict[str, Array], p: int, solver: ep.solvers.FAPS, **options: Any) -> ep.FederatedPCA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return ep.FederatedPCA(p, solver=solver, random_state=0, **options).fit(sites)


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("unit", ["site", "trace"])
def test_literal_mode_is_algorithm_1(p: int, unit: Any) -> None:
    """Round by round: basis, every site's message, Lagrangian, distances, conditions (13) and (14), and beta by (25)."""
    sites, rounds = unequal_sites(), 31
    C = scatters(sites)
    spy, bases = Eavesdropper(ep.engines.InProcess()), []
    solver = ep.solvers.FAPS(literal=True, inner="exact", beta=0.4, beta_unit=unit)
    pca = fit(sites, p, solver, engine=spy, tol=0, max_rounds=rounds + 1, callback=lambda record: bases.append(record.basis))
    trace = sum(np.trace(S) for S in C.values())
    messages = {name: spy.replies(name, "literal_step") for name in sites}
    Z = messages["A"][0].args[0]
    clients = {name: DenseClient(S, Z, 0.4 * (trace if unit == "trace" else np.linalg.eigvalsh(S)[-1])) for name, S in C.items()}
    grown = 0
    for k in range(rounds):
        replies, watched = {}, dict.fromkeys(WATCHED, 0.0)
        for name, client in clients.items():
            replies[name], seen = client.update(Z, leading(client.H(Z), p))
            watched = {key: watched[key] + seen[key] for key in WATCHED}
            Y = messages[name][k].arrays[0]
            np.testing.assert_allclose(Y @ Z.T, replies[name] @ Z.T, atol=1e-9 * trace)  # in whatever basis of span(Z)
        assert largest_sine(Z, messages["A"][k].args[0]) <= 1e-9
        Z = np.linalg.qr(sum(replies.values()))[0]
        assert largest_sine(Z, bases[k]) <= 1e-9
        details = pca.history_[k].details
        assert details["lagrangian"] == pytest.approx(watched["lagrangian"], abs=1e-9 * trace)
        assert details["distance"] == pytest.approx(np.sqrt(watched["distance2"] / 3), abs=1e-9)
        assert details["decrease"] == pytest.approx(watched["decrease"], abs=1e-9 * trace)
        assert details["gradient"] == pytest.approx(np.sqrt(watched["gradient2"]), abs=1e-8 * trace)
        assert details["gradient_after"] == pytest.approx(np.sqrt(watched["gradient_after2"]), abs=1e-8 * trace)
        assert (details["met_13"], details["met_14"]) == (watched["met_13"], watched["met_14"])
        if unit == "site":  # the theory's penalty is fixed
            grown += sum([client.adapt(k) for client in clients.values()])
    assert (0 < grown < 3 * (rounds // 5)) if unit == "site" else grown == 0


# -- the robust rule ----------------------------------------------------------------------------------------------------------


def robust(rows: Array, kept: dict[str, Any], Z: Array, inner: str = "subspace", steps: int = 3, stiffness: float = 1.0) -> Reply:
    """One round at one of three sites, whose rows have zero mean."""
    largest = np.linalg.eigvalsh(rows.T @ rows)[-1]
    site = Site("A", rows, {"mean": None, "scale": None, "own": np.zeros((2, rows.shape[1])), "largest": largest} | kept)
    kind = ["subspace", "lanczos", "exact"].index(inner)
    rule = np.int64(kind), np.int64(steps), np.float64(0.12), np.float64(stiffness)
    return faps.consensus_step(site, Z, *rule, np.float64(strictness(3)))


def dense_inner(H: Array, Z: Array, inner: str) -> tuple[Array, list[Array]]:
    """What the inner solver finds from Z in three steps, and the blocks that it multiplied by C_i after Z."""
    n, p = Z.shape
    if inner == "exact":
        return leading(H, p), [np.eye(n)]
    if inner == "lanczos":
        space = np.linalg.qr(np.hstack([np.linalg.matrix_power(H / np.trace(H), j) @ Z for j in range(4)]))[0]
        return space @ leading(space.T @ H @ space, p), [space]
    blocks = [np.linalg.qr(np.linalg.matrix_power(H / np.trace(H), j) @ Z)[0] for j in (1, 2, 3)]
    return blocks[-1], blocks


def preference(C: Array, Z: Array, blocks: list[Array]) -> float | None:
    """delta_i as far as the blocks show it; None where they lie in span(Z)."""
    U, lengths, _ = np.linalg.svd(np.hstack([V - Z @ (Z.T @ V) for V in blocks]))
    U = U[:, : int(np.sum(lengths > 1e-7))]
    if U.shape[1] == 0:
        return None
    return float(np.linalg.eigvalsh(U.T @ C @ U)[-1] - np.linalg.eigvalsh(Z.T @ C @ Z)[0])


@pytest.mark.parametrize("stiffness", [1.0, 2.25])
@pytest.mark.parametrize("inner", ["subspace", "exact", "lanczos"])
def test_robust_rule_by_dense_matrices(inner: str, stiffness: float) -> None:
    """Y_i, X_i, L_i, the kept numbers and what is watched, site by site and round by round."""
    sites, p = unequal_sites(), 2
    C = scatters(sites)
    Z = np.linalg.qr(np.random.default_rng(1).normal(size=(9, p)))[0]
    kept: dict[str, dict[str, Any]] = {name: {} for name in sites}
    clients = {name: DenseClient(S, Z, 0.0) for name, S in C.items()}
    deltas, by_delta = dict.fromkeys(sites, 0.0), 0
    for k in range(8):
        total = np.zeros_like(Z)
        for name, client in clients.items():
            S, trace, largest = C[name], np.trace(C[name]), np.linalg.eigvalsh(C[name])[-1]
            client.beta = max(0.12 * largest, faps.KAPPA * stiffness * deltas[name])
            by_delta += client.beta > 0.12 * largest
            now = "subspace" if k == 0 and inner == "lanczos" else inner  # Z is invariant: rounding would tell where Lanczos goes
            reply = robust(sites[name], kept[name], Z, now, stiffness=stiffness)
            X_new, blocks = dense_inner(client.H(Z), Z, now)
            Y, watched = client.update(Z, X_new)
            shown = preference(S, Z, blocks)
            deltas[name] = deltas[name] if shown is None else shown
            X, L = reply.keep["X"], reply.keep["L"]
            np.testing.assert_allclose(reply.send[0], Y, atol=1e-9 * trace)
            np.testing.assert_allclose(X @ X.T, X_new @ X_new.T, atol=1e-9)
            np.testing.assert_allclose(X @ L.T + L @ X.T, client.Lambda, atol=1e-9 * trace)
            np.testing.assert_allclose(X.T @ L, 0, atol=1e-12 * trace)
            assert reply.keep["delta"] == pytest.approx(deltas[name], abs=1e-7 * trace)
            assert reply.keep["captured"] == pytest.approx(np.trace(X_new.T @ S @ X_new), rel=1e-9)
            assert reply.send[1] == pytest.approx(np.trace(Z.T @ S @ Z), rel=1e-9)
            expected = np.array([watched[key] for key in WATCHED])
            units = np.array([1, trace, trace, trace**2, trace**2, 1, 1])
            np.testing.assert_allclose(reply.send[2] / units, expected / units, atol=1e-9)
            kept[name] |= reply.keep
            total += Y
        Z = np.linalg.qr(total)[0]
    assert by_delta >= 3


@pytest.mark.parametrize("steps", [1, 3])
def test_a_round_takes_one_pass_more_than_inner_steps(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 4 passes over the rows with steps=3, whatever the round."""
    passes: list[str] = []
    blocks, products = Rows._blocks, Rows.scatter_action
    monkeypatch.setattr(Rows, "_blocks", lambda self, **options: passes.append("rows") or blocks(self, **options))
    monkeypatch.setattr(Rows, "scatter_action", lambda self, Z: passes.append("product") or products(self, Z))
    rows, Z, kept = unequal_sites()["A"], np.eye(9)[:, :2], {}
    for _ in range(4):
        passes.clear()
        kept |= robust(rows, kept, Z, steps=steps).keep
        assert passes == ["product", "rows"] * (steps + 1)
        Z = np.linalg.qr(Z + 0.1 * kept["X"])[0]


@pytest.mark.parametrize("inner", ["subspace", "lanczos", "exact"])
def test_kept_state_is_two_blocks_and_scalars(inner: str) -> None:
    """2 n p numbers and two more, and no hidden larger array behind them, after every round."""
    rows, kept = unequal_sites()["A"], {}
    for k in range(3):
        kept |= robust(rows, kept, np.linalg.qr(np.eye(9)[:, k : k + 2] + 0.1)[0], inner).keep
        assert sorted(kept) == ["L", "X", "captured", "delta"]
        assert [np.shape(kept[name]) for name in sorted(kept)] == [(9, 2), (9, 2), (), ()]
        assert all(kept[name].base is None or kept[name].base.size <= 9 * 2 for name in ("X", "L"))


@pytest.mark.parametrize("inner", ["subspace", "lanczos", "exact"])
@pytest.mark.parametrize("start", ["random", "one-shot"])
def test_every_inner_solver_converges(inner: Any, start: Any) -> None:
    sites = unequal_sites(12)
    pca = ep.FederatedPCA(3, solver=ep.solvers.FAPS(inner=inner, start=start), random_state=0, tol=1e-11).fit(sites)
    assert pca.converged_
    assert largest_sine(pca.components_.T, leading(sum(scatters(sites).values()), 3)) <= 1e-8


# -- what is told of a round, and what is handed back ------------------------------------------------------------------------


def watched_fit(sites: dict[str, Array], p: int, solver: ep.solvers.FAPS, **options: Any) -> tuple[Any, list[Any], Eavesdropper]:
    """The fitted estimator, all records with their bases, and who overheard it."""
    records: list[Any] = []
    spy = Eavesdropper(ep.engines.InProcess())
    return fit(sites, p, solver, engine=spy, callback=records.append, **options), records, spy


@pytest.mark.parametrize(("literal", "tol"), [(False, 1e-3), (False, None), (True, 1e-6)])
def test_told_and_handed_back_is_the_methods_own_iterate(literal: bool, tol: float | None) -> None:
    """Z = orth(sum_i M_i) after every round, again from the messages; the Rayleigh-Ritz step that closes changes nothing."""
    sites, p = unequal_sites(12), 3
    solver = ep.solvers.FAPS(literal=literal, start="random")
    pca, records, spy = watched_fit(sites, p, solver, tol=tol, max_rounds=300)
    step = "literal_step" if literal else "consensus_step"
    sums = [sum(replies) for replies in zip(*[[r.arrays[0] for r in spy.replies(name, step)] for name in sites], strict=True)]
    own = [record for record in records if "confirming" not in record.details]
    assert len(own) == len(sums) > 10
    for record, M in zip(own, sums, strict=True):
        assert largest_sine(np.linalg.qr(M)[0], record.basis) <= 1e-10
    Z = np.linalg.qr(sums[-1])[0]
    assert largest_sine(Z, pca.components_.T) <= 1e-10
    closing = [record for record in records if "confirming" in record.details]
    assert len(closing) >= 1
    assert all(largest_sine(record.basis, Z) <= 1e-10 for record in closing[-1:])
    C = sum(scatters(sites).values())
    residual = np.linalg.norm(C @ Z - Z @ (Z.T @ C @ Z)) / np.trace(C)
    assert closing[-1].kkt == pytest.approx(residual, rel=1e-6)
    assert closing[-1].details["ritz_kkt"] < 0.9 * residual  # what the Ritz vectors of the confirming space would have had


def test_rounds_after_a_missed_direction_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start in an invariant subspace stays there, until the confirmation finds what is missing; later rounds say so."""
    sites = {"A": np.diag([5.0, 4.0, 3.0, 1.0, 0.5]), "B": np.diag([4.0, 4.0, 3.5, 1.0, 0.2])}

    async def in_a_corner(*_: Any) -> tuple[Array, int]:
        return np.eye(5)[:, 1:3], 0

    monkeypatch.setattr(faps, "first_block", in_a_corner)
    pca, records, _ = watched_fit(sites, 2, ep.solvers.FAPS(start="random"), center=False)
    assert pca.converged_
    assert largest_sine(pca.components_.T, np.eye(5)[:, :2]) <= 1e-6
    confirmed = next(i for i, record in enumerate(records) if "confirming" in record.details)
    later = [record for record in records[confirmed:] if "confirming" not in record.details]
    assert len(later) >= 1
    assert all(record.details["set_right"] == 1.0 for record in later)
    assert not any("set_right" in record.details for record in records[:confirmed])


def test_condition_14_is_watched_with_the_papers_bound() -> None:
    """Assumption 6 (i) with 8 sites and equal penalties asks for delta_i < .171, and a round that is said to meet it at all sites
    has gradients that shrank so much, down to rounding."""
    assert strictness(8) == pytest.approx(np.sqrt(1 - 1 / 16) / (2 * np.sqrt(8)))
    sites = ep.datasets.spectral_problem(60, 800, sites=8, seed=0)
    for literal in (False, True):
        pca = fit(sites, 4, ep.solvers.FAPS(literal=literal), center=False, max_rounds=40)
        rounds = [record.details for record in pca.history_ if "met_14" in record.details]
        met = [details for details in rounds if details["met_14"] == 8]
        assert 0 < len(met) < len(rounds)
        assert all(details["gradient_after"] < strictness(8) * details["gradient"] + 1e-12 for details in met)
        some = [details for details in rounds if details["gradient_after"] >= strictness(8) * details["gradient"] + 1e-12]
        assert len(some) > 0
        assert all(details["met_14"] < 8 for details in some)


# -- use ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inner": "power"}, "inner='power' must be one of subspace, lanczos, exact"),
        ({"start": "zero"}, "start='zero' must be one of random, one-shot"),
        ({"steps": 0}, "steps=0 must be a whole number >= 1"),
        ({"steps": 2.5}, "steps=2.5 must be a whole number >= 1"),
        ({"beta": -1.0}, "beta=-1.0 must be a number > 0"),
        ({"beta": np.inf}, "beta=inf must be a number > 0"),
        ({"beta": 6.0}, f"beta=6.0 must be at most {faps.KAPPA * faps.STIFFEST:g} under the robust rule; or use literal=True"),
        ({"beta_unit": "trace"}, "beta_unit='trace' must be 'site', or 'trace' together with literal=True"),
        ({"beta_unit": "gap", "literal": True}, "beta_unit='gap' must be 'site'"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        ep.solvers.FAPS(**parameters)
    assert message in str(caught.value)


def test_too_few_rounds_are_told() -> None:
    with pytest.warns(
        NotConvergedWarning, match="max_rounds=4 reached at scaled KKT residual .* asked for a sine of 1.0e-06; raise"
    ):
        pca = ep.FederatedPCA(2, solver="faps", random_state=0, max_rounds=4).fit(unequal_sites())
    assert pca.n_rounds_ == 4
    assert not pca.converged_


@pytest.mark.parametrize("solver", [ep.solvers.FAPS(), ep.solvers.FAPS(literal=True, inner="exact")], ids=["robust", "literal"])
def test_resume_with_kept_state(solver: ep.solvers.FAPS, tmp_path: Any) -> None:
    """Sites that forgot X_i and L_i are brought there again: the same bits, rounds and history wherever the run ended."""

    class Ended(Exception):
        pass

    def end_at(last: int) -> Any:
        def callback(record: Any) -> None:
            if record.round == last:
                raise Ended

        return callback

    sites = unequal_sites(12)
    whole = fit(sites, 2, solver, tol=1e-8, max_rounds=60)
    for last in (1, 2, 7, whole.n_rounds_ - 1):
        path = tmp_path / f"{last}.journal"
        with pytest.raises(Ended):
            fit(sites, 2, solver, tol=1e-8, max_rounds=60, journal=path, callback=end_at(last))
        again = fit(sites, 2, solver, tol=1e-8, max_rounds=60, journal=path)
        assert again.components_.tobytes() == whole.components_.tobytes()
        assert [record.details for record in again.history_] == [record.details for record in whole.history_]
        assert any(message.note == "resent" and message.function.endswith("_step") for message in again.ledger_) or last == 1
