"""Whether a run is what was asked for: what it delivered, on either backend, and the CPU that it had in virtual time.

What a vCPU of the testbed really had is judged in crates/contention (faithful.rs), with the same tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from brobust import units
from brobust.contention import recordings
from brobust.scenario import Contention, Flows, Scenario

TOLERANCE = 0.1
# Until a SYN or its answer that was lost is sent again (include/net/tcp.h, TCP_TIMEOUT_INIT).
SYN_TIMEOUT = 1_000_000_000  # ns

Windows = Sequence[tuple[int, int]]
"""When a CPU could run: begin and end, ns after the run's start, in order."""


def in_virtual_time(scenario: Scenario, windows: Sequence[Windows], delivered: Sequence[float]) -> str | None:
    """None if the run is what was asked for, else why not, in one sentence. `windows`: of each sender, then of the
    receiver. `delivered`: of each flow, in any unit."""
    return next(_complaints(scenario, windows), None) or nothing_delivered(scenario, delivered)


def _complaints(scenario: Scenario, windows: Sequence[Windows]) -> Iterator[str]:
    *senders, receiver = windows
    for number, of_sender in enumerate(senders, start=1):
        name = "the sender" if len(senders) == 1 else f"sender {number}"
        yield from _share_off(name, scenario.contention_of(number), of_sender, scenario.duration)
    yield from _share_off("the receiver", scenario.receiver, receiver, scenario.duration)


def _share_off(name: str, asked: Contention, windows: Windows, duration: int) -> Iterator[str]:
    off = duration - sum(end - begin for begin, end in windows)
    if not asked.active:
        return
    if asked.replay is not None:
        times = recordings.offtimes(asked.replay)
        recorded = sum(max(0, min(begin + length, duration) - begin) for begin, length in times)
        if recorded == 0:
            yield f"{asked.replay} has no off-time in the run's {units.show_time(duration)}: no CPU was taken away"
        elif _is_off(off, recorded):
            yield f"{name} was off its CPU for {off / recorded:.0%} of the time that {asked.replay} says"
        return
    contended = asked.contended(duration)
    # Outside of that time the CPU was there.
    share = (contended - off) / contended
    if _is_off(share, asked.share):
        yield (
            f"{name} had {share:.1%} of its CPU while it was taken away, instead of {asked.share:.1%}: that time of "
            f"{units.show_time(contended)} holds {contended / asked.period:.3g} periods of "
            f"{units.show_time(asked.period)}; give a longer duration, or a shorter timeslice"
        )


def _is_off(got: float, asked: float) -> bool:
    return abs(got / asked - 1) > TOLERANCE


def nothing_delivered(scenario: Scenario, delivered: Sequence[float]) -> str | None:
    """Whether no byte arrived in the whole run, or none of a flow that had the time for it: None, or a sentence."""
    if not any(delivered):
        return "no byte reached the receiver"
    flows = [group for group in scenario.flows for _ in range(group.count)]
    for number, (group, amount) in enumerate(zip(flows, delivered, strict=True)):
        sending = (scenario.duration if group.stop is None else group.stop) - group.start
        if not amount and sending > _patience(scenario, group):
            return f"no byte of flow {number} ({group.cc}) reached the receiver in {units.show_time(sending)}"
    return None


def _patience(scenario: Scenario, group: Flows) -> int:
    """How long it may well take until the first byte arrives, ns: the handshake, lost once, behind a full buffer, each
    way through an off-time."""
    first, changes = scenario.rtt_of(group)
    rtt = max([first, *(rtt for _, rtt in changes)])
    slowest = min([scenario.path.bandwidth, *(rate for _, rate in scenario.path.bandwidth_changes)])
    queue = scenario.path.buffer_bytes * 8 * 10**9 // slowest
    off = _longest_off(scenario.contention_of(group.sender)) + _longest_off(scenario.receiver)
    return SYN_TIMEOUT + 2 * (rtt + queue + off)


def _longest_off(contention: Contention) -> int:
    """ns"""
    if not contention.active:
        return 0
    if contention.replay is not None:
        return max(length for _, length in recordings.offtimes(contention.replay))
    off = contention.period - contention.timeslice
    return round(off * (1 + contention.start_jitter) * (1 + contention.length_jitter))
