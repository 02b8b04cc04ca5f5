"""LocalPower: several subspace iterations at every site between two rounds, fewer and fewer of them.

Problem
    Find the leading k eigenvectors of C = sum_i C_i, C_i = Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. Z <- a random orthonormal d x k basis (or the one-shot merge of the sites' own directions); q <- the number of local steps
    2. for each round:
    3.     the coordinator sends Z and q; site i sets Z_i <- Z and repeats q - 1 times Z_i <- orth(C_i Z_i)
    4.     site i turns its basis towards the common one, Z_i <- Z_i O_i with O_i = argmin ||Z_i O - Z||_F, and returns C_i Z_i
    5.     Z <- orth(sum_i C_i Z_i);  every ``patience`` rounds q <- q / 2, rounded down
    6. from q = 1 on this is subspace iteration (``consensus/subspace.py``), which also decides when to stop, and has it confirmed
       by the pooled scatter: local steps may erase a direction that all sites share

Leaves the site
    C_i Z_i (d x k) each round, to be summed.  As soon as q = 1 single replies are products with a known block, as in subspace
    iteration; LocalPower hides nothing that subspace iteration would show.

Cost
    8 d k bytes each way and 4 q n_i d k flops per site and round.

Differences from the paper
    Li et al. weigh the sites' products by n_i / n and divide C_i by n_i; the sum of C_i Z_i is the same, since the n_i cancel.
    They turn bases towards one site's, which would cost a message; we turn them towards the Z that every site has.  ``align``
    "procrustes" allows any rotation, "sign" only flips columns (their cheaper variant), "none" shows why one of them is needed.
    The FAPS paper says that q is halved "every round of communications until it reaches 1"; that is ``patience=1``.  Under this
    reading LocalPower takes about the rounds of subspace iteration, and the 164 of the FAPS paper's Table 4 is not reached
    (see ``eigenpact reproduce faps-table4``).

References
    X. Li, S. Wang, K. Chen, Z. Zhang, "Communication-efficient distributed SVD via local power iterations", ICML 2021;
    L. Wang, X. Liu, Y. Zhang, FAPS paper, Section 5.3.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(60, 4)) * [9, 3, 1, 1]
>>> pca = ep.FederatedPCA(n_components=2, solver="localpower", random_state=0).fit({"A": X[:20], "B": X[20:]})
>>> pca.converged_, pca.angle_estimate_ <= 1e-6
(True, True)
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from ...numerics.linalg import Array, orthonormalize, procrustes
from ...runtime import Progress, Site, Sum, local
from ..goal import LINEAR_ANGLE
from ..method import method
from ..parameters import check_choice, check_whole
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State
from ..start import Start, first_block
from ..told import doubt_local_power
from .subspace import Subspace, iteration_state

Align = Literal["procrustes", "sign", "none"]


@local(
    takes={"Z": "d k", "q": "", "align": ""},
    sends={"G": "d k"},
    reads=CENTRE,
    bound="trace",
    means={"Z": "orthonormal", "q": "count", "align": "count"},
    doubt=doubt_local_power,
)
def local_power(site: Site, Z: Array, q: Any, align: Any) -> Array:
    """C_i Z_i, where Z_i is Z after q - 1 subspace iterations with the site's own C_i, turned back towards Z."""
    rows = rows_of(site)
    Z_i = Z
    for _ in range(int(q) - 1):  # line 3
        Z_i = orthonormalize(rows.scatter_action(Z_i))
    return rows.scatter_action(aligned(Z_i, Z, get_args(Align)[int(align)]))  # line 4


def aligned(A: Array, B: Array, how: Align) -> Array:
    """The basis A (d x k) of the same span that is closest to B (d x k): rotated, or with flipped columns, or as it is.

    >>> B = np.eye(3)[:, :2]
    >>> bool(np.allclose(aligned(B[:, ::-1], B, "procrustes"), B)), bool(np.allclose(aligned(-B, B, "sign"), B))
    (True, True)
    """
    if how == "procrustes":
        return procrustes(A, B)
    if how == "sign":
        return A * np.where(np.sum(A * B, axis=0) < 0, -1.0, 1.0)
    return A


@method(
    "consensus",
    {Sum: (local_power,)},
    includes=(Subspace,),
    remark="From the round on in which q is 1, `scatter_action` replaces `local_power`.",
)
class LocalPower:
    """Subspace iteration with q local steps a round, q halved until it is 1.

    Parameters
    ----------
    q : int
        Local steps in the first rounds.
    patience : int
        Rounds after which q is halved.
    align : "procrustes", "sign" or "none"
        How sites turn their bases towards the common one before they are added.
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    """

    q: int = 8
    patience: int = 1
    align: Align = "procrustes"
    start: Start = "random"

    name = "localpower"
    default_angle = LINEAR_ANGLE

    def __post_init__(self) -> None:
        check_choice("start", self.start, Start)
        check_whole("q", self.q)
        check_whole("patience", self.patience)
        check_choice("align", self.align, Align)

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Take local steps while q > 1, then iterate until the KKT residual is small."""
        if state is None:
            Z, rounds = await first_block(setup, setup.whole_components(), self.start, start)  # line 1
            q = int(self.q)
            align = np.int64(get_args(Align).index(self.align))
            while q > 1:  # line 2
                for _ in range(int(self.patience)):
                    if rounds + 2 >= setup.max_rounds:  # the last rounds tell the residual and confirm it
                        q = 1
                        break
                    Z = orthonormalize(await Sum(local_power, Z, np.int64(q), align))  # lines 3 to 5
                    rounds += 1
                    await Progress(basis=Z, details={"q": q})
                q //= 2
            state = iteration_state(Z, rounds)
        return await Subspace().fit(setup, state=state)  # line 6
