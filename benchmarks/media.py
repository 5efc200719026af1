#!/usr/bin/env python3
"""Compare live media whose sender's CPU is taken away with the same sender's undisturbed schedule (docs/media.md).

.venv/bin/python benchmarks/media.py DIR... --csv CSV --png PNG    datasets of examples/media, each named as its sender

Each needs its packets (`--packets`) and runs of share 1: a packet of a contended run is compared with the packet of the
same number in the undisturbed run of the same repeat. A stream's first packets may be sent at another time, so times
count from the packet that is least late, as a receiver's clock does.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from spread import shown

from brobust.dataset import Dataset
from brobust.dataset.one_run import OneRun
from brobust.errors import BadInput, BrobustError
from brobust.report.capture import frames

FRAME_S = 0.02
"""50 frames a second (examples/media/make.sh)."""
BURST_S = 0.001
HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP


class Packet(NamedTuple):
    left: float
    """When it reached the link, s."""
    arrived: float
    """When it reached the receiver, s; infinity: it did not."""
    bytes: int


Media = dict[int, Packet]
"""The packets of a stream, each as it first arrived, by their numbers from 0."""


Number = tuple[int, int] | None
"""Which of a connection's streams, and the packet's number in it; None: no media."""


def of_ts(payload: bytes, latest: int) -> Number:
    """MPEG-TS in UDP has no numbers and sends nothing twice."""
    return (0, latest + 1) if payload[0] == 0x47 else None


def of_rtp(payload: bytes, _latest: int) -> Number:
    """RFC 3550, by payload types; what RFC 5761 multiplexes with it is RTCP, STUN and DTLS."""
    kind = payload[1] & 0x7F
    return None if payload[0] >> 6 != 2 or 64 <= kind <= 95 else (kind, struct.unpack_from("!H", payload, 2)[0])


def of_srt(payload: bytes, _latest: int) -> Number:
    """draft-sharabayko-srt-01, section 3: the first bit is 0 for data."""
    first = struct.unpack_from("!I", payload)[0]
    return None if first >> 31 else (0, first)


NUMBERED: dict[str, tuple[Callable[[bytes, int], Number], int]] = {
    "udp": (of_ts, 1 << 62), "udp-bitrate": (of_ts, 1 << 62), "rtp": (of_rtp, 1 << 16), "srt": (of_srt, 1 << 31),
    "srt-paced": (of_srt, 1 << 31),
    "rist": (of_rtp, 1 << 16), "webrtc": (of_rtp, 1 << 16),
}  # fmt: skip
"""How each sender numbers its packets, and how many numbers there are."""


def stream(run: OneRun, name: str) -> tuple[Media, np.ndarray, np.ndarray]:
    """Return a run's media, and when all UDP packets of the sender left, s, and their bytes."""
    of, modulus = NUMBERED[name]
    found: Media = {}
    times, sizes, latest = [], [], -1
    first: Number = None
    # The capture goes on until the programs have ended, the table until the run's duration.
    for row, (_, _, frame) in zip(run.packets.iter_rows(named=True), frames(run.pcap or b"", name), strict=False):
        if row["direction"] != "data" or row["payload_bytes"] == 0 or row["seq"] > 0:
            continue  # numbered as TCP's are: how WebRTC's ends find each other
        times.append(row["time_s"])
        sizes.append(row["payload_bytes"])
        told = of(frame[HEADERS:], latest)
        if told is None:
            continue
        first = first or told
        if told[0] != first[0]:
            continue  # RFC 4588 sends again in a stream of its own
        # The number from 0, nearest to the latest one of those that it may be.
        number = latest + (told[1] - first[1] - latest + modulus // 2) % modulus - modulus // 2
        latest = max(latest, number)
        arrived = np.inf if row["dropped"] else row["arrived_s"]
        if number not in found or arrived < found[number].arrived:
            found[number] = Packet(row["time_s"], arrived, row["payload_bytes"])
    return found, np.array(times), np.array(sizes)


def burst_kb(times: np.ndarray, sizes: np.ndarray) -> float:
    """Return the most that left within BURST_S, kB of payload."""
    total = np.concatenate([[0], np.cumsum(sizes)])
    return float((total[np.searchsorted(times, times + BURST_S)] - total[:-1]).max()) / 1e3


def compared(run: OneRun, idle: OneRun, name: str) -> dict[str, float]:
    """Return what a receiver saw of a run, beside the same sender's undisturbed run."""
    (seen, times, sizes), (undisturbed, *_) = stream(run, name), stream(idle, name)
    due = {number: packet.arrived for number, packet in undisturbed.items() if packet.arrived < np.inf}
    got = {number: seen[number].arrived if number in seen else np.inf for number in due}
    delays = {number: got[number] - time for number, time in due.items()}
    on_time = min(delays.values())
    late = {number: delay - on_time for number, delay in delays.items()}
    begin, end = min(due.values()), max(due.values())
    worst: dict[int, float] = defaultdict(float)
    for number, time in due.items():
        # A quarter of a frame more, since a frame's packets leave at once and the timer is not exact.
        frame = int((time - begin) / FRAME_S + 0.25)
        worst[frame] = max(worst[frame], late[number])
    there = [late[number] for number in sorted(late) if late[number] < np.inf]
    tenth = len(there) // 10
    arrived = sum(seen[number].bytes for number, time in got.items() if time < np.inf)
    return {
        "late frames": sum(FRAME_S < one < np.inf for one in worst.values()) / len(worst),
        "lost frames": sum(one == np.inf for one in worst.values()) / len(worst),
        "lost packets": sum(one == np.inf for one in late.values()) / len(late),
        "lateness 99 %, ms": float(np.quantile(there, 0.99)) * 1e3,
        "falls behind, ms": (statistics.median(there[-tenth:]) - statistics.median(there[:tenth])) * 1e3,
        "burst, kB": burst_kb(times, sizes),
        "goodput, Mbit/s": arrived * 8e-6 / (end - begin),
    }


def measured(directory: Path) -> dict[float, list[dict[str, float]]]:
    """Return what was seen at each CPU share, a row per repeat."""
    dataset = Dataset.open(directory)
    runs = dataset.runs().filter(pl.col("outcome") == "ok").sort("share", "repeat", descending=[True, False])
    idle = {row["repeat"]: row["run"] for row in runs.filter(pl.col("share") == 1).to_dicts()}
    if missing := set(runs["repeat"]) - set(idle) or ({0} if runs.is_empty() else set()):
        raise BadInput(f"{directory}: no run of share 1 of repeat {min(missing)}; measure the scenario as it is")
    if not dataset.packets().height:
        raise BadInput(f"{directory}: it has no packets; measure with --packets")
    rows: dict[float, list[dict[str, float]]] = defaultdict(list)
    for row in runs.to_dicts():
        against = OneRun(dataset, idle[row["repeat"]])
        rows[row["share"]].append(compared(OneRun(dataset, row["run"]), against, directory.name))
    return rows


def verdict(rows: list[dict[str, float]], undisturbed: list[dict[str, float]]) -> str:
    """Return what a sender does after an absence: whether the last tenth of its packets is later than the first by more
    than two frames, and whether its largest burst is larger than without absences."""
    behind, burst = (statistics.median(row[what] for row in rows) for what in ("falls behind, ms", "burst, kB"))
    usual = statistics.median(row["burst, kB"] for row in undisturbed)
    if behind > 2 * FRAME_S * 1e3:
        return "falls behind"
    return "bursts" if burst > 1.1 * usual else "neither"


def write(found: dict[str, dict[float, list[dict[str, float]]]], file: Path) -> None:
    sheet = []
    for name, cells in found.items():
        for share, rows in cells.items():
            row = {"sender": name, "CPU share": f"{share:.0%}"}
            for column in rows[0]:
                scale = 100 if column.endswith(("packets", "frames")) else 1
                row[column] = shown([one[column] * scale for one in rows], once=True)
            row["after an absence"] = verdict(rows, cells[1]) if share < 1 else ""
            sheet.append({**row, "n": str(len(rows))})
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, sheet[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(sheet)


def draw(found: dict[str, dict[float, list[dict[str, float]]]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for axis, column, unit in zip(axes, ("late or lost frames", "burst, kB"), ("%", "kB"), strict=True):
        for marker, (name, cells) in zip("osv^Dx*", found.items(), strict=False):
            values = {share: [_drawn(row, column) for row in rows] for share, rows in cells.items()}
            middle = [statistics.median(of) for of in values.values()]
            bars = [[m - min(of), max(of) - m] for m, of in zip(middle, values.values(), strict=True)]
            shares = [share * 100 for share in values]
            axis.errorbar(shares, middle, np.transpose(bars), marker=marker, capsize=3, label=name)
        axis.set(xlabel="CPU share of the sender [%]", ylabel=f"{column.split(',')[0]} [{unit}]")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    n = min(len(rows) for cells in found.values() for rows in cells.values())
    figure.supxlabel(f"n = {n} runs of each, bars from the smallest to the largest; virtual time", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def _drawn(row: dict[str, float], column: str) -> float:
    return row[column] if column in row else 100 * (row["late frames"] + row["lost frames"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+", metavar="DIR", help=f"named {', '.join(NUMBERED)}")
    parser.add_argument("--csv", type=Path, required=True, help="write a row per sender and CPU share there")
    parser.add_argument("--png", type=Path, help="draw late and lost frames, and bursts, there")
    given = parser.parse_args()
    if unknown := [directory.name for directory in given.datasets if directory.name not in NUMBERED]:
        parser.error(f"{unknown[0]!r} is none of the senders {', '.join(NUMBERED)}")
    try:
        found = {directory.name: measured(directory) for directory in given.datasets}
    except BrobustError as refusal:
        parser.error(str(refusal))
    write(found, given.csv)
    if given.png is not None:
        draw(found, given.png)


if __name__ == "__main__":
    main()
