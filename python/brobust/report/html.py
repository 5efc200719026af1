"""One self-contained HTML file of a reproduction: what was run, each figure beside its claims, and how to repeat it."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from brobust import files
from brobust.analysis import summary
from brobust.analysis.claims import DIFFERS, HOLDS, IN_PART, NOT_MEASURABLE
from brobust.dataset import Dataset
from brobust.errors import BadInput
from brobust.report.reproduced import Reproduced, twin_tables
from brobust.study import model

CLASSES = {HOLDS: "holds", IN_PART: "part", DIFFERS: "differs", NOT_MEASURABLE: "missing"}


def write(directories: Sequence[Path], file: Path) -> None:
    """Write the reproductions of one paper, which are in these directories, side by side into a file."""
    parts = [_Part(directory) for directory in directories]
    papers = {part.about["paper"] for part in parts}
    if len(papers) != 1:
        raise BadInput(f"these are reproductions of several papers ({', '.join(sorted(papers))}); give those of one")
    (paper,) = papers
    environment = Environment(
        loader=PackageLoader("brobust.report", ""), autoescape=select_autoescape(), undefined=StrictUndefined
    )
    studies = [study for study in model.of_paper(paper) if any(part.has(study) for part in parts)]
    counts = Counter(claim.verdict for part in parts for claim in part.claims)
    text = environment.get_template("reproduction.html").render(
        title=f"{paper}, measured again",
        counts=", ".join(f"{counts[verdict]} {verdict}" for verdict in CLASSES),
        parts=[part.summary() for part in parts],
        contention=[row for part in parts for row in part.contention()],
        verdicts=[row for study in studies for row in _verdicts(study, parts)],
        twins=[table for part in parts for table in _twins(part)],
        studies=[_study(study, parts) for study in studies],
    )
    files.write(file, text)


class _Part(Reproduced):
    """One directory of `brobust reproduce`, with its runs."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        self._runs = Dataset.open(directory / "data").runs().unique("run")

    def has(self, study: model.Study) -> bool:
        return study.figure in self.about["figures"]

    def summary(self) -> dict[str, Any]:
        runs = self._runs
        host = files.read_json(self.directory / "data/dataset.json")
        paper, scale, backend = (self.about[what] for what in ("paper", "scale", "backend"))
        command = ["brobust", "reproduce", paper, "--scale", scale, "--backend", backend, *self.about.get("asked", [])]
        return {
            "backend": backend,
            "scale": scale,
            "kernels": summary.kernels(runs),
            "runs": len(runs),
            "failed": len(runs.filter(pl.col("outcome") == "failed")),
            "unfaithful": len(runs.filter(pl.col("outcome") == "unfaithful")),
            "machine": f"{host.get('cpu', '')}, Linux {host.get('host_kernel', '')}",
            "begun": host.get("begun_at", ""),
            "command": shlex.join(command),
        }

    def contention(self) -> list[dict[str, Any]]:
        runs = self._runs.filter(pl.col("outcome") != "failed")
        cells = (
            runs.group_by("timeslice_ms", "share")
            .agg(pl.col("effective_share").median(), pl.col("effective_timeslice_ms").median(), pl.len().alias("n"))
            .sort("timeslice_ms", "share")
        )
        return [
            {
                "backend": self.about["backend"],
                "timeslice": _number(row["timeslice_ms"], "{:g}"),
                "share": _number(row["share"], "{:.0%}"),
                "got_share": _number(row["effective_share"], "{:.1%}"),
                "got_timeslice": _number(row["effective_timeslice_ms"], "{:.2f}"),
                "n": row["n"],
            }
            for row in cells.iter_rows(named=True)
        ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _verdicts(study: model.Study, parts: Sequence[_Part]) -> list[dict[str, Any]]:
    """Return a row per claim of the study, with a cell for each reproduction."""
    rows = []
    for claim in study.claims:
        cells = []
        for part in parts:
            found = [one for one in part.claims if one.claim == claim.id]
            cells.append(
                {
                    "verdict": found[0].in_words if found else "",
                    "class": CLASSES[found[0].verdict] if found else "missing",
                    "runs": found[0].runs_in_words if found else "",
                    "decided_by": found[0].decided_by if found else "",
                }
            )
        row = {"claim": claim.id, "text": claim.text, "study": study.name, "figure": study.figure, "cells": cells}
        rows.append(row)
    return rows


def _twins(part: _Part) -> list[dict[str, Any]]:
    """Return a table for each variable: a row per claim, and what each value makes of it."""
    tables = []
    for variable, values, by_claim in twin_tables(part.twins):
        rows = []
        for claim, found in by_claim.items():
            cells = [
                {"outcome": twin.outcome, "measured": twin.measured, "class": CLASSES[twin.verdict]}
                for twin in map(found.get, values)
                if twin is not None
            ]
            rows.append({"claim": claim, "cells": cells})
        tables.append({"variable": variable, "values": values, "rows": rows, "backend": part.about["backend"]})
    return tables


def _study(study: model.Study, parts: Sequence[_Part]) -> dict[str, Any]:
    wanted = {claim.id for claim in study.claims}
    claims = [claim for part in parts for claim in part.claims if claim.claim in wanted and part.has(study)]
    files = [
        (part, part.directory / "figures" / f"{study.name}-{figure.name}.png")
        for figure in study.figures
        for part in parts
        if part.has(study)
    ]
    return {
        "name": study.name,
        "figure": study.figure,
        "title": study.title,
        "about": " ".join(study.about.split()),
        "images": [
            {"name": f"{file.stem}, {part.about['backend']}", "data": base64.b64encode(file.read_bytes()).decode()}
            for part, file in files
            if file.exists()
        ],
        "claims": [
            {**claim.__dict__, "class": CLASSES[claim.verdict], "in_words": claim.in_words, "runs": claim.runs_in_words}
            for claim in sorted(claims, key=lambda one: one.claim)
        ],
    }
