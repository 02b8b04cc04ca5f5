"""Topics: words that all presidential debates share, and words of a single election year.

Run ``python examples/topics.py [FOLDER]`` with EIGENPACT_DATA set to the folder that has the debates
(see docs/how-to/real-data.md).
"""

from __future__ import annotations

import common
import numpy as np
from matplotlib.figure import Figure

import eigenpact as ep
from eigenpact.reproduce.personalized.debates import debates_by_year

folder = common.folder(__doc__)
common.dataset("debates")
sites, words = debates_by_year()  # tf-idf weights of every turn of speech by scikit-learn, without stop words

pca = ep.PersonalizedPCA(n_global=2, n_local=2, center=False, tol=1e-3, random_state=0).fit(sites)
print(f"{len(words)} words, {pca.n_rounds_} rounds, misalignment {pca.misalignment_:.2f}")


def leading(component: np.ndarray) -> str:
    """The words with the largest entries."""
    return ", ".join(words[i] for i in np.argsort(-np.abs(component))[:8])


lines = [("common", pca.components_), *((site, pca.local_components_[site]) for site in pca.sites_)]
figure = Figure(figsize=(10, 0.42 * len(lines) * 2), layout="constrained")
ax = figure.subplots()
ax.set_axis_off()
for i, (name, components) in enumerate(lines):
    for j, component in enumerate(components):
        text = leading(component)
        print(f"{name:>10} {j + 1}: {text}")
        ax.text(0.0, 1 - (2 * i + j) / (2 * len(lines)), name if j == 0 else "", weight="bold", fontsize=9)
        ax.text(0.12, 1 - (2 * i + j) / (2 * len(lines)), text, fontsize=9)
common.write(figure, folder / "topics.png")
