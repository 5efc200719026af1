"""The tables of a scenario, as values that a backend can work with: times in ns, rates in bit/s, fractions of 1.

Every field is described in scenario/fields.py, which has its default and its bounds; what must hold among fields is in
scenario/rules.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from brobust import units
from brobust.scenario import defaults, rules, types
from brobust.scenario.fields import FIELDS, MAX_SENDERS
from brobust.scenario.specs import Changes

# net.ipv4.tcp_tso_rtt_log: with short RTTs the mainline sends more at a time than the pacing rate gives (since Linux
# 5.18; tcp_tso_autosize() in net/ipv4/tcp_output.c). 0 turns that off.
TSO_RTT_LOG = {"kernel": 9, "rate": 0}


def described(name: str, **more: Any) -> Any:
    """Return the field with the default of its description. `_Table` checks its bounds."""
    default: Any = FIELDS[name].default
    return Field(default=default, validate_default=default is not None, **more)


class _Table(BaseModel):
    """A table that refuses unknown fields: a misspelt one would silently measure something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
    described_as: ClassVar[str] = ""
    """The table's name in scenario/fields.py."""

    @field_validator("*")
    @classmethod
    def _is_within_its_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        row = FIELDS.get(f"{cls.described_as}.{info.field_name}".lstrip("."))
        if row is not None and isinstance(value, int | float) and (outside := row.outside(value)) is not None:
            raise ValueError(f"{row.kind.show(value)} {outside}; allowed: {row.range()}")
        return value

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> _Table:
        for sentence in self._broken_rules():
            raise ValueError(sentence)
        return self

    def _broken_rules(self) -> Iterator[str]:
        """Yield what is wrong with the table, as sentences."""
        yield from ()


class Path(_Table):
    """The emulated path: a bottleneck of this rate and buffer, and the round-trip time without queueing."""

    described_as = "path"
    bandwidth: types.Bandwidth = described("path.bandwidth")
    rtt: types.Duration = described("path.rtt")
    buffer: types.BufferSize = described("path.buffer")
    loss: types.Fraction = described("path.loss")
    aqm: types.QueueManagement = described("path.aqm")
    bandwidth_changes: types.BandwidthChanges = described("path.bandwidth_changes")
    rtt_changes: types.RttChanges = described("path.rtt_changes")

    @property
    def buffer_bytes(self) -> int:
        """The buffer for the bandwidth and RTT that the run begins with, whatever changes later; bytes."""
        return self.buffer.bytes(self.bandwidth, self.rtt)

    @property
    def red_thresholds(self) -> tuple[int, int]:
        """The thresholds of red (Aqm.red_thresholds); bytes."""
        return self.aqm.red_thresholds(self.buffer_bytes)

    def _broken_rules(self) -> Iterator[str]:
        yield from rules.of_path(self)


class Contention(_Table):
    """When a sender (or the receiver) may run: for `timeslice` in every `timeslice / share`, from `start` to `stop`
    (None: to the end of the run). With `alternate`, contention and no contention take turns, each for that time. With
    share 1 it is undisturbed.

    With `replay` a sender is off its CPU when that recording says so, and has neither share nor timeslice.
    """

    described_as = "contention"
    driver: types.Driver = described("contention.driver")
    timeslice: types.Duration = described("contention.timeslice")
    share: types.Fraction = described("contention.share")
    phase: types.DurationOrRandom = described("contention.phase")
    start_jitter: types.Fraction = described("contention.start_jitter")
    length_jitter: types.Fraction = described("contention.length_jitter")
    start: types.Duration = described("contention.start")
    stop: types.OptionalDuration = described("contention.stop")
    alternate: types.OptionalDuration = described("contention.alternate")
    replay: str | None = described("contention.replay", min_length=1)

    @property
    def active(self) -> bool:
        """Whether the CPU is taken away at all."""
        return self.driver != "none" and (self.share < 1 or self.replay is not None)

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

    def _broken_rules(self) -> Iterator[str]:
        yield from rules.of_contention(self)


class Flows(_Table):
    """`count` parallel flows under one congestion control, from `start` to `stop` (None: to the end of the run)."""

    described_as = "flows"
    cc: str = described("flows.cc", pattern=r"^[A-Za-z0-9_\-]{1,15}(:[^:\s]+)*$", max_length=200)
    count: int = described("flows.count")
    start: types.Duration = described("flows.start")
    stop: types.OptionalDuration = described("flows.stop")
    rtt: types.OptionalDuration = described("flows.rtt")  # None: the path's
    rtt_changes: types.RttChanges = described("flows.rtt_changes")
    pattern: types.TrafficPattern = described("flows.pattern")
    sender: int = described("flows.sender")

    def _broken_rules(self) -> Iterator[str]:
        yield from rules.of_flows(self)


class Cpu(_Table):
    """What the sender's kernel spends of a CPU of this frequency. None: its work takes no time."""

    described_as = "cpu"
    frequency: types.Frequency = described("cpu.frequency")
    timer_cycles: float = described("cpu.timer_cycles", allow_inf_nan=False)
    rx_packet_cycles: float = described("cpu.rx_packet_cycles", allow_inf_nan=False)
    tx_skb_cycles: float = described("cpu.tx_skb_cycles", allow_inf_nan=False)
    tx_byte_cycles: float = described("cpu.tx_byte_cycles", allow_inf_nan=False)


class Nic(_Table):
    """The sender's network card."""

    described_as = "nic"
    coalesce: types.Duration = described("nic.coalesce")
    tx_completion: types.Duration = described("nic.tx_completion")
    tso_max_size: types.Bytes = described("nic.tso_max_size")


class Scenario(_Table):
    """One measurable point of a grid."""

    path: Path = Path()
    contention: Contention = Contention()
    senders: tuple[Contention, ...] = Field(default=(), max_length=MAX_SENDERS - 1)
    receiver: Contention = Contention()
    flows: tuple[Flows, ...] = Field(default=(Flows(),), min_length=1, max_length=32)
    cpu: Cpu = Cpu()
    nic: Nic = Nic()
    duration: types.Duration = described("duration")
    samples: types.Samples = described("samples")
    packets: bool = described("packets")
    seed: int = described("seed")
    backend: types.Backend = described("backend")
    kernel: str = described("kernel", min_length=1)
    accelerator: types.Accelerator = described("accelerator")
    qdisc: types.Qdisc = described("qdisc")
    tso_sizing: types.TsoSizing = described("tso_sizing")
    traffic: types.Traffic = described("traffic")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_backends_own_defaults(cls, given: Any) -> Any:
        return defaults.filled_in(given)

    def _broken_rules(self) -> Iterator[str]:
        yield from rules.of_scenario(self)

    @property
    def sender_count(self) -> int:
        """The number of sender kernels in the run: the highest number that flows name."""
        return max(group.sender for group in self.flows)

    def contention_of(self, sender: int) -> Contention:
        """Return the contention of sender 1, 2, ...: undisturbed where no table is given for it."""
        if sender == 1:
            return self.contention
        return self.senders[sender - 2] if sender - 2 < len(self.senders) else Contention()

    def rtt_of(self, group: Flows) -> tuple[int, Changes]:
        """Return the round-trip time (ns) of a group's flows at first, and its changes: the path's, unless the group
        has its own."""
        if group.rtt is None:
            return self.path.rtt, group.rtt_changes or self.path.rtt_changes
        return group.rtt, group.rtt_changes

    def rtts(self) -> Iterator[tuple[str, int]]:
        """Yield every round-trip time (ns) that occurs, with the name of its field."""
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
        """Return what takes the CPU away: virtual, deadline, burner, quota, competitor or replay; none if nothing
        does."""
        if not contention.active:
            return "none"
        return "virtual" if self.backend == "virtual" else contention.driver

    def describe(self) -> str:
        """Return the scenario in one short line for people."""
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
        """The scenario's hash and the repeat."""
        return f"{self.scenario.hash}-{self.repeat}"

    @property
    def seed(self) -> int:
        """The seed of this run's random numbers: another one for each repeat, the same one whenever it is measured."""
        return self.scenario.seed + self.repeat
