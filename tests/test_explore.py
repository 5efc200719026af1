"""`brobust explore`: who may ask, what a hostile page can do (nothing), and that each move of a slider is a run."""

import base64
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import made_up
from brobust import backends
from brobust.dataset import RUNS, Dataset, Measured, flow_columns, recordings, scenario_columns
from brobust.errors import BadInput, MissingSupport
from brobust.explore import figures, recorded
from brobust.explore.answers import Answers, Superseded
from brobust.explore.server import Server
from brobust.report import plot
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario as one_scenario
from browser import CHROMIUM, Browser
from conftest import BROBUST, refused

SCENARIO = {"path": {"bandwidth": "20mbit", "buffer": "12bdp"}, "contention": {"share": "50%"}, "duration": "1s"}


class Asked(Answers):
    """Answers, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[str] = []

    def answer_run(self, fields: dict[str, Any], controls: list[str]) -> Iterator[dict[str, Any]]:
        self.questions.append("run")
        yield {}


@contextmanager
def _served(answers: Answers) -> Iterator[Server]:
    with Server(answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def _ask(
    server: Server, method: str = "POST", path: str = "/run", asked: object = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    given = {"X-Brobust-Token": server.token, **{name.replace("_", "-"): value for name, value in headers.items()}}
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=60)) as connection:
        body = json.dumps(asked or {"fields": SCENARIO, "controls": ["bbr"]}) if method == "POST" else None
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_only_the_page_itself_is_answered() -> None:
    answers = Asked()
    with _served(answers) as server:
        assert server.server_address[0] == "127.0.0.1"
        own = f"http://127.0.0.1:{server.server_port}"
        for hostile in (
            {"X_Brobust_Token": ""},
            {"X_Brobust_Token": "another"},
            {"Host": "evil.example"},  # a name of the web that points here
            {"Host": f"evil.example:{server.server_port}"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": f"http://localhost:{server.server_port}"},  # another site than the one that is asked
        ):
            assert _ask(server, **hostile)[0] == 403, hostile
        assert _ask(server, "GET", "/")[0] == 403  # the token is in the address
        assert _ask(server, "OPTIONS")[0] == 501 and answers.questions == []
        assert _ask(server, Origin=own)[0] == 200 and answers.questions == ["run"]


def test_what_is_no_question_is_refused_and_no_mistake_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> None:
        raise MissingSupport("nothing is measured here")

    monkeypatch.setattr(backends, "opened", opened)
    dataset = made_up.dataset(tmp_path / "data", Grid({"kernel": "virtual-6.12"}))
    answers = Answers(dataset, _recording(tmp_path / "recorded.jsonl"))
    odd: list[Any] = [None, [], ["a"], {}, {"a": 1}, 5, -1, 1e300, 10**30, float("nan"), True, "", "a" * 300, "\ud800"]
    questions = {
        "run": ("fields", "controls"), "explain": ("fields", "cc", "run"), "file": ("kind", "fields", "cc", "run"),
        "cells": ("x", "y", "metric"), "look": ("run",), "socket": ("key",), "about": ("x",), "": ("x",),
    }  # fmt: skip
    asked: list[tuple[str, object]] = [("run", [1]), ("run", {"fields": {}, "controls": ["bbr", 5]})]
    asked += [("run", {"fields": {"path": {"buffer": one}, "pacing": one}, "controls": ["bbr"]}) for one in odd]
    asked += [("socket", {"key": ["", one, "", ""]}) for one in odd]
    asked += [("socket", {"key": [one, 1, "", ""]}) for one in odd]
    usual = {"kind": "pcapng", "x": "cc", "y": "cc", "metric": "throughput_mbps", "cc": "bbr", "controls": ["bbr"]}
    for name, parameters in questions.items():
        given = {key: usual[key] for key in parameters if key in usual}
        asked += [(name, {**given, parameter: one}) for parameter in parameters for one in odd]
    with _served(answers) as server:
        statuses = [(*question, _ask(server, path=f"/{question[0]}", asked=question[1])) for question in asked]
    assert [one for one in statuses if one[2][0] not in (200, 400, 404)] == []


def test_an_answer_can_be_neither_framed_nor_read_by_others() -> None:
    with _served(Asked()) as server:
        status, headers, page = _ask(server, "GET", f"/?token={server.token}")
    assert status == 200 and not [name for name in headers if name.startswith("Access-Control")]
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["Referrer-Policy"] == "no-referrer"
    assert server.token.encode() not in page and b"NONCE" not in page and b"uPlot" in page
    assert len(page) < 200_000 and b"http://" not in page.replace(b"http://www.w3.org", b"")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"programs": {"sender": "/bin/sh"}}, "programs"),
        ({"contention": {"replay": "/etc/passwd"}}, "contention"),
        ({"kernel": "/tmp/kernel"}, "kernel"),
        ({"backend": "vm"}, "backend"),
        ({"path": [1]}, "path"),
        (["path"], "fields: give a table"),
        (None, "fields: give a table"),
        ({"path": {"bandwidth": "9gbit"}}, "copy it as a command"),
        ({"duration": "1000s"}, "copy it as a command"),
        ({"contention": {"share": "7"}}, "contention.share"),
    ],
)
def test_what_the_page_may_not_ask_is_refused(fields: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        next(Answers().answer_run(fields, ["bbr"]))


@pytest.mark.virtual
def test_a_newer_question_ends_the_one_before() -> None:
    answers, ended = Answers(), []

    def long() -> None:
        fields = {**SCENARIO, "path": {"bandwidth": "1gbit", "buffer": "12bdp"}, "duration": "20s"}
        try:
            list(answers.answer_run({**fields, "contention": {"share": 1}}, ["cubic", "bbr", "reno"]))
        except Superseded as error:
            ended.append(error)

    first = threading.Thread(target=long)
    first.start()
    while answers._backend is None:
        time.sleep(0.01)
    (short,) = answers.answer_run(SCENARIO, ["bbr"])
    first.join(timeout=60)
    assert len(ended) == 1 and 1 < short["throughput_mbps"] < 19 and len(short["slices"]) > 40


OF_FIGURE_4 = {"bandwidth_mbps": 100.0, "rtt_ms": 10.0, "timeslice_ms": 10.0}


def test_a_run_of_a_papers_figure_has_the_figures_cells_and_another_has_none() -> None:
    path = {"bandwidth": "100mbit", "rtt": "10ms"}
    requested = Run(one_scenario({"path": path, "contention": {"share": 0.5}, "flows": [{"cc": "bbr"}]}), 0)
    run = dict.fromkeys(RUNS) | scenario_columns(requested) | flow_columns(requested.scenario)[0]
    assert OF_FIGURE_4.items() <= run.items()
    found = {figure["name"]: figure for figure in figures.of(run)}
    sheet = pl.read_csv(Path(figures.__file__).with_name("2brobust.csv"), schema_overrides={"figure": pl.String})
    cells = sheet.filter(pl.col(name) == value for name, value in OF_FIGURE_4.items())
    for number, of_figure in cells.group_by("figure"):
        lines = found[f"2BRobust, figure {number[0]}"]["lines"]
        drawn = {(one["cc"], one["buffer_bdp"], share): median for one in lines
                 for share, median in zip(one["share"], one["median"], strict=True)}  # fmt: skip
        assert drawn == {(cc, bdp, share): mbps for cc, bdp, share, mbps
                         in of_figure.select("cc", "buffer_bdp", "share", "throughput_mbps").iter_rows()}  # fmt: skip
    assert "R3: no BBR version exceeds 11 Mbit/s" in " ".join(found["2BRobust, figure 4"]["says"])
    for other in ({"loss": 0.01}, {"qdisc": "fq"}, {"pacing": "kept"}, {"flows": 2}, {"bandwidth_mbps": 20.0},
                  {"timeslice_ms": None}, {"replay": "off.csv"}, {"pattern": "rate 5mbit"}, {"flow_rtt_ms": 40.0},
                  {"cross_load": 0.3}, {"aqm": "codel"}, {"receiver_share": 0.5}, {"driver": "deadline:hz=1000"},
                  {"vcpus": 2}, {"length_jitter": 0.1}):  # fmt: skip
        assert figures.of({**run, **other}) == [], other


@pytest.mark.virtual
def test_a_run_of_the_page_can_be_taken_along_as_timeline_and_capture() -> None:
    answers, asked = Answers(), {"fields": SCENARIO, "cc": "bbr"}
    (timeline,) = answers.answer_file("perfetto-trace", **asked)
    whole = perfetto.Trace.FromString(base64.b64decode(timeline["content"]))
    names = {one.track_descriptor.name for one in whole.packet if one.HasField("track_descriptor")}
    assert {"CPU of sender 1", "packets sent", "missed departures", "phase", "cwnd"} <= names
    (capture,) = answers.answer_file("pcapng", **asked)
    assert b"ms late: due at" in base64.b64decode(capture["content"]) and capture["name"].endswith("-0.pcapng")
    for kind in ("../../etc/passwd", "csv"):
        with pytest.raises(BadInput, match="kind: "):
            next(answers.answer_file(kind, **asked))


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a small dataset; its address. The command ends with its terminal."""
    here = tmp_path_factory.mktemp("explored")
    grid = "--cc cubic,bbr --share 1,0.5 --buffer 12bdp --duration 1s --repeat 1 --out data"
    subprocess.run([BROBUST, "run", *grid.split()], cwd=here, check=True, capture_output=True)
    with subprocess.Popen([BROBUST, "explore", "data"], cwd=here, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=60) == 130


@pytest.mark.virtual
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium; `scripts/setup.sh browser` installs it")
def test_a_slider_that_is_moved_by_a_key_is_a_run_and_a_cell_leads_to_its_cause(explored: str, tmp_path: Path) -> None:
    seen = "/runs? of 2 s/.test(pick('status').textContent)"
    with Browser(tmp_path) as browser:
        # A page of another origin can neither ask nor read, even if it knew the token.
        token = explored.partition("token=")[2]
        foreign = f"fetch('{explored}').then(() => 'read', () => 'nothing')"
        assert browser.run(foreign) == "nothing"
        asked = (
            f"fetch('{explored.partition('?')[0]}about', {{method: 'POST', headers: {{'X-Brobust-Token': '{token}'}}}})"
        )
        assert browser.run(f"{asked}.then(() => 'read', () => 'nothing')") == "nothing"

        browser.open(f"{explored}#share=50&duration=2&cc=bbr")
        browser.wait(f"{seen} && document.querySelectorAll('#charts canvas').length === 3")
        half = browser.run("shown[0].throughput_mbps")
        browser.run("pick('share').focus()")
        browser.press("End", 35)
        browser.wait(f"shown[0].throughput_mbps > 18 && {seen}")
        assert half < 12 and "share=100" in browser.run("location.hash")
        assert "brobust run --cc bbr --share 100%" in browser.run("command()")
        browser.run("document.querySelector('#results button').click()")
        browser.wait("/The cause is the path itself/.test(pick('words').textContent)")

        # A paper's figure is one key away; its cells lie behind the runs.
        browser.run("pick('scenario').querySelector('select').focus()")
        browser.press("ArrowDown", 40)
        browser.wait("document.querySelectorAll('#figures canvas').length > 0 && shown.every(cellOf)")
        assert "bandwidth=100" in browser.run("location.hash") and "buffer=1&" in browser.run("location.hash")
        # Lines look as in files, whatever else is shown; other dashes for those who see no colours.
        controls = ["cubic", "bbr", "bbr_steady", "brb_bbr2", "brb_bbr3", "bbr_robust", "brb_vegas", "reno"]
        found = browser.run(f"styles({json.dumps(controls)})")
        drawn = {control: color for control, (color, *_) in plot.styles(controls).items()}
        assert {control: one["stroke"] for control, one in found.items()} == drawn
        assert len({json.dumps(one) for one in found.values()}) == 8
        assert len({str(one["dash"]) for one in found.values()}) == 7
        assert browser.run("styles(['bbr']).bbr") == found["bbr"]
        assert browser.run("new Set([...document.querySelectorAll('.swatch')].map(it => it.style.background)).size") > 2
        cell = browser.run("cellOf(shown[0])")
        assert 0 < cell["low"] <= cell["median"] <= cell["high"] < 100

        # A cell leads to its runs, a run to its cause, with the keyboard; the link leads there again.
        browser.run("pick('of-dataset').focus()")
        browser.press(" ", 32)
        browser.wait("document.querySelectorAll('.cells button').length === 4")
        browser.run("document.querySelector('.cells button').focus()")
        browser.press(" ", 32)
        browser.wait("document.activeElement.parentElement.className === 'runs'")
        browser.press(" ", 32)
        cause = "/The cause is the CPU that is taken/.test(pick('words').textContent)"
        browser.wait(cause)
        link = browser.run("location.hash")
        browser.open(f"{explored}&again{link}")
        browser.wait(f"{cause} && shown.length === 1")
        assert link == browser.run("location.hash") and f"run={browser.run('shown[0].run')}" in link
        for width, dark in ((1280, True), (390, False)):
            browser.open(f"{explored}&{width}#share=50&duration=2&cc=bbr,cubic", width, dark=dark)
            browser.wait(f"{seen} && shown.length === 2")
            assert browser.run("document.documentElement.scrollWidth") <= width
            assert browser.run("pick('results').scrollWidth <= pick('results').clientWidth")  # no column is cut


@pytest.mark.virtual
def test_what_is_copied_measures_what_is_shown(tmp_path: Path, brobust: Any) -> None:
    (shown,) = Answers().answer_run({**SCENARIO, "pacing": "kernel", "qdisc": "none", "seed": 1}, ["bbr"])
    options = "--cc bbr --share 50% --bandwidth 20mbit --buffer 12bdp --duration 1s --seed 1 --repeat 1"
    brobust("run", *options.split(), "--out", "data")
    assert Dataset.open(tmp_path / "data").runs()["throughput_mbps"][0] == shown["throughput_mbps"]


def test_a_dataset_is_shown_along_two_axes_or_along_its_only_one(tmp_path: Path) -> None:
    dataset = Dataset.create(tmp_path / "data", Grid.from_flags({"kernel": "virtual-6.12"}), {})
    for number, (share, cc) in enumerate([(0.5, "bbr"), (0.5, "bbr"), (1.0, "bbr"), (1.0, "cubic")]):
        row = {"run": f"a{number}-0", "flow": 0, "cc": cc, "share": share, "outcome": "ok", "throughput_mbps": number}
        rest = {
            "start_s": 0.0,
            "stop_s": 1.0,
            "duration_s": 1.0,
            "bandwidth_mbps": 20.0,
            "rtt_ms": 10.0,
            "ip_version": 4,
        }
        dataset.append(row["run"], Measured([{**row, **rest}]))
    answers = Answers(dataset)
    (both,) = answers.answer_cells("share", "cc", "throughput_mbps")
    assert (both["x"], both["y"]) == (["50%", "100%"], ["bbr", "cubic"])
    assert both["cells"][0][0]["median"] == 0.5 and both["cells"][1][0] is None
    assert sorted(one["run"] for one in both["cells"][0][0]["runs"]) == ["a0-0", "a1-0"]
    (one,) = answers.answer_cells("share", "share", "throughput_mbps")
    assert [cell["median"] for cell in one["cells"][0]] == [0.5, 2.5]
    with pytest.raises(BadInput, match="neither an axis nor a metric"):
        next(answers.answer_cells("share", "reason", "throughput_mbps"))


def test_a_run_that_answered_too_few_requests_is_the_slowest_of_its_cell(tmp_path: Path) -> None:
    grid = Grid({"kernel": "virtual-6.12", "contention": {"share": [1, 0.5]}, "repeat": 3})

    def asked(run: Run) -> dict[str, Any]:
        few = run.repeat > 0 and run.scenario.contention.share < 1
        return {"requests": 100, "requests_answered": 50, "request_median_ms": None if few else 10.0 + run.repeat}

    answers = Answers(made_up.dataset(tmp_path / "data", grid, asked))
    (found,) = answers.answer_cells("share", "share", "request_median_ms")
    contended, undisturbed = found["cells"][0]
    assert [undisturbed[name] for name in ("median", "low", "high")] == [11.0, 10.0, 12.0]
    assert [contended[name] for name in ("median", "low", "high")] == [None, 10.0, None]
    assert [one["value"] for one in contended["runs"]] == [10.0, None, None]
    json.dumps(found, allow_nan=False)


def test_times_of_the_phase_stand_in_their_order(tmp_path: Path) -> None:
    grid = Grid({"kernel": "virtual-6.12", "contention": {"share": 0.5, "phase": ["10ms", "5ms", "random"]}})
    (cells,) = Answers(made_up.dataset(tmp_path / "data", grid)).answer_cells("phase", "phase", "throughput_mbps")
    assert cells["x"] == ["5ms", "10ms", "random"]


def test_a_dataset_can_be_shown_along_a_field_that_is_no_axis(tmp_path: Path) -> None:
    flows = [{"cc": "bbr"}, {"cc": "cubic", "sender": 2}]
    grid = Grid({"kernel": "virtual-6.12", "flows": flows, "senders": [{"share": [1, 0.25]}]})
    dataset = made_up.dataset(
        tmp_path / "data", grid, lambda run: {"throughput_mbps": 10 * run.scenario.senders[0].share}
    )
    answers = Answers(dataset)
    (about,) = answers.answer_about()
    assert about["dataset"]["axes"] == {"cc": "cc", "senders.share": "senders.share"}
    (cells,) = answers.answer_cells("senders.share", "cc", "throughput_mbps")
    assert cells["x"] == ["1", "0.25"] and [cell["median"] for cell in cells["cells"][0]] == [20.0, 5.0]


def test_of_a_run_with_several_flows_the_first_is_shown_and_said(tmp_path: Path) -> None:
    grid = Grid({"kernel": "virtual-6.12", "flows": [{"cc": "bbr"}, {"cc": "cubic"}]})
    as_on_vm = {"throughput_mbps": 5.0, "rtt_ms": 0.0}  # with the testbed's own latency
    dataset = made_up.dataset(tmp_path / "data", grid, lambda _: as_on_vm)
    (shown,) = Answers(dataset).answer_look(grid.runs()[0].id)
    assert shown["cc"] == "bbr (flow 0 of 2)" and shown["throughput_mbps"] == 5.0 and shown["buffer_bdp"] is None


def _recording(file: Path) -> recordings.Sweeps:
    """A recording of a minute: a socket that is short of CPU for a third of it, one that is not, and one that ends."""
    lines = []
    for number in range(1, 61):
        is_short = 21 <= number <= 40
        values: dict[str, Any] = {"rate_mbps": 5.0 if is_short else 19.0, "cwnd_bytes": 50_000, "srtt_ms": 12.5}
        one = {"netns": "", "interface": 0, "local": "192.0.2.1:443", "cc": "bbr", **values}
        flows = [
            {**one, "remote": "198.51.100.1:5000", "cause": "cpu-limited" if is_short else "network-limited"},
            {**one, "remote": "198.51.100.2:5000", "cause": "network-limited", "pod": "<b>shop</b>"},
        ]
        if number <= 10 or number == 50:
            flows.append({**one, "remote": "198.51.100.3:5000", "cause": "app-limited", "rate_mbps": 1.0})
        host = {"steal_share": 0.5 if is_short else 0.0}
        why = "the CPU is taken away (50% steal)" if is_short else None
        sweep = {"sweep": number, "sockets": len(flows), "host": host, "why": why, "flows": flows}
        lines.append(json.dumps({"time_unix_s": 1.8e9 + number, "interval_s": 1.0, **sweep}))
    file.write_text("\n".join(lines) + "\n")
    read = recordings.read(file)
    assert isinstance(read, recordings.Sweeps)
    return read


def test_of_a_recording_the_sockets_that_were_short_of_cpu_come_first_with_their_verdicts(tmp_path: Path) -> None:
    recording = _recording(tmp_path / "minute.jsonl")
    listed = recorded.about(recording)
    assert listed["since"] == "2027-01-15 08:00:00 UTC" and listed["all"] == 3
    assert [one["key"][3] for one in listed["sockets"]] == [f"198.51.100.{n}:5000" for n in (1, 2, 3)]
    answers = Answers(recording=recording)
    (first,) = answers.answer_socket(listed["sockets"][0]["key"])
    assert [one[1:] for one in first["verdicts"]] == [(0, 20), (20, 40), (40, 60)] and first["off"] == [(20, 40)]
    assert first["samples"]["rate_mbps"][19:21] == [19.0, 5.0] and len(first["samples"]["time_s"]) == 60
    said = " ".join(first["sentences"])
    assert "network-limited for 40 of 60 s: " in said and "cpu-limited for 20 of 60 s: " in said
    assert "in 20 of 20 sweeps: the CPU is taken away (50% steal)" in said
    (ended,) = answers.answer_socket(listed["sockets"][2]["key"])
    assert [one[1:] for one in ended["verdicts"]] == [(0, 10), (49, 50)]  # what was not seen has no verdict
    for key in ([], ["", 0, "192.0.2.1:443", "no-such"], [1, 2, 3, 4], ["", True, "", ""], "socket", None):
        with pytest.raises(BadInput, match="socket"):
            list(answers.answer_socket(key))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no recording is open"):
        list(Answers().answer_socket(listed["sockets"][0]["key"]))


def test_a_recording_of_threads_is_refused_with_the_command_that_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"thread": [7], "vcpu": [0], "kind": ["off"], "start_s": [0.0], "duration_ms": [1.0]}
    pl.DataFrame(row).write_parquet(tmp_path / "vm.parquet")
    line = refused(capsys, "explore", str(tmp_path / "vm.parquet"))
    assert "has threads, and the page shows sockets; `brobust trace" in line


@pytest.mark.virtual
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium; `scripts/setup.sh browser` installs it")
def test_a_recording_is_shown_in_the_page_and_what_it_names_stays_text(tmp_path: Path) -> None:
    with _served(Answers(recording=_recording(tmp_path / "minute.jsonl"))) as server, Browser(tmp_path) as browser:
        for width, dark in ((1280, False), (390, True)):
            browser.open(f"{server.url}&{width}", width, dark=dark)
            browser.wait("document.querySelectorAll('#charts canvas').length === 3")  # of columns that have values
            assert "cpu-limited for 20 of 60 s" in browser.run("pick('words').textContent")
            assert browser.run("[...document.querySelectorAll('#results tr')].length") == 4
            assert browser.run("document.documentElement.scrollWidth") <= width
        browser.run("document.querySelector('#sockets select').focus()")
        browser.press("ArrowDown", 40)
        browser.wait("/^network-limited for 60 of 60 s/.test(pick('words').textContent)")
        assert "<b>shop</b>" in browser.run("pick('status').textContent")
        assert browser.run("document.querySelector('#sockets b, #status b')") is None
