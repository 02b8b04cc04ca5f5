"""The library's words for a parameter, and those of the command line."""

from __future__ import annotations

import re

OPTIONS = {"n_components": "-k", "tol": "--tol", "max_rounds": "--max-rounds", "random_state": "--seed", "start": "--start"}
OPTIONS |= {"solver": "--solver", "center": "--center", "scale": "--scale", "missing": "--missing", "features": "--features"}
OPTIONS |= {"engine": "--engine", "proxy": "--proxy", "journal": "--journal", "secure": "--secure", "prepare": "--prepare"}
"""Parameter of an estimator -> option."""

SENTENCES = (
    ("overwrite=True", "--overwrite"),
    ("min(n_samples, n_features)=", ""),
    (", or None for all", ", or all"),
    (", or None for the solver's own", "; leave it out for the solver's own"),
    (" >= 0, or None", " >= 0"),
    ("the solvers of FederatedPCA(missing='em') are", "with --missing em the solvers are"),
    ("the solvers of FederatedPCA are", "the solvers are"),
    (" (features='intersection', --features intersection)", " (--features intersection)"),
    (" (secure=True)", ""),
)

_GIVEN = re.compile(rf"(?<![\w.(])({'|'.join(OPTIONS)})=('[^']*'|[^\s;,)]+)((?: or '[^']*')*)")


def of_the_command_line(text: str) -> str:
    """An error of the library as somebody reads it who typed options.

    >>> of_the_command_line("n_components=9 must be between 1 and min(n_samples, n_features)=3, or None for all")
    '-k 9 must be between 1 and 3, or all'
    >>> of_the_command_line("use solver='gram' or 'krylov', or give a number of components")
    'use --solver gram or krylov, or give a number of components'
    """
    for theirs, ours in SENTENCES:
        text = text.replace(theirs, ours)
    return _GIVEN.sub(lambda found: f"{OPTIONS[found[1]]} {(found[2] + found[3]).replace(chr(39), '')}", text)
