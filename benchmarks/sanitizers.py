#!/usr/bin/env python3
"""Run what virtual time can do on a kernel that checks itself (KASAN, UBSAN, lockdep and others, docs/kernels.md), and
print what ran, and what the kernel reported:

    .venv/bin/brobust kernel build virtual-6.12-debug
    .venv/bin/python benchmarks/sanitizers.py --out DIR [--only "BIG TCP"] [--study-duration 2s]

A kernel that reports a mistake fails its run: the report is the reason. The rows before the studies are also measured
on the ordinary kernel: in how many runs do both send the same packets? What DIR has is not measured again, except for
the comparison of controls, which keeps nothing. The runs of the studies are as short as --study-duration says, so
what the studies claim is not decided. The exit status is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from brobust.dataset import Dataset

ROOT = Path(__file__).resolve().parent.parent
BROBUST = Path(sys.executable).with_name("brobust")
STUDIES = ("2brobust", "clouded", "bbq", "mobiles", "repair", "findings")
CONTROLS = "cubic,bbr,bbr_robust,bbr_steady,brb_bbr3,brb_bbr3_steady,brb_bbq"
FEATURES: dict[str, Sequence[str]] = {
    "every way to keep data": ["--cc", CONTROLS, "--samples", "ack", "--packets"],
    "IPv6": ["--cc", "cubic,bbr,brb_bbr3", "--ip-version", "6"],
    "fq": ["--cc", "cubic,bbr,bbr_steady", "--qdisc", "fq"],
    "AQM": ["--cc", "cubic,bbr", "--aqm", "codel,fq_codel ecn,red"],
    "AQM over IPv6": ["--cc", "bbr", "--aqm", "fq_codel", "--ip-version", "6"],
    "pacing": ["--cc", "cubic,bbr,brb_bbr3", "--pacing", "kernel,kept,linux-4.14,draft"],
    "kept over fq": ["--cc", "bbr", "--pacing", "kept", "--qdisc", "fq"],
    "BIG TCP": ["--cc", "cubic,bbr", "--tso-max-size", "524.28kB", "--bandwidth", "1gbit", "--ip-version", "4,6"],
    "adaptive NIC, small ring": [
        "--cc",
        "cubic,bbr",
        "--adaptive-rx",
        "on",
        "--rx-ring",
        "256",
        "--bandwidth",
        "1gbit",
    ],
    "cross traffic": ["--cc", "bbr", "--cross-load", "0.3"],
    "loss, changing RTT": ["--cc", "cubic,bbr", "--loss", "2%", "--rtt-changes", "500ms:40ms,1s:5ms"],
    "a modelled CPU": ["--cc", "bbr", "--cpu-frequency", "100MHz", "--gro", "off", "--coalesce", "1ms"],
    "many flows": ["--cc", "cubic,bbr", "--flows", "100"],
    "iperf3": ["--cc", "cubic,bbr", "--traffic", "iperf3", "--ip-version", "4,6"],
    "programs": ["examples/programs.toml"],
}
"""Options of `brobust run` by the row's name."""


@dataclass(frozen=True)
class Row:
    """What came of the runs of a command."""

    name: str
    runs: int
    same_packets: str
    bad: Sequence[str]
    """Why runs failed; a kernel's reports are among them."""


def brobust(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command, and return its exit status and what it printed. Its progress is shown."""
    print(f"brobust {' '.join(words)}", file=sys.stderr)
    return subprocess.run([BROBUST, *words], cwd=ROOT, capture_output=True, text=True, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1]


def compared(kernel: str) -> Row:
    """Compare our controls with the kernel's own. This ends at the first failed run."""
    done = brobust("cc", "compare", "--quick", "--kernel", kernel, "--json")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    same = [one for one in results if "difference" in one and one["difference"] is None]
    comparisons = [one for one in results if "difference" in one]
    bad = [] if done.returncode == 0 else [last_line(done)]
    return Row("cc compare --quick", 2 * len(comparisons), f"{len(same)} of {len(comparisons)} pairs", bad)


def of_dataset(name: str, directory: Path, done: subprocess.CompletedProcess[str], kernel: str) -> Row:
    """Return the row of the runs of a dataset."""
    if not (directory / "dataset.json").exists():
        return Row(name, 0, "", [last_line(done)])
    runs = Dataset.open(directory).runs().unique("run", maintain_order=True)
    checked = runs.filter(kernel=kernel)
    failed = checked.filter(pl.col("outcome") == "failed")["reason"].to_list()
    cell = [column for column in ("cc", "share", "pacing", "aqm", "ip_version", "repeat") if column in runs.columns]
    pairs = runs.filter(pl.col("packet_hash").is_not_null()).group_by(cell).agg(pl.col("packet_hash"))
    both = pairs.filter(pl.col("packet_hash").list.len() == 2)
    same = both.filter(pl.col("packet_hash").list.n_unique() == 1)
    return Row(name, len(checked), f"{len(same)} of {len(both)}" if len(both) else "", failed)


def table(rows: Sequence[Row]) -> str:
    """Return the table, and the reasons below it."""
    lines = ["| what | runs on the debug kernel | failed or reported | same packets |", "|---|--:|--:|--:|"]
    lines += [f"| {row.name} | {row.runs} | {len(row.bad)} | {row.same_packets} |" for row in rows]
    return "\n".join([*lines, *(f"\n{row.name}: {why}" for row in rows for why in sorted(set(row.bad)))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for the datasets")
    parser.add_argument("--kernel", default="virtual-6.12-debug")
    parser.add_argument("--study-duration", default="2s", metavar="TIME")
    parser.add_argument("--only", action="append", metavar="ROW", help="only this row; may be repeated")
    given = parser.parse_args()
    kernels = ",".join(dict.fromkeys([given.kernel, given.kernel.removesuffix("-debug")]))
    rows = []

    def wanted(name: str) -> bool:
        return not given.only or name in given.only

    for name, options in FEATURES.items():
        if wanted(name):
            directory = (given.out / name.replace(" ", "-").replace(",", "")).resolve()
            fixed = ["--duration", "2s", "--share", "1,0.4", "--repeat", "1"]
            words = ["--resume"] if directory.exists() else [*options, *fixed, "--kernel", kernels]
            rows.append(of_dataset(name, directory, brobust("run", *words, "--out", str(directory)), given.kernel))
    for study in STUDIES:
        if wanted(study):
            directory = (given.out / study).resolve()
            shorter = ["--set", f"duration={given.study_duration}"]
            measure = ["reproduce", study, "--scale", "smoke", *shorter, "--kernel", given.kernel]
            rows.append(of_dataset(study, directory / "data", brobust(*measure, "--out", str(directory)), given.kernel))
    if wanted("cc compare"):
        rows.append(compared(given.kernel))
    print(table(rows))
    sys.exit(any(row.bad or not row.runs for row in rows))


if __name__ == "__main__":
    main()
