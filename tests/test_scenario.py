"""Scenarios: grids, hashes, refusals."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from brobust import units
from brobust.errors import BadInput
from brobust.scenario import Contention, Grid, Pattern, Scenario, differences
from brobust.scenario.fields import DEFAULT_GRID
from brobust.scenario.grid import scenario
from brobust.scenario.specs import Aqm, Pacing


def test_the_default_grid_is_three_controls_at_three_shares() -> None:
    scenarios = Grid.from_flags({}).scenarios
    assert {s.flows[0].cc for s in scenarios} == {"cubic", "bbr", "bbr_steady"}
    assert {s.contention.share for s in scenarios} == {1.0, 0.5, 0.25}
    assert len(scenarios) == 9


def test_any_list_spans_the_grid_and_repeats_multiply_it() -> None:
    grid = Grid.from_flags({"path": {"rtt": ["10ms", "40ms"]}, "flows": {"count": [1, 4]}, "repeat": 2})
    assert len(grid.scenarios) == 9 * 2 * 2
    assert len(grid.runs()) == 9 * 2 * 2 * 2
    assert len({run.id for run in grid.runs()}) == len(grid.runs())


def test_an_undisturbed_run_is_measured_once_however_many_timeslices_the_others_have() -> None:
    """With the same seed it is the same run: twice, it would count twice in n."""
    contention = {"share": [1, 0.5], "timeslice": ["1ms", "10ms"]}
    idle = {"share": 1, "timeslice": ["5ms", "7ms"]}
    others = {"senders": [idle], "receiver": idle, "flows": [{"cc": "bbr"}, {"sender": 2}]}
    grid = Grid({"contention": contention, **others, "repeat": 3})
    assert [(s.contention.share, s.contention.timeslice) for s in grid.scenarios] == [
        (1, 1_000_000), (0.5, 1_000_000), (0.5, 10_000_000),
    ]  # fmt: skip
    assert grid.size == len(grid.runs()) == 9
    # Which vCPU the interrupts go to changes an undisturbed run, too.
    assert Grid({"contention": {"vcpus": [1, 2], "share": 1, "timeslice": ["1ms", "10ms"]}}).size == 2


def test_grids_together_have_each_run_once_and_tell_what_those_of_each_are_called() -> None:
    cc = {"flows": [{"cc": "bbr"}]}
    grids = [
        Grid({"contention": {"share": [1, 0.5], "timeslice": slices}, "repeat": repeat, **cc})
        for slices, repeat in (("1ms", 1), (["10ms", "1ms"], 2))
    ]
    both = Grid.together(grids)
    assert both.fields == {"grids": [grid.fields for grid in grids]}
    assert {run.id for run in both.runs()} == {run.id for run in Grid(both.fields).runs()}
    assert {run.id for run in Grid.together([both]).runs()} == {run.id for run in Grid(both.fields).runs()}
    assert Grid.together([both]).fields == both.fields
    assert [len(grid.runs()) for grid in (*grids, both)] == [2, 6, 6]
    assert set(both.ids_of(grids[0])) == {run.id for run in grids[0].runs()}
    assert set(both.ids_of(grids[1])) == {run.id for run in both.runs()} != {run.id for run in grids[1].runs()}
    assert grids[1].with_all_of(Grid({"contention": {"share": 0.5}, **cc})) is grids[1]


def test_the_order_is_shuffled_and_the_seed_decides_it() -> None:
    first, again, other = (Grid.from_flags({"seed": seed, "repeat": 4}).runs() for seed in (1, 1, 2))
    assert [run.id for run in first] == [run.id for run in again]
    assert [(r.scenario.contention.share, r.repeat) for r in first] != [
        (r.scenario.contention.share, r.repeat) for r in other
    ]
    assert [run.repeat for run in first] != sorted(run.repeat for run in first)


def test_a_hash_names_the_point_however_its_numbers_are_written() -> None:
    def point(share: str, rate: str) -> str:
        flags = {"contention": {"share": share}, "path": {"bandwidth": rate}, "flows": {"cc": "bbr"}}
        return Grid.from_flags(flags).scenarios[0].hash

    assert point("25%", "20mbit") == point("0.25", "20000kbit")
    assert point("25%", "20mbit") != point("26%", "20mbit")


@pytest.mark.parametrize(
    ("fields", "hashed"),
    [
        ({"contention": {"share": 0.5}}, "e469a31aa10b"),
        ({"backend": "vm", "contention": {"share": 0.5, "vcpus": 2}}, "7ad624c46312"),
        ({"backend": "lab", "hosts": "h.toml", "contention": {"share": 1}}, "3add287ec087"),
        (
            {
                "nic": {"gro": "off"}, "contention": {"share": 1}, "flows": {"sender": 2, "bytes": "1MB"},
                "senders": [{"share": 0.5, "interrupts": "together"}],
            },
            "0b2f965b30e2",
        ),
    ],
)  # fmt: skip
def test_a_scenario_keeps_the_hash_by_which_datasets_know_it(fields: dict[str, Any], hashed: str) -> None:
    fields = {**fields, "flows": {"cc": "bbr", **fields.get("flows", {})}}
    assert [one.hash for one in Grid.from_flags(fields).as_written] == [hashed]


@pytest.mark.parametrize("backend", ["virtual", "vm", "lab"])
def test_a_field_that_scenarios_did_not_always_have_is_hashed_only_where_it_is_given(backend: str) -> None:
    on: dict[str, Any] = {"backend": backend, "kernel": "k"}
    plain = scenario(on)
    assert scenario({**on, "path": {"ip_version": 4}}).hash == plain.hash
    given: list[dict[str, Any]] = [
        {"path": {"ip_version": 6}}, {"nic": {"rx_ring": 9}}, {"flows": [{"start_spread": "1s"}]}, {"hosts": "h"},
        {"receiver": {"interrupts": "together"}},
    ]  # fmt: skip
    assert len({scenario({**on, **one}).hash for one in given} | {plain.hash}) == 6


def test_flags_override_the_file_and_the_file_overrides_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text('duration = "3s"\n[path]\nrtt = "40ms"\nbandwidth = "50mbit"\n[[flows]]\ncc = "bbr"\n')
    grid = Grid.from_flags({"path": {"rtt": "20ms"}, "flows": {"count": "2"}}, file)
    (scenario,) = {s.model_copy(update={"contention": None}) for s in grid.scenarios}
    assert scenario.path.rtt == 20_000_000
    assert scenario.path.bandwidth == 50_000_000
    assert scenario.duration == 3_000_000_000
    assert (scenario.flows[0].cc, scenario.flows[0].count) == ("bbr", 2)


def test_a_series_goes_on_with_the_same_runs_in_another_order_and_else_says_which_fields_differ() -> None:
    begun = Grid.from_flags({"path": {"rtt": ["10ms", "20ms"]}, "repeat": 2})
    assert Grid.from_flags({"path": {"rtt": ["20ms", "0.01s"]}, "repeat": 2}).may_continue(begun)
    path = {"rtt": "10ms", "bandwidth": "9mbit"}
    other = Grid.from_flags({"path": path, "flows": {"cc": "cubic"}, "repeat": 3})
    assert not other.may_continue(begun)
    assert other.differences_from(begun) == (
        ": path.bandwidth is 9mbit here and 20mbit there; path.rtt is 10ms here and 10ms,20ms there; "
        "flows.cc is cubic here and cubic,bbr,bbr_steady there; and repeat, too"
    )
    # What only timeslices have says nothing of a series without, and a kernel only where one is named.
    shares = [Grid.from_flags({"contention": {"share": share}}) for share in (1, 0.5)]
    assert shares[0].differences_from(shares[1]) == ": contention.share is 1 here and 0.5 there"
    named, unnamed = Grid.from_flags({"kernel": "virtual-6.1"}), Grid.from_flags({})
    assert unnamed.may_continue(named) and not named.may_continue(unnamed)
    assert named.differences_from(unnamed) == ": kernel is virtual-6.1 here and virtual-6.12 there"


def test_of_very_many_values_those_are_named_that_only_one_of_two_series_has() -> None:
    few, seven, begun, more = (
        Grid.from_flags({"path": {"rtt": [f"{rtt}ms" for rtt in range(10, end)]}}) for end in (16, 17, 19, 20)
    )
    assert more.differences_from(begun) == (
        ": path.rtt is 19ms,10ms,11ms,12ms,13ms,14ms and 4 more here and 10ms,11ms,12ms,13ms,14ms,15ms and 3 more there"
    )
    assert seven.differences_from(few) == (
        ": path.rtt is 16ms,10ms,11ms,12ms,13ms,14ms and 1 more here and 10ms,11ms,12ms,13ms,14ms,15ms there"
    )


@pytest.mark.parametrize(
    ("fields", "differ"),
    [
        ({"cross_traffic": {"cc": ["bbr", "reno"]}}, []),
        ({"cross_traffic": {"load": 0.1, "cc": ["bbr", "reno"]}}, ["cross_traffic.cc"]),
        ({"path": {"second_buffer": ["4bdp", "8bdp"]}}, []),
        ({"path": {"second_bandwidth": "5mbit", "second_buffer": ["4bdp", "8bdp"]}}, ["path.second_buffer"]),
        ({"contention": {"replay": "a.csv", "start_jitter": [0, 0.1]}}, []),
        ({"traffic": "iperf3", "programs": {"call_time": ["1us", "10us"]}}, ["programs.call_time"]),
    ],
)
def test_scenarios_differ_in_no_field_that_says_nothing_there(fields: dict[str, Any], differ: list[str]) -> None:
    assert differences.names(differences.fields(Grid(fields).as_written).values()) == differ
    (plain,) = differences.fields([scenario({"kernel": "virtual-6.12"})]).values()
    assert not {"cross_traffic.cc", "path.second_buffer", "cpu.timer_cycles", "contention.driver"} & plain.keys()


def test_beside_a_recording_no_share_is_asked_for(tmp_path: Path) -> None:
    """It is what `--share 1` beside it is: the same runs, so that a series goes on without."""
    replay = {"replay": ["a.csv", "b.csv"]}
    grid = Grid.from_flags({"contention": replay})
    assert {(s.contention.share, s.contention.replay) for s in grid.as_written} == {(1, "a.csv"), (1, "b.csv")}
    assert grid.may_continue(Grid.from_flags({"contention": {**replay, "share": "1"}}))
    file = tmp_path / "scenario.toml"
    file.write_text('[contention]\nreplay = "a.csv"\n')
    assert {s.contention.share for s in Grid.from_flags({}, file).as_written} == {1}
    with pytest.raises(BadInput, match="leave out --replay or --share"):
        Grid.from_flags({"contention": {"share": "0.5"}}, file)


def test_several_groups_of_flows_run_together() -> None:
    grid = Grid({**DEFAULT_GRID, "flows": [{"cc": "bbr"}, {"cc": ["cubic", "bbr"], "start": "2s"}]})
    assert sorted("+".join(g.cc for g in s.flows) for s in grid.scenarios if s.contention.share == 1) == [
        "bbr+bbr",
        "bbr+cubic",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"path": {"bandwidth": "20"}}, ["path.bandwidth", "'20' has no unit", "20mbit"]),
        ({"path": {"bw": "20mbit"}}, ["path.bw", "no such field"]),
        ({"path": {"repeat": 3}}, ["path.repeat", "no such field; did you mean repeat?"]),
        ({"bandwidth": "50mbit"}, ["bandwidth: no such field; did you mean path.bandwidth?"]),
        ({"path": {"bandwith": "50mbit"}}, ["no such field; did you mean path.bandwidth? docs/scenario.md lists all"]),
        ({"start": "1s"}, ["start: no such field; did you mean flows.start or contention.start?"]),
        ({"contension": {"share": "0.5"}}, ["contension: no such field; did you mean contention?"]),
        ({"path": {"buffer": "3027B"}}, ["buffer 3027B is 3027 bytes on this path, less than two packets"]),
        ({"path": {"buffer": "0B"}}, ["buffer 0B is 0 bytes on this path", "or 0B with a burst for a policer"]),
        (
            {"path": {"buffer": "0.1bdp", "rtt": "199us"}},
            ["buffer 0.1bdp is 50 bytes with 20mbit and RTT 199us", "RTT; an RTT in virtual time is at least 200us"],
        ),
        ({"path": {"burst": "1513B"}}, ["burst 1513B is 1513 bytes on this path", "at least 1514B, or 0B for none"]),
        ({"path": {"burst": "15kB", "aqm": "codel"}}, ["burst 15000B: with aqm codel", "give 0B, or aqm none"]),
        ({"path": {"burst": "1sp"}}, ["burst 1sp: tokens are bytes", "frames (p)"]),
        ({"path": {"loss": "1.5"}}, ["path.loss", "1.5"]),
        ({"path": {"loss": True}}, ["path.loss: true is no number; allowed: at least 0, below 1"]),
        ({"contention": {"share": "0"}}, ["contention.share", "0 is not above 0"]),
        ({"contention": {"share": ["1", "1.1"]}}, ["contention.share", "1.1 is more than 1"]),
        ({"contention": {"driver": "magic"}}, ["contention.driver", "'magic'", "deadline"]),
        ({"contention": {"driver": "none", "share": "0.5"}}, ["share 0.5", "give share 1"]),
        ({"contention": {"timeslice": "10"}}, ["contention.timeslice", "no unit"]),
        ({"flows": {"count": "many"}}, ["flows.count", "'many'"]),
        ({"flows": {"cc": "a_name_that_is_too_long"}}, ["flows.cc"]),
        ({"flows": {"start": "20s"}}, ["after the end of the run"]),
        ({"repeat": 0}, ["repeat", "0"]),
        ({"repeat": True}, ["repeat: True is not a whole number"]),
        ({"grids": [{"seed": [*range(6000)]}] * 2}, ["the lists span 108000 cells", "at most 100000"]),
        ({"backend": "cloud"}, ["backend", "'cloud'"]),
        ({"flows": [{}] * 200_000}, ["flows: 200000 are too many; give at most 64"]),
        ({"flows": 7 * [5]}, ["flows: [5, 5, 5, 5, 5, 5, 5] is not a list of tables"]),
        ({"surprise": 1}, ["surprise: no such field; docs/scenario.md lists all fields"]),
        ({"path": {"aqm": "pie"}}, ["path.aqm", "'pie'", "fq_codel"]),
        ({"path": {"aqm": "codel limit=5"}}, ["path.aqm", "'limit=5'", "target="]),
        ({"path": {"aqm": "none ecn"}}, ["path.aqm", "none takes no options"]),
        ({"path": {"aqm": "codel target=0ms"}}, ["path.aqm", "greater than 0"]),
        ({"path": {"aqm": "codel target=3601s"}}, ["path.aqm", "at most 3600s"]),
        ({"path": {"aqm": "codel target=1ms target=2ms"}}, ["path.aqm", "'target=2ms'", "is given twice"]),
        ({"path": {"aqm": "codel ecn ecn"}}, ["path.aqm", "'ecn'", "is given twice"]),
        ({"path": {"aqm": "red probability=0"}}, ["path.aqm", "probability=0 of red is not above 0 and at most 1"]),
        ({"path": {"aqm": "red min=20kB max=20kB"}}, ["path", "min 20000 and max 20000", "min below max"]),
        ({"path": {"aqm": "red probability=2"}}, ["path.aqm", "probability=2"]),
        ({"path": {"aqm": "red min=20kB max=10kB"}}, ["path", "min 20000", "max 10000", "min below max"]),
        ({"path": {"bandwidth_changes": "5s"}}, ["path.bandwidth_changes", "'5s'", "5s:VALUE"]),
        ({"path": {"bandwidth_changes": [["5s", "50"]]}}, ["path.bandwidth_changes", "'50' has no unit"]),
        ({"path": {"bandwidth_changes": [["5s", "1mbit"], ["5s", "2mbit"]]}}, ["bandwidth_changes", "order of time"]),
        ({"path": {"rtt_changes": "5s:1ms,4s:2ms"}}, ["the change at 4s stands after the one at 5s"]),
        ({"path": {"rtt_changes": "0s:1ms"}}, ["a change at 0ns is not inside the run; give more than 0s"]),
        ({"path": {"bandwidth_changes": [["5s", "1bit"]]}}, ["bandwidth_changes", "1bit at 5s", "100kbit"]),
        ({"path": {"rtt_changes": "10s:1ms"}}, ["path.rtt_changes", "10s is not inside the run", "duration 10s"]),
        ({"path": {"rtt_changes": [["1s", "11s"]]}}, ["rtt_changes", "11s at 1s is more than 10s"]),
        ({"contention": {"phase": "soon"}}, ["contention.phase", "'soon' is not a duration"]),
        ({"contention": {"start_jitter": "1.5"}}, ["contention.start_jitter", "1.5 is more than 1", "0 to 1"]),
        ({"path": {"loss": -0.1}}, ["path.loss", "-0.1 is less than 0; allowed: at least 0, below 1"]),
        ({"contention": {"length_jitter": "1"}}, ["contention.length_jitter", "1 is not below 1"]),
        ({"contention": {"replay": "d", "share": "0.5"}}, ["contention", "replay d", "share 0.5 must be 1"]),
        ({"contention": {"driver": "replay"}}, ["driver replay", "--replay"]),
        (
            {"backend": "vm", "contention": {"replay": "d", "share": "1", "driver": "quota"}},
            ["driver quota", "replay d"],
        ),
        ({"contention": {"replay": "d", "share": "1", "driver": "none"}}, ["driver none", "does not replay d"]),
        ({"contention": {"alternate": "30ms"}}, ["contention", "alternate 30ms", "timeslice / share = 40ms"]),
        (
            {"contention": {"timeslice": "4s"}},
            ["contention", "taken away for 10s", "timeslice / share = 16s", "longer duration"],
        ),
        ({"contention": {"start": "10s"}}, ["contention", "taken away for 0ns"]),
        ({"contention": {"start": "2s", "stop": "2s"}}, ["contention: stop 2s is not after start 2s"]),
        ({"contention": {"share": 0.001, "timeslice": "4s"}}, ["timeslices of 4s makes a period", "more than 3600s"]),
        (
            {"flows": [{}, {"sender": 2}], "senders": [{"share": 0.1, "timeslice": "4s"}]},
            ["senders: the CPU is taken away for 10s", "= 40s"],
        ),
        (
            {"receiver": {"share": "0.5", "start": "1s", "stop": "1010ms"}},
            ["receiver", "taken away for 10ms", "= 20ms"],
        ),
        ({"flows": {"stop": "0s"}}, ["stop at 0ns", "more than their start"]),
        ({"flows": {"stop": "11s"}}, ["stop at 11s", "duration 10s"]),
        ({"flows": {"rtt": "11s"}}, ["flows.rtt", "11s is more than 10s"]),
        ({"flows": {"rtt_changes": "12s:1ms"}}, ["flows.rtt_changes", "12s is not inside"]),
        ({"flows": {"pattern": "burst"}}, ["flows.pattern", "'burst'", "'onoff 1s 500ms'"]),
        ({"flows": {"pattern": "onoff 1s"}}, ["flows.pattern", "'onoff 1s'"]),
        (
            {"flows": {"pattern": "onoff 1s 3601s"}},
            ["flows.pattern", "'3601s' must be greater than 0 and at most 3600s"],
        ),
        ({"flows": {"pattern": "rate 0mbit"}}, ["flows.pattern", "'0mbit' must be greater than 0"]),
        ({"flows": {"sender": 65}}, ["flows.sender", "65", "64"]),
        ({"flows": {"count": 4097}}, ["flows.count", "4097", "4096"]),
        ({"flows": [{"count": 4096}] * 8}, ["flows: 32768", "at most 30000"]),
        ({"flows": {"count": 1025}, "traffic": "iperf3"}, ["flows: 1025", "traffic iperf3", "at most 1024"]),
        ({"path": {"second_bandwidth": "1kbit"}}, ["path.second_bandwidth", "1kbit is less than 100kbit"]),
        ({"path": {"second_bandwidth": "5mbit", "second_buffer": "3027B"}}, ["second_buffer 3027B is", "3028B"]),
        ({"path": {"second_bandwidth": "5mbit", "second_buffer": "9sp"}}, ["second_buffer 9sp", "frames (p)"]),
        ({"path": {"second_bandwidth": "5mbit", "aqm": "codel"}}, ["second_bandwidth 5mbit", "aqm codel", "none"]),
        ({"path": {"ip_version": 5}}, ["path.ip_version", "'5' is not a version of IP; give 4 or 6"]),
        ({"cross_traffic": {"load": 0.1, "enters": "second"}}, ["cross_traffic.enters", "second_bandwidth, or first"]),
        ({"cross_traffic": {"enters": "third"}}, ["cross_traffic.enters", "'third'", "second"]),
        ({"cross_traffic": {"load": "1"}}, ["cross_traffic.load", "1 is not below 1"]),
        ({"cross_traffic": {"shape": 1}}, ["cross_traffic.shape", "1 is not above 1"]),
        ({"cross_traffic": {"max_size": "100kB"}}, ["cross_traffic", "max_size 100kB", "mean size 100kB"]),
        (
            {"cross_traffic": {"load": 0.5, "size": "1kB"}, "path": {"bandwidth": "1gbit"}},
            ["cross_traffic", "size", "1kB", "625000", "30000", "larger size"],
        ),
        (
            {"cross_traffic": {"load": 0.8, "size": "10kB"}, "flows": [{"count": 4096}] * 7},
            ["makes some 2000 of them in 10s", "room for 30000"],
        ),
        ({"flows": {"start": "9s", "start_spread": "1s"}}, ["start at 10s", "duration 10s"]),
        ({"flows": {"start_spread": "2s", "stop": "2s"}}, ["stop at 2s", "more than their start 2s"]),
        ({"flows": {"bytes": "0B"}}, ["flows.bytes", "0B is less than 1B"]),
        ({"flows": {"bytes": "1MB", "pattern": "rate 5mbit"}}, ["flows", "bytes 1MB", "give pattern bulk"]),
        ({"senders": [{"share": 0.5}]}, ["senders", "up to sender 2", "give flows with sender = 2"]),
        ({"senders": 2}, ["senders", "[[senders]]"]),
        ({"cpu": {"frequency": "576"}}, ["cpu.frequency", "'576' has no unit", "576MHz"]),
        ({"cpu": {"frequency": "5kHz"}}, ["cpu.frequency", "5kHz is less than 1MHz"]),
        ({"cpu": {"timer_cycles": -1}}, ["cpu.timer_cycles", "-1 is less than 0"]),
        ({"nic": {"coalesce": "2s"}}, ["nic.coalesce", "2s is more than 1s", "0s to 1s"]),
        ({"nic": {"coalesce": "1us", "adaptive_rx": "on"}}, ["nic.coalesce", "1us", "adaptive_rx", "0s"]),
        ({"nic": {"gro": "maybe"}}, ["nic.gro", "'maybe'", "on", "off"]),
        ({"nic": {"rx_ring": 0}}, ["nic.rx_ring", "0 is less than 1"]),
        ({"qdisc": "cake"}, ["qdisc", "'cake'", "fq"]),
        ({"qdisc": "fq", "pacing": "draft"}, ["pacing: draft is how TCP paces by itself, but fq does it here"]),
        ({"programs": {"files": "a,,b"}}, ["programs.files: 'a,,b' has an empty name; write for example a,b"]),
        ({"programs": {"receiver": "curl"}}, ["programs.sender: there is no program at the sender"]),
        (
            {"backend": "vm", "programs": {"sender": "nginx", "receiver": "curl"}},
            ["programs.sender: programs run on backend virtual only; on vm leave them out"],
        ),
        (
            {"traffic": "iperf3", "programs": {"sent_byte_ns": 2}},
            ["programs.sent_byte_ns: traffic is iperf3; only your programs and QUIC stacks do such work"],
        ),
        ({"samples": "1us"}, ["samples", "1us is less than 100us"]),
        ({"samples": "often"}, ["samples", "'often' is not a duration"]),
        ({"packets": "some"}, ["packets", "'some'"]),
        ({"traffic": "netperf"}, ["traffic", "'netperf'", "iperf3"]),
        ({"path": {"rtt": []}}, ["path.rtt: an empty list"]),
        ({"flows": {"cc": []}}, ["flows.cc: an empty list"]),
        ({"repeat": []}, ["repeat: []"]),
    ],
)
def test_bad_input_is_one_line_that_names_field_value_and_remedy(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(BadInput) as refusal:
        Grid.from_flags(fields)
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


LONG = "a" * 100_000


@pytest.mark.parametrize(
    "fields",
    [
        {"flows": [{"cc": LONG}]}, {"flows": [{}] * 65}, {"senders": [{}] * 300}, {"flows": LONG}, {"flows": [LONG]},
        {LONG: 1}, {LONG: {LONG: 1}}, {"path": {"loss": LONG}}, {"repeat": LONG}, {"hosts": [*LONG]},
    ],
)  # fmt: skip
def test_a_refusal_is_short_whatever_was_given(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as refusal:
        Grid({**DEFAULT_GRID, **fields})
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"path": {"buffer": "3028B", "second_bandwidth": "5mbit", "second_buffer": "3028B"}},
        {"path": {"buffer": "0B", "burst": "1514B"}},
        {"path": {"buffer": "40kB", "aqm": "red min=20kB max=40kB probability=1"}},
        {"flows": [{"stop": "10s"}]},
        {"pacing": "kept", "qdisc": "fq"},
        {"contention": {"share": 0.4, "timeslice": "4s"}},  # one period
        {"contention": {"share": 0.5, "alternate": "20ms"}},
        {"contention": {"share": 1, "alternate": "1ms"}},  # of what is never taken away
        {"cross_traffic": {"enters": "second"}},  # of none
        # So many begin at the rate of the bottleneck that they enter at.
        {
            "path": {"bandwidth": "1gbit", "second_bandwidth": "10mbit"},
            "cross_traffic": {"load": 0.5, "size": "1kB", "enters": "second"},
        },
    ],
)
def test_what_lies_on_a_bound_is_let_pass(fields: dict[str, Any]) -> None:
    scenario({"kernel": "virtual-6.12", **fields})


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"start": "1s"}, 9),
        ({"stop": "20s"}, 10),
        ({"alternate": "3s"}, 6),  # 0 to 3 and 6 to 9
        ({"alternate": "4s"}, 6),  # 0 to 4 and 8 to 10
        ({"alternate": "3s", "start": "1s", "stop": "8s"}, 4),
    ],
)
def test_the_time_with_contention_is_from_start_to_stop_and_every_other_alternation(
    times: dict[str, str], seconds: int
) -> None:
    assert scenario({"contention": {"share": 0.5, **times}}).contention.contended(10 * 10**9) == seconds * 10**9


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "cubic, 20mbit, RTT 10ms, 100% CPU"),
        (
            {"flows": [{"cc": "bbr", "count": 2}, {}], "path": {"rtt": "40ms"}, "contention": {"share": 0.5}},
            "2xbbr+cubic, 20mbit, RTT 40ms, 50% CPU in 10ms slices (virtual)",
        ),
        (
            {"contention": {"share": 0.5, "driver": "quota"}},
            "cubic, 20mbit, RTT 10ms, 50% CPU in 10ms slices (quota)",
        ),
        ({"contention": {"replay": "a.csv"}}, "cubic, 20mbit, RTT 10ms, CPU as in a.csv"),
        ({"cross_traffic": {"load": 0.2}}, "cubic beside 20% cross traffic, 20mbit, RTT 10ms, 100% CPU"),
        ({"traffic": "quic:quinn"}, "quic:quinn (cubic), 20mbit, RTT 10ms, 100% CPU"),
        ({"programs": {"sender": "nginx -g x", "receiver": "curl"}}, "nginx (cubic), 20mbit, RTT 10ms, 100% CPU"),
    ],
)
def test_a_scenario_is_one_short_line_for_people(fields: dict[str, Any], words: str) -> None:
    assert scenario({"kernel": "virtual-6.12", **fields}).describe() == words


def test_options_of_flows_are_for_one_group(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text('[[flows]]\ncc = "bbr"\n[[flows]]\ncc = "cubic"\n')
    with pytest.raises(BadInput, match=r"the file has several \[\[flows\]\] groups; change them in the file"):
        Grid.from_flags({"flows": {"cc": "reno"}}, tmp_path / "two.toml")


@given(share=st.floats(min_value=0.01, max_value=0.99), timeslice_us=st.integers(min_value=100, max_value=10**6))
def test_the_period_is_timeslice_over_share(share: float, timeslice_us: int) -> None:
    flags = {
        "contention": {"share": str(share), "timeslice": f"{timeslice_us}us"},
        "flows": {"cc": "cubic"},
        "duration": "3600s",
    }
    contention = Grid.from_flags(flags).scenarios[0].contention
    assert contention.timeslice / contention.period == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[1] / "examples").glob("*.toml")), ids=lambda f: f.stem)
def test_every_example_is_a_scenario(file: Path) -> None:
    assert Grid.from_flags({}, file).runs()


def test_the_page_shows_the_defaults() -> None:
    page = (Path(__file__).parents[1] / "docs" / "scenario.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    assert all(Grid(tomllib.loads(block)).runs() for block in blocks)
    written = Grid(tomllib.loads(blocks[0]))
    assert {s.hash for s in written.scenarios} == {s.hash for s in Grid.from_flags({}).scenarios}
    assert written.fields["repeat"] == Grid.from_flags({}).fields["repeat"]


@pytest.mark.parametrize("backend", ["virtual", "vm"])
def test_each_backend_has_its_own_defaults_and_a_scenario_holds_what_is_measured(backend: str) -> None:
    got = Grid.from_flags({"backend": backend}).scenarios[0]
    c = got.contention
    expected = {
        "virtual": ("virtual-6.12", "brobust", "auto", 0.25, 0.0),
        "vm": ("debian-6.12", "iperf3", "deadline", 0.0, 0.0),
    }[backend]
    assert (got.kernel, got.traffic, c.driver, c.start_jitter, c.length_jitter) == expected


def test_uml_runs_the_kernel_of_virtual_time() -> None:
    flags = {"backend": "vm", "accelerator": "uml", "contention": {"share": "0.5"}, "flows": {"cc": "bbr"}}
    assert [(s.kernel, s.traffic) for s in Grid.from_flags(flags).scenarios] == [("virtual-6.12-realtime", "iperf3")]
    both = Grid.from_flags({**flags, "accelerator": ["uml", "tcg"]}).scenarios
    assert {s.accelerator: s.kernel for s in both} == {"uml": "virtual-6.12-realtime", "tcg": "debian-6.12"}
    again = Grid(Grid.from_flags({**flags, "accelerator": ["uml", "tcg"]}).fields)  # as its dataset has it
    assert [s.hash for s in again.scenarios] == [s.hash for s in both]


def test_a_default_and_the_same_value_written_out_are_the_same_point() -> None:
    written = {"backend": "vm", "kernel": "debian-6.12", "contention": {"share": 0.5, "driver": "deadline"}}
    absent = {"backend": "vm", "kernel": None, "contention": {"share": 0.5, "driver": "auto"}}
    python = Scenario(backend="vm", contention=Contention(share=0.5))
    assert scenario(written).hash == scenario(absent).hash == python.hash
    assert Scenario(contention=Contention(share=0.5, start_jitter=0.1)).contention.start_jitter == 0.1


def test_programs_that_choose_no_control_are_measured_with_one() -> None:
    grid = Grid.from_flags({"programs": {"sender": "nginx", "receiver": "curl"}})
    assert {s.flows[0].cc for s in grid.as_written} == {"cubic"}


def test_the_narrowest_bottleneck_is_either() -> None:
    for second, narrowest in (("5mbit", 5_000_000), ("50mbit", 20_000_000)):
        assert scenario({"path": {"bandwidth": "20mbit", "second_bandwidth": second}}).path.narrowest == narrowest


def test_what_took_the_cpu_away_has_one_word() -> None:
    def driver(**fields: Any) -> str:
        point = scenario(fields)
        return point.driver_of(point.contention)

    assert driver(contention={"share": 0.5}) == "virtual"
    assert driver(contention={"share": 1}) == "none"
    assert driver(contention={"replay": "a.csv"}) == "virtual"
    assert driver(contention={"replay": "a.csv"}, backend="vm") == "replay"
    assert driver(backend="vm", contention={"share": 0.5}) == "deadline"
    assert driver(backend="vm", contention={"share": 0.5, "driver": "burner"}) == "burner"


def test_a_list_is_refused_where_the_dataset_could_not_tell_its_cells_apart() -> None:
    for values in (["0s", "1s"], ["0s"]):
        with pytest.raises(BadInput, match=r"flows.start_spread: takes one value; '0s(,1s)?' is a list"):
            Grid.from_flags({"flows": {"start_spread": values}})


@pytest.mark.parametrize(("flows", "remedy"), [({"cc": "bbr"}, "give a list"), ([], "give at least one value")])
def test_a_refusal_of_python_values_is_in_words_of_files(flows: object, remedy: str) -> None:
    with pytest.raises(BadInput) as refusal:
        scenario({"flows": flows})
    assert str(refusal.value) == f"flows: {flows!r} is not allowed: {remedy}"


def test_lists_of_changes_are_no_axes() -> None:
    changes = [["2s", "50mbit"], ["4s", "10mbit"]]
    grid = Grid.from_flags(
        {
            "path": {"bandwidth_changes": changes, "rtt_changes": "1s:40ms,2s:10ms", "rtt": ["10ms", "20ms"]},
            "flows": {"cc": "bbr", "rtt_changes": [["3s", "5ms"]]},
            "contention": {"share": 1},
        }
    )
    assert [s.path.rtt for s in grid.scenarios] == [10_000_000, 20_000_000]
    for point in grid.scenarios:
        assert point.path.bandwidth_changes == ((2 * 10**9, 50_000_000), (4 * 10**9, 10_000_000))
        assert point.path.rtt_changes == ((10**9, 40_000_000), (2 * 10**9, 10_000_000))
        assert point.flows[0].rtt_changes == ((3 * 10**9, 5_000_000),)
    assert [name for name, _ in grid.scenarios[0].rtts()] == [
        "path.rtt", "path.rtt_changes", "path.rtt_changes", "flows.rtt_changes",
    ]  # fmt: skip


def test_fields_within_senders_are_axes_and_the_senders_together_are_none() -> None:
    groups = [{"cc": "bbr"}, {"cc": "bbr", "sender": 3}]
    grid = Grid({"flows": groups, "senders": [{"share": [1, 0.5]}, {"share": 0.25, "timeslice": "5ms"}]})
    assert [s.contention_of(2).share for s in grid.scenarios] == [1, 0.5]
    (first, _) = grid.scenarios
    assert first.sender_count == 3
    assert (first.contention_of(3).share, first.contention_of(3).timeslice) == (0.25, 5_000_000)
    unlisted = scenario({"flows": groups})
    assert not unlisted.contention_of(3).active


def test_a_group_with_an_rtt_of_its_own_does_not_follow_the_paths() -> None:
    groups = [{}, {"rtt": "40ms"}, {"rtt_changes": "2s:5ms"}, {"rtt": "40ms", "rtt_changes": "2s:5ms"}]
    point = scenario({"path": {"rtt": "10ms", "rtt_changes": "1s:20ms"}, "flows": groups})
    paths, own = ((10**9, 20_000_000),), ((2 * 10**9, 5_000_000),)
    assert [point.rtt_of(group) for group in point.flows] == [
        (10_000_000, paths), (40_000_000, ()), (10_000_000, own), (40_000_000, own),
    ]  # fmt: skip


def test_repeats_draw_from_seeds_of_their_own() -> None:
    runs = Grid.from_flags({"seed": 7, "repeat": 3, "contention": {"share": 1}, "flows": {"cc": "bbr"}}).runs()
    assert {run.repeat: run.seed for run in runs} == {0: 7, 1: 8, 2: 9}


def test_pacing_is_a_word_and_what_kept_makes_up_for() -> None:
    assert (Pacing.parse("kept"), str(Pacing.parse("kept lag=100ms"))) == (Pacing("kept", 100_000_000), "kept")
    assert str(Pacing.parse("kept lag=50ms")) == "kept lag=50ms"
    assert Pacing.parse("linux-4.14").lag == 0
    assert [Pacing.parse(f"kept lag={bound}").lag for bound in ("1us", "250ms")] == [1000, 250_000_000]
    for wrong in ("keep", "kernel lag=1ms", "kept lag=251ms", "kept lag=999ns", "kept slack=1ms", ""):
        with pytest.raises(ValueError, match=r"kept|takes no options|is not one of"):
            Pacing.parse(wrong)


def test_queue_management_is_one_string_with_the_defaults_of_tc() -> None:
    assert Aqm.parse("codel") == Aqm.parse("codel target=5ms interval=100ms")
    assert (Aqm.parse("codel").ecn, Aqm.parse("fq_codel").ecn) == (False, True)
    assert not Aqm.parse("fq_codel noecn").ecn
    assert Aqm.parse("red").red_thresholds(120_000) == (10_000, 30_000)
    full = Aqm.parse("red min=30kB max=90kB probability=0.05 ecn")
    assert full.red_thresholds(1) == (30_000, 90_000)
    assert (full.probability, full.ecn, str(full)) == (0.05, True, "red min=30kB max=90kB probability=0.05 ecn")


def test_a_traffic_pattern_is_one_string() -> None:
    assert Pattern.parse("rate 5mbit") == Pattern("rate", rate=5_000_000)
    assert Pattern.parse("onoff 1s 500ms") == Pattern("onoff", sending=10**9, silent=5 * 10**8)
    assert Pattern.parse("idle 3s 2s") == Pattern("idle", sending=3 * 10**9, silent=2 * 10**9)


def _times(least: int, most: int) -> st.SearchStrategy[str]:
    return st.integers(least, most).map(units.show_time)


def _rates(least: int = 100_000) -> st.SearchStrategy[str]:
    return st.integers(least, 10**11).map(units.show_rate)


def _sometimes(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


_CONTENTION = st.one_of(
    _sometimes(
        share=st.floats(0.1, 1),
        timeslice=_times(10**5, 10**8),
        phase=st.one_of(st.just("random"), _times(0, 10**9)),
        start_jitter=st.floats(0, 1),
        length_jitter=st.floats(0, 0.99),
    ),
    st.just({"replay": "somewhere#a-0"}),
)
_CHANGES = st.sets(st.integers(1, 10**9 - 1), max_size=3).map(sorted)
_AQM = st.one_of(
    st.sampled_from(["none", "red", "red ecn", "codel ecn", "fq_codel noecn"]),
    st.builds("codel target={} interval={}".format, _times(1, 10**9), _times(1, 10**9)),
    st.builds("red min={}B max={}B probability={:.9f}".format, st.integers(1, 999), st.integers(1000, 3000),
              st.floats(0.001, 1)),
)  # fmt: skip
_PATTERN = st.one_of(
    st.just("bulk"),
    st.builds("rate {}".format, _rates(1)),
    st.builds("{} {} {}".format, st.sampled_from(["onoff", "idle"]), _times(1, 10**12), _times(1, 10**12)),
)
_SCENARIO = _sometimes(
    path=st.builds(
        lambda path, second, rates, rtts: {
            **path,
            **(second if path.get("aqm", "none") == "none" else {}),
            "bandwidth_changes": [[units.show_time(time), rate] for time, rate in zip(*rates, strict=False)],
            "rtt_changes": [[units.show_time(time), rtt] for time, rtt in zip(*rtts, strict=False)],
        },
        st.fixed_dictionaries(
            {"buffer": st.one_of(st.just("50000.5B"), st.integers(3028, 10**9).map("{}B".format), st.just("100p"))},
            optional={"bandwidth": _rates(), "rtt": _times(200_000, 10**10), "loss": st.floats(0, 0.99), "aqm": _AQM},
        ),
        _sometimes(second_bandwidth=_rates(), second_buffer=st.integers(3028, 10**9).map("{}B".format)),
        st.tuples(_CHANGES, st.lists(_rates(), min_size=3)),
        st.tuples(_CHANGES, st.lists(_times(200_000, 10**10), min_size=3)),
    ),
    contention=_CONTENTION,
    senders=st.lists(_CONTENTION, max_size=1),
    flows=st.builds(
        lambda group: [group, {"sender": 2}],
        _sometimes(
            cc=st.sampled_from(["bbr", "cubic"]),
            count=st.integers(1, 256),
            start_spread=_times(0, 5 * 10**7),
            start=_times(0, 5 * 10**8),
            stop=_times(6 * 10**8, 10**9),
            rtt=_times(200_000, 10**10),
            pattern=_PATTERN,
        ),
    ),
    cross_traffic=_sometimes(load=st.floats(0, 1e-4), shape=st.floats(1.1, 9), size=st.just("1MB")),
    cpu=_sometimes(frequency=st.integers(10**6, 10**11).map(units.show_frequency), timer_cycles=st.floats(0, 1e9)),
    nic=_sometimes(coalesce=_times(0, 10**9), tx_completion=_times(0, 10**9)),
    duration=_times(10**9, 36 * 10**11),
    samples=st.one_of(st.just("ack"), _times(10**6, 10**12)),
    packets=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    backend=st.sampled_from(["virtual", "vm"]),
    qdisc=st.sampled_from(["none", "fq"]),
)


@given(_SCENARIO)
def test_a_scenario_written_as_toml_is_the_same_scenario(fields: dict[str, Any]) -> None:
    if "flows" not in fields:
        fields.pop("senders", None)
    point = scenario(fields)
    again = scenario(tomllib.loads(tomli_w.dumps(point.model_dump(mode="json", exclude_none=True))))
    assert again == point
    assert again.hash == point.hash


def test_options_override_what_a_grid_of_a_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "grids.toml"
    file.write_text(
        'duration = "2s"\n[[grids]]\ncontention = { share = 0.5, timeslice = "5ms" }\nflows = [{ cc = "bbr" }]\n'
        '[[grids]]\nrepeat = 2\npath = { rtt = "40ms" }\n'
    )
    options = {"contention": {"share": "0.25"}, "flows": {"cc": "reno"}, "repeat": 1}
    runs = Grid.from_flags(options, file).runs()
    points = [(run.scenario, run.scenario.contention) for run in runs]
    assert {(s.flows[0].cc, c.share, c.timeslice // 10**6, s.path.rtt // 10**6) for s, c in points} == {
        ("reno", 0.25, 5, 10), ("reno", 0.25, 10, 40),
    }  # fmt: skip
    assert len(runs) == 2
    file.write_text("grids = 5\n")
    with pytest.raises(BadInput, match="grids: 5 is not a list of tables"):
        Grid.from_flags(options, file)


def test_a_file_may_hold_several_grids_and_a_scenario_in_two_is_measured_once() -> None:
    grid = Grid(
        {
            "path": {"bandwidth": "10mbit"},
            "repeat": 2,
            "grids": [
                {"contention": {"share": [1, 0.5]}},
                {"contention": {"share": [0.5, 0.25]}, "repeat": 3},
                {"path": {"rtt": "40ms"}},
                {"contention": {"share": 0.25}, "repeat": 1},
            ],
        }
    )
    runs = [(run.scenario.path.rtt // 10**6, run.scenario.contention.share, run.repeat) for run in grid.runs()]
    assert sorted(runs) == [
        (10, 0.25, 0), (10, 0.25, 1), (10, 0.25, 2), (10, 0.5, 0), (10, 0.5, 1), (10, 0.5, 2), (10, 1.0, 0),
        (10, 1.0, 1), (40, 1.0, 0), (40, 1.0, 1),
    ]  # fmt: skip
    assert {run.scenario.path.bandwidth for run in grid.runs()} == {10_000_000}
    with pytest.raises(BadInput, match="grids"):
        Grid({"grids": {"path": {}}})
