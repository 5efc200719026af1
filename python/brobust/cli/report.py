"""`brobust report`: a reproduction as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directory: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR", help="Directory that `brobust reproduce` made; several of one paper stand side by side."
        ),
    ],
    file: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where it is written.")] = Path("report.html"),
) -> None:
    """Write what was reproduced as one self-contained HTML file: figures beside claims and verdicts."""
    from brobust.report import html

    html.write(directory, file)
    print(file)
