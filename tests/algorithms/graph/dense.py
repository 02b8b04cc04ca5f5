"""Algorithm 1 of the kernel paper written densely, with explicit features: what the solver is held against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

RING = {"a": ("b", "d"), "b": ("a", "c"), "c": ("b", "d"), "d": ("a", "c")}
"""Node -> its neighbours."""

WITH_ITSELF = {node: (node, *others) for node, others in RING.items()}
"""Omega_j as the solver and Section 6.1 of the paper have it, j itself included."""


def blocks(n=12, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(n + i, d)) * [4, 2, 1, 1, 1, 1][:d] for i, name in enumerate(RING)}


def unit_rows(tables):
    """phi of the normalised linear kernel, explicitly: rows of length 1."""
    return {name: X / np.linalg.norm(X, axis=1, keepdims=True) for name, X in tables.items()}


def rbf_tables(seed=0):
    """Rows whose rbf kernel with gamma = .3 has no small eigenvalues: no pseudo-inverse is at work."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(30, 6)) * np.linspace(2, 0.3, 6) for name in RING}


def rbf_features(tables, gamma=0.3):
    """phi of the rbf kernel on these rows alone, explicitly: its inner products are the kernel's values."""
    X = np.concatenate(list(tables.values()))
    values, V = np.linalg.eigh(np.exp(-gamma * ((X[:, None] - X) ** 2).sum(-1)))
    ends = np.cumsum([len(part) for part in tables.values()])
    return dict(zip(tables, np.split(V * np.sqrt(np.maximum(values, 0.0)), ends[:-1]), strict=True))


@dataclass(frozen=True)
class State:
    """alpha_j, eta_jq and z_j, in feature space but for alpha."""

    alpha: dict
    eta: dict
    z: dict


@dataclass(frozen=True)
class Dense:
    """(8)-(13) for features phi[j] (n_j x P), neighbourhoods Omega_j and one rho."""

    phi: dict
    omega: dict
    rho: float

    @cached_property
    def K(self):
        return {j: F @ F.T for j, F in self.phi.items()}

    @cached_property
    def P(self):
        """Projectors on span phi(X_j)."""
        return {j: F.T @ np.linalg.pinv(F @ F.T) @ F for j, F in self.phi.items()}

    def pairs(self):
        return [(j, q) for j in self.phi for q in self.omega[j]]

    def own_start(self):
        """The nodes' own first directions, signs agreed on from a around the ring, as the solver does."""
        alpha = {j: np.linalg.eigh(K)[1][:, -1] for j, K in self.K.items()}
        if np.sum((self.K["a"] @ alpha["a"]) ** 3) < 0:
            alpha["a"] = -alpha["a"]
        for j, settled in {"b": "a", "d": "a", "c": "bd"}.items():
            overlap = sum(self.w(alpha, j) @ self.w(alpha, q) for q in settled)
            alpha[j] = -alpha[j] if overlap < 0 else alpha[j]
        return alpha

    def begin(self, alpha):
        eta = {pair: np.zeros(self.P[pair[0]].shape[0]) for pair in self.pairs()}
        return State(alpha, eta, self.next_z(alpha, eta))

    def w(self, alpha, j):
        return self.phi[j].T @ alpha[j]

    def gap(self, alpha, z, j, q):
        return self.w(alpha, j) - self.P[j] @ z[q]

    def next_z(self, alpha, eta):
        """(10), (11)."""
        z = {}
        for j in self.phi:
            sources = [q for q in self.phi if j in self.omega[q]]
            z[j] = sum(self.P[q] @ eta[q, j] / self.rho + self.w(alpha, q) for q in sources) / len(sources)
            z[j] = z[j] / max(1.0, np.linalg.norm(z[j]))
        return z

    def next_alpha(self, eta, z, j, curvature=2.0):
        """(12)."""
        F, K = self.phi[j], self.K[j]
        right = sum(F @ (self.rho * z[q] - eta[j, q]) for q in self.omega[j])
        return np.linalg.pinv(self.rho * len(self.omega[j]) * K - curvature * K @ K) @ right

    def step(self, s):
        """(12), (13), then (10), (11)."""
        alpha = {j: self.next_alpha(s.eta, s.z, j) for j in self.phi}
        eta = {(j, q): s.eta[j, q] + self.rho * self.gap(alpha, s.z, j, q) for j, q in self.pairs()}
        return State(alpha, eta, self.next_z(alpha, eta))

    def run(self, start, steps):
        states = [self.begin(start)]
        for _ in range(steps):
            states.append(self.step(states[-1]))
        return states

    def lagrangian(self, alpha, z, eta):
        """(8)."""
        value = -sum(np.sum((self.K[j] @ alpha[j]) ** 2) for j in self.phi)
        for j, q in self.pairs():
            gap = self.gap(alpha, z, j, q)
            value += eta[j, q] @ gap + self.rho / 2 * gap @ gap
        return value

    def relaxed(self, alpha, z, eta):
        """(9)."""
        value = 0.0
        for j, q in self.pairs():
            gap = self.w(alpha, j) - z[q]
            value += self.rho / 2 * gap @ gap - eta[j, q] @ self.P[j] @ z[q]
        return value

    def of_theorem_2(self, states):
        """L(alpha^t, Z^t, eta^t)."""
        return np.array([self.lagrangian(s.alpha, s.z, s.eta) for s in states])

    def after_update(self, states):
        """L(alpha^(t+1), Z^t, eta^(t+1))."""
        return np.array([self.lagrangian(new.alpha, s.z, new.eta) for s, new in pairwise(states)])


def assumption_2(K, size):
    """The least rho of Assumption 2 for one node."""
    values = np.linalg.eigvalsh(K)
    first = values[-1]
    return (np.sqrt(first**4 + 8 * size * first * np.sum(values**3)) + first**2) / (size * first)


def large_enough(phi, omega):
    """A rho that satisfies Assumption 2 at every node."""
    return 1.001 * max(assumption_2(F @ F.T, len(omega[j])) for j, F in phi.items())
