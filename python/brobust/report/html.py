"""One self-contained HTML file of a reproduction: what was run, each figure beside its claims, and how to repeat it."""

from __future__ import annotations

import base64
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from pydantic import BaseModel, TypeAdapter

from brobust import files
from brobust.analysis.claims import DIFFERS, HOLDS, NOT_MEASURABLE, Verdict
from brobust.dataset import Dataset
from brobust.errors import BadInput
from brobust.study import model

CLASSES = {HOLDS: "holds", DIFFERS: "differs", NOT_MEASURABLE: "missing"}


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
    counts = Counter(claim["verdict"] for part in parts for claim in part.claims)
    text = environment.get_template("reproduction.html").render(
        title=f"{paper}, measured again",
        counts={verdict: counts[verdict] for verdict in CLASSES},
        parts=[part.summary() for part in parts],
        contention=[row for part in parts for row in part.contention()],
        verdicts=[row for study in studies for row in _verdicts(study, parts)],
        studies=[_study(study, parts) for study in studies],
    )
    files.write(file, text)


class _About(BaseModel):
    """What `brobust reproduce` writes into reproduction.json."""

    paper: str
    scale: str
    backend: str
    figures: list[str]
    asked: list[str] = []


class _Part:
    """One directory of `brobust reproduce`."""

    def __init__(self, directory: Path):
        self.directory = directory
        try:
            self.about = _About.model_validate_json((directory / "reproduction.json").read_bytes()).model_dump()
            lines = (directory / "claims.jsonl").read_bytes().splitlines()
            self.claims = [TypeAdapter(Verdict).validate_json(line).__dict__ for line in lines]
            if unknown := {claim["verdict"] for claim in self.claims} - set(CLASSES):
                raise ValueError(f"unknown verdicts: {unknown}")
        except (OSError, ValueError, RecursionError):
            raise BadInput(
                f"{directory} holds no finished reproduction; `brobust reproduce --out {directory}` makes one"
            ) from None
        self._runs = Dataset.open(directory / "data").runs().unique("run")

    def has(self, study: model.Study) -> bool:
        return study.figure in self.about["figures"]

    def summary(self) -> dict[str, Any]:
        runs = self._runs
        host = json.loads((self.directory / "data/dataset.json").read_bytes())
        kernels = sorted(str(release) for release in runs["kernel_release"].unique().drop_nulls())
        paper, scale, backend = (self.about[what] for what in ("paper", "scale", "backend"))
        command = ["brobust", "reproduce", paper, "--scale", scale, "--backend", backend, *self.about.get("asked", [])]
        return {
            "backend": backend,
            "scale": scale,
            "kernels": ", ".join(kernels),
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


def _number(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)


def _verdicts(study: model.Study, parts: Sequence[_Part]) -> list[dict[str, Any]]:
    """Return a row per claim of the study, with a cell for each reproduction."""
    rows = []
    for claim in study.claims:
        cells = []
        for part in parts:
            found = [one["verdict"] for one in part.claims if one["claim"] == claim.id]
            cells.append({"verdict": found[0] if found else "", "class": CLASSES[found[0]] if found else "missing"})
        row = {"claim": claim.id, "text": claim.text, "study": study.name, "figure": study.figure, "cells": cells}
        rows.append(row)
    return rows


def _study(study: model.Study, parts: Sequence[_Part]) -> dict[str, Any]:
    wanted = {claim.id for claim in study.claims}
    claims = [claim for part in parts for claim in part.claims if claim["claim"] in wanted and part.has(study)]
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
        "claims": [{**claim, "class": CLASSES[claim["verdict"]]} for claim in sorted(claims, key=lambda c: c["claim"])],
    }
