"""The data manager of the third hospital: an export with decimal commas and marks, a kit, and two others who wait for her.

She types what the README in her kit and the pages say; so do the coordinator and the other two hospitals.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from sklearn.decomposition import PCA

import eigenpact as ep
from tests.cli.daily import Command
from tests.engines.federation import free_port, with_argument

from .person import Person, needs

FEDERATE, FLOWER = "docs/how-to/federate.md", "docs/how-to/federate-with-flower.md"
PAGES = {"nvflare": FEDERATE, "flower": FLOWER}
FEATURES = ("age", "trestbps", "thalach", "oldpeak")
KIT = "heart/va"
MODULES = {"nvflare": "nvflare", "flower": "flwr"}


def play(person: Person, engine: str = "nvflare", *, alone: bool = False) -> None:
    """Scores of her own patients by the joint components of three hospitals, whose sums were secured.

    ``alone``: up to a site that waits for the coordinator; over Flower the rest takes minutes.
    """
    needs(MODULES[engine], "cryptography")
    tables = {name: rows(i) for i, name in enumerate(("cleveland", "hungarian", "va"))}
    running: list[Command] = []
    try:
        kits(person, engine, tables)
        running += [] if alone else others(person, engine, tables)
        running.append(hers(person, tables["va"]))
        if not alone:
            scores_of_hers(person, engine, tables)
    finally:
        for command in running:
            if command.process.poll() is None:
                os.killpg(command.process.pid, signal.SIGINT)
                command.process.wait(60)
        for path in (person.folder / "heart").iterdir():
            assert with_argument(str(path)) == []


def kits(person: Person, engine: str, tables: dict[str, np.ndarray]) -> None:
    """Whoever keeps the authority makes them."""
    names = ", ".join(f'"{name}"' for name in tables)
    columns = ", ".join(f'"{name}"' for name in FEATURES)
    text = f'name = "heart"\ncoordinator = "localhost:{free_port()}"\nsites = [{names}]\nfeatures = [{columns}]\n'
    (person.folder / "consortium.toml").write_text(text)
    made = "eigenpact federation init hospitals/consortium.toml" + (" --engine flower" if engine == "flower" else "")
    person.types(PAGES[engine], made, {"hospitals/consortium.toml": "consortium.toml"})


def others(person: Person, engine: str, tables: dict[str, np.ndarray]) -> list[Command]:
    """What stands on the page before her part: two hospitals, on FLARE a server."""
    started = [] if engine == "flower" else [begins(person, FEDERATE, "eigenpact coordinator start heart/coordinator")]
    for name in ("cleveland", "hungarian"):
        lines = [",".join(FEATURES), *(",".join(map(repr, row)) for row in tables[name].tolist())]
        (person.folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        own = {"heart/hungarian": f"heart/{name}", "hospitals/hungarian.csv": f"{name}.csv"}
        started.append(begins(person, PAGES[engine], "eigenpact site start heart/hungarian --data hospitals/hungarian.csv", own))
    return started


def hers(person: Person, X: np.ndarray) -> Command:
    """Her part: the README of her kit, from the export to a site that answers."""
    readme = f"{KIT}/README.md"
    own = {"patients.csv": "../patienten.csv", "va": "va"}
    home = Person(person.folder / "heart")  # where she unpacked her kit
    write_export(person, X, mark=True)
    told = home.types(
        readme_of(readme),
        "eigenpact describe patients.csv --kit va -o patients.csv.toml",
        own | {"patients.csv.toml": "../patienten.csv.toml"},
    )
    assert "eigenpact site check va/site.toml" in told
    settings = person.folder / KIT / "site.toml"
    settings.write_text(settings.read_text().replace('"patients.csv"', '"../../patienten.csv"'))
    check = "eigenpact site check va/site.toml"
    told = home.types(readme_of(readme), check)
    assert "look" in told
    assert "-9 occurs 1 times" in told
    described = person.folder / "patienten.csv.toml"
    decided = "\n".join(line for line in described.read_text().splitlines() if "DECIDE" not in line)
    described.write_text(f'{decided}\n\n[missing_in]\n"thalach" = [-9]\n')  # as the remark says
    told = home.types(readme_of(readme), check, code=2)
    assert "column 'thalach' is missing in 1 of 61 rows; drop those rows or columns" in " ".join(told.split())
    write_export(person, X, mark=False)  # she takes the patient out of her export
    assert "NO" not in home.types(readme_of(readme), check).split()
    return begins(home, readme_of(readme), "eigenpact site start va", {"va": "va"})


def scores_of_hers(person: Person, engine: str, tables: dict[str, np.ndarray]) -> None:
    """The run, and what she does with the model."""
    if engine == "flower":
        line = "eigenpact coordinator run --engine flower --kit heart/coordinator "
        line += "--sites cleveland,hungarian,switzerland -k 2 --secure -o model"
        person.types(FLOWER, line, {"switzerland": "va"})
    else:
        person.types(FEDERATE, "eigenpact coordinator run --kit heart/coordinator -k 2 --secure -o model")
    own = {"heart/cleveland": KIT, "cleveland-scores.csv": "va-scores.csv"}
    person.types(PAGES[engine], "eigenpact site transform heart/cleveland model -o cleveland-scores.csv", own)
    lines = (person.folder / "va-scores.csv").read_text().splitlines()
    found = np.array([[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]])
    truth = PCA(2).fit(np.vstack(list(tables.values())))
    np.testing.assert_allclose(np.abs(found), np.abs(truth.transform(tables["va"])), atol=1e-5)
    assert ep.load_model(person.folder / "model").n_samples_seen_ == sum(len(X) for X in tables.values())


def begins(person: Person, page: str, line: str, own: dict[str, str] | None = None) -> Command:
    """A command that stays in the foreground of a terminal of its own; it is up once it says how it is stopped."""
    command = Command(person, person.words(page, line, own))
    command.until("stop with Ctrl-C")
    return command


def readme_of(path: str) -> str:
    """The README in her kit, seen from where she unpacked it."""
    return path.removeprefix("heart/")


def rows(seed: int) -> np.ndarray:
    """Patients of one hospital."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(4, 4)) * 0.2 + np.eye(4)
    return (rng.normal(size=(60, 4)) @ mixing * [9, 17, 22, 0.6] + [55, 130, 150, 2]).round(2)


def write_export(person: Person, X: np.ndarray, *, mark: bool) -> None:
    """As her system writes it: semicolons, decimal commas, cp1252, her own words; with a mark for what was not measured."""
    lines = ["Nr;Klinik;Age;Trestbps;Thalach;Oldpeak"]
    cells = [[f"{value:.2f}".replace(".", ",") for value in row] for row in X.tolist()]
    cells += [["61,00", "140,00", "-9", "1,50"]] if mark else []
    lines += [";".join([str(4000 + 7 * i), "Köln", *row]) for i, row in enumerate(cells)]
    (person.folder / "patienten.csv").write_bytes(("\r\n".join(lines) + "\r\n").encode("cp1252"))
