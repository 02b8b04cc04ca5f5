"""Fuzz every file that is read: ``python -m tests.fuzz.files --files 5000 --seed 0``.

Honest files are made, changed - bytes, lines, JSON, arrays, with checksums that fit again - and read as the package reads them.
Nothing but an EigenpactError may come of it; memory and time are bounded by the size of the file.  Every case that breaks this is
printed with the command that repeats it.  Exit status 1 means that there was one.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from scipy import sparse

import eigenpact as ep
from eigenpact.cli.site_settings import SiteFile, describe, policy_text, read_policy
from eigenpact.data.readers import read_table
from eigenpact.engines.federation.kits import Federation, PartyKit, describe_kits, read_kit
from eigenpact.engines.federation.sites import SiteFacts
from eigenpact.errors import EigenpactError
from eigenpact.estimators.model_files import load_model, save_model
from eigenpact.runtime import SiteLedger
from eigenpact.runtime.journal import MAGIC, Entry, _checksum_of, _read, _record
from eigenpact.runtime.site_ledger import read_site_ledger
from tests.fuzz import sources, tables

TIMES, CONSTANT = 3, 4 << 20
"""Memory may be so many times the larger of the file and the table in it, and so many bytes more."""

UNFOLDED = 30 << 19
"""And so many for the gzip files of this module that unfold, at most, to half a megabyte of cells."""

LOOKED_THROUGH = 24
"""Times its size for a text whose problems are looked for: cells of a block are then Python's texts.  Measured were 22 times half
a megabyte, 14 times two and 8 times eight, of which the least part grows with the file."""

SECONDS, SECONDS_A_MEGABYTE = 5.0, 10.0
"""Processor time for one file and for its megabytes, or its table's: more than any takes, far less than a hang."""

HOSTILE: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, 1e300, float("nan"), float("inf"), "", "\x1b]0;x\x07", "[/red]", "\ud800", "x" * 5000, [],
    [[]],
    {}, {"a": {}}, [None] * 50, "NaN", "../../etc/passwd", "\0",
]  # fmt: skip
TOKENS = [
    b"\0", b"\xff\xfe", b'"', b",", b"\n", b"\r", b"[" * 3000, b"{", b"NaN", b"1e999", b"9" * 4500, b"-", b"PK\1\2", b"\x1b[2J",
    b"]",
    b"\x93NUMPY", "\u2028".encode(), b"= [", b"(1000000000000000, 2)", b"'|O'", b"\n" * 2000,
]  # fmt: skip
ROWS = np.random.default_rng(0).normal(size=(40, 5)) * [5, 4, 3, 2, 1]
SITES = {"A": ROWS[:15], "B": ROWS[15:]}


# -- honest files ---------------------------------------------------------------------------------


@cache
def honest() -> dict[str, bytes]:
    """Files as the package, or a user, writes them, by name."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        save_model(ep.FederatedPCA(2, random_state=0).fit(SITES), "model")
        ep.FederatedPCA(2, solver="krylov", random_state=0, journal="journal").fit(SITES)
        np.savetxt("t.csv", ROWS, delimiter=",", header="id,p,q,r,s", comments="")
        np.savetxt("t.tsv", ROWS, delimiter="\t")
        np.save("t.npy", ROWS)
        np.savez_compressed("t.npz", X=ROWS, feature_names=np.array(list("pqrst")))
        sparse.save_npz("sparse.npz", sparse.random(30, 6, 0.3, format="csr", random_state=0))
        ledger = SiteLedger("ledger.jsonl")
        for step in range(8):
            ledger.write(run=f"r{step // 3}", what="admitted" if step % 3 == 0 else "sent", data="d", columns=step, epoch=0)
        SiteFacts.write(describe("A", Path("t.csv"), 5, read_policy(None), Path("ledger.jsonl")), Path("site.json"))
        for party in ("authority", "coordinator", "kit", "B"):
            Path(party).mkdir(exist_ok=True)
        describe_kits(Path(), Federation("heart", "localhost", 8102, ("kit", "B"), ("p", "q")), "no certificate")
        Path("policy.toml").write_text(policy_text(secure=True))
        Path("site.toml").write_text('kit = "."\ndata = "t.csv"\ncoordinator_timeout = 30\n')
        others = sources.honest(ROWS)
        files = [path for path in Path().rglob("*") if path.is_file() and path.suffix != ".secret"]
        written = {str(path): path.read_bytes() for path in files}
    written["t.csv.gz"] = gzip.compress(written["t.csv"])
    return written | _parquet() | tables.honest(ROWS) | others


def _parquet() -> dict[str, bytes]:
    try:
        import pandas as pd
        import pyarrow  # noqa: F401
    except ImportError:
        return {}
    buffer = io.BytesIO()
    pd.DataFrame(ROWS, columns=list("pqrst"), index=[f"p{i}" for i in range(len(ROWS))]).to_parquet(buffer)
    return {"t.parquet": buffer.getvalue()}


# -- changes --------------------------------------------------------------------------------------

Rng = np.random.Generator
Change = Callable[[bytes, Rng], bytes]


def change_bytes(data: bytes, rng: Rng) -> bytes:
    """A few bytes flipped, cut out, repeated, or put in."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(out) + 1))
        end = min(len(out), at + int(rng.choice([1, 8, 64, 1024])))
        way = rng.integers(5)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.integers(8)
        elif way == 1:
            del out[at:end]
        elif way == 2:
            out[at:at] = out[at:end] * int(rng.choice([1, 2, 500]))
        elif way == 3:
            out[at:at] = TOKENS[rng.integers(len(TOKENS))]
        else:
            out[at:end] = rng.bytes(end - at)
    return bytes(out)


def change_value(value: Any, rng: Rng) -> Any:
    """One thing in a tree of lists and dictionaries replaced, left out, repeated or put in."""
    if rng.random() < 0.25 or not isinstance(value, list | dict) or not value:
        return HOSTILE[rng.integers(len(HOSTILE))]
    keys = list(range(len(value))) if isinstance(value, list) else list(value)
    key, changed = keys[rng.integers(len(keys))], value.copy()
    way = rng.integers(6)
    if way == 0:
        del changed[key]
    elif way == 1 and isinstance(changed, list):
        changed += changed * int(rng.choice([1, 50]))
    elif way == 1:
        changed["more"] = HOSTILE[rng.integers(len(HOSTILE))]
    else:
        changed[key] = change_value(value[key], rng)
    return changed


def change_json(data: bytes, rng: Rng) -> bytes:
    """The same of a JSON file."""
    return json.dumps(change_value(json.loads(data), rng)).encode()


def change_array(array: np.ndarray[Any, Any], rng: Rng) -> np.ndarray[Any, Any]:
    """Another dtype, shape or content."""
    dtypes = ("U3", "S2", "f4", "i8", "c16", ">f8", "b1", "u1")[: 2 if array.dtype.kind in "SU" else None]
    flat = array.ravel()
    with np.errstate(all="ignore"):
        ways: list[Callable[[], Any]] = [
            lambda: array.astype(dtypes[rng.integers(len(dtypes))]),
            lambda: flat,
            lambda: array[..., None],
            lambda: flat[: rng.integers(len(flat) + 1)],
            lambda: array * np.array(rng.choice([0, -1, 1e6, np.nan, np.inf, 1e300])) if array.dtype.kind in "fiu" else flat[:0],
            lambda: np.tile(flat, 20),
        ]
        return np.asarray(ways[rng.integers(len(ways))]())


def change_npz(data: bytes, rng: Rng) -> bytes:
    """An array changed, left out, twice there or with other bytes, in an archive that is whole."""
    arrays = dict(np.load(io.BytesIO(data)))
    name = list(arrays)[rng.integers(len(arrays))]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED) as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            way = rng.integers(4) if key == name else 4
            npy_format.write_array(member, change_array(array, rng) if way == 0 else array, allow_pickle=False)
            content = change_bytes(member.getvalue(), rng) if way == 1 else member.getvalue()
            if way != 2:
                archive.writestr(f"{key}.npy", content)
            if way == 3:
                archive.writestr(f"{HOSTILE[-2]}.npy", content)
    return out.getvalue()


def change_gzip(data: bytes, rng: Rng) -> bytes:
    """A gzip file of changed text, or of one line without end."""
    if rng.random() < 0.1:
        return gzip.compress([b"1", b"1,", b"\n", b'"', b"1,2\n"][rng.integers(5)] * (1 << 19))
    return gzip.compress(change_bytes(gzip.decompress(data), rng))


def change_lines(data: bytes, rng: Rng) -> bytes:
    """One row of a site's ledger changed."""
    lines = data.splitlines()
    at = rng.integers(len(lines))
    lines[at] = change_json(lines[at], rng)
    return b"\n".join(lines) + b"\n"


def change_journal(data: bytes, rng: Rng) -> bytes:
    """Facts or arrays of a record changed, records left out or twice there; with good checksums."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "journal")
        path.write_bytes(data)
        entries = _read(path)[0]
    at = int(rng.integers(len(entries)))
    way, entry = rng.integers(4), entries[at]
    if way == 0:
        entries[at : at + 1] = [entry] * int(rng.choice([0, 2]))
    elif way == 1 and entry.arrays:
        changed = change_array(entry.arrays[0], rng)
        entries[at] = Entry(
            entry.facts, (changed if changed.dtype.kind in "fiub" else np.zeros(3), *entry.arrays[1:])[: rng.integers(3)]
        )
    else:
        facts = change_value(entry.facts, rng)
        entries[at] = Entry(facts if isinstance(facts, dict) else {}, entry.arrays)
    records = [MAGIC]
    for entry in entries:
        try:
            records.append(_record(entry, _checksum_of(records[-1])))
        except (EigenpactError, ValueError):  # what cannot even be written
            break
    return b"".join(records)


# -- reading --------------------------------------------------------------------------------------


def read_model(data: bytes, *, manifest: bool) -> Any:
    """A model folder, one file of which is given; the checksum fits."""
    files = honest()
    facts = data if manifest else files["model/manifest.json"]
    arrays = files["model/arrays.npz"] if manifest else data
    sums = [hashlib.sha256(content).hexdigest().encode() for content in (files["model/arrays.npz"], arrays)]
    Path("model").mkdir()
    Path("model/manifest.json").write_bytes(facts.replace(*sums))
    Path("model/arrays.npz").write_bytes(arrays)
    return load_model("model").transform(ROWS)


def reading(name: str) -> Callable[[bytes], Any]:
    """What writes bytes to a file and reads it as a table."""

    def read(data: bytes) -> Any:
        Path(name).write_bytes(data)
        table = read_table(name).X
        return table.toarray() if sparse.issparse(table) and np.prod(table.shape) < 1e5 else table

    return read


def read_settings(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """What writes bytes to a file and has it read."""

    def written(data: bytes) -> Any:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
        return read(Path(name))

    return written


def resume(path: Path) -> Any:
    """Go on with a run."""
    return ep.FederatedPCA(2, solver="krylov", random_state=0, journal=path).fit(SITES)


def whole_kit(path: Path) -> None:
    """A kit of which one file was changed."""
    for name in ("kit.json", "parties.json"):
        if name != path.name:
            path.with_name(name).write_bytes(honest()[f"kit/{name}"])
    read_kit(path.parent, "site", type("Any", (PartyKit,), {"engine": "nvflare"}))


def both_ways(path: Path) -> None:
    """A site's ledger, as the site and as its owner read it."""
    read_site_ledger(path)
    SiteLedger(path).runs_today()


def described(path: Path) -> None:
    """A site's facts, and the policy among them."""
    facts = SiteFacts.read(str(path), "a test")
    ep.runtime.Policy.from_dict(facts.policy)


KINDS: dict[str, tuple[str, tuple[Change, ...], Callable[[bytes], Any]]] = {
    "manifest": ("model/manifest.json", (change_bytes, change_json), lambda data: read_model(data, manifest=True)),
    "arrays": ("model/arrays.npz", (change_bytes, change_npz), lambda data: read_model(data, manifest=False)),
    "csv": ("t.csv", (change_bytes, tables.change_cells), reading("t.csv")),
    "tsv": ("t.tsv", (change_bytes, tables.change_cells), reading("t.tsv")),
    "csv.gz": ("t.csv.gz", (change_bytes, change_gzip), reading("t.csv.gz")),
    "npy": ("t.npy", (change_bytes,), reading("t.npy")),
    "npz": ("t.npz", (change_bytes, change_npz), reading("t.npz")),
    "sparse": ("sparse.npz", (change_bytes, change_npz), reading("sparse.npz")),
    "parquet": ("t.parquet", (change_bytes,), reading("t.parquet")),
    "journal": ("journal", (change_bytes, change_journal), read_settings("journal", resume)),
    "policy": ("policy.toml", (change_bytes,), read_settings("policy.toml", read_policy)),
    "site": ("site.toml", (change_bytes,), read_settings("site.toml", SiteFile.read)),
    "facts": ("site.json", (change_bytes, change_json), read_settings("site.json", described)),
    "kit": ("kit/kit.json", (change_bytes, change_json), read_settings("kit/kit.json", whole_kit)),
    "parties": ("kit/parties.json", (change_bytes, change_json), read_settings("kit/parties.json", whole_kit)),
    "ledger": ("ledger.jsonl", (change_bytes, change_lines), read_settings("ledger.jsonl", both_ways)),
    **tables.kinds(change_bytes, reading),
    **sources.kinds(change_bytes, change_npz, lambda: honest()),
}
"""Kind -> the honest file, ways to change it, and how it is read, in an empty folder."""


# -- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tried:
    """A case, what came of it ("read", "refused" or "wrong"), why, and what it took."""

    kind: str
    seed: int
    word: str
    why: str
    memory: int
    seconds: float

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"python -m tests.fuzz.files --repeat {self.kind}/{self.seed}"


def attempt(kind: str, seed: int) -> Tried:
    """Change a file of this kind, read it, and judge."""
    name, changes, read = KINDS[kind]
    rng = np.random.default_rng([seed, sum(kind.encode())])
    data = changes[rng.integers(len(changes))](honest()[name], rng)
    word, why, result = "read", "", None
    with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tracemalloc.start()
        begin = time.process_time()
        try:
            result = read(data)
        except EigenpactError as error:
            word, why = "refused", f"{type(error).__name__}: {error}"
            if tables.names_no_file(kind, error) or sources.names_no_file(kind, error):
                word, why = "wrong", f"the error names no file: {why}"
        except Exception as error:  # whatever it is, it is what this looks for
            word, why = "wrong", f"{type(error).__name__}: {error}"
        seconds, memory = time.process_time() - begin, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    size = max(len(data), getattr(result, "nbytes", 0))
    times = LOOKED_THROUGH if kind == "suggestion" else TIMES
    if memory > times * size + CONSTANT + (UNFOLDED if kind == "csv.gz" else 0):
        word, why = "wrong", f"{memory} bytes of memory for a file of {len(data)}; {why}"
    if seconds > SECONDS + SECONDS_A_MEGABYTE * size / 1e6:
        word, why = "wrong", f"{seconds:.1f} s for a file of {len(data)} bytes; {why}"
    return Tried(kind, seed, word, why, memory, seconds)


def explore(files: int, seed: int) -> Iterator[Tried]:
    """Try so many files, of all kinds in turn."""
    kinds = [kind for kind in KINDS if KINDS[kind][0] in honest()]
    for i in range(files):
        yield attempt(kinds[i % len(kinds)], seed * 1_000_003 + i)


def table(tried: list[Tried]) -> str:
    """By kind: how many were read, refused and wrong, and the most that one took."""
    lines = [f"{'kind':10s}{'files':>8s}{'read':>8s}{'refused':>9s}{'wrong':>8s}{'most kB':>10s}{'most s':>8s}"]
    for kind in KINDS:
        own = [t for t in tried if t.kind == kind]
        words = Counter(t.word for t in own)
        if own:
            most = max(t.memory for t in own) // 1000, max(t.seconds for t in own)
            counts = f"{words['read']:8d}{words['refused']:9d}{words['wrong']:8d}"
            lines.append(f"{kind:10s}{len(own):8d}{counts}{most[0]:10d}{most[1]:8.2f}")
    return "\n".join(lines)


def main() -> int:
    """Explore, or repeat one case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", metavar="KIND/SEED", help="as printed beside a wrong case")
    arguments = parser.parse_args()
    if arguments.repeat:
        kind, _, seed = arguments.repeat.partition("/")
        tried = attempt(kind, int(seed))
        print(f"{tried.word}: {tried.why}; {tried.memory} bytes, {tried.seconds:.2f} s")
        return int(tried.word == "wrong")
    done = []
    for tried in explore(arguments.files, arguments.seed):
        done.append(tried)
        if tried.word == "wrong":
            print(f"{tried.kind}: {tried.why[:300]}\n    {tried.command}", flush=True)
    print(table(done))
    wrong, most = sum(bool(tried.word == "wrong") for tried in done), max((tried.memory for tried in done), default=0)
    print(f"{len(done)} files, {wrong} wrong; at most {most / 2**20:.1f} MiB, {max((t.seconds for t in done), default=0):.2f} s")
    return int(any(t.word == "wrong" for t in done))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
