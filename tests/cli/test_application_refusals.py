"""Two hundred wrong uses of the command line: a line that names what is wrong, exit code 2, no file touched, no Python words."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

COMMANDS = {
    "demo": "",
    "fit": "north.csv -k 2 -o out",
    "describe": "north.csv",
    "compare": "north.csv -k 2",
    "audit": "--rows 20,20 --features 5",
    "reproduce": "faps-table4",
    "transform": "model north.csv -o scores.csv",
    "export": "model --to json -o model.json",
    "show": "model",
    "federation init": "consortium.toml",
    "federation example": "here",
    "coordinator start": "",
    "coordinator run": "-k 2 -o out",
    "site start": "kit",
    "site check": "site.toml",
    "site budget": "kit",
    "site transform": "kit model -o scores.csv",
    "site key": "kit",
}
"""Commands that there are, each with words that would be right."""

NEEDS_NO_WORDS = ("demo", "coordinator start", "coordinator run", "audit")
FIT, COMPARE = "fit north.csv south.csv west.npy -o out", "compare north.csv"

SINGLE = f"""
fitt | no command 'fitt'; did you mean fit?
Fit | no command 'Fit'; did you mean fit?
north.csv | no command 'north.csv'
help | no command 'help'
fit | missing argument 'FILES...'
fit -k 2 -o out | missing argument 'FILES...'
fit north.csv -o out | missing option '-k'
fit north.csv -k 2 | missing option '-o'
fit north.csv -k | option '-k' requires an argument
{FIT} -k 6 | -k 6 must be between 1 and 5
{FIT} -k 0 | -k 0 must be between 1 and 5
{FIT} -k -1 | -k -1 must be between 1 and 5
{FIT} -k 1.5 | -k 1.5 is not allowed
{FIT} -k 1e2 | -k 1e2 is not allowed
{FIT} -k many | -k many is not allowed
{FIT} -k '' | -k  is not allowed
{FIT} -k nan | -k nan is not allowed
{FIT} -k 2 --tol -1 | --tol -1.0 must be a number >= 0
{FIT} -k 2 --tol nan | --tol nan must be a number >= 0
{FIT} -k 2 --tol small | 'small' is not a valid float
{FIT} -k 2 --max-rounds 0 | --max-rounds 0 must be a whole number >= 1
{FIT} -k 2 --max-rounds 2.5 | '2.5' is not a valid integer
{FIT} -k 2 --seed -1 | -1 is not in the range x>=0
{FIT} -k 2 --seed x | 'x' is not a valid integer
{FIT} -k 2 --center mean | 'mean' is not one of 'pooled', 'site', 'none'
{FIT} -k 2 --scale unit | 'unit' is not one of 'none', 'pooled'
{FIT} -k 2 --missing drop | 'drop' is not one of 'refuse', 'mean', 'em'
{FIT} -k 2 --features some | 'some' is not one of 'strict', 'intersection', 'union'
{FIT} -k 2 --solver magic | unknown solver 'magic'
{FIT} -k 2 --solver GRAM | unknown solver 'GRAM'
{FIT} -k 2 --solver em | 'em'
{FIT} -k 2 --missing em --solver gram | unknown solver 'gram'
{FIT} -k .5 --solver faps | --solver gram
{FIT} -k 2 --start warm | --start warm must be one of random, one-shot
{FIT} -k 2 --start one-shot --solver gram | --start does not go with --solver gram
{FIT} -k 2 --proxy north --solver gram | --proxy does not go with --solver gram
{FIT} -k 2 --proxy east | --proxy east is not a site
{FIT} -k 2 --engine cloud | --engine cloud cannot read files; give inprocess or mpi
{FIT} -k 2 --engine dask | --engine dask cannot read files
{FIT} -k 2 --engine flare | --engine flare cannot read files
{FIT} -k 2 --memory lots | --memory lots is not a size
{FIT} -k 2 --memory 1MB | --memory 1MB is less than the program itself takes
{FIT} -k 2 --memory -1GB | --memory -1GB is not a size
{FIT} -k 2 --prepare polish | --prepare polish
{FIT} -k 2 --prepare hvg:many | --prepare hvg:many
{FIT} -k 2 --prepare hvg:0 | --prepare hvg:0
{FIT} -k 2 --go-on-without 1 | --go-on-without is for --secure
{FIT} -k 2 --secure --go-on-without -1 | --go-on-without -1
{FIT} -k 2 --describe north.toml | --describe north.toml is not SITE=TOML
{FIT} -k 2 --describe north=none.toml | none.toml does not exist
{FIT} -k 2 --describe east=good.toml | --describe names 'east'
{FIT} -k 2 --describe north=wrong.toml | unknown key 'colums' (did you mean 'columns'?)
{FIT} -k 2 --describe north=north.csv | north.csv is not a TOML file
fit north.csv south.csv -o out -k 2 --id nr | id names 'nr', which is no column
fit north.csv south.csv -o out -k 2 --drop nr | drop names 'nr', which is no column
fit north.csv south.csv -o out -k 2 --by nr | labels (or --by) names 'nr', which is no column
{FIT} -k 2 --drop age --id age | column 'age' is to be dropped
{FIT} -k 2 --json out.txt | out.txt must end in .json
{FIT} -k 2 --json no/out.json | the folder no does not exist
{FIT} -k 2 --json taken.json | taken.json exists already
{FIT} -k 2 --journal no/journal | no
fit north.csv -k 2 -o north.csv | north.csv is a file
fit north.csv -k 2 -o model | model exists already
fit north.csv -k 2 -o '' | -o
fit nothing.csv -k 2 -o out | nothing.csv does not exist
fit north -k 2 -o out | did you mean north.csv?
fit '' -k 2 -o out | folder
fit . -k 2 -o out | is a folder
fit folder -k 2 -o out | folder is a folder; name the files in it
fit zarrlike -k 2 -o out | zarrlike is a zarr folder in spite of its name
fit north.csv north.csv -k 2 -o out | two sites are named 'north'
fit a=north.csv a=south.csv -k 2 -o out | two sites are named 'a'
fit =north.csv -k 2 -o out | is not name=path
fit a= -k 2 -o out | is not name=path
fit coordinator=north.csv -k 2 -o out | coordinator
fit notes.docx -k 2 -o out | unknown extension
fit empty.csv -k 2 -o out | empty.csv is empty
fit header.csv -k 1 -o out | a header and no rows
fit words.csv -k 1 -o out | 'high' is not a number
fit ragged.csv -k 1 -o out | ragged.csv
fit repeated.csv -k 1 -o out | repeated column names ['x']
fit dates.csv -k 1 -o out | '2024-05-01' is a date
fit groups.csv -k 1 -o out | this column of text hardly names the rows
fit twice.csv -k 1 -o out | the column of row names has 'p1' more than once
fit holes.csv -k 1 -o out | --missing
fit sheet.csv -k 1 -o out | sheet.csv is a spreadsheet in spite of its name
fit fake.npy -k 1 -o out | fake.npy is not a .npy file of numbers
fit flat.npy -k 1 -o out | flat.npy holds an array of shape (5,)
fit deep.npy -k 1 -o out | deep.npy holds an array of shape (2, 2, 2)
fit complex.npy -k 1 -o out | complex128
fit objects.npy -k 1 -o out | Python objects, not numbers
fit infinite.npy -k 1 -o out | 1 infinite
fit norows.npy -k 1 -o out | norows.npy
fit fake.npz -k 1 -o out | fake.npz
fit fake.parquet -k 1 -o out | fake.parquet
fit fake.feather -k 1 -o out | fake.feather
fit fake.h5 -k 1 -o out | fake.h5
{FIT} -k 2 --drop nr --quiet | west.npy: its 5 columns have no names
fit fake.bed -k 1 -o out | fake.fam does not exist
fit one.npy -k 1 -o out | one row
fit north.csv other.csv -k 1 -o out | have different features
fit north.csv narrow.npy -k 1 -o out | narrow
compare | missing argument 'FILES...'
compare nothing.csv | nothing.csv does not exist
{COMPARE} -k 9 | -k 9 must be between 1 and 5
{COMPARE} -k no | -k no is not allowed
{COMPARE} --solver magic | unknown solver 'magic'
{COMPARE} --solver auto | unknown solver 'auto'
{COMPARE} --tol -1 | --tol -1.0 must be
{COMPARE} --max-rounds 0 | --max-rounds 0 must be
{COMPARE} --seed -3 | -3 is not in the range x>=0
{COMPARE} --proxy east | --proxy east is not a site
{COMPARE} --picture p.gif | p.gif must end in one of .png, .pdf, .svg
{COMPARE} --picture no/p.png | the folder no does not exist
{COMPARE} --json p.txt | p.txt must end in .json
{COMPARE} --json taken.json | taken.json exists already
audit | give files, or --rows with --features, or --model
audit north.csv --rows 3,4 --features 2 | exactly one of these
audit --rows 3,4 | --rows and --features go together
audit --features 4 | --rows and --features go together
audit --rows x --features 4 | --rows 'x' is no number of rows
audit --rows 3,,4 --features 4 | --rows '' is no number of rows
audit --rows 0 --features 4 | --rows '0' is no number of rows
audit --rows 30,30 --features 0 | 0 is not in the range x>=1
audit --rows 30,30 --features 4 -k 0 | 0 is not in the range x>=1
audit --rows 30,30 --features 4 --solver best | unknown solver 'best'
audit --rows 30,30 --features 4 --real-rows | --real-rows needs files
audit --rows 30,30 --features 4 --max-rounds 0 | --max-rounds 0 must be
audit --rows 30,30 --features 4 --seed -1 | -1 is not in the range x>=0
audit --rows 30,30 --features 4 --picture p.bmp | p.bmp must end in one of
audit --model nowhere | nowhere does not exist
audit --model folder | folder
reproduce | missing argument 'NAME'
reproduce table4 | unknown table or figure 'table4'
reproduce faps-table4 --size huge | 'huge' is not one of
reproduce faps-table4 --seed -1 | -1 is not in the range x>=0
reproduce faps-table4 --json n.txt | n.txt must end in .json
reproduce oneshot-fig1 --distribution odd | 'odd' is not known
reproduce faps-table4 --distribution normal | --distribution
describe | missing argument 'FILE'
describe nothing.csv | nothing.csv does not exist
describe north.csv -o d.txt | d.txt must end in .toml
describe north.csv -o wrong.toml | wrong.toml exists already
describe north.csv --like south.csv --features a,b | give one of them
describe north.csv --like west.npy | west.npy has no names of columns
describe north.csv --like none.csv | none.csv does not exist
describe north.csv --kit folder | folder
transform | missing argument 'MODEL'
transform model | missing argument 'FILE'
transform model north.csv | missing option '-o'
transform nowhere north.csv -o s.csv | nowhere does not exist
transform folder north.csv -o s.csv | folder
transform north.csv north.csv -o s.csv | north.csv
transform model nothing.csv -o s.csv | nothing.csv does not exist
transform model north.csv -o s.txt | s.txt must end in one of
transform model north.csv -o no/s.csv | the folder no does not exist
transform model north.csv -o north.csv | north.csv is the table itself
transform model south.csv -o taken.csv | taken.csv exists already
transform model narrow.npy -o s.csv | narrow.npy has 2 columns, the model has 5 features
transform model other.csv -o s.csv | compared with the model
transform model holes5.csv -o s.csv | holes5
transform model north.csv -o s.npy --errors | no place for standard errors
transform model north.csv -o s.csv --shrinkage some | 'some' is not one of
transform model north.csv -o s.csv --describe none.toml | none.toml does not exist
transform model north.csv -o s.csv --memory x | --memory x is not a size
transform model north.csv -o s.csv --id nr | id names 'nr', which is no column
transform model north.csv -o s.csv --drop nr | drop names 'nr', which is no column
export | missing argument 'MODEL'
export model -o m.json | missing option '--to'
export model --to json | missing option '-o'
export model --to pickle -o m.pkl | 'pickle' is not one of
export model --to json -o m.onnx | m.onnx must end in .json
export model --to json -o taken.json | taken.json exists already
export model --to json -o m.json --use us | --use and --title are for cards
export model --to card -o card.txt | card.txt must end in .md
export nowhere --to json -o m.json | nowhere does not exist
show | missing argument 'MODEL'
show nowhere | nowhere does not exist
show folder | folder
show north.csv | north.csv
show taken.json | taken.json
show model --picture p.gif | p.gif must end in one of .png, .pdf, .svg
show model --picture no/p.png | the folder no does not exist
show model --loadings l.txt | l.txt must end in .csv
show model --loadings taken.csv | taken.csv exists already
show model --json s.txt | s.txt must end in .json
show model --json taken.json | taken.json exists already
federation strt | no such command 'strt'
federation init nothing.toml | nothing.toml
federation init north.csv | north.csv
federation init wrong.toml | wrong.toml
coordinator stop | no such command 'stop'
coordinator run -k 2 -o out --kit folder | folder
site strt | no such command 'strt'
site start folder --data north.csv | folder
site start nowhere --data north.csv | nowhere
site check nowhere.toml | nowhere.toml
site budget nowhere | nowhere
site transform nowhere model -o s.csv | nowhere
"""


def uses() -> list[tuple[str, str]]:
    """Words, and what must be said of them."""
    found = [tuple(part.strip() for part in line.rsplit(" | ", 1)) for line in SINGLE.strip().splitlines()]
    for command, right in COMMANDS.items():
        found.append((f"{command} {right} --nonsense", "no such option"))
        found.append((f"{command} {right} --help=yes", "--help"))
        if command not in NEEDS_NO_WORDS:
            found.append((command, "missing "))
    return list(dict.fromkeys(found))


PYTHON = re.compile(
    r"Traceback|\b(?:n_components|max_rounds|random_state|tol|solver|missing|overwrite)=|\bNone\b|Error\(|object at 0x"
)


@pytest.fixture
def litter(tmp_path, run):
    """Files of all kinds that something is wrong with, and a model."""
    assert run("fit", "north.csv", "south.csv", "-k", 2, "-o", "model", "-q").exit_code == 0
    texts = {
        "empty.csv": "",
        "header.csv": "a,b\n",
        "words.csv": "a,b\n1,2\n3,high\n5,6\n",
        "ragged.csv": "a,b\n1,2\n3\n5,6\n",
        "repeated.csv": "x,x\n1,2\n3,4\n",
        "dates.csv": "day,a,b\n2024-05-01,1,2\n2024-05-02,2,5\n",
        "groups.csv": "sex,a,b\nm,1,2\nf,2,5\nm,1,8\n",
        "twice.csv": "id,a,b\np1,1,2\np2,2,5\np1,1,8\n",
        "holes.csv": "a,b\n1,2\n3,\n5,9\n",
        "holes5.csv": "age,bmi,glucose,pressure,rate\n1,2,3,4,5\n1,,3,4,5\n",
        "other.csv": "age,bmi,height\n1,2,3\n2,5,7\n",
        "wrong.toml": 'colums = ["age"]\n',
        "good.toml": 'drop = ["age"]\n',
        "taken.json": "{}\n",
        "taken.csv": "a\n1\n",
        "notes.docx": "words",
    }
    texts |= {f"fake.{kind}": "no such file\n" for kind in ("npy", "npz", "parquet", "feather", "h5", "bed")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "sheet.csv").write_bytes(b"PK\x03\x04" + bytes(100))
    arrays = {"flat": np.arange(5.0), "deep": np.ones((2, 2, 2)), "complex": np.ones((3, 2)) + 1j, "norows": np.ones((0, 3))}
    arrays |= {"infinite": np.array([[1.0, np.inf], [2.0, 3.0]]), "one": np.ones((1, 3)), "narrow": np.eye(2)}
    for name, X in arrays.items():
        np.save(tmp_path / f"{name}.npy", X)
    np.save(tmp_path / "objects.npy", np.array([[1.0, 2.0], [3.0, 4.0]], dtype=object), allow_pickle=True)
    for folder in ("folder", "zarrlike"):
        (tmp_path / folder).mkdir()
    (tmp_path / "zarrlike" / "zarr.json").write_text("{}")


@pytest.mark.usefixtures("litter")
def test_two_hundred_wrong_uses(run, snapshot):
    before, wrong, all_uses = snapshot(), [], uses()
    assert len(all_uses) >= 200
    for words, told in all_uses:
        result = run(*shlex.split(words))
        lines = result.stderr.splitlines()
        extra = [
            line for line in lines[1:] if not line.startswith("error: ") and "describe" not in line and "understood" not in line
        ]
        faults = {
            f"exit code {result.exit_code}": result.exit_code != 2,
            f"an exception {result.exception!r}": not isinstance(result.exception, SystemExit),
            f"printed {result.stdout[:80]!r}": bool(result.stdout),
            "not one line": not lines or not lines[0].startswith("error: ") or bool(extra),
            f"does not say {told!r}": told not in result.stderr,
            "speaks Python": bool(PYTHON.search(result.stderr)),
            "files were touched": snapshot() != before,
        }
        wrong += [f"{words}: {fault}: {result.stderr[:300]}" for fault, true in faults.items() if true]
    assert not wrong, "\n".join(wrong)
