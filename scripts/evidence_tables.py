"""The kinds of tables that scripts/evidence.py makes of sheets of docs/data. docs/data/tables.toml describes each.

    [throughput]                    # <!-- made: throughput --> in a page
    kind = "cells"                  # medians of one column, over two axes
    data = "findings"               # docs/data/findings
    sheet = "metrics.csv"           # [cells.csv]
    where = { metric = "late_mbps", timeslice_ms = 10 }
    rows = ["share"]                # axes; with one value per row of the table
    columns = ["cc"]                # axes; their values are the headings
    order = { cc = ["cubic", "bbr"], share = [1, 0.5] }   # which values, and in which order [all, as in the sheet]
    names = { cubic = "CUBIC" }     # headings and values in other words
    value = "median"                # [throughput_mbps of cells.csv, median of metrics.csv]
    digits = 1                      # after the point [three digits in all]
    interval = true                 # with the ends of the interval

Other kinds: `machines` (reports that were sent: docs/data/machines, scripts/add_report.py; `part` is `validation` or
`checks`), `rows` (a sheet as it is: `columns = { share = "CPU" }` says which columns, and their headings, of which the
first `words` are not numbers; with `numbers = true` the others have three digits in all), `number` (of one cell; with
`nth = 2` the second one that stands in it), `claims` and `papers` (the tables of docs/reproduction.md and
docs/reproduction/numbers.md, or with `score = true` only their scores; `claims` with `own = true`: those that are no
paper's, of docs/reproduction/own.md).
"""

import csv
import io
import itertools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, str]
VERDICTS = HOLDS, IN_PART, DIFFERS, NOT_MEASURABLE = "holds", "holds in part", "differs", "not measurable"


def made(table: dict[str, Any], data: Path, page: Path) -> str:
    """Return a table as Markdown, with a line below it that says where its numbers are from. Raise LookupError or
    ValueError where none can be made of it; KeyError with a key, or a column, that is missing."""
    if table.get("kind") not in KINDS:
        raise ValueError(f"kind = {table.get('kind')!r}: there is no such kind, only {', '.join(KINDS)}")
    return KINDS[table["kind"]](table, data, page)


def read(data: Path, name: str, sheet: str) -> list[Row]:
    """Return the rows of a sheet, with the columns that are the same everywhere; none of one that is not there."""
    if not (data / name / sheet).exists():
        return []
    everywhere = provenance(data, name).get("everywhere", {})
    with (data / name / sheet).open(newline="") as file:
        return [{**everywhere, **row} for row in csv.DictReader(file)]


def provenance(data: Path, name: str) -> dict[str, Any]:
    return json.loads((data / name / "provenance.json").read_text())


def source(data: Path, page: Path, name: str) -> str:
    """Return in one line where numbers are from: measured by which command, or copied."""
    record = provenance(data, name)
    link = f"[{name}]({os.path.relpath(data / name, page.parent)})"
    if record["how"] == "measured":
        return f"Data: {link}, measured {record['date']} at {record['commit']}."
    return f"Data: {link}, copied, not remade ({record['stated']})."


def cells(table: dict[str, Any], data: Path, page: Path) -> str:
    chosen = _chosen(table, data)
    on, across = table["rows"], table["columns"]
    names, order = table.get("names", {}), table.get("order", {})
    headings = list(_places(chosen, across, order))
    rows = []
    for place in _places(chosen, on, order):
        here = _at(chosen, on, place)
        rows.append([*_named(on, place, names), *(_one(table, _at(here, across, values)) for values in headings)])
    named = (filter(None, _named(across, values, names)) for values in headings)
    titles = [*(names.get(axis, axis) for axis in on), *map(", ".join, named)]
    return _markdown(titles, rows, len(on)) + f"\n\n{_n(chosen)}{source(data, page, table['data'])}"


def number(table: dict[str, Any], data: Path, page: Path) -> str:
    chosen = _chosen(table, data)
    if "nth" not in table:
        return _one(table, chosen)
    [row] = chosen
    return _digits(table, re.findall(r"\d+(?:\.\d+)?", row[table["value"]])[table["nth"] - 1])


def rows(table: dict[str, Any], data: Path, page: Path) -> str:
    columns = table["columns"]
    words = table.get("words", 1)
    shown = [[row[name] for name in columns] for row in _chosen(table, data)]
    if table.get("numbers"):
        shown = [[*row[:words], *(_digits(table, text) for text in row[words:])] for row in shown]
    return _markdown(list(columns.values()), shown, words) + f"\n\n{source(data, page, table['data'])}"


@dataclass(frozen=True)
class Judged:
    """A claim of docs/data/claims.csv, and the one verdict on it."""

    study: str
    claim: str
    words: str
    verdict: str
    parts: str
    decided: str
    """In words: with which values of which variables the verdict is better, or worse if it holds."""
    can_hold: bool
    """Whether it holds with some value of a variable that the paper does not give."""
    row: Row
    data: str
    """Name of the directory with its verdict and cells."""


def judged(table: dict[str, Any], data: Path) -> Iterator[Judged]:
    """Yield every claim with its verdict: that of the first of its study's data which has one, also with each value of
    what a paper does not give. A paper's claims are those of docs/data/claims.csv, which has few words for each; our
    own are those that were decided, where it has words for those that need their study beside them."""
    listed = _listed(data)
    for study, names in table["data"].items():
        found = _verdicts(data, names)
        tried: dict[tuple[str, ...], Row] = {}
        for name in names:
            for row in read(data, name, "twins.csv"):
                tried.setdefault((row["claim"], row["variable"], row["value"]), row)
        of_study = listed.get(study, [])
        if study not in table["papers"]:
            words = {one["claim"]: one["words"] for one in of_study}
            of_study = [
                {"study": study, "claim": claim, "words": words.get(claim, row["text"]), "of": ""}
                for claim, (_, row) in found.items()
            ]
        for one in of_study:
            if found.keys() >= set(_decided_as(one)):
                yield _judged(one, found, list(tried.values()))


def undecided(table: dict[str, Any], data: Path) -> Iterator[tuple[str, str]]:
    """Yield study and claim of each row of docs/data/claims.csv on which no data have a verdict."""
    for study, rows_of_study in _listed(data).items():
        found = _verdicts(data, table["data"].get(study, ()))
        yield from ((study, claim) for one in rows_of_study for claim in _decided_as(one) if claim not in found)


def _listed(data: Path) -> dict[str, list[Row]]:
    """Return the rows of docs/data/claims.csv by their studies."""
    listed: dict[str, list[Row]] = {}
    with (data / "claims.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            listed.setdefault(row["study"], []).append(row)
    return listed


def _verdicts(data: Path, names: Iterable[str]) -> dict[str, tuple[str, Row]]:
    """Return each claim's verdict and where it is from: the first of these data that have one."""
    found: dict[str, tuple[str, Row]] = {}
    for name in names:
        for row in read(data, name, "verdicts.csv"):
            if row["claim"] not in found or found[row["claim"]][1]["verdict"] == NOT_MEASURABLE:
                found[row["claim"]] = (name, row)
    return found


def _decided_as(one: Row) -> list[str]:
    """Return the claims as which a row of docs/data/claims.csv was decided: itself, or several."""
    return (one["of"] or one["claim"]).split("|")


def _judged(one: Row, found: dict[str, tuple[str, Row]], tried: Sequence[Row]) -> Judged:
    claims = _decided_as(one)
    (name, row), verdict = found[claims[0]], found[claims[0]][1]["verdict"]
    parts = ""
    if verdict == IN_PART and row["parts_that_hold"]:
        parts = f"{row['parts_that_hold']}; **not:** {row['parts_that_do_not']}"
    if len(claims) > 1:  # a claim that was decided in several, each with a verdict of its own
        of_each = {claim: found[claim][1]["verdict"] for claim in claims}
        same = set(of_each.values())
        verdict = same.pop() if len(same) == 1 else IN_PART
        parts = "; ".join(f"{claim.partition('(')[2].rstrip(')')}: {of}" for claim, of in of_each.items())
    mine = [twin for twin in tried if twin["claim"] in claims]
    can_hold = any(twin["verdict"] == HOLDS for twin in mine)
    return Judged(
        one["study"], one["claim"], one["words"], verdict, parts, _decided(mine, verdict), can_hold, row, name
    )


def _decided(mine: Sequence[Row], verdict: str) -> str:
    words = []
    for variable in dict.fromkeys(twin["variable"] for twin in mine):
        outcomes: dict[str, list[str]] = {}
        for twin in mine:
            if twin["variable"] == variable:
                outcomes.setdefault(twin["verdict"], []).append(twin["value"])
        ranked = sorted(outcomes, key=VERDICTS.index)
        better = [one for one in ranked if VERDICTS.index(one) < VERDICTS.index(verdict)]
        worse = [one for one in ranked if VERDICTS.index(one) > VERDICTS.index(verdict) and one != NOT_MEASURABLE]
        if shown := better[:1] or (worse if verdict == HOLDS else []):
            with_them = (f"{one} with {'; '.join(dict.fromkeys(outcomes[one]))}" for one in shown)
            words.append(f"{variable}: {', and '.join(with_them)}")
    return ". ".join(words)


def claims(table: dict[str, Any], data: Path, page: Path) -> str:
    """Return a table of the claims of each paper; with `own`, of each study of ours; with `score`, how many of all
    hold."""
    every = list(judged(table, data))
    named = _named_claims(every)
    own = table.get("own", False)
    papers, ours = ([one for one in every if (one.study in table["papers"]) == of] for of in (True, False))
    if table.get("score"):
        blocks = [f"**{len(papers)} claims of {len(table['papers'])} papers:** {_score(papers)}"]
        if ours:
            blocks.append(f"**{len(ours)} of our own:** {_score(ours, decided=False)}")
        return "\n\n".join(blocks)
    headings = ["claim", "what it says", "verdict", "decided by", "runs of a cell, with", "what was measured"]
    if own:
        headings.remove("decided by")  # what a paper does not give decides; ours say all
    blocks = []
    shown = ours if own else papers
    for study in dict.fromkeys(one.study for one in shown):
        mine = sorted((one for one in shown if one.study == study), key=_in_order)
        title, where = table["titles"][study].split("|")
        details = os.path.relpath(data.parent / where, page.parent)
        with_each = [_with(one.row) for one in mine]
        usual = max(with_each, key=lambda with_it: any(with_it) * with_each.count(with_it))
        said = f"Where nothing else is said, with: {', '.join(filter(None, usual))}."
        if own:
            blocks.append(f"**[{title}]({details})**: {_score(mine, decided=False)} {said}")
        else:
            blocks.append(f"## {title}\n\n{_score(mine)} [Details]({details}). {said}")
        rows = []
        for one in mine:
            row = {
                "claim": named[one.study, one.claim],
                "what it says": one.words,
                "verdict": _shown(one),
                "decided by": one.decided,
                "runs of a cell, with": _runs(one.row, usual),
                "what was measured": _link(data, page, one.data),
            }
            rows.append([row[heading] for heading in headings])
        blocks.append(_markdown(headings, rows, len(headings)))
    return "\n\n".join(blocks)


def _named_claims(every: Sequence[Judged]) -> dict[tuple[str, str], str]:
    """Return each claim's name with the anchor that `brobust docs` opens, as r8; where an earlier study has a claim of
    that name, as pacer-p1."""
    named: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for one in every:
        anchor = re.sub(r"\W+", "-", one.claim.lower()).strip("-")
        anchor = f"{one.study}-{anchor}" if anchor in taken else anchor
        taken.add(anchor)
        named[one.study, one.claim] = f'<a id="{anchor}"></a>{one.claim}'
    return named


def _in_order(one: Judged) -> list[Any]:
    """Return what puts S2 before S10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", one.claim)]


def _shown(one: Judged) -> str:
    basis = f" ({one.row['basis']})" if one.row["basis"] else ""
    return f"**{one.verdict}**{basis}" + (f": {one.parts}" if one.parts else "")


def _score(every: Sequence[Judged], decided: bool = True) -> str:
    """Return how many hold, and how many do not; `decided`: of these also, how many hold with some value of what their
    paper does not give."""
    of = {verdict: [one for one in every if one.verdict == verdict] for verdict in VERDICTS}
    words = [f"{len(of[HOLDS])} hold"]
    for verdict, name in ((IN_PART, "hold in part"), (DIFFERS, "differ")):
        found, can_hold = len(of[verdict]), sum(one.can_hold for one in of[verdict])
        shown = f" ({can_hold} decided, {found - can_hold} undecided)" if found and decided else ""
        words.append(f"{found} {name}{shown}")
    return ", ".join([*words, f"{len(of[NOT_MEASURABLE])} not measurable"]) + "."


def _with(row: Row) -> tuple[str, ...]:
    pacing = f"paced by {row['pacing']}" if row["pacing"] else ""
    return row["schedule"], row["buffer"], pacing, row["kernel"].replace("virtual-", "")


def _runs(row: Row, usual: Sequence[str]) -> str:
    """Return how many runs a cell has, and what differs from what is usual in its study."""
    runs = row["runs"] or (f"{row['n']} runs" if row["n"] else "")
    return "; ".join([runs, *(of for of, mostly in zip(_with(row), usual, strict=True) if of and of != mostly)])


def _link(data: Path, page: Path, name: str) -> str:
    sheet = "verdicts.csv" if (data / name / "verdicts.csv").exists() else "cells.csv"
    copied = "" if provenance(data, name)["how"] == "measured" else " (copied)"
    return f"[{name}]({os.path.relpath(data / name / sheet, page.parent)}){copied}"


@dataclass(frozen=True)
class Number:
    """A number that a paper states, and ours."""

    row: Row
    ours: float | None
    low: float | None
    high: float | None

    @property
    def how_near(self) -> str:
        """Return the class of the score; empty if we have no such number, or if it was fitted."""
        if self.ours is None or self.row["fitted"]:
            return ""
        theirs = float(self.row["value"])
        if self.row["kind"] != "is":
            return KEPT if (self.ours <= theirs) == (self.row["kind"] == "at most") else NOT_KEPT
        if self.row["neutral"] and (self.ours - float(self.row["neutral"])) * (theirs - float(self.row["neutral"])) < 0:
            return OPPOSITE
        if self.low is not None and self.high is not None and self.low <= theirs <= self.high:
            return WITHIN
        ratio = self.ours / theirs
        return NEAR if 0.9 <= ratio <= 1.1 else FACTOR_2 if 0.5 <= ratio <= 2 else FAR


WITHIN, NEAR, FACTOR_2, FAR = "within our interval", "within 10 %", "within a factor of 2", "further away"
OPPOSITE, KEPT, NOT_KEPT = "on the other side of no effect", "bound kept", "bound not kept"
NEARNESS = (WITHIN, NEAR, FACTOR_2, FAR, OPPOSITE, KEPT, NOT_KEPT)


def papers(table: dict[str, Any], data: Path, page: Path) -> str:
    """Return the score of the numbers that papers state, and below it those that are far from ours."""
    every = _numbers(data)
    counts = {name: sum(one.how_near == name for one in every) for name in NEARNESS}
    score = ", ".join(f"{counts[name]} {name}" for name in (WITHIN, NEAR, FACTOR_2, FAR, OPPOSITE))
    bounds = counts[KEPT] + counts[NOT_KEPT]
    fitted = sum(bool(one.row["fitted"]) for one in every)
    lacking = sum(one.ours is None and not one.row["fitted"] for one in every)
    score = (
        f"**Of {sum(counts.values()) - bounds} values that the papers state:** {score}. Of {bounds} bounds, "
        f"{counts[KEPT]} are kept. {fitted} more values were fitted, and do not count; of {lacking} we have no number."
    )
    if table.get("score"):
        return score
    shown = [
        [one.row["claim"], f"{one.row['quantity']} ({one.row['where']})", _theirs(one.row), _ours(one), _ratio(one),
         one.how_near]
        for one in every if one.how_near in (FAR, OPPOSITE, NOT_KEPT)
    ]  # fmt: skip
    return "\n\n".join([score, _markdown(["claim", "number", "paper", "ours", "ratio", ""], shown, 6)])


def papers_sheet(data: Path) -> str:
    """Return every number that a paper states beside ours, as CSV."""
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator="\n")
    sheet.writerow(["paper", "claim", "number", "where", "the paper's", "ours", "ratio", "how near", "data"])
    for one in _numbers(data):
        near = one.how_near or ("fitted" if one.row["fitted"] else "")
        words = [one.row[name] for name in ("paper", "claim", "quantity", "where")]
        sheet.writerow([*words, _theirs(one.row), _ours(one), _ratio(one), near, one.row["data"]])
    return text.getvalue()


def _numbers(data: Path) -> list[Number]:
    with (data / "papers.csv").open(newline="") as file:
        return [_number(row, data) for row in csv.DictReader(file)]


def _theirs(row: Row) -> str:
    bound = {"is": "", "at most": "at most ", "at least": "at least "}[row["kind"]]
    return f"{bound}{float(row['value']):g} {row['unit']}".rstrip()


def _ours(one: Number) -> str:
    if one.ours is None:
        return ""
    between = f" [{one.low:.3g}, {one.high:.3g}]" if one.low is not None and one.high is not None else ""
    return "never" if math.isinf(one.ours) else f"{one.ours:.3g}{between}"


def _ratio(one: Number) -> str:
    return "" if one.ours is None or math.isinf(one.ours) else f"{one.ours / float(one.row['value']):.2f}"


def _number(row: Row, data: Path) -> Number:
    """Return a paper's number with ours. `find`, as in "least 2": the number behind the second such word in what was
    measured for the claim; "interval 2": the second one that has an interval. `select`: a cell's; `over`: over it."""
    if row["find"]:
        measured = {one["claim"]: one["measured"] for one in read(data, row["data"], "verdicts.csv")}
        word, _, nth = row["find"].partition(" ")
        interval = r" \[([\d.]+), ([\d.]+)\]"
        behind = rf"([\d.]+){interval}" if word == "interval" else rf"{word} (never|[\d.]+)(?:{interval})?"
        found = re.match(rf"(?:.*?{behind}){{{nth}}}", measured[row["claim_of_ours"] or row["claim"]])
        if found is None:
            raise ValueError(f"docs/data/papers.csv: no {row['find']!r} in what was measured for {row['claim']}")
        ours, low, high = found.groups()
        between = (float(low), float(high)) if low else (None, None)
        return Number(row, math.inf if ours == "never" else float(ours), *between)
    if not row["select"]:
        return Number(row, None, None, None)
    try:
        value, low, high = _cell(row, row["select"], data)
    except LookupError:
        return Number(row, None, None, None)
    if row["over"]:
        than, than_low, than_high = _cell(row, row["over"], data)
        low, high = (low and than_high and low / than_high), (high and than_low and high / than_low)
        value /= than
    return Number(row, value, low, high)


def _cell(row: Row, words: str, data: Path) -> tuple[float, float | None, float | None]:
    """Return value, low and high of the cell that these words select, as in `figure=2;cc=bbr;flows=20`: the median
    throughput, or with `metric=` another median, or with `column=` what is in that column."""
    where = dict(word.partition("=")[::2] for word in words.split(";"))
    columns = ("median", "low", "high") if "metric" in where else ("throughput_mbps", "low_mbps", "high_mbps")
    if "column" in where:
        columns = (where.pop("column"), "", "")
    sheet = "metrics.csv" if "metric" in where else "cells.csv"
    chosen = _chosen({"data": row["data"], "sheet": sheet, "where": where}, data)
    texts = {tuple(one.get(name, "") for name in columns) for one in chosen}
    if len(texts) > 1:
        raise ValueError(f"docs/data/papers.csv: {len(texts)} cells for {words!r}")
    value, low, high = texts.pop()
    return float(value), float(low) if low else None, float(high) if high else None


def machines(table: dict[str, Any], data: Path, page: Path) -> str:
    """Return a row for each report that has this part, in the order of their dates, with which their names begin."""
    reports = {file: tomllib.loads(file.read_text()) for file in sorted((data / table["data"]).glob("*.toml"))}
    of_part = {file: report for file, report in reports.items() if table["part"] in report}
    if not of_part:
        return "None yet."
    row = _validated if table["part"] == "validation" else _checked
    shown = [[*_machine(report), *row(report), _report(file, page)] for file, report in of_part.items()]
    headings = ["machine", "Linux", "below it", *(VALIDATED if row is _validated else CHECKED), "report"]
    return _markdown(headings, shown, len(headings))


VALIDATED = ("real time by", "cells x runs", "median", "90th percentile", "settled", "load before")
CHECKED = ("KVM", "BPF controls", "SCHED_DEADLINE", "vm can run")


def _machine(report: dict[str, Any]) -> list[str]:
    machine = report["machine"]
    below = machine["virtualization"] + (f", {machine['container']}" if machine["container"] != "none" else "")
    return [f"{machine['cpus']} CPUs of {machine['cpu']}, {machine['architecture']}", machine["kernel"], below]


def _validated(report: dict[str, Any]) -> list[str]:
    found = report["validation"]
    settled = (f"{found[f'settled_{name}_abs_ln_ratio']:.3f}" for name in ("median", "p90"))
    how = f"{found['accelerator']}, {found['kernel']}" if "accelerator" in found else _of_lab(found["host"])
    return [
        how, f"{found['cells']} x {found['runs'] // found['cells']}",
        f"{found['median_abs_ln_ratio']:.3f}", f"{found['p90_abs_ln_ratio']:.3f}", ", ".join(settled),
        f"{found['load_before']:g}",
    ]  # fmt: skip


def _of_lab(hosts: list[dict[str, Any]]) -> str:
    """Return in words what the sender of backend lab was: the machine of the row has made the runs in virtual time."""
    sender = next(one for one in hosts if one["part"] == "sender")
    return f"lab, a sender with {sender['cpus']} CPUs of {sender['cpu']}, {sender['kernel']}"


def _checked(report: dict[str, Any]) -> list[str]:
    found = report["checks"]
    status = [found.get(name, "unknown").partition(":")[0] for name in ("KVM", "struct_ops", "SCHED_DEADLINE")]
    lacking = [name for name, said in found.items() if said.startswith("missing")]
    return [*status, f"no: {', '.join(lacking)}" if lacking else "yes"]


def _report(file: Path, page: Path) -> str:
    return f"[{file.stem[:10]}]({os.path.relpath(file, page.parent)})"


def _chosen(table: dict[str, Any], data: Path) -> list[Row]:
    sheet = table.get("sheet", "cells.csv")
    if not (data / table["data"] / sheet).exists():
        how = f"`make evidence ARGS='--only {table['data']}'` makes it, as docs/data/evidence.toml describes it"
        raise LookupError(f"docs/data/{table['data']} has no {sheet}; {how}")
    found = read(data, table["data"], sheet)
    for axis, value in table.get("where", {}).items():
        if found and axis not in found[0]:
            raise ValueError(f"docs/data/{table['data']}/{sheet} has no column {axis!r}")
        wanted = value if isinstance(value, list) else [value]
        found = [row for row in found if any(_same(row[axis], one) for one in wanted)]
    if not found:
        raise LookupError(f"docs/data/{table['data']}/{sheet} has no row for {table.get('where')}")
    return found


def _same(text: str, value: Any) -> bool:
    """Return whether a sheet's text is this value: numbers are compared as numbers."""
    if isinstance(value, str) and not re.fullmatch(r"[\d.]+", value):
        return text == value
    try:
        return abs(float(text) - float(value)) < 1e-9
    except ValueError:
        return text == str(value)


def _places(chosen: Sequence[Row], axes: Sequence[str], order: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield the values that cells have on these axes, in the order that was asked for, else in the sheet's."""
    each = [order.get(axis) or list(dict.fromkeys(row[axis] for row in chosen)) for axis in axes]
    return (place for place in itertools.product(*each) if _at(chosen, axes, place))


def _at(chosen: Sequence[Row], axes: Sequence[str], place: Sequence[Any]) -> list[Row]:
    """Return the rows that have these values on these axes."""
    return [row for row in chosen if all(_same(row[axis], value) for axis, value in zip(axes, place, strict=True))]


def _one(table: dict[str, Any], found: Sequence[Row]) -> str:
    """Return the value of one cell, with its interval if that was asked for."""
    if len(found) > 1:
        differ = [name for name in found[0] if len({row[name] for row in found}) > 1]
        raise ValueError(f"{len(found)} rows for one cell; they differ in {', '.join(differ)}")
    if not found or not found[0][_value(table)]:
        return ""
    low, high = ("low", "high") if _value(table) == "median" else ("low_mbps", "high_mbps")
    text = _digits(table, found[0][_value(table)])
    if table.get("interval") and found[0].get(low):
        text += f" [{_digits(table, found[0][low])}, {_digits(table, found[0][high])}]"
    return text


def _value(table: dict[str, Any]) -> str:
    return str(table.get("value", "median" if table.get("sheet") == "metrics.csv" else "throughput_mbps"))


def _digits(table: dict[str, Any], text: str) -> str:
    return f"{float(text):.{table['digits']}f}" if "digits" in table else f"{float(text):.3g}"


def _named(axes: Sequence[str], values: Sequence[Any], names: dict[str, str]) -> list[str]:
    """Return the values of axes as people read them."""

    def one(axis: str, text: str) -> str:
        return names.get(text) or (f"{float(text) * 100:g} %" if axis in ("share", "loss") else text)

    return [one(axis, f"{v:g}" if isinstance(v, float) else str(v)) for axis, v in zip(axes, values, strict=True)]


def _n(chosen: Sequence[Row]) -> str:
    counts = sorted({int(row["n"]) for row in chosen if row.get("n")})
    return f"n = {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''}. " if counts else ""


def _markdown(headings: Sequence[str], shown: Iterable[Sequence[str]], words: int) -> str:
    """Return a table; the first `words` columns are words, the others numbers."""
    rule = ["---"] * words + ["--:"] * (len(headings) - words)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (headings, *shown)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]]).replace("|  |", "| |").replace("|  |", "| |")


KINDS: dict[str, Callable[[dict[str, Any], Path, Path], str]] = {
    one.__name__: one for one in (cells, number, rows, claims, papers, machines)
}
