"""The output of `brobust-host lab sample` becomes rows of the samples table."""

import json

from brobust.testbed import samples

HEAD = {
    "columns": [
        "time_ns", "cwnd_packets", "inflight_packets", "inflight_bdp", "pacing_rate_bytes_per_s",
        "delivery_rate_bytes_per_s", "delivery_rate_app_limited", "bandwidth_bytes_per_s", "bbr_min_rtt_us",
        "pacing_gain", "cwnd_gain", "rtt_us", "min_rtt_us", "ca_state", "total_retrans_packets", "deficit_acks",
        "bbr_mode", "ssthresh_packets", "delivered_packets", "socket",
    ],
}  # fmt: skip
BBR = [
    10**9, 40, 20, 0.9, 2_500_000, 1_250_000, False, 2_400_000, 10_000, 1.25, 2.0, 12_000, 9_000, 3, 7, None, 2,
    30, 800, 1,
]  # fmt: skip
CONTROL = [10**9, 10, 0, None, 2**64 - 1, 0, True, None, None, None, None, 100, 100, 0, 0, None, None, None, 5, 0]
TAIL = {
    "sockets": [
        {"local": "10.77.0.1:1000", "remote": "10.77.0.2:5201", "congestion_control": "cubic"},
        {"local": "10.77.0.1:1002", "remote": "10.77.0.2:5201", "congestion_control": "bbr"},
    ]
}
OUTPUT = "\n".join(json.dumps(line) for line in (HEAD, CONTROL, BBR, TAIL))


def test_only_sockets_of_flows_are_kept() -> None:
    (row,) = samples.parse(OUTPUT, {1002: 0})
    assert (row["flow"], row["cc"]) == (0, "bbr")


def test_units_are_those_of_the_table() -> None:
    (row,) = samples.parse(OUTPUT, {1002: 0})
    assert row["time_s"] == 1.0
    assert row["pacing_rate_mbps"] == 20.0
    assert row["delivery_rate_mbps"] == 10.0
    assert row["bandwidth_estimate_mbps"] == 19.2
    assert (row["min_rtt_ms"], row["srtt_ms"]) == (10.0, 12.0)
    assert row["state"] == "recovery"
    assert row["inflight_bdp"] == 0.9
    assert row["mode"] == "probe_bw"
    assert (row["cwnd_packets"], row["ssthresh_packets"], row["delivered_packets"]) == (40, 30, 800)


def test_without_bbr_the_stacks_min_rtt_stands_and_an_unlimited_pacing_rate_is_null() -> None:
    (row,) = samples.parse(OUTPUT, {1000: 0})
    assert row["min_rtt_ms"] == 0.1
    assert row["pacing_rate_mbps"] is None
    assert row["bandwidth_estimate_mbps"] is None


def test_no_samples_are_no_rows() -> None:
    assert samples.parse("", {}) == []
