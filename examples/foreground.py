"""Foreground of a video by robust PCA: cameras keep their frames, agree on the background, and each finds what moves.

The I2R escalator video (200 grey frames of 130 x 160) is dealt to four recorders.  The common background is the low-rank part,
people and moving stairs are the errors.  Run it with

    EIGENPACT_DATA=<folder with the data sets> python examples/foreground.py [picture.png] [step]

A step of 2 takes every second pixel of every second line, and a fifth of the time.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

import eigenpact as ep

RECORDERS, COMPONENTS, SHOWN = 4, 2, (20, 90, 160)


def main(picture: str = "foreground.png", step: str = "1") -> None:
    """Fit, print what left the recorders, and draw a few frames."""
    try:
        video = ep.datasets.video_escalator()
    except ep.errors.EigenpactError as error:
        sys.exit(f"{error}\nThis example needs i2r_escalator_gray130x160.npz: set EIGENPACT_DATA to the folder that holds it.")
    pictures = video.X.reshape(-1, *video.extra["shape"])[:, :: int(step), :: int(step)]
    frames = pictures.reshape(len(pictures), -1).astype(np.float32)
    sites = {f"recorder{i}": frames[i::RECORDERS] for i in range(RECORDERS)}
    # the mask of a moving scene never comes quite to rest, so a loose tolerance will do
    pca = ep.RobustPCA(COMPONENTS, tol=1e-2, random_state=0).fit(sites)
    print(pca.summary())
    sent = sum(m.bytes for m in pca.ledger_ if m.sender != "coordinator")
    print(f"the recorders sent {sent / 1e6:.0f} MB of sums; their frames are {frames.nbytes / 1e6:.0f} MB and stayed")
    figure = Figure(figsize=(9, 2.6 * len(SHOWN)), dpi=80, layout="constrained")
    for row, number in zip(figure.subplots(len(SHOWN), 3), SHOWN, strict=True):
        background, errors = pca.decompose(frames[number : number + 1])
        images = {f"frame {number}": frames[number], "background L": background, "foreground |S|": np.abs(errors)}
        for ax, (title, image) in zip(row, images.items(), strict=True):
            ax.imshow(np.asarray(image).reshape(pictures.shape[1:]), cmap="gray", vmin=0, vmax=255 if title[0] != "f" else None)
            ax.set_title(title, fontsize=10)
            ax.set_axis_off()
    figure.savefig(picture)
    print(f"the picture is in {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
