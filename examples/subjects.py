"""Subjects: motion signals of 30 people; what walking has in common, and who resembles whom in what is left.

Run ``python examples/subjects.py [FOLDER]`` with EIGENPACT_DATA set to the folder that has HAR (see docs/how-to/real-data.md).
"""

from __future__ import annotations

from collections import defaultdict

import common
import numpy as np
from matplotlib.figure import Figure

import eigenpact as ep
from eigenpact.reproduce.personalized.scenes import maps

folder = common.folder(__doc__)
har = common.dataset("har")  # windows of 9 signals with 128 samples each
sites = ep.datasets.partition.by_group(har.X, har.groups["subject"])

pca = ep.PersonalizedPCA(n_global=10, n_local=5, scale="pooled", tol=1e-3, random_state=0).fit(sites)
print(f"{len(sites)} subjects, {pca.n_rounds_} rounds, misalignment {pca.misalignment_:.2f}, captured {pca.captured_:.2f}")
clusters = pca.cluster_sites(4)
members = defaultdict(list)
for site, cluster in clusters.items():
    members[cluster].append(site)
for cluster, names in sorted(members.items()):
    print(f"cluster {cluster}: {', '.join(names)}")
common.write(
    maps("Subjects by their local components", {"": (pca.site_distances_, list(clusters.values()), pca.sites_)}, 1),
    folder / "subjects.png",
)

figure = Figure(figsize=(9, 5), layout="constrained")
axes = figure.subplots(3, 1, sharex=True)
one, other = sorted(sites)[0], sorted(sites)[-1]
parts = {"global": pca.components_, f"local, {one}": pca.local_components_[one], f"local, {other}": pca.local_components_[other]}
for ax, (name, components) in zip(axes, parts.items(), strict=True):
    for component in components[:2]:
        ax.plot(component, linewidth=0.8)
    for k in range(1, 9):
        ax.axvline(128 * k, color="0.8", linewidth=0.8)
    ax.set_title(f"{name}: the first two of {len(components)} components", fontsize=9)
axes[-1].set_xticks(np.arange(9) * 128 + 64, [f"signal {k + 1}" for k in range(9)], fontsize=8)
common.write(figure, folder / "subjects-components.png")
