"""Stations: air and weather at 12 places in Beijing; every station talks to the three nearest, and none sees all.

Run ``python examples/stations.py [FOLDER]`` with EIGENPACT_DATA set to the folder of the data (see docs/how-to/real-data.md).
"""

from __future__ import annotations

import common
import networkx
import numpy as np

import eigenpact as ep
from eigenpact.report.graph_pictures import graph_and_scores

PLACES = {
    "Aotizhongxin": (116.40, 39.98), "Changping": (116.23, 40.22), "Dingling": (116.22, 40.29), "Dongsi": (116.42, 39.93),
    "Guanyuan": (116.34, 39.93), "Gucheng": (116.18, 39.91), "Huairou": (116.63, 40.33), "Nongzhanguan": (116.46, 39.94),
    "Shunyi": (116.66, 40.13), "Tiantan": (116.41, 39.89), "Wanliu": (116.29, 39.99), "Wanshouxigong": (116.35, 39.88),
}  # fmt: skip
"""Longitude and latitude, about."""

POLLUTANTS = 6
"""The first features are concentrations, which vary over powers of ten."""

folder = common.folder(__doc__)
air = common.dataset("beijing_air")
names = sorted(PLACES)

graph = networkx.Graph()
for a in names:
    far = {b: np.hypot(0.77 * (PLACES[a][0] - PLACES[b][0]), PLACES[a][1] - PLACES[b][1]) for b in names if b != a}
    graph.add_edges_from((a, b) for b in sorted(far, key=far.__getitem__)[:3])

rng = np.random.default_rng(0)
SCALE = np.array([1.0, 1.0, 1.0, 0.7, 0.8, 1.0, 11.0, 10.0, 14.0, 0.8, 1.2])  # units that all stations know beforehand
stations, months = {}, {}
for name in names:
    X = air.X[air.groups["station"] == name].astype(float)
    hours = np.flatnonzero(np.isfinite(X).all(axis=1))
    hours = rng.choice(hours, 150, replace=False)
    rows = X[hours]
    rows[:, :POLLUTANTS] = np.log1p(rows[:, :POLLUTANTS])
    stations[name], months[name] = rows / SCALE, (hours // 730) % 12

settings = {"n_components": 2, "gamma": 0.05, "graph": graph, "random_state": 0}
central = ep.GraphKernelPCA(solver="central", **settings).fit(stations)
near = ep.GraphKernelPCA(tol=1e-3, max_iterations=100, **settings).fit(stations)  # two components need close agreement
apart = ep.GraphKernelPCA(solver="random-features", **settings).fit(stations)
own = ep.GraphKernelPCA(solver="own", **settings).fit(stations)
similarity = {name: abs(float(cosines[0, 0])) for name, cosines in near.similarity(central).items()}
alone = {name: abs(float(cosines[0, 0])) for name, cosines in own.similarity(central).items()}
print("similarity of the first direction with central kernel PCA:   own rows only   talking to neighbours")
for name in names:
    print(f"  {name:>15} {alone[name]:30.3f} {similarity[name]:23.3f}")
print(f"stop: {near.stop_reason_}")

node = "Tiantan"
rows = np.concatenate([stations[name] for name in names])
month = np.concatenate([months[name] for name in names])  # from March on
season = np.array(["spring", "summer", "autumn", "winter"])[month // 3]
exact = central.transform(rows)
shown = {"central": exact}
for title, pca in ((f"{node}, rows to neighbours", near), (f"{node}, random features", apart)):
    scores = pca.transform(rows, site=node)
    signs = np.sign(np.sum(scores * exact, axis=0))
    shown[title] = scores * signs
    correlation = [abs(np.corrcoef(scores[:, c], exact[:, c])[0, 1]) for c in range(2)]
    print(f"{title}: correlation of all stations' scores with the central ones {correlation[0]:.4f}, {correlation[1]:.4f}")
picture = graph_and_scores(
    "Twelve stations in Beijing, no centre",
    near.graph_,
    similarity,
    "similarity with central kernel PCA",
    {title: (scores[:, 0], scores[:, 1]) for title, scores in shown.items()},
    season,
    PLACES,
)
common.write(picture, folder / "stations.png")
