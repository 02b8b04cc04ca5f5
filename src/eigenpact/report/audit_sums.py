"""The audit's attacks on sums and models: each makes one or two runs more, and compares what they tell with the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import clone

from ..engines import InProcess
from ..numerics.linalg import Array, unpack_triangle
from ..numerics.sources import RowSource
from ..numerics.whole_numbers import exponent_for, from_fixed
from ..privacy.audit import SUMMED, known_columns, sums_of, totals_of
from ..privacy.counting import two_sites
from ..privacy.eavesdropping import Overheard
from ..privacy.findings import (
    COMPUTED,
    EVERYBODY,
    IN_PART,
    NOT_BY_THIS,
    NOT_TRIED,
    Finding,
    measured,
    relative_error,
)
from ..privacy.recovery import symmetric
from ..privacy.sums import Totals, auc, lost_site, membership, rare_rows, row_between, row_between_components
from ..privacy.unequal import Enough, Unequal, another
from ..runtime import Ledger
from ..runtime.keys import LEAST_SITES

FEWEST = 8
"""Rows of a site from which halves are made to test membership."""

RAREST = 6
"""Copies in all rows up to which a feature is looked into."""

LARGEST_COUNT = 2
"""Counts of alleles are 0, 1 or 2."""


@dataclass(frozen=True, eq=False)
class Run:
    """A simulated run: the fitted estimator, what its coordinator heard, and the ledger."""

    pca: Any
    heard: tuple[Overheard, ...]
    ledger: Ledger

    @property
    def n_features(self) -> int:
        """Features of every site."""
        return int(self.pca.n_features_in_)


Simulate = Callable[..., Run]


def attack_sums(
    estimator: Any, held: Mapping[str, Any], truth: Mapping[str, Array], simulate: Simulate, *, masked: bool = False
) -> Iterator[Finding]:
    """The sums alone, two sites, lost site, one row more, rare features, membership, unequal arguments.

    The smallest site is the victim.  ``truth`` holds C_i of every site; ``masked`` says that replies are masked in the run that
    is audited: a secured sum is the same sum, so most attacks are made where it can be heard.
    """
    rows = {name: dense(X) for name, X in held.items()}
    victim = min(rows, key=lambda name: len(rows[name]))
    honest = simulate(estimator, rows)
    yield _aggregate(honest, truth)
    yield _two_sites(honest, truth)
    yield _lost(estimator, rows, victim, honest, simulate)
    yield _one_row(estimator, rows, victim, honest, simulate)
    yield _rare(estimator, rows, honest)
    yield from _members(estimator, rows, simulate)
    yield _unequal(estimator, rows, victim, honest, truth, simulate, masked)


def _aggregate(honest: Run, truth: Mapping[str, Array]) -> Finding:
    """What everybody who sees the sums has of the pooled scatter."""
    about: dict[str, Any] = {"site": EVERYBODY, "attack": "sums alone", "wanted": "C, the sum over sites"}
    d, pooled = honest.n_features, np.sum(list(truth.values()), axis=0)
    scatter = totals_of(honest.heard, d).scatter
    if scatter is None:
        return Finding(**about, verdict=NOT_TRIED, sentence="Nothing is said about this: no sum is a product with C.")
    error, columns = relative_error(scatter, pooled), known_columns(honest.heard, d)
    sentence = (
        f"The sums tell C in {columns} of {d} directions, all of it to {error:.0e}: the aggregate, which masks do not hide."
    )
    return Finding(**about, **measured(error, None, part=True), sentence=sentence)


def _two_sites(honest: Run, truth: Mapping[str, Array]) -> Finding:
    """With two sites, one takes its own products off the sums, and recovers the other's scatter."""
    if len(truth) != 2:
        return two_sites([frozenset(truth)])
    mine, other = truth
    own = {one.step: one for one in honest.heard if one.site == mine}
    pairs = [(args[0], arrays[0], step) for step, args, arrays in _summed_products(honest)]
    blocks = np.hstack([block for block, _, _ in pairs]) if pairs else np.zeros((honest.n_features, 0))
    theirs = [total - _as_product(own[step], honest.n_features) for _, total, step in pairs]
    guess = symmetric(blocks, np.hstack(theirs)) if pairs else np.zeros_like(truth[other])
    error = relative_error(guess, truth[other])
    sentence = f"{mine} takes its own replies off the sums and has {other}'s C_i to {error:.0e}; secured sums change nothing."
    return Finding(other, "two sites", "C_i", **measured(error, None, part=True), sentence=sentence)


def _summed_products(honest: Run) -> list[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    """Step, block and summed product of every step whose sum is a product with C; a triangle stands for C itself."""
    steps: dict[int, list[Overheard]] = {}
    for one in honest.heard:
        if one.kind == "sum" and one.function in SUMMED:
            steps.setdefault(one.step, []).append(one)
    d = honest.n_features
    return [
        (
            step,
            (np.eye(d) if parts[0].function == "scatter_triangle" else parts[0].args[0],),
            (sum(_as_product(one, d) for one in parts),),
        )
        for step, parts in steps.items()
    ]


def _as_product(one: Overheard, d: int) -> Array:
    return unpack_triangle(one.arrays[0], d) if one.function == "scatter_triangle" else one.arrays[0]


def _lost(estimator: Any, rows: Mapping[str, Array], victim: str, honest: Run, simulate: Simulate) -> Finding:
    """A second run without the victim."""
    about: dict[str, Any] = {"site": victim, "attack": "lost site", "wanted": "row count, mean and C_i"}
    rest = {name: X for name, X in rows.items() if name != victim}
    if not rest:
        return Finding(**about, verdict=NOT_TRIED, sentence="Nothing is said about this: there is one site.")
    d, X = honest.n_features, rows[victim]
    everybody, others = (totals_of(run.heard, d) for run in (honest, simulate(_fewer(estimator, rest), rest)))
    found = lost_site(everybody, others)
    mean = relative_error(found.mean, X.mean(axis=0))
    words = f"A run with it and one without tell its {found.n} rows and its mean, to {mean:.0e}"
    if everybody.scatter is None or others.scatter is None or estimator.scale is not None:
        known = measured(mean, None) if found.n == len(X) else {"verdict": NOT_BY_THIS}
        return Finding(**about, **known, sentence=words + "; its scatter was not looked for.  Secured sums change nothing.")
    own = X - (0.0 if estimator.center is False else X.mean(axis=0))
    scatter = found.scatter if estimator.center == "pooled" else everybody.scatter - others.scatter
    error, blind = relative_error(np.asarray(scatter), own.T @ own), _blind(rows, own.T @ own)
    words += f", and its scatter to {error:.0e}; secured sums change nothing."
    return Finding(**about, **measured(error, blind, part=True), sentence=words)


def _one_row(estimator: Any, rows: Mapping[str, Array], victim: str, honest: Run, simulate: Simulate) -> Finding:
    """Two runs, the first with one row less at the victim: means are published, except where rows are not centred."""
    about: dict[str, Any] = {"site": victim, "attack": "one row more", "wanted": "the row"}
    if len(rows[victim]) < 2:
        return Finding(**about, verdict=NOT_TRIED, sentence="Nothing is said about this: the smallest site has one row.")
    fewer = dict(rows) | {victim: rows[victim][:-1]}
    before = simulate(_fewer(estimator, fewer), fewer)
    x = rows[victim][-1]
    blind = relative_error(np.concatenate(list(rows.values())).mean(axis=0), x)
    if estimator.center is not False:
        pair = (Totals(run.pca.n_samples_seen_, np.asarray(run.pca.mean_, dtype=np.float64)) for run in (before, honest))
        error = relative_error(row_between(*pair), x)
        sentence = f"Two published models that differ by one row tell that row to {error:.0e}, from row counts and means alone."
        return Finding(**about, **measured(error, blind), sentence=sentence)
    error = relative_error(row_between(*(totals_of(run.heard, honest.n_features) for run in (before, honest))), x)
    row = row_between_components(*((run.pca.components_, run.pca.singular_values_**2) for run in (before, honest)))
    published = min(relative_error(sign * row, x) for sign in (1, -1))
    sentence = f"The set-up sums of two runs that differ by one row tell that row to {error:.0e}; "
    sentence += f"two published models, which hold no mean, to {published:.0e} up to its sign."
    return Finding(**about, **measured(error, blind), sentence=sentence)


def _rare(estimator: Any, rows: Mapping[str, Array], honest: Run) -> Finding:
    """Rows of single people in columns of the pooled scatter."""
    about: dict[str, Any] = {"site": EVERYBODY, "attack": "rare features", "wanted": "rows of single people"}
    X = np.concatenate(list(rows.values()))
    if ((np.rint(X) != X) | (X < 0) | (X > LARGEST_COUNT)).any():
        sentence = f"Nothing is said about this: rows are no counts from 0 to {LARGEST_COUNT}, for which it is written."
        return Finding(**about, verdict=NOT_TRIED, sentence=sentence)
    if estimator.center == "site" or estimator.scale is not None:
        return Finding(**about, verdict=NOT_TRIED, sentence="Nothing is said about this: made for rows that are not scaled.")
    totals = totals_of(honest.heard, X.shape[1])
    if totals.scatter is None:
        return Finding(**about, verdict=NOT_BY_THIS, sentence="The sums of this solver are no products with the pooled scatter.")
    n, mean = totals.n, totals.mean
    moments = totals.scatter + (n * np.outer(mean, mean) if estimator.center == "pooled" else 0.0)
    if np.abs(moments - np.rint(moments)).max() > 0.1:
        sentence = "The sums of this run do not tell the pooled scatter well enough; more rounds or gram would."
        return Finding(**about, verdict=NOT_BY_THIS, sentence=sentence)
    sums = n * mean
    copies = np.minimum(sums, LARGEST_COUNT * n - sums)
    features = np.flatnonzero((copies > 0.5) & (copies < RAREST + 0.5)).tolist()
    found = rare_rows(n, sums, moments[:, features], features, LARGEST_COUNT)
    people = {row.tobytes() for row in X.astype(np.float64)}
    right = sum(row.tobytes() in people for row in found.values())
    distinct = len({row.tobytes() for row in found.values()} & people)
    sentence = f"{right} columns of rare features hold complete rows, of {distinct} people; secured sums change nothing."
    verdict = COMPUTED if right else NOT_BY_THIS
    return Finding(**about, verdict=verdict, sentence=sentence, error=0.0 if right else None)


def _members(estimator: Any, rows: Mapping[str, Array], simulate: Simulate) -> Iterator[Finding]:
    """Half of every site takes part; of the other half, some are the reference and some are tested as outsiders."""
    about: dict[str, Any] = {"site": EVERYBODY, "attack": "membership", "wanted": "who took part"}
    if min(map(len, rows.values())) < FEWEST:
        yield Finding(**about, verdict=NOT_TRIED, sentence=f"Nothing is said about this: a site has fewer than {FEWEST} rows.")
        return
    rng = np.random.default_rng(0)
    dealt = {name: X[rng.permutation(len(X))] for name, X in rows.items()}
    inside = {name: X[: len(X) // 2] for name, X in dealt.items()}
    outside = np.concatenate([X[len(X) // 2 :][::2] for X in dealt.values()])
    reference = np.concatenate([X[len(X) // 2 :][1::2] for X in dealt.values()])
    pca = simulate(_fewer(estimator, inside), inside).pca
    members, centre, spread = np.concatenate(list(inside.values())), reference.mean(axis=0), reference.std(axis=0)
    mean = members.mean(axis=0)  # published, except with center=False, and then told by the set-up sums
    tests = {
        "membership, mean": [membership(part, mean, centre, spread) for part in (members, outside)],
        "membership, components": [_captured(part, pca, centre) for part in (members, outside)],
    }
    noise = np.sqrt((len(members) + len(outside) + 1) / (12 * len(members) * len(outside)))
    for name, (own, others) in tests.items():
        area = auc(own, others)
        verdict = COMPUTED if area > 0.99 else IN_PART if area > 0.5 + 2 * noise else NOT_BY_THIS
        sentence = f"A reader of the model tells members from others with an area under the curve of {area:.3f} (chance: .5)."
        found = about | {"attack": name, "verdict": verdict, "sentence": sentence}
        yield Finding(**found, error=1 - area, baseline=0.5)


def _captured(part: Array, pca: Any, centre: Array) -> Array:
    """Share of a row's squares that the components capture."""
    Y = part - centre
    share: Array = np.sum((Y @ pca.components_.T) ** 2, axis=1) / np.maximum(np.sum(Y**2, axis=1), np.finfo(float).tiny)
    return share


def _unequal(
    estimator: Any,
    rows: Mapping[str, Array],
    victim: str,
    honest: Run,
    truth: Mapping[str, Array],
    simulate: Simulate,
    masked: bool,
) -> Finding:
    """The same run once more, in which the victim is sent another block; ``truth`` has the true scatters."""
    about: dict[str, Any] = {"site": victim, "attack": "unequal arguments", "wanted": "C_i (Z' - Z)"}
    if not any(one.function == "scatter_action" and one.kind == "sum" for one in honest.heard):
        return Finding(**about, verdict=NOT_BY_THIS, sentence="This solver sends no block whose product is summed.")
    cheat = Unequal(InProcess(), victim)
    if masked and len(rows) < LEAST_SITES:
        return Finding(**about, verdict=NOT_TRIED, sentence="Nothing is said about this: secured sums take three sites.")
    with suppress(Enough):
        simulate(clone(estimator).set_params(secure=masked), rows, cheat)
    Z, changed = cheat.heard[0]
    if masked:  # words modulo 2^64; the coordinator knows their unit
        changed = from_fixed(changed.view(np.uint64), exponent_for(sum(float(np.trace(C)) for C in truth.values())))
    total = next(arrays[0] for function, _, arrays in sums_of(honest.heard) if function == "scatter_action")
    error = relative_error(changed - total, truth[victim] @ (another(Z) - Z))
    sentence = f"Sent another block than the others, the sum changed by a product with its C_i, told to {error:.0e}; "
    sentence += "masks that are bound to the arguments make this noise."
    if masked:
        sentence = (
            f"Sent another block than the others, its masks did not cancel: what is left is {error:.0e} times the truth off."
        )
    return Finding(**about, **measured(error, 1.0), sentence=sentence)


def _fewer(estimator: Any, rows: Mapping[str, Array]) -> Any:
    """A copy that asks for no more components than these rows have."""
    most = min(sum(map(len, rows.values())), next(iter(rows.values())).shape[1])
    wanted = estimator.n_components
    return clone(estimator).set_params(n_components=min(wanted, most)) if isinstance(wanted, int) else clone(estimator)


def _blind(rows: Mapping[str, Array], C: Array) -> float:
    Y = np.concatenate(list(rows.values()))
    Y = Y - Y.mean(axis=0)
    pooled = Y.T @ Y
    return relative_error(pooled * (np.trace(C) / max(float(np.trace(pooled)), np.finfo(float).tiny)), C)


def dense(X: Any) -> Array:
    """Rows (n x d) as a dense array in double precision."""
    X = X[:] if isinstance(X, RowSource) else X
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=np.float64)
