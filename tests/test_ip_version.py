"""Flows over IPv6 in virtual time: the same kernels, path and CPU, and packets whose headers are 20 bytes longer."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl
import pytest

import brobust
from brobust import units
from brobust.analysis import summary
from brobust.backends import virtual
from brobust.errors import BadInput
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Grid, Scenario

PATH = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "4bdp"}
IPV6_ADDRESS = bytes.fromhex("20010db8000000000000000000000001")
in_virtual_time = [pytest.mark.virtual, pytest.mark.timeout(240)]


def run(ip_version: int, path: dict[str, Any] | None = None, **more: Any) -> brobust.Result:
    scenario = {"flows": [{"cc": "cubic"}], "duration": "2s", **more}
    return brobust.run({"path": {**PATH, "ip_version": ip_version, **(path or {})}, **scenario})


@cache
def kept(ip_version: int) -> brobust.Result:
    return run(ip_version, packets=True, samples="ack")


def frames_of(pcap: bytes | None) -> Iterator[bytes]:
    assert pcap is not None
    at = 24
    while at < len(pcap):
        (captured,) = struct.unpack("<I", pcap[at + 8 : at + 12])
        yield pcap[at + 16 : at + 16 + captured]
        at += 16 + captured


def test_the_field_leaves_the_names_of_earlier_scenarios_as_they_are() -> None:
    absent, four, six = (Scenario(path=path) for path in ({}, {"ip_version": 4}, {"ip_version": "6"}))
    assert absent.hash == four.hash != six.hash
    assert six.path.ip_version == 6


def test_a_list_of_versions_is_a_grid() -> None:
    grid = Grid.from_flags({"path": {"ip_version": ["4", "6"]}, "flows": {"cc": "cubic"}, "contention": {"share": "1"}})
    assert sorted(scenario.path.ip_version for scenario in grid.scenarios) == [4, 6]


def test_a_full_packet_of_ipv6_carries_20_bytes_less() -> None:
    assert units.goodput_ceiling_mbps(100_000_000, 6) == pytest.approx(100 * 1428 / 1514)


@pytest.mark.parametrize(("release", "ip_version", "first"), [("6.2.0", 4, "6.3"), ("5.18.0", 6, "5.19")])
def test_big_tcp_is_refused_by_the_version_that_has_it(
    monkeypatch: pytest.MonkeyPatch, release: str, ip_version: int, first: str
) -> None:
    kernel = virtual_kernels.VirtualKernel(
        "virtual-old", virtual_kernels.cache_root(), release, 250, "", frozenset({"cubic"}), "", "", "", 0, {}
    )
    monkeypatch.setattr(virtual_kernels, "find_again", lambda _: kernel)
    path, nic = {"ip_version": ip_version}, {"tso_max_size": "128kB"}
    big = Scenario.model_validate({"path": path, "nic": nic, "kernel": "virtual-old", "flows": [{"cc": "cubic"}]})
    with pytest.raises(BadInput, match=rf"nic.tso_max_size: 128kB, .*IPv{ip_version} has BIG TCP from {first} on"):
        virtual.check([big])
    monkeypatch.setattr(virtual_kernels, "find_again", lambda _: replace(kernel, release="6.3.0"))
    virtual.check([big])


class TestFlows:
    pytestmark = in_virtual_time

    def test_cubic_fills_the_path_but_for_longer_headers(self) -> None:
        rows = {version: kept(version).runs.row(0, named=True) for version in (4, 6)}
        assert [row["ip_version"] for row in rows.values()] == [4, 6]
        of_ipv4, of_ipv6 = (row["throughput_mbps"] for row in rows.values())
        assert of_ipv6 / of_ipv4 == pytest.approx(1428 / 1448, rel=2e-3)
        utilization = summary.runs(pl.concat(kept(version).runs for version in rows))["utilization"].to_list()
        assert utilization[0] == pytest.approx(utilization[1], rel=2e-3)
        assert {row["outcome"] for row in rows.values()} == {"ok"}

    def test_the_same_run_sends_the_same_packets_and_ipv4_sends_others(self) -> None:
        hashes = [result.runs["packet_hash"][0] for result in (kept(6), run(6), kept(4))]
        assert hashes[0] == hashes[1] != hashes[2]

    def test_the_capture_and_the_table_have_packets_of_ipv6(self) -> None:
        result = kept(6)
        frames, packets = list(frames_of(result.pcap)), result.packets
        assert len(frames) == len(packets)
        assert {frame[12:14] for frame in frames} == {b"\x86\xdd"}
        # The hop limit, TCP right after the header, and the address of sender or receiver: nothing else is sent.
        assert {(frame[20], frame[21]) for frame in frames} == {(6, 64)}
        assert {frame[22:38] for frame in frames} == {IPV6_ADDRESS, IPV6_ADDRESS[:-1] + b"\2"}
        lengths = [struct.unpack(">H", frame[18:20])[0] + 54 for frame in frames]
        in_order = packets.with_row_index().sort("time_s", "index")
        assert sorted(lengths) == in_order["frame_bytes"].sort().to_list()
        data = packets.filter((pl.col("direction") == "data") & (pl.col("payload_bytes") > 0))
        assert data["payload_bytes"].max() == 1428 and data["frame_bytes"].max() == 1514
        assert (data["frame_bytes"] - data["payload_bytes"]).unique().to_list() == [86]
        # Every byte is sent once, or again after a loss; the numbers go on without a gap.
        once = data.unique("seq").sort("seq")
        assert once["seq"][0] == 1
        assert ((once["seq"] + once["payload_bytes"]).shift(1) == once["seq"]).drop_nulls().all()

    def test_samples_know_the_socket(self) -> None:
        samples = kept(6).samples
        assert samples["rtt_ms"].min() >= 10
        assert samples["queue_bytes"].max() > 100_000

    def test_bbr_is_starved_as_over_ipv4(self) -> None:
        def rates(cc: str) -> list[float]:
            contention = {"share": 0.25, "timeslice": "1ms"}
            more = {"path": {"buffer": "12bdp"}, "flows": [{"cc": cc}], "contention": contention, "duration": "5s"}
            return [run(version, **more).runs["throughput_mbps"][0] for version in (4, 6)]

        of_ipv4, of_ipv6 = rates("bbr")
        assert max(of_ipv4, of_ipv6) < 15
        assert of_ipv6 == pytest.approx(of_ipv4, rel=0.35)
        assert min(rates("bbr_steady")) > 80

    def test_the_receiver_merges_packets(self) -> None:
        def acks(gro: str) -> int:
            result = run(6, packets=True, nic={"gro": gro, "coalesce": "500us"})
            return int((result.packets["direction"] == "ack").sum())

        assert acks("on") < 0.7 * acks("off")

    def test_big_tcp(self) -> None:
        path = {"bandwidth": "10gbit", "rtt": "1ms"}
        more = {"path": path, "nic": {"tso_max_size": "262.144kB"}, "duration": "1s"}
        big, plain = run(6, **more), run(6, path=path, duration="1s")
        assert big.runs["skb_mean_bytes"][0] > 80_000 > plain.runs["skb_mean_bytes"][0]
        # The kernel's packet has a header more, which no segment has.
        for result in (big, plain):
            ceiling = units.goodput_ceiling_mbps(10_000_000_000, 6)
            assert result.runs["throughput_mbps"][0] == pytest.approx(ceiling, rel=0.1)

    @pytest.mark.parametrize("aqm", ["codel", "codel ecn", "red ecn", "fq_codel"])
    def test_a_bottleneck_that_is_a_kernel(self, aqm: str) -> None:
        def measured(version: int) -> brobust.Result:
            more = {"flows": [{"cc": "cubic", "count": 2}], "packets": True}
            return run(version, {"aqm": aqm, "buffer": "2bdp", "bandwidth": "20mbit"}, **more)

        of_ipv4, of_ipv6 = measured(4), measured(6)
        for column, within in (("throughput_mbps", 0.1), ("queue_mean_ms", 0.35)):
            of_both = [result.runs[column].mean() for result in (of_ipv4, of_ipv6)]
            assert of_both[1] == pytest.approx(of_both[0], rel=within), column
        drops = int(of_ipv6.runs["drops"].sum())
        assert drops == of_ipv6.packets["dropped"].sum()
        may_be_marked = sum(frame[15] >> 4 & 3 == 2 for frame in frames_of(of_ipv6.pcap))  # ECT(0)
        assert (may_be_marked > 1000) == (aqm != "codel")
        assert drops < 20 or not aqm.endswith(" ecn")

    def test_cross_traffic_and_a_second_bottleneck(self) -> None:
        more = {"cross_traffic": {"load": 0.2}, "path": {"second_bandwidth": "50mbit"}}
        of_both = [run(version, **more).runs.row(0, named=True) for version in (4, 6)]
        assert of_both[1]["cross_ended"] == pytest.approx(of_both[0]["cross_ended"], rel=0.1)
        assert of_both[1]["throughput_mbps"] == pytest.approx(of_both[0]["throughput_mbps"], rel=0.1)
        assert of_both[1]["cross_slowdown"] >= 1

    def test_real_iperf3_sends_over_ipv6(self) -> None:
        result = run(6, traffic="iperf3", packets=True)
        assert {frame[12:14] for frame in frames_of(result.pcap)} == {b"\x86\xdd"}
        assert result.runs["throughput_mbps"][0] == pytest.approx(kept(6).runs["throughput_mbps"][0], rel=0.03)
        assert len(result.connections) == 2
