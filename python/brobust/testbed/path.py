"""Set up the path guest, which is bottleneck and receiver.

Data enters on eth0, is redirected to ifb0, waits there for tbf, and is then received. ACKs leave on eth0 through netem,
which delays them by the whole round-trip time, so that data reaches the receiver without delay.

    sender --wire--> eth0 ingress -> ifb0 [netem loss ->] tbf rate, buffer -> TCP receiver
    sender <--wire-- eth0 egress  <- netem delay <--------------------------- ACKs

No queue here may hold super-packets, or a buffer of 16 packets would hold 16 times 64 kB. So the host segments before
this guest's virtio-net (testbed/qemu.py), and GRO is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brobust import units
from brobust.scenario import Path, Scenario
from brobust.testbed.agent import Agent
from brobust.testbed.traffic import FIRST_PORT

# netem silently drops packets beyond its limit, so the limit is far above any bandwidth-delay product here.
NETEM_LIMIT_PACKETS = 1_000_000


@dataclass(frozen=True)
class Devices:
    """The interfaces on whose egress are the bottleneck and the delay of the ACKs."""

    bottleneck: str = "ifb0"
    delay: str = "eth0"


GUEST = Devices()

_PREPARE = """
set -e
ethtool -K eth0 gro off lro off tso off gso off 2>/dev/null || ethtool -K eth0 gro off tso off gso off
modprobe ifb numifbs=1
modprobe -a sch_ingress act_mirred cls_matchall cls_u32 sch_prio sch_tbf sch_netem
ip link set ifb0 txqueuelen 1000 up
tc qdisc replace dev eth0 handle ffff: ingress
tc filter replace dev eth0 parent ffff: protocol all prio 1 handle 1 matchall action mirred egress redirect dev ifb0
"""


def prepare(agent: Agent) -> None:
    """Prepare the path guest, once after boot: offloads off, modules loaded, data redirected to ifb0."""
    agent.run("bash", "-c", _PREPARE)


def own_rtts(scenario: Scenario) -> dict[int, int]:
    """Return the round-trip times (ns) of the groups of flows that have their own, by the receiver's port."""
    return {
        FIRST_PORT + number: scenario.rtt_of(group)[0]
        for number, group in enumerate(scenario.flows)
        if group.rtt is not None or group.rtt_changes
    }


def changes(scenario: Scenario, devices: Devices = GUEST) -> str:
    """Return a script for the path guest that changes bandwidth and delays at their times after its start.

    It is empty if nothing changes. Packets in netem's queue keep the delay with which they came, so ACKs may overtake
    each other when the delay falls.
    """
    bands = _bands(own_rtts(scenario))
    of_path = "parent 1:1" if bands else "root"
    due = [(at, f"{devices.delay} {of_path} {_netem(rtt)}") for at, rtt in scenario.path.rtt_changes]
    for number, group in enumerate(scenario.flows):
        if (band := bands.get(FIRST_PORT + number)) is not None:
            due += [(at, f"{devices.delay} {band} {_netem(rtt)}") for at, rtt in scenario.rtt_of(group)[1]]
    bottleneck = "parent 1: handle 10:" if scenario.path.loss > 0 else "root handle 1:"
    for at, bandwidth in scenario.path.bandwidth_changes:
        due.append((at, f"{devices.bottleneck} {bottleneck} {_tbf(scenario.path, bandwidth)}"))
    steps, now = [], 0
    for at, what in sorted(due):
        steps += [f"sleep {(at - now) / 1e9:g}", f"tc qdisc change dev {what}"]
        now = at
    return "; ".join(steps)


def configure(
    agent: Agent, path: Path, rtts: Mapping[int, int] | None = None, devices: Devices = GUEST, delays: bool = True
) -> None:
    """Create new qdiscs for a run, with empty queues and counters at zero. The rest is as in `commands`."""
    agent.run("bash", "-c", "; ".join(["set -e", *commands(path, rtts or {}, devices, delays)]))


def commands(
    path: Path, rtts: Mapping[int, int] | None = None, devices: Devices = GUEST, delays: bool = True
) -> list[str]:
    """Return the tc commands for a path. `rtts` are round-trip times (ns) other than the path's, by the receiver's TCP
    port. Without `delays` the ACKs wait nowhere."""
    ifb0, eth0 = devices.bottleneck, devices.delay
    bottleneck = _tbf(path, path.bandwidth)
    steps = [f"tc qdisc del dev {device} root 2>/dev/null || true" for device in (ifb0, eth0)]
    if path.loss > 0:
        # netem is the root and tbf its child (tc-netem(8)), so packets are lost before they occupy the buffer.
        steps += [
            f"tc qdisc add dev {ifb0} root handle 1: netem loss {path.loss * 100:.6f}% limit {NETEM_LIMIT_PACKETS}",
            f"tc qdisc add dev {ifb0} parent 1: handle 10: {bottleneck}",
        ]
    else:
        steps.append(f"tc qdisc add dev {ifb0} root handle 1: {bottleneck}")
    if not delays:
        return steps
    return steps + (_delays(eth0, path.rtt, rtts) if rtts else [f"tc qdisc add dev {eth0} root {_netem(path.rtt)}"])


def _tbf(path: Path, bandwidth: int) -> str:
    # tbf refills its bucket by a timer. A bucket of one millisecond keeps the rate although a slow guest's timer is
    # late; two frames are the minimum that always lets one pass.
    burst = max(2 * units.FRAME_BYTES, bandwidth // 8 // 1000)
    return f"tbf rate {bandwidth}bit burst {burst} limit {path.buffer_bytes}"


def _netem(rtt: int) -> str:
    return f"netem delay {rtt // 1000}us limit {NETEM_LIMIT_PACKETS}"


def _delays(device: str, rtt: int, rtts: Mapping[int, int]) -> list[str]:
    """Return the commands that make a band for the path's round-trip time, and one for each port that has its own."""
    steps = [
        f"tc qdisc add dev {device} root handle 1: prio bands {max(2, len(rtts) + 1)} priomap {' '.join(['0'] * 16)}",
        f"tc qdisc add dev {device} parent 1:1 {_netem(rtt)}",
    ]
    for port, band in _bands(rtts).items():
        flowid = band.removeprefix("parent ")
        steps += [
            f"tc qdisc add dev {device} {band} {_netem(rtts[port])}",
            f"tc filter add dev {device} parent 1: protocol ip prio 1 u32 match ip sport {port} 0xffff flowid {flowid}",
        ]
    return steps


def _bands(rtts: Mapping[int, int]) -> dict[int, str]:
    """Return the band of each port that has its own delay. Band 1:1 has the path's."""
    return {port: f"parent 1:{band:x}" for band, port in enumerate(rtts, start=2)}
