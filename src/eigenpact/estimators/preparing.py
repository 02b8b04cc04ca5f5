"""What an estimator does with ``prepare``: it checks the preparers, and does to new rows what the fit did to the sites'."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..algorithms.prepare.batch_adjust import own_step
from ..algorithms.prepare.residualize import Residualize
from ..algorithms.preparing import Preparer
from ..data.agreement import Mode
from ..errors import InputError
from ..numerics.columns import with_zeros
from ..numerics.preparation import KINDS, Step
from .inputs import check_new_rows
from .missing import check_whole_if_sparse
from .projection import with_all_columns


class Preparing:
    """Rows that are prepared before their components are sought."""

    prepare: Sequence[Preparer]
    missing: str
    features: Mode
    preparation_: tuple[Step, ...]
    dropped_features_: tuple[int, ...]

    @property
    def takes_gaps(self) -> bool:
        """Whether NaN stands for a missing entry, which preparation fills, or the model."""
        return self.missing != "refuse" or any(getattr(preparer, "fills", False) for preparer in self.prepare)

    @property
    def fills_holes(self) -> bool:
        """Whether the fitted model takes new rows with missing entries (NaN)."""
        return any(KINDS[step.kind].fills for step in self.preparation_)

    @property
    def _left_out(self) -> bool:
        """Whether features are left out of the model that not all sites have."""
        return any(step.kind == "features" for step in self.preparation_)

    def preparers(self, names: Any) -> tuple[Preparer, ...]:
        """What ``prepare`` holds, with numbers in place of names of columns; ``names`` are those of all, if there are any."""
        names = names if isinstance(names, tuple | list | np.ndarray) else None
        return tuple(p.for_features(names) if isinstance(p, Residualize) else p for p in self.prepare)

    def for_site(self, rows: Any) -> Self:
        """The model as it is for one site, from its ``rows`` that were fitted; needed where sites were adjusted as batches.

        The rows stay where they are; what is found of them stands in the new model's ``preparation_``, which is the site's own.
        """
        check_is_fitted(self)
        steps: list[Step] = []
        X = self._checked_rows(rows)
        for step in self.preparation_:
            own = own_step(X, step.arrays) if step.kind == "batch" else step
            X, steps = own.apply(X), [*steps, own]
        model = copy(self)
        model.preparation_ = tuple(steps)
        return model

    def _checked_rows(self, X: Any) -> Any:
        """Checked rows (n, n_features), with zeros for features that were dropped, and with holes where the model fills them."""
        if self.fills_holes and self.features == "union":
            table, lacking, ignored = with_all_columns(self, X)
            X = table if lacking and not ignored else X  # as a site that lacks features was fitted
        finite = "allow-nan" if self.fills_holes or self._left_out else True
        X = check_new_rows(self, X, accept_sparse=["csr", "csc"], ensure_all_finite=finite)
        check_whole_if_sparse({"X": X})
        return with_zeros(X, np.array(self.dropped_features_, dtype=int))

    def _check_preparers(self, center: Any) -> None:
        """Refuse what prepares no rows, and what does not go with this ``center``."""
        if not isinstance(self.prepare, Sequence) or isinstance(self.prepare, str):
            raise InputError(f"prepare={self.prepare!r} must be a list such as [ep.prepare.Scale()], or () for none")
        strange = [what for what in self.prepare if isinstance(what, type) or not isinstance(what, Preparer)]
        if strange:
            raise InputError(
                f"prepare holds {strange[0]!r}, which prepares no rows; give those of ep.prepare, such as ep.prepare.Scale()"
            )
        kinds = [type(what).__name__ for what in self.prepare]
        twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
        if twice is not None:
            raise InputError(
                f"prepare holds {twice} {kinds.count(twice)} times; each preparer is done once: leave out the others"
            )
        if center != "site" and any(isinstance(what, Residualize) and what.site for what in self.prepare):
            raise InputError(
                f"center={center!r} leaves the sites' own intercepts in, which Residualize(site=True) is to take out; use "
                "center='site'"
            )
