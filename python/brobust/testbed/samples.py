"""Sample the sender's sockets during a run, if the scenario requests it."""

from __future__ import annotations

import json
from typing import Any

from brobust.cc import names as cc_names
from brobust.dataset import iperf3
from brobust.errors import RunFailed
from brobust.scenario import Scenario
from brobust.testbed import traffic
from brobust.testbed.agent import Agent


class Sampler:
    """A context manager around the traffic, which samples the sockets. It does nothing if no samples are requested."""

    def __init__(self, sender: Agent, scenario: Scenario):
        self._sender = sender
        self._scenario = scenario
        self._pids: list[int] = []
        self._outputs: list[str] = []

    def __enter__(self) -> Sampler:
        if self._scenario.samples is not None:
            for number in range(len(self._scenario.flows)):
                self._pids.append(self._sender.spawn(*self._command(traffic.FIRST_PORT + number)))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return  # the run has failed, and its guests will be shut down
        for pid in self._pids:
            self._sender.kill(pid)
            ended = self._sender.wait(pid, traffic.GRACE_SECONDS)
            if ended.status != 0:
                raise RunFailed(f"sampling the sockets failed: {ended.stderr.strip()}")
            self._outputs.append(ended.stdout)

    def _command(self, port: int) -> list[str]:
        assert isinstance(self._scenario.samples, int)  # samples at every ACK have been refused before
        max_seconds = self._scenario.duration / 1e9 + traffic.GRACE_SECONDS
        return [
            "brobust", "sample", "--port", str(port),
            "--interval-us", str(self._scenario.samples // 1000), "--duration-s", f"{max_seconds:g}",
        ]  # fmt: skip

    def rows(self, run: str, flows: list[iperf3.FlowResult]) -> list[dict[str, Any]]:
        """Return rows for the samples table. iperf3's control connection is left out, because no flow has its port."""
        number_of = {flow.local_port: number for number, flow in enumerate(flows)}
        rows: list[dict[str, Any]] = []
        for output in self._outputs:
            rows += [{"run": run, **row} for row in parse(output, number_of)]
        begin = min((row["time_s"] for row in rows), default=0.0)
        for row in rows:
            row["time_s"] -= begin
        return rows


def parse(output: str, number_of: dict[int, int]) -> list[dict[str, Any]]:
    """Return rows from the output of `brobust-host lab sample`: a first line with the columns, a line per sample, and a
    last line with the sockets.

    `number_of` gives the flow of each local port. Times are those of the guest's clock, in seconds.
    """
    lines = [json.loads(line) for line in output.splitlines()]
    if len(lines) < 2:
        return []
    columns, sockets = lines[0]["columns"], lines[-1]["sockets"]
    flow_of = [number_of.get(int(socket["local"].rsplit(":", 1)[1])) for socket in sockets]
    rows = []
    for values in lines[1:-1]:
        sample = dict(zip(columns, values, strict=True))
        flow = flow_of[sample["socket"]]
        if flow is not None:
            rows.append({"flow": flow, "cc": sockets[sample["socket"]]["congestion_control"], **_row(sample)})
    return rows


def _row(sample: dict[str, Any]) -> dict[str, Any]:
    state, mode = sample["ca_state"], sample["bbr_mode"]
    return {
        "time_s": sample["time_ns"] / 1e9,
        "cwnd_packets": sample["cwnd_packets"],
        "ssthresh_packets": sample["ssthresh_packets"],
        "pacing_rate_mbps": _mbps(sample["pacing_rate_bytes_per_s"]),
        "delivery_rate_mbps": _mbps(sample["delivery_rate_bytes_per_s"]),
        "bandwidth_estimate_mbps": _mbps(sample["bandwidth_bytes_per_s"]),
        "min_rtt_ms": _ms(sample["bbr_min_rtt_us"] or sample["min_rtt_us"]),
        "srtt_ms": _ms(sample["rtt_us"]),
        "inflight_packets": sample["inflight_packets"],
        "inflight_bdp": sample["inflight_bdp"],
        "pacing_gain": sample["pacing_gain"],
        "cwnd_gain": sample["cwnd_gain"],
        "delivered_packets": sample["delivered_packets"],
        "app_limited": sample["delivery_rate_app_limited"],
        "retransmits": sample["total_retrans_packets"],
        "state": cc_names.CA_STATES[state] if state is not None and state < len(cc_names.CA_STATES) else None,
        "mode": cc_names.MODES[mode] if mode is not None and mode < len(cc_names.MODES) else None,
        "deficit_acks": sample["deficit_acks"],
    }


def _mbps(bytes_per_second: int | None) -> float | None:
    # An unlimited pacing rate is all ones (include/net/sock.h).
    unlimited = bytes_per_second is None or bytes_per_second >= 2**64 - 1
    return None if unlimited else bytes_per_second * 8 / 1e6  # type: ignore[operator]


def _ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
