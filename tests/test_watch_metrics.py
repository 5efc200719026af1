"""`brobust watch --serve`: what Prometheus gets, the service that serves it, and the dashboard that shows it."""

import functools
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric, parser

from brobust.host.programs import host_program
from brobust.watch import CAUSES
from conftest import BROBUST, Brobust, json_lines, refused_by_program
from test_watch import FAST, connection

HERE = Path(__file__).parents[1]
UNIT = HERE / "packaging" / "brobust-watch.service"
DASHBOARD = HERE / "packaging" / "brobust-watch.json"
RULES = HERE / "packaging" / "prometheus" / "brobust-rules.yaml"

Address = tuple[str, int]


def scrape(address: Address) -> str:
    """Return the body of a scrape, without any proxy that the environment names."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return response.read().decode()
    finally:
        connection.close()


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and the labels' values, in the order of the labels' names."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in families(text).values()
        for sample in family.samples
    }


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
            yield "127.0.0.1", int(match[1])
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 130


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


IPV6 = pytest.param("[::1]:0", marks=pytest.mark.skipif(not _has_ipv6(), reason="this host has no IPv6"))


@pytest.mark.parametrize("written", ["127.0.0.1:0", IPV6, "localhost:0"])
def test_addresses_are_served(brobust: Brobust, written: str) -> None:
    done = brobust("watch", "--serve", written, "--count", "1", *FAST)
    host = re.escape(written.removesuffix("0")) if written[0] in "1[" else r"(127\.0\.0\.1|\[::1\]):"
    assert done.returncode == 0 and re.match(rf"serving metrics on http://{host}[1-9]\d*/metrics;", done.stdout), done


def _wait_for_a_sweep(address: Address) -> None:
    """Wait until a sweep has been made; the test's time limit ends the wait."""
    while samples(scrape(address))["brobust_sweeps_total",] == 0:
        time.sleep(0.05)


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


@pytest.mark.root
def test_what_cannot_be_read_is_named_in_the_log() -> None:
    # A file that `ip netns add` has left whose namespace is gone, as after a crash.
    script = 'mount -t tmpfs none /run && mkdir /run/netns && touch /run/netns/stale && exec "$@"'
    watch = [BROBUST, "watch", "--serve", "127.0.0.1:0", "--netns", "all", "--count", "3", *FAST]
    inside = ["unshare", "--mount", "sh", "-c", script, "sh", *watch]
    done = subprocess.run(inside, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("brobust: not read: ") and "network namespace stale: it cannot be entered" in line, line


def test_sockets_of_this_host_are_served_while_sweeps_go_on() -> None:
    with connection() as (client, server), served("--filter", f"sport {client.getsockname()[1]}") as address:
        client.sendall(b"hello")
        server.recv(5)
        # Scrapes follow each other at once; the test's time limit ends the wait.
        got: dict[tuple[str, ...], float] = {}
        while got.get(("brobust_sweeps_total",), 0) < 12:
            text = scrape(address)
            got = samples(text)
    # On a busy machine the application need not be what limits it.
    assert sum(value for key, value in got.items() if key[0] == "brobust_sockets") == 1, text
    assert sum(value for key, value in got.items() if key[0] == "brobust_socket_rate_bits_per_second_gcount") == 1, text
    assert got["brobust_sweep_seconds",] > 0 and got["brobust_sweep_cpu_seconds_total",] > 0
    of_control = sum("cc" in sample.labels for family in families(text).values() for sample in family.samples)
    assert f"series, {of_control} for each control" in (HERE / "docs" / "watch-service.md").read_text()


def test_a_socket_of_this_host_is_served_by_itself() -> None:
    with connection() as (client, _), served("--per-socket", "--filter", f"sport {client.getsockname()[1]}") as address:
        text = ""
        while "brobust_top_socket_rate" not in text:
            text = scrape(address)
        port = f"127.0.0.1:{client.getsockname()[1]}"
        assert any(key[0] == "brobust_top_socket_rate_bits_per_second" and port in key for key in samples(text))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serve", "203.0.113.99:9775"], ["--serve", "203.0.113.99:9775", "this host does not have that address"]),
        (["--serve", "127.0.0.1:9775", "--json"], ["--serve", "--json"]),
        (["--serve", "127.0.0.1:9775", "--once"], ["--serve", "--once"]),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(brobust: Brobust, arguments: list[str], words: list[str]) -> None:
    line = refused_by_program(brobust, "watch", *arguments)
    assert all(word in line for word in words), line


def test_a_port_that_is_taken_is_named(brobust: Brobust) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused_by_program(brobust, "watch", "--serve", address)
    assert address in line and "another program listens there" in line


# A host need not report these, nor have pods (test_watch_pods.py).
OF_PODS = {"brobust_pod_sockets", "brobust_pod_rate_bits_per_second", "brobust_pod_throttled_ratio"}
MAY_BE_ABSENT = {"brobust_host_late_wakes_ratio", "brobust_host_cpu_pressure_ratio", *OF_PODS}


@functools.cache
def _exposed() -> dict[str, Metric]:
    """Return all families that the program exposes here."""
    with connection() as (client, server), served("--per-socket", "--filter", f"sport {client.getsockname()[1]}") as to:
        client.sendall(b"hello")
        server.recv(5)
        _wait_for_a_sweep(to)
        return families(scrape(to))


def test_every_cause_has_a_series_and_buckets_have_the_names_of_other_libraries() -> None:
    shown = [sample for family in _exposed().values() for sample in family.samples]
    assert {sample.labels["cause"] for sample in shown if sample.name == "brobust_sockets"} == {*CAUSES}
    rates = {one.labels["le"] for one in shown if one.name == "brobust_socket_rate_bits_per_second_bucket"}
    assert {"100000.0", "1e+06", "+Inf"} <= rates


def test_every_metric_is_in_the_documentation() -> None:
    page = (HERE / "docs" / "watch-service.md").read_text()
    documented = set(re.findall(r"`(brobust_[a-z_]+)(?:\{[a-z,]+\})?`", page))
    names = {family.name + "_total" * (family.type == "counter") for family in _exposed().values()}
    exposed = {name for name in names if not name.endswith(("_gcount", "_gsum"))}
    assert exposed | MAY_BE_ABSENT == documented


def _queries() -> list[str]:
    """Return the queries of all panels, and of all variables that Prometheus fills."""
    board = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    variables = [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    return panels + variables


def test_the_dashboard_asks_for_what_is_exposed() -> None:
    queries = _queries()
    asked = {name for query in queries for name in re.findall(r"\bbrobust_\w+", query)}
    exposed = {sample.name for family in _exposed().values() for sample in family.samples}
    assert asked <= exposed | MAY_BE_ABSENT
    assert {"brobust_sockets", "brobust_socket_inflight_bdp_bucket", "brobust_host_late_wakes_ratio"} <= asked
    causes = {
        cause for query in queries for text in re.findall(r'cause!?[=~]+"([^"]+)"', query) for cause in text.split("|")
    }
    assert causes and causes <= {*CAUSES}
    labels = {label for query in queries for text in re.findall(r"by \(([^)]+)\)", query) for label in text.split(", ")}
    # Prometheus adds `instance`, and whoever runs it `cluster`.
    assert labels == {"cause", "cc", "le", "cluster", "instance", "namespace", "pod", "container"}
    board = json.loads(DASHBOARD.read_text())
    variables = [variable["name"] for variable in board["templating"]["list"]]
    assert variables == ["datasource", "cluster", "instance", "namespace", "pod"]
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            selectors = re.findall(r"brobust_\w+\{([^}]*)\}", target["expr"])
            assert len(selectors) == len(re.findall(r"\bbrobust_\w+", target["expr"])) > 0, target["expr"]
            for selector in selectors:
                chosen = ["cluster", "instance"] + ["namespace", "pod"] * ("_pod_" in target["expr"])
                assert all(f'{name}=~"${name}"' in selector for name in chosen), target["expr"]


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_the_rules_ask_for_what_is_exposed_and_what_they_record() -> None:
    recorded = {rule["record"] for rule in _rules() if "record" in rule}
    exposed = {sample.name for family in _exposed().values() for sample in family.samples}
    for rule in _rules():
        asked = set(re.findall(r"(?<![\w:])[a-z_]*:?brobust_[\w:]+", rule["expr"]))
        assert asked <= exposed | MAY_BE_ABSENT | recorded, rule
        causes = {text for found in re.findall(r'cause!?[=~]+"([^"]+)"', rule["expr"]) for text in found.split("|")}
        assert causes <= {*CAUSES}
    page = (HERE / "docs/watch-service.md").read_text()
    assert recorded and all(f"`{name}`" in page for name in recorded)


def test_every_alert_links_to_a_paragraph_of_the_runbook_and_is_tested() -> None:
    runbook = (HERE / "docs/watch-service.md").read_text().partition("\n## Runbook\n")[2]
    tested = (RULES.parent / "brobust-rules-test.yaml").read_text()
    alerts = [rule for rule in _rules() if "alert" in rule]
    assert runbook.count("\n### ") == len(alerts) > 0
    for alert in alerts:
        name = alert["alert"]
        assert alert["annotations"]["runbook_url"] == f"https://brobust.invalid/watch-service.html#{name.lower()}"
        assert f"### {name}\n" in runbook and "- exp_labels" in tested.partition(f"alertname: {name}\n")[2][:60]
        assert alert["labels"]["severity"] in ("info", "warning") and alert["for"]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (96 MB); `make dist-test` fetches and runs it"
)
def test_the_rules_pass_their_tests() -> None:
    tested = subprocess.run(
        ["promtool", "test", "rules", RULES.parent / "brobust-rules-test.yaml"], capture_output=True
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr


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
    unit.write_text(UNIT.read_text().replace("/usr/bin/brobust", str(BROBUST)))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if UNIT.name in line]
    assert verified.returncode == 0 and not complaints, verified.stderr


def test_the_unit_runs_a_command_that_there_is(brobust: Brobust) -> None:
    command = re.search(r"^ExecStart=/usr/bin/brobust (.+)$", UNIT.read_text(), re.MULTILINE)
    assert command
    address = command[1].split()[-1]
    assert address == "127.0.0.1:9775"
    done = brobust(*command[1].replace(address, "127.0.0.1:0").split(), "--count", "1", *FAST)
    assert done.returncode == 0, done.stderr


def test_the_service_begins_again_whoever_has_ended_it_but_systemd() -> None:
    command = [BROBUST, "watch", "--serve", "127.0.0.1:0", *FAST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        status = process.wait(60)
    settings = dict(re.findall(r"^(Restart|SuccessExitStatus)=(.+)$", UNIT.read_text(), re.MULTILINE))
    # To systemd this is no failure, since it is the same when systemd stops it.
    assert settings == {"SuccessExitStatus": str(status), "Restart": "always"}


def _as_nobody(capability: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    only = "-all" if capability is None else f"-all,+{capability.removeprefix('CAP_').lower()}"
    privileges = [f"--{kind}-caps={only}" for kind in ("inh", "ambient")]
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", *privileges]
    command += [f"--bounding-set={only}", str(host_program()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)


@pytest.mark.root
def test_the_unit_has_the_one_capability_that_is_needed(brobust: Brobust) -> None:
    if _as_nobody(None, "--version").returncode != 0:
        pytest.skip("others than root cannot read the program")
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
