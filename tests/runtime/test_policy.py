"""What a site's policy refuses, by which rule, and what the site writes down."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.algorithms.consensus.krylov import model_directions
from eigenpact.algorithms.setup import keep_centre
from eigenpact.errors import FileError, InputError, PolicyError, SiteError, StepError, TooFewSitesError, WireError
from eigenpact.runtime import (
    Connection,
    Driver,
    Gate,
    Local,
    MailConnection,
    Outcome,
    Plan,
    Policy,
    Progress,
    Reply,
    Request,
    Site,
    SiteEndpoint,
    SiteLedger,
    SiteServer,
    Sum,
    local,
    read_site_ledger,
    tapped,
)
from eigenpact.runtime.letters import CHECKSUM


@local(takes={"Z": "d k"}, sends={"G": "d k"})
def product(site: Site, Z: Any) -> Any:
    """The scatter times Z."""
    return site.X.T @ (site.X @ Z)


@local(takes={"m": "", "seed": ""}, sends={"moments": "m"})
def powers(site: Site, m: Any, seed: Any) -> Any:
    """As many numbers as are asked for, and a seed that is no size."""
    return np.array([(site.X**i).sum() + int(seed) for i in range(int(m))])


@local(reads=("n",), keeps=("n",))
def remember(site: Site) -> Any:
    """Count calls."""
    return Reply(keep={"n": site.kept.get("n", 0) + 1})


@local(sends={"n": ""}, reads=("n",))
def remembered(site: Site) -> Any:
    """How often ``remember`` was called."""
    return np.int64(site.kept.get("n", 0))


@local(sends={"total": ""})
def fails(site: Site) -> Any:
    """Fails with a row in its message, as a careless function would."""
    raise ValueError(f"cannot use {site.X[0]}")


@local(sends={"X": "n d"})
def all_rows(site: Site) -> Any:
    """What no site should allow."""
    return site.X


NAMES = {f.short_name: f.name for f in (product, powers, remember, remembered, fails, all_rows)}
LISTED = tuple(NAMES[name] for name in ("product", "powers", "remember", "remembered", "fails"))
POLICY = Policy(("subspace",), LISTED, min_rows=5, max_rounds=6, max_runs_per_day=3, max_components=4)
PLAN = Plan("subspace", LISTED, ("sum", "local"), max_rounds=6, n_components=2, features=("a", "b", "c"))


def gate_of(path: Path, policy: Policy = POLICY, n_rows: int = 8) -> Gate:
    return Gate("lima", policy, SiteLedger(path / "ledger.jsonl"), n_rows=n_rows, features=("a", "b", "c"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return gate_of(tmp_path)


def served(gate: Gate) -> SiteServer:
    return SiteServer("lima", np.arange(24.0).reshape(8, 3), gate=gate)


def request(step: int, name: str, *args: Any, run: str = "r1", kind: str = "sum", epoch: int = 0) -> Request:
    return Request(run, epoch, step, kind, NAMES[name], tuple(np.asarray(a) for a in args), digest=str(step))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"solver": "gram"}, "rule solvers: 'gram'"),
        ({"functions": (NAMES["all_rows"],)}, "rule functions: .*all_rows"),
        ({"kinds": ("sum", "gather")}, "rule allow_gather = false"),
        ({"kinds": ("at",)}, "rule allow_at = false"),
        ({"kinds": ("max",)}, "rule allow_max = false"),
        ({"kinds": ("chain",)}, "rule allow_chain = false"),
        ({"kinds": ("exchange",)}, "rule collectives: 'exchange'"),
        ({"max_rounds": 7}, "rule max_rounds = 6: .* 7"),
        ({"n_components": 5}, "rule max_components = 4: .* 5"),
        ({"features": ("a", "b", "x")}, r"rule features: .*not here: x; not in the plan: c"),
        ({"features": ("b", "a", "c")}, "rule features: .*another order"),
        ({"features": 4}, "rule features: the plan has 4 features, this site 3"),
    ],
)
def test_a_plan_is_refused_by_the_name_of_the_rule(gate: Gate, tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    """And nothing runs afterwards."""
    server = served(gate)
    with pytest.raises(PolicyError, match=rule) as caught:
        server.admit("r1", replace(PLAN, **change).to_dict())
    assert [(row["what"], row["reason"]) for row in read_site_ledger(tmp_path / "ledger.jsonl")] == [
        ("refused", str(caught.value))
    ]
    with pytest.raises(PolicyError, match="rule plan: this run was not announced"):
        server.execute(request(1, "product", np.eye(3, 2)), 0)


def test_too_few_rows(tmp_path: Path) -> None:
    """The number of rows is not told."""
    with pytest.raises(PolicyError, match=r"^rule min_rows = 5: this site has fewer$"):
        gate_of(tmp_path, n_rows=4).admit("r1", PLAN.to_dict())


@pytest.mark.parametrize("allowed", ["allow_gather", "allow_at", "allow_max", "allow_chain"])
def test_what_is_allowed_is_admitted(tmp_path: Path, allowed: str) -> None:
    gate = gate_of(tmp_path, replace(POLICY, **{allowed: True}))
    gate.admit("r1", replace(PLAN, kinds=("sum", allowed.removeprefix("allow_"))).to_dict())


@pytest.mark.parametrize(
    "plan",
    [
        None,
        [],
        {},
        PLAN.to_dict() | {"more": 1},
        PLAN.to_dict() | {"max_rounds": "6"},
        PLAN.to_dict() | {"max_rounds": True},
        PLAN.to_dict() | {"max_rounds": -1},
        PLAN.to_dict() | {"functions": LISTED[0]},
        PLAN.to_dict() | {"kinds": [1]},
        PLAN.to_dict() | {"n_components": 2.5},
        PLAN.to_dict() | {"features": [["a"]]},
        {key: value for key, value in PLAN.to_dict().items() if key != "features"},
    ],
)
def test_what_is_not_a_plan_is_refused(gate: Gate, plan: Any) -> None:
    with pytest.raises(PolicyError, match="rule plan"):
        gate.admit("r1", plan)


def test_a_plan_survives_json() -> None:
    assert Plan.from_dict(json.loads(json.dumps(PLAN.to_dict()))) == PLAN


def test_a_coordinator_cannot_do_what_it_did_not_announce(gate: Gate) -> None:
    """Listed at the site, but not in the plan; unlisted; another collective; wider arguments; a larger number."""
    server = served(gate)
    server.admit("r1", replace(PLAN, functions=(NAMES["product"], NAMES["powers"])).to_dict())
    for wrong, rule in [
        (request(1, "remembered"), "rule plan: .*remembered"),
        (request(1, "all_rows"), "rule functions: .*all_rows"),
        (request(1, "product", np.eye(3, 2), kind="gather"), "rule allow_gather = false"),
        (request(1, "product", np.eye(3, 2), kind="consider"), "rule collectives: 'consider'"),
        (
            request(1, "product", np.ones((3, 5))),
            r"rule max_components = 4: argument 'Z' of product is .* of shape \(3, 5\)",
        ),
        (request(1, "powers", np.int64(9), np.int64(0)), "rule max_components = 4: argument 'm' of powers is 9"),
    ]:
        with pytest.raises(PolicyError, match=rule):
            server.execute(wrong, 0)
    with pytest.raises(WireError, match="argument 'm' is a size and must be a whole number, not float64"):
        server.execute(request(1, "powers", np.float64(9), np.int64(0)), 0)
    assert server.execute(request(1, "product", np.eye(3, 2)), 0).arrays[0].shape == (3, 2)


def test_a_whole_number_that_names_no_size_is_no_size(gate: Gate) -> None:
    """A seed may be as large as it likes."""
    server = served(gate)
    server.admit("r1", PLAN.to_dict())
    assert server.execute(request(1, "powers", np.int64(2), np.int64(10**9)), 0).arrays[0].shape == (2,)


def test_a_seed_of_a_proxy_site_is_not_taken_for_a_size(tmp_path: Path) -> None:
    """Krylov's model directions, where a site allows ``At``: the number of directions is limited, the seed is not."""
    policy = replace(POLICY, functions=(keep_centre.name, model_directions.name), allow_at=True)
    server = served(gate_of(tmp_path, policy))
    server.admit("r1", replace(PLAN, functions=policy.functions, kinds=("at", "local")).to_dict())
    server.execute(Request("r1", 0, 1, "local", keep_centre.name, (np.zeros(3), np.ones(3), np.asarray(1e6))), 0)

    def asked(k: int, seed: int) -> Request:
        facts = (np.float64(1.0), np.int64(k), np.int64(seed), np.float64(1e-3))
        args = (np.zeros((3, 0)), np.zeros((3, 0)), *facts)
        return Request("r1", 0, 2, "at", model_directions.name, tuple(np.asarray(a) for a in args))

    with pytest.raises(PolicyError, match="rule max_components = 4: argument 'k' of model_directions is 5"):
        server.execute(asked(5, 1), 1)
    assert server.execute(asked(2, 123456), 1).arrays[0].shape == (3, 2)


def test_another_run_forgets_nothing_before_it_is_admitted(gate: Gate) -> None:
    """A foreign run identifier must not reset a site's state or its count of rounds."""
    server = served(gate)
    server.admit("r1", PLAN.to_dict())
    server.execute(request(1, "remember", kind="local"), 0)
    with pytest.raises(PolicyError, match="not announced"):
        server.execute(request(1, "remembered", run="r2"), 0)
    with pytest.raises(PolicyError, match="rule solvers"):
        server.admit("r2", replace(PLAN, solver="gram").to_dict())
    assert server.execute(request(2, "remembered"), 1).arrays[0] == 1
    server.admit("r2", PLAN.to_dict())
    with pytest.raises(PolicyError, match="not announced"):
        server.execute(request(3, "remembered"), 2)
    assert server.execute(request(1, "remembered", run="r2"), 0).arrays[0] == 0


def test_rounds_are_counted_over_restarts_and_epochs(tmp_path: Path) -> None:
    """Neither a new epoch nor a new process nor the same plan again gives a run more replies; repeated ones do not count."""
    server = served(gate_of(tmp_path))
    server.admit("r1", PLAN.to_dict())
    for step in range(1, 4):
        server.execute(request(step, "product", np.eye(3, 2)), step - 1)
        server.execute(request(step, "product", np.eye(3, 2)), step - 1)
    server = served(gate_of(tmp_path))
    server.admit("r1", PLAN.to_dict())
    for step in range(1, 4):
        server.execute(request(step, "product", np.eye(3, 2), epoch=1), step - 1)
    server.admit("r1", PLAN.to_dict())
    with pytest.raises(PolicyError, match="rule max_rounds = 6"):
        server.execute(request(4, "product", np.eye(3, 2), epoch=1), 3)
    server.execute(request(4, "remember", kind="local", epoch=1), 3)  # nothing leaves


def test_runs_are_counted_over_a_day(tmp_path: Path) -> None:
    for run in ("r1", "r2", "r3"):
        gate_of(tmp_path).admit(run, PLAN.to_dict())
    with pytest.raises(PolicyError, match="rule max_runs_per_day = 3"):
        gate_of(tmp_path).admit("r4", PLAN.to_dict())
    gate_of(tmp_path).admit("r2", PLAN.to_dict())  # resumed
    path = tmp_path / "ledger.jsonl"
    old = (datetime.now(UTC) - timedelta(hours=25)).isoformat()
    rows = [row | {"time": old} for row in read_site_ledger(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    gate_of(tmp_path).admit("r4", PLAN.to_dict())


def test_jobs_side_by_side_share_one_count(tmp_path: Path) -> None:
    """A coordinator may run several jobs at once, each in a process of its own at the site: no limit holds once for each."""
    jobs = [served(gate_of(tmp_path)) for _ in range(4)]
    for run, job in zip(("r1", "r2", "r3"), jobs, strict=False):
        job.admit(run, PLAN.to_dict())
    with pytest.raises(PolicyError, match="rule max_runs_per_day = 3"):
        jobs[3].admit("r4", PLAN.to_dict())
    for job in jobs:
        job.admit("r1", PLAN.to_dict())
    for turn in range(2):
        for job in jobs[:3]:
            job.execute(request(turn + 1, "product", np.eye(3, 2)), turn)
    for job, step in zip(jobs, (3, 3, 3, 1), strict=True):
        with pytest.raises(PolicyError, match="rule max_rounds = 6"):
            job.execute(request(step, "product", np.eye(3, 2)), step - 1)
    assert sum(row["what"] == "sent" for row in read_site_ledger(tmp_path / "ledger.jsonl")) == 6


def test_a_run_is_not_named_at_will(gate: Gate, tmp_path: Path) -> None:
    """Its name stands in every row: it must be short and plain, and neither it nor a reason may fill the disk."""
    for run in ("", "r" * 65, "r 1", "r\n1", "x" * 1_000_000):
        with pytest.raises(PolicyError, match="rule plan: a run is named by at most 64"):
            gate.admit(run, PLAN.to_dict())
    with pytest.raises(PolicyError, match="rule solvers"):
        gate.admit("r1", replace(PLAN, solver="x" * 1_000_000).to_dict())
    assert (tmp_path / "ledger.jsonl").stat().st_size < 10_000


def test_a_failure_tells_nothing_of_the_rows(gate: Gate, tmp_path: Path) -> None:
    """The coordinator hears what failed and how; the site's own log has the rest, and its ledger a row."""
    told: list[str] = []
    server = served(gate)
    connection = MailConnection(
        Direct({"lima": SiteEndpoint(server, tell=told.append)}), ["lima"], round_timeout=1.0, announces=True
    )

    async def careless(_start: Any, _state: Any) -> Any:
        return await Sum(fails)

    with pytest.raises(SiteError, match=r"fails failed at site 'lima': ValueError$") as caught:
        Driver(connection, plan=replace(PLAN, features=None)).run(careless)
    assert "cannot use" not in str(caught.value)
    assert "cannot use [0. 1. 2.]" in told[-1]
    row = read_site_ledger(tmp_path / "ledger.jsonl")[-1]
    assert (row["what"], row["function"]) == ("failed", NAMES["fails"])
    assert "cannot use" not in row["reason"]


def test_the_ledger_says_what_left_and_no_value(gate: Gate, tmp_path: Path) -> None:
    server = served(gate)
    server.admit("r1", PLAN.to_dict())
    (G,) = server.execute(request(1, "product", np.full((3, 2), 0.12345)), 0).arrays
    server.execute(request(2, "remember", kind="local"), 1)
    server.execute(request(2, "remember", kind="local"), 1)
    path = tmp_path / "ledger.jsonl"
    admitted, sent = read_site_ledger(path)
    assert (admitted["what"], admitted["run"], admitted["solver"]) == ("admitted", "r1", "subspace")
    assert {key: sent[key] for key in ("what", "run", "to", "step", "function", "shapes", "dtypes", "bytes")} == {
        "what": "sent", "run": "r1", "to": "coordinator", "step": 1, "function": NAMES["product"],
        "shapes": [[3, 2]], "dtypes": ["float64"], "bytes": 48,
    }  # fmt: skip
    assert datetime.fromisoformat(sent["time"]) <= datetime.now(UTC)
    text = path.read_text()
    assert "0.12345" not in text
    assert not any(str(value) in text for value in G.ravel())
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_leaves_when_the_ledger_cannot_be_written(gate: Gate, tmp_path: Path) -> None:
    server = served(gate)
    server.admit("r1", PLAN.to_dict())
    (tmp_path / "ledger.jsonl").unlink()
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(FileError, match=r"ledger\.jsonl is a folder, not a file"):
        server.execute(request(1, "product", np.eye(3, 2)), 0)


TIMED = '{"time":"2026-01-01T00:00:00+00:00","what":"sent",'
DAMAGED = [
    '{"time": "20\n',
    "5\n",
    "[" * 100_000 + "\n",
    '{"what": "sent"}\n',
    '{"time": "today", "what": "sent"}\n',
    '{"time": "2026-01-01T00:00:00", "what": "sent"}\n',
    TIMED + '"columns":"x"}\n',
    TIMED + '"columns":' + "9" * 5000 + "}\n",
    TIMED + '"columns":NaN}\n',
    TIMED + '"run":[]}\n',
]


def test_rules_that_must_be_there() -> None:
    with pytest.raises(InputError, match="rule functions is missing; it must be a list of texts"):
        Policy.from_dict({"solvers": []})


def test_a_torn_last_line_is_left_out_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    gate_of(tmp_path).admit("r1", PLAN.to_dict())
    path = tmp_path / "ledger.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"time": "20')
    assert len(read_site_ledger(path)) == 1
    for run in ("r2", "r3"):  # what is written next does not join the torn line
        gate_of(tmp_path).admit(run, PLAN.to_dict())
    assert [row["run"] for row in read_site_ledger(path)] == ["r1", "r2", "r3"]
    for damaged in DAMAGED:
        path.write_text(whole + damaged + whole)
        with pytest.raises(FileError, match="line 2"):
            SiteLedger(path)
        with pytest.raises(FileError, match="line 2"):
            read_site_ledger(path)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"min_row": 5}, "unknown rule 'min_row'; the rules are solvers, functions"),
        ({"min_rows": 0}, "rule min_rows = 0 must be a whole number > 0"),
        ({"min_rows": True}, "rule min_rows = True must be a whole number"),
        ({"max_rounds": 1.5}, "rule max_rounds = 1.5 must be a whole number"),
        ({"allow_at": 1}, "rule allow_at = 1 must be true or false"),
        ({"solvers": "gram"}, "rule solvers = 'gram' must be a list of texts"),
    ],
)
def test_bad_rules_are_named(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Policy.from_dict({"solvers": [], "functions": []} | rules)


# -- through messages -------------------------------------------------------------------------------------------------------


class Direct:
    """A post that calls endpoints at once."""

    def __init__(self, endpoints: dict[str, SiteEndpoint]) -> None:
        self._endpoints = endpoints
        self._replies: list[tuple[str, bytes | None]] = []

    def now(self) -> float:
        return 0.0

    def send(self, site: str, data: bytes) -> None:
        self._replies.append((site, self._endpoints[site].handle(data)))

    def receive(self, _until: float) -> tuple[str, bytes | None] | None:
        return self._replies.pop(0) if self._replies else None


def endpoint_of(tmp_path: Path, name: str, policy: Policy, told: list[str]) -> SiteEndpoint:
    gate = Gate(name, policy, SiteLedger(tmp_path / name), n_rows=8, features=("a", "b", "c"))
    server = SiteServer(name, np.arange(24.0).reshape(8, 3), gate=gate)
    return SiteEndpoint(server, 4096, tell=told.append)


def connection(tmp_path: Path, policies: dict[str, Policy], told: list[str], **options: Any) -> MailConnection:
    endpoints = {name: endpoint_of(tmp_path, name, policy, told) for name, policy in policies.items()}
    names = {"announces": True, "features": ("a", "b", "c")}
    return MailConnection(Direct(endpoints), endpoints, round_timeout=1.0, **names | options)


async def asks(_start: Any, _state: Any) -> Any:
    await Local(remember)
    return await Sum(product, np.eye(3, 2))


def test_a_run_between_sites_with_policies(tmp_path: Path) -> None:
    driver = Driver(connection(tmp_path, {"a": POLICY, "b": POLICY}, []), plan=PLAN)
    X = np.arange(24.0).reshape(8, 3)
    np.testing.assert_array_equal(driver.run(asks), 2 * X.T @ (X @ np.eye(3, 2)))


def test_a_site_that_is_started_anew_before_its_first_request_is_taken_back(tmp_path: Path) -> None:
    """It does not know the plan; nothing is computed, the others go on, and it is told again."""
    there = connection(tmp_path, {"a": POLICY, "b": POLICY}, [])
    driver = Driver(there, plan=PLAN, min_sites=1)
    there._post._endpoints["b"] = endpoint_of(tmp_path, "b", POLICY, [])

    async def program(_start: Any, _state: Any) -> Any:
        for _ in range(2):
            await Local(remember)
            total = await Sum(product, np.eye(3, 2))
            await Progress(basis=np.eye(3, 2), kkt=1.0)
        return total

    X = np.arange(24.0).reshape(8, 3)
    np.testing.assert_array_equal(driver.run(program), 2 * X.T @ (X @ np.eye(3, 2)))
    lost, joined = [m.note for m in driver.ledger if not m.function]
    assert lost.startswith("lost: rule plan: this run was not announced here")
    assert joined == "joined"
    assert [row["what"] for row in read_site_ledger(tmp_path / "b")][:2] == ["admitted", "refused"]


@pytest.mark.parametrize("min_rows", [1, 100])
def test_a_site_that_was_started_anew_is_told_the_plan_again(tmp_path: Path, min_rows: int) -> None:
    """It has forgotten the plan; with rules that do not admit it any more the others go on without it."""
    told: list[str] = []
    there = connection(tmp_path, {"a": POLICY, "b": POLICY}, told)
    driver, Z, forgot = Driver(there, plan=PLAN, min_sites=1), np.eye(3, 2), []

    async def program(_start: Any, _state: Any) -> Any:
        await Local(remember)
        for i in range(3):
            total = await Sum(product, Z)
            await Progress(basis=Z, kkt=1.0)
            if i == 0 and not forgot:
                forgot.append("b")
                there._post._endpoints["b"] = endpoint_of(tmp_path, "b", replace(POLICY, min_rows=min_rows), told)
        return total

    X = np.arange(24.0).reshape(8, 3)
    np.testing.assert_array_equal(driver.run(program), (2 if min_rows == 1 else 1) * X.T @ (X @ Z))
    assert driver.roster == (("a", "b") if min_rows == 1 else ("a",))


def test_a_plan_is_announced_by_one_who_listens_too(tmp_path: Path) -> None:
    heard: list[str] = []

    def job(connection: Connection) -> Outcome:
        return Outcome({"sum": Driver(connection, plan=PLAN).run(asks)}, {})

    tapped(job, lambda _, response: heard.append(response.site))(connection(tmp_path, {"a": POLICY, "b": POLICY}, []))
    assert heard == ["a", "b"] * 2


def test_a_site_that_refuses_stops_the_run_or_is_left_out(tmp_path: Path) -> None:
    """Before round 1, by the rule's name, told at the site; with ``min_sites`` the others go on and the ledger says why."""
    told: list[str] = []
    policies = {"a": POLICY, "b": replace(POLICY, max_rounds=2)}
    with pytest.raises(PolicyError, match=r"refused before round 1 by b: rule max_rounds = 2: the plan allows itself 6"):
        Driver(connection(tmp_path, policies, told), plan=PLAN, min_sites=2)
    assert told == ["rule max_rounds = 2: the plan allows itself 6"]
    driver = Driver(connection(tmp_path, policies, told), plan=PLAN)
    driver.run(asks)
    assert driver.roster == ("a",)
    assert [m.note for m in driver.ledger if m.sender == "b"] == ["refused: rule max_rounds = 2: the plan allows itself 6"]


def test_of_several_plans_the_first_is_taken_whose_solver_all_allow(tmp_path: Path) -> None:
    """Nobody is left out for a rule of solvers; where no plan fits all, the first one counts, and who refuses it is named."""
    plans = [replace(PLAN, solver=name) for name in ("auto", "gram", "krylov")]
    either, second = (replace(POLICY, solvers=names) for names in (("auto", "gram", "krylov"), ("krylov",)))
    driver = Driver(connection(tmp_path, {"a": either, "b": second}, []), plan=plans[0], instead=plans[1:], min_sites=1)
    assert (driver.chosen, driver.roster) == (2, ("a", "b"))
    X = np.arange(24.0).reshape(8, 3)
    np.testing.assert_array_equal(driver.run(asks), 2 * X.T @ (X @ np.eye(3, 2)))
    admitted = [row["solver"] for row in read_site_ledger(tmp_path / "b") if row["what"] == "admitted"]
    assert admitted == ["krylov"]
    apart = {"c": replace(POLICY, solvers=("gram",)), "d": second, "e": either}
    driver = Driver(connection(tmp_path, apart, []), plan=plans[0], instead=plans[1:], min_sites=1)
    assert (driver.chosen, driver.roster) == (0, ("e",))
    assert driver.run(asks).shape == (3, 2)
    with pytest.raises(PolicyError, match=r"refused before round 1 by c: rule solvers: 'auto' .* allowed are gram; d: "):
        Driver(connection(tmp_path, apart, []), plan=plans[0], instead=plans[1:], min_sites=3)


def test_other_features_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"rule features: .*not here: z"):
        Driver(connection(tmp_path, {"a": POLICY}, [], features=("a", "b", "z")), plan=PLAN)


def test_a_coordinator_without_a_plan_gets_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(TooFewSitesError, match=r"lost a \(rule plan: this run was not announced here"):
        Driver(connection(tmp_path, {"a": POLICY}, told)).run(asks)
    assert all(row["what"] == "refused" for row in read_site_ledger(tmp_path / "a"))
    assert told


def test_oversized_and_damaged_messages_are_told_at_the_site(gate: Gate) -> None:
    told: list[str] = []
    endpoint = SiteEndpoint(served(gate), 4096, tell=told.append)
    for data in (b"", b"x" * 5000, bytes(200), b"\x00" * CHECKSUM):
        assert endpoint.handle(data)
    assert ["refused unread" in reason for reason in told] == [False, True, False, False]
    assert len(told) == 4


def test_steps_are_still_checked_first(gate: Gate) -> None:
    server = served(gate)
    server.admit("r1", PLAN.to_dict())
    with pytest.raises(StepError):
        server.execute(request(2, "product", np.eye(3, 2)), 1)
