"""The tables of a reproduction as Markdown, for a page of the documentation: the claims, and what decides them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from brobust import files
from brobust.analysis.claims import VERDICTS
from brobust.analysis.twins import Twin
from brobust.report.reproduced import Reproduced


def write(directories: Sequence[Path], file: Path) -> None:
    """Write the tables of these reproductions, one after the other, into a file."""
    files.write(file, "\n".join("\n".join(_tables(Reproduced(directory))) for directory in directories))


def _tables(it: Reproduced) -> Iterator[str]:
    counts = Counter(claim.verdict for claim in it.claims)
    if it.claims:
        yield ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS) + "."
        yield ""
        yield from _table(
            ["claim", "the paper says", "verdict", "decided by", "runs of a cell", "measured"],
            [
                [one.claim, one.text, one.in_words, one.decided_by, one.runs_in_words, one.measured or one.note]
                for one in it.claims
            ],
        )
        yield ""
    for variable in dict.fromkeys(twin.variable for twin in it.twins):
        yield from _by(variable, [twin for twin in it.twins if twin.variable == variable])
        yield ""


def _by(variable: str, twins: Sequence[Twin]) -> Iterator[str]:
    values = list(dict.fromkeys(twin.value for twin in twins))
    claims = list(dict.fromkeys(twin.claim for twin in twins))
    found = {(twin.claim, twin.value): twin.outcome for twin in twins}
    rows = [[claim, *(found.get((claim, value), "") for value in values)] for claim in claims]
    yield from _table([f"by {variable}", *values], rows)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (heading, ["---"] * len(heading), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
