"""Icons on a texture: the texture is what four pictures share, the icon is what each has for itself.

Run ``python examples/icons.py [FOLDER]``; the pictures are made here, no data are needed.
"""

from __future__ import annotations

import common
import numpy as np
from sklearn.metrics import roc_auc_score

import eigenpact as ep
from eigenpact.reproduce.scenes import icons, rows_of_pictures

folder = common.folder(__doc__)
pictures, masks = icons(side=160)

# A site is a picture, its rows are rows of pixels: six waves and the mean grey make seven shared directions.
pca = ep.PersonalizedPCA(n_global=7, n_local=10, center=False, random_state=0).fit(pictures)
parts = {name: pca.parts(picture, site=name) for name, picture in pictures.items()}
print(f"{pca.n_rounds_} rounds, misalignment {pca.misalignment_:.2f}")
for name, (_, own) in parts.items():
    area = roc_auc_score(masks[name].ravel(), -own.ravel())
    print(f"{name}: the local part tells the icon's pixels with an area under the ROC curve of {area:.3f}")

shown = {
    "picture": list(pictures.values()),
    "global part": [shared for shared, _ in parts.values()],
    "local part": [np.clip(own, -0.4, 0.2) for _, own in parts.values()],
}
common.write(rows_of_pictures("Icons on a texture", shown, list(pictures)), folder / "icons.png")
