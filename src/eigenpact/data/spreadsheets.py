"""Spreadsheets are not read, because what a cell shows and what it holds differ: they are refused with how to convert them."""

from __future__ import annotations

import html
import re
import zipfile
from pathlib import Path

from ..errors import FileError
from ..storage import open_regular
from .array_files import BROKEN

ENDINGS = (".xlsx", ".xlsm", ".xls", ".ods")
LISTS = {"xl/workbook.xml": rb'<sheet [^>]*?name="([^"]*)"', "content.xml": rb'<table:table [^>]*?table:name="([^"]*)"'}
"""Member of the archive in which the sheets are named, and how."""

MOST_BYTES = 1 << 22


def refuse(file: Path) -> FileError:
    """The error for a spreadsheet, with the names of its sheets where they can be read."""
    names = sheets(file)
    which = f"its sheets are {', '.join(map(repr, names[:10]))}: " if names else ""
    named = "" if file.suffix.lower() in ENDINGS else " in spite of its name"
    return FileError(
        f"{file} is a spreadsheet{named}, which is not read; {which}open it in Excel or LibreOffice, choose the sheet, "
        'and save it as "CSV UTF-8"'
    )


def sheets(file: Path) -> list[str]:
    """Names of the sheets of an .xlsx or .ods file; none if it cannot be told."""
    try:
        with open_regular(file, follow=True) as stream, zipfile.ZipFile(stream) as archive:
            member = next((name for name in LISTS if name in archive.namelist()), None)
            if member is None:
                return []
            with archive.open(member) as content:
                text = content.read(MOST_BYTES)
    except (*BROKEN, OSError, ValueError, NotImplementedError, RuntimeError):
        return []
    return [html.unescape(name.decode(errors="replace")) for name in re.findall(LISTS[member], text)]
