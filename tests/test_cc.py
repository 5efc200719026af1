"""`brobust cc` loads into this host's kernel, in network namespaces of the test; and its refusals."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import verifier

from brobust import _core
from brobust.cc import names
from brobust.cc.names import OURS
from brobust.cli.cc import OF_HOST_PROGRAM
from brobust.errors import BadInput, BrobustError
from brobust.host.programs import ask_host_program, host_program
from conftest import eventually, json_lines, kill_with_guardian, killed_at_end
from test_virtual import WITHOUT

NAME = "brb_reno"
BROBUST = [str(Path(sys.executable).with_name("brobust"))]
JOURNAL = Path(f"/run/brobust-cc/{NAME}.json")
DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
NAMED = Path("/run/netns")
BPF = 321  # the number of bpf(2) on x86-64

# The defaults of the namespaces of `places`: the one that is set, and the one that a new namespace inherits.
PREVIOUS = ["reno", DEFAULT.read_text().strip()]

# Prints the control of a new socket.
NEW_SOCKET = "import socket; print(socket.socket().getsockopt(socket.IPPROTO_TCP, 13, 16).rstrip(b'\\0').decode())"

# Connects two sockets, says so, and prints the control of one of them when it is asked.
CONNECTED = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
one, other = socket.create_connection(listener.getsockname()), listener.accept()[0]
print("connected", flush=True)
input()
print(one.getsockopt(socket.IPPROTO_TCP, 13, 16).rstrip(b"\\0").decode())
"""

# Listens with a control that it has chosen, and says so; then prints the control of a connection that it accepts.
LISTENING = f"""
import socket
listener = socket.socket()
listener.setsockopt(socket.IPPROTO_TCP, 13, b"{NAME}")
listener.bind(("127.0.0.1", 0))
listener.listen()
print("listening", flush=True)
input()
one, other = socket.create_connection(listener.getsockname()), listener.accept()[0]
print(other.getsockopt(socket.IPPROTO_TCP, 13, 16).rstrip(b"\\0").decode())
"""

# Makes the control the default of its namespace whenever there is one.
TAKING_IT = f"""
import os
default = os.open("{DEFAULT}", os.O_WRONLY)
print("begun", flush=True)
while True:
    try:
        os.pwrite(default, b"{NAME}", 0)
    except OSError:
        pass
"""


def _why_not() -> str:
    if os.geteuid() != 0:
        return "loading takes root"
    try:
        ask_host_program("cc", "load", NAME, "--dry-run")
    except BrobustError as refusal:
        return str(refusal)
    return ""


# A kernel has a control's name only once, and whoever comes next undoes all abandoned trials.
pytestmark = pytest.mark.host

needs_kernel = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


def _brobust(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BROBUST, *arguments], capture_output=True, text=True, check=False, timeout=60)


def _is_gone() -> bool:
    return NAME not in AVAILABLE.read_text().split() and not JOURNAL.exists()


def _inside(place: Path, code: str) -> list[str]:
    return ["nsenter", f"--net={place}", sys.executable, "-c", code]


def _new_socket_gets(place: Path) -> str:
    return subprocess.run(_inside(place, NEW_SOCKET), capture_output=True, text=True, check=True).stdout.strip()


def _new_sockets_get(places: Sequence[Path]) -> list[str]:
    return [_new_socket_gets(place) for place in places]


def _check_as_before(places: Sequence[Path]) -> None:
    """Check that nothing is left of the control, and that each of `places` has its previous default."""
    assert _new_sockets_get(places) == PREVIOUS
    assert _is_gone()


@pytest.fixture
def places() -> Iterator[list[Path]]:
    """Yield two namespaces, one with the default Reno, one with an inherited default; unload the control afterwards."""
    names = [f"brt-{secrets.token_hex(3)}" for _ in range(2)]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        _set_default(NAMED / names[0], "reno")
        yield [NAMED / name for name in names]
    finally:
        _brobust("cc", "unload", NAME)  # it may not be loaded
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _set_default(place: Path, control: str) -> None:
    setting = f"net.ipv4.tcp_congestion_control={control}"
    subprocess.run(["nsenter", f"--net={place}", "sysctl", "-qw", setting], check=True)


def _default_of(places: Sequence[Path]) -> list[str]:
    return ["--default", *(word for place in places for word in ("--netns", place.name))]


@contextmanager
def _trial(places: list[Path], stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [*BROBUST, "cc", "load", NAME, *_default_of(places)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as trial:
        assert trial.stdout is not None and trial.stdout.readline().startswith(f"loaded {NAME}")
        yield trial
        trial.wait(timeout=60)


@contextmanager
def _pinned(*controls: str, default_in: Sequence[Path] = ()) -> Iterator[None]:
    """Load controls, and unload what is still loaded of them when the context ends."""
    try:
        for control in controls:
            loaded = _brobust("cc", "load", control, "--pin", *(_default_of(default_in) if default_in else ()))
            assert loaded.returncode == 0, loaded.stderr
        yield
    finally:
        for control in controls:
            _brobust("cc", "unload", control)


@pytest.fixture
def nothing_of_ours() -> None:
    """Skip a test of all controls where somebody uses one of ours."""
    if set(OURS) & set(AVAILABLE.read_text().split()):
        pytest.skip("a control of ours is in use on this host")


@needs_kernel
def test_a_pinned_control_is_the_default_until_it_is_unloaded(places: list[Path]) -> None:
    loaded = _brobust("cc", "load", NAME, "--pin", *_default_of(places))
    assert loaded.returncode == 0, loaded.stderr
    assert _new_sockets_get(places) == [NAME, NAME]
    listed = json_lines(_brobust("cc", "list", "--json").stdout)
    (row,) = [row for row in listed if row["name"] == NAME]
    assert (row["state"], set(row["default_of"])) == ("pinned", {place.name for place in places})
    again = _brobust("cc", "load", NAME, "--pin")
    assert again.returncode == 2 and "already a congestion control" in again.stderr
    assert f"pinned: `brobust cc unload {NAME}` unloads it" in again.stderr
    assert _brobust("cc", "unload", NAME).returncode == 0
    _check_as_before(places)


@needs_kernel
def test_our_own_namespace_is_called_one(places: list[Path]) -> None:
    load = ["nsenter", f"--net={places[0]}", host_program(), "cc", "load", NAME, "--default", "--dry-run"]
    said = subprocess.run(load, capture_output=True, text=True, check=True).stdout
    assert said.endswith(f" of this network namespace from reno to {NAME}\n")


@needs_kernel
def test_what_was_changed_is_said_as_what_would_be(places: list[Path]) -> None:
    load = ["cc", "load", NAME, *_default_of(places)]
    changes = [f"net.ipv4.tcp_congestion_control of {places[0].name} from reno to {NAME}"]
    changes.append(f"net.ipv4.tcp_congestion_control of {places[1].name} from {PREVIOUS[1]} to {NAME}")
    assert _brobust(*load, "--dry-run").stdout.splitlines()[2:] == [f"would change {change}" for change in changes]
    said = _brobust(*load, "--for", "200ms").stdout.splitlines()
    assert said[0].startswith(f"loaded {NAME}") and said[1:3] == [f"changed {change}" for change in changes], said
    twice = ["--netns", places[0].name, "--netns", str(places[0])]
    assert len(_brobust(*load, *twice, "--dry-run").stdout.splitlines()) == 4
    planned = json.loads(_brobust(*load, "--dry-run", "--json").stdout)
    assert json.loads(_brobust(*load, "--pin", "--json").stdout)["defaults"] == planned["defaults"]


@needs_kernel
def test_connections_keep_the_control_and_are_reported(places: list[Path]) -> None:
    place = places[0]
    assert _brobust("cc", "load", NAME, "--pin", *_default_of([place])).returncode == 0
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(_inside(place, CONNECTED), text=True, **pipes) as connected:
        assert connected.stdout is not None and connected.stdout.readline() == "connected\n"
        unloaded = json.loads(_brobust("cc", "unload", NAME, "--json").stdout)
        # The one that listens, too.
        assert unloaded == {"unloaded": NAME, "held_by": {place.name: 3}}
        assert connected.communicate("\n")[0].strip() == NAME
    assert _new_socket_gets(place) == "reno"


@needs_kernel
def test_of_a_control_with_which_somebody_listens_something_is_left(places: list[Path]) -> None:
    place = places[0]
    assert _brobust("cc", "load", NAME, "--pin").returncode == 0
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(_inside(place, LISTENING), text=True, **pipes) as listening:
        assert listening.stdout is not None and listening.stdout.readline() == "listening\n"
        unloaded = _brobust("cc", "unload", NAME).stdout
        assert listening.communicate("\n")[0].strip() == NAME, "it is given to new connections"
        assert unloaded == f"unloaded {NAME}; sockets that use it until they close: 1 ({place.name})\n"


@needs_kernel
@pytest.mark.usefixtures("places")
def test_a_watch_keeps_nothing_of_a_control_that_was_unloaded() -> None:
    """It held the map of its state from sweep to sweep, and so found it again, for ever."""

    def holds_a_map() -> bool:
        found = []
        for file in Path(f"/proc/{watching.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it has just been closed
                found.append(str(file.readlink()))
        return any("bpf-map" in one for one in found)

    watch = [host_program(), "watch", "--json", "--interval", "50ms", "--window", "1s"]
    with killed_at_end(watch, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None and _brobust("cc", "load", NAME, "--pin").returncode == 0
        for _ in range(3):
            watching.stdout.readline()
        assert _brobust("cc", "unload", NAME).returncode == 0
        for _ in range(3):
            watching.stdout.readline()
        assert eventually(lambda: not holds_a_map())


@needs_kernel
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_trial_ends_with_its_command_however_that_ends(places: list[Path], end: signal.Signals) -> None:
    with _trial(places) as trial:
        assert _new_sockets_get(places) == [NAME, NAME]
        again = _brobust("cc", "load", NAME)
        assert f"loaded by a trial of process {trial.pid}: `brobust cc unload {NAME}`" in again.stderr, again
        trial.send_signal(end)
        assert trial.wait(60) == (-end if end == signal.SIGKILL else 130)
    assert eventually(_is_gone)
    assert _new_sockets_get(places) == PREVIOUS


@needs_kernel
def test_a_trial_whose_guardian_dies_too_is_taken_back_by_the_next_command(places: list[Path]) -> None:
    with _trial(places) as trial:
        kill_with_guardian(trial)
    assert _new_sockets_get(places) == [NAME, NAME], "usable, though nobody is left"
    assert f"unloaded {NAME}, left by a trial" in _brobust("cc", "list").stderr
    _check_as_before(places)


@needs_kernel
def test_a_trial_may_have_an_end(places: list[Path]) -> None:
    ended = _brobust("cc", "load", NAME, "--for", "0.2s", *_default_of(places))
    assert ended.returncode == 0 and f"unloaded {NAME}" in ended.stdout
    _check_as_before(places)


@needs_kernel
def test_a_namespace_that_takes_it_again_while_it_is_unloaded_does_not_keep_it(places: list[Path]) -> None:
    # As a user can who has made the namespace.
    with killed_at_end(_inside(places[1], TAKING_IT), stdout=subprocess.PIPE) as taking:
        assert taking.stdout is not None and taking.stdout.readline()
        for _ in range(5):  # it comes in between in every second one
            assert _brobust("cc", "load", NAME, "--for", "0.3s", *_default_of(places)).returncode == 0
            _check_as_before(places)


@needs_kernel
def test_of_two_trials_at_once_one_is_refused_and_the_other_goes_on(places: list[Path]) -> None:
    command = [*BROBUST, "cc", "load", NAME, *_default_of(places)]
    trials = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert eventually(lambda: any(trial.poll() is not None for trial in trials))
        (refused,) = [trial for trial in trials if trial.poll() is not None]
        (other,) = [trial for trial in trials if trial is not refused]
        assert refused.returncode == 2 and "already a congestion control" in refused.communicate()[1]
        assert other.stdout is not None and other.stdout.readline().startswith(f"loaded {NAME}")
        assert _new_sockets_get(places) == [NAME, NAME]
    finally:
        for trial in trials:
            trial.send_signal(signal.SIGINT)
            trial.communicate(timeout=60)
    _check_as_before(places)


@needs_kernel
def test_a_command_unloads_only_what_it_has_loaded_itself(places: list[Path]) -> None:
    with _trial(places) as trial:
        # As if another command had unloaded the control and then loaded it: this test, which lives.
        other = Path("/proc/self/stat").read_text().rsplit(")")[-1].split()[19]
        JOURNAL.write_text(json.dumps({**json.loads(JOURNAL.read_text()), "owner": f"{os.getpid()}-{other}"}))
        trial.send_signal(signal.SIGINT)
        assert trial.stdout is not None and "another command has already unloaded" in trial.stdout.read()
    assert _new_sockets_get(places) == [NAME, NAME]
    assert _brobust("cc", "unload", NAME).returncode == 0
    _check_as_before(places)


@needs_kernel
def test_a_trial_that_another_command_unloads_ends_and_says_so(places: list[Path]) -> None:
    with _trial(places) as trial:
        assert _brobust("cc", "unload", NAME).returncode == 0
        ended = eventually(lambda: trial.poll() is not None)
        trial.kill()
        assert ended and trial.wait() == 1, trial.returncode
        said = trial.stdout.read() if trial.stdout else ""
        assert said.endswith(f"another command has already unloaded {NAME}\n"), said
    assert _new_sockets_get(places) == PREVIOUS


@needs_kernel
def test_a_trial_whose_journal_is_damaged_is_not_called_unloaded_and_its_file_is_named(places: list[Path]) -> None:
    with _trial(places, stderr=subprocess.PIPE) as trial:
        JOURNAL.write_text("{")
        trial.send_signal(signal.SIGINT)
        said = trial.stderr.read() if trial.stderr else ""
    assert trial.returncode == 2
    assert f"{JOURNAL} is damaged" in said and f"`brobust cc unload {NAME}`" in said, said
    unloaded = _brobust("cc", "unload", NAME)
    assert unloaded.returncode == 0 and f"{JOURNAL} was damaged" in unloaded.stderr, unloaded.stderr
    assert {_new_socket_gets(place) for place in places} <= {"cubic", "reno"}
    assert _is_gone()


@needs_kernel
def test_a_container_with_the_directories_of_the_host_does_not_take_its_trial_for_abandoned(places: list[Path]) -> None:
    with _trial(places) as trial:
        inside = ["unshare", "--pid", "--fork", "--mount-proc", host_program()]
        for command in (["cc", "list"], ["doctor", "--clean"]):
            done = subprocess.run([*inside, *command], capture_output=True, text=True, check=True)
            assert "unloaded" not in done.stderr and "removed" not in done.stdout, done
        assert _new_sockets_get(places) == [NAME, NAME]
        trial.send_signal(signal.SIGINT)
    assert eventually(_is_gone)


@needs_kernel
def test_doctor_cleans_an_abandoned_trial(places: list[Path]) -> None:
    with _trial(places) as trial:
        kill_with_guardian(trial)
    row = {"kind": "congestion control", "name": NAME}
    assert {**row, "removed": False} in ask_host_program("doctor", "--clean", "--dry-run")
    assert _new_sockets_get(places) == [NAME, NAME]
    assert {**row, "removed": True} in ask_host_program("doctor", "--clean")
    _check_as_before(places)


@needs_kernel
def test_a_user_who_may_not_undo_an_abandoned_trial_is_told_who_may(places: list[Path]) -> None:
    with _trial(places) as trial:
        kill_with_guardian(trial)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *BROBUST]
    listed = subprocess.run([*as_nobody, "cc", "list"], capture_output=True, text=True, check=False, cwd="/")
    if "PermissionError" in listed.stderr or "Permission denied" in listed.stderr:
        pytest.skip("the checkout cannot be read by others")
    assert listed.returncode == 0 and len(listed.stderr.splitlines()) == 1, listed.stderr
    assert f"{NAME} is still loaded from a trial" in listed.stderr and "sudo brobust cc list" in listed.stderr


@needs_kernel
def test_a_namespace_that_is_only_mounted_somewhere_gets_its_default_back(places: list[Path], tmp_path: Path) -> None:
    """Mount a namespace without a name, as container engines do."""
    elsewhere = tmp_path / "with a space"
    elsewhere.touch()
    subprocess.run(["mount", "--bind", places[0], elsewhere], check=True)
    try:
        subprocess.run(["ip", "netns", "delete", places[0].name], check=True)
        assert _brobust("cc", "load", NAME, "--pin", "--default", "--netns", str(elsewhere)).returncode == 0
        assert _new_socket_gets(elsewhere) == NAME
        assert _brobust("cc", "unload", NAME).returncode == 0
        assert _new_socket_gets(elsewhere) == "reno"
    finally:
        subprocess.run(["umount", elsewhere], check=True)
        subprocess.run(["ip", "netns", "add", places[0].name], check=True)


@needs_kernel
def test_a_dry_run_changes_nothing(places: list[Path]) -> None:
    planned = _brobust("cc", "load", "brb_bbq", "--param", "alpha=5ms", "--dry-run", *_default_of(places))
    assert planned.returncode == 0, planned.stderr
    assert "bbq_alpha = 5ms" in planned.stdout and f"of {places[0].name} from reno" in planned.stdout
    assert "brb_bbq" not in AVAILABLE.read_text().split() and _is_gone()
    assert _new_sockets_get(places) == PREVIOUS


@needs_kernel
def test_a_namespace_whose_name_is_a_number_is_not_taken_for_that_of_a_process() -> None:
    nobodys, ours = "99999999", str(os.getpid())
    try:
        for name in (nobodys, ours):
            subprocess.run(["ip", "netns", "add", name], check=True)
        planned = _brobust("cc", "load", NAME, "--default", "--dry-run", "--netns", nobodys)
        assert f"of {nobodys} from" in planned.stdout, planned
        refused = _brobust("cc", "load", NAME, "--default", "--dry-run", "--netns", ours)
        assert refused.returncode == 2 and f"give /run/netns/{ours} or /proc/{ours}/ns/net" in refused.stderr
    finally:
        for name in (nobodys, ours):
            subprocess.run(["ip", "netns", "delete", name], check=False)


@needs_kernel
def test_controls_that_are_unloaded_in_any_order_give_the_first_default_back(places: list[Path]) -> None:
    later = "brb_vegas"
    with _pinned(NAME, later, default_in=places):
        assert _brobust("cc", "unload", NAME).returncode == 0
        assert _new_sockets_get(places) == [later, later]
        assert _brobust("cc", "unload", later).returncode == 0
    assert _new_sockets_get(places) == PREVIOUS


@needs_kernel
def test_a_link_in_the_place_of_a_pin_does_not_lead_to_another_control() -> None:
    other, pins = "brb_vegas", Path("/sys/fs/bpf/brobust")
    with _pinned(NAME, other):
        (pins / NAME).unlink()
        (pins / NAME).symlink_to(pins / other)
        assert _brobust("cc", "unload", NAME).returncode == 0
        available = AVAILABLE.read_text().split()
        assert other in available and NAME not in available and _is_gone()


@pytest.mark.usefixtures("nothing_of_ours")
def test_where_nothing_is_loaded_a_dry_run_is_one_in_json_too() -> None:
    planned = _brobust("cc", "unload", "--all", "--dry-run", "--json")
    assert (planned.returncode, json.loads(planned.stdout)) == (0, {"would_unload": None})


@needs_kernel
@pytest.mark.usefixtures("nothing_of_ours")
def test_all_are_unloaded_although_nobody_reads_what_is_said() -> None:
    both = {NAME, "brb_vegas"}
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as unread, _pinned(*both):
        subprocess.run([host_program(), "cc", "unload", "--all"], stdout=unread, check=True, timeout=60)
        assert not both & set(AVAILABLE.read_text().split())


@needs_kernel
@pytest.mark.usefixtures("nothing_of_ours")
def test_one_that_cannot_be_unloaded_keeps_no_other_one_loaded() -> None:
    both = {NAME, "brb_vegas"}
    with _pinned(*both):
        # What is to be restored cannot be read.
        JOURNAL.unlink()
        JOURNAL.mkdir()
        try:
            refused = _brobust("cc", "unload", "--all")
        finally:
            JOURNAL.rmdir()
        assert refused.returncode == 2 and f"{NAME}.json cannot be read" in refused.stderr
        assert "unloaded brb_vegas" in refused.stdout
        assert both & set(AVAILABLE.read_text().split()) == {NAME}


@needs_kernel
def test_a_default_that_nobody_wrote_down_goes_back_to_one_that_is_there(places: list[Path]) -> None:
    """Set a default without recording it, as if the namespace had inherited it from init_net."""
    assert _brobust("cc", "load", NAME, "--pin").returncode == 0
    _set_default(places[0], NAME)
    assert _brobust("cc", "unload", NAME).returncode == 0
    assert _new_socket_gets(places[0]) in ("cubic", "reno")


@needs_kernel
def test_a_control_that_is_a_module_is_left_alone(places: list[Path]) -> None:
    """Hide how it was loaded: for these commands there is a module of its name."""
    assert _brobust("cc", "load", NAME, "--pin", *_default_of(places)).returncode == 0
    journal = JOURNAL.read_text()
    script = f'rm {JOURNAL}; mount -t tmpfs none /sys/module && mkdir /sys/module/{NAME} && exec "$@"'

    def inside(*command: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--mount", "sh", "-c", script, "sh", str(host_program()), "cc", *command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    try:
        refused, all_of_them, listed = inside("unload", NAME), inside("unload", "--all"), inside("list", "--json")
        assert _new_sockets_get(places) == [NAME, NAME]
    finally:
        JOURNAL.write_text(journal)
    assert refused.returncode == 2 and "that brobust did not load" in refused.stderr
    assert all_of_them.returncode == 0 and "no congestion control of brobust is loaded" in all_of_them.stdout
    (row,) = [row for row in json_lines(listed.stdout) if row["name"] == NAME]
    assert row["state"] == "module"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "bbr_stedy"], "did you mean bbr_steady?"),
        (["load", "bbr_setady"], "did you mean bbr_steady?"),
        (["unload", "bbr_stedy"], "did you mean bbr_steady?"),
        (["params", "bbr_stedy"], "did you mean bbr_steady?"),
        (["programs", "bbr_stedy"], "did you mean bbr_steady?"),
        (["load", "brb_bbq:alpha=5ms:beta=1"], "write brb_bbq --param alpha=5ms --param beta=1"),
        (["load", "reno"], "reno is the kernel's own and there already: nothing to load; sysctl net.ipv4"),
        (
            ["load", "bbr_robust", "--param", "bbr1_high_gain=2"],
            "bbr_robust has no parameter bbr1_high_gain; it has robust_gain, robust_repair",
        ),
        (["load", "bbr_steady", "--param", "hast=3"], "bbr_steady has no parameter hast; it has steady_ahead"),
        (["load", "bbr_steady", "--dry-run", "--param", "growth=2%"], "steady_growth"),
        (["params", "cubic"], "no control of ours, and others take no parameters"),
        (["load", NAME, "--default", "--netns", "no-such-namespace"], "not a network namespace"),
        (["load", NAME, "--for", "0s"], "too short to see anything; give at least 100ms"),
        (["load", "brb_bbr1_master", "--param", "master_stride=5"], "virtual"),
        (["unload", "cubic"], "not loaded by brobust"),
        (["params", "cubic"], "brb_cubic"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments: list[str], said: str) -> None:
    refused = _brobust("cc", *arguments)
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1 and refused.stderr.startswith("brobust: ")
    assert said in refused.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bbr_stedy", "did you mean bbr_steady?"),
        ("bbr3", "did you mean brb_bbr3?"),
        ("vegsa", "did you mean vegas?"),
        ("brb_copa", "there are bbr, bbr_robust, "),
        ("brb_new", "brb_new.c is there, but this command was compiled without it: `make setup` compiles it"),
    ],
)
def test_a_control_that_is_not_known_is_answered_with_what_may_help(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "controls").mkdir()
    (tmp_path / "controls/brb_new.c").touch()
    monkeypatch.setattr("brobust.kernels.our_files.CC", tmp_path)
    with pytest.raises(BadInput, match=f"neither of Linux nor of brobust; .*{re.escape(said)}"):
        names.check_written(name, "virtual-6.12")
    with pytest.raises(BadInput, match="no congestion control of ours; "):
        names.check_ours([name])
    with pytest.raises(BadInput, match="no control of ours, and others take no parameters; "):
        names.settings_of(f"{name}:alpha=2")


@pytest.fixture
def as_nobody() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs `brobust cc` as a user without any privilege."""
    program = shutil.copy(host_program(), "/run/brobust-host-of-a-test")  # the checkout may be closed to others
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "cc"]
    try:
        yield lambda *words: subprocess.run([*nobody, *words], capture_output=True, text=True, check=False, timeout=60)
    finally:
        Path(program).unlink()


@needs_kernel
def test_without_privilege_nothing_is_loaded(as_nobody: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    refused = as_nobody("load", NAME)
    assert refused.returncode == 2 and "run this with sudo" in refused.stderr


def test_a_command_that_is_stopped_beyond_its_time_is_ended_by_its_guardian() -> None:
    """A shell that says nothing stands for the command: a real one has a minute and a half beyond its time."""
    reading, writing = os.pipe()
    guard = f"{host_program()} guard trial {NAME} nobody 1; :"
    command = ["sh", "-c", guard]
    with subprocess.Popen(
        command, stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as silent:
        os.close(reading)
        said = silent.communicate(timeout=30)[1]
    os.close(writing)
    assert silent.returncode == -signal.SIGKILL and f"beyond its time; it was killed, and {NAME} is unloaded" in said


@needs_kernel
@pytest.mark.root
@pytest.mark.parametrize("verb", ["load", "programs"])
def test_root_without_capabilities_as_in_a_container_is_not_told_to_use_sudo(verb: str) -> None:
    command = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", *BROBUST, "cc", verb, NAME]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2 and "CAP_BPF, which a container or a security module keeps even" in refused.stderr
    assert "sudo" not in refused.stderr and "takes root" not in refused.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ([sys.executable, "-c", WITHOUT, str(BPF)], "by a seccomp filter, as containers and services have: run this"),
        (["unshare", "--user", "--map-root-user"], "by the kernel: root of a user namespace, as in a rootless"),
    ],
)
def test_who_refuses_bpf_to_root_is_named(inside: list[str], said: str) -> None:
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{inside[0]} is not allowed here")  # some hosts have no user namespaces
    command = [*inside, str(host_program()), "cc", "load", NAME, "--dry-run"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1, refused.stderr
    assert f"loaded, is refused here (Operation not permitted) {said}" in refused.stderr


@needs_kernel
def test_without_privilege_nothing_is_unloaded(
    places: list[Path], as_nobody: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert _brobust("cc", "load", NAME, "--pin", *_default_of(places)).returncode == 0
    planned = as_nobody("unload", NAME, "--dry-run")
    assert (planned.returncode, "which only root sees" in planned.stdout) == (0, True), planned
    assert json.loads(as_nobody("unload", NAME, "--dry-run", "--json").stdout)["sees_all_namespaces"] is False
    assert "only root" not in _brobust("cc", "unload", NAME, "--dry-run").stdout
    refused = as_nobody("programs", NAME)
    assert refused.returncode == 2 and "reading the programs of a congestion control takes root" in refused.stderr
    refused = as_nobody("unload", NAME)
    assert refused.returncode == 2
    assert refused.stderr == "brobust: unloading a congestion control takes root: run this with sudo\n"
    assert _new_sockets_get(places) == [NAME, NAME]


@needs_kernel
@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        ("/sys/kernel/btf", "does not describe its types"),
        ("/sys/fs", "there is no BPF file system"),
        ("/run", "/run/brobust-cc cannot be created (read-only file system)"),
    ],
)
def test_a_host_that_lacks_something_is_refused_in_one_line(hidden: str, said: str) -> None:
    script = f"mount -t tmpfs -o ro none {hidden} && exec {host_program()} cc load {NAME} --for 1s"
    refused = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1, refused.stderr
    assert said in refused.stderr and _is_gone()


def test_parameters_are_listed_with_units() -> None:
    rows = json_lines(_brobust("cc", "params", "brb_bbq", "--json").stdout)
    (alpha,) = [row for row in rows if row["name"] == "bbq_alpha"]
    assert alpha["value"] == "3ms" and alpha["help"]
    assert set(_core.control_names()) <= set(OURS)
    assert {row["name"] for row in ask_host_program("cc", "list") if row["from"] == "brobust"} == set(OURS)


@needs_kernel
def test_programs_show_their_size_and_after_traffic_with_statistics_their_cost(places: list[Path]) -> None:
    assert _brobust("cc", "load", NAME, "--pin").returncode == 0
    shown = json_lines(_brobust("cc", "programs", NAME, "--json").stdout)
    assert {"cong_avoid", "ssthresh", "init"} <= {program["callback"] for program in shown}
    assert all(program["verified_instructions"] > 0 for program in shown)
    assert "bpf_stats_enabled" in _brobust("cc", "programs", NAME).stdout
    _brobust("cc", "unload", NAME)
    refused = _brobust("cc", "programs", NAME)
    assert refused.returncode != 0 and f"{NAME} is not loaded" in refused.stderr


@needs_kernel
def test_the_verifier_has_no_more_to_look_at_than_when_it_was_recorded() -> None:
    release, counts = verifier.of_host(["brb_reno", "brb_cubic", "brb_bbr1_robust", "brb_bbr3_robust"])
    if release not in verifier.recorded():
        pytest.skip(f"no counts are recorded for Linux {release}: benchmarks/verifier.py records them")
    assert not verifier.grown(counts, verifier.recorded()[release])


def test_programs_that_have_grown_are_named() -> None:
    before = {"brb_x": {"init": 100, "ssthresh": 1000}}
    assert not verifier.grown({"brb_x": {"init": 190, "ssthresh": 1200}}, before)
    assert len(verifier.grown({"brb_x": {"init": 210, "ssthresh": 1300, "undo_cwnd": 5}}, before)) == 3
    assert verifier.grown({"brb_x": {"init": 600_000}}, {"brb_x": {"init": 590_000}})


@pytest.mark.root
@pytest.mark.parametrize("script", ["cost.py", "verifier.py"])
def test_a_kernel_that_a_benchmark_cannot_boot_is_refused_in_one_line(script: str) -> None:
    command = [sys.executable, Path(verifier.__file__).with_name(script), "--kernel", "debian-9.9"]
    command += ["--own"] if script == "verifier.py" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"{script}: kernel: 'debian-9\.9' does not exist; .*\n", done.stderr)


def test_help_lists_the_commands_of_the_host_program_as_that_does() -> None:
    shown = subprocess.run([host_program(), "cc", "--help"], capture_output=True, text=True, check=True).stdout
    section = shown.partition("Commands:\n")[2].partition("\n\n")[0]
    listed = {name: " ".join(line.split()) for name, line in re.findall(r"^  (\S+)((?:.*\n? {4})*.*)", section, re.M)}
    assert listed == OF_HOST_PROGRAM


def test_its_commands_get_their_arguments_as_they_were_given() -> None:
    shown = subprocess.run([host_program(), "cc", "load", "--help"], capture_output=True, text=True, check=True).stdout
    assert _brobust("cc", "load", "--help").stdout == shown
