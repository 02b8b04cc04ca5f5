"""Rayleigh-Ritz on a space that grows by one block a round: the one loop of krylov, lanczos and davidson.

Rounds
    1. B <- Omega, a random orthonormal block (d x b, b = k + max(4, k // 5)), beside a given start if there is one
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B], C Q <- [C Q, C B]; Rayleigh-Ritz on span(Q): leading Ritz vectors Z with residuals R
    5.     stop if Z is good enough **and** the random block proves that no direction was missed (``certificate.py``)
    6.     once, if rounding errors are in the way because one Ritz value dwarfs the rest: turn Q to Ritz vectors, make C Q anew;
           if another block would exceed max_blocks (thick restart): keep leading Ritz vectors, three columns of Omega and the
           solutions of (lambda I - C) X = Omega that the space has, lambda >= theta_k: F(lambda) then stays as small as it was
    7.     B <- what the method adds (k directions), and k that make the proof: those of F(theta_k), where a missed direction
           would show
    Where the number of components follows from a share of the variance, and more leading values are equal than the random block
    can tell, a wider one takes its place (one round).
    From a random start, and until the first restart, both are the next block of the Krylov space of Omega, so that is B.

Stopping
    With ``tol`` given, at a scaled KKT residual of ``tol``; else, or in addition, at an estimated sine of the angle.  The
    certificate bounds the angle by residuals over gaps.  That is too large by a factor that hardly changes from round to round,
    because residuals point mostly to directions of low variance.  So past bounds are compared with how far past iterates turned
    out to be from the present one, and the present bound is lowered by the same factor, times ``SAFETY``.  Where rounding
    errors, measured by the asymmetry of Q^T C Q, do not allow the angle asked for, the loop stops there and says so.  Values
    that tie at the cut, and components without variance, have no angle: that is said, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..numerics.certificate import (
    FEWEST_SPARE,
    LOOKED_AT,
    NARROW,
    TIE,
    ZERO,
    Behind,
    Certificate,
    certify,
    may_be_rounding,
    rounding_errors,
    spare,
)
from ..numerics.directions import new_directions
from ..numerics.krylov_space import SMALLEST_STEP, KrylovSpace, Ritz
from ..numerics.linalg import GRADED, Array, orthonormalize, random_orthonormal, unit_columns
from ..numerics.metrics import kkt
from ..runtime import Progress
from .goal import Goal, check_angle_tol, in_words
from .parameters import check_choice, check_whole
from .rough import product
from .setup import Setup
from .solution import Solution
from .stand import Past, Stand, random_block, random_block_of, width_of
from .start import Start

AT_ROUNDING, STALL, LONG_STALL, FINE = 4.0, 10, 100, 1e-12
"""Bounds within this many times the rounding errors fall no more; nor do those that did not fall for so many rounds, longer while
the proof is still open, with a residual that small."""

NEW = 1e-11
"""How much of a unit vector must be new to be taken for more than rounding."""

BLOCKS, MOST_BLOCKS, NUMBERS = 30, 60, 1 << 27
"""Blocks that are kept if nobody says how many; and how many more where so many numbers are enough for them and their products.
To turn a space of 30 blocks twice, in a restart and to confirm the answer after it, takes as long as 20 rounds of growth."""

SOON = 1.1
"""The proof is looked for once residuals, by themselves or over Ritz gaps, are within this factor of what can end the loop:
rounding errors of eigenvectors change them by far less.  It takes all m eigenvectors of Q^T C Q, where others need k + 1."""

PROOF = NARROW * (1 + len(LOOKED_AT))
"""Columns that a restart keeps for the proof."""

TIED = 1e-6
"""Values within this relative distance count as equal where the random block may be too narrow for them."""

Directions = Callable[[KrylovSpace, Ritz, float], Coroutine[Any, Any, Array]]
"""From the space, Ritz pairs and scaled residual to the directions (d x k) that a method wants to add, of any length."""


def check_expansion(start: Start, angle_tol: float | None, max_blocks: int | None) -> None:
    """Refuse parameters with which the loop cannot begin, end, or restart."""
    check_choice("start", start, Start)
    check_angle_tol(angle_tol)
    if max_blocks is not None:
        check_whole("max_blocks", max_blocks, 3, ": two blocks to keep and one to add")


@dataclass(frozen=True, eq=False)
class View:
    """What a round shows of the leading Ritz vectors.

    Attributes
    ----------
    ritz : Ritz
    residual : float
        Scaled KKT residual; where products are rough, with the rounding errors that they show.
    found : Certificate
    rough, angle : float, float or None
        Residuals over Ritz gaps; and the certified bound, lowered by what past rounds teach.
    enough : bool
        Whether there are as many components as asked for.
    met, settled : bool
        Whether the goal is met; and whether more rounds would tell no more.
    """

    ritz: Ritz
    residual: float
    found: Certificate
    rough: float
    angle: float | None
    enough: bool
    met: bool
    settled: bool

    @classmethod
    def of(
        cls,
        setup: Setup,
        space: KrylovSpace,
        omega: Array,
        past: Past,
        stand: Stand,
        goal: Goal,
        *,
        ahead: bool = False,
        final: bool = False,
    ) -> View:
        """Rayleigh-Ritz on ``space`` (line 4), and what it proves.

        In a Krylov space, leading pairs show by themselves that a round cannot be the last: then nobody looks for a proof.  A
        round that can, or is to be the ``final`` one, or the last that is allowed, is judged by the residuals themselves.  The
        space's next block is made meanwhile where that is what comes next (``ahead``).
        """
        glimpse, final = None, final or stand.rounds >= setup.max_rounds
        if stand.pure and not final and type(goal) is Goal and isinstance(setup.n_components, int):
            glimpse = space.glimpse(setup.n_components, omega.shape[1] if ahead else 0)
        if glimpse is not None:
            view = cls._judged(setup, glimpse, Certificate.unknown(glimpse.k), past, stand, goal)
            if not _may_end(setup, view, past, stand, goal):
                return view
        ritz, measured = _ritz(setup, space), final or not space.is_krylov
        while True:
            ritz = replace(ritz, measured=measured)
            unseen = float(np.linalg.norm(rounding_errors(space, ritz))) if setup.rough else 0.0
            view = cls._judged(setup, ritz, certify(space, ritz, omega, setup.noise), past, stand, goal, unseen)
            if measured or not (view.done(stand) or view.improvable(stand)):
                return view
            measured = True

    @classmethod
    def _judged(
        cls, setup: Setup, ritz: Ritz, found: Certificate, past: Past, stand: Stand, goal: Goal, unseen: float = 0.0
    ) -> View:
        residual = (float(np.linalg.norm(ritz.off)) + unseen) / setup.trace if setup.trace > 0 else 0.0
        rough = ritz_gap_angle(ritz)
        angle = None if found.angle is None else max(found.rounding, past.factor(past.form(ritz), rough) * found.angle)
        settled = _settled(found, stand.after(rough).idle, residual) or setup.trace <= 0
        enough = setup.wanted(ritz.values) is not None
        return cls(ritz, residual, found, rough, angle, enough, goal.met(residual, angle, lambda: ritz.Z), settled)

    def progress(self, setup: Setup, state: dict[str, Array] | None) -> Progress:
        """What is told of the round, with the ``state`` to go on from."""
        details = {} if self.angle is None else {"angle": self.angle}
        share = setup.share(self.ritz.values[: self.ritz.k])
        return Progress(basis=lambda: self.ritz.Z, objective=share, kkt=self.residual, details=details, state=state)

    def confirming(self, setup: Setup, own: Array, CQ: Array) -> Progress:
        """What is told of a round that confirms a basis (d x k), of whose products those are the first columns."""
        details = {"confirming": 1.0 if self.angle is None else self.angle, "ritz_kkt": self.residual}
        return Progress(basis=own, kkt=kkt(CQ[:, : own.shape[1]], own, setup.trace), details=details)

    def improvable(self, stand: Stand) -> bool:
        """Whether rounding errors are in the way that products with the Ritz vectors themselves would not have: blocks that
        contain the direction of one large value lose digits in all others."""
        k, values = self.ritz.k, self.ritz.values
        lost, uneven = self.found.rank < k, bool(values[0] > GRADED * abs(values[k - 1]))
        return ((self.settled and not self.met) or lost) and not stand.anew and uneven

    def done(self, stand: Stand) -> bool:
        """Whether nothing was missed, and the answer is good enough or as good as it gets."""
        return self.enough and not self.found.missed and (self.met or self.settled) and not self.improvable(stand)


async def begin(setup: Setup, start: Array | None, rounds: int) -> dict[str, Array]:
    """The state after the first round (lines 1, 3), with the directions ``start`` (d x any) if given; ``rounds`` were used
    before."""
    B = random_block(setup)
    if start is not None:
        first = orthonormalize(start)[:, : setup.n_features]
        B = np.concatenate([first, new_directions(B, first, SMALLEST_STEP)], axis=1)
    space = KrylovSpace(B, await product(setup, np.ascontiguousarray(B)), B.shape[1])
    return _state(space, Past.empty(), Stand(rounds + 1, pure=start is None))


def _state(space: KrylovSpace, past: Past, stand: Stand) -> dict[str, Array]:
    """Everything that the loop goes on from; columns of the space as rows, which are copied nowhere."""
    known = {"rows": space.Q.T, "products": space.CQ.T, "fresh": np.array(space.fresh)}
    known |= {"inner": space.inner, "lengths": space.lengths, "spilt": space.spilt}
    return known | past.state() | {"counters": stand.counters()}


def space_of(state: Mapping[str, Array]) -> KrylovSpace:
    """The space of a state; journals of 0.1.0 and 0.2.0 have its columns as such, and less of what is known of them."""
    fresh = int(state["fresh"])
    if "rows" not in state:
        return KrylovSpace(state["Q"], state["CQ"], fresh)
    return KrylovSpace(state["rows"].T, state["products"].T, fresh).knowing(state["inner"], state["lengths"], state["spilt"])


async def expand(
    setup: Setup,
    directions: Directions | None,
    state: Mapping[str, Array],
    *,
    goal: Goal,
    max_blocks: int | None,
    facts: Mapping[str, Array] | None = None,
    own: Array | None = None,
) -> Solution:
    """Grow the space Q, C Q of ``state`` until the goal is met and nothing can have been missed (lines 2 to 7).

    ``state`` is that of :func:`begin` or of an earlier Progress; ``facts`` are kept with it for whoever resumes.  A method that
    only has its basis ``own`` (d x k), the first columns of Q, confirmed is told of with that basis, and keeps no state here; the
    residual of the Ritz vectors, which are not its answer, is told apart ("ritz_kkt").
    """
    stand, past, space = Stand.of(state["counters"]), Past.of(state), space_of(state)
    first, omega = space.CQ, random_block_of(setup, stand)
    while True:  # line 2
        view = View.of(setup, space, omega, past, stand, goal, ahead=directions is None)
        narrow = _hides_ties(setup, view, stand)
        done, improvable, stand = view.done(stand) and not narrow, view.improvable(stand), stand.after(view.rough)
        last = stand.rounds >= setup.max_rounds or (done and stand.confirmed)
        saved = None if last or own is not None else _state(space, past, stand) | dict(facts or {})
        await (view.progress(setup, saved) if own is None else view.confirming(setup, own, first))
        if last:  # line 5
            break
        past, ritz = past.add(past.form(view.ritz), view.rough), view.ritz
        if narrow:
            space, stand = await _widened(setup, space, ritz.k, stand)
            omega = random_block_of(setup, stand)
            continue
        most = _most_columns(setup, max_blocks, ritz.k)
        restart = improvable or (space.size + width_of(setup) > most and not done)
        past = past.outside(space.Q) if restart or done else past
        if restart:  # line 6
            omega = np.ascontiguousarray(omega[:, :NARROW])
            space = _restarted(space, _ritz(setup, space), omega, space.size if improvable else most)
            stand = replace(stand, confirmed=False, pure=False, restarted=True)
        if improvable:
            space = await _refreshed(setup, space, space.size)
            stand = replace(stand, confirmed=True, anew=True, best=np.inf, idle=0)
        elif done:  # products were turned in a restart: make the wanted ones anew
            space, stand = await _refreshed(setup, space, ritz.k), replace(stand, confirmed=True)
        else:
            if stand.pure and directions is None:
                B = space.next_block(omega.shape[1])
            else:
                ritz = _ritz(setup, space) if restart or len(ritz.values) < space.size else ritz
                wanted = ritz.residual if directions is None else await directions(space, ritz, view.residual)
                B = _with_proof(setup, space, ritz, omega, wanted)
            B = np.ascontiguousarray(B[:, : max(1, most - space.size)])
            if B.shape[1] == 0:  # C adds nothing to span(Q), which holds the random block: nothing was missed
                if view.enough:
                    view = View.of(setup, space, omega, past, stand, goal, final=True)
                    return _solution(setup, view, goal, True, stand.rounds)
                B = _anything(setup, space)
            space = space.add(B, await product(setup, B))  # lines 3, 4
        stand = replace(stand, rounds=stand.rounds + 1)
    return _solution(setup, view, goal, done and stand.confirmed, stand.rounds)


def _hides_ties(setup: Setup, view: View, stand: Stand) -> bool:
    """Whether more leading values are equal than a random block can tell, so that it may have nothing of one more.

    A block of b columns has b directions of an eigenspace, and its Krylov space never more.  For k components it is wider than k;
    where their number follows from a share of the variance, it was made before that was known.
    """
    whole = max(stand.block, len(view.ritz.values)) >= setup.n_features
    if isinstance(setup.n_components, int) or not view.enough or whole:
        return False
    most = stand.block - FEWEST_SPARE if stand.block else width_of(setup)
    values = view.ritz.values[: view.ritz.k]
    return bool(np.any(values[most:] >= (1 - TIED) * values[: max(0, len(values) - most)]))


async def _widened(setup: Setup, space: KrylovSpace, k: int, stand: Stand) -> tuple[KrylovSpace, Stand]:
    """The space with a random block that is wide enough for k components.  One round, unless it is in there already."""
    stand = replace(stand, block=min(k + spare(k), setup.n_features), pure=False, restarted=False, best=np.inf, idle=0)
    B = new_directions(random_block_of(setup, stand), space.Q, SMALLEST_STEP)
    if B.shape[1]:
        space, stand = space.add(B, await product(setup, B)), replace(stand, rounds=stand.rounds + 1)
    return space, stand


def _anything(setup: Setup, space: KrylovSpace) -> Array:
    """Random directions outside the space (d x at most a block)."""
    anything = random_orthonormal(setup.n_features, width_of(setup), setup.seed + space.size)
    return new_directions(anything, space.Q, SMALLEST_STEP)


def _ritz(setup: Setup, space: KrylovSpace) -> Ritz:
    """Rayleigh-Ritz with as many vectors as asked for, or as there are."""
    return space.ritz(lambda values: setup.wanted(values) or len(values))


def ritz_gap_angle(ritz: Ritz) -> float:
    """Residuals over gaps to the next Ritz value, at most 1; 1 if there is none."""
    k = ritz.k
    if k == len(ritz.values):
        return 1.0
    gaps = ritz.values[:k] - ritz.values[k]
    if gaps[-1] <= 0:
        return 1.0
    return min(1.0, float(np.linalg.norm(ritz.off / gaps)))


def _settled(found: Certificate, idle: float, residual: float) -> bool:
    """Whether more rounds would tell no more: no gap to be seen, no variance left, or rounding errors reached."""
    if found.cut in ("tied", "hidden") or found.rank == 0:
        return True
    if found.angle is not None and found.angle <= AT_ROUNDING * found.rounding:
        return True
    return idle >= (LONG_STALL if found.angle is None else STALL) and residual <= FINE


def _may_end(setup: Setup, view: View, past: Past, stand: Stand, goal: Goal) -> bool:
    """Whether a look at the proof could end the loop: no angle is smaller than that by the gap of Ritz values, and what else ends
    it takes a gap, a variance or residuals as small as rounding errors, or rounds without progress at a small residual."""
    ritz, k = view.ritz, view.ritz.k
    noise = np.maximum(rounding_errors(ritz.space, ritz), setup.noise)
    empty, tied = ritz.values[k - 1] <= ZERO * float(noise.max()), ritz.values[k - 1] - ritz.values[k] <= TIE * float(noise[-1])
    if setup.trace <= 0 or empty or tied or may_be_rounding(ritz, noise, SOON * AT_ROUNDING):
        return True
    stalled = stand.after(view.rough).idle >= STALL and view.residual <= SOON * FINE
    if stalled or (goal.tol is not None and view.residual <= SOON * goal.tol):
        return True
    least = past.factor(past.form(ritz), view.rough) * view.rough
    return goal.angle is not None and least <= SOON * goal.angle


def _with_proof(setup: Setup, space: KrylovSpace, ritz: Ritz, omega: Array, wanted: Array) -> Array:
    """Directions that a method wants, one a component, and those that show what the random block still hides (line 7)."""
    width = width_of(setup)
    more = max(width, FEWEST_SPARE) if omega.shape[1] > NARROW else NARROW
    B = new_directions(unit_columns(wanted), space.Q, NEW)[:, :width]
    F = Behind(space, ritz, omega).left() if ritz.k < space.size else omega[:, :0]
    size = float(np.linalg.norm(F))
    proof = new_directions(F / size, space.Q, NEW, beside=B)[:, :more] if size > 0 else F[:, :0]
    return np.concatenate([B, proof], axis=1)


def _restarted(space: KrylovSpace, ritz: Ritz, omega: Array, most: int) -> KrylovSpace:
    """Leading Ritz vectors, the random block, and the solutions that keep F as small as it is; half of ``most`` columns or so."""
    k = ritz.k
    proof = np.concatenate([unit_columns(Behind(space, ritz, omega).solved()), omega], axis=1)
    return space.shrunk(max(k + 1, (most - proof.shape[1]) // 2), proof)


def _most_columns(setup: Setup, max_blocks: int | None, k: int) -> int:
    """Columns that may be kept: max_blocks blocks, but room for the answer, the proof and two blocks more."""
    width = width_of(setup) + spare(width_of(setup))
    if max_blocks is None:
        max_blocks = min(max(BLOCKS, NUMBERS // (2 * setup.n_features * width)), MOST_BLOCKS)
    return max(max_blocks * width, 2 * k + PROOF + 2 * width)


async def _refreshed(setup: Setup, space: KrylovSpace, k: int) -> KrylovSpace:
    """The space turned to its Ritz vectors, the leading k products made anew.  One round."""
    turned = space.shrunk(space.size)
    CZ = await product(setup, np.ascontiguousarray(turned.Q[:, :k]))
    return KrylovSpace(turned.Q, np.concatenate([CZ, turned.CQ[:, k:]], axis=1))


def _solution(setup: Setup, view: View, goal: Goal, converged: bool, rounds: int) -> Solution:
    k, cut = view.ritz.k, view.found.cut
    angle = view.angle if cut == "clear" else None
    if converged:
        reason = goal.reached(view.residual, angle, cut, k)
    else:
        open_question = "; a direction of larger variance is not excluded yet" if view.found.missed else ""
        reason = (
            f"max_rounds={setup.max_rounds} reached at scaled KKT residual {view.residual:.1e}, estimated sine "
            f"{in_words(angle)}, asked for {goal.told()}{open_question}; raise max_rounds"
        )
    values = np.maximum(view.ritz.values[:k], 0.0)
    behind = view.found.bound or (float(view.ritz.values[k]) if k < len(view.ritz.values) else 0.0)
    return Solution(view.ritz.Z, values, view.residual, angle, converged, reason, {"rounds": rounds}, cut, behind)
