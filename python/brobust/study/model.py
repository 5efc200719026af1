"""Read a study: a TOML file that says what to measure, what to draw, and what a paper claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import AfterValidator, BaseModel, Field, PrivateAttr, StringConstraints, ValidationError

from brobust import files, units
from brobust.analysis import summary
from brobust.analysis.axes import NAMED, VALUES
from brobust.analysis.cells import CELL
from brobust.analysis.checks import RULES, SELECTING, AnyCheck, select
from brobust.analysis.claims import Claim
from brobust.analysis.twins import Twins
from brobust.dataset import RUNS, frame
from brobust.errors import BadInput
from brobust.scenario import Grid
from brobust.scenario.grid import one_line, override
from brobust.study import STUDIES, Scale, papers

BOUNDS = {"ratio": ("at_least", "at_most"), "reaches": ("least", "most"), "part": ("above", "below")}
"""Of these keys of a rule one has to be there."""
RANGES = {
    "ratio": ("at_least", "at_most", math.inf), "reaches": ("least", "most", math.inf),
    "part": ("at_least", "at_most", 1), "part_better": ("at_least", None, 1), "classes": ("at_least", None, 1),
}  # fmt: skip
"""The ends of what a rule allows, and what cannot be more: a part of all runs or cells is at most 1."""

# Files and directories are named after these.
Name = Annotated[str, StringConstraints(pattern=r"^\w[\w.-]*$", max_length=60)]


def _drawn(metric: str) -> str:
    if metric not in VALUES:
        raise ValueError(f"{metric!r} is none of the metrics that figures have; there are {', '.join(VALUES)}")
    return metric


class Figure(BaseModel, extra="forbid", frozen=True):
    name: Name
    title: str
    kind: Literal[
        "throughput", "bars", "frontier", "over_time", "model", "inflight", "gains", "sent", "flows_over_time", "queue",
        "windows", "gaps", "trains", "twins",
    ] = "throughput"  # fmt: skip
    x: str | None = None
    value: Annotated[str, AfterValidator(_drawn)] = "throughput_mbps"
    """The metric on the vertical axis (kind throughput) or on the horizontal axis (kind bars)."""
    stat: Literal["median", "deviation"] = "median"
    """For kind throughput: draw the median of a cell's runs, or their standard deviation."""
    log: bool = False
    """Whether the vertical axis is logarithmic."""
    lines: tuple[str, ...] = ()
    """Axes whose values are drawn as separate lines in one panel, like the controls, rather than in separate panels."""
    where: dict[str, Any] = Field(default_factory=dict)
    seconds: tuple[float, float] | None = None
    """The part of the run that is drawn, from and to; None: the whole run."""


class Study(BaseModel, extra="forbid", frozen=True):
    """One study: a file in python/brobust/studies, or the user's."""

    paper: Name
    figure: Name
    title: str
    about: str = ""
    """What the paper's figure shows, and what is done differently here."""
    grid: dict[str, Any] = Field(default_factory=dict)
    """Fields of a scenario (docs/scenario.md) that all scales share; a scale's own `grids` replace them."""
    scale: dict[Scale, dict[str, Any]] = Field(default_factory=dict)
    """What each scale changes. Several [[scale.NAME.grids]] are several grids."""
    vm: dict[Scale, dict[str, Any]] = Field(default_factory=dict)
    """Overrides for backend vm. A scale missing here is not measured on vm; a scale found only here is measured only on
    vm."""
    figures: tuple[Figure, ...] = ()
    claims: tuple[Claim, ...] = ()
    twins: tuple[Twins, ...] = ()
    """Claims of this paper that are decided again on this study's cells, for each value of a variable."""

    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    """Fields that all grids have whatever the study's file says: those of the command (--set)."""

    @property
    def name(self) -> str:
        return f"{self.paper}-{self.figure}"

    def on_kernels(self, kernels: Sequence[str]) -> Study:
        """Return this study with other kernels than its own. A claim that compares kernels has no checks there, and
        twins whose values are kernels are left out: all their cells would be the same."""
        content = self.model_dump(mode="json", exclude_unset=True)
        for claim in content.get("claims", ()):
            if any("kernel" in check.get("than", ()) for check in claim.get("checks", ())):
                claim["checks"] = []
        content["twins"] = [
            one
            for one in content.get("twins", ())
            if not any("kernel" in value.get("where", ()) for value in one["values"])
        ]
        content = _without_kernel(content)
        return Study.model_validate({**content, "grid": {**content.get("grid", {}), "kernel": list(kernels)}})

    def with_fields(self, fields: Mapping[str, Any]) -> Study:
        study = self.model_copy()
        study._given = override(self._given, fields)
        return study

    def fields(self, scale: Scale, backend: str) -> dict[str, Any] | None:
        """Return the fields of the grid; None if this study is not measured at this scale on this backend."""
        if scale not in (self.vm if backend == "vm" else self.scale):
            return None
        fields = override(self.grid, self.scale.get(scale, {}))
        if backend == "vm":
            fields = override(fields, self.vm[scale])
        if isinstance(several := fields.get("grids"), list):  # Grid refuses what is no list of tables
            own = [override(one, self._given) if isinstance(one, dict) else one for one in several]
            fields = {**fields, "grids": own}
        return {"seed": 1, **override(fields, self._given), "backend": backend}


def _without_kernel(content: Any) -> Any:
    """Return a study's content without the kernels that its grids, figures and claims name."""
    if isinstance(content, dict):
        return {key: _without_kernel(value) for key, value in content.items() if key != "kernel"}
    return [_without_kernel(value) for value in content] if isinstance(content, list) else content


def load(file: Path) -> Study:
    content = files.read_toml(file)
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{file}: {_one_line(error.errors()[0], content)}") from None
    for sentence in _misfits(study):
        raise BadInput(f"{file}: {sentence}")
    return study


# Of lists of tables: what one of them is called, and the key with its name. Checks have none, and are numbered from 1.
ONE_OF = {
    "figures": ("figure", "name"), "claims": ("claim", "id"), "checks": ("check", None),
    "twins": ("twins of", "variable"), "values": ("value", "name"),
}  # fmt: skip


def _place(loc: Sequence[str | int], content: Any) -> str:
    """Return the place in a study's file at which pydantic found something, by the names that stand there."""
    place, at = "", content
    for before, part in zip(("", *loc), loc, strict=False):
        if isinstance(part, int):
            at = at[part] if isinstance(at, list) and part < len(at) else None
            one, key = ONE_OF.get(str(before), (str(before), None))
            named = at.get(key) if isinstance(at, dict) and key is not None else None
            place = (
                f"{place.removesuffix(str(before))}{one} {units.cut(named) if isinstance(named, str) else part + 1}: "
            )
        elif isinstance(at, dict) and at.get("rule") == part:
            continue  # pydantic's word for the kind of check
        elif part != "[key]":  # of the key itself, which stands before
            at = at.get(part) if isinstance(at, dict) else None
            place += units.cut(part if not place or place.endswith(" ") else f".{part}")
    return place.removesuffix(": ")


def _one_line(error: Mapping[str, Any], content: Any) -> str:
    field = _place(error["loc"], content)
    match error["type"]:
        case "extra_forbidden":
            return f"{field}: no such key; docs/studies.md describes them all"
        case "missing":
            return f"{field}: it is missing"
        case "union_tag_not_found":
            return f"{field}: it has no rule; give rule = one of {', '.join(RULES)}"
        case "union_tag_invalid":
            return f"{field}: {units.quoted(error['ctx']['tag'])} is no rule; there are {', '.join(RULES)}"
        case "string_pattern_mismatch":
            return f"{field}: give letters, digits, '.', '-' and '_' (given: {units.quoted(error['input'])})"
    return one_line(field, error)


def _misfits(study: Study) -> Iterator[str]:
    """Yield what would fail only once all runs are measured, as sentences: selections of what no run has, and names
    that two figures or claims have."""
    for kind, names in (
        ("figures", [figure.name for figure in study.figures]),
        ("claims", [claim.id for claim in study.claims]),
    ):
        if twice := [name for name in names if names.count(name) > 1]:
            yield f"{kind}: two are called {twice[0]}; give each another name"
    for figure in study.figures:
        if figure.kind == "twins" and not study.twins:
            yield f"figure {figure.name}: kind twins shows [[twins]], and there are none"
        yield from _no_selection(f"figure {figure.name}: where", figure.where, _no_runs().columns)
        for axis in (one for one in figure.lines if one not in NAMED):
            yield f"figure {figure.name}: lines: {axis!r} is not an axis; there are {', '.join(NAMED)}"
    for claim in study.claims:
        for check in claim.checks:
            yield from _misfits_of(check, f"claim {claim.id}")
    for one in study.twins:
        for value in one.values:
            yield from _no_selection(f"twins of {one.variable}: {value.name}: where", value.where, SELECTING)


def _misfits_of(check: AnyCheck, name: str) -> Iterator[str]:
    yield from _no_selection(f"{name}: where", check.where, SELECTING)
    yield from _no_selection(f"{name}: unless", check.unless, SELECTING)
    than: dict[str, Any] | None = getattr(check, "than", None)
    if than is not None:
        yield from _no_selection(f"{name}: than", than, CELL)
        if not than:
            yield f"{name}: than: it names no axis, so each cell would be compared with itself; give one"
    along: str | None = getattr(check, "along", None)
    if along is not None and along not in CELL:
        yield f"{name}: along: {along!r} is not an axis; there are {', '.join(CELL)}"
    elif along is not None and check.rule != "equal" and not _no_runs().schema[along].is_numeric():
        yield f"{name}: along: {along!r} has words, and rule {check.rule} compares numbers; give another axis"
    bounds = BOUNDS.get(check.rule, ())
    if bounds and all(getattr(check, bound) is None for bound in bounds):
        yield f"{name}: rule {check.rule} has neither {' nor '.join(bounds)}, and would say nothing; give one"
    yield from _no_range(check, name)


def _no_range(check: AnyCheck, name: str) -> Iterator[str]:
    """Yield what every number, or none, would fulfil."""
    if check.rule not in RANGES:
        return
    lower, upper, whole = RANGES[check.rule]
    low, high = getattr(check, lower), getattr(check, upper) if upper else None
    for key, value in ((lower, low), (upper, high)):
        if value is not None and not 0 <= value <= whole:
            allowed = "a part of 1" if whole == 1 else "0 or more"
            yield f"{name}: rule {check.rule}: {key} = {value:g} is not allowed; give {allowed}"
    if low is not None and high is not None and low > high:
        yield f"{name}: rule {check.rule}: no number is {lower} {low:g} and {upper} {high:g}; exchange them"
    if whole == 1 and low == 0 and high in (None, 1):
        bounds = " or ".join(filter(None, (lower, upper)))
        yield f"{name}: rule {check.rule} would hold whatever is measured; give {bounds}"


def _no_selection(name: str, where: Mapping[str, Any], axes: Sequence[str]) -> Iterator[str]:
    """Yield what is no axis, and values that cannot be an axis's."""
    for axis, value in where.items():
        if axis not in axes:
            yield f"{name}: {axis!r} is not an axis; there are {', '.join(axes)}"
            continue
        if value == []:
            yield f"{name}: {axis}: an empty list selects no run; give at least one value"
            continue
        try:
            select(_no_runs(), {axis: value})
        except (ValueError, TypeError, pl.exceptions.PolarsError):
            is_number = _no_runs().schema[axis].is_numeric()
            allowed = 'a number, a list of numbers, or a range such as "0.1-0.25"' if is_number else "a text or a list"
            yield f"{name}: {axis}: {value!r} is not a value of it; give {allowed}"
            continue
        if isinstance(value, str) and _no_runs().schema[axis].is_numeric():
            low, _, high = value.partition("-")  # as select() reads it
            if not float(low) <= float(high):
                yield f"{name}: {axis}: the range {value!r} selects no run; write the smaller number first"


@cache
def _no_runs() -> pl.DataFrame:
    """Return a table of runs without any: its columns and their types."""
    return summary.runs(frame(None, RUNS))


def of_paper(paper: str, figures: Sequence[str] = ()) -> list[Study]:
    """Return the studies of a paper, or of the user's file or directory of files, in the order of their figures."""
    found = sorted((load(file) for file in _files_of(paper)), key=lambda s: _number(s.figure))
    known = [study.figure for study in found]
    if twice := [figure for figure in known if known.count(figure) > 1]:
        raise BadInput(f"{paper}: two studies are of figure {twice[0]}; give each another name")
    if len(of := sorted({study.paper for study in found})) > 1:
        raise BadInput(f"{paper}: its studies are of several papers ({', '.join(of)}); give those of one")
    claims = [claim.id for study in found for claim in study.claims]
    if twice := [claim for claim in claims if claims.count(claim) > 1]:
        raise BadInput(f"{paper}: two claims are called {twice[0]}; give each another id")
    for one in (twins for study in found for twins in study.twins):
        if unknown := [claim for claim in one.of if claim not in claims]:
            there = ", ".join(claims) or "none"
            raise BadInput(f"{paper}: twins of {unknown[0]!r}: there is no such claim; there are {there}")
    if unknown := [figure for figure in figures if figure not in known]:
        raise BadInput(f"--figure: {paper} has no study of figure {unknown[0]}; it has {', '.join(known)}")
    return [study for study in found if not figures or study.figure in figures]


def _files_of(paper: str) -> list[Path]:
    """Return the studies' files of a paper, or those that a path names."""
    own = Path(paper)
    if paper in papers() or own.is_dir():
        directory = STUDIES / paper if paper in papers() else own
        if found := list(directory.glob("*.toml")):
            return found
        raise BadInput(f"{paper} holds no study (.toml); give a directory that does, or one of {', '.join(papers())}")
    if own.suffix == ".toml":
        return [own]
    raise BadInput(
        f"there are no studies of {paper!r}, only of {', '.join(papers())}; or give a study's file (.toml), or a "
        "directory of such files"
    )


def _number(figure: str) -> tuple[bool, int, str]:
    """Return a key that sorts figures by number, with those without a number last."""
    digits = "".join(letter for letter in figure if letter.isdigit())
    return not figure[:1].isdigit(), int(digits or 0), figure


def grids(studies: Sequence[Study], scale: Scale, backend: str) -> list[tuple[Study, Grid]]:
    """Return those of the studies that are measured at this scale on this backend, each with its grid."""
    of_each = [(study, study.fields(scale, backend)) for study in studies]
    found = [(study, Grid(fields)) for study, fields in of_each if fields is not None]
    if not found:
        names = ", ".join(study.name for study in studies)
        raise BadInput(
            f"{names}: not measured at scale {scale} on backend {backend}; give another --scale or --backend"
        )
    return found


def grid(studies: Sequence[Study], scale: Scale, backend: str) -> Grid:
    """Return one grid for all these studies. A cell that two of them need is measured once."""
    return Grid.together([of_it for _, of_it in grids(studies, scale, backend)])
