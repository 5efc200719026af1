"""bbr_steady, the kernel's BBR with a pacing schedule that is kept on average, in virtual time."""

from functools import cache

import polars as pl
import pytest

import brobust
from brobust.conformance import cases, packets

pytestmark = pytest.mark.virtual

UNDISTURBED = [name for name in cases.VIRTUAL if " of " not in name.replace("half a BDP", "") and name != "slow CPU"]


@cache
def _carried(cc: str, timeslice: str, share: float, buffer: str, loss: float = 0) -> tuple[float, float]:
    """Return Mbit/s, and the part of the segments that was retransmitted."""
    path = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": buffer, "loss": loss}
    contention = {"timeslice": timeslice, "share": share}
    fields = {"path": path, "contention": contention, "flows": [{"cc": cc}], "duration": "8s"}
    runs = [brobust.run(fields, repeat=repeat).runs.row(0, named=True) for repeat in range(2)]
    rate = sum(run["throughput_mbps"] for run in runs) / len(runs)
    return rate, sum(run["retransmits"] for run in runs) / (rate * len(runs) * 8e6 / 8 / 1448)


def test_undisturbed_it_sends_bbrs_packets_to_the_nanosecond() -> None:
    quick = [name for name in UNDISTURBED if name in cases.VIRTUAL_QUICK]
    assert len(quick) >= 8
    compared = list(packets.compare([("bbr", "bbr_steady"), ("brb_bbr3", "brb_bbr3_steady")], quick))
    differences = [f"{c.first} and {c.second}, {c.case}: {c.difference}" for c in compared if c.difference]
    assert not differences, "\n".join(differences)


def test_undisturbed_beside_another_flow_a_timeout_is_no_stall() -> None:
    path = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "0.5bdp"}
    runs = [
        brobust.run({"path": path, "flows": [{"cc": cc}, {"cc": "bbr"}], "duration": "15s"})
        for cc in ("bbr", "bbr_steady")
    ]
    bbr, steady = (run.throughput.drop("run") for run in runs)
    assert steady.equals(bbr)


@pytest.mark.parametrize("cc", ["bbr_steady", "brb_bbr3_steady"])
@pytest.mark.parametrize(
    ("timeslice", "share", "buffer"), [("1ms", 0.1, "1bdp"), ("1ms", 0.25, "12bdp"), ("10ms", 0.25, "12bdp")]
)
def test_it_carries_what_cubic_does_where_bbr_collapses(cc: str, timeslice: str, share: float, buffer: str) -> None:
    rate, retransmitted = _carried(cc, timeslice, share, buffer)
    cubic, _ = _carried("cubic", timeslice, share, buffer)
    bbr, _ = _carried("bbr", timeslice, share, buffer)
    assert rate >= 0.85 * cubic, (rate, cubic)
    assert rate >= 5 * bbr, (rate, bbr)
    assert retransmitted <= 0.02, retransmitted


def test_each_rule_carries_its_part() -> None:
    whole, retransmitted = _carried("bbr_steady", "10ms", 0.25, "1bdp")
    without_rate, _ = _carried("bbr_steady:haste=0", "10ms", 0.25, "1bdp")
    _, without_losses = _carried("bbr_steady:steady_loss=0", "10ms", 0.25, "1bdp")
    assert whole >= 4 * without_rate, (whole, without_rate)
    assert without_losses >= 3 * retransmitted, (without_losses, retransmitted)


@pytest.mark.parametrize("cc", ["bbr_steady", "brb_bbr3_steady"])
def test_losses_at_random_take_little_from_it(cc: str) -> None:
    without, _ = _carried(cc, "10ms", 0.4, "12bdp")
    with_some, _ = _carried(cc, "10ms", 0.4, "12bdp", 0.005)
    assert with_some >= 0.8 * without, (with_some, without)


def test_when_the_cpu_is_back_so_is_the_link() -> None:
    path = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "12bdp"}
    for cc in ("bbr_steady", "brb_bbr3_steady"):
        contention = {"share": 0.25, "stop": "4s"}
        fields = {"path": path, "contention": contention, "flows": [{"cc": cc}], "duration": "8s"}
        over_time = brobust.run(fields).throughput
        after = over_time.filter(over_time["time_s"] > 5)["throughput_mbps"].mean()
        assert isinstance(after, float) and after >= 85, (cc, after)


def test_beside_another_flow_it_is_bbr_again_when_the_cpu_is_back() -> None:
    """The losses of the buffer that both share must not keep what it learned under contention."""
    contention = {"share": 0.25, "timeslice": "10ms", "stop": "1.2s"}
    path = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "1bdp"}

    def later(cc: str) -> float:
        fields = {"path": path, "contention": contention, "flows": [{"cc": cc}, {"cc": "bbr", "sender": 2}]}
        over_time = brobust.run({**fields, "duration": "30s"}).throughput
        of_first = over_time.filter((over_time["time_s"] > 16) & (over_time["flow"] == 0))["throughput_mbps"].mean()
        assert isinstance(of_first, float)
        return of_first

    # Measured: 46.5, and 24.4 with a bound that is held for ever.
    assert later("bbr_steady") >= 40
    assert later("bbr_steady:steady_hold=1000s") <= 32


def test_an_undisturbed_bbr_keeps_its_part_beside_version_3() -> None:
    """While BBR is in PROBE_RTT, version 3 finds the link free, and would remember that for seconds."""

    def neighbour(cc: str) -> float:
        fields = {
            "path": {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "5bdp"}, "duration": "40s",
            "flows": [{"cc": cc}, {"cc": "bbr", "sender": 2}], "contention": {"share": 0.4, "timeslice": "10ms"},
        }  # fmt: skip
        throughput = brobust.run(fields).throughput
        return float(throughput.filter((pl.col("flow") == 1) & (pl.col("time_s") > 20))["throughput_mbps"].mean())

    forgets, remembers = neighbour("brb_bbr3_steady"), neighbour("brb_bbr3_steady:steady_recall=0ms")
    assert forgets > 0.8 * 95 / 2 and forgets > 1.15 * remembers, (forgets, remembers)
