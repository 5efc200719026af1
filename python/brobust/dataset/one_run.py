"""One run of a dataset: its tables, and how a user names it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from brobust import files
from brobust.dataset.store import Dataset
from brobust.errors import BadInput
from brobust.lazily import pl
from brobust.scenario import Run

MAX_PCAP = 2_000_000_000
SHOWN = 6
"""So many runs are named in a refusal."""


def _table(name: str) -> cached_property[pl.DataFrame]:
    return cached_property(lambda run: run.table(name))


class OfRun(ABC):
    """The tables of one run: of a dataset's (OneRun), or of one that was just measured (brobust.run's Result). Each is
    read when it is first asked for."""

    runs = _table("runs")
    throughput = _table("throughput")
    samples = _table("samples")
    offtimes = _table("offtimes")
    packets = _table("packets")
    transfers = _table("transfers")
    requests = _table("requests")
    connections = _table("connections")
    programs = _table("programs")
    calls = _table("calls")

    @abstractmethod
    def table(self, name: str) -> pl.DataFrame:
        """Return the rows of one of TABLES."""

    @property
    @abstractmethod
    def pcap(self) -> bytes | None:
        """The link's frames; None if they were not recorded."""


class OneRun(OfRun):
    """A run of a dataset, by its id."""

    def __init__(self, dataset: Dataset, run: str):
        self._dataset, self.id = dataset, run

    def table(self, name: str) -> pl.DataFrame:
        return self._dataset.table(name, [self.id])

    @property
    def pcap(self) -> bytes | None:
        file = self._dataset.directory / "pcap" / f"{self.id}.pcap"
        return files.read(file, MAX_PCAP) if file.exists() else None

    def run(self) -> Run | None:
        """Return what was to be measured; None where the dataset's scenario does not have the run (any more)."""
        return next((run for run in self._dataset.grid().runs() if run.id == self.id), None)


def find(dataset: Dataset, beginning: str | None) -> OneRun:
    """Return the run whose id begins like this; without a beginning, the dataset's only run. Refuse if that is none, or
    several, or a run that failed."""
    runs = dataset.runs().unique("run", maintain_order=True).sort("run")
    found = runs.filter(pl.col("run").str.starts_with(beginning or ""))
    where = f"RUN {beginning!r}: " if beginning else ""
    if found.is_empty():
        raise BadInput(f"{where}{dataset.directory} holds {'no such run' if where else 'no run'}; {_named(runs)}")
    if found.height > 1 and beginning not in found["run"]:
        raise BadInput(f"{where}{dataset.directory} holds {found.height} such runs; give one of {_named(found)}")
    if beginning in found["run"]:
        found = found.filter(pl.col("run") == beginning)
    run, outcome, reason = found.select("run", "outcome", "reason").row(0)
    if outcome == "failed":
        raise BadInput(f"run {run} failed: {reason}; nothing of it was recorded")
    return OneRun(dataset, run)


def _named(runs: pl.DataFrame) -> str:
    if runs.is_empty():
        return "measure one with `brobust run`"
    names = [f"{row['run']} ({row['cc']}, {row['share']:.0%} CPU)" for row in runs.head(SHOWN).iter_rows(named=True)]
    return "; ".join([*names, f"and {runs.height - SHOWN} more"] if runs.height > SHOWN else names)
