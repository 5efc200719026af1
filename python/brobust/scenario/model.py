"""The tables of a scenario, and what must hold among their fields whatever the backend.

What one backend cannot do is refused in backends/limits.py.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from brobust import units
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.scenario import fields
from brobust.scenario.specs import FASTEST, LONGEST, SLOWEST, Aqm, Changes, Pattern

LONGEST_RTT = 10_000_000_000  # ns
MOST_CYCLES = 1e12
MOST_SENDERS = 16

# Controls whose TSO packets differ between the mainline's interface and google's (kernel/virtual/tree/net/ipv4).
SIZES_TSO = ("bbr", "bbr_robust", "bbr_steady")

# net.ipv4.tcp_tso_rtt_log: with short RTTs the mainline sends more at a time than the pacing rate gives (since Linux
# 5.18; tcp_tso_autosize() in net/ipv4/tcp_output.c). 0: it does not.
TSO_RTT_LOG = {"kernel": 9, "rate": 0}

# What the sender's kernel spends of its CPU, in cycles: of a phone's small core, fitted to four throughputs of "Are
# Mobiles Ready for BBR?", section 4.1, by benchmarks/phone_cpu.py (docs/virtual-time.md).
TIMER_CYCLES = 117_000.0
RX_PACKET_CYCLES = 7_700.0
TX_SKB_CYCLES = 14_800.0
TX_BYTE_CYCLES = 8.2

# Where a backend's default is its own: filled in where the field is absent, so that a scenario holds, and its hash
# covers, what is measured. Without jitter the timeslices in virtual time lock to the phase of the flow's own cycles.
BACKEND_DEFAULTS: dict[str, dict[str, Any]] = {"virtual": {"traffic": "brobust"}, "vm": {"traffic": "iperf3"}}
# What kernel is there depends on the machine (kernels/virtual.py and kernels/vm.py choose); so a scenario and a
# dataset hold its name.
KERNELS: dict[str, Any] = {"virtual": virtual_kernels, "vm": vm_kernels}
CONTENTION_DEFAULTS: dict[str, dict[str, Any]] = {
    "virtual": {"driver": "auto", "start_jitter": 0.25},
    "vm": {"driver": "deadline", "start_jitter": 0.0},
}
# What the one field `jitter` meant on each backend up to schema 5 of the datasets. Read for one release more.
JITTER_WAS = {"virtual": "start_jitter", "vm": "length_jitter"}


def _rtts_within_bounds(changes: Changes) -> None:
    for time, rtt in changes:
        if rtt > LONGEST_RTT:
            raise ValueError(
                f"rtt_changes: {units.show_time(rtt)} at {units.show_time(time)} is more than "
                f"{units.show_time(LONGEST_RTT)}"
            )


class _Table(BaseModel):
    """Unknown fields are refused: a misspelt one would silently measure something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Path(_Table):
    """The emulated path: a bottleneck of this rate and buffer, and the round-trip time without queueing."""

    bandwidth: fields.Bandwidth = Field(default="20mbit", ge=SLOWEST, le=FASTEST, validate_default=True)
    rtt: fields.Duration = Field(default="10ms", ge=0, le=LONGEST_RTT, validate_default=True)
    buffer: fields.BufferSize = Field(default="1bdp", validate_default=True)
    loss: fields.Fraction = Field(default=0.0, ge=0, lt=1)
    aqm: fields.QueueManagement = Field(default=Aqm())
    bandwidth_changes: fields.BandwidthChanges = ()
    rtt_changes: fields.RttChanges = ()

    @property
    def buffer_bytes(self) -> int:
        """Of the bandwidth and RTT that the run begins with, whatever changes later."""
        return self.buffer.bytes(self.bandwidth, self.rtt)

    @property
    def red_thresholds(self) -> tuple[int, int]:
        """bytes; see Aqm.red_thresholds"""
        return self.aqm.red_thresholds(self.buffer_bytes)

    @model_validator(mode="after")
    def _buffer_holds_a_packet(self) -> Path:
        if self.buffer_bytes < 2 * units.FRAME_BYTES:
            raise ValueError(
                f"buffer {self.buffer} is {self.buffer_bytes} bytes on this path, less than two packets; "
                "give at least 3028B"
            )
        if self.buffer_bytes > units.LARGEST_BUFFER:
            raise ValueError(
                f"buffer {self.buffer} is {self.buffer_bytes} bytes on this path; "
                f"give at most {units.show_size(units.LARGEST_BUFFER)}"
            )
        return self

    @model_validator(mode="after")
    def _red_begins_before_it_ends(self) -> Path:
        low, high = self.red_thresholds
        if self.aqm.name == "red" and not 0 < low < high <= self.buffer_bytes:
            raise ValueError(
                f"aqm {self.aqm}: min {low} and max {high} bytes do not fit a buffer of {self.buffer_bytes}; "
                "give min below max, and max at most the buffer"
            )
        return self

    @model_validator(mode="after")
    def _changes_within_bounds(self) -> Path:
        for time, rate in self.bandwidth_changes:
            if not SLOWEST <= rate <= FASTEST:
                raise ValueError(
                    f"bandwidth_changes: {units.show_rate(rate)} at {units.show_time(time)} is not between "
                    f"{units.show_rate(SLOWEST)} and {units.show_rate(FASTEST)}"
                )
        _rtts_within_bounds(self.rtt_changes)
        return self


class Contention(_Table):
    """When a sender (or the receiver) may run: `timeslice` out of every `timeslice / share`, from `start` to `stop`
    (None: to the end of the run); with `alternate` for that long, then undisturbed for as long, and so on. Share 1 is
    undisturbed.

    A sender with a `replay` is off its CPU when that recording says so, and has no share or timeslice of its own.
    """

    driver: fields.Driver = "auto"
    timeslice: fields.Duration = Field(default="10ms", ge=100_000, le=4_000_000_000, validate_default=True)
    share: fields.Fraction = Field(default=1.0, gt=0, le=1)
    phase: fields.DurationOrRandom = "random"
    start_jitter: fields.Fraction = Field(default=0.25, ge=0, le=1)
    length_jitter: fields.Fraction = Field(default=0.0, ge=0, lt=1)
    start: fields.Duration = Field(default="0s", ge=0, le=LONGEST, validate_default=True)
    stop: fields.OptionalDuration = None
    alternate: fields.OptionalDuration = None
    replay: str | None = Field(default=None, min_length=1)

    @property
    def active(self) -> bool:
        return self.driver != "none" and (self.share < 1 or self.replay is not None)

    @property
    def period(self) -> int:
        """ns"""
        return round(self.timeslice / self.share)

    def contended(self, duration: int) -> int:
        """For how long of a run of `duration` the CPU is taken away and given back, ns."""
        stop = duration if self.stop is None else min(self.stop, duration)
        between = max(0, stop - self.start)
        if self.alternate is None:
            return between
        whole, rest = divmod(between, 2 * self.alternate)
        return whole * self.alternate + min(rest, self.alternate)

    @model_validator(mode="after")
    def _times_of_at_most_an_hour(self) -> Contention:
        times = {"phase": self.phase, "stop": self.stop, "alternate": self.alternate}
        for name, time in times.items():
            if isinstance(time, int) and time > LONGEST:
                raise ValueError(f"{name} {units.show_time(time)} is more than {units.show_time(LONGEST)}")
        if self.timeslice / LONGEST > self.share:
            raise ValueError(
                f"share {self.share:g} in timeslices of {units.show_time(self.timeslice)} makes a period, timeslice / "
                f"share, of more than {units.show_time(LONGEST)}; give a larger share"
            )
        return self

    @model_validator(mode="after")
    def _no_driver_no_contention(self) -> Contention:
        if self.driver == "none" and self.share < 1:
            raise ValueError(f"driver none takes no CPU away, so share {self.share:g} cannot be had; give share 1")
        return self

    @model_validator(mode="after")
    def _stops_after_it_starts(self) -> Contention:
        if self.stop is not None and self.stop <= self.start:
            stop, start = units.show_time(self.stop), units.show_time(self.start)
            raise ValueError(f"stop {stop} is not after start {start}; give a later stop")
        return self

    @model_validator(mode="after")
    def _alternates_by_whole_periods(self) -> Contention:
        if self.alternate is not None and self.active and self.alternate < self.period:
            alternate, period = units.show_time(self.alternate), units.show_time(self.period)
            raise ValueError(f"alternate {alternate} is less than a period, timeslice / share = {period}; give more")
        return self

    @model_validator(mode="after")
    def _a_recording_has_its_own_share(self) -> Contention:
        if self.replay is not None and self.share < 1:
            raise ValueError(f"replay {self.replay} says when the CPU is away, so share {self.share:g} must be 1")
        if self.driver == "replay" and self.replay is None:
            raise ValueError("driver replay has nothing to replay; give replay = FILE (--replay)")
        if self.replay is not None and self.driver not in ("auto", "replay"):
            raise ValueError(f"driver {self.driver} does not replay {self.replay}; give driver auto or replay")
        return self


class Flows(_Table):
    """`count` parallel flows under one congestion control, from `start` to `stop` (None: to the end of the run)."""

    cc: str = Field(default="cubic", pattern=r"^[A-Za-z0-9_\-]{1,15}(:[^:\s]+)*$", max_length=200)
    count: int = Field(default=1, ge=1, le=256)
    start: fields.Duration = Field(default="0s", ge=0, validate_default=True)
    stop: fields.OptionalDuration = None
    rtt: fields.OptionalDuration = None  # None: the path's
    rtt_changes: fields.RttChanges = ()
    pattern: fields.TrafficPattern = Field(default=Pattern())
    sender: int = Field(default=1, ge=1, le=MOST_SENDERS)

    @model_validator(mode="after")
    def _rtt_within_bounds(self) -> Flows:
        if self.rtt is not None and self.rtt > LONGEST_RTT:
            raise ValueError(f"rtt {units.show_time(self.rtt)} is more than {units.show_time(LONGEST_RTT)}")
        _rtts_within_bounds(self.rtt_changes)
        return self


class Cpu(_Table):
    """What the sender's kernel spends of a CPU of this frequency. None: its work takes no time."""

    frequency: fields.Frequency = None
    timer_cycles: float = Field(le=MOST_CYCLES, default=TIMER_CYCLES, ge=0, allow_inf_nan=False)
    rx_packet_cycles: float = Field(le=MOST_CYCLES, default=RX_PACKET_CYCLES, ge=0, allow_inf_nan=False)
    tx_skb_cycles: float = Field(le=MOST_CYCLES, default=TX_SKB_CYCLES, ge=0, allow_inf_nan=False)
    tx_byte_cycles: float = Field(le=MOST_CYCLES, default=TX_BYTE_CYCLES, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _a_real_frequency(self) -> Cpu:
        if self.frequency is not None and not 10**6 <= self.frequency <= 10**11:
            raise ValueError(f"frequency {units.show_frequency(self.frequency)} is not between 1MHz and 100GHz")
        return self


class Nic(_Table):
    """The sender's network card."""

    coalesce: fields.Duration = Field(default="0s", ge=0, le=1_000_000_000, validate_default=True)
    tx_completion: fields.Duration = Field(default="5us", ge=0, le=1_000_000_000, validate_default=True)
    tso_max_size: fields.Bytes = Field(default="64KiB", ge=4096, le=units.SUPER_PACKET_BYTES, validate_default=True)


class Scenario(_Table):
    """One measurable point. Times in ns, rates in bit/s, fractions of 1."""

    path: Path = Path()
    contention: Contention = Contention()
    senders: tuple[Contention, ...] = Field(default=(), max_length=MOST_SENDERS - 1)
    receiver: Contention = Contention()
    flows: tuple[Flows, ...] = Field(default=(Flows(),), min_length=1, max_length=32)
    cpu: Cpu = Cpu()
    nic: Nic = Nic()
    duration: fields.Duration = Field(default="10s", ge=1_000_000_000, le=LONGEST, validate_default=True)
    samples: fields.Samples = None
    packets: bool = False
    seed: int = Field(default=1, ge=0, lt=2**32)
    backend: fields.Backend = "virtual"
    kernel: str = Field(default=virtual_kernels.DEFAULT, min_length=1)
    accelerator: fields.Accelerator = "auto"
    qdisc: fields.Qdisc = "none"
    tso_sizing: fields.TsoSizing = "kernel"
    traffic: fields.Traffic = "brobust"

    @model_validator(mode="before")
    @classmethod
    def _absent_fields_as_the_backend_has_them(cls, given: Any) -> Any:
        backend = given.get("backend", "virtual") if isinstance(given, Mapping) else None
        if not isinstance(backend, str) or backend not in BACKEND_DEFAULTS:
            return given  # refused later, by the field's own type
        defaults = BACKEND_DEFAULTS[backend]
        if given.get("kernel") in (None, "auto"):
            defaults = {**defaults, "kernel": KERNELS[backend].default()}
        filled: dict[str, Any] = _fill(given, defaults)
        for field in ("contention", "receiver"):
            filled[field] = _contention(given.get(field, {}), backend)
        if isinstance(given.get("senders"), list | tuple):
            filled["senders"] = [_contention(sender, backend) for sender in given["senders"]]
        return filled

    @model_validator(mode="after")
    def _samples_not_too_dense(self) -> Scenario:
        if isinstance(self.samples, int) and self.samples < 100_000:
            raise ValueError(f"samples {units.show_time(self.samples)} is less than 100us; give more, or ack for all")
        return self

    @model_validator(mode="after")
    def _flows_start_and_stop_in_time(self) -> Scenario:
        for group in self.flows:
            if group.start >= self.duration:
                raise ValueError(
                    f"flows of {group.cc} start at {units.show_time(group.start)}, after the end of the run; "
                    f"give less than duration {units.show_time(self.duration)}"
                )
            if group.stop is not None and not group.start < group.stop <= self.duration:
                raise ValueError(
                    f"flows of {group.cc} stop at {units.show_time(group.stop)}; give more than their start "
                    f"{units.show_time(group.start)} and at most duration {units.show_time(self.duration)}"
                )
        return self

    @model_validator(mode="after")
    def _a_control_that_sizes(self) -> Scenario:
        if self.tso_sizing == "control":
            for group in self.flows:
                if group.cc not in SIZES_TSO:
                    raise ValueError(
                        f"tso_sizing: under google's interface {group.cc} sends what the kernel would size too; "
                        f"give kernel, or cc {' or '.join(SIZES_TSO)}"
                    )
        return self

    @model_validator(mode="after")
    def _changes_within_the_run(self) -> Scenario:
        named = [("path.bandwidth_changes", self.path.bandwidth_changes), ("path.rtt_changes", self.path.rtt_changes)]
        for field, changes in [*named, *(("flows.rtt_changes", group.rtt_changes) for group in self.flows)]:
            for time, _ in changes:
                if not 0 < time < self.duration:
                    raise ValueError(
                        f"{field}: a change at {units.show_time(time)} is not inside the run; "
                        f"give more than 0s and less than duration {units.show_time(self.duration)}"
                    )
        return self

    @model_validator(mode="after")
    def _contention_lasts_for_a_period(self) -> Scenario:
        named = [("contention", self.contention), *(("senders", sender) for sender in self.senders)]
        for table, asked in [*named, ("receiver", self.receiver)]:
            contended = asked.contended(self.duration)
            if asked.active and asked.replay is None and contended < asked.period:
                raise ValueError(
                    f"{table}: the CPU is taken away for {units.show_time(contended)}, less than one period, timeslice "
                    f"/ share = {units.show_time(asked.period)}; give a longer duration or a shorter timeslice"
                )
        return self

    @model_validator(mode="after")
    def _every_sender_sends(self) -> Scenario:
        if len(self.senders) + 1 > max(self.sender_count, 1):
            raise ValueError(
                f"senders: contention is given up to sender {len(self.senders) + 1}, and flows up to sender "
                f"{self.sender_count}; give flows with sender = {len(self.senders) + 1}"
            )
        return self

    @property
    def sender_count(self) -> int:
        """Sender kernels of the run: 1 to the highest that flows are on."""
        return max(group.sender for group in self.flows)

    def contention_of(self, sender: int) -> Contention:
        """The contention of sender 1, 2, ...: one that no table was given for is undisturbed."""
        if sender == 1:
            return self.contention
        return self.senders[sender - 2] if sender - 2 < len(self.senders) else Contention()

    def rtt_of(self, group: Flows) -> tuple[int, Changes]:
        """Round-trip time (ns) of a group's flows at first, and its changes: the path's, but for its own."""
        if group.rtt is None:
            return self.path.rtt, group.rtt_changes or self.path.rtt_changes
        return group.rtt, group.rtt_changes

    def rtts(self) -> Iterator[tuple[str, int]]:
        """Every round-trip time (ns) that occurs, with the name of its field."""
        yield "path.rtt", self.path.rtt
        yield from (("path.rtt_changes", rtt) for _, rtt in self.path.rtt_changes)
        for group in self.flows:
            if group.rtt is not None:
                yield "flows.rtt", group.rtt
            yield from (("flows.rtt_changes", rtt) for _, rtt in group.rtt_changes)

    @cached_property
    def hash(self) -> str:
        """Twelve hex digits that name this point in every dataset."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def driver_of(self, contention: Contention) -> str:
        """What takes the CPU away: virtual, deadline, burner, quota, competitor or replay; none if nothing does."""
        if not contention.active:
            return "none"
        return "virtual" if self.backend == "virtual" else contention.driver

    def describe(self) -> str:
        """One short line for people."""
        flows = "+".join(f"{g.count}x{g.cc}" if g.count > 1 else g.cc for g in self.flows)
        c = self.contention
        cpu = "100% CPU"
        if c.replay is not None:
            cpu = f"CPU as in {c.replay}"
        elif c.active:
            cpu = f"{c.share:.0%} CPU in {units.show_time(c.timeslice)} slices ({self.driver_of(c)})"
        return f"{flows}, {units.show_rate(self.path.bandwidth)}, RTT {units.show_time(self.path.rtt)}, {cpu}"


class Run(BaseModel):
    """One repeat of a scenario: what a backend is asked to do."""

    model_config = ConfigDict(frozen=True)

    scenario: Scenario
    repeat: int

    @property
    def id(self) -> str:
        return f"{self.scenario.hash}-{self.repeat}"

    @property
    def seed(self) -> int:
        """What this run draws its random numbers from: repeats differ, and the same repeat is the same again."""
        return self.scenario.seed + self.repeat


def _contention(table: Any, backend: str) -> Any:
    """A table of contention under today's names, with the backend's own values where a field is absent."""
    if isinstance(table, Mapping) and "jitter" in table:
        if "start_jitter" in table or "length_jitter" in table:
            raise ValueError("contention.jitter is now start_jitter and length_jitter; leave jitter out beside them")
        today = JITTER_WAS[backend]
        warnings.warn(
            f"contention.jitter is called {today} on {backend}, and will be refused in the next release: "
            f"write {today} (--{today.replace('_', '-')})",
            FutureWarning,
            stacklevel=1,
        )
        table = {today if name == "jitter" else name: value for name, value in table.items()}
    return _fill(table, CONTENTION_DEFAULTS[backend])


def _fill(table: Any, defaults: Mapping[str, Any]) -> Any:
    """The table, as written or already validated, with these values where the field is absent, None or auto."""
    if isinstance(table, Contention):
        table = table.model_dump(mode="json", exclude_unset=True)
    if not isinstance(table, Mapping):
        return table
    lacking = {name: value for name, value in defaults.items() if table.get(name) in (None, "auto")}
    if table.get("replay") is not None and lacking.get("driver") not in (None, "auto"):
        lacking["driver"] = "replay"
    return {**table, **lacking}
