"""A scenario: one measurable point, of the tables in tables.py and of fields of its own; and a run, one repeat of it.

What one backend does not support is refused in backends/support.py.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from brobust import quic, units
from brobust.scenario import defaults, types
from brobust.scenario.fields import FIELDS, MAX_SENDERS
from brobust.scenario.specs import Changes
from brobust.scenario.tables import Contention, Cpu, CrossTraffic, Flows, Nic, Path, Programs, Table, described

MAX_GROUPS = 64  # of flows
# Of virtual time: FLOWS in crates/virtual/src/shared.rs, less what may come of the cross traffic's random numbers.
MAX_FLOWS_OF_A_RUN = 30_000
MAX_PROGRAMS = 1024  # at one end of a run: PROGRAMS there

# net.ipv4.tcp_tso_rtt_log: with short RTTs the mainline sends more at a time than the pacing rate gives (since Linux
# 5.18; tcp_tso_autosize() in net/ipv4/tcp_output.c). 0 turns that off.
TSO_RTT_LOG = {"kernel": 9, "rate": 0}
# Controls whose TSO packets differ between the mainline's interface and google's (kernel/virtual/tree/net/ipv4).
CONTROLS_THAT_SIZE_TSO = ("bbr", "bbr_robust", "bbr_steady")

# The fields that a scenario's hash has had from the beginning, by table. Later fields are not noted here: the hash has
# them only where they are not at their default, so a scenario that says nothing of them keeps its hash.
ALWAYS_HASHED = {
    "": (
        "path contention senders receiver flows cross_traffic cpu nic programs duration samples packets seed backend "
        "kernel accelerator qdisc tso_sizing pacing traffic"
    ),
    "path": "bandwidth rtt buffer burst loss aqm second_bandwidth second_buffer bandwidth_changes rtt_changes",
    "contention": (
        "driver timeslice share phase vcpus when_idle start_jitter length_jitter start stop alternate replay"
    ),
    "flows": "cc count start stop rtt rtt_changes pattern sender",
    "cross_traffic": "load cc size shape max_size enters",
    "cpu": "frequency timer_cycles rx_packet_cycles tx_skb_cycles tx_byte_cycles",
    "nic": "coalesce tx_completion tso_max_size",
    "programs": "sender receiver files linger call_time poll_time",
}


class Scenario(Table):
    """One measurable point of a grid."""

    path: Path = Path()
    contention: Contention = Contention()
    senders: tuple[Contention, ...] = Field(default=(), max_length=MAX_SENDERS - 1)
    receiver: Contention = Contention()
    flows: tuple[Flows, ...] = Field(default=(Flows(),), min_length=1, max_length=MAX_GROUPS)
    cross_traffic: CrossTraffic = CrossTraffic()
    cpu: Cpu = Cpu()
    nic: Nic = Nic()
    programs: Programs = Programs()
    duration: types.RunDuration = described("duration")
    samples: types.Samples = described("samples")
    packets: bool = described("packets")
    seed: int = described("seed")
    backend: Literal["virtual", "vm", "lab"] = described("backend")
    kernel: str = described("kernel", min_length=1)
    accelerator: Literal["auto", "kvm", "tcg", "uml"] = described("accelerator")
    hosts: types.File = described("hosts")
    qdisc: Literal["none", "fq"] = described("qdisc")
    tso_sizing: Literal["kernel", "rate", "control"] = described("tso_sizing")
    pacing: types.Pacing = described("pacing")
    traffic: types.Traffic = described("traffic")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_backends_own_defaults(cls, given: Any, info: ValidationInfo) -> Any:
        return defaults.filled_in(given, as_written=bool((info.context or {}).get(defaults.AS_WRITTEN)))

    def broken_rules(self) -> Iterator[str]:
        yield from _flows_send_within_the_run(self)
        yield from _flows_have_room(self)
        yield from _there_is_a_second_bottleneck_to_enter_at(self)
        yield from _controls_size_tso(self)
        if self.pacing.name in ("linux-4.14", "draft") and self.qdisc == "fq":
            yield f"pacing: {self.pacing} is how TCP paces by itself, but fq does it here; give qdisc none"
        if self.nic.adaptive_rx == "on" and self.nic.coalesce:
            yield f"nic.coalesce: {units.show_time(self.nic.coalesce)}, but adaptive_rx chooses the time; give 0s"
        yield from _programs_are_the_traffic(self)
        yield from _stacks_have_the_controls(self)
        yield from _changes_are_within_the_run(self)
        yield from _contention_lasts_for_a_period(self)
        if len(self.senders) + 1 > max(self.sender_count, 1):
            yield (
                f"senders: contention is given up to sender {len(self.senders) + 1}, and flows up to sender "
                f"{self.sender_count}; give flows with sender = {len(self.senders) + 1}"
            )

    @property
    def sender_count(self) -> int:
        """The number of sender kernels in the run: the highest number that flows name."""
        return max(group.sender for group in self.flows)

    @property
    def each_flow(self) -> list[Flows]:
        """The group of each flow, in the order of the flows' numbers."""
        return [group for group in self.flows for _ in range(group.count)]

    @property
    def mean_transfers(self) -> float:
        """How many flows of cross traffic begin in a run, in the mean."""
        cross = self.cross_traffic
        second = self.path.second_bandwidth
        bandwidth = self.path.bandwidth if second is None or cross.enters == "first" else second
        return cross.load * bandwidth / 8 / cross.size * self.duration / 1e9

    @property
    def ccs(self) -> list[str]:
        """The congestion controls of the run, with their parameters."""
        of_cross = [self.cross_traffic.cc] if self.cross_traffic.load else []
        return [*(group.cc for group in self.flows), *of_cross]

    def contention_of(self, sender: int) -> Contention:
        """Return the contention of sender 1, 2, ...: undisturbed where no table is given for it."""
        if sender == 1:
            return self.contention
        return self.senders[sender - 2] if sender - 2 < len(self.senders) else Contention()

    @property
    def without_idle_fields(self) -> Self:
        """The scenario without the timeslices of CPUs that are not taken away: with any of them, a run is the same."""
        contentions = {
            "contention": self.contention.without_idle_fields,
            "senders": tuple(one.without_idle_fields for one in self.senders),
            "receiver": self.receiver.without_idle_fields,
        }
        copy = self.model_copy(update=contentions)  # in a tenth of the time of model_construct()
        copy.__dict__.pop("hash", None)  # which is this one's
        return copy

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
        fields = self.model_dump(mode="json")
        for name, later in _hashed_where_given(self.backend).items():
            for table, (key, default) in itertools.product(_tables(fields, name), later.items()):
                if table[key] == default:
                    del table[key]
        # Of iperf3 it says what its calls cost, if that is not what a call costs anyway.
        if self.traffic == "brobust" or (self.traffic == "iperf3" and self.programs == Programs()):
            del fields["programs"]
        if self.cross_traffic.load == 0:
            del fields["cross_traffic"]
        if self.path.second_bandwidth is None:
            del fields["path"]["second_bandwidth"], fields["path"]["second_buffer"]
        canonical = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def contentions(self) -> list[Contention]:
        """The contention of every sender for which there is a table, and of the receiver."""
        return [self.contention, *self.senders, self.receiver]

    def driver_of(self, contention: Contention) -> str:
        """Return what takes the CPU away: virtual (exact timeslices), deadline, burner, quota, competitor or replay;
        none if nothing does."""
        if not contention.active:
            return "none"
        return "virtual" if self.backend == "virtual" and contention.modelled is None else contention.driver

    def describe(self) -> str:
        flows = "+".join(f"{g.count}x{g.cc}" if g.count > 1 else g.cc for g in self.flows)
        if self.traffic.startswith(quic.PREFIX):
            flows = f"{self.traffic} ({flows})"
        if self.programs.sender is not None:
            flows = f"{self.programs.sender.split()[0]} ({flows})"
        c = self.contention
        cpu = "100% CPU"
        if c.replay is not None:
            cpu = f"CPU as in {c.replay}"
        elif c.active:
            cpu = f"{units.show_percent(c.share)} CPU in {units.show_time(c.timeslice)} slices ({self.driver_of(c)})"
        if c.vcpus > 1:
            cpu += f", {c.vcpus} vCPUs"
        if self.cross_traffic.load:
            flows += f" beside {units.show_percent(self.cross_traffic.load)} cross traffic"
        return f"{flows}, {units.show_rate(self.path.bandwidth)}, RTT {units.show_time(self.path.rtt)}, {cpu}"


def _tables(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the tables of a dumped scenario that have the fields of this one: senders and receiver have those of
    contention."""
    if name == "contention":
        return [fields["contention"], fields["receiver"], *fields["senders"]]
    table = fields[name] if name else fields
    return table if isinstance(table, list) else [table]


@cache
def _hashed_where_given(backend: str) -> dict[str, dict[str, object]]:
    """Return the fields that scenarios did not always have, by table, with their defaults on a backend."""
    plain = Scenario.model_validate({"backend": backend, "kernel": FIELDS["kernel"].default}).model_dump(mode="json")
    return {
        name: {key: default for key, default in _tables(plain, name)[0].items() if key not in always.split()}
        for name, always in ALWAYS_HASHED.items()
    }


@dataclass(frozen=True, slots=True)
class Run:
    """One repeat of a scenario: what a backend is asked to do. A series may have a million of them."""

    scenario: Scenario
    repeat: int

    @property
    def id(self) -> str:
        return f"{self.scenario.hash}-{self.repeat}"

    @property
    def seed(self) -> int:
        """The seed of this run's random numbers: another one for each repeat, the same one whenever it is measured."""
        return self.scenario.seed + self.repeat


def _flows_send_within_the_run(scenario: Scenario) -> Iterator[str]:
    duration = units.show_time(scenario.duration)
    for group in scenario.flows:
        latest = group.start + group.start_spread
        start = units.show_time(latest)
        if latest >= scenario.duration:
            yield f"flows of {group.cc} start at {start}, after the end of the run; give less than duration {duration}"
        if group.stop is not None and not latest < group.stop <= scenario.duration:
            yield (
                f"flows of {group.cc} stop at {units.show_time(group.stop)}; give more than their start {start} and at "
                f"most duration {duration}"
            )


def _flows_have_room(scenario: Scenario) -> Iterator[str]:
    flows, cross = len(scenario.each_flow), scenario.cross_traffic
    room = MAX_FLOWS_OF_A_RUN if scenario.traffic == "brobust" else MAX_PROGRAMS
    if flows > room:
        yield f"flows: {flows} of them are more than a run with traffic {scenario.traffic} has; give at most {room}"
    transfers = scenario.mean_transfers
    if transfers > room - flows:
        yield (
            f"cross_traffic: load {cross.load:g} in flows of {units.show_size(cross.size)} makes some {transfers:.0f} "
            f"of them in {units.show_time(scenario.duration)}, and a run has room for {room}; give a larger size"
        )


def _there_is_a_second_bottleneck_to_enter_at(scenario: Scenario) -> Iterator[str]:
    cross = scenario.cross_traffic
    if cross.load and cross.enters == "second" and scenario.path.second_bandwidth is None:
        yield "cross_traffic.enters: the path has no second bottleneck; give path.second_bandwidth, or first"


def _programs_are_the_traffic(scenario: Scenario) -> Iterator[str]:
    programs = scenario.programs
    given = {"sender": programs.sender, "receiver": programs.receiver}
    if scenario.traffic in ("brobust", "iperf3"):
        for name in programs.work:
            yield f"programs.{name}: traffic is {scenario.traffic}; only your programs and QUIC stacks do such work"
    if scenario.traffic != "programs":
        why = f"a program is given, but traffic is {scenario.traffic}; leave one of them out"
        if scenario.backend != "virtual":
            why = f"programs run on backend virtual only; on {scenario.backend} leave them out"
        yield from (f"programs.{name}: {why}" for name, command in given.items() if command is not None)
        return
    for name in (name for name, command in given.items() if command is None):
        yield f"programs.{name}: there is no program at the {name}; give one for each end"
    yield from _sockets_have_the_controls(scenario)
    yield from flows_are_bulk(scenario, "programs")


def _sockets_have_the_controls(scenario: Scenario) -> Iterator[str]:
    """Refuse flows of one sender with several controls, unless its command names each one's: a socket that asks for
    none has the kernel's default, which is the first flow's."""
    if "{cc}" in (scenario.programs.sender or ""):
        return
    for sender in dict.fromkeys(group.sender for group in scenario.flows):
        controls = list(dict.fromkeys(group.cc for group in scenario.flows if group.sender == sender))
        if len(controls) > 1:
            yield (
                f"programs.sender: it names no {{cc}}, so all sockets of sender {sender} would have {controls[0]}, not "
                f"{' or '.join(controls[1:])}; name {{cc}}, or give one cc to each sender"
            )


def flows_are_bulk(scenario: Scenario, what: str) -> Iterator[str]:
    """Refuse flows that only our own traffic has, not `what`."""
    for group in scenario.flows:
        if group.pattern.kind != "bulk":
            yield f"flows.pattern: {str(group.pattern)!r} is for traffic brobust; with {what} give bulk"
        if group.bytes is not None:
            yield f"flows.bytes: {units.show_size(group.bytes)} is for traffic brobust; with {what} give no bytes"


def _stacks_have_the_controls(scenario: Scenario) -> Iterator[str]:
    of_quic = quic.of_traffic(scenario.traffic)
    if of_quic is None:
        return
    stack, _ = of_quic
    for group in scenario.flows:
        if group.cc not in stack.controls:
            yield f"cc: {stack.name} {stack.version} has no {group.cc}; it has {', '.join(stack.controls)}"
    yield from flows_are_bulk(scenario, scenario.traffic)


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
