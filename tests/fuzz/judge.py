"""Is a fit right, or does it say that it is not?

``Asked`` is what was asked of the solver, ``Answer`` what a fit said, ``judge`` compares the answer with the truth.  In order:

- *refused*: an ``EigenpactError``.  Any other exception is wrong.
- Rows that are not orthonormal are wrong, converged or not; so is a fit that is not converged and does not warn.
- *honest*: not converged, and it warned.
- Variances must be the Ritz values of the components: a solver may report them one residual late, no more.
- With ``tol`` the true scaled residual must be what was asked, and the components must not miss a direction.  The Ritz values of
  an orthonormal Z lie, one by one, next to k eigenvalues of C, the squares of their distances adding up to 2 ||R||_F^2 at most
  (R = C Z - Z Z^T C Z).  If these are the k largest, the captured variance is short by at most sqrt(2 k) ||R||_F.  More is a
  missed direction.
- Without ``tol`` the true sine must be what was asked (or what the fit said, or what rounding allows).  At a tie the sine means
  nothing and the captured variance is judged instead, with the angle asked for in place of the residual.
- An ``angle_estimate_`` below a tenth of the true sine is wrong where rounding does not explain it, and at a tie always.
- *not identifiable*: it warned that the cut parts equals, and it does.
- *unknown*: no estimate of the angle, or a warning of a tie where the gap is clear.
- *coarse*: converged without ``tol``, at a true sine above what was asked and what rounding allows, or at a tie with no warning;
  but its estimate says so.
- *right*: everything else.

All comparisons allow a factor of ten.  Estimates (one-shot, hot potato) promise orthonormal rows and an honest angle, no more.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import eigenpact as ep
from tests.fuzz.problems import Array
from tests.fuzz.truth import Truth

SLACK = 10.0
ORTHONORMAL = 1e-10

Word = Literal["right", "refused", "honest", "unknown", "not identifiable", "coarse", "wrong"]


@dataclass(frozen=True)
class Asked:
    """``angle``: the sine to stop at where ``tol`` is None; ``exact`` False for solvers that only estimate."""

    angle: float
    tol: float | None = None
    exact: bool = True


@dataclass(frozen=True, eq=False)
class Answer:
    """What a fit said: the fitted estimator, or the error it ended with, and the warnings it gave."""

    pca: Any = None
    error: Exception | None = None
    warned: tuple[type[Warning], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """One word, why, and the numbers: true sine, estimate, what rounding allows, true scaled residual, relative gap."""

    word: Word
    why: str = ""
    sine: float | None = None
    estimate: float | None = None
    rounding: float | None = None
    residual: float | None = None
    gap: float | None = None
    cut: str = ""

    def __str__(self) -> str:
        numbers = {
            "sine": self.sine,
            "estimate": self.estimate,
            "rounding": self.rounding,
            "residual": self.residual,
            "gap": self.gap,
        }
        told = ", ".join(f"{name} {'None' if x is None else f'{x:.1e}'}" for name, x in numbers.items())
        return f"{self.word}{': ' if self.why else ''}{self.why} ({told}{', ' if self.cut else ''}{self.cut})"


def answer(pca: Any, sites: Any) -> Answer:
    """Fit, and keep what it says; an error that is not eigenpact's own is kept too, for it is a verdict."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            pca.fit(sites)
        except Exception as error:  # whatever it is: anything but a refusal will be called wrong
            return Answer(error=error)
    return Answer(pca, warned=tuple(w.category for w in caught))


def judge(answer: Answer, true: Truth, asked: Asked) -> Verdict:
    """The verdict on an answer."""
    if answer.error is not None:
        told = f"{type(answer.error).__name__}: {answer.error}"
        return Verdict("refused" if isinstance(answer.error, ep.errors.EigenpactError) else "wrong", told)
    pca = answer.pca
    coarse = float(np.finfo(pca.components_.dtype).eps)  # single precision rows give components in single precision
    Z = np.asarray(pca.components_, dtype=np.float64).T
    estimate = pca.angle_estimate_
    off = float(np.abs(Z.T @ Z - np.eye(Z.shape[1])).max()) if np.isfinite(Z).all() else np.inf
    if not off <= max(ORTHONORMAL, SLACK * coarse):
        return Verdict("wrong", f"rows are orthonormal to {off:.0e} only", estimate=estimate, gap=true.relative_gap, cut=true.cut)
    Z = np.linalg.qr(Z)[0]
    rounding = true.angle + (coarse * np.sqrt(true.k) if coarse > 1e-10 and not true.whole else 0.0)
    numbers = {
        "sine": true.sine(Z),
        "estimate": estimate,
        "rounding": rounding,
        "residual": true.residual(Z) / true.trace if true.trace > 0 else 0.0,
        "gap": true.relative_gap,
        "cut": true.cut,
    }

    def verdict(word: Word, why: str = "") -> Verdict:
        return Verdict(word, why, **numbers)

    told_tie, told_unconverged = (
        _among(answer, kind) for kind in (ep.errors.NotIdentifiableWarning, ep.errors.NotConvergedWarning)
    )
    if asked.exact and not pca.converged_:
        return verdict("honest") if told_unconverged else verdict("wrong", "not converged, and no warning")
    stray = [
        kind for kind in answer.warned if not issubclass(kind, ep.errors.NotIdentifiableWarning | ep.errors.NotConvergedWarning)
    ]
    faults = [f"warned of {stray[0].__name__}"] if stray else []
    if asked.exact:
        faults += _variance_faults(pca, Z, true, coarse)
        faults += _fit_faults(Z, true, asked, rounding, coarse, estimate, told_tie)
    if not told_tie:
        faults += _estimate_faults(numbers["sine"], estimate, rounding, true.cut)
    if faults:
        return verdict("wrong", "; ".join(faults))
    if told_tie:
        return verdict("unknown", "says that a clear gap is a tie") if true.cut == "clear" else verdict("not identifiable")
    if estimate is None:
        return verdict("unknown")
    allowed = SLACK * max(asked.angle, 0.0 if true.cut == "tie" else rounding)
    return verdict("coarse" if asked.exact and asked.tol is None and numbers["sine"] > allowed else "right")


def _among(answer: Answer, kind: type[Warning]) -> bool:
    return any(issubclass(category, kind) for category in answer.warned)


def _fit_faults(
    Z: Array, true: Truth, asked: Asked, rounding: float, coarse: float, estimate: float | None, told_tie: bool
) -> list[str]:
    """What the components lack of what was asked."""
    trace, k, faults = true.trace, true.k, []
    sine, residual = true.sine(Z), true.residual(Z)
    noise = true.noise + coarse * trace
    if asked.tol is not None and residual > SLACK * max(asked.tol * trace, noise):
        faults.append(f"scaled residual {residual / trace:.1e}, asked {asked.tol:.0e}")
    by_angle = asked.tol is None and true.cut == "clear" and not told_tie
    if by_angle and sine > SLACK * max(asked.angle, estimate or 0.0, rounding):
        faults.append(f"sine {sine:.1e}, asked {asked.angle:.0e}")
    if not by_angle:
        tol = asked.angle if asked.tol is None else asked.tol
        short = float(true.eigenvalues[:k].sum() - true.ritz_values(Z).sum())
        if short > SLACK * np.sqrt(2 * k) * max(tol * trace, noise):
            faults.append(f"a direction is missed: {short / trace:.1e} of the variance")
    return faults


def _variance_faults(pca: Any, Z: Array, true: Truth, coarse: float) -> list[str]:
    """Variances that are not those of the components, relative to the largest; ratios that do not fit the variances."""
    k, trace, faults = true.k, true.trace, []
    size = np.longdouble(true.unit) ** 2 / max(true.n - 1, 1)
    told = np.asarray(pca.explained_variance_).astype(np.longdouble) / size
    own = true.ritz_values(Z)
    noise = true.noise + coarse * float(true.eigenvalues[0])
    off = float(np.abs(told - own).max()) if len(told) == k else np.inf
    if not off <= SLACK * noise + 2 * true.residual(Z):
        faults.append(f"variances are off by {off / max(float(true.eigenvalues[0]), np.finfo(float).tiny):.1e} of the largest")
    if trace > 0 and noise < 0.01 * trace:
        wrong = float(np.abs(np.asarray(pca.explained_variance_ratio_) - told / trace).max())
        if not wrong <= SLACK * (noise / trace + coarse):
            faults.append(f"ratios are off by {wrong:.1e}")
    return faults


def _estimate_faults(sine: float, estimate: float | None, rounding: float, cut: str) -> list[str]:
    """An estimated angle that is far too small."""
    if estimate is None or cut == "vague":
        return []
    if not np.isfinite(estimate):
        return [f"the angle is estimated as {estimate}"]
    if sine > SLACK * max(estimate, 0.0 if cut == "tie" else rounding):
        return [f"claims an angle of {estimate:.1e}, true sine {sine:.1e}{' at a tie' if cut == 'tie' else ''}"]
    return []
