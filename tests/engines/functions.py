"""Local functions of the conformance suite, for sites to import: without estimators, which take seconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenpact.runtime import Reply, Site, local


@local(sends={"n": "", "sums": "d"}, setup=True)
def count(site: Site) -> Any:
    """Number of rows and sums of the columns."""
    return np.int64(site.X.shape[0]), site.X.sum(axis=0)


@local(takes={"Z": "d k"}, sends={"G": "d k"}, bound="none")
def action(site: Site, Z: Any) -> Any:
    """The scatter about the origin times Z."""
    return site.X.T @ (site.X @ Z)


@local(sends={"head": "r d", "names": "c"})
def some_rows(site: Site) -> Any:
    """As many rows as the name has letters, in single precision, and the letters: of different shapes at each site."""
    letters = np.frombuffer(site.name.encode(), dtype=np.uint8)
    return site.X[: len(letters)].astype(np.float32), letters


@local(takes={"sign": ""}, sends={"extremes": "d", "rows": ""})
def extremes(site: Site, sign: Any) -> Any:
    """The largest entries of the columns times a sign, and the number of rows."""
    return (sign * site.X).max(axis=0), np.int64(len(site.X))


@local(takes={"v": "d", "hops": ""}, sends={"v": "d", "hops": ""})
def pass_on(site: Site, v: Any, hops: Any) -> Any:
    """A hop of a chain: the order of the sites shows in the bits."""
    w = v + site.X.T @ (site.X @ v) / len(site.X)
    return w / np.linalg.norm(w), hops + 1


@local(takes={"v": "d"}, reads=("scores", "times"), keeps=("scores", "times"))
def keep_scores(site: Site, v: Any) -> Any:
    """Remember scores, and how often."""
    return Reply(keep={"scores": site.X @ v + site.kept.get("scores", 0.0), "times": site.kept.get("times", 0) + 1})


@local(sends={"mean": "", "times": ""}, reads=("scores", "times"))
def mean_score(site: Site) -> Any:
    """The mean of the scores that were kept."""
    return site.kept["scores"].mean(), np.int64(site.kept["times"])


@local(keeps=("x",))
def begin_average(site: Site) -> Any:
    """Begin with the node's own column means."""
    return Reply(keep={"x": site.X.mean(axis=0)})


@local(sends={"x": "d"}, reads=("x",), keeps=("x",))
def average(site: Site) -> Any:
    """Average what came in with what is kept, in the order in which it lies there, and send the result."""
    x = _averaged(site)
    return Reply(send=x, keep={"x": x})


@local(reads=("x",), keeps=("x",))
def end_average(site: Site) -> Any:
    """Take in the last messages."""
    return Reply(keep={"x": _averaged(site)})


@local(takes={"sign": ""}, sends={"x": "d"}, reads=("x",))
def averaged(site: Site, sign: Any) -> Any:
    """The node's average times a sign."""
    return sign * site.kept["x"]


@local(sends={"d": ""})
def own_width(site: Site) -> Any:
    """How many features there are, which all nodes know."""
    return float(site.X.shape[1])


def _averaged(site: Site) -> Any:
    total = site.kept["x"].copy()
    for (x,) in site.inbox.values():
        total += x
    return total / (1 + len(site.inbox))


@local(sends={"rows": "r d", "count": ""})
def addressed(site: Site) -> Any:
    """To each neighbour its own number of rows; nothing to one whose name begins with the last letter of this one's."""
    return {name: (site.X[: 1 + len(name) % 3], np.int32(len(name))) for name in site.neighbours if name[0] != site.name[-1]}


@local(sends={"seen": "d"})
def seen(site: Site) -> Any:
    """What came in: how many messages, and sums of the rows, weighed by order of arrival."""
    total = np.full(site.X.shape[1], float(len(site.inbox)))
    for i, (rows, n) in enumerate(site.inbox.values()):
        total += (i + 1) * rows.sum(axis=0) * n
    return total


@local(takes={"U": "d k"}, sends={"worst": ""}, reads=("V",))
def orthogonality(site: Site, U: Any) -> Any:
    """How far [U, V_i] is from orthonormal, V_i what the site keeps as its local part."""
    W = np.concatenate([U, site.kept["V"]], axis=1)
    return np.abs(W.T @ W - np.eye(W.shape[1])).max()


@local(sends={})
def knock(_site: Site) -> Any:
    """A message without arrays."""
    return ()


@local(sends={"knocks": ""})
def knocks(site: Site) -> Any:
    """How many messages came, all without arrays."""
    return np.int64(sum(message == () for message in site.inbox.values()))
