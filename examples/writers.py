"""Writers: characters of 105 people, reconstructed from shared strokes and a few of each writer's own.

Run ``python examples/writers.py [FOLDER]`` with EIGENPACT_DATA set to the folder that has FEMNIST (see docs/how-to/real-data.md).
"""

from __future__ import annotations

import common
import numpy as np

import eigenpact as ep
from eigenpact.reproduce.personalized.scenes import rows_of_pictures
from eigenpact.reproduce.personalized.writing import split

folder = common.folder(__doc__)
femnist = common.dataset("femnist")
train, test = split(ep.datasets.partition.by_group((255.0 - femnist.X) / 255, femnist.groups["writer"]), seed=0)

models = {}
for name, solver, options in [
    ("individual", "individual", {}),
    ("pooled", "pooled", {}),
    ("distPCA", "distpca", {}),
    ("personalized", "varpro", {"validation_fraction": 0.1}),  # stops when the error on a tenth of the rows no longer falls
]:
    pca = ep.PersonalizedPCA(50, 5, solver=solver, center=False, random_state=0, misalignment=False, **options).fit(train)
    errors = [np.mean([pca.reconstruction_error(X, site=w) for w, X in rows.items() if len(X)]) for rows in (train, test)]
    print(f"{name:>13}: training error {errors[0]:.3f}, test error {errors[1]:.3f}, {pca.n_rounds_} rounds")
    models[name] = pca

writer = max(test, key=lambda w: len(test[w]))
some = test[writer][:7]
shown = {"test row": some} | {
    name: pca.inverse_transform(pca.transform(some, site=writer), site=writer) for name, pca in models.items()
}
pictures = {name: [1 - row.reshape(28, 28) for row in rows] for name, rows in shown.items()}
common.write(rows_of_pictures(f"Characters of {writer}", pictures, [str(i) for i in range(len(some))]), folder / "writers.png")
