"""A few runs of each measured directory, with the hash of their packets: measured again in seconds, they tell whether a
change of our code has changed what was measured, or only moved it."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import brobust
from brobust.dataset import Dataset
from brobust.errors import BrobustError

COUNT = 8


def datasets(out: Path) -> Iterator[Dataset]:
    """Yield the datasets below a directory."""
    for file in sorted(out.glob("**/dataset.json")):
        yield Dataset.open(file.parent)


def taken(out: Path) -> list[dict[str, str]]:
    """Return runs in virtual time of the datasets below a directory, evenly among all of them."""
    found = []
    for dataset in datasets(out):
        runs = dataset.runs()
        hashes = dict(runs.filter(pl.col("outcome") == "ok").select("run", "packet_hash").unique().iter_rows())
        for run in dataset.grid().runs():
            # A recording lies in another dataset, which need not be there any more.
            if hashes.get(run.id) and run.scenario.backend == "virtual" and run.scenario.contention.replay is None:
                scenario = run.scenario.model_dump(mode="json", exclude_defaults=True) | {"seed": run.seed}
                found.append({"scenario": json.dumps(scenario), "packet_hash": hashes[run.id][:20]})
    step = max(len(found) / COUNT, 1)
    return [found[int(step * number)] for number in range(min(COUNT, len(found)))]


def changed(samples: list[dict[str, str]]) -> str:
    """Measure the runs again. Return what is not as it was, in a line; nothing if all have sent the same packets."""
    for sample in samples:
        try:
            sent = str(brobust.run(json.loads(sample["scenario"])).runs["packet_hash"][0])
        except BrobustError as error:
            return str(error)
        if not sent.startswith(sample["packet_hash"]):
            return f"a run has sent other packets than before: {sample['scenario']}"
    return ""
