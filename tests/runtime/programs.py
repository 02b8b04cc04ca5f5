"""Small programs that use the runtime as solvers do: set-up, kept state, progress with and without a state to cut at."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenpact.runtime import Chain, Gather, Local, Progress, Reply, Site, Sum, local

ROUNDS = 6


@local(sends={"n": "", "sums": "d"}, setup=True)
def count(site: Site):
    """Number of rows and sums of the columns."""
    return np.int64(site.X.shape[0]), site.X.sum(axis=0)


@local(takes={"mean": "d"}, keeps=("mean",), setup=True)
def keep_mean(_site: Site, mean):
    """Remember the pooled mean."""
    return Reply(keep={"mean": mean})


@local(takes={"Z": "d k"}, sends={"G": "d k"}, reads=("mean",))
def action(site: Site, Z):
    """The centred rows' scatter times Z."""
    Y = site.X - site.kept["mean"]
    return Y.T @ (Y @ Z)


@local(takes={"Z": "d k"}, sends={"S": "d k"}, reads=("mean", "sum"), keeps=("sum",))
def heavy_action(site: Site, Z):
    """As ``action``, plus half of what this function sent last: kept at the site, not in set-up."""
    total = action(site, Z) + 0.5 * site.kept.get("sum", np.zeros(Z.shape))
    return Reply(send=total, keep={"sum": total})


@local(takes={"v": "d"}, sends={"v": "d"}, reads=("mean", "passed"), keeps=("passed",))
def pass_through(site: Site, v):
    """A hop of a chain: adds the site's scatter times v, and remembers that it was here."""
    Y = site.X - site.kept["mean"]
    passed = site.kept.get("passed", 0.0) + 1.0
    return Reply(send=passed * (v + Y.T @ (Y @ v)), keep={"passed": passed})


async def set_up() -> tuple[int, Any]:
    n, sums = await Sum(count)
    await Local(keep_mean, sums / n)
    return int(n), sums / n


def orthonormal(G):
    return np.ascontiguousarray(np.linalg.qr(G)[0])


async def plain(start, state):
    """Subspace iteration; goes on after the Progress at which it was cut."""
    n, mean = await set_up()
    Z, first = (np.eye(len(mean), 2) if start is None else start), 0
    if state is not None:
        Z, first = state["Z"], int(state["t"])
    for t in range(first, ROUNDS):
        G = await Sum(action, Z)
        Z = orthonormal(G)
        more = {"Z": Z, "t": np.array(t + 1)} if t + 1 < ROUNDS else None
        await Progress(basis=Z, objective=float(np.trace(Z.T @ G)), state=more)
    return n, mean, Z, first


async def repeating(start, state):
    """Subspace iteration; repeats the Progress at which it was cut."""
    n, mean = await set_up()
    Z, t = (np.eye(len(mean), 2) if start is None else start), 0
    if state is not None:
        Z, t = state["Z"], int(state["t"])
    while True:
        await Progress(basis=Z, objective=float(t), state={"Z": Z, "t": np.array(t)})
        if t == ROUNDS:
            return n, mean, Z, start is None
        Z, t = orthonormal(await Sum(action, Z)), t + 1


async def remembering(start, _state):
    """Sites keep a running sum; the state that is offered for a cut does not hold it."""
    n, mean = await set_up()
    Z = np.eye(len(mean), 2) if start is None else start
    for _ in range(ROUNDS):
        Z = orthonormal(await Sum(heavy_action, Z))
        await Progress(basis=Z, state={"Z": Z})
    return n, mean, Z


async def chained(start, _state):
    """Two chains and a gather, with state kept by the chain's hops."""
    n, mean = await set_up()
    v = np.ones(len(mean)) if start is None else start[:, 0].copy()
    for _ in range(2):
        v = await Chain(pass_through, v)
        v = v / np.linalg.norm(v)
        await Progress(basis=v[:, None])
    replies = await Gather(action, v[:, None])
    return n, mean, sum(replies.values())


def bits(result) -> list[bytes]:
    """A result as bytes, to compare exactly."""
    return [np.asarray(item).tobytes() for item in result]
