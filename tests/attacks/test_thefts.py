"""Nothing that a hostile coordinator tries under a site's policy gives it a row or a value; and the tries can succeed."""

from __future__ import annotations

from pathlib import Path

import pytest

from eigenpact.runtime import read_site_ledger
from tests.attacks.coordinator import Coordinator, Refused, Victim
from tests.attacks.thefts import THEFTS, stolen, table_of

REFUSED = {
    "a threshold that trusts one row",
    "columns, value by value",
    "huge centre, negative scale",
    "products that underflow",
    "numbers that wrap in another dtype",
    "a trace so small that nothing rounds",
    "entries cut back to signs",
    "products without a trace",
}
"""Those that ask what no honest coordinator does; the others are answered, and the answer tells nothing."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", THEFTS)
def test_no_row_and_no_value_is_taken(name: str, tmp_path: Path) -> None:
    taken, victim = stolen(name, tmp_path)
    assert taken == 0
    if name in REFUSED:
        assert "rule " in victim.log[0]
        told = [row["reason"] for row in read_site_ledger(victim.ledger) if row["what"] in ("refused", "failed")]
        assert told
        assert victim.log[0] in told


@pytest.mark.parametrize("name", [name for name, theft in THEFTS.items() if theft.solvers[0] in ("varpro", "shrinking")])
def test_the_policy_of_a_new_kit_does_not_even_admit_what_speaks_of_parts(name: str, tmp_path: Path) -> None:
    victim = Victim(table_of("plain"), tmp_path)
    with pytest.raises(Refused, match=r"refused: rule solvers: '(varpro|shrinking)' is not allowed here"):
        Coordinator(victim, "r1", THEFTS[name].solvers[0])


def test_all_digits_give_rows_away_where_columns_are_equal(tmp_path: Path) -> None:
    """So that the theft is one, and fixed point what stops it; a policy that lets all digits out says what it risks."""
    taken, _ = stolen("equal columns, orthonormal block", tmp_path, {"exact_replies": True})
    assert taken >= 5


@pytest.mark.parametrize("bits", [36, 40, 44, 48])
def test_fixed_point_of_any_fineness_stops_it(bits: int, tmp_path: Path) -> None:
    assert stolen("equal columns, orthonormal block", tmp_path, {"reply_bits": bits})[0] == 0
