"""Claims of papers over a dataset, and what the data say about them.

A claim is one or more checks (checks.py); it holds if all of them do, and in part if some of its named parts do. Where
the dataset has no cell for a check, the claim is not measurable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import BaseModel

from brobust.analysis.axes import axis_phrase
from brobust.analysis.cells import CELL
from brobust.analysis.checks import NO_RUNS, AnyCheck, Finding
from brobust.analysis.metrics import Evidence

HOLDS, IN_PART, DIFFERS, NOT_MEASURABLE = "holds", "holds in part", "differs", "not measurable"
VERDICTS = (HOLDS, IN_PART, DIFFERS, NOT_MEASURABLE)


class Claim(BaseModel, extra="forbid", frozen=True):
    """What a paper says, and how it is checked."""

    id: str
    text: str
    checks: tuple[AnyCheck, ...] = ()
    note: str = ""
    """Where a check differs from the paper's own words."""
    basis: str = ""
    """What the verdict rests on, if not on a measurement alone: fitted, by construction, direction only."""
    basis_on_vm: str = ""
    """The same on backend vm."""
    see: tuple[str, ...] = ()
    """Claims of `brobust reproduce findings` that say what decides this one."""


@dataclass(frozen=True)
class Verdict:
    """A claim, and what the data say about it."""

    claim: str
    text: str
    verdict: str
    expected: str
    measured: str
    n: int
    backend: str
    kernel: str
    note: str
    basis: str = ""
    parts: tuple[tuple[str, bool], ...] = ()
    """The named parts of the claim, and whether each holds; in the order of its checks."""
    n_per_cell: tuple[int, int] | None = None
    """The least and the greatest number of runs of a cell."""
    duration_s: tuple[float, float] | None = None
    """The shortest and the longest of these runs."""
    unfaithful: int = 0
    """How many of these runs did not have the CPU that they asked for."""
    see: tuple[str, ...] = ()
    decided_by: str = ""
    """Which variable decides it, as its twins were measured (twins.py); empty if there are none."""
    schedule: str = ""
    """What took the CPU away in these runs; undisturbed if nothing did."""
    buffer: str = ""
    """In BDP of bytes: the values, or the least and the greatest of more than three."""
    pacing: str = ""
    """Who paced: kernel, or what took its place; and fq."""

    @property
    def in_words(self) -> str:
        """The verdict with what it rests on, and which parts hold."""
        text = self.verdict
        remarks = [self.basis] if self.basis else []
        if self.unfaithful:
            remarks.append(f"{self.unfaithful} of {self.n} runs unfaithful")
        if remarks:
            text += f" ({'; '.join(remarks)})"
        if self.verdict == IN_PART:
            yes, no = (", ".join(part for part, holds in self.parts if holds == wanted) for wanted in (True, False))
            text += f": {yes}; not: {no}"
        return text

    @property
    def runs_in_words(self) -> str:
        """Runs per cell and their duration: 5 x 20 s."""
        if self.n_per_cell is None or self.duration_s is None:
            return ""
        return f"{_span(*self.n_per_cell)} x {_span(*self.duration_s)} s"


def decide(claim: Claim, evidence: Evidence) -> Verdict:
    """Return whether a claim holds in these runs."""
    findings = [check.find(evidence) for check in claim.checks]
    parts: dict[str, bool] = {}
    for check, finding in zip(claim.checks, findings, strict=True):
        if check.part:
            parts[check.part] = parts.get(check.part, True) and finding.holds is True
    runs = evidence.flows
    used = evidence.runs.filter(pl.col("run").is_in(_ids(findings).implode()))
    backends = sorted(runs["backend"].unique())
    return Verdict(
        claim.id,
        claim.text,
        _verdict(claim, findings, parts),
        "; ".join(check.expected() for check in claim.checks),
        "; ".join(finding.measured for finding in findings),
        len(used),
        "/".join(backends),
        "/".join(sorted(runs["kernel"].unique())),
        claim.note,
        claim.basis_on_vm if claim.basis_on_vm and backends == ["vm"] else claim.basis,
        tuple(parts.items()),
        _ends(used.group_by(CELL).len()["len"]),
        _ends(runs.filter(pl.col("run").is_in(used["run"].implode()))["duration_s"]),
        int((used["outcome"] == "unfaithful").sum()),
        claim.see,
        **_conditions(used),
    )


def _verdict(claim: Claim, findings: Sequence[Finding], parts: dict[str, bool]) -> str:
    if not findings or any(finding.holds is None for finding in findings):
        return NOT_MEASURABLE
    if all(finding.holds for finding in findings):
        return HOLDS
    needed = all(finding.holds for check, finding in zip(claim.checks, findings, strict=True) if not check.part)
    return IN_PART if needed and any(parts.values()) else DIFFERS


def _conditions(used: pl.DataFrame) -> dict[str, str]:
    """Return in words what a paper may have had otherwise: the CPU's schedule, the buffer, who paced."""
    taken = used.filter(pl.col("share") < 1)
    if taken.is_empty():
        schedule = "" if used.is_empty() else "undisturbed"
    else:
        drivers = ["exact" if driver == "virtual" else driver for driver in sorted(taken["driver"].unique())]
        jitter = [
            axis_phrase("length_jitter", one) for one in sorted(taken["length_jitter"].unique().drop_nulls()) if one
        ]
        schedule = ", ".join([*drivers, *jitter])
    buffers = sorted(used["buffer_bdp"].unique().drop_nulls())
    few = [f"{one:g}" for one in (buffers if len(buffers) <= 3 else (buffers[0], buffers[-1]))]
    buffer = f"{(', ' if len(buffers) <= 3 else ' to ').join(few)} BDP" if few else ""
    paced = sorted(used["pacing"].unique().drop_nulls()) + [one for one in used["qdisc"].unique() if one == "fq"]
    return {"schedule": schedule, "buffer": buffer, "pacing": ", ".join(paced)}


def _ids(findings: Sequence[Finding]) -> pl.Series:
    return pl.concat([finding.used.select("run") for finding in findings] or [NO_RUNS])["run"].unique()


def _ends(values: pl.Series) -> Any:
    return None if values.is_empty() else (values.min(), values.max())


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
