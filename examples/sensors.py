"""A table of sensors, some of them broken: robust PCA finds wrong readings, fills in missing ones, and names the bad station.

Six stations measure the same 24 quantities in different units.  Readings follow four common factors; 4 % are wrong, 5 % are
missing, and at one station a third is wrong.  Everything is generated, so no data are needed:

    python examples/sensors.py [picture.png]
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

import eigenpact as ep

FACTORS, SENSORS, HOURS = 4, 24, 250


def stations(seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What the stations recorded, what was true, and where readings are wrong."""
    rng = np.random.default_rng(seed)
    loadings, units = rng.normal(size=(FACTORS, SENSORS)), 10.0 ** rng.uniform(-2, 3, SENSORS)
    recorded, true, wrong = {}, {}, {}
    for name in ("Aarhus", "Bergen", "Cork", "Delft", "Evora", "Faro"):
        clean = (rng.normal(size=(HOURS, FACTORS)) @ loadings + 5 + 0.02 * rng.normal(size=(HOURS, SENSORS))) * units
        bad = rng.random(clean.shape) < (0.33 if name == "Delft" else 0.04)
        readings = np.where(bad, clean + rng.normal(size=clean.shape) * 8 * units, clean)
        recorded[name] = np.where(rng.random(clean.shape) < 0.05, np.nan, readings)
        true[name], wrong[name] = clean, bad & ~np.isnan(recorded[name])
    return recorded, true, wrong


def main(picture: str = "sensors.png") -> None:
    """Fit, compare with the truth, and draw one station."""
    recorded, true, wrong = stations()
    pca = ep.RobustPCA(FACTORS, scale="robust", tol=1e-4, random_state=0).fit(recorded)
    print(pca.summary())
    print("\nstation   wrong readings   found   falsely accused   missing filled in to (relative)")
    for name, X in recorded.items():
        low_rank, errors = pca.low_rank(name), pca.sparse(name) != 0
        missing = np.isnan(X)
        off = np.abs(low_rank - true[name])[missing] / np.abs(pca.scale_ * np.ones_like(X))[missing]
        hit, false = (errors & wrong[name]).sum(), (errors & ~wrong[name]).sum()
        print(f"{name:9} {wrong[name].sum():8d} {hit / wrong[name].sum():14.1%} {false / X.size:14.2%} {np.median(off):18.1e}")
    plain = ep.FederatedPCA(FACTORS, scale="pooled").fit({k: np.where(np.isnan(X), pca.mean_, X) for k, X in recorded.items()})
    off, robustly_off = (_sine(model, true, pca.scale_) for model in (plain, pca))
    print(f"\nthe subspace found by plain PCA is {off:.2f} off (sine), by robust PCA {robustly_off:.4f}")
    figure = Figure(figsize=(10, 4.2), dpi=80, layout="constrained")
    images = {
        "Delft: readings, in robust deviations": (recorded["Delft"] - pca.mean_) / pca.scale_,
        "low-rank part": (pca.low_rank("Delft") - pca.mean_) / pca.scale_,
        "errors": pca.sparse("Delft") / pca.scale_,
    }
    for ax, (title, image) in zip(figure.subplots(1, 3), images.items(), strict=True):
        shown = ax.imshow(image[:60], aspect="auto", cmap="RdBu_r", vmin=-6, vmax=6, interpolation="nearest")
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("sensor")
        ax.set_ylabel("hour")
    figure.colorbar(shown, ax=figure.axes, shrink=0.8)
    figure.savefig(picture)
    print(f"the picture is in {picture}")


def _sine(pca: ep.FederatedPCA | ep.RobustPCA, true: dict[str, np.ndarray], scale: np.ndarray) -> float:
    """Largest angle, as a sine, to the factors of the true readings; components are taken back to the units of ``scale``."""
    X = np.concatenate(list(true.values())) / scale
    exact = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:FACTORS].T
    found = np.linalg.qr((pca.components_ * pca.scale_ / scale).T)[0]
    return float(np.linalg.norm(found - exact @ (exact.T @ found), 2))


if __name__ == "__main__":
    main(*sys.argv[1:2])
