"""The tables of a scenario, as values that a backend can work with: times in ns, rates in bit/s, fractions of 1.

fields.py describes every field, with its default and its bounds. What must hold among the fields of a table, whatever
the backend, stands with the table: each rule yields what is broken, as sentences that name the value and the remedy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from brobust import drivers, units
from brobust.drivers.modelled import Modelled
from brobust.scenario import types
from brobust.scenario.description import COUNT, FRACTION, NUMBER
from brobust.scenario.description import Field as Description
from brobust.scenario.fields import FIELDS
from brobust.scenario.specs import MAX_TIME, VIRTUAL_MIN_RTT, Changes

CC = r"^[A-Za-z0-9_\-]{1,15}(:[^:\s]+)*$"


def described(name: str, **more: Any) -> Any:
    """Return the field with the default of its description. `Table` checks its bounds."""
    default: Any = FIELDS[name].default
    return Field(default=default, validate_default=default is not None, **more)


class Table(BaseModel):
    """A table that refuses unknown fields: a misspelt one would silently measure something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
    described_as: ClassVar[str] = ""
    """The table's name in scenario/fields.py."""

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, bool):  # asked first, because this is called for each field of thousands of scenarios
            return value
        row = cls._description(info)
        if row is not None and row.kind in (COUNT, FRACTION, NUMBER):  # else it would be 1
            raise ValueError(f"{str(value).lower()} is no number; allowed: {row.range()}")
        return value

    @field_validator("*")
    @classmethod
    def _is_within_its_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, (int, float)):
            return value
        row = cls._description(info)
        if row is not None and (outside := row.outside(value)) is not None:
            raise ValueError(f"{row.kind.show(value)} {outside}; allowed: {row.range()}")
        return value

    @classmethod
    def _description(cls, info: ValidationInfo) -> Description | None:
        return FIELDS.get(f"{cls.described_as}.{info.field_name}".lstrip("."))

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> Table:
        for sentence in self.broken_rules():
            raise ValueError(sentence)
        return self

    def broken_rules(self) -> Iterator[str]:
        """Yield what is wrong with the table, as sentences."""
        yield from ()


class Path(Table):
    """The emulated path: a bottleneck of this rate and buffer, and the round-trip time without queueing."""

    described_as = "path"
    bandwidth: types.Bandwidth = described("path.bandwidth")
    rtt: types.Duration = described("path.rtt")
    buffer: types.BufferSize = described("path.buffer")
    burst: types.BufferSize = described("path.burst")
    loss: types.Fraction = described("path.loss")
    ip_version: types.IpVersion = described("path.ip_version")
    aqm: types.QueueManagement = described("path.aqm")
    second_bandwidth: types.OptionalBandwidth = described("path.second_bandwidth")
    second_buffer: types.BufferSize = described("path.second_buffer")
    bandwidth_changes: types.BandwidthChanges = described("path.bandwidth_changes")
    rtt_changes: types.RttChanges = described("path.rtt_changes")

    @property
    def buffer_bytes(self) -> int:
        """The buffer for the bandwidth and RTT that the run begins with, whatever changes later; bytes."""
        return self.buffer.bytes(self.bandwidth, self.rtt)

    @property
    def burst_bytes(self) -> int:
        """The depth of the token bucket, likewise; 0: none."""
        return self.burst.bytes(self.bandwidth, self.rtt)

    @property
    def second_buffer_bytes(self) -> int | None:
        """The buffer of the second bottleneck, bytes; None: there is none."""
        return None if self.second_bandwidth is None else self.second_buffer.bytes(self.second_bandwidth, self.rtt)

    @property
    def bandwidths(self) -> list[int]:
        """The bandwidths of the bottleneck in the course of a run, bit/s."""
        return [self.bandwidth, *(bandwidth for _, bandwidth in self.bandwidth_changes)]

    @property
    def narrowest(self) -> int:
        """The lowest bandwidth on the path at first, bit/s."""
        return self.bandwidth if self.second_bandwidth is None else min(self.bandwidth, self.second_bandwidth)

    def broken_rules(self) -> Iterator[str]:
        largest = units.show_size(units.MAX_BUFFER_BYTES)
        for name, given, size in (("buffer", self.buffer, self.buffer_bytes), ("burst", self.burst, self.burst_bytes)):
            if size > units.MAX_BUFFER_BYTES:
                yield f"{name} {given} is {size} bytes on this path; give at most {largest}"
        yield from self._broken_rules_of_buffer()
        yield from self._broken_rules_of_burst()
        yield from self._broken_rules_of_second()
        low, high = self.aqm.red_thresholds(self.buffer_bytes)
        if self.aqm.name == "red" and not 0 < low < high <= self.buffer_bytes:
            yield (
                f"aqm {self.aqm}: min {low} and max {high} bytes do not fit a buffer of {self.buffer_bytes}; "
                "give min below max, and max at most the buffer"
            )
        yield from _changes("path.bandwidth_changes", self.bandwidth_changes, "path.bandwidth")
        yield from _changes("path.rtt_changes", self.rtt_changes, "path.rtt")

    def _broken_rules_of_buffer(self) -> Iterator[str]:
        policer = self.buffer_bytes == 0 and self.burst_bytes > 0
        have = units.show_count(self.buffer_bytes, "byte")
        if self.buffer_bytes < 2 * units.FRAME_BYTES and not policer and self.buffer.unit == "bdp":
            shortest = units.show_time(VIRTUAL_MIN_RTT)
            also = f"; an RTT in virtual time is at least {shortest}" if self.rtt < VIRTUAL_MIN_RTT else ""
            yield (
                f"buffer {self.buffer} is {have} with {units.show_rate(self.bandwidth)} and RTT "
                f"{units.show_time(self.rtt)}, less than two packets; give buffer 3028B or more, or a longer RTT{also}"
            )
        elif self.buffer_bytes < 2 * units.FRAME_BYTES and not policer:
            yield (
                f"buffer {self.buffer} is {have} on this path, less than two packets; "
                "give at least 3028B, or 0B with a burst for a policer"
            )

    def _broken_rules_of_second(self) -> Iterator[str]:
        size = self.second_buffer_bytes
        if self.second_bandwidth is None or size is None:
            return
        if not 2 * units.FRAME_BYTES <= size <= units.MAX_BUFFER_BYTES:
            have, largest = units.show_count(size, "byte"), units.show_size(units.MAX_BUFFER_BYTES)
            yield f"second_buffer {self.second_buffer} is {have} on this path; give 3028B to {largest}"
        if self.second_buffer.unit == "sp":
            yield f"second_buffer {self.second_buffer}: packets come there one by one; give bytes, bdp or frames (p)"
        if self.aqm.name != "none":
            second = units.show_rate(self.second_bandwidth)
            yield f"second_bandwidth {second}: with aqm {self.aqm} there is one bottleneck; give aqm none, or no second"

    def _broken_rules_of_burst(self) -> Iterator[str]:
        if self.burst.amount > 0 and self.burst_bytes < units.FRAME_BYTES:
            have = units.show_count(self.burst_bytes, "byte")
            yield (
                f"burst {self.burst} is {have} on this path, less than a packet; give at least "
                f"{units.FRAME_BYTES}B, or 0B for none"
            )
        if self.burst_bytes and self.aqm.name != "none":
            yield f"burst {self.burst}: with aqm {self.aqm} the bottleneck is a kernel's queue; give 0B, or aqm none"
        if self.burst.unit == "sp":
            yield f"burst {self.burst}: tokens are bytes, not super-packets; give bytes, bdp or frames (p)"


class Contention(Table):
    """When a sender (or the receiver) may run: for `timeslice` in every `timeslice / share`, from `start` to `stop`
    (None: to the end of the run). With `alternate`, contention and no contention take turns, each for that time. With
    share 1 it is undisturbed.

    With `replay` a sender is off its CPU when that recording says so, and has neither share nor timeslice.
    """

    described_as = "contention"
    driver: types.Driver = described("contention.driver")
    timeslice: types.Duration = described("contention.timeslice")
    share: types.Fraction = described("contention.share")
    phase: types.Phase = described("contention.phase")
    vcpus: int = described("contention.vcpus")
    interrupts: Literal["spread", "together"] = described("contention.interrupts")
    when_idle: Literal["spin", "sleep"] = described("contention.when_idle")
    start_jitter: types.Fraction = described("contention.start_jitter")
    length_jitter: types.Fraction = described("contention.length_jitter")
    start: types.Duration = described("contention.start")
    stop: types.OptionalDuration = described("contention.stop")
    alternate: types.OptionalDuration = described("contention.alternate")
    replay: types.File = described("contention.replay", min_length=1)

    @property
    def active(self) -> bool:
        """Whether the CPU is taken away at all."""
        return self.driver != "none" and (self.share < 1 or self.replay is not None)

    @property
    def without_idle_fields(self) -> Contention:
        """The same without what says when the CPU is taken away, if it never is."""
        return self if self.active else _undisturbed(self.vcpus, self.interrupts)

    def nic_vcpus(self, vcpus: int) -> tuple[int, int]:
        """Return to which of so many vCPUs the NIC's interrupts go: those of packets that arrive, and of packets that
        were sent. Linux 6.12 with two and four vCPUs spreads those of virtio-net in this way by itself."""
        return (0, 0) if self.interrupts == "together" or vcpus == 1 else (1, 2 % vcpus)

    @property
    def modelled(self) -> Modelled | None:
        """The scheduler of a host that virtual time is to follow; None: exact timeslices, or on vm, whose host has a
        scheduler of its own."""
        return Modelled.parse(self.driver) if self.active else None

    @property
    def period(self) -> int:
        """One timeslice and its off-time; ns."""
        return round(self.timeslice / self.share)

    def contended(self, duration: int) -> int:
        """Return for how long in a run of `duration` the CPU is taken away and given back; ns."""
        stop = duration if self.stop is None else min(self.stop, duration)
        between = max(0, stop - self.start)
        if self.alternate is None:
            return between
        whole, rest = divmod(between, 2 * self.alternate)
        return whole * self.alternate + min(rest, self.alternate)

    def broken_rules(self) -> Iterator[str]:
        if self.timeslice / MAX_TIME > self.share:
            yield (
                f"share {self.share:g} in timeslices of {units.show_time(self.timeslice)} makes a period, timeslice / "
                f"share, of more than {units.show_time(MAX_TIME)}; give a larger share"
            )
            return
        if self.stop is not None and self.stop <= self.start:
            stop, start = units.show_time(self.stop), units.show_time(self.start)
            yield f"stop {stop} is not after start {start}; give a later stop"
        if self.alternate is not None and self.active and self.alternate < self.period:
            alternate, period = units.show_time(self.alternate), units.show_time(self.period)
            yield f"alternate {alternate} is less than a period, timeslice / share = {period}; give more"
        yield from drivers.contradictions(self)


@cache
def _undisturbed(vcpus: int, interrupts: Literal["spread", "together"]) -> Contention:
    return Contention(vcpus=vcpus, interrupts=interrupts)


class Flows(Table):
    """`count` parallel flows under one congestion control, from `start` to `stop` (None: to the end of the run)."""

    described_as = "flows"
    cc: str = described("flows.cc", pattern=CC, max_length=200)
    count: int = described("flows.count")
    start: types.Duration = described("flows.start")
    start_spread: types.Duration = described("flows.start_spread")
    stop: types.OptionalDuration = described("flows.stop")
    rtt: types.OptionalDuration = described("flows.rtt")  # None: the path's
    rtt_changes: types.RttChanges = described("flows.rtt_changes")
    pattern: types.TrafficPattern = described("flows.pattern")
    bytes: types.OptionalBytes = described("flows.bytes")
    sender: int = described("flows.sender")

    def broken_rules(self) -> Iterator[str]:
        yield from _changes("flows.rtt_changes", self.rtt_changes, "flows.rtt")
        if self.bytes is not None and self.pattern.kind != "bulk":
            yield f"bytes {units.show_size(self.bytes)}: a flow of pattern {self.pattern} has no end; give pattern bulk"


class CrossTraffic(Table):
    """Short flows of another sender, which begin at random times and have random sizes. None with load 0."""

    described_as = "cross_traffic"
    load: types.Fraction = described("cross_traffic.load")
    cc: str = described("cross_traffic.cc", pattern=CC, max_length=200)
    size: types.Bytes = described("cross_traffic.size")
    shape: float = described("cross_traffic.shape", allow_inf_nan=False)
    max_size: types.Bytes = described("cross_traffic.max_size")
    enters: Literal["first", "second"] = described("cross_traffic.enters")

    def broken_rules(self) -> Iterator[str]:
        if self.max_size <= self.size:
            largest, mean = units.show_size(self.max_size), units.show_size(self.size)
            yield f"max_size {largest} is not above the mean size {mean}; give a larger one"


class Cpu(Table):
    """What the sender's kernel spends of a CPU of this frequency. None: its work takes no time."""

    described_as = "cpu"
    frequency: types.Frequency = described("cpu.frequency")
    timer_cycles: float = described("cpu.timer_cycles", allow_inf_nan=False)
    rx_packet_cycles: float = described("cpu.rx_packet_cycles", allow_inf_nan=False)
    tx_skb_cycles: float = described("cpu.tx_skb_cycles", allow_inf_nan=False)
    tx_byte_cycles: float = described("cpu.tx_byte_cycles", allow_inf_nan=False)


class Nic(Table):
    """The network cards: of senders and receiver what they receive, of senders what they send."""

    described_as = "nic"
    coalesce: types.Duration = described("nic.coalesce")
    adaptive_rx: types.OnOff = described("nic.adaptive_rx")
    gro: types.OnOff = described("nic.gro")
    rx_ring: int | None = described("nic.rx_ring")
    tx_completion: types.Duration = described("nic.tx_completion")
    tso_max_size: types.Bytes = described("nic.tso_max_size")


# What stands for a flow's own in the commands of programs (crates/virtual/src/programs.rs).
PLACEHOLDERS = ("receiver", "sender", "port", "sender_port", "cc", "seconds", "flow")


# What the work of a sender's programs costs of its CPU; with 0 it takes no time.
WORK = ("sent_byte_ns", "received_byte_ns", "accept_time")


class Programs(Table):
    described_as = "programs"
    sender: str | None = described("programs.sender", min_length=1, max_length=4000)
    receiver: str | None = described("programs.receiver", min_length=1, max_length=4000)
    waits: Literal["sender", "receiver"] | None = described("programs.waits")
    files: types.Files = described("programs.files")
    linger: types.Duration = described("programs.linger")
    call_time: types.Duration = described("programs.call_time")
    poll_time: types.Duration = described("programs.poll_time")
    sent_byte_ns: float = described("programs.sent_byte_ns", allow_inf_nan=False)
    received_byte_ns: float = described("programs.received_byte_ns", allow_inf_nan=False)
    accept_time: types.Duration = described("programs.accept_time")

    @property
    def work(self) -> dict[str, float]:
        """What the work of a sender's programs costs, by the names of the fields, where it costs anything."""
        return {name: cost for name in WORK if (cost := getattr(self, name))}

    def broken_rules(self) -> Iterator[str]:
        for name, command in (("sender", self.sender), ("receiver", self.receiver)):
            if command is None:
                continue
            try:
                words = shlex.split(command)
            except ValueError as error:
                yield f"{name} {command!r} cannot be read: {str(error).lower()}"
                continue
            if not words:
                yield f"{name} {command!r} names no program"
            elif (instead := _for_a_shell(command, words[0])) is not None:
                yield f"{name} {command!r}: there is no shell, {instead}"
            # %{...} is curl's, ${...} a shell's.
            for unknown in (word for word in re.findall(r"(?<![%$])\{(\w+)\}", command) if word not in PLACEHOLDERS):
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                yield f"{name} {command!r}: {{{unknown}}} stands for nothing; there are {known}"


# What a shell makes something of where it stands alone and is not quoted: pipes, several commands, redirections.
OF_SHELLS = re.compile(r"(?<!\S)(?:\|\|?|&&?|;|\d?(?:<|>>?)\S*)(?!\S)")
QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""")


def _for_a_shell(command: str, first: str) -> str | None:
    """Return what to write in place of what only a shell understands in a command; None if there is nothing. A program
    would be given it as an argument."""
    if re.match(r"[A-Za-z_]\w*=", first):
        return f"which would set {first}: write env {first} PROGRAM, with the program among files"
    if first.startswith(("~", "$")):
        return f"which would know what {first} is: give the path itself"
    if (found := OF_SHELLS.search(QUOTED.sub("q", command))) is not None:
        return f"which {found[0]!r} is for: write sh -c '...', with the programs that it starts among files"
    return None


def _changes(name: str, changes: Changes, bounds_of: str) -> Iterator[str]:
    """Yield a sentence for each change to a value that the field itself does not take."""
    row = FIELDS[bounds_of]
    for time, value in changes:
        if (outside := row.outside(value)) is not None:
            yield f"{FIELDS[name].key}: {row.kind.show(value)} at {units.show_time(time)} {outside}"
