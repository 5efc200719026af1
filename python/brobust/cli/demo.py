"""`brobust demo`: the collapse and its repair on this machine, in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brobust import backends, series
from brobust.cli.plot import draw
from brobust.cli.run import measure
from brobust.dataset import Dataset
from brobust.errors import BadInput
from brobust.guests import kernels
from brobust.scenario import Grid

# A buffer of 4 BDP: in one of 1 BDP Cubic too must fall, since a queue of 10 ms runs dry in an off-time of 30 ms.
FIELDS = {
    "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"},
    "contention": {"driver": "deadline", "timeslice": "10ms", "share": ["1", "0.7", "0.5", "0.35", "0.25"]},
    "flows": {"cc": ["cubic", "bbr", "bbr_robust"]},
    "duration": "5s",
    "repeat": 3,
}


def demo(
    out: Annotated[Path, typer.Option(help="Dataset directory; a broken demo in it is completed.")] = Path("demo"),
) -> None:
    """Boot a real sender VM, take its CPU away, measure cubic, bbr, bbr_robust, draw the result (about 5 minutes)."""
    grid = Grid.from_flags({**FIELDS, "kernel": _kernel()})
    backends.check(grid.scenarios)
    dataset = _continued(out, grid) or Dataset.create(out, grid, series.host())
    if not series.remaining(grid, dataset):
        print(f"{out}/ is complete and only drawn again; remove it, or give another --out, to measure anew")
    measure(grid, dataset, as_json=False)
    draw(dataset, "share", out)


def _continued(out: Path, grid: Grid) -> Dataset | None:
    if not (out / "dataset.json").exists():
        return None
    dataset = Dataset.open(out)
    if dataset.grid().fields != grid.fields:
        raise BadInput(f"{out} holds another dataset than the demo's; give another --out")
    return dataset


def _kernel() -> str:
    """Debian's 6.12 where apt has it; elsewhere (Ubuntu) the host's own kernel."""
    available = kernels.available()
    for name in ("debian-6.12", "host"):
        if name in available:
            return name
    raise BadInput("no kernel for the guests: apt offers no debian-6.12 and /boot holds none of the host's")
