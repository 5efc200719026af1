"""A reproduction's verdicts, twins and metrics as CSV: for pages, spreadsheets, and programs that are not ours."""

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from brobust.analysis import confidence
from brobust.analysis.cells import CELL
from brobust.analysis.claims import Verdict
from brobust.analysis.metrics import Evidence
from brobust.analysis.twins import Twin
from brobust.study.model import Study

# The columns of a sheet: one without rows, of a study without claims or twins, has them, too.
VERDICTS = (
    "claim", "text", "verdict", "basis", "parts_that_hold", "parts_that_do_not", "decided_by", "schedule", "buffer",
    "pacing", "kernel", "backend", "runs", "n", "unfaithful", "measured", "note",
)  # fmt: skip
TWINS = ("claim", "variable", "value", "verdict", "parts_that_hold", "parts_that_do_not", "n", "measured")
BETWEEN = "; "
"""What stands between the parts of a claim, whose names have commas."""


def verdicts(every: Sequence[Verdict]) -> str:
    """Return a row per claim: its verdict, the parts that hold and those that do not, what it rests on, under which
    conditions it was measured, and what was found."""
    return _csv(VERDICTS, ({**vars(one), **_parts(one.parts), "runs": one.runs_in_words} for one in every))


def twins(every: Sequence[Twin]) -> str:
    """Return a row per claim and value of a variable: what the value makes of the claim."""
    return _csv(TWINS, ({**vars(one), **_parts(one.parts)} for one in every))


def metrics(studies: Sequence[tuple[Study, Evidence]]) -> pl.DataFrame:
    """Return a row per study, metric that its claims or figures name, and cell: the cell's axes, n, the median over its
    runs, and the ends of the median's 95 % confidence interval, in the metric's unit (analysis/metrics.py)."""
    found = []
    for study, evidence in studies:
        of_claims = [check.metric for claim in study.claims for check in claim.checks]
        for metric in dict.fromkeys([*of_claims, *(figure.value for figure in study.figures)]):
            every = evidence.values(metric).group_by(CELL).agg(pl.col("value").sort().alias("each")).sort(CELL)
            ends = [confidence.of_median(each) or (None, None) for each in every["each"].to_list()]
            found.append(
                every.select(
                    pl.lit(study.figure).alias("figure"),
                    pl.lit(metric).alias("metric"),
                    *CELL,
                    n=pl.col("each").list.len(),
                    median=pl.col("each").list.median(),
                    low=pl.Series([low for low, _ in ends], dtype=pl.Float64),
                    high=pl.Series([high for _, high in ends], dtype=pl.Float64),
                )
            )
    return pl.concat(found) if found else pl.DataFrame()


def _parts(parts: Iterable[tuple[str, bool]]) -> dict[str, str]:
    yes, no = (BETWEEN.join(part for part, holds in parts if holds == wanted) for wanted in (True, False))
    return {"parts_that_hold": yes, "parts_that_do_not": no}


def _csv(columns: Sequence[str], every: Iterable[dict[str, Any]]) -> str:
    rows = [{name: one[name] for name in columns} for one in every]
    return (pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=columns)).write_csv()
