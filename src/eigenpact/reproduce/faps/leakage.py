"""Figure 1: what subspace iteration tells about one site, its scatter recovered from the replies of more and more rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...algorithms.consensus.subspace import Subspace
from ...datasets import partition, spectral_problem
from ...engines import InProcess
from ...estimators import FederatedPCA
from ...numerics.blas import limited_blas
from ...numerics.linalg import Array
from ...privacy import Eavesdropper, minimum_norm, symmetric
from .. import drawing
from ..measuring import fit_quietly
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch, problem_of, small_print

ATTACKS: dict[str, Callable[[Array, Array], Array]] = {"minimum norm": minimum_norm, "symmetric": symmetric}
"""The paper's attack, and the one that also uses the symmetry of what it looks for."""

MORE_ROUNDS, MOST_ROUNDS = 4, 30
"""The attacks get the rounds after which the blocks could span everything and some more, but at most so many: by then
blocks of an iteration that converges have nothing new to tell in double precision."""


def normal_rows(features: int, rows: int, sites: int, seed: int) -> dict[str, Array]:
    """Independent normal entries, scaled to a largest singular value of 1, as that of (23) is."""
    A = np.random.default_rng(seed).normal(size=(rows, features))
    A /= np.sqrt(np.linalg.eigvalsh(A.T @ A)[-1])
    dealt: dict[str, Array] = partition.random(A, sites, seed=seed)
    return dealt


@dataclass(frozen=True)
class Reached:
    """By how many rounds an attack came within the accuracy, None if it did not, and its error after ``last`` rounds."""

    rounds: int | None
    last: int
    error: float


@dataclass(frozen=True, eq=False)
class Leak:
    """Subspace iteration on sites (name -> n_i x d), overheard.  Errors and KKT violations are not scaled, as in the paper."""

    sites: Mapping[str, Array]
    components: int
    seed: int

    @property
    def first(self) -> str:
        """The site that is attacked."""
        return next(iter(self.sites))

    @cached_property
    def wanted(self) -> Array:
        """The scatter of that site (d x d)."""
        X = self.sites[self.first]
        C: Array = X.T @ X
        return C

    @property
    def rounds(self) -> int:
        """Rounds that the attacks are given."""
        return min(-(-len(self.wanted) // self.components) + MORE_ROUNDS, MOST_ROUNDS)

    @cached_property
    def overheard(self) -> tuple[Array, Array]:
        """All blocks that SSI sent, and the site's replies, side by side (d x rounds p).

        Not those by which its answer is confirmed in the end: they are ours, and a random block among them tells more.
        """
        spy = Eavesdropper(InProcess())
        pca = self._iterate(1e-15, self.rounds + 1, spy)  # one round to confirm
        heard = zip(spy.replies(self.first, "scatter_action"), pca.history_, strict=True)
        own = [reply for reply, record in heard if "confirming" not in record.details]
        return np.hstack([reply.args[0] for reply in own]), np.hstack([reply.arrays[0] for reply in own])

    def error(self, attack: str, rounds: int) -> float:
        """||Phi - A_1 A_1^T||_F when the replies of so many rounds are used."""
        blocks, products = (part[:, : rounds * self.components] for part in self.overheard)
        with limited_blas(1):  # more threads are slower where others compute, too
            return float(np.linalg.norm(ATTACKS[attack](blocks, products) - self.wanted))

    def reached(self, attack: str, accuracy: float) -> Reached:
        """The first round after which the error is at most ``accuracy``, by bisection."""
        last = self.overheard[0].shape[1] // self.components
        error = self.error(attack, last)
        if error > accuracy:
            return Reached(None, last, error)
        below, enough = 0, last
        while enough - below > 1:
            middle = (below + enough) // 2
            below, enough = (below, middle) if self.error(attack, middle) <= accuracy else (middle, enough)
        return Reached(enough, last, error)

    def violations(self, accuracy: float, max_rounds: int) -> list[float]:
        """||(I - Z Z^T) A A^T Z||_F by round of SSI, until it is at most ``accuracy``."""
        trace = float(sum(np.sum(X**2) for X in self.sites.values()))
        pca = self._iterate(accuracy / trace, max_rounds, InProcess())
        own = (record for record in pca.history_ if "confirming" not in record.details)
        return [record.kkt * trace for record in own if record.kkt is not None]

    def _iterate(self, tol: float, max_rounds: int, engine: Any) -> FederatedPCA:
        settings: dict[str, Any] = {"tol": tol, "max_rounds": max_rounds, "random_state": self.seed, "engine": engine}
        pca = FederatedPCA(self.components, solver=Subspace(), center=False, **settings)
        return fit_quietly(pca, self.sites)  # it is stopped on purpose


# -- the figure -------------------------------------------------------------------------------------

SITES, LARGEST, ROUNDS = 10, 3000, 1000
"""Sites (the paper does not say how many), the most features that are tried, and the rounds granted to SSI."""

DECAY = 1.01
"""Of the paper's size; the small size has a tenth of the features, so its tenth power gives the same spectrum in units of p."""

MATRICES = ("spectrum (24)", "normal entries")
KKT = "KKT violation"


def fig1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 1: how soon SSI's messages tell a site's scatter, and how soon they tell the components."""
    p = problem_of("faps", "fig1", size, instead=True)
    decay = DECAY**10 if size is Size.small else DECAY
    tried = [n for n in p["all_features"] if n <= LARGEST]
    found = [_told(matrix, n, p, decay, seed, watch) for matrix in MATRICES for n in tried]
    shown = [told for told in found if "errors" in told]
    shape = f"{p['rows']} rows, {SITES} sites, {p['components']} components"
    rounds = Grid(
        f"FAPS paper, Figure 1(a): what SSI's messages tell after a round, {p['features']} features, {shape}",
        ["matrix", "round", "KKT\nviolation", "error,\nminimum norm", "error,\nsymmetric"],
        [row for told in shown for row in _by_round(told, p["features"] // p["components"])],
    )
    sizes = Grid(
        f"FAPS paper, Figure 1(b): rounds to {p['accuracy']:g}, and the attacks' errors in the end",
        ["matrix", "features", "n / p", "KKT", "minimum\nnorm", "in the\nend", "symmetric", "in the\nend"],
        [_by_size(told, p) for told in found],
    )
    left_out = [n for n in p["all_features"] if n > LARGEST]
    remarks = small_print(
        size,
        CURVE_ONLY,
        "KKT violations and errors are not scaled, as in the paper; the largest singular value is 1.  The paper does not say "
        f"how A was made, nor for how many clients: shown are (23) with the spectrum (24), xi = {decay:.4g}, and "
        "independent normal entries.",
        "Minimum norm is the paper's attack; the symmetric one also uses that A_1 A_1^T is symmetric.  Where no rounds are "
        f"printed, the accuracy was not reached within n / p + {MORE_ROUNDS} rounds (at most {MOST_ROUNDS}).  SSI's blocks "
        "grow alike as it converges: after a dozen or so of them, rounding leaves nothing new to learn.  Rounds and messages "
        "are SSI's own: those by which our subspace solver has its answer confirmed in the end are left out here, but they "
        "are products with a random block, and whoever sees them learns A_1 A_1^T on its span.",
        *([f"Left out, because it takes too long: n = {', '.join(map(str, left_out))}."] if left_out else []),
    )
    above = [_errors_panel(told, p["accuracy"]) for told in shown]
    below = [_rounds_panel(matrix, [told for told in found if told["matrix"] == matrix], p["accuracy"]) for matrix in MATRICES]
    title = "FAPS paper, Figure 1: what the messages of SSI tell about one site, and about the components"
    numbers = {"problem": {**p, "sites": SITES}, "runs": found}
    figure = drawing.panels(title, [above, below])
    return Reproduced(f"FAPS paper, Figure 1: data leakage of SSI, {shape}", [rounds, sizes], remarks, figure, numbers)


def _told(matrix: str, n: int, p: Mapping[str, Any], decay: float, seed: int, watch: Watch) -> dict[str, Any]:
    """Let SSI run on a matrix with n features, and attack what it sent.

    Told are SSI's violations by round, what every attack reached, and where that is shown, its errors by round.
    """
    if matrix == "normal entries":
        sites = normal_rows(n, p["rows"], SITES, seed)
    else:
        sites = spectral_problem(n, p["rows"], decay=decay, sites=SITES, seed=seed)
    leak = Leak(sites, p["components"], seed)
    told: dict[str, Any] = {"matrix": matrix, "features": n, "kkt": leak.violations(p["accuracy"], ROUNDS)}
    words = [f"KKT after {_solved(told, p['accuracy'])} rounds"]
    for attack in ATTACKS:
        found = leak.reached(attack, p["accuracy"])
        words.append(f"{attack} error {found.error:.0e}" if found.rounds is None else f"{attack} after {found.rounds} rounds")
        told[attack] = asdict(found)
    watch.on_run(f"{matrix}, {n} features: {', '.join(words)}")
    if n == p["features"]:
        told["errors"] = {attack: [leak.error(attack, r) for r in range(1, leak.rounds + 1)] for attack in ATTACKS}
    return told


def _solved(told: Mapping[str, Any], accuracy: float) -> int | None:
    """Rounds until SSI's violation was within the accuracy."""
    return len(told["kkt"]) if told["kkt"][-1] <= accuracy else None


def _by_round(told: Mapping[str, Any], spanning: int) -> list[list[Cell]]:
    """A few rounds: up to the one after which the blocks could span everything, and the last."""
    last = len(told["errors"]["symmetric"])
    shown = sorted({r for r in (1, 2, 3, 5, 7, spanning - 1, spanning, last) if 1 <= r <= last})
    kkts = dict(enumerate(told["kkt"], 1))
    return [[told["matrix"], r, kkts.get(r), *(errors[r - 1] for errors in told["errors"].values())] for r in shown]


def _by_size(told: Mapping[str, Any], p: Mapping[str, Any]) -> list[Cell]:
    """How many rounds SSI and the attacks took, and the attacks' errors in the end."""
    cells = [told[attack][what] for attack in ATTACKS for what in ("rounds", "error")]
    return [told["matrix"], told["features"], -(-told["features"] // p["components"]), _solved(told, p["accuracy"]), *cells]


def _errors_panel(told: Mapping[str, Any], accuracy: float) -> drawing.Panel:
    curves = {name: drawing.from_one(values) for name, values in ({KKT: told["kkt"]} | told["errors"]).items()}
    title, level = f"(a) {told['matrix']}, {told['features']} features", f"accuracy {accuracy:g}"
    return drawing.Panel(title, "round", "violation, error", curves, level=accuracy, level_name=level, log_x=True)


def _rounds_panel(matrix: str, found: Sequence[Mapping[str, Any]], accuracy: float) -> drawing.Panel:
    """By features: rounds that were enough, or hollow those that were not."""
    rounds = {KKT: [(_solved(told, accuracy), len(told["kkt"])) for told in found]}
    rounds |= {attack: [(told[attack]["rounds"], told[attack]["last"]) for told in found] for attack in ATTACKS}
    features = [told["features"] for told in found]
    enough = {name: (features, [within for within, _ in pairs]) for name, pairs in rounds.items()}
    missed = {name: (features, [last if within is None else None for within, last in pairs]) for name, pairs in rounds.items()}
    return drawing.Panel(f"(b) {matrix}", "features (n)", f"rounds to {accuracy:g}", enough, missed=missed, every=True)
