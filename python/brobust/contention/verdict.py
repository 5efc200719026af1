"""Whether contention, or a run, is what was asked for: None if so, else why not, in one sentence.

A thread that a driver had promised timeslices is judged in crates/contention (verify.rs), with the same tolerance.
"""

from collections.abc import Iterator, Mapping, Sequence

from brobust import _core, units
from brobust.contention import recordings
from brobust.drivers import Driver
from brobust.drivers.request import Request
from brobust.scenario import Contention, Flows, Scenario

# Until a SYN or its answer that was lost is sent again (include/net/tcp.h, TCP_TIMEOUT_INIT).
SYN_TIMEOUT = 1_000_000_000  # ns
# The path guest shares its CPU with the rest of the testbed, and waits for it 5-15 % of the time without harm. If it
# waits longer, the bottleneck itself was late: the run then says as little about the sender as one with a wrong share.
MAX_PATH_WAITING_SHARE = 0.25
# An undisturbed vCPU that had less than this of its CPU was disturbed by something else.
MIN_UNDISTURBED_SHARE = 0.9

# With fewer packets under way a flow has no three duplicate ACKs: it waits for a timeout after every loss, and others
# may keep it from sending for seconds.
FRAMES_OF_A_FLOW = 4

TimeSlices = Sequence[tuple[int, int]]
"""When a CPU could run: begin and end, ns after the run's start, in order."""


def outcome(reason: str | None) -> dict[str, str | None]:
    """Return the columns of a run's record that say whether it is unfaithful, and why."""
    return {"outcome": "unfaithful" if reason else "ok", "reason": reason}


def of_thread(driver: Driver, got: _core.Summary, begin_ns: int | None) -> str | None:
    """Judge a thread by what its driver promised. `begin_ns` (CLOCK_MONOTONIC): when its recorded off-times began."""
    requested = driver.requested
    if driver.promise is None:
        return None
    if driver.promise != "recording":
        return _core.deviation(driver.promise, requested.timeslice, requested.share, got)
    if begin_ns is None or not got.timeslice_starts_ns:
        return "not one whole timeslice was seen"
    # Between its first whole timeslice and its last.
    first, last = got.timeslice_starts_ns[0], got.timeslice_starts_ns[-1]
    seen = zip(got.offtime_starts_ns, got.offtimes_ns, strict=True)
    wanted = ((begin_ns + start, duration) for start, duration in driver.offtimes)
    off, recorded = (sum(length for start, length in them if first <= start < last) for them in (seen, wanted))
    return _unlike_recorded("the vCPU", off, recorded, requested)


def of_undisturbed(got: _core.Summary) -> str | None:
    """Judge a thread that was to have a CPU whenever it wanted one."""
    if got.effective_share >= MIN_UNDISTURBED_SHARE:
        return None
    return (
        f"the vCPU was to be undisturbed and had {got.effective_share:.1%} of its CPU: something else on this host was "
        "busy"
    )


def of_path(got: _core.Summary) -> str | None:
    """Judge the vCPU of the path guest, which nobody is to hold up."""
    if got.waiting_share <= MAX_PATH_WAITING_SHARE:
        return None
    return (
        f"the path guest waited for a CPU {got.waiting_share:.0%} of the time: something else on this host was busy, "
        "or the path is too fast for this machine"
    )


def of_machine(steal: float) -> str | None:
    """Judge the machine under the testbed by the largest share of a CPU's time that its hypervisor gave to others: what
    its threads had of their CPUs is then less than its kernel says."""
    if steal <= _core.TOLERANCE:
        return None
    return f"this machine's hypervisor gave {steal:.1%} of a CPU to others"


def of_sender(steal: float, late: float | None, max_away: float) -> str | None:
    """Judge a sender of backend lab that was to have its CPU whenever it wanted one. `steal`: the share of its time
    that its hypervisor gave to others, which not every one tells; `late`: the share of timers that came late."""
    if max(steal, late or 0.0) <= max_away:
        return None
    if steal > max_away:
        what = f"its hypervisor gave {steal:.1%} of a CPU to others"
    else:
        what = f"{late:.1%} of its timers were late by more than 2 ms: it, or what it runs on, was busy"
    return f"the sender was to be undisturbed, and {what}; sender.max_steal in the hosts file says how much may be"


def of_hosts(late: Mapping[str, float]) -> str | None:
    """Judge path host and receiver of backend lab, which nobody is to hold up, by the same share of each."""
    name, share = max(late.items(), key=lambda one: one[1], default=("", 0.0))
    if share <= MAX_PATH_WAITING_SHARE:
        return None
    return f"{share:.1%} of the timers of the {name} were late by more than 2 ms: it, or what it runs on, was busy"


def in_virtual_time(scenario: Scenario, slices: Sequence[TimeSlices], delivered: Sequence[float]) -> str | None:
    """Judge a run in virtual time. `slices`: the timeslices of each sender, then of the receiver. `delivered`: the
    amount of each flow, in any unit."""
    return next(_complaints(scenario, slices), None) or nothing_delivered(scenario, delivered)


def _complaints(scenario: Scenario, slices: Sequence[TimeSlices]) -> Iterator[str]:
    *senders, receiver = slices
    for number, of_sender in enumerate(senders, start=1):
        name = "the sender" if len(senders) == 1 else f"sender {number}"
        yield from _share_off(name, scenario.contention_of(number), of_sender, scenario.duration)
    yield from _share_off("the receiver", scenario.receiver, receiver, scenario.duration)


def _share_off(name: str, requested: Contention, slices: TimeSlices, duration: int) -> Iterator[str]:
    off = duration - sum(end - begin for begin, end in slices)
    if not requested.active:
        return
    if requested.replay is not None:
        times = recordings.offtimes(requested.replay)
        recorded = sum(max(0, min(begin + length, duration) - begin) for begin, length in times)
        if recorded == 0 and len(recordings.of_each_vcpu(requested.replay)) == 1:
            yield f"{requested.replay} has no off-time in the run's {units.show_time(duration)}: no CPU was taken away"
        elif (reason := _unlike_recorded(name, off, recorded, requested)) is not None:
            yield reason
        return
    if requested.modelled is not None and requested.modelled.sleeps:
        return  # its share is the most that it may have; when it may run depends on when it wants to
    contended = requested.contended(duration)
    # Outside of that time the CPU was free.
    share = (contended - off) / contended
    # Of several vCPUs, one suffices: between all at once, and none together with another.
    max_share = min(1.0, requested.vcpus * requested.share)
    wanted = min(max(share, requested.share), max_share)
    if _is_off(share, wanted):
        yield (
            f"{name} had {share:.1%} of its CPU while it was taken away, instead of {wanted:.1%}: that time "
            f"of {units.show_time(contended)} holds {contended / requested.period:.3g} periods of "
            f"{units.show_time(requested.period)}; give a longer duration, or a shorter timeslice"
        )


def _unlike_recorded(name: str, off: int, recorded: int, requested: Request) -> str | None:
    if recorded and _is_off(off, recorded):
        return f"{name} was off its CPU for {off / recorded:.0%} of the time that {requested.replay} says"
    return None


def _is_off(got: float, requested: float) -> bool:
    return abs(got / requested - 1) > _core.TOLERANCE


def nothing_delivered(scenario: Scenario, delivered: Sequence[float]) -> str | None:
    """Judge whether any byte arrived in the whole run, and of each flow that had the time and the room for it."""
    if not any(delivered):
        return "no byte reached the receiver"
    flows = scenario.each_flow
    if _frames_of_path(scenario) < FRAMES_OF_A_FLOW * len(flows):
        return None  # so many flows lock some of their number out: a result
    for number, (group, amount) in enumerate(zip(flows, delivered, strict=True)):
        latest = group.start + group.start_spread
        sending = (scenario.duration if group.stop is None else group.stop) - latest
        if not amount and sending > _max_time_to_first_byte(scenario, group):
            return f"no byte of flow {number} ({group.cc}) reached the receiver in {units.show_time(sending)}"
    return None


def _frames_of_path(scenario: Scenario) -> float:
    """Return how many full frames fit on the path and into its buffer."""
    path = scenario.path
    return (path.narrowest * path.rtt / 8e9 + path.buffer_bytes) / units.FRAME_BYTES


def _max_time_to_first_byte(scenario: Scenario, group: Flows) -> int:
    """Return how long the first byte may take, ns: the handshake, lost once, behind a full buffer, each way through an
    off-time."""
    first, changes = scenario.rtt_of(group)
    rtt = max([first, *(rtt for _, rtt in changes)])
    queue = scenario.path.buffer_bytes * 8 * 10**9 // min(scenario.path.bandwidths)
    if scenario.path.second_bandwidth is not None:
        queue += (scenario.path.second_buffer_bytes or 0) * 8 * 10**9 // scenario.path.second_bandwidth
    off = _max_off_time(scenario.contention_of(group.sender)) + _max_off_time(scenario.receiver)
    return SYN_TIMEOUT + 2 * (rtt + queue + off)


def _max_off_time(contention: Contention) -> int:
    """Return the longest off-time, ns."""
    if not contention.active:
        return 0
    if contention.replay is not None:
        return max(length for of_one in recordings.of_each_vcpu(contention.replay) for _, length in of_one)
    off = contention.period - contention.timeslice
    return round(off * (1 + contention.start_jitter) * (1 + contention.length_jitter))
