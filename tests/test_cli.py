"""What a user meets who errs: one clear line, exit status 2, nothing left behind."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from typer.main import get_command

import made_up
from brobust import SCHEMA_VERSION, backends, cli, process_limits
from brobust.api import Result
from brobust.backends import memory
from brobust.cli import COMMANDS, app, cc, docs, kernel, main, measuring, output, run
from brobust.cli.explore import explore
from brobust.cli.lazy import HostCommand, Later, first_paragraph
from brobust.dataset import Dataset, Measured, failed, recordings
from brobust.errors import BadInput, Interrupted, MissingSupport
from brobust.host.programs import host_program
from brobust.kernels import virtual as virtual_kernels
from brobust.report.console import Console
from brobust.report.reproduced import Reproduced
from brobust.scenario import Grid, Run, Scenario
from brobust.scenario.description import PANELS
from brobust.scenario.fields import ROWS
from brobust.series import runner
from conftest import Brobust, refused

VM = ["--backend", "vm"]


def _refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("brobust: ")
    for word in words:
        assert word in line


@pytest.mark.root
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*VM, "--timeslice", "3s", "--share", "0.5"], ["period", "SCHED_DEADLINE"]),
        ([*VM, "--driver", "burner", "--share", "0.01"], ["sched_rt_runtime_us"]),
        ([*VM, "--kernel", "debian-2.4"], ["'debian-2.4'", "available"]),
        (["--bandwidth", "20M"], ["'20M' has the unknown unit 'M'"]),
        (["--buffer", "1"], ["'1' has no unit; write for example 1bdp, 60kB or 100p (bdp, p, sp, B, kB, MB, GB, KiB,"]),
        (["--aqm", "codel target=5"], ["path.aqm: target of codel: '5' has no unit"]),
        (["--cc", "bbr,,cubic"], ["--cc", "empty element"]),
        (["--cc", "cubic", "--cc=bbr"], ["--cc is given twice; write --cc cubic,bbr"]),
        (["--repeat", "0", "--repeat", "1"], ["--repeat is given twice; give one of its values"]),
        (["--repeat", "x"], ["--repeat", "give a whole number", "(given: x)"]),
        (["--driver", "deadline:hz=5"], ["contention.driver", "hz=5", "24 to 1000"]),
        (["--driver", "quota:idle"], ["contention.driver", "'idle'"]),
        (["--driver", "late:chance=0%"], ["contention.driver", "chance=0%", "at most 100%"]),
        (["--driver", "late:hz=250"], ["contention.driver", "'hz=250'", "late takes :chance=P"]),
        (["--driver", "late:chance=often"], ["contention.driver", "'late:chance=often'", "at most 100%"]),
        (["--driver", "quota:hz=100:hz=1000"], ["contention.driver", "hz twice"]),
        (["--driver", "latest"], ["contention.driver", "'latest'", "none, late"]),
        (["--pacing", "kept:1"], ["pacing", "'kept:1'", "linux-4.14"]),
        (["--pacing", "draft", "--qdisc", "fq"], ["pacing", "draft", "qdisc none"]),
        (["--driver", "late", "--cpu-frequency", "1GHz"], ["cpu.frequency", "driver late"]),
        (["--driver", "deadline", "--length-jitter", "0.1"], ["contention.length_jitter", "driver auto"]),
        (["--driver", "competitor", "--share", "40%"], ["contention.share", "1/2"]),
        ([*VM, "--driver", "deadline:idle"], ["contention.driver", "give deadline"]),
        (["--rtt", "200us"], ["buffer 1bdp is 500 bytes with 20mbit and RTT 200us", "give buffer 3028B or"]),
        (["--rtt", "100us"], ["buffer 1bdp is 250 bytes", "or a longer RTT; an RTT in virtual time is at least 200us"]),
        (["--samples", "ACK"], ["'ACK' is not a duration; write for example 10ms, or ack"]),
        (["--duration", "10"], ["duration: '10' has no unit; write for example 10s ("]),
        (["--kernel", "virtual-9.9"], ["virtual-9.9 is not built; built here: ", "if apt offers its source"]),
        (["--pattern", "bulk,rate 5"], ["flows.pattern", "'5' has no unit"]),
        (["--cc", "bbr", "--out", ""], ["--out: '' is empty"]),  # what a shell makes of "$DIR" without a value
        (["--cc", "bbr", "--out="], ["--out: '' is empty"]),
        ([""], ["an argument: '' is empty"]),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str],
    words: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "run", *arguments)
    assert line.startswith("brobust: ") and [word for word in words if word not in line] == [], line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_without_root_the_vm_backend_says_what_it_needs(tmp_path: Path) -> None:
    # The same code as the command, as user nobody, who may not be able to read the checkout: a refusal imports it all.
    code = (
        "import contextlib, io, os\n"
        "from brobust.backends import vm\n"
        "from brobust.cli import main\n"
        "with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['run', '--backend', 'vm', '--rtt', 'nonsense'])\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "main(['run', '--backend', 'vm', '--out', '/tmp/never'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    _refused(done, "needs root", "sudo")


def test_for_the_directory_of_a_reproduction_its_dataset_is_named(brobust: Brobust, tmp_path: Path) -> None:
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "dataset.json").touch()
    _refused(brobust("plot", "mine"), "mine holds no dataset: its dataset is mine/data")
    _refused(brobust("report", "mine"), "`brobust reproduce PAPER --out mine` makes one")


def test_help_names_every_option_of_a_run(brobust: Brobust) -> None:
    said = brobust("run", "--help").stdout
    for option in (*(row.option for row in ROWS), "--no-packets", "--jobs", "--out", "--json", "--resume"):
        assert f"  {option}" in said or f" / {option}" in said
    assert [line for line in said.splitlines() if len(line) > 80] == []
    headings = [line.removesuffix(":") for line in said.splitlines() if re.fullmatch(r"\w.*:", line)]
    assert headings == ["Arguments", *PANELS, "Options", "Examples"]


OF_CC = [
    f"cc {command.name or command.callback.__name__}" for command in cc.app.registered_commands if command.callback
]
OURS = [
    *(name for name in COMMANDS if name not in ("watch", "contend", "kernel", "quic", "cc")),
    "kernel build", "kernel list", "kernel patch", "quic build", "quic list", *OF_CC,
]  # fmt: skip


@pytest.mark.parametrize("command", OURS)
def test_help_is_written_for_people(brobust: Brobust, command: str) -> None:
    """A value is called by a word in capitals or by its choices, not by its type in Python; and all fits a terminal."""
    said = brobust(*command.split(), "--help").stdout
    usage, _, rest = said.partition("\n")
    assert re.fullmatch(
        rf"Usage: brobust {command} \[OPTIONS\]( \[?[A-Z][\w.|]*\]?(\.\.\.)?)*", usage.replace(".toml", "")
    )
    assert [one for one in re.findall(r"<([^>]*)>", rest) if "|" not in one] == []
    assert "<=x" not in rest and [line for line in said.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("lab --help", "No such command 'lab'; `brobust --help` says what there is"),
        ("kernel", "Usage: brobust kernel"),
        ("kernel none", "No such command 'none'; `brobust kernel --help` says what there is"),
        ("swep", "No such command 'swep'. Did you mean 'sweep'?"),
        ("compare a", "Missing argument 'B'; `brobust compare --help` says what there is"),
        ("explain a --flow one", "Invalid value for '--flow': give a whole number (given: one)"),
        ("compare a b --tolerance much", "Invalid value for '--tolerance': give a number (given: much)"),
        ("compare a b --tolerance -1", "Invalid value for '--tolerance': give 0 or more (given: -1"),
        ("explore --port 70000", "Invalid value for '--port': give 65535 or less (given: 70000)"),
        ("docs tutoria", "'tutoria' is no page of the documentation; did you mean tutorial?"),
        ("docs reproduction/mobile", "'reproduction/mobile' is no page of the documentation; did you mean mobiles?"),
    ],
)
def test_words_that_are_refused_are_answered_with_what_may_be_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["brobust"])
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_every_flag_of_the_page_on_scenarios_is_a_flag_of_the_command(brobust: Brobust) -> None:
    said = brobust("run", "--help").stdout
    page = (Path(__file__).parents[1] / "docs" / "scenario.md").read_text()
    flags = {flag for line in page.splitlines() for flag in re.findall(r"\| `(--[a-z0-9-]+)` \|", line)}
    assert len(flags) > 30
    assert {flag for flag in flags if flag not in said} == set()


def test_flags_become_fields_and_commas_of_changes_are_no_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Grid] = []
    monkeypatch.setattr(run, "_check", lambda grid, jobs: taken.append(grid))
    monkeypatch.setattr(measuring, "measure", lambda *_, **__: None)
    monkeypatch.setattr(measuring, "show", lambda _: None)
    monkeypatch.setattr(measuring, "require_ok", lambda *_: None)
    monkeypatch.setattr(Dataset, "create_beside", lambda *_, **__: None)
    arguments = [
        "--cc", "bbr", "--share", "0.5", "--start-jitter", "0,0.5", "--length-jitter", "0.1",
        "--phase", "5ms", "--aqm", "none,codel ecn",
        "--bandwidth-changes", "5s:50mbit,7s:1gbit", "--rtt-changes", "1s:5ms", "--flow-rtt-changes", "1s:5ms,2s:6ms",
        "--pattern", "rate 5mbit", "--flow-rtt", "30ms", "--stop", "9s", "--cpu-frequency", "1GHz",
        "--tx-byte-cycles", "2.5", "--coalesce", "50us", "--tso-max-size", "16KiB", "--qdisc", "fq",
        "--samples", "ack", "--packets",
    ]  # fmt: skip
    app(["run", *arguments], standalone_mode=False)
    (grid,) = taken
    assert len(grid.scenarios) == 4
    one = grid.scenarios[0]
    assert len(one.path.bandwidth_changes) == len(one.flows[0].rtt_changes) == 2
    assert one.path.rtt_changes == ((10**9, 5_000_000),)
    assert (one.flows[0].rtt, one.flows[0].stop, one.flows[0].pattern.rate) == (30_000_000, 9 * 10**9, 5_000_000)
    assert (one.cpu.frequency, one.cpu.tx_byte_cycles) == (10**9, 2.5)
    assert (one.nic.coalesce, one.nic.tso_max_size) == (50_000, 16384)
    assert (one.qdisc, one.samples, one.packets, one.contention.phase) == ("fq", "ack", True, 5_000_000)
    assert one.contention.length_jitter == 0.1
    assert {(s.contention.start_jitter, s.path.aqm.name) for s in grid.scenarios} == {
        (0.0, "none"), (0.0, "codel"), (0.5, "none"), (0.5, "codel"),
    }  # fmt: skip


# Together they take two seconds to import.
SLOW = {
    "elftools", "jinja2", "matplotlib", "numpy", "plotext", "polars", "psutil", "pydantic", "qemu",
    "rich", "textual",
}  # fmt: skip


def _imported(arguments: list[str]) -> tuple[str, set[str]]:
    """What a command prints, and which modules it imports."""
    program = (
        "import atexit, os, sys\n"
        "show = lambda: print(*sys.modules, file=sys.stderr, flush=True)\n"
        "become = os.execv\n"
        "os.execv = lambda *program: (show(), become(*program))\n"
        "atexit.register(show)\n"
        "import brobust\n"
        "if sys.argv[1:]:\n"
        "    from brobust.__main__ import main\n"
        "    main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_help_imports_nothing_slow() -> None:
    """Forks answer, of a process that has imported what all commands do: to start one for each takes ten times as
    long."""
    program = (
        "import os, sys\n"
        "from brobust.__main__ import main\n"
        "import brobust.cli\n"
        "for command in sys.argv[1:]:\n"
        "    if os.fork() == 0:\n"
        "        os.execv = lambda *_: sys.exit()\n"
        "        sys.argv[1:] = command.split()\n"
        "        out, sys.stdout = sys.stdout, open(os.devnull, 'w')\n"
        "        try:\n"
        "            main()\n"
        "        except SystemExit as end:\n"
        f"            print(command, end.code or 0, *{SLOW} & sys.modules.keys(), file=out, flush=True)\n"
        "            os._exit(0)\n"
        "    os.wait()\n"
    )
    each = ["--version", *(f"{name} --help".strip() for name in ("", *COMMANDS, "cc load", "kernel patch"))]
    done = subprocess.run([sys.executable, "-c", program, *each], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{command} 0" for command in each]


@pytest.mark.virtual
def test_a_run_imports_only_what_it_uses(tmp_path: Path) -> None:
    """Of what is slow: polars and pydantic, which it needs, and of rich what draws a table."""
    command = "run --cc bbr --share 0.5 --duration 1s --repeat 1 --out"
    said, modules = _imported([*command.split(), str(tmp_path / "data")])
    assert "bbr" in said and modules & SLOW == {"polars", "pydantic", "rich"}
    assert modules & {"asyncio", "distributed", "multiprocessing", "rich.progress", "brobust.backends.vm"} == set()


def test_what_measures_is_there_before_polars() -> None:
    """Importing polars takes as long as a short run, so it is imported while the first run is being measured."""
    program = "import sys, brobust.cli.measuring, brobust.backends.virtual; print('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_the_program_for_operators_says_which_commands_the_python_package_has() -> None:
    of_python = [name for name in COMMANDS if name not in ("cc", "watch", "contend", "doctor")]
    for name in ["doctor", *of_python, *OF_CC]:
        done = subprocess.run([host_program(), *name.split()], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "the Python package" in done.stderr and done.stderr.count("\n") == 1, done


def test_help_of_all_commands_imports_none_of_them() -> None:
    said, modules = _imported(["--help"])
    assert [name for name in COMMANDS if f"  {name} " not in said] == []
    assert modules & {f"brobust.cli.{name}" for name in COMMANDS} == set()


def test_the_version_is_that_of_brobust_and_of_what_it_brings(brobust: Brobust) -> None:
    first, *others = brobust("--version").stdout.splitlines()
    assert re.fullmatch(r"brobust \d+\.\d+\.\d+", first)
    assert [line.partition(":")[0] for line in others] == ["virtual kernels", "dataset schema", "BPF controls"]
    assert others[1] == f"dataset schema: {SCHEMA_VERSION}" and "bbr_robust" in others[2]
    of_host = subprocess.run([host_program(), "--version"], capture_output=True, text=True, check=True).stdout
    assert of_host.splitlines() == [first, others[2]]


def test_a_kernel_can_be_built_before_rust_is() -> None:
    """scripts/setup.sh builds it beside Rust's part of the package."""
    program = "import sys, brobust.cli.kernel, brobust.kernels.vm; print('brobust._core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_a_command_is_listed_with_the_first_paragraph_of_its_own_help() -> None:
    listed = {name: command.help for name, command in get_command(app).commands.items()}
    own = {name: first_paragraph(_own_help(command)) for name, command in get_command(app).commands.items()}
    assert listed == own


def _own_help(command: Any) -> str | None:
    command = command.imported() if isinstance(command, Later) else command
    if not isinstance(command, HostCommand):
        return command.help
    said = subprocess.run([host_program(), command.name, "--help"], capture_output=True, text=True, check=True).stdout
    return said.split("\n\n")[0] + "."


def test_a_command_without_its_arguments_says_how_it_is_used(brobust: Brobust) -> None:
    for arguments in ([], ["kernel"], ["cc"]):
        done = brobust(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("Usage: brobust") and "Commands:" in done.stderr


def test_ctrl_c_in_a_command_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether typer makes an exit status of it, as some versions do, or passes it on."""

    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Dataset, "open", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["plot", "x"])
    assert (ended.value.code, capsys.readouterr().err) == (130, "brobust: interrupted\n")


def test_ctrl_c_while_the_commands_are_imported_is_one_line() -> None:
    interrupted = """
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "brobust.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from brobust.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "brobust: interrupted\n")


@pytest.mark.parametrize("arguments", [["--help"], ["kernel", "list"], ["cc", "params", "brb_bbq"]])
def test_standard_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "brobust", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "brobust: standard output cannot be written: no space left on device; make room, then repeat the command\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.fixture
def without_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `brobust docs` look at the Markdown, also where `make docs` has built the site (tests/test_site.py)."""
    monkeypatch.setattr(docs, "SITE", tmp_path / "none")


def test_every_page_of_the_documentation_can_be_asked_for(
    without_site: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for page in ("index", "tutorial", "reproduction", "reproduction/2brobust"):
        with pytest.raises(SystemExit) as ended:
            main(["docs", page])
        assert ended.value.code == 0
        file = Path(capsys.readouterr().out.strip())
        assert file.is_file() and (page == "index" or file.with_suffix("").as_posix().endswith(f"/{page}"))


def test_a_claim_opens_at_its_verdict(without_site: None, capsys: pytest.CaptureFixture[str]) -> None:
    for claim in ("R8", "b10", "P2", "M9", "S8", "Q1", "F26", "S1-VM", "pacer-P1"):
        with pytest.raises(SystemExit) as ended:
            main(["docs", claim])
        file, _, anchor = capsys.readouterr().out.strip().partition("#")
        assert (ended.value.code, anchor) == (0, claim.lower())
        assert Path(file).read_text().count(f'<a id="{anchor}"></a>{claim.upper().removeprefix("PACER-")[:2]}') == 1
    with pytest.raises(SystemExit) as ended:
        main(["docs", "R99"])
    assert (ended.value.code, capsys.readouterr().err) == (
        2, "brobust: 'R99' is no claim of a study; `brobust docs reproduction` leads to all of them\n",
    )  # fmt: skip


def test_commands_that_a_message_suggests_name_a_path_as_a_shell_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, grid = tmp_path / "my data", Grid({"repeat": 2})
    dataset = made_up.dataset(place, grid)

    def interrupted(*_: object) -> Iterator[tuple[Run, Measured]]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(runner, "remaining", lambda *_: grid.runs()[:1])
    monkeypatch.setattr(measuring, "check_builds", lambda *_, **__: [])
    monkeypatch.setattr(runner, "measure", interrupted)
    with pytest.raises(Interrupted) as ended:
        measuring.measure(grid, dataset, as_json=False)
    threads = recordings.Threads("x", None, pl.DataFrame())
    monkeypatch.setattr(recordings, "read", lambda _: threads)
    (place / "of threads").touch()
    with pytest.raises(BadInput) as no_sockets:
        explore(place / "of threads")
    with pytest.raises(BadInput) as unfinished:
        Reproduced(place)
    said = [str(ended.value), str(no_sockets.value), str(unfinished.value)]
    said.append(f"`{virtual_kernels.build_command('virtual-own', str(place))}`")
    paths = [shlex.split(re.findall("`(.*)`", one)[0]) for one in said]
    assert [str(place), str(place / "of threads"), str(place), str(place)] == [
        next(word for word in words if "/" in word) for words in paths
    ]


@pytest.mark.parametrize("stream", [0, 1, 2])
@pytest.mark.parametrize("arguments", [["docs"], ["watch", "--explain"], ["plot", "nowhere"]])
def test_closed_standard_streams_are_as_those_that_nobody_reads(arguments: list[str], stream: int) -> None:
    closed = ["sh", "-c", f'exec "$@" {stream}>&-', "sh", sys.executable, "-m", "brobust", *arguments]
    done = subprocess.run(closed, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=60)
    expected = 2 if arguments[-1] == "nowhere" else 0
    assert (done.returncode, "mistake" in done.stderr) == (expected, False)
    assert "brobust: " not in done.stdout


def test_a_reader_that_has_read_enough_is_no_failure(tmp_path: Path) -> None:
    made_up.dataset(tmp_path, Grid({"contention": {"share": [1, 0.5]}}))
    command = [sys.executable, "-m", "brobust", "plot", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def _without_a_reader(*arguments: str) -> tuple[int, str]:
    """Return the exit status of the command, whose standard output nobody reads, and what it says."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "brobust", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    return done.returncode, done.stderr


def test_a_verdict_is_the_exit_status_although_nobody_reads_the_table(tmp_path: Path) -> None:
    """`brobust compare A B | head` with pipefail, and `brobust run --at-least`, must not pass because of the pipe."""
    before, after = tmp_path / "before", tmp_path / "after"
    for place, mbps in ((before, 18.0), (after, 9.0)):
        made_up.dataset(place, Grid({"repeat": 3}), lambda run, mbps=mbps: {"throughput_mbps": mbps})  # type: ignore[misc]
    assert _without_a_reader("compare", str(before), str(before)) == (0, "")
    assert _without_a_reader("compare", str(before), str(after)) == (1, "")
    assert _without_a_reader("compare", str(before), str(after), "--json") == (1, "")
    assert _without_a_reader("run", "--resume", "--out", str(after), "--at-least", "9mbit") == (0, "")
    status, said = _without_a_reader("run", "--resume", "--out", str(after), "--at-least", "10mbit")
    assert status == 1 and said.startswith("brobust: --at-least: less than 10mbit: ")


@pytest.mark.virtual
def test_a_reproduction_is_complete_although_nobody_reads_which_figures_it_has(tmp_path: Path) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(
        "paper = 'mine'\nfigure = '1'\ntitle = 'Half a CPU'\nabout = ''\n"
        "scale.smoke = { duration = '1s', repeat = 1 }\n"
        "[grid]\nflows = [{ cc = 'bbr' }]\ncontention = { share = [1, 0.5] }\n"
        "[[figures]]\nname = 'throughput'\ntitle = 'Throughput'\nx = 'share'\n"
        "[[claims]]\nid = 'X1'\ntext = 'it carries nothing'\nchecks = [{ rule = 'at_most', value = 0.1 }]\n"
    )
    out = tmp_path / "out"
    assert _without_a_reader("reproduce", str(study), "--scale", "smoke", "--out", str(out))[0] == 1
    assert json.loads((out / "claims.jsonl").read_text())["verdict"] == "differs" and (out / "report.html").is_file()


def test_a_librarys_warning_does_nothing_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib prints a letter that no font has, as in the name of a kernel that a host has reported."""
    shown: list[str] = []
    monkeypatch.setattr(cli, "SHOW_WARNING", lambda message, *_, **__: shown.append(str(message)))
    cli._warn("Glyph 27 (\x1b]0;mine\x07) missing from font(s)", UserWarning, "file", 1)
    assert shown == ["Glyph 27 (\\x1b]0;mine\\x07) missing from font(s)"]


@pytest.mark.parametrize("of_warnings", ["error", "ignore"])
def test_a_file_that_is_left_out_is_said_whatever_python_does_with_warnings(tmp_path: Path, of_warnings: str) -> None:
    dataset = made_up.dataset(tmp_path / "data", Grid({"contention": {"share": [1, 0.5]}}))
    damaged = sorted((dataset.directory / "runs").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    command = [sys.executable, "-W", of_warnings, "-m", "brobust", "explain", "--no-try", str(dataset.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.startswith(f"brobust: {damaged} cannot be read and is left out (")
    assert "a mistake in brobust" not in done.stderr


def test_a_log_gets_colors_but_no_progress_bar_and_a_line_each_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    log = Console(stderr=True)
    assert log.color_system is not None and not log.is_terminal and not log.is_interactive
    runs = Grid({"repeat": 3}).runs()
    times = iter((0.0, 59.0, 61.0, 200.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    with measuring._ProgressBar(log, runs) as progress:
        for outcome, run_of_it in zip(("ok", "ok", "unfaithful"), runs, strict=True):
            rows = made_up.rows(run_of_it, wall_s=30.0, outcome=outcome, reason="too late")
            progress.advance(run_of_it, Measured(rows))
    words = r"2 of 3 runs; left 0:00:\d\d\ncubic, 20mbit, RTT 10ms, 100% CPU: unfaithful: too late\n"
    assert re.fullmatch(words, capsys.readouterr().err)


def test_a_kernel_s_build_says_in_a_log_each_minute_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with kernel._ProgressBar(Console(stderr=True), "virtual-6.12") as progress:
        progress.phase("compiling with 2 jobs")
        for now in (1.0, 59.0, 61.0, 62.0, 122.0, 200.0):
            progress.count(int(now), 200)
    assert capsys.readouterr().err.splitlines() == [
        f"virtual-6.12: compiling with 2 jobs{how_far}" for how_far in ("", ": 30%", ": 61%")
    ]


def test_a_series_goes_on_where_nobody_reads_what_goes_wrong_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """`brobust run --json 2> >(head -1)`: the second run that is unfaithful must not end the series, with status 0."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread:
        monkeypatch.setattr(sys, "stderr", unread)
        monkeypatch.setattr(sys, "stdout", unread)
        errors = Console(stderr=True)
        errors.print("a run is unfaithful")
        errors.print("and another one")
        with pytest.raises(BrokenPipeError):
            Console().print("a table")
        with suppress(BrokenPipeError):  # what is left in its buffer
            unread.close()


@pytest.mark.parametrize(
    ("variable", "value", "colors"), [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("TERM", "xterm", True)]
)
def test_a_figure_in_a_terminal_has_colors_where_the_user_wants_them(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, colors: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert output.has_colors() is colors


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (RuntimeError("two\nlines"), 70, "RuntimeError: two lines (a mistake in brobust; BROBUST_DEBUG=1 shows where)"),
        (MemoryError(), 2, "no memory is left for this; end other programs, or raise ulimit -v"),
        (PermissionError(13, "Permission denied", "/x"), 2, "brobust: /x: permission denied"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), 70, "UnicodeDecodeError"),
    ],
)
def test_what_nobody_foresaw_is_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, status: int, words: str
) -> None:
    def raises(_: Path) -> None:
        raise error

    monkeypatch.setattr(Dataset, "open", raises)
    with pytest.raises(SystemExit) as ended:
        main(["plot", "x"])
    said = capsys.readouterr().err
    assert ended.value.code == status
    assert words in said and said.count("\n") == 1
    monkeypatch.setenv("BROBUST_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["plot", "x"])


def test_a_refusal_shows_what_it_quotes_and_the_terminal_obeys_none_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--cc", "\x1b[2Jcubic"])
    said = capsys.readouterr().err
    assert "\x1b" not in said and "x1b[2Jcubic" in said


def test_a_refusal_of_a_megabyte_shows_its_two_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--kernel", "x" * 1_000_000])
    said = capsys.readouterr().err
    assert said.startswith("brobust: kernel: 'xxx") and "does not run in virtual time" in said and len(said) < 2100


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"path": {"buffer": "99999999999gb"}}, "path.buffer: '99999999999gb' is too large"),
        ({"path": {"buffer": "1e6bdp"}}, "not a buffer size"),
        ({"path": {"buffer": "1000000bdp", "bandwidth": "100gbit", "rtt": "10s"}}, "give at most 1000000MB"),
        ({"path": {"bandwidth": "9" * 400 + "mbit"}}, "is too large; write for example 20mbit"),
        ({"path": {"buffer": "0B"}}, "less than two packets; give at least 3028B, or 0B with a burst for a policer"),
        ({"path": {"burst": "1513B"}}, "less than a packet; give at least 1514B, or 0B for none"),
        ({"path": {"burst": "0.0000001bdp"}}, "less than a packet; give at least 1514B, or 0B for none"),
        ({"path": {"burst": "15kB", "aqm": "codel"}}, "burst 15000B: with aqm codel"),
        ({"path": {"burst": "2sp"}}, "give bytes, bdp or frames (p)"),
        ({"path": {"aqm": "codel target=2000000s"}}, "at most 3600s"),
        ({"contention": {"share": "0.5", "phase": "4000s"}}, "contention.phase: 4000s is more than 3600s"),
        ({"contention": {"share": "0." + "0" * 100 + "1"}}, "a period, timeslice / share, of more than 3600s"),
        ({"contention": {"start": "7200s"}}, "contention.start"),
        ({"flows": {"pattern": "rate 99999gbit"}}, "at most 100gbit"),
        ({"flows": {"pattern": "idle 1s 9999999s"}}, "at most 3600s"),
        ({"cpu": {"timer_cycles": 1e300}}, "cpu.timer_cycles"),
        ({"path": {"rtt": [f"{ms}ms" for ms in range(1, 400)], "loss": [f"{n}%" for n in range(90)]}, "seed": [1, 2]},
         "the lists span 646380 cells"),
    ],
)  # fmt: skip
def test_numbers_that_no_path_has_are_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)) as refusal:
        Grid.from_flags(flags)
    assert len(str(refusal.value)) < 300


def test_what_would_not_fit_into_memory_is_refused_before_it_begins() -> None:
    def asked(**more: Any) -> list[Scenario]:
        path = {"bandwidth": "100gbit", "rtt": "10ms"}
        return Grid.from_flags({"path": path, "contention": {"share": 1}, "duration": "3600s", **more}).scenarios

    memory.check(asked(), at_once=2)
    for kept in ({"packets": True}, {"samples": "ack"}):
        with pytest.raises(BadInput, match=r"GB of memory, 2 of them at once, and [0-9.]+ GB are free; give less"):
            memory.check(asked(**kept), at_once=2)
        memory.check(asked(**kept, duration="1s", path={"bandwidth": "20mbit"}), at_once=2)
    slices = {"contention": {"share": 0.999, "timeslice": "100us"}, "flows": {"sender": 16}, "path": {}}
    assert memory.needed(asked(**slices)[0]) > 10e9


def test_memory_is_free_only_within_the_limits_of_the_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "own")
    unlimited = memory.available()
    (tmp_path / "own").write_text("4:memory:/other\n0::/pod/container\n")
    (tmp_path / "pod/container").mkdir(parents=True)
    for group, limit in (("pod", "100000000"), ("pod/container", "max")):
        for name, text in (("max", limit), ("current", "60000000"), ("stat", "anon 1\nfile 50000000\nshmem 20000000")):
            (tmp_path / group / f"memory.{name}").write_text(f"{text}\n")
    assert memory.available() == 70_000_000 < unlimited
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "pod")  # in a container, where the path may be the host's
    assert memory.available() == 70_000_000


def test_the_runs_of_each_backend_have_to_fit_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid.from_flags({"backend": ["virtual", "vm"], "duration": ["2s", "3600s"]})
    checked: dict[str, int] = {}
    monkeypatch.setattr(memory, "check", lambda these, at_once: checked.update({these[0].backend: at_once}))
    monkeypatch.setattr(backends, "_module", lambda name: SimpleNamespace(check=lambda these: None))
    backends.check(grid.as_written, jobs=3)
    assert checked == {"virtual": 3, "vm": 1}
    few = Grid.from_flags({"backend": "virtual", "repeat": 2, "flows": {"cc": "bbr"}, "contention": {"share": 1}})
    backends.check(few, jobs=64)
    assert checked["virtual"] == 2


def test_only_kernels_in_virtual_time_need_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (5000, 5000))
    virtual, vm = (Grid.from_flags({"backend": name}).as_written for name in ("virtual", "vm"))
    memory.check(vm, at_once=1)
    with pytest.raises(MissingSupport, match="ulimit -f"):
        memory.check(virtual, at_once=1)


def test_a_run_has_room_for_what_it_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 400 MB it failed as if brobust had a mistake, with 2 GB it hung."""
    limits = {resource.RLIMIT_AS: (2_000_000_000, 2_000_000_000)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits.get(which, (resource.RLIM_INFINITY,) * 2))
    virtual, vm = (Grid.from_flags({"backend": name}).as_written for name in ("virtual", "vm"))
    memory.check(vm, at_once=1)
    with pytest.raises(MissingSupport, match=r"^ulimit -v: no program may have more than 2 GB of addresses, and one"):
        memory.check(virtual, at_once=1)


def test_each_kernel_of_the_runs_at_a_time_has_its_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(process_limits, "allow_timers", asked.append)
    memory.check(Grid.from_flags({"backend": ["virtual"]}).as_written, at_once=3)
    assert asked == [6]


@pytest.mark.parametrize(
    "words",
    [
        "watch --count 1", "cc list", "cc programs bbr_steady", "cc load bbr_steady --dry-run",
        "cc unload --all --dry-run", "contend --pid 1 --share 0.5 --dry-run", "doctor --clean --dry-run",
    ],
)  # fmt: skip
def test_who_may_hardly_open_a_file_is_told_no_half_of_it(words: str) -> None:
    limited = ["prlimit", "--nofile=4:4", host_program(), *words.split()]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    _refused(done, "no more than 4 files may be open at a time (ulimit -n), and up to 32 are needed")


@pytest.mark.virtual
def test_a_bound_on_throughput_is_for_continuous_integration(brobust: Brobust, tmp_path: Path) -> None:
    grid = ["--cc", "cubic,bbr", "--share", "0.3", "--duration", "4s", "--buffer", "8bdp", "--repeat", "1", "--json"]
    passes = brobust("run", *grid, "--at-least", "100kbit")
    assert (passes.returncode, passes.stderr) == (0, "")
    fails = brobust("run", *grid, "--at-least", "12mbit")
    assert fails.returncode == 1 and len(fails.stdout.splitlines()) == 2
    words = r"brobust: --at-least: less than 12mbit: bbr, .*30% CPU.* carried \d\.\d+ Mbit/s\n"
    assert re.fullmatch(words, fails.stderr), fails.stderr
    _refused(brobust("run", *grid, "--at-least", "much"), "--at-least: 'much'")
    status, said = _without_a_reader("run", *grid, "--out", str(tmp_path / "unread"), "--at-least", "12mbit")
    assert status == 1 and re.fullmatch(words, said), said  # although nobody reads the line of the first run


def test_at_least_is_asked_of_what_the_table_shows(tmp_path: Path) -> None:
    """Two flows that send one after the other carry together what one of them does."""
    flows = [{"cc": "bbr", "stop": "3s"}, {"cc": "cubic", "start": "3s"}]
    grid = Grid({"flows": flows, "duration": "6s"})
    dataset = made_up.dataset(tmp_path / "a", grid, lambda _: {"throughput_mbps": 18.0})
    measuring.require_throughput(grid, dataset, 18_000_000)
    with pytest.raises(measuring.NoSuccess, match=r"carried 18 Mbit/s"):
        measuring.require_throughput(grid, dataset, 18_100_000)
    little_less = made_up.dataset(tmp_path / "b", grid, lambda _: {"throughput_mbps": 17.996})
    with pytest.raises(measuring.NoSuccess, match=r"less than 18mbit: .* carried 17\.996 Mbit/s"):
        measuring.require_throughput(grid, little_less, 18_000_000)
    slow = Grid({"flows": [{"cc": ["bbr", "cubic", "reno"]}]})
    of_each = made_up.dataset(tmp_path / "c", slow)
    with pytest.raises(measuring.NoSuccess, match=r"1 Mbit/s; and 2 others$"):
        measuring.require_throughput(slow, of_each, 2_000_000)
    unfaithful = made_up.dataset(tmp_path / "d", grid, lambda _: {"throughput_mbps": 18.0, "outcome": "unfaithful"})
    with pytest.raises(measuring.NoSuccess, match="carried nothing, since no run is ok"):
        measuring.require_throughput(grid, unfaithful, 2_000_000)
    (run,) = grid.runs()
    measured = Measured(made_up.rows(run, throughput_mbps=18.0))
    assert repr(Result(run, measured)).endswith(": bbr 9.00 Mbit/s, cubic 9.00 Mbit/s>")


def test_whether_a_series_succeeds_is_decided_by_its_own_runs(tmp_path: Path) -> None:
    both, bbr = (Grid({"flows": [{"cc": cc}]}) for cc in (["bbr", "cubic"], "bbr"))
    failed_ids = {run.id for run in bbr.runs()}
    dataset = made_up.dataset(tmp_path / "a", both, lambda run: {"outcome": "failed" if run.id in failed_ids else "ok"})
    measuring.require_ok(both, dataset)
    with pytest.raises(measuring.NoSuccess, match=r"^no run is ok \(1 failed\); in .*/a the column reason of"):
        measuring.require_ok(bbr, dataset)


@pytest.mark.parametrize("outcomes", [("failed", "failed"), ("failed", "ok")])
def test_a_series_in_which_every_run_failed_has_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcomes: tuple[str, str]
) -> None:
    left = list(outcomes)
    grid = Grid({"kernel": "virtual-6.12", "repeat": 2})
    measuring.show(made_up.dataset(tmp_path / "a", grid, lambda _: {"outcome": left.pop()}))
    assert bool(capsys.readouterr().out) == ("ok" in outcomes)


@pytest.mark.parametrize(
    ("failures", "said"), [(0, None), (1, None), (2, r"0 Mbit/s \(runs that failed, .*: 2\)"), (3, "nothing, since")]
)
def test_a_kernel_that_panics_most_of_the_time_carries_not_enough(
    tmp_path: Path, failures: int, said: str | None
) -> None:
    grid = Grid({"repeat": 3, "flows": [{"count": 2}]})
    dataset = Dataset.create(tmp_path / "data", grid, {})
    for number, one in enumerate(grid.runs()):
        measured = Measured(made_up.rows(one, throughput_mbps=18.0))
        dataset.append(one.id, failed(one, "it panicked", datetime.now(UTC)) if number < failures else measured)
    expected = nullcontext() if said is None else pytest.raises(measuring.NoSuccess, match=f"carried {said}")
    with expected:
        measuring.require_throughput(grid, dataset, 10_000_000)
