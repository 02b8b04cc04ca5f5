"""Pictures and files of numbers that commands write, checked before anything is computed."""

from __future__ import annotations

from pathlib import Path

from ..storage import check_file_target, writing

PICTURES = (".png", ".pdf", ".svg")


def check_json(file: Path | None, *, overwrite: bool) -> None:
    """Refuse a file that numbers cannot be written to."""
    if file is not None:
        check_file_target(file, (".json",), overwrite=overwrite)


def check_picture(picture: Path, *, overwrite: bool) -> None:
    """Refuse a file that a picture cannot be written to."""
    check_file_target(picture, PICTURES, overwrite=overwrite)


def picture_in(folder: Path, name: str, *, overwrite: bool) -> Path:
    """Where a picture goes; the folder is made if there is none."""
    with writing(folder, "choose another -o"):
        folder.mkdir(parents=True, exist_ok=True)
    check_picture(folder / name, overwrite=overwrite)
    return folder / name
