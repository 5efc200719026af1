"""`brobust run`: measure a scenario, or a grid of them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from brobust import backends, series
from brobust.dataset import Dataset
from brobust.errors import BadInput, BrobustError
from brobust.report import table
from brobust.scenario import Grid

DATA = Path("brobust-data")


def _list(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=f"{text} A comma-separated list makes a grid.", show_default=False)


def run(
    scenario: Annotated[Path | None, typer.Argument(metavar="[SCENARIO.toml]", help="Scenario file.")] = None,
    cc: Annotated[str | None, _list("cc", "Congestion control [cubic,bbr,bbr_robust].")] = None,
    bandwidth: Annotated[str | None, _list("bandwidth", "Bottleneck rate with unit [20mbit].")] = None,
    rtt: Annotated[str | None, _list("rtt", "Round-trip time with unit [10ms].")] = None,
    buffer: Annotated[str | None, _list("buffer", "Bottleneck buffer, 1bdp or 60kB [1bdp].")] = None,
    loss: Annotated[str | None, _list("loss", "Random loss, 0.001 or 0.1% [0].")] = None,
    share: Annotated[str | None, _list("share", "CPU share of the sender, 0.25 or 25% [1,0.5,0.25].")] = None,
    timeslice: Annotated[str | None, _list("timeslice", "Timeslice with unit [10ms].")] = None,
    driver: Annotated[str | None, _list("driver", "deadline, burner or none [deadline].")] = None,
    flows: Annotated[str | None, _list("flows", "Parallel flows [1].")] = None,
    start: Annotated[str | None, _list("start", "When the flows start [0s].")] = None,
    duration: Annotated[str | None, _list("duration", "How long the flows send [10s].")] = None,
    repeat: Annotated[int | None, typer.Option(help="Repeats of every cell [3].", show_default=False)] = None,
    seed: Annotated[str | None, _list("seed", "Seed, also of the shuffled order [1].")] = None,
    kernel: Annotated[
        str | None,
        _list("kernel", "debian-6.12, debian-6.1, host, a release in /boot, or BZIMAGE:MODULES [debian-6.12]."),
    ] = None,
    backend: Annotated[str | None, _list("backend", "vm [vm].")] = None,
    accelerator: Annotated[str | None, _list("accelerator", "auto, kvm or tcg [auto].")] = None,
    samples: Annotated[
        str | None, _list("samples", "Sample the sockets at this interval; costs the sender CPU [off].")
    ] = None,
    out: Annotated[Path | None, typer.Option(help=f"Dataset directory [{DATA}/DATE-TIME].", show_default=False)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete a broken series (of --out, or the latest).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per run as it finishes, nothing else.")
    ] = False,
) -> None:
    """Measure throughput under CPU contention. Flags override the file; every field of the file has a flag."""
    flags = grid_fields(
        path={"bandwidth": bandwidth, "rtt": rtt, "buffer": buffer, "loss": loss},
        contention={"share": share, "timeslice": timeslice, "driver": driver},
        flows={"cc": cc, "count": flows, "start": start},
        duration=duration, seed=seed, kernel=kernel, backend=backend, accelerator=accelerator, samples=samples,
    )  # fmt: skip
    if repeat is not None:
        flags["repeat"] = repeat
    if resume:
        directory = out or _latest()
        dataset = Dataset.open(directory)
        grid = dataset.grid()
        if (scenario is not None or flags) and _grid(scenario, flags).fields != grid.fields:
            raise BadInput(f"--resume: {directory} was begun with another scenario; give no scenario options with it")
        backends.check(grid.scenarios)
    else:
        grid = _grid(scenario, flags)
        backends.check(grid.scenarios)
        directory = out or DATA / datetime.now().strftime("%Y%m%d-%H%M%S")
        dataset = Dataset.create(directory, grid, series.host())
    measure(grid, dataset, as_json)


def measure(grid: Grid, dataset: Dataset, as_json: bool) -> None:
    """Measure what the dataset lacks, with progress on stderr and the result on stdout."""
    runs = series.remaining(grid, dataset)
    errors = Console(stderr=True)
    try:
        with _bar(errors, len(runs)) as say:
            for progress in series.measure(runs, dataset, say.now):
                say.done(progress)
                if as_json:
                    print(json.dumps(series.summary(progress.measured.runs), default=str), flush=True)
    except BrobustError:
        dataset.discard_if_empty()
        raise
    except KeyboardInterrupt:
        done = len(dataset.finished())
        raise BadInterrupt(
            f"interrupted; {done} of {len(grid.runs())} runs are in {dataset.directory}; complete them with "
            f"`brobust run --resume --out {dataset.directory}`"
        ) from None
    if not as_json:
        Console().print(table.render(dataset.runs(), title=f"dataset {dataset.directory}"))


class BadInterrupt(BadInput):
    """Ctrl-C: what is measured is kept."""

    exit_status = 130


class _Speaker:
    """Progress for people: a bar with ETA on a terminal, nothing in a pipe but failures."""

    def __init__(self, console: Console, total: int):
        self._console = console
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console, disable=not console.is_terminal, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> _Speaker:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def now(self, text: str) -> None:
        self._bar.update(self._task, description=text[:100])

    def done(self, progress: series.Progress) -> None:
        self._bar.update(self._task, completed=progress.done)
        first = progress.measured.runs[0]
        if first["outcome"] != "ok":
            line = f"{progress.run.scenario.describe()}: {first['outcome']}: {first['reason']}"
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def _bar(console: Console, total: int) -> _Speaker:
    return _Speaker(console, total)


def grid_fields(**given: Any) -> dict[str, Any]:
    """Flags as fields of a grid: absent ones left out, commas as lists, numbers as TOML would have them."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            inner = grid_fields(**value)
            if inner:
                fields[name] = inner
        elif value is not None:
            parts = [part.strip() for part in value.split(",")]
            if "" in parts:
                raise BadInput(f"--{name}: {value!r} has an empty element; write for example a,b")
            fields[name] = parts if len(parts) > 1 else parts[0]
    return fields


def _grid(scenario: Path | None, flags: dict[str, Any]) -> Grid:
    return Grid.from_file(scenario, flags) if scenario is not None else Grid.from_flags(flags)


def _latest() -> Path:
    datasets = sorted(path.parent for path in DATA.glob("*/dataset.json"))
    if not datasets:
        raise BadInput(f"--resume: no dataset in ./{DATA}; give its directory with --out")
    return datasets[-1]
