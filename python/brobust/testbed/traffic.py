"""Run iperf3 flows between the two guests, and combine the reports of both ends.

Throughput is counted at the receiver; retransmits and RTT come from the sender.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from brobust import units
from brobust.cc import names as cc_names
from brobust.dataset import iperf3
from brobust.errors import RunFailed, last_line
from brobust.scenario import Flows
from brobust.testbed.agent import Agent

RECEIVER = "10.77.0.2"
FIRST_PORT = 5201
IP_AND_UDP_BYTES = 28
# iperf3's minimum. Ten wake-ups per second cost the sender almost nothing.
INTERVAL_SECONDS = 0.1
MAX_WRITE_BYTES = 1_000_000  # iperf3's -l allows slightly more
# The time that a starved guest may need, beside the test's own, to start iperf3 and to exchange results.
GRACE_SECONDS = 45.0


def run(
    sender: Agent,
    receiver: Agent,
    groups: tuple[Flows, ...],
    duration_s: float,
    begin: Callable[[], object] = lambda: None,
    address: str = RECEIVER,
) -> list[iperf3.FlowResult]:
    """Run all groups of flows at once and return one result per flow, in order. `begin` is called just before the
    first flow starts. `address` is the receiver's."""
    # Nothing is cleaned up after a failure, because the caller ends the agents of a failed run, and all they started.
    servers = [receiver.spawn(*_server(FIRST_PORT + number)) for number in range(len(groups))]
    _wait_listening(receiver, len(groups))
    begin()
    clients = [sender.spawn(*_client(address, FIRST_PORT + n, group, duration_s)) for n, group in enumerate(groups)]
    results: list[iperf3.FlowResult] = []
    for client, server in zip(clients, servers, strict=True):
        sent = sender.wait(client, duration_s + GRACE_SECONDS).stdout
        received = receiver.wait(server, GRACE_SECONDS).stdout
        results += iperf3.flows(sent, received)
    return results


def run_program(
    sender: Agent,
    receiver: Agent,
    commands: tuple[list[str], list[str]],
    duration_s: float,
    begin: Callable[[], object] = lambda: None,
) -> float:
    """Run a program of UDP at each end, and return the payload that reached the receiver's sockets, in Mbit/s over the
    duration. What it sends again counts again. The programs must end by themselves, the sender's with status 0."""
    send, receive = commands
    server = receiver.spawn(*receive)
    receiver.run("sleep", "0.5")  # until it listens; QUIC has no port that could be asked
    begin()
    before = _received_bytes(receiver)
    client = sender.spawn(*send)
    receiver.run("sleep", f"{duration_s:g}", timeout=duration_s + GRACE_SECONDS)
    payload = _received_bytes(receiver) - before
    ended = sender.wait(client, GRACE_SECONDS)
    receiver.kill(server)
    receiver.wait(server, GRACE_SECONDS)
    if ended.status != 0:
        last = last_line(ended.stderr.strip() or ended.stdout)
        raise RunFailed(f"{send[0]} at the sender ended with status {ended.status}: {last}")
    return payload * 8 / duration_s / 1e6


def _received_bytes(receiver: Agent) -> int:
    """Return the payload of UDP that the receiver has delivered to sockets: counted by IP, behind the path's queue."""
    tables = receiver.run("cat", "/proc/net/netstat", "/proc/net/snmp").splitlines()
    counts: dict[str, int] = {}
    for names, values in zip(tables[::2], tables[1::2], strict=True):
        protocol, *rest = values.split()
        counts |= {protocol + name: int(value) for name, value in zip(names.split()[1:], rest, strict=True)}
    return counts["IpExt:InOctets"] - IP_AND_UDP_BYTES * counts["Udp:InDatagrams"]


def udp_mbps(sender: Agent, receiver: Agent, rate_bps: int, seconds: float) -> float:
    """Return the payload that the receiver gets of a UDP flow sent at `rate_bps`, in Mbit/s."""
    server = receiver.spawn(*_server(FIRST_PORT))
    _wait_listening(receiver, 1)
    sender.run(
        "iperf3", "-c", RECEIVER, "-p", str(FIRST_PORT), "-u", "-b", str(rate_bps), "-l", str(units.PAYLOAD_BYTES),
        "-t", f"{seconds:g}", "-J", timeout=seconds + GRACE_SECONDS,
    )  # fmt: skip
    report = iperf3.report(receiver.wait(server, GRACE_SECONDS).stdout, "receiver")
    # In iperf3 3.12 the receiver's sum for UDP is 0, but the intervals are right. The first and the last are partial.
    rates = [interval["sum"]["bits_per_second"] / 1e6 for interval in report["intervals"]]
    return statistics.median(rates) if rates else 0.0


def versions(agent: Agent) -> str:
    """Return the version of iperf3 there, such as `3.12`."""
    return agent.run("iperf3", "--version").split()[1]


def _server(port: int) -> list[str]:
    return ["iperf3", "-s", "-1", "-J", "-i", f"{INTERVAL_SECONDS:g}", "-p", str(port)]


def _client(address: str, port: int, group: Flows, duration_s: float) -> list[str]:
    seconds = round(duration_s - group.start / 1e9)  # without a fraction, which is refused (backends/support.py)
    control = cc_names.name_of(group.cc)
    command = (
        f"exec iperf3 -c {address} -p {port} -C {control} -P {group.count} -t {seconds} "
        f"-J -i {INTERVAL_SECONDS:g}{_paced_by_application(group)}"
    )
    return ["bash", "-c", f"sleep {group.start / 1e9:g}; {command}" if group.start else command]


def _paced_by_application(group: Flows) -> str:
    """Return iperf3's options for an application-limited flow: each write holds the data of ten milliseconds, as in
    virtual time."""
    rate = group.pattern.rate
    return "" if rate is None else f" -b {rate} -l {min(max(rate // 8 // 100, 1), MAX_WRITE_BYTES)}"


def _wait_listening(receiver: Agent, ports: int) -> None:
    wanted = " ".join(f"( sport = :{FIRST_PORT + n} )" + (" or" if n + 1 < ports else "") for n in range(ports))
    receiver.run(
        "bash", "-c",
        f"for _ in {{1..100}}; do [ $(ss -Hltn '{wanted}' | wc -l) = {ports} ] && exit 0; sleep 0.05; done; "
        "echo iperf3 does not listen >&2; exit 1",
    )  # fmt: skip
