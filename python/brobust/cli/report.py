"""The command `brobust report`: a reproduction as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from brobust import extras


def report(
    directory: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="A directory that `brobust reproduce` wrote. Several directories of one paper are shown side by side.",
        ),
    ],
    file: Annotated[Path, typer.Option("--html", metavar="FILE", help="Write the report to this file.")] = Path(
        "report.html"
    ),
) -> None:
    """Write a reproduction as one self-contained HTML file: claims, verdicts and what decides them, figures."""
    from brobust.report.reproduced import Reproduced

    for one in directory:
        Reproduced(one)  # refuses what is none
    extras.require("brobust report")
    from brobust.report import html

    html.write(directory, file)
    print(file)
