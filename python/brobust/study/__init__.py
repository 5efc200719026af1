"""Studies: what a figure of a paper measures, how it is drawn and what the paper claims of it, as data.

`model`: the file; `metrics`: figures of a run beyond its throughput; `claims`: rules over a dataset and their verdicts.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

STUDIES = Path(__file__).parent.parent / "studies"


class Scale(StrEnum):
    """How much of a study is measured."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


def papers() -> list[str]:
    """Return the papers with studies of ours."""
    return sorted(directory.name for directory in STUDIES.iterdir() if any(directory.glob("*.toml")))
