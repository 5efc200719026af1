"""Check over a million ACKs of a real kernel that our controls decide as the kernel's own.

    sudo .venv/bin/python benchmarks/shadow.py [--acks 1000000] [--kernel debian-6.12] [--bandwidth 50mbit]

It repeats the cases of brobust.conformance in VMs until enough ACKs have been compared, one control after the other. At
a difference it prints the difference and ends with status 1.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated

import typer

from brobust.conformance import cases, shadow


def main(
    acks: Annotated[int, typer.Option(help="ACKs in all, half of them with each control", min=1)] = 1_000_000,
    kernel: Annotated[str, typer.Option(help="of the VMs, as in `brobust run`")] = "debian-6.12",
    bandwidth: Annotated[str, typer.Option(help="of the path, where the case does not have its own")] = "50mbit",
    duration: Annotated[str, typer.Option(help="of each run")] = "30s",
) -> None:
    over = {"path": {"bandwidth": bandwidth}, "duration": duration, "kernel": kernel}
    print("| control | kernel | case | runs | ACKs | calls | that differ |\n|---|---|---|--:|--:|--:|--:|", flush=True)
    total = Counter[str]()
    for control in shadow.CONTROLS:
        runs, seen, calls, differences = (Counter[str]() for _ in range(4))
        while seen.total() < acks / 2:
            for found in shadow.compare(list(cases.VM), [control], over):
                runs[found.case] += 1
                seen[found.case] += found.acks
                calls[found.case] += found.calls
                differences[found.case] += found.differences
                if found.differences:
                    print(found.first, file=sys.stderr)
                print(f"{control}, {found.case}: {found.acks} ACKs, {seen.total()} in all", file=sys.stderr)
        for case in runs:
            row = (control, kernel, case, runs[case], f"{seen[case]:,}", f"{calls[case]:,}", differences[case])
            print(f"| {' | '.join(map(str, row))} |", flush=True)
        total.update(acks=seen.total(), differ=differences.total())
    print(f"\n{total['acks']:,} ACKs, {total['differ']} calls that differ")
    raise SystemExit(total["differ"] > 0)


if __name__ == "__main__":
    typer.run(main)
