"""Servers as senders in virtual time: who waits and who asks, and what clients told of their requests."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

import brobust
from brobust import api, quic
from brobust.dataset import Dataset
from brobust.errors import BadInput, RunFailed
from brobust.kernels import our_files
from brobust.report import explanation
from brobust.scenario import Grid, Run
from brobust.virtual import programs, requests
from conftest import BROBUST
from test_programs import compiled

ASK = "brobust-client get http://{sender}:{port}/ --rate 50 --for {seconds}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("servers") / "page_server", "page_server", "-static")


def run(server: Path, words: str = "", receiver: str = ASK, **more: Any) -> brobust.Result:
    of_programs = {"sender": f"{server} {{port}} 20000 {words}", "receiver": receiver, "waits": "sender"}
    path = {"bandwidth": "20mbit", **more.pop("path", {})}
    return brobust.run({"path": path, "duration": "1s", "programs": of_programs, **more})


class TestRequests:
    def told(self, *completion_ms: float | None, status: int = 200) -> dict[str, Any]:
        of_all = (
            {"due_s": 0.1, "first_byte_ms": 1.0, "completion_ms": ms, "bytes": 9, "status": status}
            for ms in completion_ms
        )
        lines = [json.dumps({"request": one}).encode() + b"\n" for one in of_all]
        return {"flow": 0, "stdout": b"begins\n" + b"".join(lines) + b"ends\n"}

    def figures(self, *ended: dict[str, Any]) -> dict[str, Any]:
        scenario = Grid.from_flags({"duration": "2s"}).scenarios[0]
        return requests.figures(requests.taken_out(list(ended), Run(scenario, 0)), scenario)

    def test_they_are_taken_out_of_what_a_program_printed(self) -> None:
        ended = self.told(2.0, 4.0)
        found = self.figures(ended)
        assert ended["stdout"] == b"begins\nends\n"
        assert (found["requests"], found["requests_answered"], found["requests_per_s"]) == (2, 2, 1)

    def test_quantiles_are_of_all_of_them_and_one_without_an_answer_took_longest(self) -> None:
        found = self.figures(self.told(*map(float, range(1, 100)), None))
        assert (found["requests"], found["requests_answered"]) == (100, 99)
        assert found["request_median_ms"] == 50
        assert found["request_p99_ms"] == 99 and found["request_p999_ms"] is None

    def test_an_answer_that_is_an_error_is_none(self) -> None:
        found = self.figures(self.told(1.0, status=503))
        assert found["requests_answered"] == 0 and found["request_median_ms"] is None

    def test_json_may_have_spaces_or_none(self) -> None:
        told = self.told(2.0, 4.0)
        compact = [line.replace(b" ", b"") for line in told["stdout"].splitlines(keepends=True)]
        spaced = b'  { "request" : {"due_s":1,"first_byte_ms":null,"completion_ms":null,"bytes":0,"status":null} }\n'
        ended = {"flow": 0, "stdout": b"".join(compact) + spaced}
        assert self.figures(ended)["requests"] == 3 and ended["stdout"] == b"begins\nends\n"

    def test_an_answer_whose_first_byte_nobody_saw_has_no_time_of_it(self) -> None:
        told = self.told(1.0, 2.0, 3.0)
        told["stdout"] = told["stdout"].replace(b'"first_byte_ms": 1.0', b'"first_byte_ms": null', 1)
        assert self.figures(told)["first_byte_median_ms"] == 1.0

    def test_a_program_that_the_end_cut_off_has_not_told_of_all(self) -> None:
        ended: list[dict[str, Any]] = [{**self.told(1.0), "words": ["/bin/ask"], "at_receiver": True, "ended_ns": 2}]
        requests.taken_out(ended, Run(Grid.from_flags({}).scenarios[0], 0))
        requests.check_all_are_told(ended)
        ended[0]["ended_ns"] = None
        with pytest.raises(
            RunFailed,
            match=r"at the receiver of flow 0 \(ask\) had not ended when the run did, .*; end it earlier by its own",
        ):
            requests.check_all_are_told(ended)

    def test_without_any_there_are_no_figures(self) -> None:
        assert self.figures({"flow": 0, "stdout": b"a line\n"}) == {}

    @pytest.mark.parametrize("line", [b"{}}", b'{"due_s": null}}', b'{"due_s": 1, "status": "x"}}', b""])
    def test_a_line_that_is_no_request_is_refused_in_one_line(self, line: bytes) -> None:
        with pytest.raises(
            RunFailed, match=r"^a program printed .* it needs due_s, first_byte_ms, .* null \(docs/servers\.md\)$"
        ):
            self.figures({"flow": 0, "stdout": b'{"request": ' + line + b"\n"})

    @pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e300", b"1" + b"0" * 400, b"[" * 10**5])
    def test_a_number_that_no_request_can_have_is_refused_in_one_line(self, number: bytes) -> None:
        self.test_a_line_that_is_no_request_is_refused_in_one_line(
            b'{"due_s": 1, "first_byte_ms": null, "completion_ms": null, "status": null, "bytes": ' + number + b"}}"
        )


def test_the_example_of_a_key_is_the_same_every_day_and_valid_when_virtual_time_begins(tmp_path: Path) -> None:
    subprocess.run(["sh", our_files.directory("examples/key.sh")], cwd=tmp_path, check=True)

    def openssl(*words: str) -> str:
        return subprocess.run(["openssl", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert openssl("x509", "-in", "cert.pem", "-noout", "-startdate") == "notBefore=Jan  1 00:00:00 1970 GMT\n"
    assert openssl("verify", "-CAfile", "cert.pem", "-attime", "1798761715", "cert.pem") == "cert.pem: OK\n"
    assert openssl("x509", "-in", "cert.pem", "-noout", "-pubkey") == openssl("pkey", "-in", "key.pem", "-pubout")


def test_who_waits_is_one_of_the_two_ends_and_says_nothing_by_default() -> None:
    given = {"programs": {"sender": "a", "receiver": "b"}}
    before = Grid.from_flags(given).scenarios[0]
    assert before.programs.waits is None and before.hash == "161933fd246c"
    with pytest.raises(
        BadInput, match=r"programs\.waits: 'both' is not allowed: input should be 'sender' or 'receiver'"
    ):
        Grid.from_flags({"programs": {**given["programs"], "waits": "both"}})


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (
            "get http://{sender}:{port}/ --for 10m",
            "invalid value '10m' for '--for <TIME>': give a time of at most 3600s",
        ),
        ("get https://{sender}:{port}/", '"https://10.0.0.1:5201/" does not begin with http://'),
        ("get http://{sender}/ --rate 5", "has no port"),
        ("get http://{sender}:{port}/ --rate 0", "--rate: 0 is not above 0"),
        ("fetch http://{sender}:{port}/", "unrecognized subcommand 'fetch'"),
        ("get", "the following required arguments were not provided: <URL>"),
    ],
)
def test_what_our_client_would_refuse_in_every_run_is_refused_in_one_line(words: str, refusal: str) -> None:
    with pytest.raises(BadInput, match=r"^programs\.receiver: brobust-client: ") as refused:
        programs.check_client("programs.receiver", f"brobust-client {words}", 4)
    assert refusal in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("words", ["{seconds}", "2.5s --patience 500ms --fresh"])
def test_what_our_client_takes_is_let_pass_and_it_asks_nothing(words: str) -> None:
    for version in (4, 6):
        programs.check_client("programs.sender", f"{ASK.replace('{seconds}', words)}", version)
    programs.check_client("programs.sender", "nginx -g x", 4)


@pytest.mark.virtual
class TestRuns:
    def test_what_our_client_would_refuse_begins_no_run(self, server: Path) -> None:
        with pytest.raises(BadInput, match="brobust-client: invalid value '10m' for '--for <TIME>'"):
            run(server, receiver=ASK.replace("{seconds}", "10m"))

    def test_a_server_that_sends_is_asked_and_the_same_run_sends_the_same_packets(self, server: Path) -> None:
        first, again = (run(server, contention={"share": 0.5}) for _ in range(2))
        assert first.runs["packet_hash"].to_list() == again.runs["packet_hash"].to_list()
        assert first.requests.equals(again.requests)
        (row,) = first.runs.iter_rows(named=True)
        assert row["requests"] == row["requests_answered"] == len(first.requests) > 25
        assert first.requests["bytes"].unique().to_list() == [20000]
        # Twice a round trip of 10 ms, and at 20 Mbit/s 20 kB take 8 ms.
        assert 10 + 8 <= first.requests["completion_ms"].min() <= row["request_median_ms"] <= row["request_p99_ms"]
        assert set(first.connections["sender_port"]) == {5201} and set(first.connections["flow"]) == {0}
        assert row["throughput_mbps"] == pytest.approx(row["requests"] * 20000 * 8e-6, rel=0.1)

    def test_flows_are_told_apart_by_the_port_at_which_the_server_waits(self, server: Path) -> None:
        result = run(server, flows=[{"cc": "bbr"}, {"cc": "bbr"}], path={"ip_version": 6})
        assert set(result.connections.select("flow", "sender_port").iter_rows()) == {(0, 5201), (1, 5202)}
        assert set(result.requests["flow"]) == {0, 1}

    def test_a_run_begins_when_the_server_listens(self, server: Path) -> None:
        result = run(server, "late")
        assert 0 < result.connections["first_s"].min() < 0.2
        assert result.runs["requests_answered"][0] > 25

    def test_the_receiver_may_be_the_one_who_is_waited_for(self, server: Path) -> None:
        of_programs = {"sender": ASK.replace("{sender}", "{receiver}"), "receiver": f"{server} {{port}} 20000 late"}
        result = brobust.run({"duration": "1s", "programs": {**of_programs, "waits": "receiver"}})
        assert result.runs["requests_answered"][0] > 25 and set(result.connections["receiver_port"]) == {5201}

    def test_a_server_may_send_by_sendfile_without_copies_and_by_io_uring(self, server: Path) -> None:
        result = run(server, "mixed", ASK.replace("--rate 50", "--rate 20"))
        assert result.runs["requests_answered"][0] == len(result.requests) > 10
        assert result.programs["stderr"].to_list() == ["", ""]

    @pytest.mark.parametrize(
        ("words", "refusal"),
        [
            ("never", r"page_server at the sender 1 does not listen after 32 s of virtual time, and programs\.waits "),
            ("ends", r"page_server at the sender 1 ended with status 0, and nothing listens, and programs\.waits says"),
            ("forks", r"page_server and others are more than 2048 processes and threads"),
            ("dies", r"sender of flow 0 \(page_server\) ended with status 3, 1\.000 s before the run: no page$"),
            ("error", r"\(brobust-client\) ended with status 1 .*: none of \d+ requests .*; the first: status 503$"),
            ("silent", r"\(brobust-client\) ended .*: none of \d+ requests was answered; the first: it did not end$"),
        ],
    )  # fmt: skip
    def test_what_a_server_does_wrong_is_one_line(self, server: Path, words: str, refusal: str) -> None:
        with pytest.raises(RunFailed, match=refusal) as failure:
            run(server, words)
        assert "\n" not in str(failure.value)

    def test_each_request_has_its_own_connection_if_that_was_asked_for(self, server: Path) -> None:
        """This server keeps connections, whatever it is asked."""
        result = run(server, receiver=f"{ASK} --fresh")
        assert len(result.connections) == result.runs["requests_answered"][0] > 25

    def test_an_answer_without_a_body_is_whole(self, server: Path) -> None:
        result = run(server, "empty")
        assert result.runs["requests_answered"][0] == len(result.requests) > 25

    def test_there_is_room_for_as_many_connections_as_are_allowed(self, server: Path) -> None:
        with pytest.raises(RunFailed, match=r"none of \d+ requests was answered; the first: it did not end$"):
            run(server, "silent", ASK.replace("--rate 50", "--rate 2000 --connections 2500"))

    def test_a_client_that_is_cut_off_makes_no_figures(self, server: Path) -> None:
        with pytest.raises(RunFailed, match=r"\(brobust-client\) had not ended when the run did, so nobody knows"):
            run(server, receiver=ASK.replace("{seconds}", "9"))

    def test_of_a_server_it_is_explained_why_requests_take_long(self, server: Path) -> None:
        """It carries what it is asked for with a quarter of its CPU, too."""
        fields: dict[str, Any] = {"contention": {"share": 0.25}, "duration": "2s", "flows": [{"cc": "bbr"}]}
        result = run(server, path={"bandwidth": "100mbit", "buffer": "4bdp"}, **fields)
        found = api.explain(result, result.run)
        took, tried = result.runs["request_median_ms"][0], found.tried_request_ms
        assert found.causes == ["cpu"] and found.tried["--share 1"] < 1.2 * found.throughput_mbps
        assert (found.requests, found.request_ms) == (len(result.requests), took)
        assert took > 1.2 * tried["--share 1"]
        said = explanation.sentences(found)
        assert f"asked {found.requests} times, and they took {took:.3g} ms in the median" in said[1]
        assert (
            said[-1].startswith("The median request, measured with one change, ms: ") and "--cc bbr_steady" in said[-1]
        )

    def test_a_client_that_hangs_ends_with_the_run(self, server: Path) -> None:
        result = run(server, receiver="sleep 100")
        assert result.programs["ended_s"].to_list() == [None, None] and math.isfinite(result.runs["wall_s"][0])

    def test_the_command_line_shows_the_times_and_keeps_each_request(self, server: Path, tmp_path: Path) -> None:
        sender, options = f"{server} {{port}} 20000", ["--waits", "sender", "--duration", "1s", "--repeat", "1"]
        command = [BROBUST, "run", "--sender-program", sender, "--receiver-program", ASK, *options, "--share", "1"]
        shown = subprocess.run(
            [*command, "--out", "a"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout  # fmt: skip
        assert "req/s" in shown and "p99 ms" in shown and '{"request"' not in shown
        told = Dataset.open(tmp_path / "a").requests()
        assert len(told) > 25 and told["status"].unique().to_list() == [200]


@pytest.mark.virtual
def test_visitors_of_pages_over_http3_send_the_same_packets_again() -> None:
    built = [quic.find(name) for name in ("quinn-h3", "pages")]
    if any(one.state != "built" for one in built):
        pytest.skip("`brobust quic build quinn-h3 pages`")
    ask = "brobust-pages -protocol 3 -objects 5 -for 0.5 -patience 0.4 https://{sender}:{port}/"
    of_programs = {"sender": "brobust-quinn-h3 serve {port} {cc} 20000", "receiver": ask, "waits": "sender"}
    scenario = {"duration": "1s", "path": {"bandwidth": "100mbit", "buffer": "4bdp"}, "programs": of_programs}
    first, again = (brobust.run(scenario) for _ in range(2))
    assert first.runs["packet_hash"].to_list() == again.runs["packet_hash"].to_list()
    # A visitor is one connection, and asks for all objects at once.
    pages = first.requests["due_s"].n_unique()
    assert first.connections["protocol"].to_list().count("udp") == pages > 1
    assert first.runs["requests_answered"][0] == len(first.requests) == 5 * pages


@pytest.mark.virtual
def test_a_repair_beside_the_kernels_bbr_is_one_for_each_of_a_servers_connections(server: Path) -> None:
    """Ours and the kernel's BBR decide alike, so their repairs do: also where one flow has many connections."""
    ask = f"{ASK} --fresh"
    sent = {}
    for cc in ("bbr", "bbr_steady", "brb_bbr1_steady"):
        result = run(server, receiver=ask, duration="2s", flows=[{"cc": cc}], contention={"share": 0.25})
        sent[cc] = result.runs["packet_hash"][0]
    assert sent["bbr_steady"] == sent["brb_bbr1_steady"] != sent["bbr"]
