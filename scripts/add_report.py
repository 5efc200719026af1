#!/usr/bin/env python3
"""Add the report of somebody's machine to docs/data/machines, and its row to docs/fidelity.md:

    .venv/bin/python scripts/add_report.py FILE...

A report from a stranger is data: it is refused in one line if it is not what these commands write, or names somebody.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import evidence
import tomli_w

from brobust.errors import BrobustError
from brobust.files import MAX_TEXT
from brobust.host.machine import SCHEMA_VERSION

TEXT, NUMBER = (str,), (int, float)
MACHINE = {
    "cpu": TEXT, "architecture": TEXT, "cpus": NUMBER, "memory_gb": NUMBER, "kernel": TEXT, "ticks_per_s": NUMBER,
    "distribution": TEXT, "virtualization": TEXT, "container": TEXT, "product": TEXT, "clocksource": TEXT,
    "cgroups": NUMBER, "steal_share": NUMBER, "load": NUMBER, "python": TEXT,
}  # fmt: skip
VALIDATION = {
    "backend": TEXT, "host": (list,),
    "bandwidth_mbps": NUMBER, "rtt_ms": NUMBER, "buffer_bytes": NUMBER, "driver": TEXT, "duration_s": NUMBER,
    "accelerator": TEXT, "qemu": TEXT, "iperf3": TEXT, "kernel": TEXT, "what_if": TEXT, "runs": NUMBER,
    "runs_unfaithful": NUMBER, "runs_failed": NUMBER, "cells": NUMBER, "median_abs_ln_ratio": NUMBER,
    "p90_abs_ln_ratio": NUMBER, "settled_median_abs_ln_ratio": NUMBER, "settled_p90_abs_ln_ratio": NUMBER,
    "minutes": NUMBER, "load_before": NUMBER, "cell": (list,),
}  # fmt: skip
CELL = {
    "cc": TEXT, "share": NUMBER, "timeslice_ms": NUMBER, "n": NUMBER, "ratio": NUMBER, "settled_ratio": NUMBER,
    "vm_throughput_mbps": NUMBER, "vm_retransmits": NUMBER, "vm_rtt_mean_ms": NUMBER,
    "virtual_throughput_mbps": NUMBER, "virtual_retransmits": NUMBER, "virtual_rtt_mean_ms": NUMBER,
}  # fmt: skip
CELL |= {name.replace("vm_", "lab_"): kind for name, kind in CELL.items() if name.startswith("vm_")}
HOST = {"part": TEXT, "cpu": TEXT, "cpus": NUMBER, "kernel": TEXT}
NEEDED = {
    "machine": ("cpu", "architecture", "cpus", "kernel", "virtualization", "container"),
    "validation": (
        "kernel", "runs", "cells", "median_abs_ln_ratio", "p90_abs_ln_ratio",
        "settled_median_abs_ln_ratio", "settled_p90_abs_ln_ratio", "load_before",
    ),
    "validation.host": tuple(HOST),
}  # fmt: skip
MAX_COUNT = 1_000_000
NAMES_SOMEBODY = re.compile(
    r"\d+\.\d+\.\d+\.\d+|(?:[0-9a-f]{1,4}:){2,}|(?:^|\s)[/~]\w|\S@\S|[|<>\[\]`]", re.IGNORECASE
)  # addresses, paths, mail; and what would be Markdown in a table


def problems(report: dict[str, Any]) -> Iterator[str]:
    """Yield in words why this is no report of ours, or why it must not be published."""
    if report.get("schema") != SCHEMA_VERSION:
        yield f"schema is {report.get('schema')!r}; this is for reports of schema {SCHEMA_VERSION}"
        return
    if unknown := set(report) - {"schema", "date", "brobust", "machine", "checks", "validation"}:
        yield f"{', '.join(sorted(unknown))} is in no report"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", str(report.get("date"))):
        yield f"date is {report.get('date')!r}, and no day as in 2026-11-25"
    if not re.fullmatch(r"\d+\.\d+\.\d+", str(report.get("brobust"))):
        yield f"brobust is {report.get('brobust')!r}, and no version"
    if ("checks" in report) == ("validation" in report):
        yield "it has neither checks nor validation, or both"
    yield from _of_table("machine", report.get("machine"), MACHINE)
    if "validation" in report:
        yield from _of_table("validation", report["validation"], VALIDATION)
        given = report["validation"] if isinstance(report["validation"], dict) else {}
        lists = {name: one if isinstance(one := given.get(name), list) else [] for name in ("cell", "host")}
        for name in ("runs", "cells"):
            if name in given and given[name] not in range(1, MAX_COUNT):
                yield f"validation.{name} is {given[name]!r}, and no number of {name}"
        for name, known in (("cell", CELL), ("host", HOST)):
            for one in lists[name]:
                yield from _of_table(f"validation.{name}", one, known)
        senders = [one for one in lists["host"] if isinstance(one, dict) and one.get("part") == "sender"]
        if given and "accelerator" not in given and not senders:
            yield "validation has neither the accelerator of VMs nor the sender of a lab"
    if "checks" in report:
        found = report["checks"]
        known = dict.fromkeys(found, TEXT) if isinstance(found, dict) else {}
        yield from _of_table("checks", found, known)
        for name, said in known and found.items():
            if not re.fullmatch(r"[A-Za-z_ ]{2,40}", name) or not re.match(r"(?:ok|limited|missing)\b", str(said)):
                yield f"checks.{name} is no check with a status"


def _of_table(name: str, table: Any, known: dict[str, tuple[type, ...]]) -> Iterator[str]:
    if not isinstance(table, dict):
        yield f"{name} is no table"
        return
    for key in NEEDED.get(name, ()):
        if key not in table:
            yield f"{name}.{key} is missing"
    for key, value in table.items():
        if key not in known:
            yield f"{name}.{key} is in no report"
        elif not isinstance(value, known[key]) or isinstance(value, bool):
            yield f"{name}.{key} is {value!r}, of another type than reports have"
        elif isinstance(value, str) and (len(value) > 200 or not value.isprintable() or NAMES_SOMEBODY.search(value)):
            yield f"{name}.{key} has what may be an address, a path or markup: {value[:60]!r}; a report has none"


def name_of(report: dict[str, Any]) -> str:
    """Return the file name of a report: its date, its CPU and how it measured."""
    measured = report.get("validation")
    how = "doctor" if measured is None else measured.get("accelerator", "lab")
    cpu = re.sub(r"[^a-z0-9]+", "-", f"{report['machine']['cpu']} {how}".lower()).strip("-")
    return f"{report['date']}-{cpu[:60]}"


def add(file: Path, directory: Path) -> Path:
    """Copy a report, if it is one, and return its place. The same report is added once."""
    if file.stat().st_size > MAX_TEXT:
        sys.exit(f"add_report: {file}: {file.stat().st_size} bytes; a report has a few thousand")
    try:
        report = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        sys.exit(f"add_report: {file}: no TOML: {error}")
    for problem in problems(report):
        sys.exit(f"add_report: {file}: {problem}")
    content = tomli_w.dumps(report)
    directory.mkdir(exist_ok=True)
    for number in range(1, 1000):
        place = directory / f"{name_of(report)}{f'-{number}' if number > 1 else ''}.toml"
        if not place.exists() or place.read_text() == content:
            place.write_text(content)
            return place
    sys.exit(f"add_report: {file}: there are a thousand of this name")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    wrote = "what `brobust doctor --report FILE` or `brobust validate --report FILE` has written"
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help=wrote)
    for file in parser.parse_args(words).files:
        print(add(file, evidence.DATA / "machines").relative_to(evidence.ROOT))
    for page, text in evidence.pages().items():
        page.write_text(text)


if __name__ == "__main__":
    try:
        main()
    except (BrobustError, OSError) as error:
        sys.exit(f"add_report: {error}")
