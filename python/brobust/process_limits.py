"""Refuse what the limits of this process (ulimit, cgroups) forbid: a run would hang, abort or send other packets."""

import functools
import os
import re
import resource
import sys
import threading
from pathlib import Path

from brobust.errors import MissingSupport
from brobust.files import size

# What a process maps with polars' threads. With 1.3 to 2 GB, runs aborted or hung, and with 1 GB `brobust plot` hung;
# with 3 they did not.
_POLARS_ADDRESSES = 3_000_000_000
_POLARS_DATA = 500_000_000  # with 100 MB it aborted
# Threads of polars and of its allocator: some, and for each CPU some more. On two CPUs there were 12. Where not all of
# them can be started it panics, or waits for ever.
_POLARS_TASKS, _POLARS_TASKS_OF_CPU = 12, 3


def allow_open_files(needed: int) -> None:
    """Raise the limit of open files as far as this process may, and refuse if so many may not be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard < needed and hard != resource.RLIM_INFINITY:
        raise MissingSupport(
            f"ulimit -n: no more than {hard} files may be open at a time, and up to {needed} are needed; "
            f"run `ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def allow_polars(who: str, tasks: int = 0) -> None:
    """Refuse if polars would panic or hang for lack of addresses or threads, or if `who` could not start so many tasks
    beside it."""
    allow_addresses(_POLARS_ADDRESSES, who)
    allow_data(_POLARS_DATA, who)
    if "polars" not in sys.modules:
        tasks += _POLARS_TASKS + _POLARS_TASKS_OF_CPU * len(os.sched_getaffinity(0))
    allow_tasks(tasks)


@functools.cache
def allow_tasks(needed: int) -> None:
    """Refuse if so many more threads and processes cannot be started. It is tried, once: a limit may be the user's, a
    cgroup's or the machine's, and others' count, too."""
    end, started = threading.Event(), list[threading.Thread]()
    try:
        for _ in range(needed):
            one = threading.Thread(target=end.wait, daemon=True)
            one.start()
            started.append(one)
    except RuntimeError:
        raise MissingSupport(
            f"no more than {len(started)} threads and processes can be started, and up to {needed} are needed; end "
            "others, or raise ulimit -u, or pids.max of the cgroup"
        ) from None
    finally:
        end.set()
        for one in started:
            one.join()


def allow_timers(needed: int) -> None:
    """Refuse if this user's processes may not have so many more timers. Each counts as a signal that waits."""
    found = re.search(r"^SigQ:\s*(\d+)/(\d+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    waiting, allowed = map(int, found.groups()) if found else (0, needed)
    if waiting + needed > allowed:
        raise MissingSupport(
            f"ulimit -i: no more than {allowed} signals may wait, {waiting} do, and up to {needed} are needed for "
            f"timers; run `ulimit -i {waiting + needed}`"
        )


def allow_data(needed: int, why: str) -> None:
    """Refuse if no program may have so many bytes of data of its own."""
    _allow_bytes(resource.RLIMIT_DATA, "-d", "program may have more than {} of data", needed, f"{why} has up to")


def allow_addresses(needed: int, why: str) -> None:
    """Refuse if no program may have so many bytes of addresses."""
    _allow_bytes(resource.RLIMIT_AS, "-v", "program may have more than {} of addresses", needed, f"{why} has up to")


def allow_file_of(needed: int, why: str) -> None:
    """Refuse if no file may have so many bytes."""
    _allow_bytes(resource.RLIMIT_FSIZE, "-f", "file may have more than {}", needed, f"{why} has")


def _allow_bytes(kind: int, option: str, may: str, needed: int, why: str) -> None:
    limit = resource.getrlimit(kind)[0]
    if limit != resource.RLIM_INFINITY and limit < needed:
        said = f"no {may.format(size(limit))}, and {why} {size(needed)}"
        raise MissingSupport(f"ulimit {option}: {said}; run `ulimit {option} unlimited`")
