"""Purses of the sites of this process, in a folder: a budget file, a secret and the drawn noise for each."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..runtime import Limits, Purse
from ..runtime.fingerprint import digest_of
from ..runtime.site_ledger import SECRET_BYTES
from ..storage import alone, read_regular, replace_private, writing

BUDGET_KEYS = ("folder", "max_epsilon", "max_delta", "max_shares")
"""What a mapping given as ``budget`` may hold."""

PLAIN = re.compile(r"[\w. -]{1,100}")
"""Names of sites that files can have."""


def purse_in(budget: Any, site: str, rows: Any, rows_per_person: int) -> Purse:
    """The purse of a site of this process: ``budget`` is a folder, or a mapping with a folder and limits."""
    told = dict(budget) if isinstance(budget, Mapping) else {"folder": budget}
    folder = Path(told.pop("folder"))
    if not PLAIN.fullmatch(site) or site.startswith("."):
        raise InputError(f"site {site!r} cannot name a budget file; use letters, digits, spaces, - or _")
    with writing(folder, "choose another folder for budget="):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = _secret(folder, f"{site}.secret")
    limits = Limits(rows_per_person=rows_per_person, **told)
    return Purse(folder / f"{site}.budget", limits=limits, secret=secret, data=cache(lambda: digest_of(rows, secret, site).hex()))


def _secret(folder: Path, name: str) -> bytes:
    """Bytes that only this site knows; made at the first call."""
    with alone(folder):
        try:
            known = read_regular(folder / name, SECRET_BYTES)
        except FileNotFoundError:
            known = os.urandom(SECRET_BYTES)
            replace_private(folder / name, [known])
    return known
