"""The Rust core: CPU contention for vCPU threads and recordings of what they got, runs in virtual time, congestion
controls in the running kernel, and the sockets of this host.

Times are whole nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns()`), durations nanoseconds, shares fractions of one
CPU.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, final

class ContentionError(Exception):
    """This contention is not possible here, or cannot be recorded; the text is one sentence with the remedy."""

TOLERANCE: float
"""A share, timeslice or off-time that is off by more than this part is not what was asked for."""

class Session:
    """What a process changes on the host; `program`, brobust-host, is the guardian that undoes it. The exceptions are
    BadInput, MissingSupport and RunFailed of brobust.errors. crates/host/src/session.rs has the methods."""

    def __new__(cls, program: str, beside_others: bool) -> Self: ...
    @property
    def directory(self) -> Path: ...
    @property
    def namespace(self) -> str:
        """The name of its network namespace; empty without one."""

    def record_namespace(self) -> str: ...
    def record_process(self, pid: int) -> None: ...
    def hold_cpus(self, cpus: Sequence[int]) -> None:
        """Record that contention may keep these CPUs busy, so that others leave them alone."""

    def contend(self, driver: str, threads: Sequence[tuple[int, int | None, str]], begin_ns: int, nice: int) -> Held:
        """Put threads under contention by a driver of crates/contention/src/held.rs. Each has an id, the CPU that it is
        pinned to (None where the driver needs none of its own), and a schedule as for `check_contention`. `begin_ns`
        (CLOCK_MONOTONIC): when the schedules begin; `nice`: of competitors."""

    def release(self, held: Held) -> None:
        """End it at once, and make every thread what it was before; a second call does nothing. It may return a few
        periods later, when the kernel admits the threads to SCHED_DEADLINE again safely."""

    def end(self) -> None: ...

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

def check_contention(driver: str, schedule: str, threads: Sequence[int], count: int) -> None:
    """Raise ContentionError or BadInput if this driver could not keep the schedule for `count` threads here, of which
    some may be there already; change nothing.

    `schedule`: JSON as crates/timeline/src/schedule.rs reads it. Raises ValueError for other JSON.
    """

def try_deadline(thread: int) -> None:
    """Put a thread under SCHED_DEADLINE for a moment: 10 ms in every 40. ContentionError says why it cannot be."""

def deviation(
    promise: Literal["share", "timeslices", "timeslices at ticks"], timeslice_ns: int, share: float, summary: Summary
) -> str | None:
    """Return None if what was promised is within TOLERANCE of what was asked; else why not, in one sentence."""

def hz() -> int | None:
    """The scheduler's tick rate in Hz; None if the kernel does not tell."""

def hrtick_dl() -> bool | None:
    """Whether the scheduler feature HRTICK_DL is on; None if debugfs is not mounted or not readable."""

@final
class Held:
    """Threads under contention. Dropped without `Session.release`, it releases threads and ends competitors; quotas end
    with the session."""

class Recorder:
    """Records when threads run, sleep and wait for a CPU, from its making on: by a BPF program, every switch to the
    nanosecond. Raises ContentionError if the kernel does not allow it."""

    def __new__(cls, tids: Sequence[int]) -> Self: ...
    def stop(self, requested_off_ns: Sequence[int | None]) -> list[Summary]:
        """End; return what each thread got, in the order given. The off-time that was asked for of each (ns; None: none
        was) decides which waits are noise. A second call returns nothing."""

@final
class Summary:
    """What one thread got, in numbers. A timeslice lies between two off-times: in it the thread could run."""

    effective_share: Final[float]
    """1 - waiting_share: the fraction of time in which the thread had a CPU whenever it wanted one."""

    effective_timeslice_ns: Final[float | None]
    """Length of the timeslices, ns: the mean without the longest and the shortest tenth; None without any."""

    effective_offtime_ns: Final[float | None]
    """Length of the off-times, ns: the mean without the longest and the shortest tenth; None without any."""

    asleep_share: Final[float]
    """Fraction of the known time in which the thread wanted no CPU; above 0.1 the other figures are too good."""

    waiting_share: Final[float]
    """Fraction of the known time in which the thread wanted a CPU and had none, noise included."""

    timeslices_ns: Final[list[int]]
    """Every complete timeslice in order, ns."""

    offtimes_ns: Final[list[int]]
    """Every complete off-time in order, ns."""

    timeslice_starts_ns: Final[list[int]]
    """Start of each of `timeslices_ns`, CLOCK_MONOTONIC ns."""

    offtime_starts_ns: Final[list[int]]
    """Start of each of `offtimes_ns`, CLOCK_MONOTONIC ns."""

    lost_events: Final[int]
    """Scheduler events of this thread that were lost."""

class VirtualError(Exception):
    """A run in virtual time was not measured: a kernel died, hung or made no sense."""

class NoAnswer(VirtualError):
    """A kernel hung."""

class VirtualRun:
    """One run in virtual time."""

    def __init__(self, scenario: str, cpu: int | None) -> None:
        """`scenario`: JSON as crates/virtual/src/scenario.rs reads it. `cpu`: where its processes run; None: anywhere.

        Raises ValueError for JSON that is no scenario.
        """

    def run(self) -> dict[str, Any]:
        """Measure it, without the GIL. Ends early with a signal's exception, and when stopped.

        Keys: `flows` (a dict each: received_bytes, retransmits, drops, rtt_mean_ms, rtt_p99_ms, queue_mean_ms,
        ended_ns, errno), `hash` (XXH3 of the packets), the tables `throughput`, `samples` and `packets` (name of the
        column: numpy's name of its type, its bytes), `timeslices_ns` (of each sender, then of the receiver: when it
        could run), `work` (what it cost), `origin_ns` (when the run began on the kernels' clocks).
        """

    def stop(self) -> None:
        """End it, from another thread."""

def syscall_names() -> dict[int, str]:
    """Return the name of each system call of Linux on x86-64, by its number."""
