"""Studies: TOML files that say what a paper's figure measures, how it is drawn, and what the paper claims.

`model` reads the file. analysis/metrics.py computes a run's metrics beyond its throughput, and analysis/claims.py
decides the claims.
"""

from enum import StrEnum
from pathlib import Path

STUDIES = Path(__file__).parent.parent / "studies"


class Scale(StrEnum):
    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


def papers() -> list[str]:
    return sorted(directory.name for directory in STUDIES.iterdir() if any(directory.glob("*.toml")))
