"""The README in a kit: what its owner does with it, in the order in which it is done."""

from __future__ import annotations

from datetime import datetime

from ..engines.federation.kits import Federation

SHOWN = 20
"""Columns that are named."""

SITE = """\
# {party}, a site of the federation {name}

This folder is for the data manager of {party} alone: it holds private keys. Nobody else needs it, whoever made it keeps no copy.

1. Install eigenpact on the machine that holds your table: `pip install 'eigenpact[{extra}]'`.
2. Write the path of your table into `site.toml`, at `data`. It needs the columns {features}.
3. If your export has decimal commas, other names of columns, or marks such as -9 for what was not measured, describe it. Answer
   the remarks that begin with DECIDE in what this writes, and delete them. The export itself is never changed:

       eigenpact describe patients.csv --kit {party} -o patients.csv.toml

4. Read `policy.toml`: what may be asked of your table, whoever asks. Change what is too much.
5. Look whether all is in place. Nothing is sent:

       eigenpact site check {party}/site.toml

6. Start. The site then answers the coordinator, at {host}:{port}, until you stop it with Ctrl-C; no port need be opened here:

       eigenpact site start {party}

What leaves is written to `ledger.jsonl` first, and a line says at the end of a run how much that was. Your rows stay here: the
coordinator hands out the model, and `eigenpact site transform {party} MODEL -o scores.csv` computes the scores of your rows.

A site that was started answers with the table and the policy of that moment: after a change, stop it and start it again. A kit
can be started once at a time. {until} Ask whoever ran `eigenpact federation init` for `eigenpact federation renew`, then
`eigenpact federation install {party} FOLDER` puts the new keys in.
"""

COORDINATOR = """\
# The coordinator of the federation {name}

This folder is for the coordinator alone: it holds private keys. It holds no rows, and none ever come here.

1. Install eigenpact on the machine that sites reach as {host}:{port}: `pip install 'eigenpact[{extra}]'`.
2. Serve, until you stop it with Ctrl-C; sites may come before or after:

       eigenpact coordinator start coordinator

3. In another terminal, run. It says who is connected and who is missing:

       eigenpact coordinator run --kit coordinator -k 10{secure} -o model

4. Hand `model` out to the sites: {sites}.

A run that was stopped goes on with `--resume` and its name. {until} Whoever keeps `authority/` makes new ones:
`eigenpact federation renew`; the same folder lets a site join, `eigenpact federation add`.
"""


def readme(party: str, federation: Federation, until: datetime) -> str:
    """The text for a party's kit, which is valid until then."""
    features = federation.features
    some = (
        f"{features} in number"
        if isinstance(features, int)
        else ", ".join(features[:20]) + (" ..." if len(features) > 20 else "")
    )
    return (COORDINATOR if party == "coordinator" else SITE).format(
        party=party,
        name=federation.name,
        host=federation.host,
        port=federation.port,
        extra=federation.engine,
        features=some,
        sites=", ".join(federation.sites),
        secure=" --secure" if federation.secure else "",
        until=f"The certificate is valid until {until:%Y-%m-%d}.",
    )
