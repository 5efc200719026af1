"""What a scenario can say and its backend does not support: it is refused before anything starts, in one line.

What only one backend has is described with the field (scenario/fields.py); here is what takes more than that to say.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from brobust import drivers, quic, units
from brobust.cc import names as cc_names
from brobust.contention import recordings
from brobust.drivers.modelled import MODELLED
from brobust.errors import BadInput
from brobust.kernels import virtual as virtual_kernels
from brobust.lab import hosts as hosts_file
from brobust.scenario import Contention, Scenario
from brobust.scenario.defaults import REAL_TIME, RUNNING
from brobust.scenario.description import shown
from brobust.scenario.fields import FIELDS, ROWS
from brobust.scenario.model import flows_are_bulk
from brobust.scenario.specs import VIRTUAL_MIN_RTT

# In real time, on vm and lab.
MIN_SAMPLES = 1_000_000  # ns: sampling takes CPU from the sender that is short of it
MAX_GROUPS = 8
CONTEND_MIN_TIMESLICE = 100_000  # ns, as in crates/command/src/contend/request.rs
IPERF3_MAX_FLOWS = 128  # iperf3's -P
# Fields that not every backend has, by their tables. Other senders have none here: flows name them on virtual only.
OF_ONE_BACKEND = {
    table: [row for row in ROWS if row.table == table and (row.only_on or row.words_only_on)]
    for table in dict.fromkeys(row.table for row in ROWS)
}


def check_written(scenarios: Sequence[Scenario]) -> None:
    """Refuse what can be refused by reading what the user has written, with the files that it names. The host, its
    kernels and its cache are not looked at."""
    for scenario in scenarios:
        if (reason := unsupported(scenario)) is not None:
            raise BadInput(reason)
        if not program_knows_cc(scenario):
            for control in scenario.ccs:
                cc_names.check_written(control, scenario.kernel)
        cc_names.check_together(scenario.ccs)
    for file in sorted({s.hosts for s in scenarios if s.hosts is not None}):
        hosts = hosts_file.read(file)
        for scenario in scenarios:
            refusal = next(hosts_file.refusals(hosts, scenario), None) if scenario.hosts == file else None
            if refusal is not None:
                raise BadInput(refusal)
    for replay in sorted({c.replay for s in scenarios for c in s.contentions if c.replay is not None}):
        recordings.offtimes(replay)


def program_knows_cc(s: Scenario) -> bool:
    """Whether the congestion control is the program's own, which no kernel has to have."""
    if quic.of_traffic(s.traffic) is not None:
        return True
    return s.traffic == "programs" and s.programs.sender is not None and "{cc}" in s.programs.sender


def unsupported(scenario: Scenario) -> str | None:
    """Return a refusal of the first thing that the scenario's backend does not support; None if it supports all."""
    of_backend = {"vm": _vm, "lab": _lab, "virtual": _virtual}[scenario.backend](scenario)
    return next(itertools.chain(_of_another_backend(scenario), _of_tcp_alone(scenario), of_backend), None)


def _of_another_backend(s: Scenario) -> Iterator[str]:
    """Refuse every value that only another backend has, by the descriptions of the fields."""
    for name, rows in OF_ONE_BACKEND.items():
        for table in s.flows if name == "flows" else [_table(s, name)]:
            for row in rows:
                value = getattr(table, row.key)
                only_on = row.words_only_on.get(str(value).split(" ", 1)[0]) if row.words_only_on else None
                if only_on is None and row.only_on and value != _default(row.name):
                    only_on = row.only_on
                if only_on not in (None, s.backend):
                    given = shown(table.model_dump(mode="json")[row.key])
                    instead = row.instead or shown(row.default)
                    yield f"{row.name}: {given!r} is possible on backend {only_on} only; on {s.backend} give {instead}"


def _of_tcp_alone(s: Scenario) -> Iterator[str]:
    """Refuse what says how the kernel's TCP sends where a QUIC stack sends, over UDP."""
    for key in ("tso_sizing", "pacing") if quic.of_traffic(s.traffic) is not None else ():
        if (value := getattr(s, key)) != _default(key):
            instead = FIELDS[key].default
            yield f"{key}: {str(value)!r} says how TCP sends, and {s.traffic} sends over UDP; give {instead}"


def _table(s: Scenario, name: str) -> Any:
    return getattr(s, name) if name else s


@functools.cache
def _default(name: str) -> Any:
    """Return the default of a field as a scenario holds it."""
    row, s = FIELDS[name], Scenario(kernel=FIELDS["kernel"].default)
    return getattr(s.flows[0] if row.table == "flows" else _table(s, row.table), row.key)


def _vm(s: Scenario) -> Iterator[str]:
    runs_in_real_time = s.kernel.startswith("virtual-") and s.kernel.endswith(virtual_kernels.REAL_TIME)
    if s.accelerator == "uml" and not runs_in_real_time:
        yield f"kernel: {s.kernel!r} does not run with accelerator uml; give for example {REAL_TIME.DEFAULT}"
    if s.accelerator == "uml" and s.contention.vcpus > 1:
        yield f"contention.vcpus: {s.contention.vcpus} are more than accelerator uml has; give 1, or accelerator auto"
    if s.accelerator != "uml" and s.kernel.startswith("virtual-"):
        yield (
            f"kernel: {s.kernel!r} runs on backend virtual only, or as {REAL_TIME.DEFAULT} with accelerator uml; for "
            "vm give for example debian-6.12"
        )
    yield from _in_real_time(s)
    if quic.of_traffic(s.traffic) is not None:
        yield from _vm_quic(s)
    yield from _contention_in_real_time(s.contention)


def _in_real_time(s: Scenario) -> Iterator[str]:
    """Refuse what neither guests nor hosts take."""
    if s.traffic == "iperf3":
        yield from _iperf3_sends_for_whole_seconds(s)
    if s.path.buffer.unit == "sp":
        given, on = str(s.path.buffer), s.backend
        yield f"path.buffer: {given!r} is possible on backend virtual only; on {on} give bytes, bdp or frames (p)"
    for group in s.flows:
        if group.count > IPERF3_MAX_FLOWS:
            at_most = f"at most {IPERF3_MAX_FLOWS} per group"
            yield f"flows.count: {group.count} is more than iperf3 takes on {s.backend}; give {at_most}"
    if len(s.flows) > MAX_GROUPS:
        yield f"flows: {len(s.flows)} groups are more than backend {s.backend} takes; give at most {MAX_GROUPS}"
    if isinstance(s.samples, int) and s.samples < MIN_SAMPLES:
        given, least = units.show_time(s.samples), units.show_time(MIN_SAMPLES)
        yield f"samples: {given} is too often for a sender short of CPU; on {s.backend} give at least {least}"
    if s.receiver.replay is not None:
        given, on = s.receiver.replay, s.backend
        yield f"receiver.replay: {given!r} is possible on backend virtual only; on {on} leave it out"


def _lab(s: Scenario) -> Iterator[str]:
    if s.hosts is None:
        yield (
            "hosts: backend lab measures on your own hosts; name them in a file, and give it with --hosts FILE, or "
            "for a study with --set hosts=FILE"
        )
    if s.kernel != RUNNING.DEFAULT:
        yield f"kernel: {s.kernel!r} is no choice on backend lab, whose sender runs what it runs; leave it out"
    yield from _in_real_time(s)
    if quic.of_traffic(s.traffic) is not None:
        yield f"traffic: {s.traffic!r} is possible on backends virtual and vm; on lab give iperf3"
    c = s.contention
    if c.replay is not None:
        yield f"contention.replay: {c.replay!r} is possible on backends virtual and vm; on lab leave it out"
    if c.vcpus > 1:
        yield f"contention.vcpus: {c.vcpus} is no choice on backend lab, whose sender has what it has; leave it out"
    if c.driver == "competitor" and c.active:
        yield "contention.driver: 'competitor' is possible on vm; on lab give deadline, burner or quota"
    yield from _not_of_contend(c)
    yield from _contention_in_real_time(c)


def _not_of_contend(c: Contention) -> Iterator[str]:
    """Refuse what `brobust contend`, which takes the CPU away on lab, does not take (crates/command/src/contend)."""
    if isinstance(c.phase, int):
        given, instead = units.show_time(c.phase), "random, or with driver burner in or out"
        yield f"contention.phase: {given!r} is possible on backends virtual and vm; on lab give {instead}"
    elif c.active and c.phase != "random" and c.driver != "burner":
        yield f"contention.phase: {c.phase} is the burner's on lab; give driver burner, or random"
    if c.active and c.timeslice < CONTEND_MIN_TIMESLICE:
        given, least = units.show_time(c.timeslice), units.show_time(CONTEND_MIN_TIMESLICE)
        yield f"contention.timeslice: {given} is shorter than `brobust contend` takes; on lab give at least {least}"


def _vm_quic(s: Scenario) -> Iterator[str]:
    if len(s.flows) > 1 or s.flows[0].count > 1 or s.flows[0].start or s.flows[0].stop is not None:
        yield f"flows: on backend vm {s.traffic} is one flow that sends all the time; leave out count, start and stop"
    if s.samples is not None:
        yield f"samples: on backend vm there are none of {s.traffic}; leave them out, or give backend virtual"


def _contention_in_real_time(c: Contention) -> Iterator[str]:
    for field, why in drivers.refusals(c):
        yield f"contention.{field}: {why}"


def _virtual(s: Scenario) -> Iterator[str]:
    if s.path.buffer.unit == "sp" and s.path.aqm.name != "none":
        yield f"path.buffer: {s.path.buffer} counts super-packets, as aqm {s.path.aqm.name} does not; give bdp or bytes"
    if not s.kernel.startswith("virtual-"):
        yield f"kernel: {s.kernel!r} does not run in virtual time; give for example virtual-6.12, or backend vm"
    for field, rtt in s.rtts():
        if rtt < VIRTUAL_MIN_RTT:
            shortest = units.show_time(VIRTUAL_MIN_RTT)
            yield f"{field}: virtual time needs at least {shortest} of round-trip time, not {units.show_time(rtt)}"
    named = [("contention", s.contention), *(("senders", sender) for sender in s.senders), ("receiver", s.receiver)]
    for table, contention in named:
        if contention.driver in drivers.BY_NAME and contention.driver not in (*MODELLED, "replay"):
            yield (
                f"{table}.driver: {contention.driver!r} is for backend vm; in virtual time the timeslices are "
                "granted exactly: give auto, or none"
            )
        if contention.modelled is not None:
            yield from (f"{table}.{field}: {why}" for field, why in _not_modelled(contention))
    late = s.contention.modelled is not None and s.contention.modelled.name == "late"
    if late and s.cpu.frequency is not None:
        yield f"cpu.frequency: driver {s.contention.driver} is of a CPU whose work takes no time; leave one of them out"
    if s.cross_traffic.load and s.traffic != "brobust":
        yield f"cross_traffic.load: {s.cross_traffic.load:g} is for traffic brobust; with {s.traffic} give 0"
    if s.path.ip_version == 6:
        yield from _not_over_ipv6(s)
    yield from _ignored_of_programs(s)
    if s.traffic == "iperf3":
        yield from _virtual_iperf3(s)


def _not_over_ipv6(s: Scenario) -> Iterator[str]:
    """Refuse programs that have sockets of IPv4 only, and URLs in which IPv6's colons are taken for a port's."""
    if quic.of_traffic(s.traffic) is not None:
        yield f"path.ip_version: 6, but the program of {s.traffic} has IPv4 sockets; give 4, or a program of your own"
    for name, command in (("sender", s.programs.sender or ""), ("receiver", s.programs.receiver or "")):
        for program in quic.OVER_IPV4:
            if re.search(rf"{program}(?![\w-])", command):
                yield f"path.ip_version: 6, but {program} has IPv4 sockets; give 4, or a program of your own"
        bare = re.search(r"://(?:[^\s/@]*@)?({(?:sender|receiver)})", command)
        if bare is not None and "brobust-client" not in command:  # which takes both
            yield f"programs.{name}: with IPv6 a URL has its address in brackets; write [{bare[1]}] for {bare[1]}"


def _ignored_of_programs(s: Scenario) -> Iterator[str]:
    """Refuse what only programs have where there are none, and what only the user's own have where there are others."""
    ignored = [] if s.traffic == "programs" else ["waits", "files"]
    if s.traffic in ("brobust", "iperf3"):
        ignored.append("linger")  # iperf3 has one of its own
    if s.traffic == "brobust":
        ignored += ["call_time", "poll_time"]
    for key in ignored:
        if getattr(s.programs, key) != _default(f"programs.{key}"):
            given = shown(s.programs.model_dump(mode="json")[key])
            yield (
                f"programs.{key}: {given!r} says nothing of traffic {s.traffic}; leave it out, or give the programs "
                "that send and receive (--sender-program, --receiver-program)"
            )


def _not_modelled(contention: Contention) -> Iterator[tuple[str, str]]:
    """Yield the fields that only exact timeslices have, where a host's scheduler is modelled."""
    c = contention
    given = {
        "phase": isinstance(c.phase, int), "start_jitter": c.start_jitter > 0, "length_jitter": c.length_jitter > 0,
        "start": c.start > 0, "stop": c.stop is not None, "alternate": c.alternate is not None,
    }  # fmt: skip
    if c.vcpus > 1 and c.modelled is not None and c.modelled.sleeps:
        yield "vcpus", f"which of {c.vcpus} vCPUs wakes up is not known of {c.driver}; give 1, or driver deadline"
    for field in (field for field, is_given in given.items() if is_given):
        yield field, f"it belongs to exact timeslices (driver auto); leave it out with driver {c.driver}"
    if c.driver.startswith("competitor"):
        yield from drivers.BY_NAME["competitor"].refusals(c)


def _virtual_iperf3(s: Scenario) -> Iterator[str]:
    yield from flows_are_bulk(s, "iperf3")
    if any(group.start_spread for group in s.flows):
        yield "flows.start_spread: iperf3 sends for whole seconds; give no spread, or traffic brobust"
    yield from _iperf3_sends_for_whole_seconds(s)


def _iperf3_sends_for_whole_seconds(s: Scenario) -> Iterator[str]:
    """Refuse times between which its option -t, which takes no fraction, cannot end."""
    for group in s.flows:
        field, end = ("duration", s.duration) if group.stop is None else ("stop", group.stop)
        if (sending := end - group.start) % 1_000_000_000:
            given = units.show_time(sending)
            yield f"traffic: iperf3 sends for whole seconds, not {given}; give another {field} or start"
