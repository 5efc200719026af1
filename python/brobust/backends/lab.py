"""Backend `lab`: real hosts, which the user's file names and ssh reaches.

Our program on each host undoes everything when its connection ends. So after a failed run all connections are closed,
and the next run begins with hosts as they were found.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Any, TypeVar

from brobust import units
from brobust.backends import real_time
from brobust.backends.base import Announce, Backend
from brobust.cc import names as cc_names
from brobust.contention import verdict
from brobust.dataset import Measured, iperf3, scenario_columns
from brobust.errors import BadInput, HostLost, MissingSupport, RunFailed, last_line
from brobust.host import cpus
from brobust.host.session import ANOTHER
from brobust.lab import hosts as hosts_file
from brobust.lab import places, ssh
from brobust.lab.hosts import Sender
from brobust.lab.places import Lab
from brobust.lab.ssh import Connection
from brobust.scenario import TSO_RTT_LOG, Contention, Flows, Path, Run, Scenario
from brobust.testbed import pacing, path, samples, traffic
from brobust.testbed.agent import Agent
from brobust.units import show_number, show_rate, show_time

CUBIC_SECONDS = 2
# A path host that carried less than this part of what arrived is not on the way.
MIN_FORWARDED_SHARE = 0.9
# `brobust contend` says what it has found when it begins; until then it has not taken anything away.
CONTEND_SECONDS = 1.0

T = TypeVar("T")


def check(scenarios: Sequence[Scenario]) -> None:
    """Refuse nothing more than what is written: the hosts are asked when the series begins."""


class LabBackend(Backend):
    """The hosts of one file at a time, connected when first needed."""

    def __init__(self, announce: Announce):
        self._announce = announce
        self._file = ""
        self._connections: dict[tuple[str, bool], Connection] = {}
        self._lab: Lab | None = None
        self._scenarios: Sequence[Scenario] = ()
        self._controls: dict[str, str] = {}
        self._iperf3 = ""

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: object) -> None:
        problems = self._disconnect()
        if problems and not isinstance(value, HostLost):
            raise MissingSupport(f"{f'{value}; ' if value is not None else ''}{'; '.join(problems)}") from None

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self._scenarios = scenarios
        records = []
        points = {(s.hosts or "", max(s.path.bandwidths)) for s in scenarios}
        for file, bandwidth in sorted(points):
            self._announce(f"calibrating {show_rate(bandwidth)} on the hosts of {file}")
            records.append(self._on_hosts_of(file, partial(self._calibrated, bandwidth)))
        return records

    def measure(self, run: Run) -> Measured:
        return self._on_hosts_of(run.scenario.hosts or "", partial(self._measured, run))

    def _on_hosts_of(self, file: str, work: Callable[[Lab], T]) -> T:
        """Do something on the hosts of a file. If it fails they are left, and found again by who needs them next."""
        try:
            return work(self._connected(file))
        except RunFailed as failure:
            lost = [one.name for one in self._connections.values() if one.is_lost]
            problems = self._disconnect()
            if lost:
                raise HostLost(f"{' and '.join(lost)} no longer answered", "let it be reached again") from None
            raise RunFailed("; ".join([str(failure), *problems])) from None

    def _connected(self, file: str) -> Lab:
        if self._lab is not None and self._file == file:
            return self._lab
        if problems := self._disconnect():
            raise MissingSupport("; ".join(problems))
        hosts = hosts_file.read(file)
        self._file = file
        config = None if hosts.ssh_config is None else FilePath(file).parent / hosts.ssh_config
        named = {"sender": hosts.sender, "receiver": hosts.receiver, "path": hosts.path, "hypervisor": hosts.hypervisor}
        for name, machine in named.items():
            if machine is not None and (key := (machine.ssh, machine.sudo)) not in self._connections:
                self._announce(f"connecting to {machine.ssh}")
                connection = self._connections[key] = Connection(name, machine)
                connection.start(config, hosts.cut_after / 1e9, beside_others=name == "hypervisor")
        with ThreadPoolExecutor(len(self._connections)) as threads:
            ready = [threads.submit(one.wait_ready) for one in self._connections.values()]
            try:
                for waited in ready:
                    waited.result()
            except BaseException as error:
                same = None
                if ANOTHER in str(error):  # which may be our own
                    wait(ready, timeout=2)  # until the others have said which machine they are
                    same = ssh.same_machine(list(self._connections.values()))
                for one in self._connections.values():
                    one.give_up()
                if same is not None:
                    raise MissingSupport(f"{error}; {same}") from None
                raise
        sender = self._connections[hosts.sender.ssh, hosts.sender.sudo].agent
        for connection in self._connections.values():
            if connection.agent is not sender:
                sender.give_up_with(connection.agent)
        of_file = [s for s in self._scenarios if s.hosts == file]
        try:
            lab = places.found(hosts, self._connections)
            places.refuse_traffic(lab, min(min(s.path.bandwidths) for s in of_file))
            check_on_hosts(lab, of_file)
            places.prepare(lab, of_file)
        except RunFailed as failure:
            if not any(one.is_lost for one in self._connections.values()):
                raise MissingSupport(str(failure)) from None
            raise
        self._iperf3 = traffic.versions(lab.sender.agent)
        self._controls = {}
        self._lab = lab
        return lab

    def _disconnect(self) -> list[str]:
        """Close all connections at once. Return what the hosts could not undo."""
        connections, self._connections, self._lab = list(self._connections.values()), {}, None
        if not connections:
            return []
        with ThreadPoolExecutor(len(connections)) as threads:
            return [problem for problem in threads.map(Connection.close, connections) if problem is not None]

    def _calibrated(self, bandwidth: int, lab: Lab) -> dict[str, Any]:
        ceiling = units.goodput_ceiling_mbps(bandwidth)
        buffer = real_time.calibration_buffer(bandwidth, 20_000_000)
        measured_path = Path(bandwidth=f"{bandwidth}bit", rtt="0s", buffer=f"{buffer}B")
        network_rtt_ms = None

        def measure() -> float:
            nonlocal network_rtt_ms
            path.configure(lab.path.agent, measured_path, None, lab.devices, delays=False)
            before = _sent_bytes(lab)
            flow, network_rtt_ms = _undisturbed_cubic(lab)
            forwarded = (_sent_bytes(lab) - before) * 8 / 1e6 / CUBIC_SECONDS
            if forwarded < MIN_FORWARDED_SHARE * flow.throughput_mbps:
                raise MissingSupport(
                    f"path: {forwarded:.1f} of {flow.throughput_mbps:.1f} Mbit/s went through {lab.devices.bottleneck} "
                    f"of {lab.path.name}; set routes so that the path host is between sender and receiver"
                )
            return real_time.settled_mbps(flow)

        enough = real_time.MIN_CARRIED_SHARE * ceiling
        best, tries = real_time.calibrated(measure, enough, self._announce)
        if best < enough:
            raise MissingSupport(
                f"bandwidth: these hosts carry {best:.1f} Mbit/s of undisturbed Cubic (the best of {tries}), less than "
                f"95 % of the {ceiling:.1f} that {show_rate(bandwidth)} can deliver; give a lower --bandwidth"
            )
        return {
            "hosts": {
                place.role: {
                    "ssh": place.connection.machine.ssh, "device": place.device, **ssh.facts(place.agent)
                } for place in lab.places
            },
            "file": self._file, "network_rtt_ms": network_rtt_ms,
            "bandwidth_mbps": bandwidth / 1e6, "buffer_bytes": buffer, "ceiling_mbps": round(ceiling, 3),
            "cubic_mbps": round(best, 3), "cubic_tries": tries,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }  # fmt: skip

    def _measured(self, run: Run, lab: Lab) -> Measured:
        s = run.scenario
        started, clock = datetime.now(UTC), time.monotonic()
        for group in s.flows:
            self._ensure_loaded(lab, group.cc)
        # Kernels before 5.18 do not have this sysctl, nor the bonus that it sets.
        lab.sender.hold("ipv4/tcp_tso_rtt_log", str(TSO_RTT_LOG[s.tso_sizing]))
        lab.sender.hold(pacing.LAG, str(s.pacing.lag // 1000))  # a kernel without it has no lag to switch off
        rtts = path.own_rtts(s)
        path.configure(lab.path.agent, s.path, rtts, lab.devices, delays=places.needs_netem(s))
        changes = path.changes(s, lab.devices)
        sampler = samples.Sampler(lab.sender.agent, s)
        agents, seconds = (lab.sender.agent, lab.receiver.agent), s.duration / 1e9

        with self._contended(lab, s.contention) as contended:

            def begin() -> None:
                contended.traffic_began = time.monotonic()
                if changes:
                    lab.path.agent.spawn("bash", "-c", changes)

            before = _cpu_times(lab)
            with sampler, _observed(lab) as late:
                flows = traffic.run(*agents, s.flows, seconds, begin, lab.hosts.receiver.address)
            steal = cpus.steal(before, _cpu_times(lab))
        releases = [one.agent.run("uname", "-r").strip() for one in (lab.sender, lab.path)]
        common = {
            **scenario_columns(run),
            "kernel_release": releases[0],
            "path_kernel_release": releases[1],
            "iperf3": self._iperf3,
            "started_at": started,
            "wall_s": time.monotonic() - clock,
            "steal_share": steal,
            "late_share": late["sender"],
            **(contended.columns() if s.contention.active else _undisturbed(steal, late["sender"], lab.hosts.sender)),
        }
        of_others = {name: share for name, share in late.items() if name != "sender" and share is not None}
        if of_others:
            common["path_waiting_share"] = max(of_others.values())
        if common["outcome"] == "ok" and (reason := verdict.of_hosts(of_others)) is not None:
            common |= verdict.outcome(reason)
        of_each = {"when_idle": "spin" if s.contention.active else None}
        return real_time.result(run, common, flows, sampler.rows(run.id, flows), contended.offtimes(run.id), of_each)

    @contextmanager
    def _contended(self, lab: Lab, requested: Contention) -> Iterator[Contended]:
        """Take the sender's CPU away on its hypervisor while the context lasts, if that is asked for."""
        contended = Contended()
        if not requested.active:
            yield contended
            return
        assert lab.hypervisor is not None and lab.hosts.hypervisor is not None  # refused before
        agent = lab.hypervisor.agent
        # A vCPU that sleeps hides part of what is taken from it.
        spinning = lab.sender.agent.spawn("brobust", "spin")
        recording = f"{_recordings(lab, agent)}/run.parquet"
        words = [*lab.hosts.hypervisor.which, *_of_contend(requested), "--json", "--out", recording]
        holding = agent.spawn(lab.hypervisor.program, "contend", *words)
        agent.run("sleep", f"{CONTEND_SECONDS:g}")
        yield contended
        agent.kill(holding)
        contended.ended = time.monotonic()
        ended = agent.wait(holding, 30)
        # Not waited for: at idle priority it ends when nobody else wants the CPU.
        lab.sender.agent.kill(spinning)
        contended.read(lab.hypervisor.name, ended.stdout, ended.stderr)
        contended.recording = agent.run("base64", recording)
        agent.run("rm", recording)

    def _ensure_loaded(self, lab: Lab, control: str) -> None:
        """See to it that the sender's kernel has a control, with these parameters."""
        name, agent = cc_names.name_of(control), lab.sender.agent
        if self._controls.get(name) == control:
            return
        if name in cc_names.OURS:
            if name in self._controls:
                agent.run("brobust", "cc", "unload", name, timeout=60)
            else:
                needed = cc_names.OURS[name]
                if needed is not None and needed not in _available(lab):
                    self._record_module(lab, needed)  # our program loads it
                # By whatever undoes: our program is no file there.
                lab.sender.connection.agent.record(
                    f"{name} of {lab.sender.name}", "bash", "-c",
                    f"! grep -qw {name} /proc/sys/net/ipv4/tcp_available_congestion_control || "
                    f"exec /proc/$PPID/exe lab cc unload {name}",
                )  # fmt: skip
            options = [f"--param={key}={value}" for key, value in cc_names.settings_of(control)]
            agent.run("brobust", "cc", "load", name, *options, timeout=60)
        elif name not in _available(lab):
            self._record_module(lab, name)
            loaded = agent.try_run("modprobe", f"tcp_{name}")
            available = _available(lab)
            if loaded.status != 0 or name not in available:
                raise RunFailed(f"cc: the kernel of {lab.sender.name} has no {name}; it has {' '.join(available)}")
        self._controls[name] = control

    def _record_module(self, lab: Lab, control: str) -> None:
        """Have a module of the sender's kernel, which is about to be loaded, removed at the end."""
        lab.sender.connection.agent.record(
            f"module tcp_{control} of {lab.sender.name}", "bash", "-c", f"modprobe -r tcp_{control} 2>/dev/null || :"
        )


def check_on_hosts(lab: Lab, scenarios: Sequence[Scenario]) -> None:
    """Refuse what the hosts lack for these scenarios, before anything of them is changed."""
    _check_controls(lab, scenarios)
    _check_pacing(lab, scenarios)
    _check_contention(lab, scenarios)


def _check_controls(lab: Lab, scenarios: Sequence[Scenario]) -> None:
    """Refuse congestion controls that the sender's kernel neither has nor can load; load none yet."""
    wanted = dict.fromkeys(cc_names.name_of(group.cc) for s in scenarios for group in s.flows)
    available = _available(lab)
    for name in wanted:
        if name in available:
            if name in cc_names.OURS:  # perhaps for other sockets, which would lose it at the end
                raise MissingSupport(
                    f"cc: {name} is loaded on {lab.sender.name} already, and a series loads and unloads it itself; "
                    f"`brobust cc unload {name}` there, or take another host"
                )
            continue
        if name in cc_names.OURS:
            needed, script = "BPF type format, with which ours are loaded", "test -e /sys/kernel/btf/vmlinux"
        else:
            # Not every modprobe can try without loading: that of busybox cannot.
            needed = f"module tcp_{name}"
            script = f"modprobe -n -q tcp_{name} || grep -q '/tcp_{name}[.]ko' /lib/modules/$(uname -r)/modules.dep"
        if lab.sender.agent.try_run("bash", "-c", script).status != 0:
            raise MissingSupport(
                f"cc: the kernel of {lab.sender.name} has neither {name} nor the {needed}; it has {' '.join(available)}"
            )


def _check_pacing(lab: Lab, scenarios: Sequence[Scenario]) -> None:
    """Refuse to make up for departures that were late where the sender's kernel cannot."""
    kept = next((s.pacing for s in scenarios if s.pacing.lag), None)
    if kept is not None and lab.sender.agent.try_run("test", "-e", f"/proc/sys/net/{pacing.LAG}").status != 0:
        raise pacing.cannot_keep(kept, lab.sender.name)


def _check_contention(lab: Lab, scenarios: Sequence[Scenario]) -> None:
    """Refuse what `brobust contend` would refuse on the hypervisor's host."""
    for requested in dict.fromkeys(s.contention for s in scenarios if s.contention.active):
        assert lab.hypervisor is not None and lab.hosts.hypervisor is not None  # refused before
        words = [*lab.hosts.hypervisor.which, *_of_contend(requested), "--dry-run"]
        tried = lab.hypervisor.agent.try_run(lab.hypervisor.program, "contend", *words)
        if tried.status != 0:
            last = last_line(tried.stderr, "it refused without a word")
            raise MissingSupport(f"{lab.hypervisor.name}: brobust contend: {last}")


@dataclass
class Contended:
    """What the sender's vCPUs got on their hypervisor."""

    threads: Sequence[dict[str, Any]] = ()
    name: str = ""
    recording: str = ""
    """The Parquet file of `brobust contend --out`, in Base64."""
    traffic_began: float = 0.0
    ended: float = 0.0
    """When the contention was ended, on the same clock as `traffic_began`, s."""

    def read(self, name: str, reported: str, said: str) -> None:
        """Read the last report of `brobust contend`; raise RunFailed with what it said if there is none."""
        self.name = name
        for line in reversed(reported.splitlines()):
            report = json.loads(line)
            if report.get("summary"):
                self.threads = report["threads"]
                return
        raise RunFailed(f"{name}: brobust contend: {last_line(said, 'it left no report')}")

    def offtimes(self, run: str) -> list[dict[str, Any]]:
        """Return the off-times of each vCPU, for the offtimes table. The recording ends when the contention does, which
        is known here, so no clock of two hosts is compared: starts are off by what a word to the hypervisor takes."""
        if not self.recording:
            return []
        from brobust.dataset import recordings

        try:
            recording = recordings.threads(FilePath(self.name), base64.b64decode(self.recording))
        except (ValueError, BadInput):
            raise RunFailed(f"{self.name}: brobust contend: its recording cannot be read") from None
        shift_s = self.ended - recording.end_s - self.traffic_began
        intervals = recording.intervals.sort("thread", "start_s")
        numbers = {thread: number for number, thread in enumerate(intervals["thread"].unique(maintain_order=True))}
        return [
            {
                "run": run, "sender": 1, "vcpu": numbers[row["thread"]], "kind": "off",
                "start_s": row["start_s"] + shift_s, "duration_ms": row["duration_ms"],
            }
            for row in intervals.iter_rows(named=True)
            if row["kind"] == "off"
        ]  # fmt: skip

    def columns(self) -> dict[str, Any]:
        """Return columns of the run record: the means over the vCPUs, of which the worst decides the outcome."""
        reason = next((one["unfaithful"] for one in self.threads if one.get("unfaithful")), None)

        def mean(key: str) -> float | None:
            known = [one[key] for one in self.threads if one.get(key) is not None]
            return sum(known) / len(known) if known else None

        slices = [one["timeslices"]["count"] for one in self.threads if one.get("timeslices")]
        return {
            **verdict.outcome(reason),
            "effective_share": mean("share"),
            "effective_timeslice_ms": mean("timeslice_ms"),
            "effective_offtime_ms": mean("offtime_ms"),
            "asleep_share": mean("asleep_share"),
            "timeslices": sum(slices) if slices else None,
            "vcpu_shares": " ".join(f"{one['share']:.4f}" for one in self.threads),
            "lost_events": sum(one.get("lost_events") or 0 for one in self.threads),
        }


def _recordings(lab: Lab, hypervisor: Agent) -> str:
    """Return a directory on the hypervisor's host for what `brobust contend` records."""
    if not lab.recordings:
        directory = f"/run/.brobust-lab.{secrets.token_hex(8)}"
        hypervisor.record(f"directory {directory}", "rm", "-rf", directory)
        hypervisor.run("mkdir", "-m", "700", directory)
        lab.recordings = directory
    return lab.recordings


def _undisturbed(steal: float, late: float | None, sender: Sender) -> dict[str, Any]:
    """Return the columns of a run whose sender was to have its CPU whenever it wanted one."""
    reason = verdict.of_sender(steal, late, sender.max_steal)
    return {**verdict.outcome(reason), "effective_share": 1 - max(steal, late or 0.0)}


def _of_contend(c: Contention) -> list[str]:
    """Return the options of `brobust contend` for a request."""
    words = ["--driver", c.driver, "--share", show_number(c.share), "--timeslice", show_time(c.timeslice)]
    words += ["--phase", str(c.phase)]  # a word: backends/support.py refuses a time
    for option, value in (("--start-jitter", c.start_jitter), ("--length-jitter", c.length_jitter)):
        if value:
            words += [option, show_number(value)]
    return words


def _available(lab: Lab) -> list[str]:
    """Return the controls that the sender's kernel has loaded or built in."""
    return lab.sender.agent.run("cat", "/proc/sys/net/ipv4/tcp_available_congestion_control").split()


def _undisturbed_cubic(lab: Lab) -> tuple[iperf3.FlowResult, float | None]:
    """Send Cubic for a while. Return what arrived, and the network's own RTT, ms, if the kernel tells it."""
    address = lab.hosts.receiver.address
    looking: list[int] = []

    def look() -> None:
        # In time for iperf3's first connection, which is there before there is a queue.
        script = f"sleep 1; ss -Htin dst {address} dport = :{traffic.FIRST_PORT}"
        looking.append(lab.sender.agent.spawn("bash", "-c", script))

    agents = lab.sender.agent, lab.receiver.agent
    flow = traffic.run(*agents, (Flows(cc="cubic"),), CUBIC_SECONDS, look, address)[0]
    shown = lab.sender.agent.wait(looking[0], 10).stdout
    rtts = [float(number) for number in re.findall(r"\bminrtt:([0-9.]+[0-9])", shown)]
    return flow, min(rtts, default=None)


def _sent_bytes(lab: Lab) -> int:
    file = f"/sys/class/net/{lab.devices.bottleneck}/statistics/tx_bytes"
    return int(lab.path.agent.run("cat", file))


@contextmanager
def _observed(lab: Lab) -> Iterator[dict[str, float | None]]:
    """Observe the CPUs of each place while the context lasts. Afterwards the result has, by the place's part, the share
    of the wake-ups of a thread with priority that were late; None where a place allows no such thread."""
    late: dict[str, float | None] = {}
    observers = [(place, place.agent.spawn("brobust", "load")) for place in lab.places]
    yield late
    for place, observer in observers:
        place.agent.kill(observer)
    for place, observer in observers:
        ended = place.agent.wait(observer, traffic.GRACE_SECONDS)
        if ended.status != 0:
            raise RunFailed(f"{place.name}: its CPUs could not be observed: {ended.stderr.strip()}")
        late[place.role] = json.loads(ended.stdout)["late_share"]


def _cpu_times(lab: Lab) -> cpus.Times:
    return cpus.times(lab.sender.agent.run("cat", "/proc/stat"))
