"""Maximum-likelihood components of rows with missing entries: ``FederatedPCA(missing="em")``.

Problem
    Site i holds rows (n_i x d), some entries missing (NaN).  A row is y = m + W x + e with scores x ~ N(0, I_k) and noise e ~
    N(0, s I_d): probabilistic PCA.  Wanted are W (d x k), m and s that make the entries that are there most likely, all sites
    together.  Components are the principal axes of W.  Without missing entries they are those of PCA.

Rounds
    1. Z <- a random d x (k + 4) block.  For six rounds: every site sends its rows' product with a block, missing entries zero;
       with the shares of entries that are there this gives products with an unbiased estimate of the covariance, and a block
       Krylov space of it.  Its leading Ritz pairs are the first W and s, all its Ritz pairs a guess of the curvature.
    2. for each round:
    3.     the coordinator sends W, m, s; every site does the E-step for its own rows, fills its own holes, and sends its part of
           the log-likelihood and of the gradient
    4.     if the likelihood has risen, the point is accepted; else the step is shortened
    5.     stop if the next step would turn W by less than the angle asked for, in view of how steps became shorter; or if the
           scaled KKT residual of the expected scatter is at most ``tol``; or if rounding errors allow no more
    6.     the next step: L-BFGS about the curvature that whole rows would have (``numerics/ppca.py``)
    7. confirmation: a space grown from W and the random block under the scatter that the model expects of whole rows, until it is
       proved that W are its leading eigenvectors, so that an exact M-step of EM changes nothing (``certificate.py``); if it finds
       others, they are the next W, and 2. begins again

What is proved
    "Converged" says that the likelihood was seen to be stationary, to the estimated angle, and that no direction was missed in
    the sense of 7.  The likelihood of rows with holes is not concave, and may have other maxima; that none is higher is not
    proved.  The likelihood never falls from one accepted point to the next; ``history_`` has it as the objective.

Leaves the site
    Y_i^T (Y_i Z) (d x (k + 4)) of rows with zeros in their holes, then sums of d x k and d numbers and two numbers a round, in
    the end products (d x b) with the expected scatter; all summed.  What is sent to sites acts on single entries, unlike
    elsewhere (``numerics/site_rows.py``), so no policy lists these functions unless its owner does.

Cost
    8 d (k + 1) bytes each way, and about 4 n_i d k^2 flops per site and round; rows that lack the same entries share a matrix.

Differences from the papers
    The gradient is that of Fisher's identity, from the sums that EM needs; L-BFGS on it takes the place of the M-step, which
    converges like subspace iteration, by lambda_{k+1} / lambda_k a round and slower where more is missing.  The start, the guess
    of the curvature, the stopping rule and the confirmation are ours.

References
    M. E. Tipping, C. M. Bishop, "Probabilistic principal component analysis", J. R. Stat. Soc. B 61 (1999);
    A. Ilin, T. Raiko, "Practical approaches to principal component analysis in the presence of missing values", JMLR 11 (2010);
    M. Jamshidian, R. I. Jennrich, "Acceleration of the EM algorithm by using quasi-Newton methods", JRSS B 59 (1997);
    K. Lounici, "High-dimensional covariance matrix estimation with missing observations", Bernoulli 20 (2014), eq. (1.4).

>>> import numpy as np, eigenpact as ep
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 8)) * 3 + rng.normal(size=(200, 8))
>>> X[rng.random(X.shape) < 0.1] = np.nan
>>> pca = ep.FederatedPCA(2, missing="em", random_state=0).fit({"A": X[:80], "B": X[80:]})
>>> pca.converged_, pca.transform(X[:3]).shape
(True, (3, 2))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.either import there
from ...numerics.linalg import Array
from ...numerics.ppca import Frame, Likelihood, Model, likelihood
from ...runtime import Progress, Site, Sum, local
from ...runtime.rare import DROPPED
from ..goal import EXACT_ANGLE, Goal, check_angle_tol, in_words
from ..method import method
from ..solution import Solution, State, cut_in_words
from .climbing import Climb
from .expected import EXPECTED, Expected, confirm
from .first_space import FIRST_SPACE, first_space
from .observed import FEW_DIGITS, ObservedSetup, holed_rows

NO_NOISE = 1e-12
"""Noise below this share of the mean variance is none: the likelihood has no maximum."""

ROUGH = 1e-6
"""Where rounding errors allow no more, an answer has still converged if its sine is estimated to be at most this."""

MOST_TRIES = 5
"""So often the search begins anew after a direction was missed."""


@local(
    takes={"W": "d k", "mean": "d", "noise": ""},
    sends={"G": "d k", "g": "d", "value": "", "squares": ""},
    reads=("mean", "scale", DROPPED),
    means={"mean": "centre", "noise": "scale"},
    holes=True,
)
def observed_likelihood(site: Site, W: Array, mean: Array, noise: Array) -> Any:
    """Gradients by W and by the mean, times the noise; the log-likelihood; and expected squares of the noise."""
    d, k = W.shape
    found = Likelihood(np.zeros((d, k)), np.zeros(d), 0.0, 0.0)
    m = there(mean, site.X)
    for Y, seen in holed_rows(site, k):
        found = found + likelihood(Y - m, seen, W, float(noise))
    return found.W, found.mean, np.float64(found.value), np.float64(found.squares)


@dataclass(frozen=True, eq=False)
class LikelySolution(Solution):
    """A solution with what else the model has: the mean (d,), the noise's variance in the scale in use, the log-likelihood."""

    mean: Array = field(kw_only=True)
    noise: float = field(kw_only=True)
    log_likelihood: float = field(kw_only=True)


@method("missing", {Sum: (observed_likelihood,)}, parts=(FIRST_SPACE, EXPECTED))
class EM:
    """Maximum likelihood for rows with missing entries (probabilistic PCA).

    Parameters
    ----------
    angle_tol : float, optional
        Stop as soon as the estimated sine of the largest angle to where the components come to rest is at most this; without
        ``tol`` the default is 1e-8, or what rounding allows.
    """

    angle_tol: float | None = None

    name = "em"
    default_angle = EXACT_ANGLE

    def __post_init__(self) -> None:
        check_angle_tol(self.angle_tol)

    async def fit(self, setup: ObservedSetup, start: Array | None = None, state: State | None = None) -> LikelySolution:  # noqa: ARG002
        """Climb until the likelihood is stationary and no direction was missed."""
        goal, k = Goal.of(setup, self.angle_tol, self.default_angle), _components(setup)
        first = await first_space(setup, k, start)  # line 1
        frame, rounds = first.frame(setup, k), first.rounds
        model, verdict = frame.model(), None
        for _ in range(MOST_TRIES):
            climb, rounds = await _climb(setup, Climb(frame, model), goal, rounds)  # lines 2 to 6
            if rounds >= setup.max_rounds or _without_noise(setup, climb.model) or not _at_rest(setup, climb, goal):
                break
            objective = _told(setup, climb)
            verdict = await confirm(climb.model, first, objective, rounds, setup.max_rounds)  # line 7
            rounds = verdict.rounds
            if not verdict.lost:
                break
            frame = _better_frame(frame, climb.model, verdict, setup.n_samples)
            model = Model(frame.model().W, climb.model.mean, climb.model.log_noise)
        return _solution(setup, climb, verdict, goal, rounds)


def _components(setup: ObservedSetup) -> int:
    """The number of components, which must leave room for noise; refused if nothing varies."""
    k, most = setup.n_components, int(np.sum(setup.seen > 0)) - 1
    if not isinstance(k, int) or k > most:
        raise InputError(
            f"n_components={k} with missing='em' must be a whole number between 1 and {most}, less than the features, so that "
            "noise is left; or use missing='mean'"
        )
    if np.all(setup.variances <= (FEW_DIGITS * setup.mean / setup.scale) ** 2):
        raise InputError(
            "all values of every feature are the same, so missing='em' finds neither components nor noise; give rows that vary"
        )
    return k


async def _climb(setup: ObservedSetup, climb: Climb, goal: Goal, rounds: int) -> tuple[Climb, int]:
    """Go uphill until the point is at rest, or nothing is left to be done; the climb, and rounds used so far."""
    k = climb.model.W.shape[1]
    while True:  # line 2
        trial = Model.of(climb.trial, k)
        G, g, value, squares = await Sum(observed_likelihood, trial.W, trial.mean, np.float64(trial.noise))  # line 3
        rounds, s = rounds + 1, trial.noise
        by_noise = (float(squares) - s * float(setup.seen.sum())) / (2 * s)
        free = setup.center == "pooled"
        climb.take(float(value), Model(G / s, g / s * free, by_noise).flat())  # lines 4 and 6
        U, _ = climb.model.components()
        details = {} if climb.angle is None else {"angle": climb.angle}
        await Progress(basis=U, objective=_told(setup, climb), kkt=_residual(setup, climb), details=details)
        over = rounds >= setup.max_rounds or climb.stalled or _without_noise(setup, climb.model)
        if over or goal.met(_residual(setup, climb), climb.angle):  # line 5
            return climb, rounds


def _told(setup: ObservedSetup, climb: Climb) -> float:
    """The log-likelihood of the rows as they are, not as they were scaled."""
    return climb.value - float(setup.seen @ np.log(setup.scale))


def _residual(setup: ObservedSetup, climb: Climb) -> float:
    """||(I - U U^T) S^ U||_F over the trace, S^ the scatter that the model expects of whole rows: it is in the gradient."""
    model = climb.model
    U, lengths, Vt = np.linalg.svd(model.W, full_matrices=False)
    G = Model.of(climb.gradient, len(lengths)).W @ Vt.T
    G = G - U @ (U.T @ G)
    lengths = np.maximum(lengths, np.finfo(float).tiny)
    return float(np.linalg.norm(G * (model.noise * (lengths + model.noise / lengths))) / setup.trace)


def _without_noise(setup: ObservedSetup, model: Model) -> bool:
    return model.noise < NO_NOISE * setup.trace / setup.n_samples / setup.n_features


def _at_rest(setup: ObservedSetup, climb: Climb, goal: Goal) -> bool:
    """Whether the goal is met, or nearly so where rounding errors allow no more."""
    near = climb.stalled and climb.angle is not None and climb.angle <= ROUGH
    return near or goal.met(_residual(setup, climb), climb.angle)


def _better_frame(frame: Frame, model: Model, verdict: Expected, n: int) -> Frame:
    """About the leading eigenvectors of the expected scatter: an exact M-step for W."""
    ritz, k = verdict.ritz, model.W.shape[1]
    return Frame(
        U=np.ascontiguousarray(ritz.Z),
        variances=np.maximum(ritz.values[:k] / n, model.noise * (1 + 1e-6)),
        others=verdict.space.Q @ ritz.turn[:, k:],
        other_variances=np.maximum(ritz.values[k:] / n, 0.0),
        noise=model.noise,
        seen=frame.seen,
        rows=frame.rows,
        free_mean=frame.free_mean,
    )


def _solution(setup: ObservedSetup, climb: Climb, verdict: Expected | None, goal: Goal, rounds: int) -> LikelySolution:
    """The answer, and why it ended."""
    U, variances = climb.model.components()
    k, residual = len(variances), _residual(setup, climb)
    rest = _at_rest(setup, climb, goal)
    certain = verdict is not None and verdict.certain
    cut = verdict.found.cut if verdict is not None and certain else "clear"
    at = f"log-likelihood {_told(setup, climb):.10g}, scaled KKT residual {residual:.1e}, estimated sine {in_words(climb.angle)}"
    if _without_noise(setup, climb.model):
        rest, reason = False, f"the rows have no noise beside {k} components, so no likelihood is the largest; ask for fewer"
    elif rest and certain:
        reached = f"{goal.told()} reached" if not climb.stalled else f"what rounding allows ({goal.told()} asked for)"
        reason = f"the likelihood is stationary and no direction was missed: {reached}; {at}"
        reason = f"{cut_in_words(cut, k)}; {reason}" if cut != "clear" else reason
    elif rounds >= setup.max_rounds:
        reason = f"max_rounds={setup.max_rounds} reached at {at}; raise max_rounds"
    elif rest:
        reason = (
            f"the likelihood is stationary, but it is not proved that no direction was missed; {at}; ask for fewer components"
        )
    else:
        reason = f"no step raises the likelihood any more at {at}, {goal.told()} asked for; ask for fewer components"
    mean = climb.model.mean * setup.scale + (setup.mean if setup.center == "pooled" else 0.0)
    return LikelySolution(
        basis=U,
        eigenvalues=setup.n_samples * variances,
        kkt=residual,
        angle=climb.angle if cut == "clear" else None,
        converged=rest and certain,
        reason=reason,
        cut=cut,
        mean=mean,
        noise=climb.model.noise,
        log_likelihood=_told(setup, climb),
    )
