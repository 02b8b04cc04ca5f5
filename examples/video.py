"""Video: what all shots share is the background, what a shot has for itself are the people who walk through it.

Run ``python examples/video.py [FOLDER]`` with EIGENPACT_DATA set to the folder that has the videos
(see docs/how-to/real-data.md).
"""

from __future__ import annotations

import common
import numpy as np

import eigenpact as ep
from eigenpact.reproduce.personalized.pictures import always_moving, motion_ratio
from eigenpact.reproduce.personalized.scenes import rows_of_pictures

SHOT = 10  # frames that make a site

folder = common.folder(__doc__)
for name in ("video_bmc", "video_escalator"):
    data = common.dataset(name)
    frames = data.X.astype(float).reshape(-1, *data.extra["shape"]) / 255
    sites = {f"shot{k:03d}": frames[k * SHOT : (k + 1) * SHOT].reshape(SHOT, -1) for k in range(len(frames) // SHOT)}

    pca = ep.PersonalizedPCA(n_global=20, n_local=5, tol=1e-2, random_state=0).fit(sites)
    both = [pca.parts(X, site=shot) for shot, X in sites.items()]
    shared, moving = (np.concatenate([part[j] for part in both]).reshape(-1, *frames.shape[1:]) for j in (0, 1))
    background = shared + pca.mean_.reshape(frames.shape[1:])  # what all frames have in common, and how they vary together

    local = dict(enumerate(moving))
    ratio, objects = motion_ratio(local, frames), motion_ratio(local, frames, steady=always_moving(frames))
    print(f"{name}: {len(sites)} sites, {pca.n_rounds_} rounds, misalignment {pca.misalignment_:.2f}")
    print(f"  energy of the local part, moving over still pixels: {ratio:.1f}; what always moves counted as still: {objects:.1f}")
    chosen = np.linspace(0, len(moving) - 1, 6).astype(int)[1:5]
    shown = {"frame": frames[chosen], "mean and global part": background[chosen], "local part": moving[chosen]}
    common.write(
        rows_of_pictures(name, {k: list(v) for k, v in shown.items()}, [f"frame {i}" for i in chosen]), folder / f"{name}.png"
    )
