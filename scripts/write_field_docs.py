#!/usr/bin/env python3
"""Write what docs/scenario.md and docs/data.md take from the descriptions of the fields and of the columns
(python/brobust/scenario/fields.py, python/brobust/dataset/columns.py). `make format` runs it.

tests/test_fields.py fails while a page is not current.
"""

import argparse
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from brobust.dataset import TABLES
from brobust.dataset.columns import Column
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
        columns = _with_rows(columns, table, column_rows(content))
    columns = _with_rows(columns, "The scenario's fields", _fields_rows())
    return {scenario: text, data: columns}


def _with_rows(page: str, heading: str, rows: Iterable[str]) -> str:
    """Return the page with these rows in the first table below a heading."""
    head, found, rest = re.split(rf"(\n##+ {heading}\n(?:(?!\n#).)*?\n\|[-|]+\|\n)", page, maxsplit=1, flags=re.DOTALL)
    return head + found + "".join(f"{row}\n" for row in rows) + re.sub(r"\A(\|.*\n)*", "", rest)


def column_rows(content: dict[str, Column]) -> Iterator[str]:
    """Yield the rows of a table's columns: one for all that one sentence explains, none where there is no sentence."""
    for column, group in itertools.groupby(content.items(), key=lambda item: item[1]):
        if column.meaning:
            names = ", ".join(f"`{name}`" for name, _ in group)
            yield f"| {names} | {'UTC time' if column.type == 'time' else column.type} | {column.meaning} |"


def _fields_rows() -> Iterator[str]:
    """Yield for each panel the columns that hold its fields, and have no row in the table of columns."""
    for panel in PANELS:
        columns = (row.column for row in ROWS if row.panel == panel)
        if names := [f"`{column.name}`" for column in columns if column and not column.meaning]:
            yield f"| {panel} | {', '.join(names)} |"


def _field_row(row: Field) -> str:
    more = f" Only on {row.only_on}." if row.only_on else ""
    allowed, default = row.range() or "", row.default_text(grid_default(row))
    return f"| `{row.name}` | `{row.option}` | {row.help}{more} | {allowed} | {default} |"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for page, text in pages().items():
        page.write_text(text)
