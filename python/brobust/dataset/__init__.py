"""A dataset: a directory of Parquet that holds what was measured and all it takes to measure it again.

    DIR/scenario.toml          the grid, as `brobust run` reads it
    DIR/dataset.json           schema version, brobust version, host, when and by which command it was begun
    DIR/calibration.jsonl      what the testbed could carry before it was disturbed, a line per path
    DIR/runs/*.parquet         one row per flow of each finished run
    DIR/throughput/*.parquet   receiver-side throughput over time
    DIR/samples/*.parquet      socket samples over time, where the scenario asked for them
    DIR/offtimes/*.parquet     every timeslice and off-time that the senders got
    DIR/packets/*.parquet      every frame at the bottleneck, where the scenario asked for it
    DIR/transfers/*.parquet    every flow of the cross traffic
    DIR/requests/*.parquet     every request that a program told of
    DIR/connections/*.parquet  every connection of programs
    DIR/programs/*.parquet     what programs printed, and how they ended
    DIR/pcap/RUN.pcap          the same frames for tcpdump and Wireshark

Runs are added several at a time, a file per table. Each file is written completely under another name, synced to disk
and then renamed (files.py); the file in runs/ is the last. A run that was interrupted therefore has no row in runs/,
and --resume measures it again; a run that has one is never touched. Small files are merged into larger ones (parts.py).
A process that writes holds DIR/.lock. A file that cannot be read (because a copy was cut off) costs only its own runs,
and a warning names it.

columns.py has the meaning of the columns, rows.py turns a scenario into them, parts.py reads and merges the files of a
table, store.py is the directory, one_run.py one run of it.
"""

from brobust.dataset.columns import (
    CONNECTIONS,
    OFFTIMES,
    PACKETS,
    PROGRAMS,
    REQUESTS,
    RUNS,
    SAMPLES,
    TABLES,
    THROUGHPUT,
    TRANSFERS,
    Column,
    Rows,
    frame,
)
from brobust.dataset.one_run import OfRun, OneRun, find
from brobust.dataset.rows import Measured, failed, flow_columns, scenario_columns
from brobust.dataset.store import Dataset
from brobust.versions import SCHEMA_VERSION

__all__ = [
    "CONNECTIONS",
    "OFFTIMES",
    "PACKETS",
    "PROGRAMS",
    "REQUESTS",
    "RUNS",
    "SAMPLES",
    "SCHEMA_VERSION",
    "TABLES",
    "THROUGHPUT",
    "TRANSFERS",
    "Column",
    "Dataset",
    "Measured",
    "OfRun",
    "OneRun",
    "Rows",
    "failed",
    "find",
    "flow_columns",
    "frame",
    "scenario_columns",
]
