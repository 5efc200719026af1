"""The two guests of a testbed, and what is done to them before a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brobust.cc import names as cc_names
from brobust.host.cpus import Plan, pin
from brobust.kernels.virtual import VirtualKernel
from brobust.kernels.vm import Kernel
from brobust.scenario import Path
from brobust.scenario.specs import Pacing
from brobust.testbed import path
from brobust.testbed.pacing import LAG, cannot_keep
from brobust.testbed.qemu import Guest


@dataclass
class Testbed:
    """Two running guests on one wire, for one kernel of the sender."""

    sender: Guest
    path: Guest
    kernel: Kernel | VirtualKernel
    path_release: str
    accelerator: str
    iperf3: str
    controls: dict[str, str]  # the loaded controls by name, each with its settings as in --cc
    cpus: Plan | None = None  # where the guests' threads are pinned to
    spinning: int | None = None  # the process that keeps the sender's vCPUs busy
    parameters: tuple[str, ...] = ()  # of the sender's command line, with accelerator uml

    def __post_init__(self) -> None:
        self.sender.agent.give_up_with(self.path.agent)
        self.path.agent.give_up_with(self.sender.agent)

    def place(self, plan: Plan) -> None:
        """Pin each vCPU of the sender to its CPU, and everything else to the others."""
        if self.cpus == plan:
            return
        pin(self.sender.threads(), plan.others)
        pin(self.path.threads(), plan.others)
        for thread, cpu in zip(self.sender.vcpu_threads, plan.senders, strict=True):
            pin([thread], {cpu})
        self.cpus = plan

    def keep_pacing(self, pacing: Pacing) -> None:
        """Set for how much of the time in which its CPU was away the sender makes up. Refuse a kernel that cannot."""
        file = f"/proc/sys/net/{LAG}"
        set_it = f"[ -e {file} ] || exit 3; echo {pacing.lag // 1000} >{file}"
        status = self.sender.agent.try_run("bash", "-c", set_it).status
        if status != 0 and pacing.lag:
            raise cannot_keep(pacing, self.kernel.name)

    def bind_interrupts(self, rx: int, tx: int) -> None:
        """Bind the interrupts of packets that arrive, and of packets that were sent, to vCPUs of the sender."""
        if self.sender.config.vcpus == 1:
            return
        bind = "for irq in /proc/irq/*/virtio*-{}.0; do echo {} >${{irq%/*}}/smp_affinity_list || exit; done; "
        self.sender.agent.run("bash", "-c", bind.format("input", rx) + bind.format("output", tx))

    def keep_busy(self, busy: bool) -> None:
        """Keep the sender's vCPUs busy when its guest has nothing to do, or let them sleep. One that sleeps hides part
        of what is taken from it."""
        if isinstance(self.kernel, VirtualKernel):
            return  # its command line says so
        if busy and self.spinning is None:
            self.spinning = self.sender.agent.spawn("brobust", "spin")
        elif not busy and self.spinning is not None:
            self.sender.agent.kill(self.spinning)
            self.sender.agent.wait(self.spinning, 10)
            self.spinning = None

    def load(self, control: str, *, record_calls: bool) -> None:
        """Load a congestion control into the sender, unless it is loaded with these parameters."""
        name = cc_names.name_of(control)
        # A virtual kernel has its controls built in, and their settings on its command line.
        if self.controls.get(name) == control or isinstance(self.kernel, VirtualKernel):
            return
        agent = self.sender.agent
        settings = cc_names.settings_of(control)
        # Our controls, too, may be modules of the guest's kernel (kernels/modules.py).
        module = self.kernel.control_modules().get(name)
        if module is not None or name not in cc_names.OURS:
            if name in self.controls:
                agent.run("modprobe", "-r", module or f"tcp_{name}")
            agent.run("modprobe", module or f"tcp_{name}", *(f"{key}={value}" for key, value in settings))
        else:
            if name in self.controls:
                agent.run("brobust", "cc", "unload", name, timeout=60)
            options = [f"--param={key}={value}" for key, value in settings]
            record = ["--record"] if record_calls else []
            agent.run("brobust", "cc", "load", name, *options, *record, timeout=60)
        self.controls[name] = control

    def reset(self, scenario_path: Path, rtts: Mapping[int, int] | None = None) -> None:
        """Remove what one flow could leave for the next: queued packets and cached path metrics."""
        path.configure(self.path.agent, scenario_path, rtts)
        self.sender.agent.run("ip", "tcp_metrics", "flush", "all")
