"""Our controls work in real VMs, as BPF programs and compared with the kernel's own; other drivers and kernels."""

import json
import statistics
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import verifier

from brobust import _core, backends
from brobust.backends.vm import VmBackend
from brobust.cc.names import OURS
from brobust.conformance import calls, cases, shadow
from brobust.scenario import Run
from brobust.scenario.grid import scenario
from brobust.testbed import traffic
from in_vm import PATH, measured, one_flow, rate

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

PAYLOAD_MBPS = 20 * 1448 / 1514


def test_undisturbed_our_third_version_carries_what_the_path_takes(testbed: VmBackend) -> None:
    """Our first version decides as the kernel's own at every call, see below. Where the guest of the path waits for its
    CPU, which makes a run unfaithful, 20 % less was seen; this machine's other work may take more from such a run, but
    not from each of three."""
    for _ in range(3):
        row = one_flow(testbed, "brb_bbr3", {"share": 1})
        carries_enough = row["throughput_mbps"] >= (0.8 if row["outcome"] == "ok" else 0.6) * PAYLOAD_MBPS
        if row["outcome"] == "ok" or carries_enough:
            break
    assert carries_enough, row


def test_recorded_offtimes_are_had_again(testbed: VmBackend, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("start_s,duration_ms\n" + "".join(f"{n * 0.04 + 0.01:.3f},30\n" for n in range(400)))
    rows = {cc: one_flow(testbed, cc, {"replay": str(trace)}, duration="4s") for cc in ("bbr", "cubic")}
    for row in rows.values():
        assert row["driver"] == "replay" and row["replay"] == str(trace)
        assert 0.19 < row["effective_share"] < 0.35 + row["steal_share"], row  # 0.25; this machine had 0.312 once
    assert rows["cubic"]["throughput_mbps"] >= 2 * rows["bbr"]["throughput_mbps"]


def test_the_burner_keeps_a_millisecond_and_deadline_is_found_out(testbed: VmBackend) -> None:
    """One of three runs must come out right: the machine may have had other work in the others."""

    def rows(driver: str) -> Iterator[dict[str, Any]]:
        short = {"driver": driver, "share": 0.25, "timeslice": "1ms"}
        return (one_flow(testbed, "cubic", short, duration="2s") for _ in range(3))

    seen = []
    for row in rows("burner"):
        seen.append(row)
        kept = (row["effective_timeslice_ms"], row["effective_share"]) == pytest.approx((1, 0.25), rel=0.2)
        if kept and row["outcome"] == "ok":
            break
    else:
        pytest.fail(str(seen))
    hz = _core.hz()
    if hz is not None and hz < 1000:
        # A busy guest makes the kernel check the slice between ticks, too, so one of several runs may come out right.
        assert any(row["outcome"] == "unfaithful" and "burner" in row["reason"] for row in rows("deadline"))


def test_a_competitor_is_given_its_part_by_the_hosts_scheduler(testbed: VmBackend) -> None:
    alone, beside = (
        one_flow(testbed, "cubic", {"driver": "competitor", "share": share}, duration="4s") for share in (1, 0.5)
    )
    # Any share is correct; other work on this host, or beside it, may have kept the path waiting.
    assert beside["driver"] == "competitor" and "the vCPU" not in (beside["reason"] or ""), beside
    # It may get more than half, because the competitor sleeps, but never all; and its share is recorded.
    assert 0.3 < beside["effective_share"] < 0.9 * alone["effective_share"], (alone, beside)
    assert beside["timeslices"] > 50 and beside["effective_offtime_ms"] > 0.5, beside
    assert not [p for p in psutil.process_iter(["cmdline"]) if "while :; do :; done" in (p.info["cmdline"] or [])]


def test_applications_may_write_less_than_the_path_takes_and_the_path_may_change(testbed: VmBackend) -> None:
    path = {**PATH, "rtt_changes": "2s:60ms", "bandwidth_changes": "6s:2mbit"}
    # Not BBR: its cwnd of two BDPs knows the shortest RTT only, and may be too small for the longer one.
    flows = [{"cc": "cubic", "pattern": "rate 5mbit"}]
    changed = measured(testbed, flows, duration="9s", samples="50ms", path=path, contention={"share": 1})
    throughput, samples = pl.DataFrame(changed.throughput), pl.DataFrame(changed.samples)

    def carried(begin: float, end: float) -> float:
        within = throughput.filter((pl.col("time_s") > begin) & (pl.col("time_s") <= end))
        return float(within["throughput_mbps"].to_numpy().mean())

    # Where this machine had other work 1.59 of 1.91 Mbit/s came, and 1.38 beside processes that outrank all guests.
    assert 0.7 * 5 < carried(1, 5.5) < 1.15 * 5
    assert 0.6 * 2 * 1448 / 1514 < carried(7, 9) < 1.15 * 2 * 1448 / 1514
    # Times count from the first sample, which an emulated guest may take a second after the flow's start.
    srtt_ms = {
        begin: samples.filter(pl.col("time_s").is_between(begin, begin + 0.4))["srtt_ms"].median() for begin in (0, 4)
    }
    assert srtt_ms[4] - srtt_ms[0] == pytest.approx(50, abs=20), srtt_ms


def test_a_quota_is_kept(testbed: VmBackend) -> None:
    row = one_flow(testbed, "bbr", {"driver": "quota", "share": 0.5, "timeslice": "20ms"}, duration="4s")
    assert row["driver"] == "quota" and 0.4 < row["effective_share"] < 0.6 + row["steal_share"], row


def test_bursts_may_be_sized_by_the_pacing_rate_alone_in_one_run_and_not_in_the_next(testbed: VmBackend) -> None:
    for sizing, log in (("rate", "0"), ("kernel", "9")):
        measured(testbed, [{"cc": "bbr"}], duration="1s", tso_sizing=sizing)
        assert testbed.ask_sender("cat", "/proc/sys/net/ipv4/tcp_tso_rtt_log").strip() == log


def test_with_half_the_cpu_the_repair_helps_bbr_3(testbed: VmBackend) -> None:
    """test_vm.py has BBR version 1. In the median it carries three times as much; single runs of a collapsed BBR differ
    by up to a factor of 1.9."""
    carried = {cc: rate(testbed, cc, 0.5) for cc in ("brb_bbr3", "brb_bbr3_robust")}
    assert carried["brb_bbr3_robust"] >= 1.5 * carried["brb_bbr3"], carried


def test_watch_names_the_flow_that_is_short_of_cpu_and_no_other(testbed: VmBackend) -> None:
    """On a path that leaves an emulated CPU idle: 20 Mbit/s keep it busy on some machines, and then even an undisturbed
    flow is rightly called short of CPU. The same is true where this machine had other work: such a run says nothing."""
    for share, cause in ((1, "network-limited"), (0.25, "cpu-limited")):
        for _ in range(3):
            judged = _judged(testbed, share)
            is_right = [flow["cause"] for flow in judged].count(cause) > len(judged) / 2
            if is_right or share < 1 or statistics.fmean(flow["late_share"] for flow in judged) < 0.1:
                break
        assert is_right, (share, judged)


def _judged(testbed: VmBackend, share: float) -> list[dict[str, Any]]:
    """Return what watch, inside the sender, reported of a flow of BBR in each sweep, and `late_share` of its CPU."""
    watch = ("brobust", "watch", "--port", str(traffic.FIRST_PORT), "--interval-ms", "500", "--window-s", "4")
    path = {"bandwidth": "8mbit", "rtt": "20ms", "buffer": "4bdp"}
    fields = {"backend": "vm", "duration": "8s", "path": path, "flows": [{"cc": "bbr"}]}
    run = Run(scenario=scenario({**fields, "contention": {"share": share}}), repeat=0)
    _, said = testbed.measure_beside(run, *watch, "--count", "18")
    sweeps = [json.loads(line) for line in said.splitlines()]
    flows = [{**flow, "late_share": sweep["host"]["late_share"]} for sweep in sweeps for flow in sweep["flows"]]
    # iperf3's control connection carries almost nothing, but a collapsed flow does not carry much either.
    judged = [flow for flow in flows if flow["rate_mbps"] > 0.1 and flow["seconds"] > 2]
    assert len(judged) >= 4, flows
    return judged


@pytest.fixture
def opened(testbed: VmBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens the backend has the VMs of the other tests."""
    monkeypatch.setattr(backends, "opened", lambda *_: nullcontext(testbed))


@pytest.mark.usefixtures("opened")
def test_ours_decides_as_the_kernels_own_at_every_call() -> None:
    watched = list(shadow.compare(cases.VM_QUICK, over={"duration": "3s"}))
    assert statistics.fmean(w.acks for w in watched) > 500, watched
    assert [w for w in watched if w.differences] == []


@pytest.mark.usefixtures("opened")
def test_a_shadow_can_find_a_difference() -> None:
    """A parameter that differs from the kernel's makes the shadow find a difference."""
    over = {"duration": "3s"}
    (watched,) = shadow.compare(["clean"], ["bbr_shadow:bbr1_cwnd_gain=3"], over)
    assert watched.differences > 0 and watched.first is not None
    ours, kernels = watched.first["values"]["cwnd_gain"][::-1]
    assert (kernels, ours) == (512, 768)


@pytest.mark.usefixtures("opened")
def test_bpf_and_this_process_decide_the_same_from_the_same_source() -> None:
    controls = ["brb_bbr3_robust", "brb_cubic", "brb_bbq"]
    replayed = list(calls.replay(["10 of 20 ms"], controls, "vm", over={"duration": "4s"}))
    assert [(r.control, r.first) for r in replayed if r.differences or r.lost] == []
    assert all(r.acks > 200 for r in replayed), replayed


def test_the_verifier_has_no_more_to_look_at_than_when_it_was_recorded(testbed: VmBackend) -> None:
    """The three nearest to its limit: an emulated guest takes seconds to load each. All: benchmarks/verifier.py."""
    recorded = verifier.recorded()["6.12"]
    assert set(OURS) <= set(recorded)
    nearest = sorted(OURS, key=lambda control: max(recorded[control].values()))[-3:]
    for control in nearest:
        testbed.forget_control(control)
    release, counts = verifier.of_vm(testbed, "debian-6.12", nearest)
    assert release == "6.12" and not verifier.grown(counts, recorded)


def test_a_guest_that_panics_costs_its_run_a_retry_and_the_record_says_so(testbed: VmBackend) -> None:
    testbed.ask_sender("cat", "/proc/version", kernel="debian-6.12")
    doomed = testbed.testbed.sender
    doomed.agent.spawn("bash", "-c", "sleep 2; echo c >/proc/sysrq-trigger")
    row = one_flow(testbed, "cubic", {"share": 0.5}, duration="4s")
    assert "sysrq triggered crash" in doomed.cause_of_death()
    assert row["guest_restarts"] == 1
    assert row["throughput_mbps"] > 0.3 * PAYLOAD_MBPS, row
    assert one_flow(testbed, "cubic", {"share": 1}, duration="1s")["guest_restarts"] == 0


def test_linux_6_1_orders_them_alike(testbed: VmBackend) -> None:
    """The last, because it boots other guests."""
    carried = {cc: rate(testbed, cc, 0.5, kernel="debian-6.1") for cc in ("cubic", "bbr", "bbr_robust")}
    assert testbed.testbed.kernel.release.startswith("6.1.")
    assert carried["cubic"] >= 2 * carried["bbr"], carried
    assert carried["bbr_robust"] >= 1.5 * carried["bbr"], carried
