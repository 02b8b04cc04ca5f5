"""The bytes of a text table, unfolded, counted, and cut into blocks of whole lines.

A small file can unfold to a line without end, or to lines that are all empty.  So the bytes are counted before they become text.
"""

from __future__ import annotations

import codecs
import gzip
import importlib
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import FileError, InputError, MissingExtraError
from ..storage import open_regular
from .array_files import PIECE, check_expansion
from .spreadsheets import refuse

LONGEST_LINE = 1 << 24
"""Bytes of one line; a line's cells take up to twenty times as much while it is read."""

BLOCK = 1 << 21
"""Bytes that are parsed at a time."""

SAMPLE = 1 << 20
"""Bytes from which a file's form is found out."""

GZIP, ZSTD, ZIP, OLE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
OTHER_KINDS = {
    b"PAR1": "a Parquet file: rename it to end in .parquet",
    b"ARROW1": "an Arrow file: rename it to end in .feather",
    b"\x93NUMPY": "an array of numpy: rename it to end in .npy",
    b"\x89HDF": "an HDF5 file: rename it to end in .h5",
    b"BZh": "compressed by bzip2: unfold it, or compress it with gzip",
    b"\xfd7zXZ": "compressed by xz: unfold it, or compress it with gzip",
    b"%PDF": "a PDF: save the table as CSV",
}
MOST_WINDOW = 1 << 27
"""Bytes of memory that zstd may take for looking back, the most that its own command gives without being asked."""

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Block:
    """Whole lines of a file: bytes of a single-byte encoding or of UTF-8, and how many lines came before them."""

    data: bytes
    line: int


@contextmanager
def unfolded(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file that may be compressed, whatever its name says; what is no text is refused by its first bytes."""
    with open_regular(path, follow=True) as file:
        magic = file.read(8)
        file.seek(0)
        if magic.startswith((ZIP, OLE)):
            raise refuse(path)
        kind = next((told for start, told in OTHER_KINDS.items() if magic.startswith(start)), None)
        if kind:
            raise FileError(f"{path} is not text but {kind}")
        named = path.suffix.lower()
        try:
            inner: Any = None
            if magic.startswith(GZIP) or named == ".gz":
                inner = gzip.GzipFile(fileobj=file)
            elif magic.startswith(ZSTD) or named == ".zst":
                inner = _Zstd(path, file)
            if inner is None:
                yield file
                return
            with io.BufferedReader(_Counted(path, inner, file), PIECE) as stream:
                yield stream
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{path} is not a complete gzip file ({error}); compress or copy it again") from error


class _Zstd:
    """What zstd compressed, unfolded few bytes at a time; the library's own reader does not tell that a file was cut short."""

    STEP = 1 << 10  # bytes that may unfold to 32 MB

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        try:
            library = importlib.import_module("zstandard")
        except ImportError as error:
            raise MissingExtraError(
                f"reading {path}, compressed by zstd, needs zstandard ({error}); run: pip install 'eigenpact[tables]'"
            ) from error
        self._path, self._file, self._error = path, file, library.ZstdError
        self._new = library.ZstdDecompressor(max_window_size=MOST_WINDOW).decompressobj
        self._frame, self._held = self._new(), io.BytesIO()

    def read(self, size: int) -> bytes:
        """The next bytes, up to so many."""
        while True:
            if piece := self._held.read(size):
                return piece
            more = self._frame.unused_data if self._frame.eof else b""
            more += self._file.read(self.STEP)
            if not more and not self._frame.eof:
                raise FileError(f"{self._path} is not a complete zstd file (it ends early); compress or copy it again")
            if not more:
                return b""
            if self._frame.eof:
                self._frame = self._new()
            try:
                self._held = io.BytesIO(self._frame.decompress(more))
            except self._error as error:
                raise FileError(f"{self._path} is not a complete zstd file ({error}); compress or copy it again") from error


def compression(path: Path) -> str | None:
    """What a file's bytes say it is compressed by: "gzip", "zstd" or None."""
    with open_regular(path, follow=True) as file:
        magic = file.read(4)
    return "gzip" if magic.startswith(GZIP) else "zstd" if magic.startswith(ZSTD) else None


class _Counted(io.RawIOBase):
    """Bytes of a table; a file that unfolds to far more than it has is refused as they come."""

    def __init__(self, path: Path, inner: Any, file: IO[bytes]) -> None:
        self._path, self._inner, self._file = path, inner, file
        self._read = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        piece = self._inner.read(len(buffer))
        self._read += len(piece)
        check_expansion(self._path, self._read, self._file.tell(), "if it is a table, unfold it with gunzip or unzstd first")
        buffer[: len(piece)] = piece
        return len(piece)


def beginning(path: Path) -> tuple[bytes, bool]:
    """The first bytes, about a megabyte or, if that is more, a few lines; and whether they are all."""
    with unfolded(path) as stream:
        sample = stream.read(SAMPLE)
        while count_lines(sample) < 3 and len(sample) < 3 * LONGEST_LINE and (more := stream.read(SAMPLE)):
            sample += more
            end = last_line_end(sample, quotes=False)
            _check_line(path, sample[end:], count_lines(sample[:end]))
        return sample, not stream.read(1)


def blocks(path: Path, encoding: str) -> Iterator[Block]:
    """The file in blocks of whole lines, without a byte-order mark; a cell in quotes that goes over lines stays whole."""
    with unfolded(path) as stream:
        pieces: Iterator[bytes] = iter(lambda: b"".join(iter_read(stream, BLOCK)), b"")
        pieces = _as_utf8(pieces, encoding) if encoding.startswith("utf-16") else pieces
        held, line = b"", 0
        for i, piece in enumerate(pieces):
            piece = piece.removeprefix(codecs.BOM_UTF8) if i == 0 else piece
            held = held + piece if held else piece
            cut = last_line_end(held)
            if cut:
                yield Block(held[:cut], line)
                line, held = line + count_lines(held[:cut]), held[cut:]
            _check_line(path, held, line)
        if held:
            yield Block(held, line)


def _check_line(path: Path, held: bytes, line: int) -> None:
    if len(held) <= LONGEST_LINE:
        return
    if last_line_end(held, quotes=False):
        raise InputError(
            f'{path}, line {line + 1}: a quote (") opens here or further down and is not closed within {LONGEST_LINE} bytes; '
            "close it, or remove it"
        )
    raise InputError(f"{path}, line {line + 1} is a line of more than {LONGEST_LINE} bytes; if it is a table, save it as .npy")


def iter_read(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """The next bytes, so many in all, in pieces: memory is taken for what is there, not for what is asked for."""
    while size and (piece := stream.read(min(size, SAMPLE))):
        size -= len(piece)
        yield piece


def _as_utf8(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """What is written in two bytes a character, in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)()
    for piece in pieces:
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()


def last_line_end(data: bytes, *, quotes: bool = True) -> int:
    """Where the last line ends that is whole, 0 if none is; a line end within quotes is none.

    >>> last_line_end(b'a,b\\n1,2\\n3'), last_line_end(b'a\\n"x\\ny'), last_line_end(b"a")
    (8, 2, 0)
    """
    newline = b"\n" if b"\n" in data else b"\r"
    end = len(data) if newline == b"\n" else len(data) - 1  # after a last \r a \n may come
    cut = data.rfind(newline, 0, end) + 1
    if not quotes or b'"' not in data:
        return cut
    odd = data.count(b'"', 0, cut) % 2
    while cut and odd:
        before = data.rfind(newline, 0, data.rfind(b'"', 0, cut)) + 1  # the last quote opens what is not closed
        odd ^= data.count(b'"', before, cut) % 2
        cut = before
    return cut


def count_lines(data: bytes) -> int:
    """How many lines end in these bytes.

    >>> count_lines(b"a\\nb\\r\\nc\\rd")
    3
    """
    lines = data.count(b"\n")
    return lines + data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else lines
