"""Backend `vm`: a real Linux sender in QEMU whose vCPU thread is taken off its CPU, and a path guest; or, with
accelerator uml, both as ordinary processes (testbed/uml.py).

One boot serves a whole series. Before each run everything that an earlier flow could have left is reset.
"""

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Any, Self, TypeVar

from brobust import quic, units
from brobust.backends import real_time
from brobust.backends.base import Announce, Backend
from brobust.cc import names as cc_names
from brobust.contention import during_run
from brobust.dataset import Measured, scenario_columns
from brobust.dataset.iperf3 import FlowResult
from brobust.errors import BadInput, GuestDied, MissingSupport, RunFailed
from brobust.host import cpus, network
from brobust.host.cache import refuse_foreign_images
from brobust.host.session import Session
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.kernels.virtual import VirtualKernel
from brobust.kernels.vm import Kernel
from brobust.scenario import TSO_RTT_LOG, Flows, Path, Run, Scenario
from brobust.testbed import accelerator, image, path, qemu, samples, traffic, uml
from brobust.testbed.qemu import Guest, GuestConfig
from brobust.testbed.testbed import Testbed
from brobust.units import show_rate

ADDRESSES = {"sender": "10.77.0.1", "path": traffic.RECEIVER}
MACS = {"sender": "52:54:00:77:00:01", "path": "52:54:00:77:00:02"}

# What keeps the only CPU of a kernel without QEMU busy (kernel/real-time).
BUSY: tuple[str, ...] = ("brobust_busy=1",)

UDP_SECONDS = 1.5
CUBIC_SECONDS = 4
# If a guest dies, its run is measured again in new guests, at most this many times.
MAX_RESTARTS = 2

T = TypeVar("T")


def check(scenarios: Sequence[Scenario]) -> None:
    """Refuse scenarios that cannot be measured here, before anything starts."""
    if os.geteuid() != 0:
        raise MissingSupport("the vm backend needs root (taps, network namespaces, SCHED_DEADLINE); run it with sudo")
    if not accelerator.qemu_version() and any(s.accelerator != "uml" for s in scenarios):
        raise MissingSupport(f"{qemu.QEMU} is not installed; run `make setup` or `apt-get install qemu-system-x86`")
    of_tcp = [s for s in scenarios if quic.of_traffic(s.traffic) is None]
    pairs = {(s.kernel, s.accelerator == "uml", group.cc) for s in of_tcp for group in s.flows}
    # What the user has named comes before what the host would not do.
    for kernel, is_uml in sorted({(s.kernel, s.accelerator == "uml") for s in scenarios}):
        check_there = virtual_kernels.find if is_uml else vm_kernels.check_there
        check_there(kernel)
    for requested in dict.fromkeys(s.contention for s in scenarios):
        during_run.plan(requested)
        if requested.active:
            during_run.check(requested)
    for traffic_of in {s.traffic for s in scenarios}:
        if (of_quic := quic.of_traffic(traffic_of)) is not None:
            quic.commands(*of_quic)  # refuses what is not built
    for kernel, is_uml, control in sorted(pairs):
        if is_uml:
            cc_names.check_offered(control, virtual_kernels.find(kernel).congestion_controls, kernel)
        else:
            cc_names.check(control, vm_kernels.find(kernel))


class VmBackend(Backend):
    """The testbed. It boots when first needed, and again when the kernel changes or a guest has died. It measures one
    run at a time, because the sender's vCPU has a CPU to itself."""

    def __init__(self, session: Session, announce: Announce):
        self._session = session
        self._announce = announce
        self._testbed: Testbed | None = None
        self._guests = ExitStack()
        self._started: list[Guest] = []
        self._parameters = BUSY
        self._programs: dict[str, FilePath] = {}
        """Programs beside the usual ones that the guests have."""
        self.records_calls = False
        """Whether our controls record every call (cc/call.h), for `brobust-host lab cc replay`."""

    def __enter__(self) -> Self:
        refuse_foreign_images()
        network.create(self._session, ["tap-sender", "tap-path"])
        return self

    def __exit__(self, *_: object) -> None:
        self._guests.close()

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        records = []
        self._bring_programs(scenarios)
        kept = {(s.kernel, s.accelerator, s.contention.vcpus, s.pacing) for s in scenarios if s.pacing.lag}
        for kernel, wanted, vcpus, pacing in sorted(kept, key=str):
            self._in_living_guests(kernel, wanted, partial(Testbed.keep_pacing, pacing=pacing), vcpus)
        points = {(s.kernel, s.accelerator, s.contention.vcpus, max(s.path.bandwidths)) for s in scenarios}
        for kernel, wanted, vcpus, bandwidth in sorted(points):
            # With a longer RTT, only Cubic's start would take longer.
            rtt = min(20_000_000, *(s.path.rtt for s in scenarios if max(s.path.bandwidths) == bandwidth))
            self._announce(f"calibrating {show_rate(bandwidth)} on {kernel}")
            records.append(self._calibrate(kernel, wanted, vcpus, bandwidth, rtt))
        return records

    def _calibrate(self, kernel: str, wanted: str, vcpus: int, bandwidth: int, rtt: int) -> dict[str, Any]:
        buffer = f"{real_time.calibration_buffer(bandwidth, rtt)}B"
        calibration_path = Path(bandwidth=f"{bandwidth}bit", rtt=f"{rtt}ns", buffer=buffer)
        ceiling = units.goodput_ceiling_mbps(bandwidth)

        def once(measure: Callable[[Testbed, Path], float]) -> float:
            def measured(testbed: Testbed) -> float:
                testbed.reset(calibration_path)
                testbed.place(plan)
                # Of vCPUs that share a CPU one would wait for another that only keeps itself busy.
                testbed.keep_busy(plan.has_one_each)
                return measure(testbed, calibration_path)

            return self._in_living_guests(kernel, wanted, measured, vcpus)[0]

        chosen, _ = self._in_living_guests(kernel, wanted, lambda testbed: testbed.accelerator, vcpus)
        share = real_time.min_carried_share(chosen)
        enough = share * ceiling

        def best(measure: Callable[[Testbed, Path], float]) -> tuple[float, int]:
            # A guest may be stuck from the start.
            return real_time.calibrated(partial(once, measure), enough, self._announce, half_way=self._shut_down)

        plan = cpus.plan(vcpus, most_on_one=vcpus)
        # User space under uml is traced: a UDP packet, of several system calls, takes 145 us of CPU, which says nothing
        # about the path. TCP writes 128 kB at once.
        udp, udp_tries = None, 0
        if wanted != "uml":
            udp, udp_tries = best(_udp_mbps)
        cubic, cubic_tries = best(_cubic_mbps)
        testbed = self._booted(kernel, wanted, vcpus)
        record = {
            "kernel": testbed.kernel.name, "accelerator": testbed.accelerator, "vcpus": vcpus,
            "bandwidth_mbps": bandwidth / 1e6, "rtt_ms": rtt / 1e6, "buffer_bytes": calibration_path.buffer_bytes,
            "ceiling_mbps": round(ceiling, 3), "udp_mbps": None if udp is None else round(udp, 3),
            "cubic_mbps": round(cubic, 3),
            "udp_tries": udp_tries, "cubic_tries": cubic_tries,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }  # fmt: skip
        if min(carried for carried in (udp, cubic) if carried is not None) < enough:
            carried = f"{cubic:.1f} Mbit/s" if udp is None else f"{udp:.1f} Mbit/s of UDP and {cubic:.1f}"
            raise MissingSupport(
                f"bandwidth: this machine carries {carried} of undisturbed Cubic "
                f"({testbed.accelerator}, {testbed.kernel.name}; the best of {real_time.CALIBRATION_TRIES}), "
                f"less than {share * 100:.0f} % of the {ceiling:.1f} that {show_rate(bandwidth)} can deliver; give a "
                "lower --bandwidth, or end other work on this machine"
            )
        return record

    def measure(self, run: Run) -> Measured:
        return self._with_restarts(run, partial(self._measured, run))

    def _bring_programs(self, scenarios: Sequence[Scenario]) -> None:
        """Boot new guests for the next run if those that run lack a program of these scenarios."""
        stacks = [of_quic[0] for s in scenarios if (of_quic := quic.of_traffic(s.traffic)) is not None]
        self.bring({stack.program.name: stack.program for stack in stacks})

    def bring(self, programs: Mapping[str, FilePath]) -> None:
        """Give the guests these programs in /bin, by their names there: new guests, if those that run lack one."""
        if not programs.keys() <= self._programs.keys():
            self._programs |= programs
            self._shut_down()

    def _with_restarts(self, run: Run, work: Callable[[Testbed], Measured]) -> Measured:
        """Measure a run, again if a guest dies; the record says how often."""
        scenario = run.scenario
        self._bring_programs([scenario])
        self._parameters = _parameters(scenario)
        vcpus = scenario.contention.vcpus
        measured, restarts = self._in_living_guests(scenario.kernel, scenario.accelerator, work, vcpus)
        return replace(measured, runs=[{**row, "guest_restarts": restarts} for row in measured.runs])

    def _in_living_guests(self, kernel: str, wanted: str, work: Callable[[Testbed], T], vcpus: int) -> tuple[T, int]:
        """Do something in the testbed, and again in new guests if a guest dies or does not get ready. Return the result
        and the number of restarts."""
        for restarts in range(MAX_RESTARTS + 1):
            testbed = None
            try:
                testbed = self._booted(kernel, wanted, vcpus)
                return work(testbed), restarts
            except RunFailed as failure:
                causes = [f"{g.config.name}: {g.cause_of_death()}" for g in self._started if g.died()]
                self._shut_down()  # these guests may be stuck, so the next run gets new ones
                if testbed is not None and not causes:
                    raise RunFailed(str(failure), guest_restarts=restarts) from None
                why = f"a guest died, {'; '.join(causes)}" if causes else "the guests did not get ready"
                if restarts == MAX_RESTARTS:
                    raise GuestDied(f"{why} ({failure})", guest_restarts=restarts) from None
                self._announce(f"{why}; trying again in new guests")
        raise AssertionError("unreachable")

    def _measured(self, run: Run, testbed: Testbed) -> Measured:
        scenario = run.scenario
        started, clock = datetime.now(UTC), time.monotonic()
        of_quic = quic.of_traffic(scenario.traffic)
        for group in scenario.flows:
            if of_quic is None:
                testbed.load(group.cc, record_calls=self.records_calls)
        testbed.reset(scenario.path, path.own_rtts(scenario))
        # Kernels before 5.18 do not have this sysctl, nor the bonus that it sets.
        log, file = TSO_RTT_LOG[scenario.tso_sizing], "/proc/sys/net/ipv4/tcp_tso_rtt_log"
        testbed.sender.agent.run("bash", "-c", f"[ ! -e {file} ] || echo {log} >{file}")
        testbed.keep_pacing(scenario.pacing)
        sampler = samples.Sampler(testbed.sender.agent, scenario)
        plan = during_run.plan(scenario.contention)
        testbed.place(plan)
        testbed.bind_interrupts(*scenario.contention.nic_vcpus(scenario.contention.vcpus))
        testbed.keep_busy(scenario.contention.when_idle == "spin")
        held = during_run.applied(
            scenario.contention,
            testbed.sender.vcpu_threads,
            testbed.path.vcpu_threads[0],
            plan,
            self._session,
            run.seed,
            qemu.NICE,
        )
        changes = path.changes(scenario)
        with held as got, sampler:

            def begin() -> None:
                got.note_begin()
                if changes:
                    testbed.path.agent.spawn("bash", "-c", changes)

            agents, seconds = (testbed.sender.agent, testbed.path.agent), scenario.duration / 1e9
            if of_quic is None:
                flows = traffic.run(*agents, scenario.flows, seconds, begin)
            else:
                rate = traffic.run_program(*agents, _quic_commands(*of_quic, scenario), seconds, begin)
                flows = [FlowResult(rate, None, None, None, 0, [])]
        common = {
            **scenario_columns(run),
            "qemu": accelerator.qemu_version() if testbed.accelerator != "uml" else None,
            "kernel_release": testbed.kernel.release,
            "path_kernel_release": testbed.path_release,
            "accelerator": testbed.accelerator,
            "iperf3": testbed.iperf3,
            "started_at": started,
            "wall_s": time.monotonic() - clock,
            "sender_cpus": len(set(plan.senders)),
            **got.columns(),
        }
        return real_time.result(run, common, flows, sampler.rows(run.id, flows), got.rows(run.id))

    def _booted(self, kernel_name: str, wanted: str, vcpus: int) -> Testbed:
        if wanted == "uml":
            return self._booted_without_qemu(virtual_kernels.find(kernel_name))
        kernel = vm_kernels.find(kernel_name)
        # What this refuses, such as a full disk, the probe for KVM would remember as its result until a reboot.
        image.build(kernel)
        chosen, why = accelerator.choose(wanted, kernel, self._session)
        testbed = self._testbed
        running = testbed and (testbed.kernel, testbed.accelerator, testbed.sender.config.vcpus)
        if testbed is not None and running == (kernel, chosen, vcpus):
            return testbed
        self._shut_down()
        beside = f" with {vcpus} vCPUs" if vcpus > 1 else ""
        self._announce(f"booting {kernel.name} ({kernel.release}){beside} under {chosen.upper()}: {why}")
        path_kernel = _path_kernel(kernel)
        sender = self._start(GuestConfig("sender", "tap-sender", MACS["sender"], vcpus=vcpus), kernel, chosen)
        bottleneck = self._start(
            GuestConfig("path", "tap-path", MACS["path"], receives_super_packets=False), path_kernel, chosen
        )
        for guest in (sender, bottleneck):
            guest.wait_booted()
        for guest, other in ((sender, "path"), (bottleneck, "sender")):
            guest.agent.run("bash", "-c", _addressing(guest.config.name, other))
        path.prepare(bottleneck.agent)
        self._testbed = Testbed(
            sender, bottleneck, kernel, path_kernel.release, chosen,
            traffic.versions(sender.agent), controls={"cubic": "cubic", "reno": "reno"},
        )  # fmt: skip
        return self._testbed

    def _start(self, config: GuestConfig, kernel: Kernel, chosen: str) -> Guest:
        return self._keep(Guest.start(config, kernel, image.build(kernel, self._programs), chosen, self._session))

    def _keep(self, guest: Guest) -> Guest:
        self._started.append(guest)
        return self._guests.enter_context(guest)

    def _booted_without_qemu(self, kernel: VirtualKernel) -> Testbed:
        testbed, parameters = self._testbed, self._parameters
        if testbed is not None and (testbed.kernel, testbed.parameters) == (kernel, parameters):
            return testbed
        self._shut_down()
        plan = cpus.plan()
        self._announce(f"booting {kernel.name} ({kernel.release}) in real time")
        filesystem = image.build(kernel, self._programs)
        with uml.wire() as ends:
            configs = [GuestConfig(name, tap="", mac=mac) for name, mac in MACS.items()]
            sender, bottleneck = (
                self._keep(uml.start(config, kernel, filesystem, end, self._session, on, given))
                for config, end, on, given in zip(
                    configs, ends, (set(plan.senders), plan.others), (parameters, ()), strict=True
                )
            )  # fmt: skip
        for guest, other in ((sender, "path"), (bottleneck, "sender")):
            guest.wait_booted()
            guest.agent.run("ip", "link", "set", "eth0", "address", guest.config.mac)
            guest.agent.run("bash", "-c", _addressing(guest.config.name, other))
        path.prepare(bottleneck.agent)
        self._testbed = Testbed(
            sender, bottleneck, kernel, kernel.release, "uml",
            traffic.versions(sender.agent), controls={}, cpus=plan, parameters=parameters,
        )  # fmt: skip
        return self._testbed

    def _shut_down(self) -> None:
        """End the guests. The next run boots new ones."""
        self._testbed = None
        self._started = []
        self._guests.close()

    def ask_sender(self, *command: str, kernel: str | None = None) -> str:
        """Run a program in the sender between runs, and return what it prints. With `kernel`, boot that first if the
        sender runs another one."""
        return self._running(kernel).sender.agent.run(*command, timeout=60)

    def ask_receiver(self, *command: str, kernel: str | None = None) -> str:
        """Run a program in the guest with the path and the receiver, as `ask_sender` does in the sender."""
        return self._running(kernel).path.agent.run(*command, timeout=60)

    def _running(self, kernel: str | None) -> Testbed:
        if kernel is None:
            return self.testbed
        return self._in_living_guests(kernel, "auto", lambda testbed: testbed, 1)[0]

    @property
    def testbed(self) -> Testbed:
        if self._testbed is None:
            raise RunFailed("no guests are running; measure a run first")
        return self._testbed

    def measure_beside(self, run: Run, *command: str) -> tuple[Measured, str]:
        """Measure a run while a program runs in the sender. Return the result, and what the program printed; it must
        end by itself."""

        printed = ""

        def beside(testbed: Testbed) -> Measured:
            nonlocal printed
            # Load controls before the program starts: loading takes seconds, and the program's time is limited.
            for group in run.scenario.flows:
                testbed.load(group.cc, record_calls=self.records_calls)
            pid = testbed.sender.agent.spawn(*command)
            measured = self._measured(run, testbed)
            ended = testbed.sender.agent.wait(pid, 120)
            if ended.status != 0:
                raise RunFailed(f"{command[0]} in the sender: {ended.stderr.strip()}")
            printed = ended.stdout
            return measured

        return self._with_restarts(run, beside), printed

    def forget_control(self, control: str) -> None:
        """Unload a control from the sender if a run has loaded it; the next run then loads it again."""
        name = cc_names.name_of(control)
        if self._testbed is not None and self._testbed.controls.pop(name, None) is not None:
            self.ask_sender("brobust", "cc", "unload", name)


def _parameters(scenario: Scenario) -> tuple[str, ...]:
    """Return the settings of a scenario's controls for a kernel's command line, if its sender takes them there."""
    if scenario.accelerator != "uml":
        return ()
    busy = BUSY if scenario.contention.when_idle == "spin" else ()
    return (*busy, *cc_names.parameters(group.cc for group in scenario.flows))


def _quic_commands(stack: quic.Stack, words: Sequence[str], s: Scenario) -> tuple[list[str], list[str]]:
    """Return what sends and what receives in the guests, which have the program in /bin."""
    values = {"receiver": traffic.RECEIVER, "port": traffic.FIRST_PORT, "seconds": f"{s.duration / 1e9:g}"}
    send, receive = (
        [word.format(**values, cc=s.flows[0].cc) for word in shlex.split(command)[1:]]
        for command in quic.commands(stack, words)
    )
    program = f"/bin/{stack.program.name}"
    return [program, *send], [program, *receive]


def _udp_mbps(testbed: Testbed, measured_path: Path) -> float:
    rate = round(measured_path.bandwidth * 1.02)
    return traffic.udp_mbps(testbed.sender.agent, testbed.path.agent, rate, UDP_SECONDS)


def _cubic_mbps(testbed: Testbed, _: Path) -> float:
    flows = traffic.run(testbed.sender.agent, testbed.path.agent, (Flows(cc="cubic"),), CUBIC_SECONDS)
    return real_time.settled_mbps(flows[0])


def _path_kernel(sender: Kernel) -> Kernel:
    """Return the kernel of the path guest: the default one if there is one, whatever the sender runs, so that the
    senders' kernels are compared on the same path."""
    try:
        return vm_kernels.find(vm_kernels.default())
    except (BadInput, MissingSupport):
        return sender


def _addressing(me: str, other: str) -> str:
    return (
        f"set -e; ip addr add {ADDRESSES[me]}/24 dev eth0; ip link set eth0 txqueuelen 1000 up; "
        # With a permanent neighbour entry no flow ever waits for ARP.
        f"ip neigh replace {ADDRESSES[other]} lladdr {MACS[other]} dev eth0 nud permanent"
    )
