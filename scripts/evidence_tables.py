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

Other kinds: `rows` (a sheet as it is: `columns = { share = "CPU" }` says which columns, and their headings),
`verdicts`, `twins`, `number` (of one cell), `claims` (the table of docs/reproduction.md).
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, str]
VERDICTS = HOLDS, IN_PART, DIFFERS, NOT_MEASURABLE = "holds", "holds in part", "differs", "not measurable"


def made(table: dict[str, Any], data: Path, page: Path) -> str:
    """Return a table as Markdown, with a line below it that says where its numbers are from."""
    return KINDS[table["kind"]](table, data, page)


def read(data: Path, name: str, sheet: str) -> list[Row]:
    """Return the rows of a sheet, with the columns that are the same everywhere."""
    everywhere = provenance(data, name).get("everywhere", {})
    with (data / name / sheet).open(newline="") as file:
        return [{**everywhere, **row} for row in csv.DictReader(file)]


def provenance(data: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / name / "provenance.json").read_text())
    return found


def source(data: Path, page: Path, name: str) -> str:
    """Return in one line where numbers are from: measured by which command, or copied."""
    record = provenance(data, name)
    link = f"[{name}]({os.path.relpath(data / name, page.parent)})"
    if record["how"] == "measured":
        return f"Data: {link}, measured {record['date']} at {record['commit']}."
    return f"Data: {link}, **copied**, not remade: {record['from']}; {record['stated']}."


def cells(table: dict[str, Any], data: Path, page: Path) -> str:
    chosen = _chosen(table, data)
    on, across = table["rows"], table["columns"]
    names, order = table.get("names", {}), table.get("order", {})
    headings = list(_places(chosen, across, order))
    rows = []
    for place in _places(chosen, on, order):
        here = _at(chosen, on, place)
        rows.append([*_named(on, place, names), *(_one(table, _at(here, across, values)) for values in headings)])
    titles = [names.get(axis, axis) for axis in on] + [", ".join(_named(across, values, names)) for values in headings]
    return _markdown(titles, rows, len(on)) + f"\n\n{_n(chosen)}{source(data, page, table['data'])}"


def number(table: dict[str, Any], data: Path, page: Path) -> str:
    return _one(table, _chosen(table, data))


def rows(table: dict[str, Any], data: Path, page: Path) -> str:
    columns = table["columns"]
    chosen = _chosen(table, data)
    return _markdown(list(columns.values()), [[row[name] for name in columns] for row in chosen], 1) + (
        f"\n\n{source(data, page, table['data'])}"
    )


def verdicts(table: dict[str, Any], data: Path, page: Path) -> str:
    chosen = [row for row in read(data, table["data"], "verdicts.csv") if not _left_out(table, row["claim"])]
    headings = ["claim", "it says", "verdict", "decided by", "runs of a cell", "measured"]
    shown = [
        [row["claim"], row["text"], in_words(row), row["decided_by"], row["runs"], row["measured"] or row["note"]]
        for row in chosen
    ]
    return _markdown(headings, shown, len(headings)) + f"\n\n{source(data, page, table['data'])}"


def twins(table: dict[str, Any], data: Path, page: Path) -> str:
    chosen = [row for row in read(data, table["data"], "twins.csv") if row["variable"] == table["variable"]]
    values = list(dict.fromkeys(row["value"] for row in chosen))
    found = {(row["claim"], row["value"]): _outcome(row) for row in chosen}
    claims = list(dict.fromkeys(row["claim"] for row in chosen))
    shown = [[claim, *(found.get((claim, value), "") for value in values)] for claim in claims]
    headings = [f"by {table['variable']}", *values]
    return _markdown(headings, shown, len(headings)) + f"\n\n{source(data, page, table['data'])}"


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
    """Yield every claim with its verdict: that of the first of its study's data which has one."""
    for study, names in table["data"].items():
        found: dict[str, tuple[str, Row]] = {}
        for name in names:
            for row in read(data, name, "verdicts.csv") if (data / name / "verdicts.csv").exists() else ():
                if row["claim"] not in found or found[row["claim"]][1]["verdict"] == NOT_MEASURABLE:
                    found[row["claim"]] = (name, row)
        tried = [row for name in names for row in _twins_of(data, name)]
        with (data / "claims.csv").open(newline="") as file:
            for one in csv.DictReader(file):
                if one["study"] == study:
                    yield _judged(one, found, tried)


def _twins_of(data: Path, name: str) -> list[Row]:
    return read(data, name, "twins.csv") if (data / name / "twins.csv").exists() else []


def _judged(one: Row, found: dict[str, tuple[str, Row]], tried: Sequence[Row]) -> Judged:
    claims = one["of"].split("|") if one["of"] else [one["claim"]]
    if missing := [claim for claim in claims if claim not in found]:
        raise ValueError(f"docs/data/claims.csv: no data have a verdict on {missing[0]!r}")
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
            with_them = (f"{one} with {', '.join(dict.fromkeys(outcomes[one]))}" for one in shown)
            words.append(f"{variable}: {'; '.join(with_them)}")
    return ". ".join(words)


def claims(table: dict[str, Any], data: Path, page: Path) -> str:
    """Return the score, and below it a table of each study's claims."""
    every = list(judged(table, data))
    papers = [one for one in every if one.study in table["papers"]]
    blocks = [f"**{len(papers)} claims of {len(table['papers'])} papers:** {_score(papers)}"]
    if own := [one for one in every if one.study not in table["papers"]]:
        blocks.append(f"**{len(own)} of our own:** {_score(own)}")
    for study in dict.fromkeys(one.study for one in every):
        mine = [one for one in every if one.study == study]
        title, where = table["titles"][study].split("|")
        blocks.append(f"### {title}\n\n{_score(mine)} Details: [{where}]({where}).")
        rows = [
            [one.claim, one.words, f"**{one.verdict}**" + f": {one.parts}" * bool(one.parts), one.decided,
             _with(one.row), one.row["runs"] or f"{one.row['n']} runs", _cells_link(data, page, one.data)]
            for one in mine
        ]  # fmt: skip
        headings = ["claim", "what it says", "verdict", "decided by", "with", "runs of a cell", "data"]
        blocks.append(_markdown(headings, rows, len(headings)))
    return "\n\n".join(blocks)


def _score(every: Sequence[Judged]) -> str:
    of = {verdict: [one for one in every if one.verdict == verdict] for verdict in VERDICTS}
    decided = {verdict: sum(one.can_hold for one in found) for verdict, found in of.items()}
    words = [f"{len(of[HOLDS])} hold"]
    for verdict, name in ((IN_PART, "hold in part"), (DIFFERS, "differ")):
        found = len(of[verdict])
        shown = f" ({decided[verdict]} decided, {found - decided[verdict]} undecided)" if found else ""
        words.append(f"{found} {name}{shown}")
    return ", ".join([*words, f"{len(of[NOT_MEASURABLE])} not measurable"]) + "."


def _with(row: Row) -> str:
    pacing = f"paced by {row['pacing']}" if row["pacing"] else ""
    return ", ".join(filter(None, (row["schedule"], row["buffer"], pacing, row["kernel"].replace("virtual-", ""))))


def _cells_link(data: Path, page: Path, name: str) -> str:
    sheet = "cells.csv" if (data / name / "cells.csv").exists() else "verdicts.csv"
    copied = "" if provenance(data, name)["how"] == "measured" else " (copied)"
    return f"[{name}]({os.path.relpath(data / name / sheet, page.parent)}){copied}"


def in_words(row: Row) -> str:
    """Return a verdict with what it rests on, and which parts hold."""
    remarks = [row["basis"]] if row["basis"] else []
    if row["unfaithful"] not in ("", "0"):
        remarks.append(f"{row['unfaithful']} of {row['n']} runs unfaithful")
    text = row["verdict"] + (f" ({'; '.join(remarks)})" if remarks else "")
    if row["verdict"] == IN_PART and row["parts_that_hold"]:
        text += f": {row['parts_that_hold']}; not: {row['parts_that_do_not']}"
    return text


def _outcome(row: Row) -> str:
    return f"{IN_PART} ({row['parts_that_hold']})" if row["verdict"] == IN_PART else row["verdict"]


def _left_out(table: dict[str, Any], claim: str) -> bool:
    return bool(re.fullmatch(table.get("without", ""), claim)) or not re.fullmatch(table.get("only", ".*"), claim)


def _chosen(table: dict[str, Any], data: Path) -> list[Row]:
    sheet = table.get("sheet", "cells.csv")
    found = read(data, table["data"], sheet)
    for axis, value in table.get("where", {}).items():
        if found and axis not in found[0]:
            raise ValueError(f"docs/data/{table['data']}/{sheet} has no column {axis!r}")
        wanted = value if isinstance(value, list) else [value]
        found = [row for row in found if any(_same(row[axis], one) for one in wanted)]
    if not found:
        raise ValueError(f"docs/data/{table['data']}/{sheet} has no row for {table.get('where')}")
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
    value = float(text) * table.get("times", 1)
    return f"{value:.{table['digits']}f}" if "digits" in table else f"{value:.3g}"


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
    lines = [headings, rule, *shown]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in lines)


KINDS: dict[str, Callable[[dict[str, Any], Path, Path], str]] = {
    "cells": cells,
    "number": number,
    "rows": rows,
    "verdicts": verdicts,
    "twins": twins,
    "claims": claims,
}
