"""Whether components with a stationary likelihood are those that an exact M-step would give: no direction was missed.

At a stationary point the span of W is invariant under the scatter that the model expects of whole rows, S^ = sum of
E[(y - m)(y - m)^T | what is seen].  The M-step of EM takes the leading eigenvectors of S^.  If W had others, the likelihood would
rise from there, so the point would be no maximum.  The proof that W has the leading ones is that of ``certificate.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.certificate import Behind, Certificate, certify
from ...numerics.directions import new_directions
from ...numerics.either import there
from ...numerics.krylov_space import KrylovSpace, Ritz
from ...numerics.linalg import Array, orthonormalize
from ...numerics.metrics import largest_sine
from ...numerics.ppca import Model, expected_scatter_action
from ...runtime import Progress, Site, Sum, local
from ...runtime.rare import DROPPED
from ..method import Part
from .first_space import FirstSpace
from .observed import holed_rows

WIDEST = 96
"""Columns of the first block."""

MOST_ROUNDS = 24
"""After so many rounds it is given up."""

NEW = 1e-11
"""How much of a unit vector must be new to be taken for more than rounding."""

LOST = 0.5
"""Beyond this sine a direction was missed."""


@local(
    takes={"W": "d k", "mean": "d", "noise": "", "B": "d m"},
    sends={"G": "d m"},
    reads=("mean", "scale", DROPPED),
    means={"mean": "centre", "noise": "scale"},
    holes=True,
)
def expected_action(site: Site, W: Array, mean: Array, noise: Array, B: Array) -> Array:
    """The scatter about the mean that the model expects of the site's whole rows, times B."""
    G, m = np.zeros(B.shape), there(mean, site.X)
    for Y, seen in holed_rows(site, max(W.shape[1], B.shape[1])):
        G += expected_scatter_action(Y - m, seen, W, float(noise), B)
    return G


@dataclass(frozen=True, eq=False)
class Expected:
    """What was found out about W.

    Attributes
    ----------
    ritz : Ritz
        Leading eigenpairs of the expected scatter, of all rows together.
    space : KrylovSpace
    found : Certificate
    lost : bool
        Whether W has missed a direction.
    rounds : int
        Rounds of the run so far.
    """

    ritz: Ritz
    space: KrylovSpace
    found: Certificate
    lost: bool
    rounds: int

    @property
    def certain(self) -> bool:
        """Whether it is proved that nothing was missed."""
        return not self.found.missed and not self.lost


async def confirm(model: Model, first: FirstSpace, objective: float, rounds: int, max_rounds: int) -> Expected:
    """Compare W with the leading eigenvectors of the expected scatter; ``rounds`` were used before."""
    U, _ = model.components()
    k = U.shape[1]
    known = np.concatenate([U, first.omega, first.space.Q @ first.space.ritz(lambda _: k).turn], axis=1)
    B = np.concatenate([U, new_directions(known[:, : WIDEST + k], U, NEW)], axis=1)[:, :WIDEST]
    space, last = KrylovSpace.empty(len(U)), min(max_rounds, rounds + MOST_ROUNDS)
    while True:
        G = await Sum(expected_action, model.W, model.mean, np.float64(model.noise), np.ascontiguousarray(B))
        space, rounds = space.add(B, G), rounds + 1
        ritz = space.ritz(lambda _: k)
        found = certify(space, ritz, first.omega)
        turned = largest_sine(U, orthonormalize(ritz.Z))
        await Progress(basis=U, objective=objective, details={"confirming": turned})
        settled = not found.missed and (found.angle is not None or found.cut != "clear")
        if settled or turned > LOST or rounds >= last or space.size >= len(U):
            return Expected(ritz, space, found, turned > LOST, rounds)
        F = Behind(space, ritz, first.omega).left()
        B = new_directions(F / np.linalg.norm(F), space.Q, NEW)[:, : first.omega.shape[1]]
        if not B.shape[1]:
            return Expected(ritz, space, found, turned > LOST, rounds)


EXPECTED = Part("Whether the most likely components missed a direction", {Sum: (expected_action,)})
