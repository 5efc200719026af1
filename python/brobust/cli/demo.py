"""`brobust demo`: the collapse and its repair, in virtual time in seconds and then on this machine in minutes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from brobust.cli.plot import draw
from brobust.errors import BadInput

if TYPE_CHECKING:
    from brobust.dataset import Dataset
    from brobust.scenario import Grid

# The same cells on both backends. The buffer has 4 BDP: with 1 BDP CUBIC would fall, too, since a queue of 10 ms is
# empty before an off-time of 30 ms ends.
FIELDS: dict[str, Any] = {
    "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"},
    "contention": {"timeslice": "10ms", "share": ["1", "0.7", "0.5", "0.35", "0.25"]},
    "flows": {"cc": ["cubic", "bbr", "bbr_steady"]},
    "duration": "5s",
    "repeat": 3,
}


def demo(
    backend: Annotated[
        Literal["both", "virtual", "vm"],
        typer.Option(help="virtual: real Linux kernels in virtual time; vm: real VMs, which needs root."),
    ] = "both",
    out: Annotated[
        Path,
        typer.Option(metavar="DIRECTORY", help="Directory for the results; an interrupted demo in it is completed."),
    ] = Path("demo"),
) -> None:
    """Take the CPU away from senders of cubic, bbr and bbr_steady, and draw what is left of their throughput.

    First in virtual time (seconds), then the same on real VMs (about 5 minutes).
    """
    from brobust.scenario import Grid

    chosen = ["virtual", "vm"] if backend == "both" else [backend]
    grids = {name: Grid.from_flags({**FIELDS, "backend": name}) for name in chosen}
    for name, grid in grids.items():  # before the first of them takes its time
        check_directory(out / name, grid)
    if backend != "vm":
        print("real Linux kernels in virtual time:", flush=True)
        _measured(out / "virtual", grids["virtual"])
    if backend == "both" and (why := _no_vms()):
        print(f"not repeated on real VMs: {why}")
    elif backend != "virtual":
        print("the same on real VMs, in real time (about 5 minutes; Ctrl-C ends it):", flush=True)
        _measured(out / "vm", grids["vm"])


def _measured(directory: Path, grid: Grid) -> None:
    from brobust import backends
    from brobust.cli.measuring import measure, require_ok, show
    from brobust.dataset import Dataset
    from brobust.series import runner

    backends.check(grid)
    dataset = continued(directory, grid) or Dataset.create(directory, grid, runner.host())
    if not runner.remaining(grid, dataset):
        print(f"{directory}/ is complete and only drawn again; remove it, or give another --out, to measure again")
    measure(grid, dataset, as_json=False)
    show(dataset)
    if dataset.finished():
        draw(dataset, "share", directory)
    require_ok(grid, dataset)


def continued(directory: Path, grid: Grid) -> Dataset | None:
    """Return the dataset in that directory, if there is one; refuse one of another grid."""
    dataset = check_directory(directory, grid)
    if dataset is not None and dataset.grid().fields != grid.fields:
        raise BadInput(f"{directory} holds a dataset of other kernels; give another --out")
    return dataset


def check_directory(directory: Path, grid: Grid) -> Dataset | None:
    """Return the dataset in that directory, if there is one. Refuse, by what was written alone, one of another grid,
    and a directory in which none can be begun."""
    from brobust.dataset import Dataset

    if not (directory / "dataset.json").exists():
        Dataset.check_new(directory)
        return None
    dataset = Dataset.open(directory)
    if not grid.may_continue(dataset.grid()):
        raise BadInput(f"{directory} holds a dataset of other runs; give another --out")
    return dataset


def _no_vms() -> str | None:
    if os.geteuid() != 0:
        return "that needs root (sudo brobust demo --backend vm)"
    from brobust.testbed import accelerator

    if not accelerator.qemu_version():
        return "qemu-system-x86_64 is not installed; `make setup` installs it"
    return None
