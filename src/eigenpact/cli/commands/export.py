"""``eigenpact export``: a model for other programs, or a card for people."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ...errors import InputError
from ..consoles import stdout, tell


class Form(StrEnum):
    """What a model can be exported to."""

    onnx = "onnx"
    skops = "skops"
    json = "json"
    card = "card"


def command(
    model: Annotated[Path, typer.Argument()],
    to: Annotated[
        Form, typer.Option("--to", help="onnx, skops (for scikit-learn), json (everything, readable), card (Markdown).")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .onnx, .skops, .json or .md.")],
    use: Annotated[str, typer.Option(help="For a card: who may use the model, and for what.")] = "",
    title: Annotated[str, typer.Option(help="For a card: its heading.")] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a model for programs without eigenpact, or a card that says what it is and what was revealed.

    MODEL is a folder written by eigenpact fit, or a .json file of this command.  ONNX and skops need pip install
    'eigenpact[export]'.
    """
    if to is not Form.card and (use or title):
        raise InputError(f"--use and --title are for cards, not for --to {to}; leave them out")
    from ... import export  # takes scikit-learn's pipelines, which few need
    from ...estimators.model_files import load_model

    writers = {Form.onnx: export.to_onnx, Form.skops: export.to_skops, Form.json: export.to_json}
    pca = load_model(model)
    if to is Form.card:
        export.to_card(pca, output, title=title, use=use, overwrite=overwrite)
    else:
        writers[to](pca, output, overwrite=overwrite)
    tell(stdout(), f"Wrote {output}")
