"""A study: a TOML file that says what to measure, what to draw of it, and what a paper claims of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brobust import files
from brobust.analysis.claims import Claim
from brobust.errors import BadInput
from brobust.scenario import Grid
from brobust.scenario.grid import override
from brobust.study import STUDIES, Scale, papers


class Figure(BaseModel):
    """One drawing of the study's runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    kind: Literal[
        "throughput",
        "bars",
        "frontier",
        "over_time",
        "model",
        "inflight",
        "gains",
        "sent",
        "flows_over_time",
        "queue",
        "windows",
    ] = "throughput"
    x: str | None = None
    value: Literal[
        "throughput_mbps", "utilization", "retransmits", "first_flow_share", "rtt_mean_ms", "skb_mean_bytes",
        "pacing_idle_ms", "cpu_busy_share",
    ] = "throughput_mbps"  # fmt: skip
    """What is drawn upwards, of kind throughput, and along, of kind bars."""
    stat: Literal["median", "deviation"] = "median"
    """Of a cell's runs, of kind throughput: their median, or their standard deviation."""
    log: bool = False
    """Upwards in decades."""
    lines: tuple[str, ...] = ()
    """Axes that have lines of their own beside the control, rather than panels."""
    where: dict[str, Any] = Field(default_factory=dict)
    seconds: tuple[float, float] | None = None
    """From when to when of the run; None: all of it."""


class Study(BaseModel):
    """One file of python/brobust/studies, or of a user's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    figure: str
    title: str
    about: str = ""
    """What the paper shows there, and what is done differently here."""
    grid: dict[str, Any] = Field(default_factory=dict)
    """Fields of a scenario (docs/scenario.md), common to all scales; a scale's own `grids` take the place of these."""
    scale: dict[Scale, dict[str, Any]] = Field(default_factory=dict)
    """What each scale changes; several [[scale.NAME.grids]] are several grids."""
    vm: dict[Scale, dict[str, Any]] = Field(default_factory=dict)
    """What backend vm changes of these; a scale that is absent is not measured there, one that is here alone nowhere
    else."""
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.paper}-{self.figure}"

    def on_kernels(self, kernels: Sequence[str]) -> Study:
        """The same study on other kernels than its own."""
        told = _without_kernel(self.model_dump(mode="json", exclude_unset=True))
        return Study.model_validate({**told, "grid": {**told.get("grid", {}), "kernel": list(kernels)}})

    def fields(self, scale: Scale, backend: str) -> dict[str, Any] | None:
        """The grid's fields; None where this study is not measured at that scale on that backend."""
        if scale not in (self.vm if backend == "vm" else self.scale):
            return None
        fields = override(self.grid, self.scale.get(scale, {}))
        if backend == "vm":
            fields = override(fields, self.vm[scale])
        return {"seed": 1, **fields, "backend": backend}


def _without_kernel(told: Any) -> Any:
    """A study as plain data, without what its grids, figures and claims say of kernels."""
    if isinstance(told, dict):
        return {key: _without_kernel(value) for key, value in told.items() if key != "kernel"}
    return [_without_kernel(value) for value in told] if isinstance(told, list) else told


def load(file: Path) -> Study:
    """A study from its file; what does not fit is refused in one line."""
    try:
        return Study.model_validate(files.read_toml(file))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{file}: {where}: {first['msg']} (given: {str(first['input'])[:80]!r})") from None


def of_paper(paper: str, figures: Sequence[str] = ()) -> list[Study]:
    """The studies of a paper, in the order of its figures."""
    if paper not in papers():
        raise BadInput(f"there are no studies of {paper!r}; there are of {', '.join(papers())}")
    found = sorted((load(file) for file in (STUDIES / paper).glob("*.toml")), key=lambda s: _number(s.figure))
    known = [study.figure for study in found]
    if unknown := [figure for figure in figures if figure not in known]:
        raise BadInput(f"--figure: {paper} has no study of figure {unknown[0]}; it has {', '.join(known)}")
    return [study for study in found if not figures or study.figure in figures]


def _number(figure: str) -> tuple[bool, int, str]:
    """Numbered ones first."""
    digits = "".join(letter for letter in figure if letter.isdigit())
    return not figure[:1].isdigit(), int(digits or 0), figure


def grid(studies: Sequence[Study], scale: Scale, backend: str) -> Grid:
    """All that these studies measure, as one grid: what two of them want is measured once."""
    parts: list[dict[str, Any]] = []
    for study in studies:
        if (fields := study.fields(scale, backend)) is not None:
            common = {key: value for key, value in fields.items() if key != "grids"}
            parts += [override(common, own) for own in fields.get("grids", [{}])]
    if not parts:
        names = ", ".join(study.name for study in studies)
        raise BadInput(
            f"{names}: not measured at scale {scale} on backend {backend}; give another --scale or --backend"
        )
    return Grid({"grids": parts})
