"""What the library says, in the words of the command line: ``missing='mean'`` is ``--missing mean`` there.

Errors are raised far below, for whoever writes Python and for whoever types a command.  All that commands print of them goes
through :func:`in_options`.
"""

from __future__ import annotations

import re

SAID = {
    "FederatedPCA(missing='em')": "--missing em",
    "Scale(center=False)": "--prepare scale:sparse",
    "Residualize(site=True)": "+site of --prepare residualize",
    "secure=True": "--secure",
    "overwrite=True": "--overwrite",
    "check_units=True": "--check-units",
    "center=False": "--center none",
    "scale=None": "--scale none",
    "n_components=None": "-k all",
    "prepare does not go with": "--prepare does not go with",
    "raise max_rounds": "raise --max-rounds",
    "lower min_sites": "lower --min-sites",
    "min(n_samples, n_features)=": "",
    ", or None for all": ", or all",
    ", or None for the solver's own": "; leave it out for the solver's own",
    ">= 0, or None": ">= 0",
    "the solvers of FederatedPCA are": "the solvers are",
}
"""Whole phrases."""

CHOICES = re.compile(r"\b(missing|features|center|scale|solver|start)=(['\"])([\w-]+)\2")
NUMBERS = re.compile(r"\b(n_components|max_rounds|min_sites|round_timeout|tol|random_state)=(-?[\w.+-]*\w)")
NAMES = {"n_components": "-k", "random_state": "--seed"}
"""Options that are not called as the parameter is."""

OF_JOURNALS = re.compile(r"\b(\w+): journal has (.+?), this run (.+?)(?=; \w+: journal has |\); use the same settings)")
OTHER_OPTIONS = NAMES | {"seed": "--seed", "agreement": "--features"}
SETTINGS = {"n_features": "number of columns", "features": "names of columns", "weighted": "use of weights"}
"""What a journal keeps that no option says."""

SIMPLE = re.compile(r"-?[\d.]+(?:e-?\d+)?|'[\w-]*'|True|False|None")
"""Values that people have typed."""

IN_PYTHON = re.compile(r",? or an instance such as ep\.[\w.]+\([^()]*\)")
TWICE = (
    (re.compile(r"(--[\w-]+(?: [\w:]+)?) \(\1\)"), r"\1"),
    (re.compile(r"\((--[\w-]+(?: [\w:]+)?), \1\)"), r"(\1)"),
    (re.compile(r"((--[\w-]+) [\w:]+) \(\2\)"), r"\1"),
)
"""What was said in both words is then said twice."""


def in_options(text: str) -> str:
    """A text of the library with options in place of parameters.

    >>> in_options("entries are refused: use missing='mean' or missing='em' (--missing), or features='intersection' (--features)")
    'entries are refused: use --missing mean or --missing em, or --features intersection'
    >>> in_options("those that all sites have (features='intersection', --features intersection); use Scale(center=False)")
    'those that all sites have (--features intersection); use --prepare scale:sparse'
    >>> in_options("n_components=9 must be at most 4; rule max_rounds = 500: run it with --secure (secure=True)")
    '-k 9 must be at most 4; rule max_rounds = 500: run it with --secure'
    >>> in_options("j belongs to another run (n_components: journal has 3.0, this run 2.0; seed: journal has 15, this run 7); "
    ...     "use the same settings to resume, or another path")
    'j belongs to another run (-k was 3, now it is 2; --seed was another); use the same settings to resume, or another path'
    """
    for python, option in SAID.items():
        text = text.replace(python, option)
    text = CHOICES.sub(r"--\1 \3", text)
    text = NUMBERS.sub(lambda found: f"{NAMES.get(found[1], '--' + found[1].replace('_', '-'))} {found[2]}", text)
    text = OF_JOURNALS.sub(lambda found: _of_journal(*found.groups()), text)
    text = IN_PYTHON.sub("", text)
    for twice, once in TWICE:
        text = twice.sub(once, text)
    return text


def _of_journal(name: str, written: str, wanted: str) -> str:
    """How a run differs from the one that a journal was begun with; seeds are drawn from what people typed."""
    option = SETTINGS.get(name) or OTHER_OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if name != "seed" and SIMPLE.fullmatch(written) and SIMPLE.fullmatch(wanted):
        was, now = (value.strip("'").removesuffix(".0").replace("None", "not given") for value in (written, wanted))
        return f"{option} was {was}, now it is {now}"
    return f"{option} was another"
