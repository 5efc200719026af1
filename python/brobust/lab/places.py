"""Sender, receiver and path on real hosts: found, checked, and changed so that a run can be measured.

Whatever is changed is told to the host's agent before, with the command that undoes it. Data leave the path host, or
enter the receiver, through tbf; ACKs go back through netem (testbed/path.py).
"""

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brobust import units
from brobust.errors import MissingSupport, RunFailed, last_line
from brobust.lab.hosts import End, Hosts
from brobust.lab.ssh import Connection
from brobust.scenario import Scenario
from brobust.testbed import path
from brobust.testbed.agent import Agent, Within
from brobust.testbed.path import Devices
from brobust.testbed.traffic import FIRST_PORT

# The programs that each place needs, with the Debian package of each. What undoes is a script for bash: a shell of
# busybox may have a `tc` of its own, and prefer it.
TOOLS = {"bash": "bash", "ip": "iproute2", "tc": "iproute2", "ss": "iproute2", "ethtool": "ethtool"}
IPERF3 = {"iperf3": "iperf3"}
DEFAULT_QDISC = "/proc/sys/net/core/default_qdisc"
# Kinds of qdiscs that no packet waits in: those of several queues, of interfaces without one, and of what comes in.
NO_LEAVES = {"mq", "noqueue", "noop", "ingress", "clsact"}
CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
# The interface through which data enter a receiver that is the bottleneck, too.
IFB = "ifb-brobust"
LOOK_SECONDS = 1.0
# What other traffic may have of the slowest bandwidth, or, where that is more, in bit/s: ARP, an ssh that is typed in.
MAX_OTHER_SHARE, MAX_OTHER_RATE = 0.01, 100_000

# Socket buffers must limit no bulk flow, and no run may influence the next one (testbed/init.sh).
SYSCTLS = {
    "sender": {"ipv4/tcp_wmem": "4096 65536 67108864", "ipv4/tcp_no_metrics_save": "1"},
    "receiver": {"ipv4/tcp_rmem": "4096 131072 67108864", "ipv4/tcp_no_metrics_save": "1"},
}


@dataclass
class Place:
    """A host, or a network namespace of it, with the part that it has in a run."""

    role: str
    connection: Connection
    namespace: str | None
    device: str = ""
    """The interface with its address; of the path host that towards the receiver."""
    agent: Agent = field(init=False)
    held: dict[str, str] = field(default_factory=dict)
    """Sysctls that were changed, with the value that they have now."""

    def __post_init__(self) -> None:
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace is not None else []
        name = self.connection.name if self.namespace is None else f"{self.connection.name}, {self.namespace}"
        self.agent = Within(self.connection.agent, name, inside, [self.connection.program, "lab"])

    @property
    def name(self) -> str:
        """What refusals call it."""
        return self.agent.name

    def ask(self, *command: str) -> list[dict[str, Any]]:
        """Return the objects that a command prints as JSON; raise RunFailed if it prints anything else."""
        try:
            found = json.loads(self.agent.run(*command) or "[]")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise RunFailed(f"{self.name}: `{' '.join(command)}` did not print a list of objects as JSON")
        return found

    def hold(self, name: str, value: str) -> bool:
        """Give a sysctl (below /proc/sys/net) this value until the end. Return whether there is one."""
        file = f"/proc/sys/net/{name}"
        if self.held.get(name) == value:
            return True
        before = self.agent.try_run("cat", file)
        if before.status != 0:
            return False
        if name not in self.held:
            if before.stdout.split() == value.split():
                return True
            self.agent.record(f"net/{name}", "bash", "-c", f"echo {shlex.quote(before.stdout.strip())} >{file}")
        self.held[name] = value
        self.agent.run("bash", "-c", f"echo {shlex.quote(value)} >{file}")
        return True

    def switch(self, device: str, *features: str) -> None:
        """Turn off these offloads of an interface until the end, where they are on and can be turned off."""
        shown = dict(
            line.strip().split(": ", 1) for line in self.agent.run("ethtool", "-k", device).splitlines() if ": " in line
        )
        for short, long in (one.split("=") for one in features):
            if shown.get(long) == "on":
                self.agent.record(
                    f"{short} on {device}", "bash", "-c", _if_there(device, f"ethtool -K {device} {short} on")
                )
                self.agent.run("ethtool", "-K", device, short, "off")


@dataclass
class Lab:
    hosts: Hosts
    sender: Place
    receiver: Place
    path: Place
    """Where the qdiscs are: a host of its own, or the receiver."""
    devices: Devices
    hypervisor: Connection | None
    recordings: str = ""
    """A directory on the hypervisor's host for recordings, once there is one."""

    @property
    def places(self) -> list[Place]:
        """Each place once."""
        return [self.sender, self.receiver, *([] if self.path is self.receiver else [self.path])]


def found(hosts: Hosts, connections: Mapping[tuple[str, bool], Connection]) -> Lab:
    """Find the interfaces of the measured path; refuse hosts that it does not lead over, without changing them."""

    def place(role: str, end: Any) -> Place:
        return Place(role, connections[end.ssh, end.sudo], end.namespace)

    sender, receiver = place("sender", hosts.sender), place("receiver", hosts.receiver)
    for end, needed in ((sender, TOOLS | IPERF3), (receiver, TOOLS | IPERF3)):
        _require(end, needed)
    _require_clock(sender)
    sender.device = _device_of(sender, hosts.sender)
    receiver.device = _device_of(receiver, hosts.receiver)
    _require_route(sender, hosts.receiver.address)
    _require_route(receiver, hosts.sender.address)
    if receiver.agent.run("ss", "-Hltn", f"sport = :{FIRST_PORT}").strip():
        raise MissingSupport(f"receiver: something listens on port {FIRST_PORT} of {receiver.name}; end that")
    if hosts.path is None:
        between, devices = receiver, Devices(IFB, receiver.device)
        _refuse_ifb(receiver)
    else:
        between = place("path", hosts.path)
        _require(between, TOOLS)
        _require_clock(between)
        to_sender = hosts.path.to_sender or _way(between, hosts.sender.address)
        between.device = hosts.path.to_receiver or _way(between, hosts.receiver.address)
        devices = Devices(between.device, to_sender)
        if between.device == to_sender:
            raise MissingSupport(
                f"path: {between.name} reaches sender and receiver through {to_sender}; it needs an interface for each"
            )
        if between.agent.run("cat", "/proc/sys/net/ipv4/ip_forward").strip() != "1":
            raise MissingSupport(
                f"path: {between.name} does not forward packets; `sysctl -w net.ipv4.ip_forward=1` there"
            )
    hypervisor = hosts.hypervisor
    there = None if hypervisor is None else connections[hypervisor.ssh, hypervisor.sudo]
    lab = Lab(hosts, sender, receiver, between, devices, there)
    for device in {devices.delay, between.device}:
        _refuse_own_way(between, device)
        _refuse_qdisc(between, device, ingress=hosts.path is None)
    _refuse_qdisc(sender, sender.device, ingress=False)
    return lab


def refuse_traffic(lab: Lab, slowest: int) -> None:
    """Refuse interfaces that carry something else now. `slowest`: the lowest bandwidth to be measured, bit/s."""
    looked_at = [(place, place.device) for place in lab.places]
    if lab.path is not lab.receiver:
        looked_at.append((lab.path, lab.devices.delay))
    before = [_bytes(place, device) for place, device in looked_at]
    began = time.monotonic()
    time.sleep(LOOK_SECONDS)
    for (place, device), first in zip(looked_at, before, strict=True):
        rate = (_bytes(place, device) - first) * 8 / (time.monotonic() - began)
        if rate > max(MAX_OTHER_RATE, MAX_OTHER_SHARE * slowest):
            raise MissingSupport(
                f"{place.role}: {device} of {place.name} carries {units.show_rate(round(rate))} of other traffic, "
                "which would be measured too; end that, or give an address of another interface"
            )


def prepare(lab: Lab, scenarios: Sequence[Scenario]) -> None:
    """Make the hosts ready for these scenarios, and refuse those whose path they cannot be."""
    for place in (lab.sender, lab.receiver):
        for name, value in SYSCTLS[place.role].items():
            place.hold(name, value)
    # Saved by connections of before.
    lab.sender.agent.try_run("ip", "tcp_metrics", "delete", lab.hosts.receiver.address)
    # TCP paces by itself over a queue that does nothing else, as in the other backends.
    _own_qdisc(lab.sender, lab.sender.device)
    lab.sender.agent.run("tc", "qdisc", "replace", "dev", lab.sender.device, "root", "pfifo_fast")
    if lab.sender.agent.run("ethtool", "-i", lab.sender.device).startswith("driver: veth"):
        # A veth carries super-packets, which a bottleneck must not count as packets.
        lab.sender.switch(lab.sender.device, "tso=tcp-segmentation-offload")
    between, devices = lab.path, lab.devices
    for device in dict.fromkeys((devices.delay, between.device)):
        _own_qdisc(between, device)
        between.switch(device, "gro=generic-receive-offload", "lro=large-receive-offload")
    if between is lab.receiver:
        _redirect(between, devices)
    kinds = {"tbf": "tbf rate 1mbit burst 10k limit 100k"}
    if any(needs_netem(scenario) for scenario in scenarios):
        kinds["netem"] = "netem delay 1ms"
    if any(path.own_rtts(scenario) for scenario in scenarios):
        kinds["prio"] = "prio"
    for kind, words in kinds.items():
        tried = between.agent.try_run("tc", "qdisc", "replace", "dev", devices.delay, "root", *words.split())
        between.agent.try_run("tc", "qdisc", "del", "dev", devices.delay, "root")
        if tried.status != 0:
            instead = "; or measure with the network's own RTT: --rtt 0s and --loss 0" if kind == "netem" else ""
            raise MissingSupport(
                f"path: the kernel of {between.name} has no {kind} ({last_line(tried.stderr)}); install its module "
                f"sch_{kind} (Debian and Ubuntu: linux-modules-extra, or a kernel that is not for clouds){instead}"
            )


def needs_netem(scenario: Scenario) -> bool:
    return scenario.path.loss > 0 or any(rtt > 0 for _, rtt in scenario.rtts())


def _redirect(place: Place, devices: Devices) -> None:
    """Let what enters the receiver wait at the egress of an interface of ours."""
    device, ifb = devices.delay, devices.bottleneck
    place.agent.record(
        f"interface {ifb}", "bash", "-c", f"! ip link show dev {ifb} >/dev/null 2>&1 || ip link del {ifb}"
    )
    place.agent.run("ip", "link", "add", "name", ifb, "type", "ifb")
    place.agent.run("ip", "link", "set", ifb, "txqueuelen", "1000", "up")
    remove = f"! tc qdisc show dev {device} ingress | grep -q . || tc qdisc del dev {device} ingress"
    place.agent.record(f"ingress of {device}", "bash", "-c", _if_there(device, remove))
    place.agent.run("tc", "qdisc", "add", "dev", device, "handle", "ffff:", "ingress")
    redirect = f"action mirred egress redirect dev {ifb}"
    filters = ("protocol all prio 1 matchall", "protocol ip prio 1 u32 match u32 0 0")
    tried = None
    for one in filters:
        command = f"tc filter add dev {device} parent ffff: {one} {redirect}"
        tried = place.agent.try_run(*command.split())
        if tried.status == 0:
            return
    assert tried is not None
    raise MissingSupport(
        f"receiver: the kernel of {place.name} cannot redirect packets ({last_line(tried.stderr)}); install its "
        "modules cls_matchall and act_mirred, or name a host between the two as [path]"
    )


def _own_qdisc(place: Place, device: str) -> None:
    """Have the root qdisc of an interface removed at the end; the kernel then puts its default there, as it was."""
    remove = f"tc qdisc del dev {device} root"
    shown = {one["kind"] for one in place.ask("tc", "-j", "qdisc", "show", "dev", device)} - NO_LEAVES
    default = place.agent.try_run("cat", DEFAULT_QDISC).stdout.strip()  # only the first namespace has it
    if default and len(shown) == 1 and (before := shown.pop()) != default:
        # The default was another one when the interface came up.
        remove = (
            f"{{ echo {before} >{DEFAULT_QDISC}; {remove}; status=$?; echo {default} >{DEFAULT_QDISC}; "
            "(exit $status); }"
        )
    # Handle 0: is that of the default, which cannot be deleted.
    kept = f"tc qdisc show dev {device} root | grep -q ' 0: '"
    place.agent.record(f"qdisc of {device}", "bash", "-c", _if_there(device, f"{kept} || {remove}"))


def _if_there(device: str, command: str) -> str:
    """Return a script that does this unless the interface is gone, and with it all that was changed of it."""
    return f"! ip link show dev {device} >/dev/null 2>&1 || {{ {command}; }}"


def _require(place: Place, tools: Mapping[str, str]) -> None:
    script = "for tool; do command -v $tool >/dev/null || echo $tool; done"
    missing = place.agent.run("sh", "-c", script, "sh", *tools).split()
    if missing:
        packages = " ".join(dict.fromkeys(tools[tool] for tool in missing))
        raise MissingSupport(
            f"{place.role}: {place.name} has no {', '.join(missing)}; install the package {packages} there"
        )


def _require_clock(place: Place) -> None:
    """Refuse a host whose packets could leave at ticks only: pacing, tbf and netem need timers between them."""
    shown = place.agent.run(
        "sh", "-c", f"cat {CLOCKSOURCE}; grep -m1 hres_active /proc/timer_list 2>/dev/null || :"
    ).split()  # fmt: skip
    source = shown[0] if shown else "unknown"
    if source == "jiffies" or shown[-1] == "0":
        what = (
            f"counts time in ticks (clocksource {source})" if source == "jiffies" else "has no high-resolution timers"
        )
        raise MissingSupport(
            f"{place.role}: {place.name} {what}, so its packets could not be paced; boot it without `nohz=off`, "
            f"`highres=off` and `clocksource=` ({CLOCKSOURCE.replace('current', 'available')} lists its clocks)"
        )


def _device_of(place: Place, end: End) -> str:
    addresses = [
        (one["local"], link["ifname"])
        for link in place.ask("ip", "-j", "-4", "address", "show")
        for one in link.get("addr_info", [])
        if one.get("scope") != "host"
    ]
    for address, device in addresses:
        if address == end.address:
            return _plain(place, device)
    has = ", ".join(f"{address} ({device})" for address, device in addresses) or "none"
    raise MissingSupport(f"{place.role}.address: {end.address} is no address of {place.name}; it has {has}")


def _way(place: Place, address: str) -> str:
    """Return the interface through which packets to an address leave."""
    try:
        device = place.ask("ip", "-j", "route", "get", address)[0]["dev"]
    except (RunFailed, LookupError, ValueError):
        raise MissingSupport(f"{place.role}: {place.name} has no route to {address}; add one") from None
    return _plain(place, device)


def _plain(place: Place, device: object) -> str:
    """Return the name of an interface; refuse one that a shell would take for more than a word. Who owns a namespace,
    such as a container's, names its interfaces freely, and what undoes is a script that root of the host runs."""
    name = str(device)
    if name.startswith("-") or re.search(r"[^\w.@%+=,-]", name):
        raise MissingSupport(
            f"{place.role}: {place.name} calls an interface {name!r}, which a shell would take apart; rename it"
        )
    return name


def _require_route(place: Place, other: str) -> None:
    way = _way(place, other)
    if way != place.device:
        raise MissingSupport(
            f"{place.role}: {place.name} reaches {other} through {way}, and its own address is that of {place.device}; "
            f"add a route: `ip route add {other} dev {place.device}`, or via the path host"
        )


def _refuse_own_way(place: Place, device: str) -> None:
    """Refuse an interface through which ssh reaches the host: its queue would hold up our own words, or lose them."""
    if place.namespace is not None or place.connection.peers is None:
        return
    client, own = (address.partition("%")[0] for address in place.connection.peers)  # without the zone of fe80::1%eth0
    links = place.ask("ip", "-j", "address", "show")
    ways = {link["ifname"] for link in links for one in link.get("addr_info", []) if one.get("local") in (own, client)}
    if ":" not in client:
        ways.add(_way(place, client))
    if device in ways:
        raise MissingSupport(
            f"{place.role}: {device} of {place.name} carries the ssh connection ({client} to {own}), which the "
            "bottleneck would hold up; give an address on another interface, or reach the host through another one"
        )


def _refuse_ifb(place: Place) -> None:
    """Refuse a host that has an interface of our name: somebody else has made it, and the end would remove it."""
    if place.agent.try_run("ip", "link", "show", "dev", IFB).status == 0:
        raise MissingSupport(
            f"{place.role}: {place.name} has an interface {IFB} that brobust has not made; rename it, or remove it "
            f"with `ip link del {IFB}`"
        )


def _refuse_qdisc(place: Place, device: str, ingress: bool) -> None:
    for qdisc in place.ask("tc", "-j", "qdisc", "show", "dev", device):
        is_root = qdisc.get("root") and qdisc.get("handle") != "0:"
        is_ingress = ingress and qdisc.get("kind") in ("ingress", "clsact")
        if is_root or is_ingress:
            which, end = f"{qdisc['kind']} {qdisc['handle']}", "root" if is_root else qdisc["kind"]
            raise MissingSupport(
                f"{place.role}: {device} of {place.name} has a queue discipline that somebody has set ({which}); "
                f"remove it with `tc qdisc del dev {device} {end}`, or give another interface"
            )


def _bytes(place: Place, device: str) -> int:
    counters = place.agent.run("cat", *(f"/sys/class/net/{device}/statistics/{way}_bytes" for way in ("rx", "tx")))
    return sum(map(int, counters.split()))
