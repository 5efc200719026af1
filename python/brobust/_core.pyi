"""The Rust core: CPU contention for vCPU threads and recordings of what they got, runs in virtual time, congestion
controls in the running kernel, and the sockets of this host.

Times are whole nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns()`), durations nanoseconds, shares fractions of one
CPU.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, final

__all__ = [
    "NOISE_NS",
    "TOLERANCE",
    "Contention",
    "ContentionError",
    "HeldGroup",
    "Recorder",
    "Recording",
    "Session",
    "Summary",
    "VirtualError",
    "VirtualRefused",
    "VirtualRun",
    "check_contention",
    "check_quota",
    "control_names",
    "control_settings",
    "controls",
    "deviation",
    "hrtick_dl",
    "hz",
    "replay_calls",
    "syscall_names",
]

class ContentionError(Exception):
    """This contention is not possible here, or cannot be recorded; the text is one sentence with the remedy."""

NOISE_NS: int
"""Waits shorter than this (ns) are not off-times: interrupts and neighbours' wakeups."""

TOLERANCE: float
"""A share, timeslice or off-time that is off by more than this part is not what was asked for."""

class Session:
    """What a process changes on the host; `program`, brobust-host, is the guardian that undoes it. The exceptions are
    BadInput, MissingSupport and RunFailed of brobust.errors. crates/host/src/session.rs has the methods."""

    def __new__(cls, program: str, beside_others: bool, silence_seconds: float | None) -> Self: ...
    @property
    def directory(self) -> Path: ...
    @property
    def namespace(self) -> str:
        """The name of its network namespace; empty without one."""

    def say_alive(self) -> None: ...
    def record_namespace(self) -> str: ...
    def record_process(self, pid: int) -> None: ...
    def hold_cpus(self, cpus: Sequence[int], roaming: int, force: bool) -> None: ...
    def hold_groups(self, threads: Sequence[int], timeslice_ns: int, period_ns: int) -> list[HeldGroup]: ...
    def release_groups(self, groups: Sequence[HeldGroup]) -> None: ...
    def hold_sysctl(self, name: str, value: str) -> None: ...
    def release_sysctl(self, name: str) -> None: ...
    def end(self) -> None: ...

@final
class HeldGroup:
    """A cgroup that a session has made for a thread."""

    @property
    def path(self) -> Path: ...

def check_quota(timeslice_ns: int, period_ns: int, threads: Sequence[int]) -> None:
    """Refuse a quota that the kernel does not take, or that these threads cannot be given."""

def control_names() -> list[str]:
    """The congestion controls of cc/controls: BPF in a live kernel, modules in virtual time."""

def controls() -> list[tuple[str, str | None]]:
    """The congestion controls that users can choose, each with the kernel's control that it wraps, if it wraps one."""

def control_settings(name: str, given: Sequence[tuple[str, str]]) -> list[tuple[str, int]]:
    """Parameters of this control as people give them, as whole names and the numbers that a kernel is given.

    ValueError with one sentence where a name or a value is not allowed.
    """

MODES: tuple[str, ...]
"""The names of enum cc_mode (cc/cc.h), by number: the phase that a control is in."""

CA_STATES: tuple[str, ...]
"""The names of enum cc_ca_state (cc/cc.h), by number: the state of the stack's loss recovery."""

CAUSES: dict[str, str]
"""What can limit a socket, and what that means, in the order in which users see it: `cpu-limited` first
(crates/watch/src/cause.rs)."""

def replay_calls(name: str, settings: Sequence[tuple[str, int]], recordings: Sequence[str]) -> str:
    """The calls in these files (cc/call.h) made again; JSON of what was found (crates/cc/src/replay.rs, Outcome).

    ValueError for a control that is not one of cc/controls, OSError for a file that cannot be read.
    """

def check_contention(driver: str, schedule: str, threads: int) -> None:
    """Raise ContentionError if this driver could not keep the schedule for so many threads here; change nothing.

    `schedule`: JSON as crates/timeline/src/schedule.rs reads it. Raises ValueError for other JSON.
    """

def deviation(
    promise: Literal["share", "timeslices", "timeslices at ticks"], timeslice_ns: int, share: float, summary: Summary
) -> str | None:
    """Return None if what was promised is within TOLERANCE of what was asked; else why not, in one sentence."""

def when_it_runs(schedule: str, sleeps_and_work_ns: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """When a thread runs (begin and end, ns) that sleeps and then wants so much CPU, again and again, under a schedule.
    Each sleep begins when the work before it is done."""

def hz() -> int | None:
    """The scheduler's tick rate in Hz; None if the kernel does not tell."""

def hrtick_dl() -> bool | None:
    """Whether the scheduler feature HRTICK_DL is on; None if debugfs is not mounted or not readable."""

@final
class Contention:
    """Threads under contention: by `deadline` under SCHED_DEADLINE, or by `burner`, which pins each to its CPU and
    occupies that CPU in the off-times; the thread then has nice value -20, so that no ordinary neighbour of its session
    gets its timeslices.

    `threads`: id, CPU (None where the driver needs none of its own), and schedule as for `check_contention`. `start_ns`
    (CLOCK_MONOTONIC ns): when the schedules begin, the same for threads that are to go together; None: at `start`.
    """

    def __new__(
        cls, driver: str, threads: Sequence[tuple[int, int | None, str]], start_ns: int | None = None
    ) -> Self: ...
    def start(self) -> None:
        """Put each thread that is not under contention there, or release all and raise ContentionError."""

    def settle(self) -> bool:
        """Wait until every thread is seen to be under contention: True. False if `start` has to be called again; after
        some attempts ContentionError."""

    def stop(self) -> None:
        """End, and make every thread what it was before; a second call does nothing. The contention ends at once; the
        call may return a few periods later, when the kernel admits the threads to SCHED_DEADLINE again safely."""

@final
class Recorder:
    """Records when threads run, sleep and wait for a CPU. A context manager; afterwards see `recordings`.

    By a BPF program, every switch to the nanosecond.
    """

    def __new__(cls, tids: Sequence[int]) -> Self: ...
    def start(self) -> None:
        """Begin; recording is on when this returns. Raise ContentionError if the kernel does not allow it."""

    def stop(self) -> list[Recording]:
        """End; return one recording per thread in the order given, without duplicates. A second call returns the
        same."""

    @property
    def recordings(self) -> list[Recording]:
        """What `stop` has returned; empty before it."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Recording:
    """What one thread did from start to end, or to its exit."""

    @property
    def tid(self) -> int:
        """Thread id."""

    @property
    def intervals(self) -> list[tuple[int, int, Literal["running", "asleep", "waiting", "unknown"]]]:
        """Start (CLOCK_MONOTONIC ns), duration (ns) and state, without gaps; "waiting" wants a CPU and has none."""

    def summary(self, requested_off_ns: int | None = None) -> Summary:
        """Sum up. The off-time that was asked for (ns), if any, decides which waits are noise."""

@final
class Summary:
    """What one thread got, in numbers. A timeslice lies between two off-times: in it the thread could run."""

    @property
    def effective_share(self) -> float:
        """1 - waiting_share: the fraction of time in which the thread had a CPU whenever it wanted one."""

    @property
    def effective_timeslice_ns(self) -> float | None:
        """Length of the timeslices, ns: the mean without the longest and the shortest tenth; None without any."""

    @property
    def effective_offtime_ns(self) -> float | None:
        """Length of the off-times, ns: the mean without the longest and the shortest tenth; None without any."""

    @property
    def asleep_share(self) -> float:
        """Fraction of the known time in which the thread wanted no CPU; above 0.1 the other figures are too good."""

    @property
    def waiting_share(self) -> float:
        """Fraction of the known time in which the thread wanted a CPU and had none, noise included."""

    @property
    def timeslices_ns(self) -> list[int]:
        """Every complete timeslice in order, ns."""

    @property
    def offtimes_ns(self) -> list[int]:
        """Every complete off-time in order, ns."""

    @property
    def timeslice_starts_ns(self) -> list[int]:
        """Start of each of `timeslices_ns`, CLOCK_MONOTONIC ns."""

    @property
    def offtime_starts_ns(self) -> list[int]:
        """Start of each of `offtimes_ns`, CLOCK_MONOTONIC ns."""

    @property
    def lost_events(self) -> int:
        """Scheduler events of this thread that were lost."""

class VirtualError(Exception):
    """A run in virtual time was not measured: a kernel died, hung or made no sense."""

class VirtualRefused(VirtualError):
    """A run in virtual time cannot be measured as asked."""

class VirtualRun:
    """One run in virtual time."""

    def __init__(self, scenario: str, cpu: int | None = None) -> None:
        """`scenario`: JSON as crates/virtual/src/scenario.rs reads it. `cpu`: where its processes run; None: anywhere.

        Raises ValueError for JSON that is no scenario.
        """

    def run(self) -> dict[str, Any]:
        """Measure it, without the GIL. Ends early with a signal's exception, and when stopped.

        Keys: `flows` (a dict each: received_bytes, retransmits, drops, rtt_mean_ms, rtt_p99_ms, queue_mean_ms,
        ended_ns, errno), `hash` (SHA-256 of the packets), the tables `throughput`, `samples` and `packets` (name of the
        column: numpy's name of its type, its bytes), `timeslices_ns` (of each sender, then of the receiver: when it
        could run), `work` (what it cost), `origin_ns` (when the run began on the kernels' clocks).
        """

    def stop(self) -> None:
        """End it, from another thread."""

def syscall_names() -> dict[int, str]:
    """Return the name of each system call of Linux on x86-64, by its number."""
