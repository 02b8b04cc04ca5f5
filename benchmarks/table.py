"""Rows of a results table: what was asked, the bar, what was reached, and whether that meets it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measured line.  ``met`` is None where it could not be measured here; ``why`` explains that, or a miss."""

    what: str
    bar: str
    reached: str
    met: bool | None
    why: str = ""

    @property
    def verdict(self) -> str:
        """One word, and the reason if there is one."""
        word = {True: "met", False: "missed", None: "not run"}[self.met]
        return f"{word}: {self.why}" if self.why else word


def print_rows(title: str, rows: Iterable[Row], markdown: bool) -> bool:
    """Print the table; returns whether every miss is explained."""
    rows = list(rows)
    if markdown:
        print("| what | bar | reached | |")
        print("|---|---|---|---|")
        for row in rows:
            print(f"| {row.what} | {row.bar} | {row.reached} | {row.verdict} |")
    else:
        table = Table(title=title, show_lines=True)
        for column in ("what", "bar", "reached", ""):
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(row.what, row.bar, row.reached, row.verdict)
        Console(width=150).print(table)
    return all(row.met is not False or row.why for row in rows)
