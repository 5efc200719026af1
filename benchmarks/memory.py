"""Measure how many bytes of memory a row of a table costs, from the kernel to the file, for backends/memory.py.

.venv/bin/python benchmarks/memory.py       # needs virtual-6.12; a minute
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from brobust import backends
from brobust.dataset import Dataset
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario

PATH = {"bandwidth": "200mbit", "rtt": "10ms", "buffer": "4bdp"}
KEPT: dict[str, dict[str, Any]] = {
    "packets": {"path": PATH, "packets": True},
    "samples": {"path": PATH, "samples": "ack"},
    "offtimes": {"path": {"bandwidth": "1mbit"}, "contention": {"share": 0.5, "timeslice": "100us"}},
}
SHORT, LONG = "2s", "30s"


def measure(table: str, duration: str) -> tuple[int, int]:
    """Return the rows, and the maximum memory of this process in bytes."""
    run = Run(scenario=scenario({**KEPT[table], "flows": [{"cc": "cubic"}], "duration": duration}), repeat=0)
    with tempfile.TemporaryDirectory() as scratch, backends.opened("virtual", lambda _: None) as backend:
        measured = backend.measure(run)
        Dataset.create(Path(scratch) / "data", Grid.from_flags({}), {}).append(run.id, measured)
    return len(getattr(measured, table)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    if len(sys.argv) > 1:
        print(*measure(*sys.argv[1:]))
        return
    for table in KEPT:
        # One process for each: the maximum of a process can be read only once.
        said = [
            subprocess.check_output([sys.executable, __file__, table, length], text=True) for length in (SHORT, LONG)
        ]
        (few, small), (many, large) = ([int(word) for word in line.split()] for line in said)
        print(f"{table}: {(large - small) / (many - few):.0f} bytes a row ({many} rows)", flush=True)


if __name__ == "__main__":
    main()
