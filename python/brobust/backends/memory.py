"""How much memory the tables of a run take: what does not fit is refused before a machine runs out of it."""

from __future__ import annotations

from collections.abc import Sequence

from brobust import units
from brobust.errors import BadInput
from brobust.scenario import Scenario

# Bytes of this process for a row of a table, with all the copies that are made of it until it is in its file.
# `benchmarks/memory.py` measures them; here with room.
BYTES = {"packets": 300, "samples": 400, "offtimes": 350, "throughput": 100}
BYTES_OF_VM_SAMPLE = 2500  # a Python dictionary of 22 numbers: 1.2 KB, 24 bytes a number, and the text it was read from
INTERVALS_PER_S = 10  # of the throughput over time
WRITES_PER_S = 100  # of a flow with pattern rate: each may be a packet, however small


def needed(s: Scenario) -> int:
    """Return how many bytes a run's tables take, or somewhat more."""
    seconds = s.duration / 1e9
    flows = sum(group.count for group in s.flows)
    fastest = max([s.path.bandwidth, *(rate for _, rate in s.path.bandwidth_changes)])
    small = sum(group.count for group in s.flows if group.pattern.kind == "rate")
    data_frames = seconds * (fastest / 8 / units.FRAME_BYTES + small * WRITES_PER_S)
    rows = {"throughput": seconds * INTERVALS_PER_S * flows, "offtimes": 0.0, "samples": 0.0, "packets": 0.0}
    for contention in (s.contention_of(number) for number in range(1, s.sender_count + 1)):
        if contention.active and contention.replay is None:
            rows["offtimes"] += 2 * s.duration / contention.period
    if s.samples == "ack":
        rows["samples"] = data_frames
    elif isinstance(s.samples, int):
        rows["samples"] = min(data_frames, flows * s.duration / s.samples)
    if s.packets:
        rows["packets"] = 2 * data_frames  # with an ACK for each
    bytes_of = BYTES if s.backend == "virtual" else {**BYTES, "samples": BYTES_OF_VM_SAMPLE}
    return round(sum(count * bytes_of[table] for table, count in rows.items()))


def check(scenarios: Sequence[Scenario], at_once: int) -> None:
    """Refuse a run that would not fit into this machine's free memory, as often as it is measured at once."""
    import psutil

    largest = max(scenarios, key=needed)
    at_once = at_once if largest.backend == "virtual" else 1
    wanted, free = at_once * needed(largest), psutil.virtual_memory().available
    if wanted > free:
        beside = f", {at_once} of them at once" if at_once > 1 else ""
        raise BadInput(
            f"duration: a run of {units.show_time(largest.duration)} at {units.show_rate(largest.path.bandwidth)} with "
            f"what is to be kept of it takes up to {needed(largest) / 1e9:.1f} GB of memory{beside}, and "
            f"{free / 1e9:.1f} GB are free; give less duration or bandwidth, rarer --samples or no --packets, a longer "
            "timeslice, or fewer --jobs"
        )
