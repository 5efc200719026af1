"""One self-contained HTML file of a reproduction: what was run, each figure beside its claims, and how to repeat it."""

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
from brobust.analysis.claims import DIFFERS, HOLDS, IN_PART, NOT_MEASURABLE, Claim, Verdict
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
    named = {study.name: study for part in parts for study in part.studies}
    studies = [study for study in named.values() if any(part.has(study) for part in parts)]
    counts = Counter(claim.verdict for part in parts for claim in part.claims)
    text = environment.get_template("reproduction.html").render(
        title=f"{paper}, measured again",
        counts=", ".join(f"{counts[verdict]} {verdict}" for verdict in CLASSES),
        classes=CLASSES,
        parts=[part.summary() for part in parts],
        contention=[row for part in parts for row in part.contention()],
        verdicts=[(study, claim, [part.on(claim) for part in parts]) for study in studies for claim in study.claims],
        twins=[(part.about["backend"], *table) for part in parts for table in twin_tables(part.twins)],
        studies=[(study, _images(study, parts), _verdicts(study, parts)) for study in studies],
    )
    files.write(file, text)


class _Part(Reproduced):
    """One directory of `brobust reproduce`, with its runs."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        self._flows = Dataset.open(directory / "data").runs()

    def has(self, study: model.Study) -> bool:
        return study.figure in self.about["figures"]

    def on(self, claim: Claim) -> Verdict | None:
        """Return the verdict on a claim; None where it was not decided."""
        return next((one for one in self.claims if one.claim == claim.id), None)

    def summary(self) -> dict[str, Any]:
        runs = self._flows.unique("run")
        host = files.read_json(self.directory / "data/dataset.json")
        scale, backend, paper = self.about["scale"], self.about["backend"], self.about["of"] or self.about["paper"]
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
        runs = self._flows.filter(pl.col("outcome") != "failed").unique(["run", "sender"])
        cells = (
            runs.group_by("timeslice_ms", "share")
            .agg(pl.col("effective_share", "effective_timeslice_ms").median(), n=pl.col("run").n_unique())
            .sort("timeslice_ms", "share")
        )
        return [{"backend": self.about["backend"], **row} for row in cells.iter_rows(named=True)]


def _images(study: model.Study, parts: Sequence[_Part]) -> list[dict[str, str]]:
    """Return the study's figures that were drawn, each with what it shows in words and its PNG in base64."""
    files = [
        (part, figure.title, part.directory / "figures" / f"{study.name}-{figure.name}.png")
        for figure in study.figures
        for part in parts
        if part.has(study)
    ]
    return [
        {
            "words": f"{study.paper}, figure {study.figure}: {title} (backend {part.about['backend']})",
            "data": base64.b64encode(_picture(file)).decode(),
        }
        for part, title, file in files
        if file.exists()
    ]


def _picture(file: Path) -> bytes:
    """Return the content of a PNG; refuse anything else: the directory may be a stranger's, with a link to a file that
    its reader would not put into a page."""
    content = files.read(file, files.MAX_PICTURE)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise BadInput(f"{file}: is no PNG; draw the figures again, or remove it")
    return content


def _verdicts(study: model.Study, parts: Sequence[_Part]) -> list[Verdict]:
    """Return the verdicts on the study's claims, those of all reproductions beside each other."""
    wanted = {claim.id for claim in study.claims}
    found = (verdict for part in parts if part.has(study) for verdict in part.claims if verdict.claim in wanted)
    return sorted(found, key=lambda one: one.claim)
