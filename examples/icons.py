"""Icons on a texture: the texture is what four pictures share, the icon is what each has for itself; robust PCA beside.

Run ``python examples/icons.py [FOLDER]``; the pictures are made here, no data are needed.
"""

from __future__ import annotations

import warnings

import common
import numpy as np
from sklearn.metrics import roc_auc_score

import eigenpact as ep
from eigenpact.reproduce.personalized.pictures import icons
from eigenpact.reproduce.personalized.scenes import rows_of_pictures

folder = common.folder(__doc__)
pictures, masks = icons(side=160)

# A site is a picture, its rows are rows of pixels: six waves and the mean grey make seven shared directions.
pca = ep.PersonalizedPCA(n_global=7, n_local=10, center=False, random_state=0).fit(pictures)
parts = {name: pca.parts(picture, site=name) for name, picture in pictures.items()}
print(f"personalized PCA: {pca.n_rounds_} rounds, misalignment {pca.misalignment_:.2f}")

# Robust PCA takes the icons for errors in a few entries, and the same seven directions for the rest.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)  # icons are not sparse in the rows that they cover
    robust = ep.RobustPCA(7, center=False, random_state=0, max_rounds=100).fit(pictures)
errors = {name: robust.sparse(name) for name in pictures}
print(f"robust PCA: {robust.n_rounds_} rounds, {robust.stop_reason_}")

for name, (_, own) in parts.items():
    areas = [roc_auc_score(masks[name].ravel(), -part.ravel()) for part in (own, errors[name])]
    print(f"{name}: area under the ROC curve for its pixels: local part {areas[0]:.3f}, robust PCA's errors {areas[1]:.3f}")

shown = {
    "picture": list(pictures.values()),
    "global part": [shared for shared, _ in parts.values()],
    "local part": [np.clip(own, -0.4, 0.2) for _, own in parts.values()],
    "robust: errors": [np.clip(error, -0.4, 0.2) for error in errors.values()],
}
common.write(rows_of_pictures("Icons on a texture", shown, list(pictures)), folder / "icons.png")
