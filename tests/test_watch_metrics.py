"""`brobust watch --serve`: what Prometheus gets, the service that serves it, and the dashboard that shows it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as openmetrics

from brobust.errors import BadInput
from brobust.watch import CAUSES, metrics
from brobust.watch.metrics import MAX_CONTROLS, Address, Metrics, serving
from conftest import BROBUST, json_lines, refused
from test_watch import FAST, connection

Brobust = Callable[..., subprocess.CompletedProcess[str]]
HERE = Path(__file__).parents[1]
UNIT = HERE / "packaging" / "brobust-watch.service"
DASHBOARD = HERE / "packaging" / "brobust-watch.json"

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""The header with which Prometheus asks for OpenMetrics."""
OLDER = "text/plain;version=0.0.4"

BOUNDS = {"rate_mbps": [0.1, 1.0, 10.0], "inflight_bdp": [0.5, 1.0]}


def _count(cc: str, cause: str, sockets: int) -> dict[str, Any]:
    """Return a line of `counts` for sockets of 4 Mbit/s with 0.75 BDP in flight."""
    return {
        "cc": cc,
        "cause": cause,
        "sockets": sockets,
        "rate_mbps": {"counts": [0, 0, sockets, 0], "sum": 4.0 * sockets},
        "inflight_bdp": {"counts": [0, sockets, 0], "sum": 0.75 * sockets},
    }


def _report(*counts: dict[str, Any], **changed: Any) -> dict[str, Any]:
    flow = {
        "local": "192.0.2.1:443",
        "remote": "[2001:db8::1]:5000",
        "interface": 0,
        "netns": "",
        "cc": "bbr",
        "cause": "cpu-limited",
        "rate_mbps": 4.0,
        "inflight_bdp": 0.75,
        "deficit_share": None,
    }
    report = {
        "sweep": 1,
        "host": {"steal_share": 0.25, "late_share": 0.5, "busiest_share": 0.75, "pressure_share": 0.125},
        "counts": list(counts),
        "bounds": BOUNDS,
        "unread": [],
        "unread_host": 0,
        "interrupted": 0,
        "took_ms": 20.0,
        "cpu_ms": 10.0,
        "flows": [flow],
    }
    return report | changed


def scrape(address: Address, accept: str = OPENMETRICS) -> str:
    """Return the body of a scrape, without any proxy that the environment names."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    try:
        connection.request("GET", "/metrics", headers={"Accept": accept})
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"].split(";")[0] == accept.split(";")[0]
        return response.read().decode()
    finally:
        connection.close()


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in openmetrics.text_string_to_metric_families(text)}


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and the labels' values, in the order of the labels' names."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in families(text).values()
        for sample in family.samples
    }


def shown(*reports: dict[str, Any], per_socket: bool = False, accept: str = OPENMETRICS) -> str:
    """Return what a scrape gets after these sweeps."""
    shows = Metrics(per_socket)
    for report in reports:
        shows.update(report)
    with serving(shows, Address("127.0.0.1", 0)) as address:
        return scrape(address, accept)


@contextmanager
def served(*arguments: str, before: Sequence[str] = ()) -> Iterator[Address]:
    """Serve with the command, on a port that the kernel chooses."""
    command = [*before, BROBUST, "watch", "--serve", "127.0.0.1:0", *FAST, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(r"serving metrics on http://127\.0\.0\.1:(\d+)/metrics; stop it with Ctrl-C\n", line)
        try:
            assert match, line
            yield Address("127.0.0.1", int(match[1]))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 130


def test_sockets_are_counted_by_control_and_cause() -> None:
    text = shown(_report(_count("bbr", "cpu-limited", 3), _count("cubic", "network-limited", 2)))
    got = samples(text)
    # The labels are cause and cc.
    assert got["brobust_sockets", "cpu-limited", "bbr"] == 3
    assert got["brobust_sockets", "network-limited", "cubic"] == 2
    for cc in ("bbr", "cubic"):
        assert {cause for name, cause, of in (key for key in got if key[0] == "brobust_sockets") if of == cc} == {
            *CAUSES
        }
    assert got["brobust_sockets", "cpu-limited", "cubic"] == 0
    assert got["brobust_socket_rate_bits_per_second_gcount", "cpu-limited", "cubic"] == 0


def test_distributions_are_cumulative_and_in_base_units() -> None:
    text = shown(_report(_count("bbr", "cpu-limited", 3)))
    got = samples(text)
    rate = "brobust_socket_rate_bits_per_second"
    buckets = {key[3]: value for key, value in got.items() if key[:3] == (f"{rate}_bucket", "cpu-limited", "bbr")}
    assert buckets == {"100000.0": 0, "1e+06": 0, "1e+07": 3, "+Inf": 3}
    assert got[f"{rate}_gsum", "cpu-limited", "bbr"] == 12e6
    assert got["brobust_socket_inflight_bdp_bucket", "cpu-limited", "bbr", "0.5"] == 0
    assert got["brobust_socket_inflight_bdp_bucket", "cpu-limited", "bbr", "1.0"] == 3
    assert got["brobust_socket_inflight_bdp_gsum", "cpu-limited", "bbr"] == 2.25
    assert families(text)[rate].type == "gaugehistogram"


def test_there_is_a_most_of_controls() -> None:
    counts = [_count(f"control{number:02}", "undecided", number + 1) for number in range(MAX_CONTROLS + 4)]
    got = samples(shown(_report(*counts)))
    controls = {key[2]: value for key, value in got.items() if key[:2] == ("brobust_sockets", "undecided")}
    assert len(controls) == MAX_CONTROLS + 1 and controls["other"] == 1 + 2 + 3 + 4
    assert got["brobust_socket_inflight_bdp_gcount", "undecided", "other"] == 10
    assert "control03" not in controls and controls["control04"] == 5


def test_what_is_not_known_is_absent() -> None:
    text = shown(_report(host={"steal_share": 0.0, "late_share": None, "busiest_share": 0.5, "pressure_share": None}))
    assert {name for name in families(text) if name.startswith("brobust_host_")} == {
        "brobust_host_steal_ratio",
        "brobust_host_busiest_cpu_ratio",
    }


def test_the_latest_sweep_shows_and_counters_add_up() -> None:
    got = samples(shown())
    assert got["brobust_sweeps_total",] == 0 and ("brobust_sweep_seconds",) not in got
    first = _report(_count("bbr", "cpu-limited", 3), interrupted=1)
    second = _report(
        _count("cubic", "undecided", 1),
        sweep=2,
        unread=["/proc/stat", "netns a", "a dump", "a dump"],
        unread_host=1,
        interrupted=2,
        took_ms=30.0,
    )
    got = samples(shown(first, second))
    assert got["brobust_sweeps_total",] == 2
    assert got["brobust_sweep_seconds",] == 0.03
    assert got["brobust_sweep_cpu_seconds_total",] == pytest.approx(0.02)
    assert got["brobust_dumps_interrupted_total",] == 3
    assert (got["brobust_unread_namespaces",], got["brobust_unread_host_files",]) == (1, 1)
    assert {key[2] for key in got if key[0] == "brobust_sockets"} == {"cubic"}


def test_sockets_have_series_of_their_own_only_on_request() -> None:
    assert "brobust_top_socket" not in shown(_report())
    got = samples(shown(_report(), per_socket=True))
    # cause, cc, interface, local, netns, remote
    labels = ("cpu-limited", "bbr", "", "192.0.2.1:443", "", "[2001:db8::1]:5000")
    assert got["brobust_top_socket_rate_bits_per_second", *labels] == 4e6
    assert got["brobust_top_socket_inflight_bdp", *labels] == 0.75
    assert ("brobust_top_socket_deficit_ratio", *labels) not in got


def test_the_same_addresses_on_two_devices_are_two_series() -> None:
    flow = _report()["flows"][0]
    got = samples(shown(_report(flows=[flow | {"interface": number} for number in (3, 4)]), per_socket=True))
    assert {key[3] for key in got if key[0] == "brobust_top_socket_rate_bits_per_second"} == {"3", "4"}


def test_both_text_formats_have_the_same_series() -> None:
    report = _report(_count("bbr", "cpu-limited", 3))
    older = {
        sample.name
        for family in parser.text_string_to_metric_families(shown(report, accept=OLDER))
        for sample in family.samples
    }
    assert older == {name for name, *_ in samples(shown(report))}


@pytest.mark.parametrize("written", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
def test_addresses_are_served(written: str) -> None:
    with serving(Metrics(False), Address.parse(written)) as address:
        assert Address.parse(str(address)) == address and address.port != 0
        assert "brobust_build_info" in scrape(address)


@pytest.mark.parametrize(
    "text", ["9775", ":9775", "127.0.0.1", "::1:9775", "127.0.0.1:65536", "host:http", "[::1]", ""]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"{text!r} is not an address with a port")):
        Address.parse(text)


def _answering() -> int:
    """Return how many connections have a thread."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def _wait_until(condition: Callable[[], bool]) -> None:
    """Wait until it is true; the test's time limit ends the wait."""
    while not condition():
        time.sleep(0.01)


def test_connections_that_ask_nothing_do_not_keep_a_prometheus_out() -> None:
    with serving(Metrics(False), Address("127.0.0.1", 0)) as address, ExitStack() as idle:
        for _ in range(300):
            idle.enter_context(socket.create_connection(address))
        assert "brobust_build_info" in scrape(address)
        assert _answering() <= metrics.MAX_CONNECTIONS


def test_more_connections_than_the_process_may_have_files_blind_nobody() -> None:
    with served(before=("prlimit", "--nofile=100:100")) as address, ExitStack() as idle:
        for _ in range(300):
            idle.enter_context(socket.create_connection(address))
        # These sweeps begin after the connections.
        first = samples(scrape(address))["brobust_sweeps_total",]
        got: dict[tuple[str, ...], float] = {}
        while got.get(("brobust_sweeps_total",), 0) < first + 2:
            got = samples(scrape(address))
        assert ("brobust_host_steal_ratio",) in got and got["brobust_unread_host_files",] == 0


def test_who_never_reads_is_left_and_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = metrics._Server.get_request

    def with_a_small_buffer(server: metrics._Server) -> Any:  # the kernel's default buffer would hold the whole answer
        request, client = accept(server)
        request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return request, client

    monkeypatch.setattr(metrics._Server, "get_request", with_a_small_buffer)
    flow = _report()["flows"][0]
    long = Metrics(per_socket=True)
    long.update(_report(flows=[flow | {"local": f"192.0.2.1:{port}"} for port in range(5000)]))
    with serving(long, Address("127.0.0.1", 0)) as address, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(address)
        slow.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        whole = len(scrape(address, accept=OLDER))
        monkeypatch.setattr(metrics, "MAX_CONNECTION_SECONDS", 0.0)
        _wait_until(lambda: _answering() == 0)
        got = 0
        with suppress(ConnectionResetError):
            while part := slow.recv(65536):
                got += len(part)
    assert got < whole


def test_sockets_of_this_host_are_served_while_sweeps_go_on() -> None:
    with connection() as (client, server), served("--filter", f"sport {client.getsockname()[1]}") as address:
        client.sendall(b"hello")
        server.recv(5)
        # Scrapes follow each other at once; the test's time limit ends the wait.
        got: dict[tuple[str, ...], float] = {}
        while got.get(("brobust_sweeps_total",), 0) < 12:
            text = scrape(address)
            got = samples(text)
    assert sum(value for key, value in got.items() if key[:2] == ("brobust_sockets", "app-limited")) == 1
    assert sum(value for key, value in got.items() if key[0] == "brobust_socket_rate_bits_per_second_gcount") == 1
    assert got["brobust_sweep_seconds",] > 0 and got["brobust_sweep_cpu_seconds_total",] > 0
    # The made-up sweeps of the other tests have all metrics; a real host may have fewer.
    made_up = {name for name, *_ in samples(shown(_report(_count("bbr", "undecided", 1))))}
    real = {name for name, *_ in got}
    assert real <= made_up and all("_host_" in name for name in made_up - real)


def test_a_socket_of_this_host_is_served_by_itself() -> None:
    with connection() as (client, _), served("--per-socket", "--filter", f"sport {client.getsockname()[1]}") as address:
        text = ""
        while "brobust_top_socket_rate" not in text:
            text = scrape(address)
        port = f"127.0.0.1:{client.getsockname()[1]}"
        assert any(key[0] == "brobust_top_socket_rate_bits_per_second" and port in key for key in samples(text))


def test_it_ends_after_so_many_sweeps(brobust: Brobust) -> None:
    done = brobust("watch", "--serve", "[::1]:0", "--count", "2", *FAST)
    assert done.returncode == 0 and re.fullmatch(r"serving metrics on http://\[::1\]:\d+/.*\n", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serve", "9775"], ["--serve", "'9775'", "127.0.0.1:9775"]),
        (["--serve", "no.such.invalid:9775"], ["--serve", "'no.such.invalid'", "name"]),
        (["--serve", f"{'a' * 70}:9775"], ["--serve", "name"]),
        (["--serve", "203.0.113.99:9775"], ["--serve", "203.0.113.99:9775", "this host does not have that address"]),
        (["--serve", "127.0.0.1:9775", "--json"], ["--serve", "--json"]),
        (["--serve", "127.0.0.1:9775", "--once"], ["--serve", "--once"]),
        (["--per-socket"], ["--per-socket", "--serve"]),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    line = refused(capsys, "watch", *arguments)
    assert all(word in line for word in words), line


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused(capsys, "watch", "--serve", address)
    assert address in line and "another program listens there" in line


def test_every_metric_is_in_the_documentation() -> None:
    page = (HERE / "docs" / "watch.md").read_text()
    documented = set(re.findall(r"`(brobust_[a-z_]+)(?:\{[a-z,]+\})?`", page))
    exposed = set()
    for family in families(shown(_report(_count("bbr", "undecided", 1)), per_socket=True)).values():
        exposed.add(family.name + {"counter": "_total", "info": "_info"}.get(family.type, ""))
    assert {name for name in exposed if "_process_" not in name} == documented
    assert "`brobust_process_*`" in page


def _queries() -> list[str]:
    """Return the queries of all panels, and of all variables that Prometheus fills."""
    board = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    variables = [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    return panels + variables


def test_the_dashboard_asks_for_what_is_exposed() -> None:
    queries = _queries()
    asked = {name for query in queries for name in re.findall(r"\bbrobust_\w+", query)}
    report = _report(_count("bbr", "cpu-limited", 3))
    exposed = samples(shown(report))
    assert asked <= {name for name, *_ in exposed}
    assert {"brobust_sockets", "brobust_socket_inflight_bdp_bucket", "brobust_host_late_wakes_ratio"} <= asked
    causes = {
        cause for query in queries for text in re.findall(r'cause!?[=~]+"([^"]+)"', query) for cause in text.split("|")
    }
    assert causes and causes <= {*CAUSES}
    labels = {label for query in queries for text in re.findall(r"by \(([^)]+)\)", query) for label in text.split(", ")}
    assert labels == {"cause", "cc", "le", "instance"}  # Prometheus adds `instance`


def test_the_dashboard_has_its_panels_beside_and_beneath_each_other() -> None:
    board = json.loads(DASHBOARD.read_text())
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    # The dashboard names no data source of ours, and its panels share the time under the pointer.
    sources = {panel["datasource"]["uid"] for panel in board["panels"] if panel["type"] != "row"}
    assert sources == {"${datasource}"} and board["graphTooltip"] == 1


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # systemd-analyze complains if the program does not exist.
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/brobust", str(BROBUST)))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if UNIT.name in line]
    assert verified.returncode == 0 and not complaints, verified.stderr


def test_the_unit_runs_a_command_that_there_is(brobust: Brobust) -> None:
    command = re.search(r"^ExecStart=/usr/local/bin/brobust (.+)$", UNIT.read_text(), re.MULTILINE)
    assert command
    address = command[1].split()[-1]
    assert Address.parse(address) == Address("127.0.0.1", 9775)
    done = brobust(*command[1].replace(address, "127.0.0.1:0").split(), "--count", "1", *FAST)
    assert done.returncode == 0, done.stderr


def _as_nobody(capability: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    only = "-all" if capability is None else f"-all,+{capability.removeprefix('CAP_').lower()}"
    privileges = [f"--{kind}-caps={only}" for kind in ("inh", "ambient")]
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", *privileges]
    return subprocess.run(
        [*command, f"--bounding-set={only}", BROBUST, *arguments], capture_output=True, text=True, cwd="/", timeout=60
    )


@pytest.mark.root
def test_the_unit_has_the_one_capability_that_is_needed(brobust: Brobust) -> None:
    if _as_nobody(None, "--version").returncode != 0:
        pytest.skip("others than root cannot read this Python")
    if json_lines(brobust("watch", "--json", *FAST, "--count", "3").stdout)[-1]["host"]["late_share"] is None:
        pytest.skip("this host gives nobody a priority ahead of ordinary tasks")
    text = UNIT.read_text()
    capabilities = re.findall(r"^(?:AmbientCapabilities|CapabilityBoundingSet)=(.*)$", text, re.MULTILINE)
    assert len(capabilities) == 2 and len(set(capabilities)) == 1
    with connection() as (client, server):
        if "bbr" in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split():
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        client.sendall(b"hello")
        server.recv(5)
        watch = ("watch", "--json", *FAST, "--count", "3", "--filter", f"sport {client.getsockname()[1]}")
        without, granted = (
            json_lines(_as_nobody(capability, *watch).stdout)[-1] for capability in (None, capabilities[0])
        )
    assert without["host"]["late_share"] is None and granted["host"]["late_share"] is not None
    # All other fields of root's sockets are there with and without the capability.
    assert os.geteuid() == granted["flows"][0]["uid"] and granted["flows"][0]["bdp_source"] is not None
    for field in ("uid", "cc", "bdp_source", "cause"):
        assert without["flows"][0][field] == granted["flows"][0][field]
