"""``eigenpact rehearse``: all parties of a consortium on one machine, before anybody signs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import FileError
from ..consoles import stderr, stdout, tell

if TYPE_CHECKING:
    from ..rehearsal import Rehearsal


def command(
    consortium: Annotated[Path, typer.Argument()],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new folder, for what each party would see.")],
    plain_sums: Annotated[
        bool, typer.Option("--plain-sums", help="As in federation init: the coordinator sees every site's part of a sum.")
    ] = False,
) -> None:
    """Play all parties of a consortium on this machine, with made rows, over NVIDIA FLARE: what a board asks for before it signs.

    CONSORTIUM is the file for eigenpact federation init; nobody is connected to, whatever host it names.  Kits are made, every
    site checks and starts, a run is carried out, a site is lost in the middle of another, comes back, and that run is resumed.
    OUTPUT then holds what each party saw (seen/), kits with their policies and ledgers, the models, and a REPORT.md.

    Exit code: 0 all went as it should, 2 error, 130 after Ctrl-C.
    """
    from ...engines.flower.engine import free_port
    from ...runtime.keys import LEAST_SITES
    from ..kits import check_installed, find_kit, make_all_kits
    from ..rehearsal import Rehearsal
    from ..stopping import ended_in_order
    from .federation import read_consortium, write_settings

    federation = read_consortium(consortium, "nvflare")
    secure = not plain_sums and len(federation.sites) >= LEAST_SITES
    federation = replace(federation, host="localhost", port=free_port(), secure=secure)
    if output.exists():
        raise FileError(f"{output} exists already; choose another folder")
    with ended_in_order(f"what was seen so far is in {output}"):
        folder = output.absolute()
        make_all_kits(federation, folder / "kits")
        check_installed(find_kit(folder / "kits" / "coordinator", "coordinator"))
        for site in federation.sites:
            write_settings(folder / "kits" / site, federation)
        rehearsal = Rehearsal(folder, federation, lambda line: tell(stderr(), line))
        rehearsal.make_rows()
        rehearsal.play()
        (folder / "REPORT.md").write_text(report(rehearsal), encoding="utf-8")
        tell(stdout(), f"All went as it should; {output / 'REPORT.md'} tells what, {output / 'seen'} what each party saw")


def report(rehearsal: Rehearsal) -> str:
    """What was rehearsed, and what left each site, as Markdown."""
    from ...report.messages import bytes_text
    from ...runtime import read_site_ledger

    federation, lines = rehearsal.federation, []
    columns = federation.features if isinstance(federation.features, int) else len(federation.features)
    sums = "secured" if federation.secure else "plain"
    lines += [f"# Rehearsal of {federation.name}", ""]
    lines += [f"{len(federation.sites)} sites, {columns} agreed columns, {sums} sums, made rows; all on one machine.", ""]
    lines += ["| what | how it ended | seconds so far |", "|---|---|---|"]
    lines += [f"| {step.what} | {step.ended} | {step.seconds:.0f} |" for step in rehearsal.steps]
    lines += ["", "| site | messages that left | bytes | refused | its own account |", "|---|---|---|---|---|"]
    for site in federation.sites:
        rows = read_site_ledger(rehearsal.kit(site) / "ledger.jsonl")
        sent = [row for row in rows if row["what"] in ("sent", "sent again")]
        size = bytes_text(sum(int(row.get("bytes", 0)) for row in sent))
        refused = sum(row["what"] == "refused" for row in rows)
        lines.append(f"| {site} | {len(sent)} | {size} | {refused} | kits/{site}/ledger.jsonl |")
    lines += [
        "",
        "What each party's commands printed is in `seen/`, the policies that held are in `kits/SITE/policy.toml`.",
        "",
    ]
    return "\n".join(lines)
