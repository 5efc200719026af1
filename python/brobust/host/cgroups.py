"""A quota for single threads: bandwidth control of the CPU controller (Documentation/scheduler/sched-bwc.rst).

Each thread gets a group of its own below the one that it is in, and is moved back at the end. The limit is cpu.max
where the controller is on cgroup v2, and cpu.cfs_quota_us where it is on v1.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brobust.errors import BadInput, MissingSupport

# kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period
MIN_TIMESLICE_NS, MAX_PERIOD_NS = 1_000_000, 1_000_000_000
REMOVE_SECONDS = 2.0


@dataclass(frozen=True)
class Group:
    """A group that was made for a thread, and the group that the thread was in before (`home`)."""

    path: str
    home: str
    is_v2: bool
    enabled_cpu: bool
    """Whether brobust enabled the controller for `home`'s children; the last of its groups disables it again."""

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
                if not _controls_cpu(home):
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
        """Move the threads back and remove the group. Do nothing if it is gone already."""
        group, home = Path(self.path), Path(self.home)
        deadline = time.monotonic() + REMOVE_SECONDS
        while self.exists():
            try:
                for thread in (group / self._members).read_text().split():
                    with contextlib.suppress(ProcessLookupError):  # it has ended
                        (home / self._members).write_text(thread)
                group.rmdir()
            except OSError as error:  # EBUSY: a thread has begun in it since
                if self.exists() and time.monotonic() > deadline:
                    reason = (error.strerror or str(error)).lower()
                    raise MissingSupport(f"cgroup {group} could not be removed ({reason})") from None
                time.sleep(0.01)
        if self._left_controller_on():
            try:
                (home / "cgroup.subtree_control").write_text("-cpu")
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise MissingSupport(f"the CPU controller of {home} could not be switched off ({reason})") from None

    def exists(self) -> bool:
        """Return whether the group exists."""
        return Path(self.path).exists()

    def remains(self) -> bool:
        """Return whether there is anything for `remove` to do."""
        return self.exists() or self._left_controller_on()

    def _left_controller_on(self) -> bool:
        """Return whether brobust enabled the controller and nobody needs it: neither another group of brobust's nor one
        of somebody else, which would lose its limit."""
        home = Path(self.home)
        try:
            return self.enabled_cpu and _controls_cpu(home) and not any(map(_is_limited, home.iterdir()))
        except FileNotFoundError:  # the home has gone
            return False

    @property
    def _members(self) -> str:
        return "cgroup.threads" if self.is_v2 else "tasks"


def check(timeslice_ns: int, period_ns: int) -> None:
    """Refuse what bandwidth control cannot do."""
    if timeslice_ns < MIN_TIMESLICE_NS or period_ns > MAX_PERIOD_NS:
        raise BadInput(
            f"driver quota: {timeslice_ns / 1e6:g} ms in every {period_ns / 1e6:g} ms is not possible; the kernel "
            "takes 1 ms and more in at most 1 s; give another timeslice, or driver burner"
        )


def group_for(thread: int, others: Iterable[Group] = ()) -> Group:
    """Return the group that is to be made for a thread, beside `others` of brobust's; make nothing yet."""
    is_v2, mount, path = _controller_of(thread)
    home = Path(mount) / path.lstrip("/")
    # If another group of brobust's enabled it, this one has to disable it should it be the last.
    ours = any(other.home == str(home) and other.enabled_cpu for other in others)
    enabled_cpu = is_v2 and (ours or not _controls_cpu(home))
    return Group(str(home / f"brobust-{thread}"), str(home), is_v2, enabled_cpu)


def _controls_cpu(home: Path) -> bool:
    """Return whether the controller is enabled for the children of a group of v2."""
    return "cpu" in (home / "cgroup.subtree_control").read_text().split()


def _is_limited(child: Path) -> bool:
    """Return whether a group of v2 has a setting of the CPU controller that it would lose with the controller."""
    for name, without in (("cpu.max", "max"), ("cpu.weight", "100"), ("cpu.idle", "0")):
        with contextlib.suppress(OSError):
            if (child / name).read_text().split()[0] != without:
                return True
    return False


def _controller_of(thread: int) -> tuple[bool, str, str]:
    """Return whether the CPU controller is on v2, where it is mounted, and the thread's group there."""
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
    """Yield the place, kind and options of each mount."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        yield mount.replace("\\040", " "), kind, options.split(",")


def usable() -> bool:
    """Return whether groups can be made here."""
    try:
        home = group_for(os.getpid()).home
    except (OSError, MissingSupport):
        return False
    return os.access(home, os.W_OK)
