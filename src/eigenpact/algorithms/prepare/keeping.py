"""How a site keeps a step that was agreed on."""

from __future__ import annotations

from typing import Any

from ...runtime import Reply
from ...runtime.prepared import kept_as
from ...runtime.rare import OF_ROWS


def names_for(kind: str) -> tuple[str, ...]:
    """What a function that keeps a step of this kind declares to keep."""
    return (kept_as(kind), *OF_ROWS)


def keeping(kind: str, **arrays: Any) -> Reply:
    """Nothing is sent, and the arrays of a step are kept: from now on local functions see rows that it has changed."""
    return Reply(keep={kept_as(kind): arrays, **dict.fromkeys(OF_ROWS)})
