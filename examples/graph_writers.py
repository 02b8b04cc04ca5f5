"""Writers on a graph: digits of 20 people, each a node that talks to four others and sends no image to them.

Run ``python examples/graph_writers.py [FOLDER]`` with EIGENPACT_DATA set to the folder that has MNIST and its writers.
"""

from __future__ import annotations

import sys

import common
import numpy as np

import eigenpact as ep
from eigenpact.report.graph_pictures import graph_and_scores

DIGITS, WRITERS = (0, 3, 5, 8), 20

folder = common.folder(__doc__)
mnist = common.dataset("mnist")
if "writer" not in mnist.groups:
    sys.exit("This example needs the writers of MNIST: put mnist_writers_qmnist.npz into the folder EIGENPACT_DATA")
wanted = np.flatnonzero(np.isin(mnist.y, DIGITS))
writers, counts = np.unique(mnist.groups["writer"][wanted], return_counts=True)
chosen = writers[np.argsort(-counts, kind="stable")][:WRITERS]
rows = {f"w{w}": wanted[mnist.groups["writer"][wanted] == w] for w in chosen}
nodes = {name: mnist.X[index] / 127.5 - 1 for name, index in rows.items()}
print(f"{WRITERS} writers with {min(map(len, nodes.values()))} to {max(map(len, nodes.values()))} digits each")

settings = {"n_components": 2, "graph": "small-world:4", "random_state": 0}
central = ep.GraphKernelPCA(solver="central", **settings).fit(nodes)
own = ep.GraphKernelPCA(solver="own", **settings).fit(nodes)
random = ep.GraphKernelPCA(solver="random-features", **settings).fit(nodes)
print(f"random features: {random.stop_reason_}; {random.n_iterations_} iterations")

strangers = np.setdiff1d(wanted, np.concatenate(list(rows.values())))[:1500]  # digits of other people
new, labels = mnist.X[strangers] / 127.5 - 1, mnist.y[strangers]
exact = central.transform(new)


def correlation(scores: np.ndarray) -> float:
    """Of the first scores with the central ones."""
    return abs(float(np.corrcoef(scores[:, 0], exact[:, 0])[0, 1]))


alone = {name: correlation(own.transform(new, site=name)) for name in nodes}
together = {name: correlation(random.transform(new, site=name)) for name in nodes}
print(f"scores of strangers' digits, correlation with central kernel PCA: a writer alone {min(alone.values()):.3f} to ", end="")
print(f"{max(alone.values()):.3f}; by random features {min(together.values()):.4f} at every writer")

worst = min(alone, key=alone.__getitem__)
shown = {"central": exact, f"writer {worst[1:]} alone": own.transform(new, site=worst)}
shown |= {f"writer {worst[1:]}, random features": random.transform(new, site=worst)}
aligned = {title: scores * np.sign(np.sum(scores * exact, axis=0)) for title, scores in shown.items()}
picture = graph_and_scores(
    "Digits of strangers, as one writer sees them",
    random.graph_,
    alone,
    "correlation with central scores, alone",
    {title: (scores[:, 0], scores[:, 1]) for title, scores in aligned.items()},
    labels,
)
common.write(picture, folder / "graph_writers.png")
