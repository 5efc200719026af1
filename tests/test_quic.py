"""QUIC stacks as senders: their names, what is refused, and what they send. Building one takes minutes, so the runs are
skipped where none is built; `brobust quic build quinn` builds one."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import brobust as package
from brobust import quic
from brobust.backends import virtual
from brobust.errors import BadInput, MissingSupport
from brobust.host.locks import locked
from brobust.kernels import our_files
from brobust.kernels.toolchain import BuildFailed
from brobust.quic import build, qlog
from brobust.scenario import Grid
from brobust.testbed import traffic
from brobust.virtual import programs
from conftest import BROBUST, json_lines

LOCKS = {"cargo": "Cargo.lock", "go": "go.sum"}


@pytest.fixture
def nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    return tmp_path


def _cargo(directory: Path, monkeypatch: pytest.MonkeyPatch, before: str = "") -> Path:
    """Put a cargo into PATH that builds quinn by a copy, after these commands."""
    cargo = directory / "bin/cargo"
    cargo.parent.mkdir()
    release = "$CARGO_TARGET_DIR/release"
    cargo.write_text(f'#!/bin/sh\n{before}\nmkdir -p "{release}"\ncp "$3" "{release}/brobust-quinn"\n')
    cargo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}/bin:/usr/bin:/bin")
    return cargo


class TestStacks:
    @pytest.mark.parametrize("stack", [*quic.STACKS.values(), *quic.WEB.values()], ids=[*quic.STACKS, *quic.WEB])
    def test_its_files_pin_the_version_that_it_names(self, stack: quic.Stack) -> None:
        assert LOCKS[stack.tool] in stack.sources
        text = stack.sources["go.mod" if stack.tool == "go" else "Cargo.toml"].read_text()
        assert re.search(rf'{re.escape(stack.package)}\W+(version = )?[v"=]*{re.escape(stack.version)}\b', text)

    @pytest.mark.parametrize("stack", [one for one in quic.STACKS.values() if not one.base], ids=lambda one: one.name)
    def test_its_row_on_the_page_has_its_version_and_its_controls(self, stack: quic.Stack) -> None:
        page = (Path(__file__).parents[1] / "docs/quic.md").read_text()
        row = next((line for line in page.splitlines() if line.startswith(f"| `{stack.name}` | ")), "")
        lacking = [word for word in (stack.version, *stack.controls) if not re.search(rf"\b{re.escape(word)}\b", row)]
        assert lacking == [], f"the table of docs/quic.md has a row for {stack.name}, as quic/__init__.py describes it"

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"traffic": "quic:nix"}, r"'quic:nix' names no QUIC stack; there are quic:quinn"),
            ({"traffic": "quic:qinn"}, r"'quic:qinn' names no QUIC stack; did you mean quic:quinn\?"),
            ({"traffic": "quic:quinn-h3"}, r"is no traffic, but a program for \[programs\]: brobust-quinn-h3 \(docs/"),
            ({"traffic": "quinn gso=off"}, r"'quinn gso=off' is no traffic; did you mean quic:quinn\?"),
            ({"traffic": "program"}, r"'program' is no traffic; did you mean programs\?"),
            ({"traffic": "tcp"}, r"'tcp' is no traffic; there are brobust, iperf3, programs, quic:quinn"),
            ({"traffic": "quic:quinn gso=no"}, r"after quinn there may be gso=off, or nothing"),
            ({"traffic": "quic:quiche gso=off gso=on"}, r"after quiche there may be gso=off and txtime=on, or nothing"),
            ({"traffic": "quic:tquic gso=off"}, r"after tquic there may be nothing"),
            ({"traffic": "quic:quinn", "flows": [{"cc": "vegas"}]}, r"^cc: quinn 0\.\S+ has no vegas; it has bbr, "),
            ({"traffic": "quic:quinn", "flows": [{"cc": "bbr", "pattern": "rate 1mbit"}]}, r"quic:quinn give bulk"),
            ({"traffic": "quic:quinn", "backend": "vm", "flows": [{"cc": "bbr", "count": 2}]}, r"is one flow"),
            ({"traffic": "quic:quinn", "backend": "vm", "flows": [{"cc": "bbr"}], "samples": "9ms"}, r"there are none"),
        ],
    )  # fmt: skip
    def test_what_it_does_not_have_is_refused(self, given: dict[str, Any], words: str) -> None:
        with pytest.raises(BadInput, match=words):
            package.run({"duration": "1s", **given})

    def test_it_is_found_by_its_name_as_traffic_and_as_a_program(self) -> None:
        assert quic.find("quic:quinn") is quic.find("quinn") is quic.STACKS["quinn"]
        assert quic.find("brobust-pages") is quic.find("pages") is quic.WEB["brobust-pages"]
        with pytest.raises(BadInput, match=r"'quinn-peacer' is not a QUIC stack .* knows; did you mean quinn-pacer\?$"):
            quic.find("quinn-peacer")
        with pytest.raises(BadInput, match=r"'msquic' is not a QUIC stack .* knows; there are quinn, s2n-quic, "):
            quic.find("msquic")

    @pytest.mark.parametrize(
        ("traffic", "controls"),
        [
            ("quic:quinn", {"cubic", "bbr"}),
            (["brobust", "quic:quiche txtime=on", "quic:s2n-quic"], {"cubic", "bbr"}),
            ("quic:quiche-kept", {"bbr"}),
            ("quic:s2n-quic-kept", {"bbr"}),
            ("quic:quic-go", {"reno"}),
            (["quic:quinn", "quic:quic-go"], {"reno"}),
        ],
    )
    def test_without_cc_it_has_the_usual_controls_that_it_knows(self, traffic: object, controls: set[str]) -> None:
        assert {one.flows[0].cc for one in Grid.from_flags({"traffic": traffic}).as_written} == controls
        with pytest.raises(BadInput, match="has no bbr_steady"):
            Grid.from_flags({"traffic": traffic, "flows": {"cc": "bbr_steady"}})

    def test_stacks_without_a_control_in_common_are_refused_with_those_that_each_has(self, tmp_path: Path) -> None:
        said = r"^traffic: quic:quic-go \(reno\) and quic:quinn-rate \(bbr\) have no cc in common; measure each of them"
        with pytest.raises(BadInput, match=said):
            Grid.from_flags({"traffic": ["quic:quinn-rate", "quic:quic-go"]})
        file = tmp_path / "rate.toml"
        file.write_text('traffic = "quic:quinn-rate"')
        of_option = Grid.from_flags({"traffic": "quic:quic-go"}, file).as_written
        assert {one.flows[0].cc for one in of_option} == {"reno"}, "the option replaces the file's"

    def test_gso_is_a_part_of_the_traffic(self) -> None:
        both = Grid.from_flags(
            {"traffic": ["quic:quinn", "quic:quinn gso=off"], "flows": [{"cc": "bbr"}], "contention": {"share": 1}}
        ).scenarios
        assert [quic.of_traffic(one.traffic) for one in both] == [
            (quic.STACKS["quinn"], ()), (quic.STACKS["quinn"], ("gso=off",)),
        ]  # fmt: skip
        assert both[0].hash != both[1].hash
        assert quic.traffic("quic:quiche txtime=on gso=off") == "quic:quiche gso=off txtime=on"

    def test_one_that_is_not_built_names_the_command(self, nothing_built: Path) -> None:
        with pytest.raises(MissingSupport, match=r"quic:quinn is not built; `brobust quic build quinn` builds it"):
            quic.commands(quic.STACKS["quinn"], ())
        every = [quic.STACKS[name] for name in ("quinn", "quiche")]
        with pytest.raises(
            MissingSupport, match=r"quinn and quic:quiche are not built; `brobust quic build quinn quiche`"
        ):
            quic.check_built(every)
        with pytest.raises(MissingSupport, match=r"brobust-pages is not built, .*; run `brobust quic build pages`$"):
            programs.commands("sleep 1", "brobust-pages https://{sender}:{port}/", ())

    @pytest.mark.virtual
    def test_a_series_names_all_that_are_not_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quic.Stack, "state", "missing")
        given = {"traffic": ["quic:quinn", "quic:quiche gso=off", "brobust"], "flows": [{"cc": "cubic"}]}
        with pytest.raises(MissingSupport, match=r"; `brobust quic build (quinn quiche|quiche quinn)` builds them$"):
            virtual.check(Grid(given).scenarios)


class TestBuild:
    def test_a_missing_tool_is_refused_in_one_line(self, nothing_built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(nothing_built))
        for stack in quic.STACKS.values():
            with pytest.raises(MissingSupport, match=rf"it needs {stack.tool}, which is not here; install "):
                build.build(stack, print)

    def test_what_a_build_leaves_is_found_until_our_files_change(
        self, nothing_built: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stack = quic.STACKS["quinn"]
        cargo = _cargo(nothing_built, monkeypatch)
        assert build.build(stack, print) > 0
        assert build.build(stack, print) == 0 and stack.state == "built"
        about = quic.directory("quinn") / "built.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "sources": "other"}))
        with pytest.raises(MissingSupport, match="quic:quinn is built from other files than are here now"):
            quic.commands(stack, ())
        stack.program.write_text("damaged")
        assert stack.state == "missing"
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        cargo.write_text('#!/bin/sh\n[ "$LC_ALL" = C ] && word=error || word=Fehler\necho "$word: no network"\nexit 1')
        with pytest.raises(BuildFailed, match=r"cargo failed: error: no network; its log is .*build\.log$"):
            build.build(stack, print)
        assert {file.name for file in quic.directory("quinn").iterdir()} <= {
            "brobust-quinn", "built.json", "build.log", "lock",
        }  # fmt: skip

    def test_a_long_build_says_from_time_to_time_how_far_it_is(
        self, nothing_built: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who watches a log, as in continuous integration, sees that it goes on, and at what it is."""
        _cargo(nothing_built, monkeypatch, 'echo "   Compiling ring v0.17" >&2; sleep 0.5')
        said: list[str] = []
        assert build.build(quic.STACKS["quinn"], said.append, every=0.2) > 0
        assert "its log is" in said[0]
        assert any(re.fullmatch(r"quinn: \d+ s so far; Compiling ring v0\.17", line) for line in said), said

    def test_who_waits_for_another_build_is_told_so(self, nothing_built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stack, said = quic.STACKS["quinn"], []
        quic.directory("quinn").mkdir(parents=True)
        monkeypatch.setattr(build, "check", lambda stack: None)
        with locked(quic.directory("quinn") / "lock"):

            def told(line: str) -> None:
                said.append(line)
                raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                build.build(stack, told)
        assert said == [f"quinn: waiting for process {os.getpid()}, which builds it"]
        with pytest.raises(KeyboardInterrupt):
            build.build(stack, told)
        assert said[1].endswith(f"with cargo; its log is {nothing_built}/quic/quinn/build.log")

    @pytest.mark.parametrize("cache", ["a directory of {mine}, 'quoted'", "relative"])
    def test_it_runs_from_wherever_the_cache_is(
        self, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("BROBUST_CACHE", cache)
        (tmp_path / "bin").mkdir()
        make = 'mkdir -p "$CARGO_TARGET_DIR/release"\ncp /bin/true "$CARGO_TARGET_DIR/release/brobust-quinn"\n'
        (tmp_path / "bin/cargo").write_text(f"#!/bin/sh\n{make}")
        (tmp_path / "bin/cargo").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
        build.build(quic.STACKS["quinn"], print)
        found = programs.commands(*quic.commands(quic.STACKS["quinn"], ()), ())
        assert found.sender[:2] == ("/bin/brobust-quinn", "send") and found.receiver[1:] == ("receive", "{port}")

    @pytest.mark.parametrize("name", ["quinn", "quinn-pacer", "quic-go"])
    def test_what_others_put_above_the_cache_has_no_say(
        self, nothing_built: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """Cargo takes .cargo/config.toml, which may name a program, from each directory above the one it runs in,
        rustup its toolchain, and go go.work: in /tmp anybody may put them."""
        stack = quic.STACKS[name]
        tool = nothing_built / stack.tool
        tool.write_text('#!/bin/sh\necho "in $(pwd), GOWORK=$GOWORK, $*" >&2\nexit 1\n')
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{nothing_built}:/usr/bin:/bin")
        monkeypatch.setattr(build, "check", lambda stack: None)
        with pytest.raises(BuildFailed):
            build.build(stack, print)
        said = (quic.directory(name) / "build.log").read_text()
        assert said.startswith("in /, ") and f" {nothing_built}/" in said
        assert stack.tool == "cargo" or ("GOWORK=off" in said and "-buildvcs=false" in said)

    @pytest.mark.root
    def test_root_runs_none_that_others_could_replace(
        self, nothing_built: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(quic.Stack, "state", "built")
        of_each = {
            "quinn": lambda: quic.commands(quic.STACKS["quinn"], ()),
            "pages": lambda: quic.web_program("brobust-pages"),
        }
        for name, ask in of_each.items():
            quic.directory(name).mkdir(parents=True)
            ask()
            os.chown(quic.directory(name), 65534, 65534)
            with pytest.raises(MissingSupport, match=f"quic/{name} belongs to user 65534"):
                ask()
        monkeypatch.setattr(quic.Stack, "state", "stale")
        monkeypatch.setattr(build, "check", lambda stack: None)
        with pytest.raises(MissingSupport, match="quic/quinn belongs to user 65534"):
            build.build(quic.STACKS["quinn"], print)

    def test_a_patch_applies_to_a_crate_that_was_packed_on_windows_and_may_add_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "crate").mkdir()
        (tmp_path / "crate/pacer.c").write_bytes(b"half\r\nend\r\n")
        about = {"name": "crate", "version": "1.0", "manifest_path": str(tmp_path / "crate/Cargo.toml")}
        (tmp_path / "cargo").write_text(f"#!/bin/sh\necho '{json.dumps({'packages': [about]})}'\n")
        (tmp_path / "cargo").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        change, new = "--- a/pacer.c\n+++ b/pacer.c\n@@ -1,2 +1,2 @@\n-half\n+all\n end\n", "@@ -0,0 +1 @@\n+lag\n"
        (tmp_path / "pacer.patch").write_text(f"{change}--- a/lag.h\n+++ b/lag.h\n{new}")
        stack = replace(quic.STACKS["ngtcp2-kept"], patched="crate 1.0")
        build._patch(stack, tmp_path, tmp_path / "patched", tmp_path / "log")
        assert (tmp_path / "patched/crate/pacer.c").read_bytes() == b"all\nend\n"
        assert (tmp_path / "patched/crate/lag.h").read_bytes() == b"lag\n"
        assert (tmp_path / "crate/pacer.c").read_bytes() == b"half\r\nend\r\n"

    def test_a_build_begins_from_our_files_only(self) -> None:
        assert all("target" not in name.split("/") for stack in quic.STACKS.values() for name in stack.sources)
        assert our_files.hash_of(quic.STACKS["quinn"].sources) == our_files.hash_of(quic.STACKS["quinn"].sources)


class TestQlog:
    HEAD = b'\x1e{"qlog_format": "JSON-SEQ", "trace": {"common_fields": {}}}\n'
    EVENTS = (
        b'\x1e{"time": 2.0, "name": "transport:parameters_set", "data": {}}\n',
        b'\x1e{"time": 12.5, "name": "recovery:metrics_updated", "data": {"congestion_window": 14480, '
        b'"smoothed_rtt": 9}}\n',
        b'\x1e{"time": 14, "name": "quic:recovery_metrics_updated", "data": {"pacing_rate": 8000000, "min_rtt": 8}}\n',
    )

    def test_it_is_taken_out_of_what_a_program_printed(self) -> None:
        text, records = qlog.split(b"begun\n" + self.HEAD + self.EVENTS[0] + b"done\n")
        assert (text, records) == (b"begun\ndone\n", [self.HEAD, self.EVENTS[0]])

    def test_a_record_may_begin_behind_a_line_without_an_end(self) -> None:
        text, records = qlog.split(b"50 %\r" + self.HEAD + b"60 %" + self.EVENTS[0].rstrip() + self.EVENTS[1] + b"\n")
        assert (text, records) == (b"50 %\r60 %\n", [self.HEAD, self.EVENTS[0].rstrip(), self.EVENTS[1]])

    def test_metrics_become_samples_that_keep_what_has_not_changed(self) -> None:
        taken = qlog.samples([self.HEAD, *self.EVENTS, b'\x1e{"time": 15, "na'], began_s=1)
        columns = "time_s", "cwnd_packets", "srtt_ms", "pacing_rate_mbps", "min_rtt_ms", "inflight_packets"
        assert taken.select(columns).rows() == [
            (pytest.approx(1.0105), 10, 9, None, None, None), (pytest.approx(1.012), 10, 9, 8, 8, None),
        ]  # fmt: skip
        others = qlog.samples(list(self.EVENTS), began_s=0, units_of=quic.Qlog(8, 1000))
        assert others.select("pacing_rate_mbps", "srtt_ms").rows() == [(None, 9000), (64, 9000)]

    def test_what_is_no_number_is_left_out(self) -> None:
        """A program of the user's may write anything. The format lets large integers be texts."""
        start = b'\x1e{"time": 1, "name": "recovery:metrics_updated", "data": {"congestion_window": '
        for written, packets in (
            (b'"14480"', 10), (b"1448.5", 1), (b"null", None), (b'"many"', None), (b"[1]", None), (b"true", None),
            (b"NaN", None), (b"Infinity", None), (b"1" + b"0" * 30, None), (b"18446744073709551615", 2**64 // 1448),
        ):  # fmt: skip
            taken = qlog.samples([b'\x1e{"trace": 1}\n', start + written + b"}}\n"], began_s=0)
            assert taken["cwnd_packets"].to_list() == [packets], written

    def test_an_event_at_no_time_is_left_out(self) -> None:
        for written in (b"NaN", b"-Infinity", b"1" + b"0" * 400, b"true", b"[1]"):
            taken = qlog.samples([self.EVENTS[1].replace(b"12.5", written), self.EVENTS[1]], began_s=1)
            assert taken["time_s"].to_list() == [1.0], written

    @pytest.mark.parametrize(("name", "times"), [
        ("delta", [0.0125, 0.0265]), ("relative_to_previous_event", [0.0125, 0.0265]),
        ("relative", [0.0105, 0.012]), ("relative_to_epoch", [0.0105, 0.012]),
    ])  # fmt: skip
    def test_times_may_be_differences(self, name: str, times: list[float]) -> None:
        head = b'\x1e{"trace": {"common_fields": {"time_format": "%s"}}}\n' % name.encode()
        assert qlog.samples([head, *self.EVENTS], began_s=0)["time_s"].to_list() == pytest.approx(times)

    def test_at_intervals_the_last_counts(self) -> None:
        taken = qlog.at_intervals(qlog.samples(list(self.EVENTS), began_s=0), 0.01)
        assert taken.select("time_s", "min_rtt_ms").rows() == [(pytest.approx(0.02), 8)]


def test_the_list_has_each_stack_and_what_its_pacer_does(nothing_built: Path) -> None:
    listed = json_lines(subprocess.run([BROBUST, "quic", "list", "--json"], capture_output=True, text=True).stdout)
    assert [one["name"] for one in listed if one["program"] is None] == list(quic.STACKS)
    assert [one["program"] for one in listed if one["program"] is not None] == list(quic.WEB)
    assert all(one["late"] and one["source"] and one["state"] == "missing" for one in listed)


@pytest.mark.virtual
@pytest.mark.parametrize("stack", quic.STACKS.values(), ids=quic.STACKS)
def test_the_same_run_sends_the_same_packets(stack: quic.Stack) -> None:
    if stack.state != "built":
        pytest.skip(f"{stack.name} is not built: `brobust quic build {stack.name}`")
    flows = [{"cc": stack.controls[0]}]
    one = {
        "duration": "1s",
        "traffic": f"quic:{stack.name}",
        "flows": flows,
        "samples": "10ms",
        "path": {"buffer": "4bdp"},
    }
    result, *results = [package.run({**one, "seed": seed}) for seed in (1, 1, 2)]
    first, again, other = result.runs, *(one.runs for one in results)
    assert first["throughput_mbps"][0] > 10
    # Both are Linux TCP's, and unknown of a stack of user space.
    assert first.select("retransmits", "bbr_version").row(0) == (None, None)
    assert first["packet_hash"].to_list() == again["packet_hash"].to_list() != other["packet_hash"].to_list()
    assert "metrics_updated" not in result.programs["stdout"].str.join("")[0]
    if stack.qlog is not None:
        assert len(result.samples) > 30 and result.samples["time_s"].is_between(0, 1).all()
        assert 10 <= result.samples["srtt_ms"][-1] < 100 and 5 < result.samples["cwnd_packets"][-1] < 500


def test_payload_on_a_vm_is_what_ip_delivered_without_its_headers() -> None:
    class Receiver:
        def run(self, *_: str) -> str:
            return (
                "TcpExt: SyncookiesSent\nTcpExt: 0\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 123000 77\n"
                "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts\nUdp: 100 0\n"
            )

    assert traffic._received_bytes(Receiver()) == 123000 - 100 * 28  # type: ignore[arg-type]
