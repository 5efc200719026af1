#!/usr/bin/env python3
"""Write what docs/scenario.md and docs/data.md take from the descriptions of the fields and of the columns
(python/brobust/scenario/fields.py, python/brobust/dataset/columns.py). `make format` runs it.

tests/test_fields.py fails while a page is not current.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from brobust.dataset import TABLES
from brobust.scenario.description import PANELS, Field
from brobust.scenario.fields import FIELDS, ROWS, grid_default

DOCS = Path(__file__).parents[1] / "docs"


def pages() -> dict[Path, str]:
    """Return each page that has something generated, as it should be."""
    scenario, data = DOCS / "scenario.md", DOCS / "data.md"
    text = scenario.read_text()
    text = re.sub(r"```toml\n.*?```", lambda _: f"```toml\n{_toml()}```", text, count=1, flags=re.DOTALL)
    for panel in PANELS:
        text = _with_rows(text, panel, (_field_row(row) for row in ROWS if row.panel == panel))
    columns = data.read_text()
    for table, content in TABLES.items():
        columns = _with_rows(
            columns, table,
            (f"| `{name}` | {'UTC time' if column.type == 'time' else column.type} | {column.meaning} |"
             for name, column in content.items()),
        )  # fmt: skip
    return {scenario: text, data: columns}


def _with_rows(page: str, heading: str, rows: Iterable[str]) -> str:
    """Return the page with these rows in the first table below a heading."""
    head, found, rest = re.split(rf"(\n##+ {heading}\n(?:(?!\n#).)*?\n\|[-|]+\|\n)", page, maxsplit=1, flags=re.DOTALL)
    return head + found + "".join(f"{row}\n" for row in rows) + re.sub(r"\A(\|.*\n)*", "", rest)


def _field_row(row: Field) -> str:
    more = f" Only on {row.only_on}." if row.only_on else ""
    allowed, default = row.range() or "", row.default_text(grid_default(row))
    return f"| `{row.name}` | `{row.option}` | {row.help}{more} | {allowed} | {default} |"


def _toml() -> str:
    """Return a file with every field: those that are absent by default as comments."""
    lines = [*_lines("")]
    for table in dict.fromkeys(row.table for row in ROWS if row.table not in ("", "receiver")):
        lines += ["", f"[[{table}]]" if table == "flows" else f"[{table}]", *_lines(table)]
    width = max(len(line) for line, _ in map(_split, lines))
    return "".join(f"{line:{width}}  # {option}".rstrip(" #") + "\n" for line, option in map(_split, lines))


def _split(line: str) -> tuple[str, str]:
    text, _, option = line.partition("\t")
    return text, option


def _lines(table: str) -> Iterator[str]:
    for row in FIELDS.values():
        if row.table == table:
            value = grid_default(row)
            absent = "# " if value is None else ""
            shown = _written(row.example if value is None else value)
            yield f"{absent}{row.key} = {shown}\t{row.option}"


def _written(value: Any) -> str:
    """Return a value as TOML: numbers without quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str) and not re.fullmatch(r"[0-9.]+", value):
        return json.dumps(value)
    return json.dumps(value) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
