"""What a site has spent, and the noise that it drew: once for every question, written down before it is given away."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.errors import FileError, InputError, PolicyError
from eigenpact.numerics.accounting import epsilon_of, rho_for
from eigenpact.runtime import Gate, Limits, Plan, Policy, Purse, Request, SiteLedger, SiteServer, read_budget, read_site_ledger
from eigenpact.runtime.purse import Question, budget_beside, draw, restore_budget, total_rho

SCALES = [(5000.0, 4), (7000.0, 3)]
FUNCTIONS = ("eigenpact:noisy_triangle/1",)
ARGS = (np.arange(3.0), np.float64(0.1))


def purse(folder: Path, data: str = "v1", **limits: Any) -> Purse:
    return Purse(folder / "a.budget", limits=Limits(**limits), secret=b"s", data=lambda: data)


def question(run: str = "r1", epoch: int = 0, function: str = "f/1", args: Any = ARGS) -> Question:
    return Question(run, epoch, function, args)


def test_the_same_question_has_the_same_noise_and_is_paid_for_once(tmp_path: Path) -> None:
    """Also when the site was started anew."""
    first = purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    again = purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    assert first.dtype == np.int64
    assert first.tolist() == again.tolist()
    assert total_rho(purse(tmp_path).spent()) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("other", "data"),
    [
        (question(run="r2"), "v1"),
        (question(epoch=1), "v1"),  # another roster
        (question(function="g/1"), "v1"),
        (question(args=(np.arange(3.0), np.float64(0.2))), "v1"),
        (question(), "v2"),
    ],
)
def test_any_other_question_has_other_noise_and_is_paid_for(tmp_path: Path, other: Question, data: str) -> None:
    first = purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    second = purse(tmp_path, data).noise(other, 0.1, 1, SCALES)
    assert (first != second).any()
    assert [row["rho"] for row in purse(tmp_path).spent()] == [0.1, 0.1]


def test_what_is_spent_is_on_disk_before_noise_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the two costs budget, not privacy."""

    def crash(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("eigenpact.runtime.purse.draw", crash)
    with pytest.raises(KeyboardInterrupt):
        purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    assert len(read_budget(tmp_path / "a.budget")) == 1
    monkeypatch.undo()
    purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    assert len(read_budget(tmp_path / "a.budget")) == 2


def test_lost_noise_costs_once_more(tmp_path: Path) -> None:
    first = purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    (kept,) = (tmp_path / "a.budget.noise").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "a.budget").stat().st_mode) == 0o600
    kept.unlink()
    assert (purse(tmp_path).noise(question(), 0.1, 1, SCALES) != first).any()
    assert len(purse(tmp_path).spent()) == 2


def test_who_asks_without_end_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigenpact.runtime.purse.MOST_KEPT", 3)
    drawn = [purse(tmp_path).noise(question(epoch=i), 0.1, 1, SCALES) for i in range(5)]
    assert len(list((tmp_path / "a.budget.noise").iterdir())) == 3
    assert (purse(tmp_path).noise(question(epoch=4), 0.1, 1, SCALES) == drawn[4]).all()
    assert len(purse(tmp_path).spent()) == 5
    assert (purse(tmp_path).noise(question(epoch=0), 0.1, 1, SCALES) != drawn[0]).any()
    assert len(purse(tmp_path).spent()) == 6


def test_more_than_the_owner_allows_is_refused_by_the_name_of_the_rule(tmp_path: Path) -> None:
    rho = rho_for(1.0, 1e-6)
    limits = {"max_epsilon": 1.0, "max_delta": 1e-6}
    for i in range(2):
        purse(tmp_path, **limits).noise(question(epoch=i), rho / 2, 1, SCALES)
    with pytest.raises(PolicyError, match=r"^rule max_epsilon = 1: 1 of it \(delta 1e-06\) is spent, and this query"):
        purse(tmp_path, **limits).noise(question(epoch=2), rho / 100, 1, SCALES)
    assert epsilon_of(total_rho(purse(tmp_path).spent()), 1e-6) == pytest.approx(1.0)
    assert purse(tmp_path, **limits).noise(question(epoch=1), rho / 2, 1, SCALES).size == 7  # paid for already
    with pytest.raises(PolicyError, match="rule max_shares = 2: noise is to be divided among 3 sites"):
        purse(tmp_path, max_shares=2).noise(question(epoch=3), rho, 3, SCALES)


def test_all_rows_of_a_person_are_paid_for(tmp_path: Path) -> None:
    purse(tmp_path, rows_per_person=3).noise(question(), 0.1, 1, SCALES)
    assert purse(tmp_path).spent()[0]["rho"] == pytest.approx(0.9)


def test_a_damaged_file_is_an_error_and_a_torn_line_is_not(tmp_path: Path) -> None:
    purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    file = tmp_path / "a.budget"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"time": "20')
    assert len(purse(tmp_path).spent()) == len(read_budget(file)) == 1
    assert file.read_bytes() == whole
    row = json.loads(whole) | {"rho": -5.0}
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(FileError, match=r"line 1: not a line of a budget file"):
        purse(tmp_path).noise(question(epoch=1), 0.1, 1, SCALES)


def test_in_memory_it_lasts_as_long_as_the_purse() -> None:
    held = Purse()
    first = held.noise(question(), 0.1, 1, SCALES)
    assert held.noise(question(), 0.1, 1, SCALES).tolist() == first.tolist()
    assert len(held.spent()) == 1
    assert (Purse().noise(question(), 0.1, 1, SCALES) != first).any()


@pytest.mark.parametrize(
    ("rho", "honest", "scale"), [(0.0, 1, 5e3), (np.nan, 1, 5e3), (0.1, 0, 5e3), (0.1, 1, 10.0), (1e-30, 1, 1e24)]
)
def test_noise_that_hides_nothing_is_refused(rho: float, honest: int, scale: float) -> None:
    with pytest.raises(InputError, match=r"must be positive|too little|more than 64-bit"):
        Purse().noise(question(), rho, honest, [(scale, 3)])


def test_noise_is_that_of_a_discrete_gaussian() -> None:
    drawn = draw(2.0**40, 8000) / 2.0**40
    assert abs(drawn.std() - 1) < 0.05
    assert abs(drawn.mean()) < 0.07
    assert abs((drawn**4).mean() - 3) < 0.6
    assert draw(5.0, 0).shape == (0,)


def gated(folder: Path, **rules: Any) -> SiteServer:
    """A site behind a gate whose policy allows one private solver, as a kit's process builds it."""
    policy = Policy.from_dict({"solvers": ["noisy-gram"], "functions": list(FUNCTIONS), "min_rows": 3} | rules)
    ledger = SiteLedger(folder / "ledger.jsonl")
    X = np.random.default_rng(0).normal(size=(30, 4))
    gate = Gate("A", policy, ledger, n_rows=30, features=4, data="v1")
    account = Purse(budget_beside(ledger.path), limits=policy.limits, secret=ledger.secret(), data=lambda: "v1")
    server = SiteServer("A", X, gate=gate, purse=account)
    server.admit("r1", Plan("noisy-gram", FUNCTIONS, ("sum",), 10, 2).to_dict())
    return server


def asked(step: int, rho: float, honest: int = 1, epoch: int = 0) -> Request:
    args = (np.zeros(4), np.float64(3.0), np.float64(rho), np.int64(honest))
    return Request("r1", epoch, step, "sum", FUNCTIONS[0], args)


def test_behind_a_gate_the_policy_limits_what_is_spent_over_restarts(tmp_path: Path) -> None:
    rho = rho_for(1.0, 1e-6)
    first = gated(tmp_path).execute(asked(1, 0.9 * rho), 0).arrays[0]
    again = gated(tmp_path).execute(asked(1, 0.9 * rho), 0).arrays[0]  # the site was started anew, the run is resumed
    assert (first == again).all()
    with pytest.raises(PolicyError, match=r"rule max_epsilon = 1: 0\.9"):
        gated(tmp_path).execute(asked(1, 0.2 * rho), 0)
    assert gated(tmp_path, max_epsilon=2.0).execute(asked(1, 0.2 * rho), 0).arrays[0].dtype == np.int64
    written = [row["what"] for row in read_site_ledger(tmp_path / "ledger.jsonl")]
    assert written.count("failed") == 1
    assert written.count("sent") == 3


def test_behind_a_gate_noise_is_not_divided_unless_the_owner_trusts_others(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="rule max_shares = 1: noise is to be divided among 3 sites"):
        gated(tmp_path).execute(asked(1, 0.001, honest=3), 0)
    assert gated(tmp_path, max_shares=3).execute(asked(1, 0.001, honest=3), 0).arrays
    with pytest.raises(PolicyError, match="rule arguments: argument 'rho' of noisy_triangle"):
        gated(tmp_path).execute(asked(1, -1.0), 0)


@pytest.mark.parametrize("rule", [{"max_epsilon": 0}, {"max_epsilon": 1000.0}, {"max_delta": 0.5}, {"max_delta": "1e-6"}])
def test_rules_that_promise_nothing_are_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"rule max_(epsilon|delta) = .* must be"):
        Policy.from_dict({"solvers": [], "functions": []} | rule)


# -- a budget file that is lost -------------------------------------------------------------------


def with_ledger(folder: Path) -> tuple[Purse, Path]:
    ledger = SiteLedger(folder / "ledger.jsonl")
    path = budget_beside(ledger.path)
    return Purse(path, limits=Limits(max_epsilon=3.0), secret=b"s", data=lambda: "v1", ledger=ledger), path


@pytest.mark.parametrize("how", ["removed", "with its noise", "emptied", "cut short"])
def test_a_lost_budget_file_is_noticed_and_restored_from_the_ledger(tmp_path: Path, how: str) -> None:
    """Else whoever removes it, by mistake or not, begins a new budget for the same rows."""
    spender, path = with_ledger(tmp_path)
    drawn = spender.noise(question("r1"), 0.01, 1, SCALES)
    spender.noise(question("r2"), 0.02, 2, SCALES)
    before = read_budget(path)
    first, _ = path.read_bytes().splitlines(keepends=True)
    if how in ("removed", "with its noise"):
        path.unlink()
    else:
        path.write_bytes(b"" if how == "emptied" else first)
    if how == "with its noise":
        for file in path.with_name(path.name + ".noise").iterdir():
            file.unlink()
    lost = 1 if how == "cut short" else 2
    for asked in ("r1", "r3"):
        with pytest.raises(PolicyError, match=rf"lacks {lost} of the 2 questions .* eigenpact site budget KIT --restore"):
            with_ledger(tmp_path)[0].noise(question(asked), 0.01, 1, SCALES)
    assert restore_budget(path, SiteLedger(tmp_path / "ledger.jsonl")) == lost
    spent = read_budget(path)
    told = ("run", "epoch", "function", "rho", "honest", "question")
    assert [{key: row[key] for key in told} for row in sorted(spent, key=lambda row: row["run"])] == [
        {key: row[key] for key in told} for row in before
    ]
    again = with_ledger(tmp_path)[0].noise(question("r1"), 0.01, 1, SCALES)
    if how != "with its noise":  # which then costs once more
        assert again.tolist() == drawn.tolist()


def test_without_a_ledger_the_noise_tells_that_a_budget_file_is_lost(tmp_path: Path) -> None:
    purse(tmp_path).noise(question(), 0.1, 1, SCALES)
    (tmp_path / "a.budget").unlink()
    with pytest.raises(PolicyError, match=r"tells of no question, and .* holds noise that was paid for: restore the file"):
        purse(tmp_path).noise(question("r2"), 0.1, 1, SCALES)
