"""Programs of the user in virtual kernels: what is packed for them, what is refused, and what they send."""

import os
import re
import shutil
import struct
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import brobust
import made_up
from brobust import _core
from brobust.backends import virtual
from brobust.dataset import Dataset
from brobust.errors import BadInput, RunFailed
from brobust.host import libraries
from brobust.report import trace
from brobust.report.programs import shown
from brobust.scenario import Grid
from brobust.virtual import programs
from conftest import BROBUST
from test_see import Timeline

SOURCES = Path(__file__).parent / "programs"
SENDER, RECEIVER = "paced_sender {receiver} {port} 10 1200 {seconds}", "counting_receiver {port}"


def compiled(to: Path, source: str, *options: str) -> Path:
    """Return a program made of C: of a file of tests/programs, or of the text itself."""
    text = (SOURCES / f"{source}.c").read_text() if source.isidentifier() else source
    subprocess.run(["gcc", "-O1", "-x", "c", "-", "-o", str(to), *options], input=text, text=True, check=True)
    return to


def members(archive: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield names and contents as the kernel reads them: each header says where the next one is."""
    while archive:
        assert archive.startswith(b"070701")
        of_content, of_name = int(archive[54:62], 16), int(archive[94:102], 16)
        begin = 110 + of_name + -(110 + of_name) % 4
        assert archive[110 + of_name - 1] == 0
        yield archive[110 : 110 + of_name - 1], archive[begin : begin + of_content]
        archive = archive[begin + of_content + -of_content % 4 :]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    compiled(made / "paced_sender", "paced_sender", "-static")
    compiled(made / "counting_receiver", "counting_receiver", "-pthread")
    return made


@pytest.fixture(autouse=True)
def in_path(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def run(sender: str = SENDER, receiver: str = RECEIVER, **more: Any) -> brobust.Result:
    path = {"bandwidth": "20mbit", "buffer": "4bdp"}
    of_programs = {"sender": sender, "receiver": receiver, **more.pop("programs", {})}
    return brobust.run({"path": path, "duration": "1s", "programs": of_programs, **more})


class TestPacking:
    def test_a_dynamic_program_brings_its_linker_and_its_libraries(self, directory: Path) -> None:
        found = libraries.shared_libraries(directory / "counting_receiver", {})
        assert {"/lib64/ld-linux-x86-64.so.2", "libc.so.6"} <= found.keys()
        assert all(file.is_file() for file in found.values())

    def test_it_finds_what_the_dynamic_linker_finds(self) -> None:
        program = Path(shutil.which("gcc") or "/usr/bin/gcc").resolve()
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        theirs = {Path(word).resolve() for word in listed.split() if word.startswith("/")}
        ours = {file.resolve() for file in libraries.shared_libraries(program, {}).values()}
        assert theirs <= ours and {file.name for file in ours - theirs} <= {"libgcc_s.so.1"}

    def test_a_static_program_needs_nothing(self, directory: Path) -> None:
        assert libraries.shared_libraries(directory / "paced_sender", {}) == {}

    def test_libraries_are_found_beside_the_program_and_by_the_environment(self, tmp_path: Path) -> None:
        library = compiled(tmp_path / "libown.so", "int own(void) { return 1; }", "-shared", "-fPIC")
        main = "int own(void); int main(void) { return own(); }"
        beside = compiled(tmp_path / "beside", main, f"-L{tmp_path}", "-lown", "-Wl,-rpath,$ORIGIN")
        assert libraries.shared_libraries(beside, {})["libown.so"].samefile(library)
        anywhere = compiled(tmp_path / "anywhere", main, f"-L{tmp_path}", "-lown")
        assert libraries.shared_libraries(anywhere, {"LD_LIBRARY_PATH": str(tmp_path)})["libown.so"] == library
        with pytest.raises(BadInput, match=r"needs the library libown\.so, which is not here"):
            libraries.shared_libraries(anywhere, {})

    def test_what_a_header_names_as_the_linker_is_handed_over_only_if_it_is_one(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("of the host")
        program = compiled(tmp_path / "program", "int main(void) { return 0; }", f"-Wl,--dynamic-linker={secret}")
        with pytest.raises(BadInput, match="secret is no program"):
            libraries.shared_libraries(program, {})

    def test_a_program_among_the_files_brings_its_libraries_too(self, directory: Path) -> None:
        static, dynamic = "paced_sender", str(directory / "counting_receiver")
        assert b"lib/programs/libc.so.6\0" not in programs.commands(static, static, ()).ramdisk
        assert b"lib/programs/libc.so.6\0" in programs.commands(static, static, (dynamic,)).ramdisk

    def test_a_server_is_found_where_distributions_put_servers(
        self, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PATH of a user who is not root has no sbin, where Debian's nginx is."""
        shutil.copy(directory / "paced_sender", tmp_path / "a-server")
        monkeypatch.setattr(programs, "OF_SERVERS", str(tmp_path))
        assert programs.commands("a-server -c conf", RECEIVER, ()).sender == ("/bin/a-server", "-c", "conf")

    def test_the_same_files_make_the_same_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "certificates").mkdir()
        (tmp_path / "certificates/cert.pem").write_text("first")
        first = programs.commands(SENDER, RECEIVER, ("certificates",))
        assert first.sender[0] == "/bin/paced_sender" and b"certificates/cert.pem\0" in first.ramdisk
        assert programs.commands(SENDER, RECEIVER, ("certificates",)).ramdisk == first.ramdisk
        (tmp_path / "certificates/cert.pem").write_text("second")
        os.utime(tmp_path / "certificates/cert.pem", (1, 1))
        assert programs.commands(SENDER, RECEIVER, ("certificates",)).ramdisk != first.ramdisk

    def test_a_name_that_is_not_ascii_leaves_the_files_after_it_where_they_are(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A member of the archive says how long its name is, in bytes: a wrong one ends the kernel's unpacking."""
        monkeypatch.chdir(tmp_path)
        for name in ("größe 1.bin", "zuletzt"):
            Path(name).write_bytes(name.encode())
        ramdisk = programs.commands(SENDER, RECEIVER, ("größe 1.bin", "zuletzt")).ramdisk
        found = dict(members(ramdisk))
        assert found["größe 1.bin".encode()] == "größe 1.bin".encode()
        assert found[b"zuletzt"] == b"zuletzt" and list(found)[-1] == b"TRAILER!!!"


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"#!/bin/sh\n", "is a script of /bin/sh"),
            (b"#!", "is a script of nothing"),
            (b"", "is empty"),
            (b"MZ\x90\x00", "is no program"),
            (b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xb7\x00" + bytes(60), "is a program for AARCH64"),
            (b"\x7fELF\x01\x01\x01" + bytes(11) + b"\x03\x00" + bytes(60), "is a program for 386 of 32 bits"),
            (b"\x7fELF\x01\x01\x01" + bytes(11) + b"\x3e\x00" + bytes(60), "is a program for X86_64 of 32 bits"),
            (b"\x7fELF\x02\x01", "is a damaged program"),
        ],
    )
    def test_what_is_no_program_for_this_machine(self, tmp_path: Path, content: bytes, words: str) -> None:
        (tmp_path / "it").write_bytes(content)
        with pytest.raises(BadInput, match=words):
            libraries.read(tmp_path / "it")

    def test_a_header_that_says_that_there_are_thousands_of_millions_of_segments(self, tmp_path: Path) -> None:
        """A file with holes has room for them all, and to read them would take days."""
        header = bytearray(Path("/bin/true").resolve().read_bytes())
        struct.pack_into("<H", header, 56, 0xFFFF)  # the number is in the first section (elf(5), PN_XNUM)
        struct.pack_into("<I", header, struct.unpack_from("<Q", header, 40)[0] + 44, 2**32 - 1)
        struct.pack_into("<Q", header, 32, len(header))
        (tmp_path / "it").write_bytes(header)
        os.truncate(tmp_path / "it", 1 << 40)
        with pytest.raises(BadInput, match="it has 4294967295 segments; give a program with at most"):
            libraries.read(tmp_path / "it")

    @pytest.mark.parametrize("options", [(), ("-nostdlib",), ("-Wl,-e,own",)])
    def test_a_library_is_no_program(self, tmp_path: Path, options: tuple[str, ...]) -> None:
        """Older linkers gave each an address to start at."""
        source = "int puts(const char *); int own(void) { return puts(__FILE__); }"
        library = compiled(tmp_path / "libown.so", source, "-shared", "-fPIC", *options)
        with pytest.raises(BadInput, match=r"^programs\.sender: /.*/libown\.so is a shared library; give a "):
            programs.commands(str(library), RECEIVER, ())
        assert b"libown.so\0" in programs.commands(SENDER, RECEIVER, (str(library),)).ramdisk, "programs may load it"

    def test_a_program_that_is_static_may_lie_anywhere(self, directory: Path) -> None:
        static = compiled(directory / "static_pie", "paced_sender", "-static-pie")
        assert programs.commands(str(static), RECEIVER, ()).sender == ("/bin/static_pie",)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"sender": "no-such-program"}, r"programs\.sender: the program 'no-such-program' was not found"),
            ({"receiver": "/etc/passwd"}, r"programs\.receiver: the program '/etc/passwd' is not executable"),
            ({"sender": "paced_sender {host}"}, r"\{host\} stands for nothing; there are \{receiver\}"),
            ({"sender": "paced_sender '"}, r"cannot be read: no closing quotation"),
            ({"receiver": None}, r"programs\.receiver: there is no program at the receiver"),
            ({"files": ["no-such-file"]}, r"'no-such-file' does not exist in /.*, from where"),
            ({"files": ["../cert.pem"]}, r"programs\.files: '\.\./cert\.pem' is not below this directory"),
            ({"files": ["."]}, r"programs\.files: '\.' is all of this directory; name what the programs read of it"),
            ({"files": ["/"]}, r"programs\.files: '/' is all of this machine; name what"),
            (
                {"sender": "./no-such-program"},
                r"'\./no-such-program' was not found in /.*, from where this command was",
            ),
            (
                {"sender": "RUST_LOG=debug paced_sender"},
                r"which would set RUST_LOG=debug: write env RUST_LOG=debug PROGRAM",
            ),
            ({"sender": "~/paced_sender"}, r"which would know what ~/paced_sender is: give the path itself"),
            ({"sender": "paced_sender | tee /tmp/log"}, r"which '\|' is for: write sh -c '\.\.\.', with the programs"),
            ({"receiver": "cat >/tmp/log 2>&1"}, r"there is no shell, which '>/tmp/log' is for"),
            ({"receiver": "sleep 1 && sleep 2"}, r"there is no shell, which '&&' is for"),
            ({"call_time": "0s"}, r"call_time: 0s is less than 100ns"),
        ],
    )
    def test_what_cannot_run_is_refused_before_anything_starts(self, given: Mapping[str, Any], words: str) -> None:
        with pytest.raises(BadInput, match=words):
            one = Grid.from_flags({"programs": {"sender": SENDER, "receiver": RECEIVER, **given}}).scenarios[0].programs
            programs.commands(one.sender or "", one.receiver or "", one.files)

    def test_a_script_is_answered_with_what_starts_it(self, tmp_path: Path) -> None:
        (tmp_path / "client.py").write_text("#!/usr/bin/env python3\n")
        (tmp_path / "client.py").chmod(0o755)
        words = (
            r"is a script of /usr/bin/env python3; give .*: its interpreter, with the script behind it and among files"
        )
        with pytest.raises(BadInput, match=words):
            programs.commands(str(tmp_path / "client.py"), RECEIVER, ())

    def test_what_stands_for_something_to_curl_or_a_shell_is_theirs(self) -> None:
        for command in (
            "curl -w %{http_code} {sender}:{port}", "sh -c 'for i in 1 2; do echo ${i}; done'",
            "sh -c 'sleep 1 | cat > /dev/null 2>&1'", "curl {sender}/?a=1&b=2", r"awk '|' \> \"&&\" a<b>c",
        ):  # fmt: skip
            given = {"programs": {"sender": "nginx", "receiver": command}}
            assert Grid.from_flags(given).scenarios[0].programs.receiver == command

    def test_sockets_that_ask_for_no_control_have_one_at_each_sender(self) -> None:
        of_programs, flows = {"sender": "nginx", "receiver": "curl"}, [{"cc": "bbr"}, {"cc": "cubic"}]
        given: dict[str, Any] = {"programs": of_programs, "flows": flows}
        with pytest.raises(
            BadInput, match=r"it names no \{cc\}, so all sockets of sender 1 would have bbr, not cubic; name \{cc\}, or"
        ):
            Grid.from_flags(given)
        Grid.from_flags({**given, "flows": [flows[0], {"cc": "cubic", "sender": 2}]})
        Grid.from_flags({**given, "programs": {**of_programs, "sender": "iperf3 -C {cc}"}})
        Grid.from_flags({**given, "flows": [flows[0], {"cc": "bbr", "start": "1s"}]})

    def test_what_calls_cost_iperf3_tells_its_scenarios_apart(self) -> None:
        given = {"traffic": "iperf3", "flows": {"cc": "bbr"}, "contention": {"share": 1}, "kernel": "virtual-6.12"}
        usual, slow = Grid.from_flags({**given, "programs": {"call_time": ["1us", "10us"]}}).scenarios
        assert usual.hash == Grid.from_flags(given).scenarios[0].hash == "a4162398df2b" != slow.hash

    def test_programs_and_other_traffic_exclude_each_other(self) -> None:
        given = {"programs": {"sender": SENDER, "receiver": RECEIVER}}
        assert Grid.from_flags(given).scenarios[0].traffic == "programs"
        for other in ({"traffic": "iperf3"}, {"backend": "vm"}):
            with pytest.raises(BadInput, match=r"programs\.sender"):
                Grid.from_flags({**given, **other})


class TestLastWords:
    @pytest.mark.parametrize(
        ("printed", "words"),
        [
            (
                "error: once more\n\nthread 'main' (19) panicked at src/main.rs:5:9:\nno route\nnote: run with `RUST_",
                "thread 'main' (19) panicked at src/main.rs:5:9: no route",
            ),
            ("begun\npanic: no route\n\ngoroutine 1 [running]:\nmain.main()\n\t/main.go:2 +0x28\n", "panic: no route"),
            ("error: unexpected argument '--rat'\n\n  tip: '--rate'\n\nFor more information, try '--help'.\n",
             "error: unexpected argument '--rat'"),
            ("Traceback (most recent call last):\n  File \"a.py\", line 1\nOSError: no route\n\n", "OSError: no route"),
            ("\n\n", ""),
        ],
    )  # fmt: skip
    def test_what_follows_the_reason_is_not_the_reason(self, printed: str, words: str) -> None:
        assert virtual._last_words(printed.encode()) == words

    def test_a_kernel_that_does_not_answer_may_have_a_program_that_computes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What its console ended with, as it booted, says nothing of that. Such a run takes a minute."""

        class Hung:
            def __init__(self, *_: object) -> None: ...

            def run(self) -> None:
                raise _core.NoAnswer("the sender 1 kernel did not answer for 60 s: idle")

        monkeypatch.setattr(_core, "VirtualRun", Hung)
        backend = virtual.VirtualBackend(print)
        with pytest.raises(
            RunFailed, match=r"^perhaps a program computes without a system call .*: the sender 1 kernel"
        ):
            backend._run("{}", has_programs=True)
        with pytest.raises(RunFailed, match=r"^the sender 1 kernel did not answer"):
            backend._run("{}", has_programs=False)

    def test_a_program_without_memory_is_not_answered_with_a_console(self) -> None:
        killed = {
            "at_receiver": False, "flow": 0, "words": ["/bin/a"], "errno": 0, "ended_ns": 10**9, "status": 9,
            "stdout": b"", "stderr": b"", "console": "262144 pages RAM; Out of memory: Killed process 19 (a)",
        }  # fmt: skip
        why = "killed by SIGKILL after 1.000 s; its kernel, of 1 GB with all files, had no memory left for it"
        assert str(virtual._why_failed(killed)).endswith(why)
        assert "console ends with: idle" in str(virtual._why_failed({**killed, "console": "idle"}))


@pytest.mark.parametrize(
    ("sender", "protocol", "is_said"),
    [(SENDER, "udp", True), (SENDER, "tcp", False), (f"{SENDER} {{cc}}", "udp", False)],
)
def test_a_control_of_which_the_programs_know_nothing_is_no_axis(
    sender: str, protocol: str, is_said: bool, tmp_path: Path
) -> None:
    """Rows of bbr and of cubic would be read as two results."""
    of_programs = {"sender": sender, "receiver": RECEIVER}
    grid = Grid({"kernel": "virtual-6.12", "programs": of_programs, "flows": [{"cc": ["bbr", "cubic"]}]})
    ended = {"flow": 0, "end": "sender", "command": "a", "stdout": "", "stderr": ""}
    of_run = {"programs": [ended], "connections": [{"connection": 0, "flow": 0, "protocol": protocol}]}
    dataset = made_up.dataset(tmp_path / "data", grid, tables=lambda _: of_run)
    said = "names no {cc}: runs that differ in cc alone are the same runs"
    assert any(said in line for line in shown(dataset)) == is_said


@pytest.mark.virtual
class TestRuns:
    def test_the_same_run_sends_the_same_packets(self) -> None:
        more: dict[str, Any] = {"contention": {"share": 0.5}, "qdisc": "fq"}
        first, again, other = (run(f"{SENDER} txtime", **more, seed=seed) for seed in (1, 1, 2))
        assert first.runs["packet_hash"].to_list() == again.runs["packet_hash"].to_list()
        assert first.programs["stdout"].to_list() == again.programs["stdout"].to_list()
        assert first.runs["packet_hash"][0] != other.runs["packet_hash"][0]

    def test_each_datagram_arrives_and_is_counted(self) -> None:
        result = run(packets=True)
        sender, receiver = result.programs.sort("end", descending=True).iter_rows(named=True)
        assert (sender["exit_status"], receiver["ended_s"]) == (0, None)
        sent = int(sender["stdout"].split()[1])
        assert f"received {sent} datagrams {sent * 1200} bytes" in receiver["stdout"]
        (connection,) = result.connections.iter_rows(named=True)
        assert connection["protocol"] == "udp"
        # What arrives after the run's duration counts for no figure.
        in_time = result.packets.filter(pl.col("direction") == "data", pl.col("arrived_s") <= 1).height
        assert connection["received_bytes"] == in_time * 1200
        assert result.runs["retransmits"].to_list() == [None]  # which of them are sent again, only the program knows
        assert result.runs["throughput_mbps"][0] == pytest.approx(10, rel=0.01)
        assert result.throughput["throughput_mbps"].mean() == pytest.approx(10, rel=0.02)

    def test_with_the_packets_each_call_is_kept_with_its_thread_and_nothing_else_changes(self, tmp_path: Path) -> None:
        more: dict[str, Any] = {"contention": {"share": 0.5}}
        kept, plain = run(packets=True, **more), run(**more)
        assert plain.calls.is_empty() and kept.runs["packet_hash"][0] == plain.runs["packet_hash"][0]
        calls = kept.calls
        sends = calls.filter(
            pl.col("node") == "sender 1", pl.col("call").is_in(["sendto", "sendmsg"]), pl.col("start_s") < 1
        ).sort("start_s")
        data = kept.packets.filter(pl.col("direction") == "data")
        assert set(calls["node"]) == {"sender 1", "receiver"} and sends["result"].to_list() == [1200] * data.height
        # A datagram leaves while its call lasts, which costs 1 us and what the CPU was away.
        assert (sends["start_s"] <= data["time_s"]).all() and (sends["duration_ms"] >= 0.001).all()
        assert (data["time_s"] <= sends["start_s"] + sends["duration_ms"] / 1e3).all()
        threads = calls.select("node", "process", "thread", "name").unique()
        assert threads.filter(node="receiver").height > threads.filter(node="receiver")["process"].n_unique()

        calls = calls.filter(pl.col("start_s") + pl.col("duration_ms") / 1e3 >= 0)
        threads = calls.select("node", "process", "thread").unique()
        counts = trace.write(kept, tmp_path / "run.perfetto-trace")
        timeline = Timeline(tmp_path / "run.perfetto-trace")
        of_threads = [event for name, _, event in timeline.events if name.startswith("thread ")]
        begun = Counter(event.name.partition(":")[0] for event in of_threads if event.type == 1)
        assert counts["calls"] == calls.height and begun == Counter(calls["call"])
        assert sum(name.startswith("thread ") for name in timeline.tracks.values()) == threads.height

    def test_segmentation_by_the_network_card_cuts_and_the_receivers_joins(self) -> None:
        result = run(f"{SENDER} gso=10", f"{RECEIVER} gro", packets=True)
        assert set(result.packets.filter(direction="data")["payload_bytes"]) == {1200}
        times = result.packets.filter(direction="data")["time_s"]
        assert times.n_unique() * 10 == len(times)  # ten leave at once

    @pytest.mark.parametrize("aqm", ["none", "codel"])
    def test_over_ipv6_it_is_given_ipv6_addresses(self, aqm: str) -> None:
        path = {"bandwidth": "8mbit", "buffer": "2bdp", "aqm": aqm, "ip_version": 6}
        result = brobust.run(
            {"path": path, "duration": "1s", "packets": True, "programs": {"sender": SENDER, "receiver": RECEIVER}}
        )
        assert result.programs.filter(end="sender")["command"][0].startswith("/bin/paced_sender 2001:db8::2 ")
        # 14 of Ethernet, 40 of IPv6, 8 of UDP
        assert result.packets["frame_bytes"].unique().to_list() == [1262]
        (connection,) = result.connections.iter_rows(named=True)
        (dropped,) = result.runs["drops"]
        in_time = result.packets.filter(~pl.col("dropped") & (pl.col("arrived_s") <= 1))
        assert connection["received_bytes"] == len(in_time) * 1200
        assert dropped == result.packets["dropped"].sum() > 0  # 10 Mbit/s do not fit

    def test_there_is_only_the_version_of_ip_that_was_asked_for(self) -> None:
        path, other = {"ip_version": 6}, {"sender": "paced_sender 10.0.0.2 {port} 10 1200 1", "receiver": RECEIVER}
        with pytest.raises(RunFailed, match="connect: Network is unreachable"):
            brobust.run({"path": path, "duration": "1s", "programs": other})
        with pytest.raises(RunFailed, match="connect: Address family not supported by protocol"):
            run("paced_sender 2001:db8::2 {port} 10 1200 1")

    def test_a_program_that_polls_sees_the_clock_move(self, directory: Path) -> None:
        code = "struct timespec t; do clock_gettime(1, &t); while (t.tv_sec < 1 || t.tv_nsec < 20000000);"
        compiled(directory / "polls", f"#include <time.h>\nint main(void) {{ {code} }}")
        result = run("polls {receiver}")
        ended = result.programs.filter(end="sender")["ended_s"][0]
        assert 0.02 <= ended < 0.0201

    def test_the_clock_without_a_system_call_is_that_of_the_system_call(self, directory: Path) -> None:
        code = """
        #define _GNU_SOURCE
        #include <sys/syscall.h>
        #include <sys/time.h>
        #include <sys/wait.h>
        #include <time.h>
        #include <unistd.h>
        static long ns(struct timespec t) { return t.tv_sec * 1000000000 + t.tv_nsec; }
        static int differ(void)
        {
            for (int i = 0; i < 200; i++) {
                struct timespec read, called;
                struct timeval day;
                clockid_t clock = i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
                clock_gettime(clock, &read), gettimeofday(&day, 0);
                syscall(SYS_clock_gettime, clock, &called);
                if (ns(called) < ns(read) || ns(called) > ns(read) + 1000)
                    return 1;
                if (clock == CLOCK_REALTIME && day.tv_usec != read.tv_nsec / 1000)
                    return 2;
                usleep(i);
            }
            return 0;
        }
        int main(void)
        {
            int status = 0;
            if (time(0) < 1798761715 || time(0) > 1798761725) /* virtual time begins on 1 January 2027 */
                return 4;
            if (!fork())
                _exit(differ());
            wait(&status);
            return status ? 3 : differ();
        }"""
        compiled(directory / "reads_clock", code)
        result = run("reads_clock {receiver}")
        assert result.programs.filter(end="sender")["exit_status"].to_list() == [0]

    def test_no_stop_changes_a_register(self, directory: Path) -> None:
        """At most stops the FPU's state stays in the program's process (arch/um/brobust/ptrace.c)."""
        compiled(directory / "keeps_registers", "keeps_registers", "-pthread")
        result = run("keeps_registers")
        assert result.programs.filter(end="sender")["exit_status"].to_list() == [0]

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("return *(volatile int *)0;", r"\(bad\) was killed by SIGSEGV after 0\.\d+ s$"),
            ("puts(\"no such host\"); return 3;", r"\(bad\) ended with status 3 after 0\.\d+ s: no such host$"),
            ("for (;;) puts(\"again and again, again and again\");", r"/bin/bad has written more than 16 MiB"),
            ("for (;;) fork();", r"bad and others are more than 2048 processes and threads"),
        ],
    )  # fmt: skip
    def test_a_program_that_fails_ends_the_run_in_one_line(self, directory: Path, code: str, words: str) -> None:
        compiled(directory / "bad", f"#include <stdio.h>\n#include <unistd.h>\nint main(void) {{ {code} }}")
        with pytest.raises(RunFailed, match=words) as failure:
            run("bad")
        assert "\n" not in str(failure.value)

    def test_a_receiver_that_connects_is_told_who_has_to_listen(self) -> None:
        with pytest.raises(RunFailed, match=r"iperf3 at the receiver sent a packet before the run began; .* to listen"):
            run("sleep 1", "iperf3 -c {sender} -p {port}")

    def test_tcp_of_a_program_has_samples_and_the_flows_control(self) -> None:
        iperf3 = {"sender": "iperf3 -c {receiver} -p {port} -t 1", "receiver": "iperf3 -s -1 -p {port}"}
        result = run(**iperf3, flows=[{"cc": "bbr"}], samples="100ms")
        assert result.connections["protocol"].to_list() == ["tcp", "tcp"] and result.runs["retransmits"][0] is not None
        bulk = result.connections.sort("received_bytes")["connection"].to_list()[-1]
        assert result.samples.filter(connection=bulk)["bandwidth_estimate_mbps"].max() > 15

    def test_a_repair_that_the_program_does_not_have_is_not_tried(self, directory: Path) -> None:
        """The control is the program's own: it knows nothing of those that the kernel has."""
        code = """
        #include <arpa/inet.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <time.h>
        #include <unistd.h>
        int main(int count, char **words)
        {
            static char payload[1200];
            struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
            int udp = socket(AF_INET, SOCK_DGRAM, 0);
            time_t end = time(0) + 1;
            if (strcmp(words[1], "bbr"))
                return fprintf(stderr, "no control %s\\n", words[1]), 2;
            inet_pton(AF_INET, words[2], &to.sin_addr);
            while (time(0) <= end) /* what it was late by is lost */
                sendto(udp, payload, 1200, 0, (void *)&to, sizeof(to)), usleep(1000);
            return 0;
        }"""
        compiled(directory / "own_controls", code)
        result = run("own_controls {cc} {receiver} {port}", flows=[{"cc": "bbr"}], contention={"share": 0.25})
        found = result.explain()
        assert "The cause is the CPU" in found and " with --share 1" in found and "bbr_steady" not in found

    @pytest.mark.skipif(
        not all(shutil.which(one) or Path(one).is_dir() for one in ("gdb", "/usr/lib/python3.11", "/usr/share/gdb")),
        reason="the page's example is for Debian 12 with gdb",
    )
    def test_a_program_runs_under_gdb_as_the_page_shows(self, directory: Path) -> None:
        page = (Path(__file__).parents[1] / "docs/programs.md").read_text()
        example = tomllib.loads(re.sub("^    ", "", page[page.index('    sender = "gdb ') :], flags=re.MULTILINE))
        own = str(directory / "paced_sender")
        command = example["sender"].replace(
            "/root/my-client {receiver} {port}", f"{own} {{receiver}} {{port}} 10 1200 0.1"
        )
        files = {"files": [file.replace("/root/my-client", own) for file in example["files"]]}
        printed = run(command, programs=files).programs.filter(end="sender")["stdout"][0]
        assert own in command and re.search(r"^#0 .* sendmsg \(\)$", printed, re.MULTILINE) and "sent 105 " in printed

    def test_qlog_that_a_program_can_only_write_into_a_file_is_printed_as_its_page_says(
        self, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Standard output is no file that could be opened: not by /proc/self/fd/1 either."""
        code = """
        FILE *qlog = fopen(words[3], "w");
        if (!qlog)
            return perror(words[3]), 1;
        if (fork())
            execl("/paced_sender", "paced_sender", words[1], words[2], "10", "1200", "0.5", NULL);
        for (int ms = 0; ms < 500; ms += 10)
            usleep(10000), fprintf(qlog, "\\x1e{\\"time\\": %d, \\"name\\": \\"recovery:metrics_updated\\", "
                                         "\\"data\\": {\\"congestion_window\\": 14480}}\\n", ms);
        return 0;"""
        compiled(
            directory / "writes_qlog",
            f"#include <stdio.h>\n#include <unistd.h>\nint main(int n, char **words) {{ {code} }}",
        )
        monkeypatch.chdir(tmp_path)
        for program in ("paced_sender", "writes_qlog"):
            shutil.copy(directory / program, program)
        page = (Path(__file__).parents[1] / "docs/quic.md").read_text().replace("\n", " ")
        (given,) = re.findall(
            r"`sh -c '\./my-client --qlog (/tmp/q) \.\.\.; cat /tmp/q'`.* \(`files`: \./my-client, /bin/cat\)", page
        )
        command = f"sh -c './writes_qlog {{receiver}} {{port}} {given}; sleep 0.2; cat {given}'"
        files = {"files": ["./writes_qlog", "/bin/cat", "/bin/sleep", "paced_sender"]}
        result = run(command, programs=files, samples="ack")
        assert result.samples["cwnd_packets"].to_list() == [10] * 50
        with pytest.raises(RunFailed, match="/proc/self/fd/1: No such device or address"):
            run("writes_qlog {receiver} {port} /proc/self/fd/1", programs=files)

    def test_the_command_line_shows_what_programs_printed(self, tmp_path: Path) -> None:
        (tmp_path / "own.toml").write_text(
            f'duration = "1s"\nrepeat = 1\n[programs]\nsender = "{SENDER}"\nreceiver = "{RECEIVER}"\n'
            "[contention]\nshare = 1\n"
        )
        command = [BROBUST, "run", "own.toml"]
        options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
        shown = subprocess.run([*command, "--out", "a"], **options)
        assert "sender: exit status 0 after" in shown.stdout and "stdout: sent 10" in shown.stdout

    def test_what_the_programs_of_a_failed_run_printed_is_kept_and_shown(self, directory: Path, tmp_path: Path) -> None:
        """Why a program has failed stands more often in what it printed than in its last line."""
        code = 'puts("connected"); for (int i = 0; i < 999; i++) printf("0123456789"); return 3;'
        compiled(directory / "gives_up", f"#include <stdio.h>\nint main(void) {{ {code} }}")
        words = ["--sender-program", "gives_up", "--receiver-program", RECEIVER, "--duration", "1s", "--repeat", "1"]
        command = [BROBUST, "run", *words, "--share", "1", "--out", str(tmp_path / "data")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and "ended with status 3" in done.stderr
        assert (
            "sender: exit status 3 after 0.000 s: /bin/gives_up\n  stdout: connected\n  stdout: 012345678"
            in done.stdout
        )
        assert "... (9990 letters)\n" in done.stdout and "ended before 90%" not in done.stdout
        kept = Dataset.open(tmp_path / "data").programs().filter(end="sender")
        assert kept["stdout"].to_list() == ["connected\n" + "0123456789" * 999] and kept["exit_status"].to_list() == [3]
