"""A geneticist with PLINK files of five populations: a picture of ancestry, scores for PLINK, and a model to take elsewhere."""

from __future__ import annotations

import json

import numpy as np

from .person import Person, is_picture, needs

GENOTYPES, PROJECT, ELSEWHERE = (
    f"docs/how-to/{name}.md" for name in ("genotypes-and-cells", "project-new-rows", "take-a-model-elsewhere")
)
POPULATIONS = ("CEU", "YRI", "CHB", "GIH", "PEL")


def play(person: Person, size: str = "small") -> None:
    """Populations apart on the first two components, as by the usual formula on all genotypes together."""
    needs("bed_reader")
    people, variants = (30, 400) if size == "small" else (400, 20_000)
    counts = write_beds(person, people, variants)
    files = {"north.bed": " ".join(f"{name}.bed" for name in POPULATIONS[:-1]), "south.bed": f"{POPULATIONS[-1]}.bed"}
    person.types(GENOTYPES, "eigenpact fit north.bed south.bed -k 2 --prepare genotypes -o ancestry -q", files | {"2": "4"})
    told = "eigenpact transform ancestry north.bed -o north.eigenvec --picture north.png"
    found = []
    for name in POPULATIONS:
        own = {"north.bed": f"{name}.bed", "north.eigenvec": f"{name}.eigenvec", "north.png": f"{name}.png"}
        assert f"Wrote {people} rows of 4 scores to {name}.eigenvec" in person.types(GENOTYPES, told, own)
        assert is_picture(person.folder / f"{name}.png")
        lines = (person.folder / f"{name}.eigenvec").read_text().splitlines()
        assert lines[0].startswith("#")
        found.append([[float(x) for x in line.split()[-4:]] for line in lines[1:]])
    share = counts.mean(axis=(0, 1)) / 2
    kept = (share > 0) & (share < 1)
    scaled = (counts.reshape(-1, variants)[:, kept] - 2 * share[kept]) / np.sqrt(2 * share[kept] * (1 - share[kept]))
    u, _, _ = np.linalg.svd(scaled, full_matrices=False)
    got = np.array(found).reshape(-1, 4)
    cosines = np.linalg.svd(u[:, :4].T @ np.linalg.qr(got)[0], compute_uv=False)
    np.testing.assert_allclose(cosines, 1, atol=1e-6)
    person.types(ELSEWHERE, "eigenpact export model --to json -o model.json", {"model": "ancestry"})
    assert json.loads((person.folder / "model.json").read_text())


def write_beds(person: Person, people: int, variants: int) -> np.ndarray:
    """Counts (population x people x variants), drawn from shares that drifted apart, and their files."""
    from bed_reader import to_bed

    rng = np.random.default_rng(9)
    old = rng.uniform(0.1, 0.9, size=variants)
    shares = np.clip(old + rng.normal(scale=0.12, size=(len(POPULATIONS), variants)), 0.02, 0.98)
    counts = rng.binomial(2, shares[:, None, :], size=(len(POPULATIONS), people, variants)).astype(np.int8)
    for name, part in zip(POPULATIONS, counts, strict=True):
        sites = {"allele_1": ["A"] * variants, "allele_2": ["G"] * variants, "sid": [f"rs{j}" for j in range(variants)]}
        to_bed(person.folder / f"{name}.bed", part, properties=sites | {"iid": [f"{name}{i}" for i in range(people)]})
    return counts
