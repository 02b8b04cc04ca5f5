"""Read text tables: .csv, .tsv and .txt, also compressed, block by block."""

from __future__ import annotations

import csv
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import dropwhile, islice
from pathlib import Path

from ..errors import EigenpactError, FileError, InputError
from .description import Description
from .findings import SHOWN, Finding, raise_problems
from .layout import Layout, read_layout
from .spool import GatheredRows, GatheredTexts
from .table import Table, reads
from .text_blocks import BlockReader, Part
from .text_bytes import Block, blocks
from .text_form import Found, find_form

ENDINGS = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".zst"))

WORKERS = 4
"""Blocks that are parsed at once, on as many cores as there are."""

LINES, LARGEST_BLOCK = 500, 1 << 24
"""A block has so many lines, if it then has no more than so many bytes."""

FIRST = 200
"""Lines by which the header is found."""

AFTER = 1 << 26
"""So many bytes are still looked at for more problems, once one was found."""


@reads(*ENDINGS, described=True)
def read_text(path: Path, description: Description, memory: int | None) -> Table:
    """Read a text table; all problems are told at once."""
    with told_errors(path):
        found = find_form(path, description)
        problems = list(found.problems)
        layout = find_layout(path, found, description, problems)
        ambiguous = [problem for problem in problems if "not UTF-8" not in problem.text]
        if ambiguous or not layout.features:  # cells could not be judged
            raise_problems(path, problems, found.notes)
        table = _gather(path, found, layout, memory, problems)
    notes = [note.told() for note in found.notes]
    if layout.ids is not None and not layout.known_ids:
        taken = Finding("it holds text, and is taken for the rows' names", layout.skip, layout.ids + 1, layout.name(layout.ids))
        notes.append(taken.told())
    return replace(table, notes=tuple(notes))


@contextmanager
def told_errors(path: Path) -> Iterator[None]:
    """Tell what the system and the libraries raise as errors that name the file."""
    try:
        yield
    except EigenpactError:
        raise
    except UnicodeDecodeError as error:
        told = f"{path} is not {error.encoding} text ({error.reason} at byte {error.start})"
        raise FileError(f"{told}; save it as UTF-8, or say its encoding in its description") from error
    except csv.Error as error:
        raise InputError(f"{path} is not a text table ({error}); save it as comma- or tab-separated text") from error
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist; check the path (the current folder is {Path.cwd()})") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; check its permissions and content") from error


def find_layout(path: Path, found: Found, description: Description, problems: list[Finding]) -> Layout:
    """Where what is in the file, by its first lines."""
    first = list(islice(found.form.rows(found.text), FIRST))
    if not first:
        raise FileError(f"{path} is empty; give a table with at least one row")
    usual = Counter(len(row) for _, row in first).most_common(1)[0][0]
    lines = list(dropwhile(lambda line: len(line[1]) == 1 < usual, first))
    if len(lines) < len(first):
        told = f"it has 1 cell, line {lines[0][0]} has {len(lines[0][1])}: delete what stands above the header"
        problems.append(Finding(f"{told}; if it is the header, give every column a name", first[0][0]))
    layout = read_layout(lines[:2], found.form.number, found.form.separator, description, problems)
    if layout.ids is None or layout.known_ids:
        return layout
    repeated = _repeated(found, layout.ids, layout.skip)
    if repeated is None:
        return layout
    word, before, again = repeated
    name = layout.name(layout.ids)
    told = (
        f"{word!r} stands in lines {before} and {again}, so that this column of text hardly names the rows; describe the file: "
        f'labels = ["{name}"] or categorical = ["{name}"] if it holds groups, drop = ["{name}"] to leave it out, '
        f'id = "{name}" if it names the rows nevertheless'
    )
    problems.append(Finding(told, again, layout.ids + 1, name))
    return replace(layout, ids=None)


def _repeated(found: Found, column: int, skip: int) -> tuple[str, int, int] | None:
    """The first cell of a column that occurs twice in the first lines, and where; None if all are different."""
    lines: dict[str, int] = {}
    for line, row in found.form.rows(found.text):
        if line > skip and column < len(row):
            word = row[column].strip()
            if word in lines:
                return word, lines[word], line
            lines[word] = line
    return None


def _gather(path: Path, seen: Found, layout: Layout, memory: int | None, problems: list[Finding]) -> Table:
    """Read all blocks; ``problems`` were found before."""
    reader = BlockReader(seen.form, layout)
    rows = GatheredRows(len(layout.features), memory)
    ids, texts = GatheredTexts(), {name: GatheredTexts() for name in layout.texts}
    after, wrong = 0, dict[tuple[int, str], Finding]()
    for block, part in in_parallel(reader.read, blocks(path, seen.form.encoding, _block_size(seen, memory))):
        wrong = {**part.problems, **wrong}
        if wrong or problems:
            after += len(block.data)
            if len(wrong) > SHOWN or after > AFTER:
                break
            continue
        rows.expected = rows.expected or _expected(path, block, len(part.X))
        rows.add(part.X)
        ids.add(part.ids, spill=rows.spooled)
        for name, found in part.texts.items():
            texts[name].add(found, spill=rows.spooled)
    in_order = sorted(wrong.values(), key=lambda finding: (finding.line or 0, finding.column or 0))
    raise_problems(path, [*problems, *in_order], seen.notes)
    named = None if layout.ids is None else ids.texts()
    return Table(rows.rows(), layout.names, named, texts={name: found.texts() for name, found in texts.items()})


def in_parallel(read: Callable[[Block], Part], found: Iterable[Block]) -> Iterator[tuple[Block, Part]]:
    """Blocks and what is read from them, in their order; few are read ahead, at most ``WORKERS`` at once."""
    with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        waiting: deque[tuple[Block, Future[Part]]] = deque()
        try:
            for block in found:
                waiting.append((block, pool.submit(read, block)))
                if len(waiting) > WORKERS:
                    block, part = waiting.popleft()
                    yield block, part.result()
            while waiting:
                block, part = waiting.popleft()
                yield block, part.result()
        finally:
            for _, part in waiting:
                part.cancel()


def _block_size(seen: Found, memory: int | None) -> int:
    """So many bytes that a block has enough lines, unless they are long: every column of a block takes its time."""
    lines = max(1, seen.text.count("\n"))
    size = min(LINES * len(seen.text) // lines, LARGEST_BLOCK)
    return size if memory is None else min(size, memory // (16 * WORKERS))


def _expected(path: Path, block: Block, rows: int) -> int:
    """About how many rows the file has, to judge by its first block."""
    return int(1.02 * rows * os.path.getsize(path) / max(1, len(block.data))) + 1
