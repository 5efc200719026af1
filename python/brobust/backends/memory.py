"""Estimate how much memory a run needs for its kernels and its tables, and refuse one that does not fit beforehand."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from brobust import process_limits, units
from brobust.errors import BadInput
from brobust.scenario import Scenario

# Bytes of this process's memory per row of a table, with all copies until the row is in its file.
# benchmarks/memory.py of commit bc74388 measured them; these values are somewhat larger.
BYTES = {"packets": 300, "samples": 400, "offtimes": 350, "throughput": 100}
# A Python dictionary of 22 numbers takes 1.2 KB, each number 24 bytes, and the text it was read from the rest.
BYTES_OF_VM_SAMPLE = 2500
# A kernel in virtual time has 21 MB of its own before its sockets hold anything: 64 senders took 1.4 GB.
BYTES_OF_KERNEL = 25_000_000
# Its memory is a file of a little more than 1 GiB, most of it never touched (MEMORY in crates/virtual/src/kernel.rs).
BYTES_OF_ADDRESSES = 1_100_000_000
# What this process has open, and for each kernel: two pipes, the console, what both share, and more while it starts.
OPEN_FILES, OPEN_FILES_OF_KERNEL = 64, 12
CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
INTERVALS_PER_S = 10  # rows of the table `throughput`
WRITES_PER_S = 100  # of a flow with pattern rate; each write may become a packet of its own


def needed(s: Scenario) -> int:
    """Return how many bytes a run's tables, and in virtual time its kernels, need at most."""
    seconds = s.duration / 1e9
    flows = len(s.each_flow)
    small = sum(group.pattern.kind == "rate" for group in s.each_flow)
    data_frames = seconds * (max(s.path.bandwidths) / 8 / units.FRAME_BYTES + small * WRITES_PER_S)
    rows = {"throughput": seconds * INTERVALS_PER_S * flows, "offtimes": 0.0, "samples": 0.0, "packets": 0.0}
    for contention in (s.contention_of(number) for number in range(1, s.sender_count + 1)):
        if contention.active and contention.replay is None:
            rows["offtimes"] += 2 * contention.vcpus * s.duration / contention.period
    if s.samples == "ack":
        rows["samples"] = data_frames
    elif isinstance(s.samples, int):
        rows["samples"] = min(data_frames, flows * s.duration / s.samples)
    if s.packets:
        rows["packets"] = 2 * data_frames  # with an ACK for each
    bytes_of = BYTES if s.backend == "virtual" else {**BYTES, "samples": BYTES_OF_VM_SAMPLE}
    of_kernels = kernels(s) * BYTES_OF_KERNEL if s.backend == "virtual" else 0
    return of_kernels + round(sum(count * bytes_of[table] for table, count in rows.items()))


def kernels(s: Scenario) -> int:
    """Return how many kernels a run has in virtual time."""
    return s.sender_count + 1 + (s.path.aqm.name != "none") + (s.cross_traffic.load > 0)


def check(scenarios: Sequence[Scenario], at_once: int) -> None:
    """Refuse scenarios of one backend of which `at_once` runs at a time do not fit into this machine's free memory, or
    need more or larger files than this process may have."""
    largest = max(scenarios, key=needed)
    if largest.backend == "virtual":
        most = at_once * max(map(kernels, scenarios))
        process_limits.allow_file_of(BYTES_OF_ADDRESSES, "the file that is a kernel's memory")
        process_limits.allow_data(BYTES_OF_ADDRESSES, "a kernel")
        process_limits.allow_open_files(OPEN_FILES + most * OPEN_FILES_OF_KERNEL)
        process_limits.allow_timers(most)  # a kernel without its timer runs, and sends other packets
        process_limits.allow_polars("one that measures", most + at_once)
    wanted, free = at_once * needed(largest), available()
    if wanted > free:
        beside = f", {at_once} of them at once" if at_once > 1 else ""
        raise BadInput(
            f"duration: a run of {units.show_time(largest.duration)} at {units.show_rate(largest.path.bandwidth)}, its "
            f"kernels and its tables need up to {needed(largest) / 1e9:.1f} GB of memory{beside}, and "
            f"{free / 1e9:.1f} GB are free; give less duration or bandwidth, fewer --samples, no --packets, a longer "
            "timeslice, fewer senders, or fewer --jobs"
        )


def available() -> int:
    """Return how much memory programs can still be given without swapping, and in a container without being killed,
    bytes."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return min([int(fields["MemAvailable"].removesuffix("kB")) * 1024, *_left_in_cgroups()])


def _left_in_cgroups() -> Iterator[int]:
    """Yield how much each cgroup of this process that has a limit has left of it, bytes. (Version 2 of cgroups.)"""
    own = re.search(r"^0::/(.*)$", OWN_CGROUP.read_text() if OWN_CGROUP.exists() else "", re.MULTILINE)
    group = CGROUPS / (own[1] if own is not None else "")
    for one in (group, *group.parents):
        if not one.is_relative_to(CGROUPS):
            return
        try:
            limit, used = ((one / f"memory.{name}").read_text().strip() for name in ("max", "current"))
            counts = dict(line.split() for line in (one / "memory.stat").read_text().splitlines())
        except OSError:  # the first of all has none; in a container its own is in that one's place
            continue
        if limit != "max":  # what is cached of files makes way, but not files in memory
            yield int(limit) - int(used) + int(counts["file"]) - int(counts["shmem"])
