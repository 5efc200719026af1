"""The Rust core: CPU contention for vCPU threads, and a record of what they really got.

Times are whole nanoseconds of CLOCK_MONOTONIC (`time.monotonic_ns()`), durations nanoseconds, shares fractions of one
CPU.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self, final

__all__ = [
    "Burner",
    "ContentionError",
    "Deadline",
    "Distribution",
    "LoadRefused",
    "Recorder",
    "Recording",
    "Summary",
    "VirtualError",
    "VirtualRefused",
    "VirtualRun",
    "check_burner",
    "check_deadline",
    "check_load",
    "check_replay",
    "control_names",
    "control_params",
    "control_settings",
    "hrtick_dl",
    "hz",
    "load",
    "loadable",
    "programs",
    "release_deadline",
    "replay_calls",
    "sockets_by_control",
    "unfaithful",
    "unload",
]

class ContentionError(Exception):
    """The contention asked for cannot be had, or cannot be recorded; the text is one sentence with the remedy."""

def control_names() -> list[str]:
    """The congestion controls of cc/controls: BPF in a live kernel, modules in virtual time."""

def control_params(name: str) -> list[tuple[str, str, str, str, str]]:
    """The parameters of a control: name, value without a setting, least, most (with units), what it is."""

def control_settings(name: str, host: str, prefix: str, given: Sequence[tuple[str, str]]) -> list[tuple[str, int]]:
    """Names and values as people give them, as whole names and the numbers that a kernel is given. The control `name`
    takes those parameters of the control `host` that begin with `prefix`.

    ValueError with one sentence where a name or a value is not allowed.
    """

class LoadRefused(Exception):
    """A congestion control cannot be loaded or removed; the text is one sentence with the remedy."""

def loadable() -> list[tuple[str, bool, str | None]]:
    """The controls that can be loaded: name, whether the kernel has it now, the pin in bpffs if there is one."""

def check_load(name: str, params: Sequence[tuple[str, int]]) -> None:
    """Raise LoadRefused where the control could not be loaded; changes nothing."""

def replay_calls(name: str, settings: Sequence[tuple[str, int]], recordings: Sequence[str]) -> str:
    """The calls in these files (cc/call.h) made again; JSON of what was found (crates/cc/src/replay.rs, Outcome).

    ValueError for a control that is not one of cc/controls, OSError for a file that cannot be read.
    """

def load(name: str, params: Sequence[tuple[str, int]]) -> None:
    """Load a control, with parameters as `control_settings` gives them; it stays, pinned, until `unload`."""

def unload(name: str) -> None:
    """Remove a control. Sockets that have it keep it until they close."""

def programs(name: str) -> list[tuple[str, int, int, int, int]]:
    """The programs of a loaded control: callback, instructions that the verifier looked at, instructions, calls while
    kernel.bpf_stats_enabled was on, and their time (ns). LoadRefused where it is not loaded.
    """

def sockets_by_control() -> dict[str, int]:
    """TCP connections of the calling thread's network namespace, by congestion control."""

def check_deadline(timeslice_ns: int, share: float, threads: int = 1) -> None:
    """Raise ContentionError if SCHED_DEADLINE would not admit `threads` threads with this timeslice (ns) and share."""

def check_burner(timeslice_ns: int, share: float, start_jitter: float = 0.0, length_jitter: float = 0.0) -> None:
    """Raise ContentionError if a burner could not keep this timeslice (ns) and share, say for real-time throttling."""

def check_replay(offtimes: Sequence[tuple[int, int]]) -> None:
    """Raise ContentionError if off-times with these starts and durations (ns) are out of order, overlap, or are more
    than real-time threads may use."""

def release_deadline(tid: int) -> None:
    """Get a thread that a killed process left under SCHED_DEADLINE ready for another policy; else nothing happens."""

def unfaithful(
    driver: Literal["deadline", "burner", "quota"], timeslice_ns: int, share: float, summary: Summary
) -> str | None:
    """None if share and timeslice (ns) are within 10 % of what was asked; else a sentence with numbers and cause."""

def hz() -> int | None:
    """The scheduler's tick rate in Hz; None if the kernel does not tell."""

def hrtick_dl() -> bool | None:
    """Whether the scheduler feature HRTICK_DL is on; None if debugfs is not mounted or not readable."""

@final
class Deadline:
    """Holds threads under SCHED_DEADLINE: `runtime_ns` of CPU (ns) in every `period_ns` (ns). A context manager."""

    def __new__(cls, tids: Sequence[int], runtime_ns: int, period_ns: int) -> Self: ...
    def start(self) -> None:
        """Apply it to all threads, or to none and raise ContentionError. As `admit` and `get_going` until it does."""

    def admit(self) -> None:
        """Put under SCHED_DEADLINE which is not, or release all and raise ContentionError."""

    def get_going(self) -> bool:
        """Wait until every thread has been seen to run in its second period: True. False if the kernel keeps one from
        it, which has to be admitted again; after some attempts ContentionError."""

    def stop(self) -> None:
        """Give every thread its former policy back; returns a few periods later. Again does nothing.

        The contention ends at once; the wait is until the kernel admits the threads to SCHED_DEADLINE again safely.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Burner:
    """Pins a vCPU thread to `cpu` and occupies that CPU for `off_ns` (ns) after every `on_ns` (ns). A context manager.

    One per vCPU thread, each on a CPU of its own. Meanwhile the thread has nice value -20, so that no ordinary
    neighbour of its session gets the on-windows. `phase_ns` (ns) is free time before the first period. By `seed` each
    on-window begins somewhere in the first `start_jitter` part of its period's off-time, and each length is drawn
    evenly from 1 - length_jitter to 1 + length_jitter of what was asked. `start_ns` (CLOCK_MONOTONIC ns) is when the
    schedule begins, the same for burners that are to go together; None for now.
    """

    def __new__(
        cls,
        vcpu_tid: int,
        cpu: int,
        on_ns: int,
        off_ns: int,
        *,
        phase_ns: int = 0,
        start_jitter: float = 0.0,
        length_jitter: float = 0.0,
        seed: int = 0,
        start_ns: int | None = None,
    ) -> Self: ...
    @staticmethod
    def replay(vcpu_tid: int, cpu: int, offtimes: Sequence[tuple[int, int]], *, start_ns: int | None = None) -> Burner:
        """One that occupies the CPU at these starts for these durations (ns), counted from `start_ns` (CLOCK_MONOTONIC
        ns; None: when it is started), and never after the last."""

    def start(self) -> None:
        """Pin the thread and begin, or raise ContentionError and leave everything as it was."""

    def stop(self) -> None:
        """End at once and give the thread its former CPU affinity and nice value back; again does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Recorder:
    """Records when threads run, sleep and wait for a CPU. A context manager; afterwards see `recordings`.

    By a BPF program, every switch to the nanosecond; or `unprivileged`, by looking every millisecond at what the kernel
    counts in /proc, from which off-times are known in their length, and to a millisecond in when they were.
    """

    def __new__(cls, tids: Sequence[int], *, unprivileged: bool = False) -> Self: ...
    def start(self) -> None:
        """Begin; recording is on when this returns. Raise ContentionError if the kernel does not allow it."""

    def take(self) -> list[Recording]:
        """What was recorded since the start, or since the last call: one per thread in the order given."""

    def stop(self) -> list[Recording]:
        """End; one whole recording per thread in the order given, duplicates left out. Again returns the same."""

    @property
    def recordings(self) -> list[Recording]:
        """All that was taken so far, one recording per thread; empty before."""

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
    def start_ns(self) -> int:
        """Start of the recording, CLOCK_MONOTONIC ns."""

    @property
    def end_ns(self) -> int:
        """End of the recording, CLOCK_MONOTONIC ns."""

    @property
    def lost_events(self) -> int:
        """Scheduler events of this thread that were lost; their time is "unknown" in `intervals`."""

    @property
    def intervals(self) -> list[tuple[int, int, Literal["running", "asleep", "waiting", "unknown"]]]:
        """Start (CLOCK_MONOTONIC ns), duration (ns) and state, without gaps; "waiting" wants a CPU and has none."""

    def summary(self, asked_off_ns: int | None = None) -> Summary:
        """Sum up. The off-time that was asked for (ns), if given, decides which waits are noise."""

@final
class Summary:
    """What one thread got, in numbers. A window lies between two off-times: in it the thread could run."""

    @property
    def effective_share(self) -> float:
        """1 - waiting_share: the fraction of time in which the thread had a CPU whenever it wanted one."""

    @property
    def effective_timeslice_ns(self) -> float | None:
        """Length of the windows, ns: the mean without the longest and the shortest tenth; None without windows."""

    @property
    def effective_offtime_ns(self) -> float | None:
        """Length of the off-times, ns: the mean without the longest and the shortest tenth; None without off-times."""

    @property
    def running_share(self) -> float:
        """Fraction of the known time in which the thread ran."""

    @property
    def asleep_share(self) -> float:
        """Fraction of the known time in which the thread wanted no CPU; above 0.1 the other figures flatter."""

    @property
    def waiting_share(self) -> float:
        """Fraction of the known time in which the thread wanted a CPU and had none, noise included."""

    @property
    def known_ns(self) -> int:
        """Time of which the state is known, ns."""

    @property
    def unknown_ns(self) -> int:
        """Time in which events were lost, ns."""

    @property
    def windows_ns(self) -> list[int]:
        """Every complete window in order, ns."""

    @property
    def offtimes_ns(self) -> list[int]:
        """Every complete off-time in order, ns."""

    @property
    def window_starts_ns(self) -> list[int]:
        """When each window of `windows_ns` began, CLOCK_MONOTONIC ns."""

    @property
    def offtime_starts_ns(self) -> list[int]:
        """When each off-time of `offtimes_ns` began, CLOCK_MONOTONIC ns."""

    @property
    def window(self) -> Distribution | None:
        """How the windows spread; None without any."""

    @property
    def offtime(self) -> Distribution | None:
        """How the off-times spread; None without any."""

    @property
    def noise_count(self) -> int:
        """Number of waits too short to be an off-time: interrupts, kernel threads."""

    @property
    def noise_ns(self) -> int:
        """Total of the waits too short to be an off-time, ns."""

    @property
    def lost_events(self) -> int:
        """Scheduler events of this thread that were lost."""

@final
class Distribution:
    """How a list of lengths spreads."""

    @property
    def count(self) -> int:
        """Number of lengths."""

    @property
    def mean_ns(self) -> float:
        """Mean, ns."""

    @property
    def trimmed_mean_ns(self) -> float:
        """Mean without the longest and the shortest tenth, ns."""

    @property
    def median_ns(self) -> float:
        """Median, ns."""

    @property
    def p10_ns(self) -> float:
        """A tenth is shorter, ns."""

    @property
    def p90_ns(self) -> float:
        """A tenth is longer, ns."""

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
        errno), `hash` (SHA-256 of the packets), the tables `throughput`, `samples` and `packets` (name of the column:
        numpy's name of its type, its bytes), `windows_ns` (of each sender, then of the receiver: when it could run),
        `work` (what it cost).
        """

    def stop(self) -> None:
        """End it, from another thread."""

class WatchError(Exception):
    """Sockets cannot be read."""

class Watch:
    """Follows the TCP sockets of this host (crates/watch)."""

    def __init__(
        self, window_s: float, netns: str | None = None, local_port: int | None = None, remote_port: int | None = None
    ) -> None:
        """`window_s`: how far back a verdict looks. `netns`: a name of ip-netns(8), `all`, or our own."""

    def sweep(self, top: int) -> str:
        """Read all sockets once, without the GIL: a report as JSON (docs/watch.md), with the `top` flows."""
