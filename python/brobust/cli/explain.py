"""The command `brobust explain`: what limits a flow of a run, in about five sentences."""

import dataclasses
import json
from typing import Annotated

import typer

from brobust.cli.trace import DATASET, RUN
from brobust.errors import MissingSupport, printable


def explain(
    dataset: DATASET,
    run: RUN = None,
    flow: Annotated[int, typer.Option(metavar="N", help="Number of the flow to explain; the first one is 0.")] = 0,
    tries: Annotated[
        bool | None,
        typer.Option(
            "--try/--no-try",
            help="Measure again without each possible cause, and with each repair. [default: --try, but --no-try where "
            "that would run programs that the dataset names]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object instead.")] = False,
) -> None:
    """Say in about five sentences, with numbers, what limits a flow of a run.

    The answer comes from what the run has recorded, and from runs in virtual time that have one thing changed: without
    contention, without loss, with a larger buffer, with each repair. These are measured if the run has at most 120 s
    and a million packets; nothing is added to the dataset. Programs of a dataset run here only with --try: it may be a
    stranger's. Where the data does not decide, the answer says so. docs/see.md has the rules.

    Examples:
      brobust explain data                         # the only run of a dataset
      brobust explain data 4f1 --flow 1 --no-try   # the second flow of run 4f1...
    """
    from brobust import api
    from brobust.dataset import Dataset, find
    from brobust.report import explanation

    chosen = find(Dataset.open(dataset), run)
    try:
        found = api.explain(chosen, chosen.run(), flow, tries)
    except MissingSupport as error:
        raise MissingSupport(f"{error}; or give --no-try, which measures nothing") from None
    if as_json:
        print(json.dumps(dataclasses.asdict(found)))
        return
    for sentence in explanation.sentences(found):
        print(printable(sentence))  # a dataset may be a stranger's
