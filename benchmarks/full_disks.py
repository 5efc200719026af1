"""Fill the disk on which brobust works, at random sizes: is it said in one line, is what was measured kept, and is the
work completed once there is room?

    sudo .venv/bin/python benchmarks/full_disks.py [--sizes 40] [--only dataset|cache|shm|tmp] [--seed 1]

It needs root, for small file systems (tmpfs), which it mounts where only its own processes see them, and virtual-6.12.
Where: `dataset` is the directory of --out; `cache` that of kernels, guests' images and programs ($BROBUST_CACHE); `shm`
/dev/shm; `tmp` the directory for temporary files ($TMPDIR), in which captures and RAM disks lie. A kernel's build looks
for room first, so there the file system also shrinks while it builds.

The promise: exit status 0 and everything is there; or 1, one line that names the file system, every run that the
dataset holds is the run that an undisturbed series has measured (the hash of its packets), and the same command, or
`run --resume`, completes it once the file system is larger. One row for each size; exit status 1 if the promise was
broken.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from brobust.dataset import Dataset
from brobust.host.cache import cache_directory

BROBUST = [sys.executable, "-m", "brobust"]
SHORT = ["--bandwidth", "5mbit", "--duration", "1s", "--share", "0.5"]
SERIES = [*SHORT, "--cc", "cubic,bbr", "--repeat", "4", "--jobs", "1"]
IPERF3 = [*SHORT, "--cc", "cubic", "--repeat", "2", "--traffic", "iperf3"]
TABLES: tuple[list[str], ...] = ([], ["--samples", "ack"], ["--packets"])

# What brobust does with its cache apart from commands that take minutes: it prints as a command does.
IN_CACHE = """
import sys
from brobust.errors import BrobustError
from brobust.kernels import sent, virtual, vm
try:
    if sys.argv[1] == "image":
        from brobust.testbed import image
        image.build(vm.find("debian-6.12"))
    else:
        from pathlib import Path
        here = virtual.VirtualKernel.read(Path(sys.argv[2]))
        facts, executable = (here.path.parent / "kernel.json").read_bytes(), here.path.read_bytes()
        import zlib
        sent.unpacked(sent.Packed(sent._hash(facts, executable), facts, zlib.compress(executable, 1)))
except BrobustError as error:
    print(f"brobust: {error}", file=sys.stderr)
    sys.exit(error.exit_status)
"""


@dataclass
class Try:
    """What came of one size."""

    what: str
    bytes: int
    status: int = 0
    said: str = ""
    kept: str = ""
    completed: str = "at once"
    broken: list[str] = field(default_factory=list)


class Disk:
    """A file system of this size."""

    def __init__(self, place: Path, size: int) -> None:
        self.place = place
        place.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", place], check=True)

    def resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.place], check=False, capture_output=True)

    def used(self) -> int:
        found = os.statvfs(self.place)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", self.place], check=True)


def call(arguments: list[str], **variables: str) -> tuple[int, str]:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    return done.returncode, done.stderr.strip()


def sizes(rng: random.Random, count: int, least: int, greatest: int) -> list[int]:
    """Return sizes whose logarithms are spread evenly; a tmpfs has whole pages."""
    return [int(least * (greatest / least) ** rng.random()) // 4096 * 4096 or 4096 for _ in range(count)]


def judge(tried: Try, place: Path) -> None:
    """Note where a command that did not end well broke the promise."""
    if tried.status != 1:
        tried.broken.append(f"exit status {tried.status}")
    if tried.said.count("\n") or not tried.said.startswith("brobust: "):
        tried.broken.append("not one line")
    if str(place) not in tried.said:
        tried.broken.append("the file system is not named")


def hashes(directory: Path) -> dict[str, str]:
    if not (directory / "dataset.json").exists():
        return {}
    return dict(Dataset.open(directory).runs().filter(outcome="ok").select("run", "packet_hash").unique().iter_rows())


def measured(tried: Try, options: list[str], out: Path, disk: Disk, whole: dict[str, str], **variables: str) -> Try:
    """Measure a series beside a small disk, and complete it when the disk is larger."""
    command = [*BROBUST, "run", "--json", "--out", str(out), *options]
    tried.status, tried.said = call(command, **variables)
    there = hashes(out)
    tried.kept = f"{len(there)}/{len(whole)}"
    if any(whole.get(run) != found for run, found in there.items()):
        tried.broken.append("a run that was kept is another")
    if tried.status == 0:
        tried.broken += [] if there == whole and not tried.said else ["ended well, but is not complete"]
        return tried
    judge(tried, disk.place)
    if there and f"{len(there)} of {len(whole)} runs are in" not in tried.said:
        tried.broken.append("it does not say what is kept")
    disk.resize(1 << 30)
    again = [*BROBUST, "run", "--json", "--resume", "--out", str(out)] if (out / "dataset.json").exists() else command
    status, said = call(again, **variables)
    tried.completed = "yes" if status == 0 and hashes(out) == whole else "NO"
    if tried.completed == "NO":
        tried.broken.append(f"not completed: {status} {said[-200:]}")
    return tried


def undisturbed(scratch: Path, options: list[str]) -> dict[str, str]:
    out = scratch / f"whole-{abs(hash(tuple(options)))}"
    if not out.exists():
        status, said = call([*BROBUST, "run", "--json", "--out", str(out), *options])
        if status != 0:
            sys.exit(f"the undisturbed series ended with {status}: {said}")
    return hashes(out)


def dataset(rng: random.Random, count: int, scratch: Path) -> list[Try]:
    tries = []
    for size in sizes(rng, count, 4096, 1_000_000):
        options = [*SERIES, *rng.choice(TABLES)]
        whole = undisturbed(scratch, options)
        with Disk(scratch / "disk", size) as disk:
            tries.append(shown("dataset", measured(Try("run", size), options, disk.place / "data", disk, whole)))
    return tries


def temporary(where: str, place: Path, rng: random.Random, count: int, scratch: Path) -> list[Try]:
    tries = []
    for number, size in enumerate(sizes(rng, count, 4096, 8_000_000)):
        options = rng.choice(([*SERIES, "--packets"], IPERF3))
        whole = undisturbed(scratch, options)
        # In /dev/shm nothing of brobust's lies, unless it is the directory for temporary files.
        variables = {} if where == "shm" and number % 2 else {"TMPDIR": str(place)}
        what = f"run{' --packets' if '--packets' in options else ' iperf3'}{'' if variables else ' (no TMPDIR)'}"
        with Disk(place, size) as disk, tempfile.TemporaryDirectory(dir=scratch) as out:
            tries.append(shown(where, measured(Try(what, size), options, Path(out) / "data", disk, whole, **variables)))
    return tries


def cache(rng: random.Random, count: int, scratch: Path) -> list[Try]:
    tries, real = [], cache_directory()
    kernel = str(real / "virtual" / "virtual-6.12")
    kinds = ["build", "build, shrinks", "image", "sent"]
    for number in range(count):
        kind = kinds[1] if number % 10 == 9 else rng.choice([kinds[0], *kinds[2:] * 2])
        (size,) = sizes(rng, 1, 4096, {"build": 990_000_000, "image": 60_000_000, "sent": 8_000_000}.get(kind, 1))
        if kind == "build, shrinks":
            size = rng.randint(1_000_000, 600_000_000)  # when so much is used, nothing is left
        with Disk(scratch / "disk", (2 << 30) if kind == "build, shrinks" else size) as disk:
            for name in ("kernels", "sources"):  # fetching is not what is tried
                if (real / name).exists():
                    (disk.place / name).symlink_to(real / name)
            command = [sys.executable, "-c", IN_CACHE, kind, kernel] if kind in ("image", "sent") else [
                *BROBUST, "kernel", "build", "virtual-6.12", "--json"
            ]  # fmt: skip
            tried = Try(kind, size)
            with Shrinking(disk, size if kind == "build, shrinks" else None):
                tried.status, tried.said = call(command, BROBUST_CACHE=str(disk.place))
            if tried.status:
                tried.said = "\n".join(line for line in tried.said.splitlines() if line.startswith("brobust: "))
                judge(tried, disk.place)
                disk.resize(4 << 30)
                if kind in ("image", "sent") or number == 9:  # a kernel is built once: it takes minutes
                    status, said = call(command, BROBUST_CACHE=str(disk.place))
                    tried.completed = "yes" if status == 0 else "NO"
                    tried.broken += [] if status == 0 else [f"not completed: {status} {said[-200:]}"]
                else:
                    tried.completed = "not tried"
            tries.append(shown("cache", tried))
    return tries


class Shrinking:
    """Leave no room on a disk as soon as so much of it is used."""

    def __init__(self, disk: Disk, used: int | None) -> None:
        self._disk, self._used, self._ended = disk, used, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while self._used is not None and not self._ended.wait(0.02):
            if self._disk.used() >= self._used:
                self._disk.resize(self._disk.used())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def shown(where: str, tried: Try) -> Try:
    row = f"{where:8}{tried.what:24}{tried.bytes:>11}  {tried.status:>3}  {tried.kept:>5}  {tried.completed:10}"
    print(f"{row}{tried.said}{''.join(f'  BROKEN: {why}' for why in tried.broken)}", flush=True)
    return tried


PLACES: dict[str, Callable[[random.Random, int, Path], list[Try]]] = {
    "dataset": dataset,
    "cache": cache,
    "shm": lambda rng, count, scratch: temporary("shm", Path("/dev/shm"), rng, count, scratch),
    "tmp": lambda rng, count, scratch: temporary("tmp", scratch / "disk", rng, count, scratch),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--sizes", type=int, default=40)
    parser.add_argument("--only", choices=list(PLACES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mounts-are-ours", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.mounts_are_ours:
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv, "--mounts-are-ours"])
    broken = 0
    print(f"{'where':8}{'what':24}{'bytes':>11}  {'status':>3} {'kept':>5}  {'completed':10}line")
    for name in [given.only] if given.only else PLACES:
        with tempfile.TemporaryDirectory(prefix="full-disks-") as scratch:
            began = time.monotonic()
            tries = PLACES[name](random.Random(f"{name} {given.seed}"), given.sizes, Path(scratch))
        broken += sum(bool(tried.broken) for tried in tries)
        counts = {"status": Counter(t.status for t in tries), "completed": Counter(t.completed for t in tries)}
        said = json.dumps({"where": name, "tries": len(tries), **counts, "broken": sum(bool(t.broken) for t in tries)})
        print(f"{said} in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
