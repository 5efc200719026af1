"""The command `brobust trace`: one run as a timeline for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brobust import extras

DATASET = Annotated[Path, typer.Argument(metavar="DIR", help="A dataset directory that `brobust run` wrote.")]
RUN = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="The run, by the beginning of its id. [default: the only one]", show_default=False
    ),
]
# What a run records only where it was asked to, and the option that asks.
OPTIONS = {"packets": "--packets", "samples": "--samples ack"}


def trace(
    dataset: DATASET,
    run: RUN = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to be written, as a whole.")
    ] = Path("run.perfetto-trace"),
) -> None:
    """Write a run as a timeline for ui.perfetto.dev: timeslices, packets, cwnd, rates, RTTs, phases.

    The page ui.perfetto.dev opens the file in the browser and sends it nowhere. A run that has recorded no samples or
    packets has only its timeslices and its throughput; the command then says which options record them.
    """
    from brobust.dataset import Dataset, find

    chosen = find(Dataset.open(dataset), run)
    extras.require("trace")
    from brobust.report import trace as timeline

    counts = timeline.write(chosen, out)
    print(f"{out}: run {chosen.id}, {', '.join(f'{number} {name}' for name, number in counts.items())}")
    if lacking := [name for name in OPTIONS if not counts[name]]:
        options = " ".join(OPTIONS[name] for name in lacking)
        print(f"not recorded: {', '.join(lacking)}; `brobust run {options}` records them")
    print("open it at https://ui.perfetto.dev (it stays in your browser)")
