"""What must hold among the fields of a scenario, whatever the backend. Each rule yields what is broken, as sentences
that name the value and the remedy.

What one backend does not support is refused in backends/support.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from brobust import drivers, units
from brobust.scenario.fields import FIELDS
from brobust.scenario.specs import MAX_TIME, Changes

if TYPE_CHECKING:
    from brobust.scenario.model import Contention, Flows, Path, Scenario

# Controls whose TSO packets differ between the mainline's interface and google's (kernel/virtual/tree/net/ipv4).
CONTROLS_THAT_SIZE_TSO = ("bbr", "bbr_robust", "bbr_steady")


def of_path(path: Path) -> Iterator[str]:
    """Yield what is wrong with a path."""
    yield from _buffer(path)
    low, high = path.red_thresholds
    if path.aqm.name == "red" and not 0 < low < high <= path.buffer_bytes:
        yield (
            f"aqm {path.aqm}: min {low} and max {high} bytes do not fit a buffer of {path.buffer_bytes}; "
            "give min below max, and max at most the buffer"
        )
    yield from _changes("path.bandwidth_changes", path.bandwidth_changes, "path.bandwidth")
    yield from _changes("path.rtt_changes", path.rtt_changes, "path.rtt")


def _buffer(path: Path) -> Iterator[str]:
    if path.buffer_bytes < 2 * units.FRAME_BYTES:
        yield (
            f"buffer {path.buffer} is {path.buffer_bytes} bytes on this path, less than two packets; "
            "give at least 3028B"
        )
    if path.buffer_bytes > units.MAX_BUFFER_BYTES:
        yield (
            f"buffer {path.buffer} is {path.buffer_bytes} bytes on this path; "
            f"give at most {units.show_size(units.MAX_BUFFER_BYTES)}"
        )


def _changes(name: str, changes: Changes, bounds_of: str) -> Iterator[str]:
    """Refuse changes to values that the field itself does not take."""
    row = FIELDS[bounds_of]
    for time, value in changes:
        if (outside := row.outside(value)) is not None:
            yield f"{FIELDS[name].key}: {row.kind.show(value)} at {units.show_time(time)} {outside}"


def of_contention(contention: Contention) -> Iterator[str]:
    """Yield what is wrong with the contention of one sender, or of the receiver."""
    c = contention
    if c.timeslice / MAX_TIME > c.share:
        yield (
            f"share {c.share:g} in timeslices of {units.show_time(c.timeslice)} makes a period, timeslice / share, of "
            f"more than {units.show_time(MAX_TIME)}; give a larger share"
        )
        return
    if c.stop is not None and c.stop <= c.start:
        yield f"stop {units.show_time(c.stop)} is not after start {units.show_time(c.start)}; give a later stop"
    if c.alternate is not None and c.active and c.alternate < c.period:
        alternate, period = units.show_time(c.alternate), units.show_time(c.period)
        yield f"alternate {alternate} is less than a period, timeslice / share = {period}; give more"
    yield from drivers.contradictions(c)


def of_flows(group: Flows) -> Iterator[str]:
    """Yield what is wrong with a group of flows by itself."""
    yield from _changes("flows.rtt_changes", group.rtt_changes, "flows.rtt")


def of_scenario(scenario: Scenario) -> Iterator[str]:
    """Yield what is wrong among the tables of a scenario."""
    yield from _flows_send_within_the_run(scenario)
    yield from _controls_size_tso(scenario)
    yield from _changes_are_within_the_run(scenario)
    yield from _contention_lasts_for_a_period(scenario)
    if len(scenario.senders) + 1 > max(scenario.sender_count, 1):
        yield (
            f"senders: contention is given up to sender {len(scenario.senders) + 1}, and flows up to sender "
            f"{scenario.sender_count}; give flows with sender = {len(scenario.senders) + 1}"
        )


def _flows_send_within_the_run(scenario: Scenario) -> Iterator[str]:
    duration = units.show_time(scenario.duration)
    for group in scenario.flows:
        start = units.show_time(group.start)
        if group.start >= scenario.duration:
            yield f"flows of {group.cc} start at {start}, after the end of the run; give less than duration {duration}"
        if group.stop is not None and not group.start < group.stop <= scenario.duration:
            yield (
                f"flows of {group.cc} stop at {units.show_time(group.stop)}; give more than their start {start} and at "
                f"most duration {duration}"
            )


def _controls_size_tso(scenario: Scenario) -> Iterator[str]:
    if scenario.tso_sizing == "control":
        for group in scenario.flows:
            if group.cc not in CONTROLS_THAT_SIZE_TSO:
                yield (
                    f"tso_sizing: under google's interface {group.cc} sends what the kernel would size too; "
                    f"give kernel, or cc {' or '.join(CONTROLS_THAT_SIZE_TSO)}"
                )


def _changes_are_within_the_run(scenario: Scenario) -> Iterator[str]:
    path = scenario.path
    named = [("path.bandwidth_changes", path.bandwidth_changes), ("path.rtt_changes", path.rtt_changes)]
    for field, changes in [*named, *(("flows.rtt_changes", group.rtt_changes) for group in scenario.flows)]:
        for time, _ in changes:
            if not 0 < time < scenario.duration:
                yield (
                    f"{field}: a change at {units.show_time(time)} is not inside the run; "
                    f"give more than 0s and less than duration {units.show_time(scenario.duration)}"
                )


def _contention_lasts_for_a_period(scenario: Scenario) -> Iterator[str]:
    named = [("contention", scenario.contention), *(("senders", sender) for sender in scenario.senders)]
    for table, requested in [*named, ("receiver", scenario.receiver)]:
        contended = requested.contended(scenario.duration)
        if requested.active and requested.replay is None and contended < requested.period:
            yield (
                f"{table}: the CPU is taken away for {units.show_time(contended)}, less than one period, timeslice "
                f"/ share = {units.show_time(requested.period)}; give a longer duration or a shorter timeslice"
            )
