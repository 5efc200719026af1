"""What a backend cannot do of that which a scenario can say: refused before anything starts, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from brobust import drivers, units
from brobust.contention import recordings
from brobust.errors import BadInput
from brobust.scenario import Contention, Nic, Scenario

VIRTUAL_LEAST_RTT = 200_000  # ns
VM_LEAST_SAMPLES = 1_000_000  # ns: sampling takes CPU from the guest that is short of it
VM_MOST_GROUPS = 8
IPERF3_MOST_FLOWS = 128  # iperf3's -P


def unsupported(scenario: Scenario) -> str | None:
    """The first thing that the scenario's backend cannot do, as a refusal; None if it can do all of it."""
    return next(_vm(scenario) if scenario.backend == "vm" else _virtual(scenario), None)


def _vm(s: Scenario) -> Iterator[str]:
    if s.kernel.startswith("virtual-"):
        yield f"kernel: {s.kernel!r} runs on backend virtual only; for vm give for example debian-6.12"
    if s.path.buffer.unit == "sp":
        yield _only_virtual("path.buffer", s.path.buffer, "bytes, bdp or frames (p)")
    if s.path.aqm.name != "none":
        yield _only_virtual("path.aqm", s.path.aqm, "none")
    for group in s.flows:
        if group.stop is not None:
            yield _only_virtual("flows.stop", units.show_time(group.stop), "no stop")
        if group.pattern.kind not in ("bulk", "rate"):
            yield _only_virtual("flows.pattern", group.pattern, "bulk, or 'rate 5mbit'")
        if group.sender != 1:
            yield _only_virtual("flows.sender", group.sender, "1")
        if group.count > IPERF3_MOST_FLOWS:
            yield f"flows.count: {group.count} is more than iperf3 takes on backend vm; give at most 128 per group"
    if len(s.flows) > VM_MOST_GROUPS:
        yield f"flows: {len(s.flows)} groups are more than backend vm takes; give at most {VM_MOST_GROUPS}"
    if s.cpu.frequency is not None:
        yield _only_virtual("cpu.frequency", units.show_frequency(s.cpu.frequency), "none")
    if s.nic != Nic():
        yield "nic: coalesce, tx_completion and tso_max_size can be had on backend virtual only; on vm leave them out"
    if s.qdisc != "none":
        yield _only_virtual("qdisc", s.qdisc, "none")
    if s.tso_sizing == "control":
        yield _only_virtual("tso_sizing", s.tso_sizing, "kernel or rate")
    if s.samples == "ack":
        yield _only_virtual("samples", s.samples, "an interval such as 10ms")
    elif s.samples is not None and s.samples < VM_LEAST_SAMPLES:
        yield f"samples: {units.show_time(s.samples)} is too often for a guest short of CPU; on vm give at least 1ms"
    if s.packets:
        yield _only_virtual("packets", "true", "false")
    if s.traffic != "iperf3":
        yield _only_virtual("traffic", s.traffic, "iperf3")
    if s.receiver.active:
        yield _only_virtual("receiver.share", f"{s.receiver.share:g}", "1")
    yield from _vm_contention(s.contention)


def _vm_contention(c: Contention) -> Iterator[str]:
    if c.replay is not None:
        yield from _unreadable(c.replay)
    for field, why in drivers.refusals(c):
        yield f"contention.{field}: {why}"


def _only_virtual(field: str, given: object, allowed: str) -> str:
    return f"{field}: {str(given)!r} can be had on backend virtual only; on vm give {allowed}"


def _virtual(s: Scenario) -> Iterator[str]:
    if s.path.buffer.unit == "sp" and s.path.aqm.name != "none":
        yield f"path.buffer: {s.path.buffer} counts super-packets, as aqm {s.path.aqm.name} does not; give bdp or bytes"
    if not s.kernel.startswith("virtual-"):
        yield f"kernel: {s.kernel!r} does not run in virtual time; give for example virtual-6.12, or backend vm"
    if s.accelerator != "auto":
        yield f"accelerator: {s.accelerator!r} is for backend vm; on virtual give auto"
    for field, rtt in s.rtts():
        if rtt < VIRTUAL_LEAST_RTT:
            least = units.show_time(VIRTUAL_LEAST_RTT)
            yield f"{field}: virtual time needs at least {least} of round-trip time, not {units.show_time(rtt)}"
    named = [("contention", s.contention), *(("senders", sender) for sender in s.senders), ("receiver", s.receiver)]
    for table, contention in named:
        if contention.driver not in ("auto", "replay", "none"):
            yield (
                f"{table}.driver: {contention.driver!r} is for backend vm; in virtual time the timeslices are "
                "granted exactly: give auto, or none"
            )
        if contention.replay is not None:
            yield from _unreadable(contention.replay)
    if s.traffic == "iperf3":
        yield from _virtual_iperf3(s)


def _virtual_iperf3(s: Scenario) -> Iterator[str]:
    for group in s.flows:
        if group.pattern.kind != "bulk":
            yield f"flows.pattern: {str(group.pattern)!r} is for traffic brobust; with iperf3 give bulk"
        sending = (s.duration if group.stop is None else group.stop) - group.start
        if sending % 1_000_000_000:
            given = units.show_time(sending)
            yield f"traffic: iperf3 sends for whole seconds, not {given}; give another duration, start or stop"


def _unreadable(recording: str) -> Iterator[str]:
    try:
        recordings.offtimes(recording)
    except BadInput as refusal:
        yield str(refusal)
