#!/usr/bin/env python3
"""Write what docs/scenario.md and docs/data.md take from the descriptions of the fields and of the columns
(python/brobust/scenario/fields.py, python/brobust/dataset/columns.py). `make format` runs it.

tests/test_fields.py fails while a page is not current.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from brobust.dataset import TABLES
from brobust.scenario.description import PANELS, Field
from brobust.scenario.fields import ROWS, grid_default

DOCS = Path(__file__).parents[1] / "docs"


def pages() -> dict[Path, str]:
    """Return each page that has something generated, as it should be."""
    scenario, data = DOCS / "scenario.md", DOCS / "data.md"
    text = scenario.read_text()
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


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
