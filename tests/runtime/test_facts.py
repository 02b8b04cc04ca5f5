"""What many sites told comes back with its bits; arrays are in a file that nobody else can read, and that goes away."""

from __future__ import annotations

import errno
import io
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import FileError, SiteError
from eigenpact.runtime import Connection, Outcome, Request, Response, SiteServer
from eigenpact.runtime.doubts import Doubts
from eigenpact.runtime.facts import Facts, HiddenArrays

ODD = np.array([-0.0, np.nan, np.inf, 5e-324, 1e308, 1 / 3])

FEATURES = 300


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary files of this test lie."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room to remember products of single sites: what they told is put away."""
    monkeypatch.setattr("eigenpact.runtime.doubts.FEW", 1)
    monkeypatch.setattr("eigenpact.runtime.doubts.MOST_REMEMBERED", 0)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The temporary files that were made."""
    made: list[Any] = []
    original = HiddenArrays.__init__

    def spied(self: HiddenArrays) -> None:
        original(self)
        made.append(self._file)

    monkeypatch.setattr(HiddenArrays, "__init__", spied)
    return made


# -- what is put away ---------------------------------------------------------------------------------


def test_all_bits_come_back() -> None:
    facts = Facts(3)
    told = [{"mean": ODD + i, "n": 0.1 * i, "square": np.array(1 / 3), "block": np.arange(6.0).reshape(2, 3)} for i in range(3)]
    for i, one in enumerate(told):
        facts.note(i, dict(one))
    for i in (2, 0, 1):
        for name, value in facts.of(i).items():
            assert type(value) is type(told[i][name])
            assert np.shape(value) == np.shape(told[i][name])
            assert np.asarray(value).tobytes() == np.asarray(told[i][name]).tobytes(), name
    facts.close()


def test_facts_change_their_form_and_are_forgotten() -> None:
    facts, other = Facts(2), object()
    facts.note(0, {"a": np.ones(3), "b": other, "c": np.arange(3), "d": np.asfortranarray(np.eye(3)[:, :2])})
    assert facts.of(0)["b"] is other, "what fits into neither column nor file is kept"
    assert facts.of(0)["d"].flags.f_contiguous
    facts.note(0, {"a": 2.0, "b": 3.0})
    facts.note(1, {"a": np.ones(2)})
    assert facts.of(0) == {"a": 2.0, "b": 3.0}
    assert facts.of(1)["a"].tolist() == [1.0, 1.0]
    facts.note(0, {"a": np.zeros(2)})
    facts.note(1, {})
    assert facts.of(1) == {}
    assert facts.of(0)["a"].tolist() == [0.0, 0.0]
    assert facts.on_disk
    facts.note(0, {})
    assert not facts.on_disk


def test_what_did_not_change_is_not_written_again(files: list[Any]) -> None:
    facts = Facts(2)
    for i in range(2):
        facts.note(i, {"mean": np.ones(4) * i})
    for i in range(2):
        facts.note(i, facts.of(i) | {"n": 1.0})
        facts.note(i, facts.of(i))
    files[0].flush()
    assert files[0].seek(0, 2) == 2 * 4 * 8
    facts._arrays._place = -1  # type: ignore[union-attr]  # we moved it
    assert [facts.of(i)["mean"].tolist() for i in range(2)] == [[0.0] * 4, [1.0] * 4]
    facts.close()


def test_an_array_that_was_read_cannot_be_changed() -> None:
    """Else a change would be lost, or not, by whether somebody notes it."""
    facts = Facts(1)
    facts.note(0, {"mean": np.ones(4)})
    with pytest.raises(ValueError, match="read-only"):
        facts.of(0)["mean"] += 1
    facts.close()


def test_numbers_are_told_without_the_file() -> None:
    facts = Facts(1)
    facts.note(0, {"mean": np.ones(4), "n": 2.0, "mixed": np.float64(3.0), "zero": np.array(1.0)})
    assert facts.numbers(0) == {"n": 2.0, "mixed": 3.0}
    facts.close()


# -- the file -----------------------------------------------------------------------------------------


def test_the_file_has_no_name_and_holds_no_plain_number(folder: Path, files: list[Any]) -> None:
    facts = Facts(2)
    for i in range(2):
        facts.note(i, {"mean": np.full(1000, 0.1)})
    assert list(folder.iterdir()) == []
    files[0].seek(0)
    content = files[0].read()
    assert len(content) == 2 * 8000
    words = np.frombuffer(content, dtype=np.uint64)
    assert len(set(words.tolist())) == 2000, "equal numbers are not equal there, nor are two sites' equal means"
    facts.close()


def test_a_folder_that_does_not_exist_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with pytest.raises(FileError, match=r"is kept in .*nowhere where sites are many, and No such file.*set TMPDIR"):
        HiddenArrays()


class Full:
    """A file on a full disk: it neither writes, nor reads what was still to be written."""

    def __init__(self, file: Any) -> None:
        self.seek, self.close, self.write, self.readinto = file.seek, file.close, self.fail, self.fail

    def fail(self, _data: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_told() -> None:
    hidden = HiddenArrays()
    at = hidden.add(np.ones(3))
    hidden._file = Full(hidden._file)  # type: ignore[assignment]
    for action in (lambda: hidden.add(np.ones(3)), lambda: hidden.read(at, (3,))):
        with pytest.raises(FileError, match="No space left on device; set TMPDIR to a folder on a larger disk"):
            action()
    hidden.close()


def test_what_encrypts_a_place_is_used_once_even_if_writing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = HiddenArrays()
    with monkeypatch.context() as failing:
        failing.setattr(hidden, "_file", Full(hidden._file))
        with pytest.raises(FileError):
            hidden.add(np.ones(3))
    assert hidden.add(np.ones(3)) == 24
    assert hidden.read(24, (3,)).tolist() == [1.0, 1.0, 1.0]
    hidden.close()


class FullDisk(io.RawIOBase):
    """A file on a full disk, below the memory in which Python collects what is to be written."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, _whence: int = 0) -> int:
        return offset

    def write(self, _data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_below_the_buffer_is_told(monkeypatch: pytest.MonkeyPatch, too_many: None) -> None:  # noqa: ARG001
    """Closing the file tries to write once more, and must not hide what was said of it."""
    made: list[Any] = []
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: made.append(io.BufferedRandom(FullDisk())) or made[-1])
    rows = np.random.default_rng(0).standard_normal((6, 4))
    with pytest.raises(FileError, match="No space left on device; set TMPDIR to a folder on a larger disk"):
        ep.FederatedPCA(2).fit([rows, rows + 1, rows + 2])
    assert [file.closed for file in made] == [True]


def test_a_file_that_ends_early_is_told() -> None:
    hidden = HiddenArrays()
    at = hidden.add(np.ones(3))
    hidden._file.truncate(8)
    with pytest.raises(FileError, match="ends early"):
        hidden.read(at, (3,))
    hidden.close()


# -- a run --------------------------------------------------------------------------------------------


class Copies(Connection):
    """As an engine and as its connection: one site answers under many names, and one in the middle of them has other rows.

    ``lie`` makes its reply of a function's name and of what it would have been.
    """

    spread, min_sites, costs = False, 1, ep.engines.InProcess.costs

    def __init__(self, count: int, lie: Callable[[str, Any], Any] = lambda _, arrays: arrays) -> None:
        self.names, self.lie = tuple(f"s{i:05d}" for i in range(count)), lie
        self.other = self.names[count // 2]

    def execute(self, sites: Mapping[str, Any], job: Any, *, graph: Any = None) -> Outcome:  # noqa: ARG002
        ((_, X),) = sites.items()
        self.servers = SiteServer("site", X), SiteServer("other", X + 1)
        outcome: Outcome = job(self)
        return outcome

    def sites(self) -> tuple[str, ...]:
        return self.names

    def own_sites(self) -> tuple[str, ...]:
        return ()

    def n_features(self) -> Mapping[str, int]:
        return dict.fromkeys(self.names, self.servers[0].n_features)

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        return {name: self.servers[name == self.other].position(run, epoch) for name in self.names}

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        reply = self.servers[0].execute(request, next(iter(after.values())))
        for name in after:
            if name == self.other:
                arrays = self.servers[1].execute(request, after[name]).arrays
                yield Response(name, self.lie(request.function, arrays))
            else:
                yield Response(name, tuple(array.copy() for array in reply.arrays))


def rows(d: int = 20) -> dict[str, Any]:
    return {"site": np.random.default_rng(0).standard_normal((50, d)) * 0.9 ** np.arange(d) + np.arange(d)}


def fitted(engine: Any, d: int = 20, **options: Any) -> ep.FederatedPCA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        options = {"solver": "krylov", "random_state": 0, "max_rounds": 3} | options
        return ep.FederatedPCA(3, engine=engine, **options).fit(rows(d))


def spreads_by(share: float) -> Callable[[str, Any], Any]:
    """A lie by this share about the distance of the site's mean, in all features."""
    return lambda name, arrays: (arrays[0], arrays[1] * (1 + share), *arrays[2:]) if "spread" in name else arrays


@pytest.mark.parametrize("scale", [None, "pooled"])
@pytest.mark.parametrize("center", ["pooled", "site", False])
def test_what_is_known_of_each_site_is_the_same_to_the_bit(scale: Any, center: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is the answer, whether it was put away or not."""
    found, noted = [], []
    original = Doubts.__init__

    def spied(self: Doubts, *given: Any) -> None:
        original(self, *given)
        noted.append(self)

    monkeypatch.setattr(Doubts, "__init__", spied)
    monkeypatch.setattr("eigenpact.runtime.doubts.MOST_REMEMBERED", 0)
    for few in (1000, 1):
        monkeypatch.setattr("eigenpact.runtime.doubts.FEW", few)
        engine = Copies(30)
        pca = fitted(engine, scale=scale, center=center)
        assert noted[-1].together is (few == 1)
        numbers = {who: facts for who, facts in noted[-1].numbers().items() if who in engine.names}
        found.append((numbers, pca.components_.tobytes(), pca.explained_variance_.tobytes(), pca.ledger_))
    assert found[0] == found[1]
    assert all({"n", "trace", "slack"} <= set(facts) for facts in found[0][0].values())
    assert len(found[0][0]) == 30


@pytest.mark.usefixtures("too_many")
@pytest.mark.parametrize("scale", [None, "pooled"])
@pytest.mark.parametrize("share", [2e-9, -2e-9])
def test_a_small_lie_of_one_of_many_sites_is_seen_and_it_is_named(scale: Any, share: float, files: list[Any]) -> None:
    """Of what it tells of the distance of its mean, nine digits have to be right."""
    assert len(fitted(Copies(300, spreads_by(share / 100)), scale=scale).sites_) == 300
    with pytest.warns(ep.errors.SiteLeftOutWarning, match=r"site 's00150' was left out: its reply of spread\w*: the distance"):
        pca = fitted(Copies(300, spreads_by(share)), scale=scale)
    assert len(pca.sites_) == 299
    assert len(files) == 3, "one of each epoch"
    assert all(file.closed for file in files)


@pytest.mark.usefixtures("too_many")
def test_a_resumed_run_holds_replies_against_what_is_told_again(tmp_path: Path, files: list[Any]) -> None:
    """A run that ends in set-up leaves no file; when it goes on, every site tells its mean again."""

    def stop(name: str, arrays: Any) -> Any:
        if "spread" in name:
            raise KeyboardInterrupt
        return arrays

    for ending in ("lie", "truth"):
        journal = tmp_path / ending
        with pytest.raises(KeyboardInterrupt):
            fitted(Copies(50, stop), journal=journal)
        if ending == "lie":
            with pytest.warns(
                ep.errors.SiteLeftOutWarning, match="site 's00025' was left out: its reply of spread: the distance"
            ):
                fitted(Copies(50, spreads_by(1e-8)), journal=journal)
        else:
            assert fitted(Copies(50), journal=journal).components_.tobytes() == fitted(Copies(50)).components_.tobytes()
    assert all(file.closed for file in files)


def open_in(folder: Path) -> list[str]:
    """Files in this folder that this process has open, with a name or without."""
    ends = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return [str(end) for end in ends if end.is_relative_to(folder)]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not tell which files are open")
@pytest.mark.usefixtures("too_many")
@pytest.mark.parametrize("kind", [None, KeyboardInterrupt, SiteError, MemoryError])
@pytest.mark.parametrize("where", ["count_and_sum", "spread", "scatter_action"])
def test_nothing_is_left_on_disk(kind: type[BaseException] | None, where: str, folder: Path, files: list[Any]) -> None:
    """After a fit, and after whatever ends one; the file is there meanwhile, without a name."""
    meanwhile: list[list[str]] = []

    def end(name: str, arrays: Any) -> Any:
        if where in name:
            meanwhile.append(open_in(folder))
            assert list(folder.iterdir()) == []
            if kind is not None:
                raise kind("the end")
        return arrays

    if kind is None:
        fitted(Copies(40, end))
    else:
        with pytest.raises(kind) as error:
            fitted(Copies(40, end))
        assert error.tb is not None, "which holds the frames, and all that is in them"
    assert [len(found) for found in meanwhile[:1]] == [int(where != "scatter_action")]
    assert open_in(folder) == []
    assert list(folder.iterdir()) == []
    assert len(files) == 1
    assert files[0].closed


def test_few_sites_need_no_file(files: list[Any]) -> None:
    fitted(Copies(10))
    assert files == []


@pytest.mark.usefixtures("too_many")
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_memory_hardly_grows_with_the_number_of_sites(scale: Any) -> None:
    """Far less than a mean of each site, 2400 bytes; names are in it, 65 bytes, and what the engine keeps."""

    def peak(count: int) -> int:
        tracemalloc.start()
        fitted(Copies(count), FEATURES, scale=scale)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)  # what is loaded once is not counted
    few, many = peak(100), peak(2000)
    assert (many - few) / 1900 < 300, f"{few} bytes with 100 sites, {many} with 2000"
