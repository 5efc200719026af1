"""A quota for single threads: bandwidth control of the CPU controller (Documentation/scheduler/sched-bwc.rst).

Each thread gets a group of its own below the one that it is in, and goes back when it is over: cpu.max where the
controller is on cgroup v2, cpu.cfs_quota_us where it is on v1.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brobust.errors import BadInput, MissingSupport

# kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period
LEAST_NS, MOST_PERIOD_NS = 1_000_000, 1_000_000_000


@dataclass(frozen=True)
class Group:
    """A group that was made for a thread: where it lies, and where the thread was before."""

    path: str
    home: str
    is_v2: bool
    enabled_cpu: bool
    """The controller was enabled for `home`'s children, which has to be undone."""

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> Group:
        return cls(**entry)

    def as_entry(self) -> dict[str, Any]:
        return asdict(self)

    def hold(self, thread: int, timeslice_ns: int, period_ns: int) -> None:
        """Make the group and put the thread there: `timeslice_ns` of CPU in every `period_ns`."""
        group, home = Path(self.path), Path(self.home)
        quota, period = round(timeslice_ns / 1000), round(period_ns / 1000)  # us
        try:
            group.mkdir()
            if self.is_v2:
                (group / "cgroup.type").write_text("threaded")
                if self.enabled_cpu:
                    (home / "cgroup.subtree_control").write_text("+cpu")
                (group / "cpu.max").write_text(f"{quota} {period}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(period))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / self._members).write_text(str(thread))
        except OSError as error:
            self.remove()
            raise MissingSupport(
                f"driver quota: {error.filename or group} refused ({(error.strerror or '').lower()}); "
                "give another driver, burner or deadline"
            ) from None

    def remove(self) -> None:
        """Send the threads home and remove the group; one that is gone already is no matter."""
        group, home = Path(self.path), Path(self.home)
        with contextlib.suppress(OSError):
            for thread in (group / self._members).read_text().split():
                with contextlib.suppress(OSError):
                    (home / self._members).write_text(thread)
            group.rmdir()
        if self.enabled_cpu and not self.exists():
            with contextlib.suppress(OSError):
                (home / "cgroup.subtree_control").write_text("-cpu")

    def exists(self) -> bool:
        return Path(self.path).exists()

    @property
    def _members(self) -> str:
        return "cgroup.threads" if self.is_v2 else "tasks"


def check(timeslice_ns: int, period_ns: int) -> None:
    """Refuse what bandwidth control cannot do."""
    if timeslice_ns < LEAST_NS or period_ns > MOST_PERIOD_NS:
        raise BadInput(
            f"driver quota: {timeslice_ns / 1e6:g} ms in every {period_ns / 1e6:g} ms cannot be had; the kernel takes "
            "1 ms and more in at most 1 s; give another timeslice, or driver burner"
        )


def group_for(thread: int) -> Group:
    """The group to be made for a thread; nothing is made yet."""
    is_v2, mount, path = _controller_of(thread)
    home = Path(mount) / path.lstrip("/")
    enabled_cpu = is_v2 and "cpu" not in (home / "cgroup.subtree_control").read_text().split()
    return Group(str(home / f"brobust-{thread}"), str(home), is_v2, enabled_cpu)


def _controller_of(thread: int) -> tuple[bool, str, str]:
    """Whether the CPU controller is on v2, where it is mounted, and the thread's group there."""
    of_hierarchy: dict[str, str] = {}
    for line in Path(f"/proc/{thread}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        of_hierarchy |= dict.fromkeys(controllers.split(","), path)
    for mount, kind, options in _mounts():
        if kind == "cgroup" and "cpu" in options and "cpu" in of_hierarchy:
            return False, mount, of_hierarchy["cpu"]
        if kind == "cgroup2" and "" in of_hierarchy:
            with contextlib.suppress(OSError):
                if "cpu" in (Path(mount) / "cgroup.controllers").read_text().split():
                    return True, mount, of_hierarchy[""]
    raise MissingSupport(
        "driver quota: no CPU controller is mounted; mount one (`mount -t cgroup2 none /sys/fs/cgroup`), "
        "or give driver burner"
    )


def _mounts() -> Iterator[tuple[str, str, list[str]]]:
    """Where, what kind, and with which options."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        yield mount.replace("\\040", " "), kind, options.split(",")


def usable() -> bool:
    """Whether groups can be made here."""
    try:
        home = group_for(os.getpid()).home
    except (OSError, MissingSupport):
        return False
    return os.access(home, os.W_OK)
