"""A dataset: a directory of Parquet that holds what was measured and all it takes to measure it again (docs/data.md).

columns.py has the meaning of the columns, rows.py turns a scenario into them, parts.py reads and merges the files of a
table, store.py is the directory, one_run.py one run of it.
"""

from brobust.dataset.columns import (
    CALLS,
    CONNECTIONS,
    PACKETS,
    PROGRAMS,
    REQUESTS,
    RUNS,
    SAMPLES,
    TABLES,
    TRANSFERS,
    Rows,
    columns_of,
    frame,
)
from brobust.dataset.one_run import OfRun, OneRun, Tables, find
from brobust.dataset.rows import Measured, failed, flow_columns, scenario_columns
from brobust.dataset.store import Dataset

__all__ = [
    "CALLS", "CONNECTIONS", "PACKETS", "PROGRAMS", "REQUESTS", "RUNS", "SAMPLES", "TABLES", "TRANSFERS", "Dataset",
    "Measured", "OfRun", "OneRun", "Rows", "Tables", "columns_of", "failed", "find",
    "flow_columns", "frame", "scenario_columns",
]  # fmt: skip
