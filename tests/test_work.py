"""Work that takes time: what a sender's programs encrypt and accept, held in virtual time while its CPU is there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import brobust
from brobust import api
from brobust.errors import BadInput
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario
from test_programs import compiled

ROOT = Path(__file__).parent.parent
PAGE = 12000
IPERF3 = {"sender": "iperf3 -c {receiver} -p {port} -t {seconds}", "receiver": "iperf3 -s -1 -p {port}"}
ASK = "brobust-client get http://{sender}:{port}/ --rate 20 --for {seconds}"


def bulk(share: float = 1, **more: Any) -> brobust.api.Result:
    path, of_programs = {"bandwidth": "400mbit", "buffer": "2bdp"}, {**IPERF3, **more.pop("work")}
    return brobust.run(
        {"path": path, "duration": "1s", "contention": {"share": share}, "programs": of_programs, **more}
    )


def sent_mbps(result: brobust.api.Result) -> float:
    """Return the throughput without the start."""
    return float(result.throughput.filter(pl.col("time_s") > 0.3).select(pl.col("throughput_mbps").mean()).item())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("work") / "page_server", "page_server", "-static")


def pages(server: Path, words: str = "once", **work: Any) -> dict[str, Any]:
    """Ask for pages that the first round trip carries, and return the run's row."""
    of_programs = {"sender": f"{server} {{port}} {PAGE} {words}", "receiver": ASK, "waits": "sender", **work}
    result = brobust.run({"path": {"bandwidth": "100mbit"}, "duration": "1s", "programs": of_programs})
    row = next(result.runs.iter_rows(named=True))
    assert row["requests_answered"] == row["requests"] > 10
    return row


@pytest.mark.virtual
class TestRuns:
    def test_the_cost_of_a_byte_bounds_the_throughput_and_work_is_done_only_in_timeslices(self) -> None:
        full, half = (bulk(share, work={"sent_byte_ns": 80}) for share in (1, 0.5))
        assert sent_mbps(full) == pytest.approx(100, rel=0.02)
        assert sent_mbps(half) == pytest.approx(50, rel=0.05)
        assert full.runs["cpu_busy_share"][0] > 0.9

    def test_it_is_the_cause_that_is_explained(self) -> None:
        busy = bulk(work={"sent_byte_ns": 80})
        found = api.explain(busy, busy.run)
        assert found.causes == ["work"] and found.tried["--sent-byte-ns 0"] > 200

    def test_without_it_nothing_of_it_is_left(self) -> None:
        work = {"sent_byte_ns": 2, "accept_time": "1ms"}
        s = scenario({"programs": {"sender": "a", "receiver": "b", **work}, "cpu": {"frequency": "1GHz"}})
        option, change = api._without_work(s)
        assert option == "--sent-byte-ns 0 --accept-time 0s no --cpu-frequency"
        changed = api._changed(Run(s, 0), change).scenario
        assert changed.programs.work == {} and changed.cpu.frequency is None

    def test_the_same_run_sends_the_same_packets(self) -> None:
        work = {"sent_byte_ns": 20, "received_byte_ns": 3.5, "accept_time": "1ms"}
        first, again = bulk(0.5, work=work), bulk(0.5, work=work)
        assert first.runs["packet_hash"].to_list() == again.runs["packet_hash"].to_list()
        assert first.runs["packet_hash"][0] != bulk(0.5, work={}).runs["packet_hash"][0]

    def test_each_cost_makes_a_request_longer_by_itself(self, server: Path) -> None:
        before, accepted = pages(server), pages(server, accept_time="4ms")
        assert before["cpu_busy_share"] is None
        sent, received = pages(server, sent_byte_ns=200), pages(server, received_byte_ns=20_000)

        def longer(than: dict[str, Any], what: str = "request_median_ms") -> float:
            assert than["requests"] == before["requests"]  # the seed alone says when they are due
            return float(than[what] - before[what])

        assert longer(accepted) == pytest.approx(4, abs=0.1)
        assert longer(accepted, "first_byte_median_ms") == pytest.approx(4, abs=0.1)
        assert longer(sent) == pytest.approx(PAGE * 200e-6, rel=0.05)
        assert 1 < longer(received) < 4  # the head of a request is 50 to 200 bytes

    def test_connections_wait_for_each_other_where_one_takes_long(self, server: Path) -> None:
        """At 20 a second in the mean, 40 ms each leave the CPU little rest."""
        long = pages(server, accept_time="40ms")
        assert long["request_p99_ms"] > long["first_byte_median_ms"] + 40
        assert long["cpu_busy_share"] == pytest.approx(0.04 * long["requests"], rel=0.1)

    def test_every_way_of_sending_counts(self, server: Path) -> None:
        """sendfile, MSG_ZEROCOPY, io_uring and write, in turn."""
        before, after = pages(server, "mixed"), pages(server, "mixed", sent_byte_ns=200)
        assert after["cpu_busy_share"] == pytest.approx(after["requests"] * PAGE * 200e-9, rel=0.1)
        assert after["request_median_ms"] - before["request_median_ms"] == pytest.approx(PAGE * 200e-6, rel=0.05)

    def test_what_the_kernel_needs_of_the_cpu_the_program_does_not_have(self) -> None:
        cpu = {"frequency": "1GHz", "timer_cycles": 0, "rx_packet_cycles": 0, "tx_skb_cycles": 0, "tx_byte_cycles": 80}
        assert sent_mbps(bulk(work={"sent_byte_ns": 80}, cpu=cpu)) == pytest.approx(50, rel=0.08)


class TestScenarios:
    def test_without_work_a_scenario_keeps_its_name(self) -> None:
        given = {"programs": {"sender": "a", "receiver": "b"}}
        off = {**given["programs"], "sent_byte_ns": 0, "received_byte_ns": 0, "accept_time": "0s"}
        assert Grid.from_flags(given).scenarios[0].hash == "161933fd246c"
        assert Grid.from_flags({"programs": off}).scenarios[0].hash == "161933fd246c"
        on = {**given["programs"], "sent_byte_ns": 0.5}
        assert Grid.from_flags({"programs": on}).scenarios[0].hash != "161933fd246c"

    def test_a_list_spans_a_grid(self) -> None:
        given = {"programs": {"sender": "a", "receiver": "b", "sent_byte_ns": [0, 0.5, 80]}}
        assert {s.programs.sent_byte_ns for s in Grid.from_flags(given).scenarios} == {0, 0.5, 80}

    @pytest.mark.parametrize(
        ("work", "words"),
        [
            ({"sent_byte_ns": -1}, r"-1 is less than 0; allowed: 0 to 100000"),
            ({"received_byte_ns": 200_000}, r"200000 is more than 100000; allowed: 0 to 100000"),
            ({"sent_byte_ns": "fast"}, r"'fast' is not allowed: .*; allowed: 0 to 100000"),
            ({"sent_byte_ns": float("nan")}, r"nan is not allowed: .*; allowed: 0 to 100000"),
            ({"sent_byte_ns": float("inf")}, r"inf is not allowed: .*; allowed: 0 to 100000"),
            ({"sent_byte_ns": True}, r"true is no number; allowed: 0 to 100000"),
            ({"accept_time": "2s"}, r"2s is more than 1s; allowed: 0s to 1s"),
            ({"accept_time": "-1ms"}, r"'-1ms' is not a duration; write for example 10ms"),
            ({"accept_time": 5}, r"'5' has no unit; write for example 10ms"),
        ],
    )
    def test_what_no_cpu_costs_is_refused_in_one_line(self, work: dict[str, Any], words: str) -> None:
        (field,) = work
        with pytest.raises(BadInput, match=rf"^programs\.{field}: {words}") as refusal:
            Grid.from_flags({"programs": {"sender": "a", "receiver": "b", **work}})
        assert "\n" not in str(refusal.value)

    @pytest.mark.parametrize("traffic", ["brobust", "iperf3"])
    def test_only_programs_do_such_work(self, traffic: str) -> None:
        with pytest.raises(
            BadInput, match=rf"programs\.sent_byte_ns: traffic is {traffic}; only your programs and QUIC"
        ):
            Grid.from_flags({"traffic": traffic, "programs": {"sent_byte_ns": 1}})


def test_what_a_host_needs_is_a_table_that_a_scenario_takes(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks/work_cost.py", "--repeat", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.match(r"# benchmarks/work_cost\.py --repeat 1, .*OpenSSL", printed)
    costs = tomllib.loads(printed)["programs"]
    assert costs.keys() == {"sent_byte_ns", "received_byte_ns", "accept_time", "call_time"}
    one = Grid.from_flags({"programs": {"sender": "a", "receiver": "b", **costs}}).scenarios[0]
    assert all(one.programs.work.values()) and len(one.programs.work) == 3


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        ("--kernel virtual-9.9", 1, "speed.py: kernel: virtual-9.9 is not built"),
        ("--repeat 0", 2, "speed.py: error: --repeat: 0 is too few; give 1 or more"),
    ],
)
def test_what_a_benchmark_cannot_measure_is_said_in_one_line(words: str, status: int, line: str) -> None:
    command = [sys.executable, ROOT / "benchmarks/speed.py", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "") and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(line)
