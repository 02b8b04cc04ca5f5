"""Honest text and columnar tables with their descriptions, changes of cells, lines and keys, and how they are read."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from eigenpact.cli import app
from eigenpact.data.description import Description
from eigenpact.data.readers import read_table
from eigenpact.data.suggestion import as_toml, examine
from eigenpact.errors import EigenpactError, InputError

Rng = np.random.Generator

CELLS = [
    "", "?", "NA", "-", ".", "1,5", "1.5", "1,234", "1.234,5", "-9", '"', '"1"', '"a\nb"', "x", "é", "1e999", "nan(1)", "0x1",
    "1_0", "∞", "\u0663", "\x00", "=1+1", "a;b", "1;2", "\t", " ", "'", "\ufeff", "#N/A", "1 234", "12:30", "9" * 400, "e", "+",
    "--1",
]  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "cp1252")
KEYS = [
    'columns = ["p", "q"]', 'columns = ["p", "p"]', "columns = 3", 'colums = ["p"]', 'drop = ["s"]', 'drop = ["none"]',
    'id = "p"', "id = 1", 'decimal = ","', 'decimal = "."', 'decimal = "x"', 'separator = ","', 'separator = ";"',
    'separator = "tab"', 'encoding = "utf-16"', 'encoding = "latin-1"', 'encoding = "no-such"', "header = false", "header = 1",
    'missing = ["?", -9]', 'missing = ["1"]', "missing = [[]]", "rename = { p = 'z' }", "rename = { none = 'z' }",
    "rename = { p = 'z', q = 'z' }",
    "units = { p = 'kg' }", "units = { p = { unit = 'kg', factor = 1e308 } }", "units = { p = { unit = 'kg', factor = nan } }",
    "missing_in = { p = [1, '?'] }", "missing_in = { none = [1] }", 'labels = ["s"]', 'categorical = ["s", "q"]', "labels = [1]",
    'dataset = "X"', "= 3", "[[columns]]", '"', "x" * 3000, "a = " + "[" * 500, "[units]\np = 1", "\x00", "columns = []",
]  # fmt: skip
NAMED = frozenset(
    {"messy", "utf16", "zst", "txt", "feather", "description", "described", "suggestion", "fit", "parquet", "csv", "tsv"}
)
"""Kinds whose refusal must name the file."""

FILES = ("t.csv", "t.tsv", "t.txt", "messy.csv", "utf16.csv", "t.feather", "t.parquet", "said.toml", "site 'messy'")


def honest(rows: np.ndarray[Any, Any]) -> dict[str, bytes]:
    """Tables as hospitals export them, by name."""
    cells = [[f"{x:.4f}".replace(".", ",") for x in row[:4]] for row in rows]
    messy = "\r\n".join(["nr;p;q;r;gr\xf6\xdfe", *(f"n\xfc{i};{';'.join(row)}" for i, row in enumerate(cells))]) + "\r\n"
    written = {
        "messy.csv": messy.encode(),
        "utf16.csv": messy.encode("utf-16"),
        "t.txt": "\n".join("|".join(map(repr, row)) for row in rows.tolist()).encode(),
        "t.csv.toml": b'# what it is\nseparator = ";"\ndecimal = ","\ncolumns = ["q", "p"]\nid = "nr"\nmissing = ["?", -9]\n'
        b'drop = ["r"]\n[units]\np = { unit = "kg", factor = 0.001 }\n[missing_in]\nq = [0]\n',
    }
    return written | _zst(written["t.txt"].replace(b"|", b",")) | _feather(rows)


def _zst(data: bytes) -> dict[str, bytes]:
    try:
        import zstandard
    except ImportError:
        return {}
    return {"t.csv.zst": zstandard.ZstdCompressor().compress(data)}


def _feather(rows: np.ndarray[Any, Any]) -> dict[str, bytes]:
    try:
        import pyarrow as pa
    except ImportError:
        return {}
    columns = {name: rows[:, j] for j, name in enumerate("pqrst")} | {"town": ["x"] * len(rows)}
    buffer = io.BytesIO()
    table = pa.table(columns)
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return {"t.feather": buffer.getvalue()}


def change_cells(data: bytes, rng: Rng) -> bytes:
    """Cells, lines and signs of a text table replaced; perhaps another encoding or compression."""
    text = data.decode("utf-16" if data[:2] == b"\xff\xfe" else "utf-8", errors="replace")
    lines = text.splitlines()
    sign = next((s for s in (";", "|", "\t", ",") if s in lines[0]), ",")
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(lines)))
        way = rng.integers(7)
        cells = lines[at].split(sign)
        if way <= 2:
            cells[rng.integers(len(cells))] = CELLS[rng.integers(len(CELLS))]
            lines[at] = sign.join(cells)
        elif way == 3:
            lines[at] = sign.join(cells[: rng.integers(len(cells) + 1)])
        elif way == 4:
            lines.insert(at, CELLS[rng.integers(len(CELLS))])
        elif way == 5:
            lines = [line.replace(sign, str(rng.choice([",", ";", "\t", "|", " "]))) for line in lines]
        else:
            del lines[at]
            lines = lines or [""]
    end = ["\n", "\r\n", "\r"][rng.integers(3)]
    changed = end.join(lines).encode(ENCODINGS[rng.integers(len(ENCODINGS))], errors="replace")
    return gzip.compress(changed) if rng.random() < 0.05 else changed


def change_keys(data: bytes, rng: Rng) -> bytes:
    """Lines of a description replaced, left out or put in."""
    lines = data.decode().splitlines()
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(lines)))
        lines[at : at + int(rng.integers(2))] = [KEYS[rng.integers(len(KEYS))]][: rng.integers(2) + (len(lines) < 2)]
    return "\n".join(lines).encode()


def read_described(data: bytes) -> Any:
    """A table with a changed description."""
    Path("t.csv").write_bytes(honest(np.arange(20.0).reshape(4, 5))["messy.csv"])
    Path("t.csv.toml").write_bytes(data)
    return read_table("t.csv").X


def read_suggested(data: bytes) -> Any:
    """A table as its suggested description has it; the suggestion must be a description."""
    path = Path("messy.csv")
    path.write_bytes(data)
    said = examine(path, ("p", "Q", "r")).description
    Path("said.toml").write_text(as_toml(said, ["x"]), encoding="utf-8")
    if Description.read("said.toml") != said:
        raise KeyError(f"the suggestion reads back as something else: {said}")
    return read_table(path, said).X


def fit(data: bytes) -> Any:
    """The command: a model, or an error that names the file, and nothing written."""
    Path("messy.csv").write_bytes(data)
    done = CliRunner().invoke(app, ["fit", "messy.csv", "-k", "1", "-o", "model", "--max-rounds", "5"])
    if done.exit_code in (0, 1) and (done.exception is None or isinstance(done.exception, SystemExit)):
        if not Path("model/manifest.json").exists():
            raise KeyError(f"exit code {done.exit_code} without a model")
        return None
    if done.exit_code != 2 or not isinstance(done.exception, SystemExit):
        raise KeyError(f"exit code {done.exit_code}: {done.exception!r}")
    if Path("model").exists() or "Traceback" in done.stderr or "error: " not in done.stderr:
        raise KeyError(f"exit code 2, and {done.stderr[-300:]}")
    raise InputError(done.stderr)


def kinds(change_bytes: Callable[[bytes, Rng], bytes], reading: Callable[[str], Any]) -> dict[str, Any]:
    """Kind -> the honest file, ways to change it, and how it is read."""
    text = (change_bytes, change_cells, change_cells)
    return {
        "messy": ("messy.csv", text, reading("messy.csv")),
        "utf16": ("utf16.csv", text, reading("utf16.csv")),
        "txt": ("t.txt", text, reading("t.txt")),
        "zst": ("t.csv.zst", (change_bytes,), reading("t.csv.zst")),
        "feather": ("t.feather", (change_bytes,), reading("t.feather")),
        "described": ("t.csv.toml", (change_bytes, change_keys, change_keys), read_described),
        "suggestion": ("messy.csv", text, read_suggested),
        "fit": ("messy.csv", text, fit),
    }


def names_no_file(kind: str, told: EigenpactError) -> bool:
    """Whether a refusal leaves open which file is meant."""
    return kind in NAMED and not any(name in str(told) for name in FILES)
