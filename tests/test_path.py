"""The path guest gets the qdiscs that the scenario requests."""

import pytest

from brobust import units
from brobust.scenario import Path
from brobust.scenario.grid import scenario
from brobust.testbed import path, traffic


def test_the_bottleneck_shapes_data_and_the_delay_is_on_the_acks() -> None:
    steps = path.commands(Path(bandwidth="20mbit", rtt="10ms", buffer="2bdp"))
    assert "tc qdisc add dev ifb0 root handle 1: tbf rate 20000000bit burst 3028 limit 50000" in steps
    assert any(s.startswith("tc qdisc add dev eth0 root netem delay 10000us limit") for s in steps)


def test_every_run_starts_with_empty_queues() -> None:
    steps = path.commands(Path())
    assert steps[0].startswith("tc qdisc del dev ifb0 root")
    assert steps[1].startswith("tc qdisc del dev eth0 root")


def test_loss_comes_before_the_buffer() -> None:
    steps = path.commands(Path(loss="0.1%"))
    assert any("root handle 1: netem loss 0.100000%" in s for s in steps)
    assert any("parent 1: handle 10: tbf" in s for s in steps)


def test_the_burst_is_a_millisecond_of_the_rate_but_at_least_two_frames() -> None:
    assert any("burst 125000" in s for s in path.commands(Path(bandwidth="1gbit")))
    assert any("burst 3028" in s for s in path.commands(Path(bandwidth="1mbit", buffer="10kB")))


def test_flows_may_have_round_trip_times_of_their_own() -> None:
    steps = path.commands(Path(rtt="10ms"), {5202: 50_000_000})
    assert any(s.startswith("tc qdisc add dev eth0 parent 1:1 netem delay 10000us") for s in steps)
    assert any(s.startswith("tc qdisc add dev eth0 parent 1:2 netem delay 50000us") for s in steps)
    assert any("match ip sport 5202 0xffff flowid 1:2" in s for s in steps)


def test_bandwidth_and_delays_change_when_they_are_due() -> None:
    point = scenario(
        {
            "path": {"rtt": "10ms", "rtt_changes": "4s:20ms", "bandwidth_changes": "1s:5mbit", "buffer": "30kB"},
            "flows": [{}, {"rtt": "40ms", "rtt_changes": "1500ms:80ms"}],
        }
    )
    assert path.own_rtts(point) == {traffic.FIRST_PORT + 1: 40_000_000}
    limit = path.NETEM_LIMIT_PACKETS
    assert path.changes(point).split("; ") == [
        "sleep 1", "tc qdisc change dev ifb0 root handle 1: tbf rate 5000000bit burst 3028 limit 30000",
        "sleep 0.5", f"tc qdisc change dev eth0 parent 1:2 netem delay 80000us limit {limit}",
        "sleep 2.5", f"tc qdisc change dev eth0 parent 1:1 netem delay 20000us limit {limit}",
    ]  # fmt: skip
    assert path.changes(scenario({})) == ""


def test_netem_never_drops_for_lack_of_space() -> None:
    gigabit_over_a_second_packets = 1e9 / 8 / 1514
    assert 10 * gigabit_over_a_second_packets < path.NETEM_LIMIT_PACKETS


def test_the_goodput_ceiling_counts_headers() -> None:
    assert units.goodput_ceiling_mbps(20_000_000) == pytest.approx(20 * 1448 / 1514)
