"""Covariates regressed out of all other columns, by normal equations of all sites together.

Problem
    Some columns z of the rows (age, sex) are not to show in the components.  Every other column x becomes x - (z - c) b with the
    slopes b that least squares give over the rows of all sites, c the pooled mean of z; the columns z become zero.  With
    ``site=True`` the slopes are those within sites, as of a regression in which every site has an intercept of its own; the
    intercepts themselves are taken out by the estimator's ``center="site"``.

Rounds
    1. Sum of n_i and of the columns (``moments.py``).
    2. Sum of the columns, and of the products of z with all of them (c x d), as pairs of doubles: exact, so that products about
       the pooled mean follow without loss.  With ``site=True``, of the products about the site's own means; these tell few sites'
       means apart, in secured sums, too, as ``center="site"`` does in any case.
    Then every site is told the slopes.

Leaves the site
    n_i, three vectors of length d, and a matrix of c x d, all summed.

Covariates that depend on those before them get slopes of zero, and the step says how many do: what they would explain, the
others explain.

References
    R. Frisch, F. V. Waugh, "Partial time regressions as compared with individual trends", Econometrica 1 (1933).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...numerics.blocks import some_rows
from ...numerics.linalg import Array
from ...numerics.pairs import add, cross_deviations, exact_sums, product_pairs
from ...numerics.preparation import Step
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from ..second_moments import with_place
from .keeping import keeping, names_for
from .moments import observed_sums, own_moments, pooled_means

DEPENDENT = 1e-10
"""A covariate of which the others leave no more than this share of the variance depends on them."""


@local(
    takes={"columns": "c"},
    sends={"sums": "d 2", "products": "c d 2"},
    bound="pair",
    means={"columns": "count"},
    setup=True,
)
def covariate_pairs(site: Site, columns: Any) -> Any:
    """Sums of all columns, and of their products with the covariates, as pairs of doubles."""
    d = int(site.X.shape[1])
    chosen = _numbers(columns, d)
    sums, products = np.zeros((d, 2)), np.zeros((len(chosen), d, 2))
    for Y in _dense(site.X):
        sums = add(sums, exact_sums(Y, len(Y), d))
        products = add(products, np.stack([product_pairs(Y[:, j], Y) for j in chosen]))
    return with_place(sums), with_place(products)


@local(
    takes={"columns": "c"},
    sends={"products": "c d"},
    means={"columns": "count"},
    setup=True,
    site_means=True,
)
def covariate_products(site: Site, columns: Any) -> Any:
    """Products of the covariates with all columns, about the site's own means."""
    own, chosen = own_moments(site.X, 1)[1], _numbers(columns, int(site.X.shape[1]))
    return sum(((Y - own)[:, chosen].T @ (Y - own) for Y in _dense(site.X)), np.zeros((len(chosen), len(own))))


def _dense(X: Any) -> Iterator[Array]:
    """Rows of X as float64, a few at a time."""
    for part in some_rows(X):
        yield np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float64)


@local(
    takes={"columns": "c", "centre": "c", "slopes": "c d"},
    keeps=names_for("residualize"),
    means={"columns": "count", "centre": "centre"},
    setup=True,
    once=True,
)
def keep_slopes(site: Site, columns: Any, centre: Array, slopes: Array) -> Reply:  # noqa: ARG001
    """Remember which columns are covariates, their means, and the slopes."""
    return keeping("residualize", columns=_numbers(columns, slopes.shape[1]), centre=centre, coefficients=slopes)


def _numbers(columns: Any, d: int) -> NDArray[np.int64]:
    if columns.dtype.kind not in "iu" or np.any(columns >= d):
        raise InputError(f"numbers of columns are to be whole, from 0 to {d - 1}")
    return np.asarray(columns, dtype=np.int64)


def independent(products: Array) -> NDArray[np.intp]:
    """Numbers of the covariates that do not depend on those before them, from their products (c x c).

    >>> z = np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 0.0], [3.0, 6.0, 5.0]])
    >>> independent(z.T @ z).tolist()
    [0, 2]
    """
    left, chosen = np.array(products), []
    for j in range(len(products)):
        if left[j, j] > DEPENDENT * products[j, j] and products[j, j] > 0:
            left = left - np.outer(left[:, j], left[j]) / left[j, j]
            chosen.append(j)
    return np.array(chosen, dtype=np.intp)


@dataclass(frozen=True)
class Residualize:
    """Regress columns such as age and sex out of all others; they become zero themselves.

    Parameters
    ----------
    columns : sequence of str or int
        Names or numbers of the covariates' columns.
    site : bool
        Slopes within sites, as with an intercept for every site; goes with ``center="site"`` of the estimator, which takes the
        intercepts out.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> X[:, 1] += 3 * X[:, 0]
    >>> pca = ep.FederatedPCA(2, prepare=[ep.prepare.Residualize([0])]).fit(X, sites=np.arange(60) % 2)
    >>> left = pca.preparation_[0].apply(X)
    >>> bool(abs(np.corrcoef(left[:, 1], X[:, 0])[0, 1]) < 1e-12)
    True
    """

    columns: tuple[str | int, ...]
    site: bool = False

    def __post_init__(self) -> None:
        given = [self.columns] if isinstance(self.columns, str | int) else list(self.columns)
        good = all(isinstance(c, str | int | np.integer) and not isinstance(c, bool) for c in given)
        if not given or not good or len(set(given)) < len(given):
            raise InputError(f"columns={self.columns!r} must be names or numbers of columns, at least one, each once")
        object.__setattr__(self, "columns", tuple(c if isinstance(c, str) else int(c) for c in given))

    @property
    def part(self) -> Part:
        """What is called, by ``site``."""
        asked = covariate_products if self.site else covariate_pairs
        return Part(RESIDUALIZE.title, {Sum: (observed_sums, asked), Local: (keep_slopes,)})

    def for_features(self, names: Sequence[str] | None) -> Residualize:
        """The same with numbers in place of names; ``names`` are those of all columns, None if they have none.

        A text such as "3" is a number only where columns have no names.
        """
        if names is None:
            numbers = tuple(int(c) if isinstance(c, str) and c.isdecimal() else c for c in self.columns)
            return replace(self, columns=numbers)._numbered()
        wanted = [c for c in self.columns if isinstance(c, str)]
        known = {name: j for j, name in enumerate(names)}
        for name in wanted:
            if name not in known:
                near = get_close_matches(name, known, 3)
                hint = f"did you mean {' or '.join(near)}?" if near else f"they are {', '.join([*known][:10])}"
                raise InputError(f"no column is called {name!r}; {hint}")
        return replace(self, columns=tuple(known[c] if isinstance(c, str) else c for c in self.columns))

    def _numbered(self) -> Residualize:
        """This one, if its columns are numbers."""
        wanted = [c for c in self.columns if isinstance(c, str)]
        if wanted:
            raise InputError(f"column {wanted[0]!r} is not known here, since the columns have no names; give its number, from 0")
        return self

    async def agree(self) -> Step:
        """Agree on the slopes."""
        columns = np.array(self.for_features(None).columns, dtype=np.int64)
        n, _, mean = await pooled_means()  # round 1
        d = len(mean)
        if columns.min() < 0 or columns.max() >= d or len(columns) >= min(d, n):
            raise InputError(f"columns={self.columns!r} must be fewer than rows and columns, numbers from 0 to {d - 1}")
        if self.site:
            zx = await Sum(covariate_products, columns)  # round 2
        else:
            sums, products = await Sum(covariate_pairs, columns)  # round 2
            pooled = zip(columns, products, strict=True)
            zx = np.stack([cross_deviations(n, (mean[j], mean), (sums[j], sums), found) for j, found in pooled])
        zz = zx[:, columns]
        used, slopes = independent(zz), np.zeros((len(columns), d))
        size = np.sqrt(zz[used, used])
        slopes[used] = np.linalg.solve(zz[np.ix_(used, used)] / np.outer(size, size), zx[used] / size[:, None]) / size[:, None]
        slopes[:, columns] = 0.0
        await Local(keep_slopes, columns, mean[columns], slopes)
        return Step("residualize", {"columns": columns, "centre": mean[columns], "coefficients": slopes})


RESIDUALIZE = Part(
    "Covariates regressed out",
    {Sum: (observed_sums, covariate_pairs, covariate_products), Local: (keep_slopes,)},
    "Of `Residualize`; `covariate_products` with `site=True`, else `covariate_pairs`.",
)
