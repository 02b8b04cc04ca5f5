"""A data scientist with a table of her own, in which rows have a number and a clinic: scores, and a plot of them."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from .person import Person, is_picture

FIT_FILES, PLOTS = "docs/how-to/fit-files.md", "docs/how-to/plots.md"
OWN = {"all.csv": "patients.csv", "hospital": "clinic", "nr": "case"}

DRAWN = """\
import eigenpact as ep
from matplotlib.figure import Figure
pca = ep.FederatedPCA(3, solver="krylov").fit(table, sites="hospital")
rows = {name: part.drop(columns="hospital") for name, part in table.groupby("hospital")}
figure = Figure(figsize=(15, 9), layout="constrained")
axes = figure.subplots(2, 3).ravel()
ep.plot.scree(pca, ax=axes[0])
ep.plot.scores(pca, rows, ax=axes[2])
figure.savefig("pca.png")
"""


def play(person: Person, size: str = "small") -> None:
    """From her export to scores that are those of pooling all rows, and to pictures; on the command line, then in Python."""
    n = 300 if size == "small" else 100_000
    X = write_table(person, n)
    told = person.types(FIT_FILES, "eigenpact fit all.csv -k 2 -o nr --by hospital --quiet", OWN | {"nr": "first"})
    assert told == ""  # and the number of the case is a feature, which the page warns of
    told = person.types(FIT_FILES, "eigenpact fit all.csv -k 2 -o hospitals --by hospital --id nr", OWN)
    assert f"rows           {n} of 5 features, named" in told
    scored = "eigenpact transform hospitals all.csv -o scores.csv --id nr --by hospital --picture scores.png"
    person.types(FIT_FILES, scored, OWN)
    with (person.folder / "scores.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["id", "PC1_score", "PC2_score"]
    assert [row[0] for row in rows[1:]] == [str(1000 + i) for i in range(n)]
    truth = PCA(2).fit_transform(X)
    np.testing.assert_allclose(np.abs(np.array([row[1:] for row in rows[1:]], dtype=float)), np.abs(truth), atol=1e-6)
    assert is_picture(person.folder / "scores.png")
    mine = "import pandas as pd\ntable = pd.read_csv('patients.csv').rename(columns={'clinic': 'hospital'}).drop(columns='case')"
    person.writes_python(PLOTS, DRAWN, mine)
    assert is_picture(person.folder / "pca.png")


def write_table(person: Person, n: int) -> np.ndarray:
    """Her export; the numbers in it."""
    rng = np.random.default_rng(5)
    X = (rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5)) + [60, 25, 5, 120, 80]).round(3)
    table = pd.DataFrame(X, columns=["age", "bmi", "glucose", "systolic", "diastolic"])
    table.insert(0, "case", np.arange(1000, 1000 + n))
    table.insert(1, "clinic", [["Bern", "Lund", "Turku"][i % 3] for i in range(n)])
    table.to_csv(person.folder / "patients.csv", index=False)
    return X
