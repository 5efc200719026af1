"""Requests: what clients told of theirs, taken out of what they printed, and the figures of a run.

A client prints a line of JSON for each, as docs/servers.md describes it. brobust's own does (crates/client), and any
program may.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from brobust.dataset import REQUESTS, frame
from brobust.errors import RunFailed
from brobust.lazily import pl
from brobust.scenario import Run, Scenario

# Writers of JSON differ in where they put spaces.
BEGINNING = re.compile(rb'\s*\{\s*"request"\s*:')
# What a line holds, besides the numbers of run and flow.
TOLD = ("due_s", "first_byte_ms", "completion_ms", "bytes", "status")
MAX_NUMBER = 2.0**53  # up to which every integer is exact


def taken_out(ended: list[dict[str, Any]], run: Run) -> pl.DataFrame:
    """Take the requests out of what programs printed, and return their table."""
    rows = []
    for one in ended:
        lines = one["stdout"].splitlines(keepends=True)
        told = [line for line in lines if BEGINNING.match(line)]
        one["tells_of_requests"] = bool(told)
        if told:
            one["stdout"] = b"".join(line for line in lines if not BEGINNING.match(line))
            rows += [{"run": run.id, "flow": one["flow"], **_read(line)} for line in told]
    return frame(rows, REQUESTS)


def check_all_are_told(ended: list[dict[str, Any]]) -> None:
    """Refuse a run whose end cut off a program that tells of requests: those that it waited for then, which took
    longest, are in no figure."""
    for one in ended:
        if one["tells_of_requests"] and one["ended_ns"] is None:
            end, name = "receiver" if one["at_receiver"] else "sender", Path(one["words"][0]).name
            raise RunFailed(
                f"the program at the {end} of flow {one['flow']} ({name}) had not ended when the run did, so nobody "
                "knows what the requests took for which it still waited; end it earlier by its own options, such as "
                "--for and --patience, or give a longer duration or linger"
            )


def _read(line: bytes) -> dict[str, float | None]:
    try:
        told = json.loads(line)["request"]
        read = {name: None if told[name] is None else float(told[name]) for name in TOLD}
        # The comparison is false of NaN, too.
        if read["due_s"] is None or not all(number is None or abs(number) <= MAX_NUMBER for number in read.values()):
            raise ValueError
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        shown = line.decode(errors="replace").strip()[:100]
        raise RunFailed(
            f"a program printed {shown!r}, which is no request: it needs {', '.join(TOLD)}, each a number or, but for "
            f"{TOLD[0]}, null (docs/servers.md)"
        ) from None
    return read


def figures(requests: pl.DataFrame, s: Scenario) -> dict[str, float | int | None]:
    """Return the columns of the run; none where no program told of requests. A request without an answer took longer
    than any with one."""
    if requests.is_empty():
        return {}
    answered = pl.col("completion_ms").is_not_null() & pl.col("status").is_between(200, 299)
    number = requests.filter(answered).height
    asked_for = s.duration / 1e9 - min(group.start for group in s.flows) / 1e9
    found: dict[str, float | int | None] = {
        "requests": len(requests), "requests_answered": number, "requests_per_s": number / asked_for,
    }  # fmt: skip
    for column, measured in (("request", "completion_ms"), ("first_byte", "first_byte_ms")):
        took = requests.filter(answered)[measured].drop_nulls().sort()
        for name, per_mille in (("median", 500), ("p99", 990), ("p999", 999)):
            place = -(-len(requests) * per_mille // 1000) - 1  # of the first that this part of all is not longer than
            found[f"{column}_{name}_ms"] = took[place] if place < len(took) else None
    return found
