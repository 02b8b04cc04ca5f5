"""What one-shot, hot potato, private methods and those on graphs really send is what the page docs/reference/wire-table.md tells.

The exact solvers are compared in ``test_every_solver.py``, personalized and robust PCA beside their algorithms.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.runtime import COORDINATOR
from eigenpact.runtime.ledger import Message
from eigenpact.runtime.shapes import Shape

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire-table.md"
D, K = 6, 2
ROWS = {"n0": 30, "n1": 20, "n2": 25, "n3": 12, "n4": 9}
RING = "ring:2"

SETUP = "Set-up of every solver of FederatedPCA and PersonalizedPCA"
SUMS = "Products with the pooled scatter"
GOSSIP = "Graph: averages by gossip"
TREE = "Graph: sums along a tree"
MOMENTS = "Set-up of every solver of PrivatePCA"
AGREED = {"count_and_sum", "spread", "keep_centre"}
SIZES = {"own_directions": {"k": K}, "pass_over": {"q": K + 1}}
"""What sizes stand for: hot potato carries one direction more than it is asked for."""

OF_RECEIVER = {"send_values"}
"""Functions that send a value for each of the receiver's rows; elsewhere n are the sender's."""


@dataclass(frozen=True)
class Method:
    """An estimator, the page's parts that tell of it, and the functions whose messages the ledger must hold: all of these."""

    model: Any
    parts: tuple[str, ...]
    functions: set[str]


def joint(solver: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(K, solver=solver, random_state=0)


def on_ring(method: str, **options: Any) -> ep.GraphKernelPCA:
    return ep.GraphKernelPCA(K, gamma=0.05, graph=RING, solver=method, random_state=0, **options)


def private(solver: str) -> ep.PrivatePCA:
    return ep.PrivatePCA(K, epsilon=50, delta=1e-6, row_bound=9, solver=solver, secure=False, random_state=0)


def merged(merge: Any) -> Method:
    return Method(
        joint(ep.solvers.OneShot(merge=merge)), (SETUP, "one-shot", SUMS), AGREED | {"own_directions", "scatter_action"}
    )


PROJECTION = (
    "projection-consensus",
    "Graph: rows and the common mean",
    "Graph: a common first direction",
    "Graph: signs",
    "Graph: further components",
    "Graph: whether to trust a component",
)
TRACKING = "Graph: tracking"
TRACKED = {"send_own", "mix", "pass_on_maximum"}
TREE_KRYLOV = "Graph: block Krylov along a tree"
ALONG_TREE = {"send_up", "send_down"}
METHODS = {
    **{f"one-shot, {merge}": merged(merge) for merge in ("average", "sign", "projection", "stack", "svd")},
    "one-shot, unconfirmed": Method(joint(ep.solvers.OneShot(confirm=False)), (SETUP, "one-shot"), AGREED | {"own_directions"}),
    "hot-potato": Method(joint("hot-potato"), (SETUP, "hot-potato", SUMS), AGREED | {"pass_over", "scatter_action"}),
    "hot-potato, unconfirmed": Method(joint(ep.solvers.HotPotato(confirm=False)), (SETUP, "hot-potato"), AGREED | {"pass_over"}),
    "projection-consensus": Method(
        on_ring("projection-consensus"),
        (*PROJECTION, TREE),
        ALONG_TREE
        | {
            "pass_on_maximum",
            "send_rows",
            "send_feature_sums",
            "send_mean_values",
            "offer_frame",
            "offer_sign",
            "send_coefficients",
            "send_values",
            "send_direction",
            "send_scores",
            "send_both_up",
        },
    ),
    "random-features": Method(on_ring("random-features"), (TREE, TREE_KRYLOV), ALONG_TREE),
    "landmarks": Method(
        on_ring("landmarks", landmarks=np.random.default_rng(2).normal(size=(20, D))),
        (TREE, TREE_KRYLOV),
        ALONG_TREE,
    ),
    "GraphPCA": Method(ep.GraphPCA(K, graph=RING, random_state=0), (GOSSIP, TRACKING), TRACKED),
    "neighbourhood": Method(on_ring("neighbourhood"), ("neighbourhood",), {"send_rows"}),
    "own": Method(on_ring("own"), ("own",), set()),
    "noisy-gram": Method(private("noisy-gram"), (MOMENTS, "noisy-gram"), {"noisy_moments", "noisy_triangle"}),
    "noisy-subspace": Method(private("noisy-subspace"), (MOMENTS, "noisy-subspace"), {"noisy_moments", "noisy_product"}),
}


def table(parts: tuple[str, ...]) -> dict[tuple[str, str], list[Shape]]:
    """Function and way -> shapes of the arrays, in order, as these parts of the page tell them."""
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S))
    found: dict[tuple[str, str], list[Shape]] = defaultdict(list)
    for part in parts:
        for function, way, shape in re.findall(r"^\| `(\w+)` \| ([\w ]+?) \| [^|]+ \| (.*?) \|", sections[part], re.M):
            found[function, way].append(Shape.parse("" if shape == "number" else shape.strip("`")))
    return found


def fitted(label: str) -> Any:
    rng = np.random.default_rng(0)
    return METHODS[label].model.fit({name: rng.normal(size=(n, D)) * [3, 2, 1, 0.5, 0.4, 0.3] for name, n in ROWS.items()})


def fits(told: list[Shape], message: Message) -> bool:
    """Whether a message's arrays are those that were told, in number and shape."""
    rows = ROWS.get(message.receiver if message.function in OF_RECEIVER else message.sender)
    sizes = {"d": D} | SIZES.get(message.function, {}) | ({"n": rows} if rows else {})
    return len(told) == len(message.shapes) and all(s.fits(a, sizes) for s, a in zip(told, message.shapes, strict=True))


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotIdentifiableWarning")
@pytest.mark.parametrize("label", METHODS)
def test_ledger_matches_the_wire_table(label: str) -> None:
    """Every message is one that the page tells, array by array; every function that should have sent did; rounds add up."""
    method, told = METHODS[label], table(METHODS[label].parts)
    model = fitted(label)
    maxima = [told[key] for key in told if key[1] == "from site" and key[0] in ("update", "advance")]
    rounds = set()
    for message in model.ledger_:
        if message.function == "pass_on_maximum":  # what nodes agree on, from neighbour to neighbour
            assert any(fits(shapes, message) for shapes in maxima), message
        else:
            way = "to site" if message.sender == COORDINATOR else "from site"
            assert fits(told[message.function, way], message), message
        assert message.bytes == 8 * sum(int(np.prod(shape)) for shape in message.shapes)
        if message.note != "setup":
            rounds.add(message.round)
    assert {message.function for message in model.ledger_} == method.functions
    assert rounds == set(range(1, model.n_rounds_ + 1))


@pytest.mark.parametrize("label", [label for label in METHODS if label.startswith("hot-potato")])
def test_the_state_of_hot_potato_goes_round_once(label: str) -> None:
    """From the coordinator to the first site, on in the order of the names, and back."""
    ends = [(m.sender, m.receiver) for m in fitted(label).ledger_ if m.function == "pass_over"]
    stations = [COORDINATOR, *ROWS, COORDINATOR]
    assert ends == list(pairwise(stations))


@pytest.mark.parametrize("label", [label for label, method in METHODS.items() if hasattr(method.model, "graph")])
def test_messages_on_a_graph_stay_on_its_edges(label: str) -> None:
    """Every node sends to both its neighbours, or along a tree, and to nobody else: there is no coordinator."""
    names = list(ROWS)
    edges = {(name, names[(i + step) % len(names)]) for i, name in enumerate(names) for step in (-1, 1)}
    if METHODS[label].functions == ALONG_TREE:  # of the ring, all edges but the one that is farthest from the root, n0
        edges -= {("n2", "n3"), ("n3", "n2")}
    assert {(m.sender, m.receiver) for m in fitted(label).ledger_} == (edges if label != "own" else set())
