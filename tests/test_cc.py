"""`brobust cc` loads into this host's kernel, in network namespaces of the test; and its refusals."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from brobust import _core
from brobust.cc import loader
from brobust.conformance import verifier_counts
from brobust.errors import BadInput, BrobustError
from brobust.host import namespaces
from brobust.host.namespaces import Namespace

NAME = "brb_reno"
BROBUST = [str(Path(sys.executable).with_name("brobust"))]
TCP_CONGESTION = 13


# The defaults of the namespaces of `places`: the one that is set, and the one that a new namespace inherits.
FORMER = ["reno", Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()]


def _why_not() -> str:
    if os.geteuid() != 0:
        return "loading takes root"
    try:
        loader.check(NAME, [])
    except BrobustError as refusal:
        return str(refusal)
    return ""


needs_kernel = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


def _brobust(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BROBUST, *arguments], capture_output=True, text=True, check=False, timeout=60)


def _wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def _is_gone() -> bool:
    return NAME not in loader.available() and not loader.journals()


def _control_of(connection: socket.socket) -> str:
    return connection.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).rstrip(b"\0").decode()


def _new_socket_gets(ns: Namespace) -> str:
    def ask() -> str:
        with socket.socket() as new:
            return _control_of(new)

    return namespaces.inside(ns, ask)


@pytest.fixture
def places() -> Iterator[list[Namespace]]:
    """Yield two namespaces, one with the default Reno, one with an inherited default; unload the control afterwards."""
    names = [f"brt-{secrets.token_hex(3)}" for _ in range(2)]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        _set_default(names[0], "reno")
        yield [namespaces.find(name) for name in names]
    finally:
        with suppress(BadInput):  # it may not be loaded
            loader.unload(NAME)
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _set_default(namespace: str, control: str) -> None:
    setting = f"net.ipv4.tcp_congestion_control={control}"
    subprocess.run(["ip", "netns", "exec", namespace, "sysctl", "-qw", setting], check=True)


def _default_of(places: list[Namespace]) -> list[str]:
    return ["--default", *(word for ns in places for word in ("--netns", ns.name))]


@contextmanager
def _trial(places: list[Namespace]) -> Iterator[subprocess.Popen[str]]:
    command = [*BROBUST, "cc", "load", NAME, *_default_of(places)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trial:
        assert trial.stdout is not None and trial.stdout.readline().startswith(f"loaded {NAME}")
        yield trial
        trial.wait(timeout=10)


@needs_kernel
def test_a_pinned_control_is_the_default_until_it_is_unloaded(places: list[Namespace]) -> None:
    loaded = _brobust("cc", "load", NAME, "--pin", *_default_of(places))
    assert loaded.returncode == 0, loaded.stderr
    assert [_new_socket_gets(ns) for ns in places] == [NAME, NAME]
    listed = [json.loads(line) for line in _brobust("cc", "list", "--json").stdout.splitlines()]
    (row,) = [row for row in listed if row["name"] == NAME]
    assert (row["state"], set(row["default_of"])) == ("pinned", {ns.name for ns in places})
    again = _brobust("cc", "load", NAME, "--pin")
    assert again.returncode == 2 and "already a congestion control" in again.stderr
    assert _brobust("cc", "unload", NAME).returncode == 0
    assert [_new_socket_gets(ns) for ns in places] == FORMER
    assert _is_gone()


@needs_kernel
def test_connections_keep_the_control_and_are_reported(places: list[Namespace]) -> None:
    place = places[0]

    def connect() -> list[socket.socket]:
        listener = socket.create_server(("127.0.0.1", 0))
        return [socket.create_connection(listener.getsockname()), listener.accept()[0], listener]

    assert _brobust("cc", "load", NAME, "--pin", *_default_of([place])).returncode == 0
    sockets = namespaces.inside(place, connect)
    try:
        unloaded = json.loads(_brobust("cc", "unload", NAME, "--json").stdout)
        assert unloaded["held_by"] == {place.name: 2}
        assert _control_of(sockets[0]) == NAME
        assert _new_socket_gets(place) == "reno"
    finally:
        for one in sockets:
            one.close()


@needs_kernel
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_trial_ends_with_its_command_however_that_ends(places: list[Namespace], end: signal.Signals) -> None:
    with _trial(places) as trial:
        assert [_new_socket_gets(ns) for ns in places] == [NAME, NAME]
        trial.send_signal(end)
    _wait_until(_is_gone)
    assert [_new_socket_gets(ns) for ns in places] == FORMER


@pytest.mark.host  # another test undoes all abandoned trials
@needs_kernel
def test_a_trial_whose_guardian_dies_too_is_taken_back_by_the_next_command(places: list[Namespace]) -> None:
    with _trial(places) as trial:
        (guardian,) = psutil.Process(trial.pid).children()
        guardian.kill()
        trial.kill()
    assert [_new_socket_gets(ns) for ns in places] == [NAME, NAME], "usable, though nobody is left"
    assert f"unloaded {NAME}, left by a trial" in _brobust("cc", "list").stderr
    assert [_new_socket_gets(ns) for ns in places] == FORMER
    assert _is_gone()


@needs_kernel
def test_a_trial_may_have_an_end(places: list[Namespace]) -> None:
    ended = _brobust("cc", "load", NAME, "--for", "0.2s", *_default_of(places))
    assert ended.returncode == 0 and f"unloaded {NAME}" in ended.stdout
    assert [_new_socket_gets(ns) for ns in places] == FORMER
    assert _is_gone()


def test_the_guardian_imports_nothing_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("brobust/__init__.py", "brobust/loading.py", "json.py", "signal.py"):
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / module).write_text("print('of the current directory')")
    monkeypatch.chdir(tmp_path)
    loader.start_guardian(NAME).dismiss()  # a guardian that does not say "ready" is refused


@needs_kernel
def test_of_two_trials_at_once_one_is_refused_and_the_other_goes_on(places: list[Namespace]) -> None:
    command = [*BROBUST, "cc", "load", NAME, *_default_of(places)]
    trials = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        _wait_until(lambda: any(trial.poll() is not None for trial in trials), seconds=30)
        (refused,) = [trial for trial in trials if trial.poll() is not None]
        (other,) = [trial for trial in trials if trial is not refused]
        assert refused.returncode == 2 and "already a congestion control" in refused.communicate()[1]
        assert other.stdout is not None and other.stdout.readline().startswith(f"loaded {NAME}")
        assert [_new_socket_gets(ns) for ns in places] == [NAME, NAME]
    finally:
        for trial in trials:
            trial.send_signal(signal.SIGINT)
            trial.communicate(timeout=30)
    assert [_new_socket_gets(ns) for ns in places] == FORMER
    assert _is_gone()


@needs_kernel
def test_a_command_unloads_only_what_it_has_loaded_itself(places: list[Namespace]) -> None:
    journal = loader.load(NAME, [], places, pinned=False)
    assert loader.end_trial(replace(journal, owner="1-1")) is None
    assert [_new_socket_gets(ns) for ns in places] == [NAME, NAME]
    assert loader.end_trial(journal) == []
    assert loader.end_trial(journal) is None
    assert _is_gone()


def test_a_clock_that_is_set_does_not_make_a_trial_look_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "JOURNALS", tmp_path)
    monkeypatch.setattr(loader, "check", lambda *_: None)
    monkeypatch.setattr(_core, "load", lambda *_: None)
    loader.load(NAME, [], [], pinned=False)
    boot = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot + 5)  # psutil uses the wall clock
    assert [journal.name for journal in loader.journals()] == [NAME] and not loader.abandoned()


@pytest.mark.host  # another test undoes all abandoned trials
@needs_kernel
def test_a_user_who_may_not_undo_an_abandoned_trial_is_told_who_may(places: list[Namespace]) -> None:
    with _trial(places) as trial:
        (guardian,) = psutil.Process(trial.pid).children()
        guardian.kill()
        trial.kill()
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *BROBUST]
    listed = subprocess.run([*as_nobody, "cc", "list"], capture_output=True, text=True, check=False, cwd="/")
    if "PermissionError" in listed.stderr or "Permission denied" in listed.stderr:
        pytest.skip("the checkout cannot be read by others")
    assert listed.returncode == 0 and len(listed.stderr.splitlines()) == 1, listed.stderr
    assert f"{NAME} is still loaded from a trial" in listed.stderr and "sudo brobust cc list" in listed.stderr


@needs_kernel
def test_a_namespace_that_is_only_mounted_somewhere_gets_its_default_back(
    places: list[Namespace], tmp_path: Path
) -> None:
    """Mount a namespace without a name, as container engines do."""
    elsewhere = tmp_path / "with a space"
    elsewhere.touch()
    subprocess.run(["mount", "--bind", places[0].path, elsewhere], check=True)
    try:
        subprocess.run(["ip", "netns", "delete", places[0].name], check=True)
        place = namespaces.find(str(elsewhere))
        assert _brobust("cc", "load", NAME, "--pin", "--default", "--netns", str(elsewhere)).returncode == 0
        assert _new_socket_gets(place) == NAME
        assert _brobust("cc", "unload", NAME).returncode == 0
        assert _new_socket_gets(place) == "reno"
    finally:
        subprocess.run(["umount", elsewhere], check=True)
        subprocess.run(["ip", "netns", "add", places[0].name], check=True)


@needs_kernel
def test_a_dry_run_changes_nothing(places: list[Namespace]) -> None:
    planned = _brobust("cc", "load", "brb_bbq", "--param", "alpha=5ms", "--dry-run", *_default_of(places))
    assert planned.returncode == 0, planned.stderr
    assert "bbq_alpha = 5000" in planned.stdout and f"of {places[0].name} from reno" in planned.stdout
    assert "brb_bbq" not in loader.available() and not loader.journals()
    assert [_new_socket_gets(ns) for ns in places] == FORMER


@needs_kernel
def test_what_a_control_cannot_do_is_said_in_one_line_before_it_becomes_a_default(places: list[Namespace]) -> None:
    for control, lines in (("bbr_steady", 1), (NAME, 0)):
        planned = _brobust("cc", "load", control, "--dry-run", *_default_of(places))
        assert planned.returncode == 0 and len(planned.stderr.splitlines()) == lines, planned.stderr
        assert ("random loss" in planned.stderr) == bool(lines)
    assert "random loss" not in _brobust("cc", "load", "bbr_steady", "--dry-run").stderr


@needs_kernel
def test_a_default_that_nobody_wrote_down_goes_back_to_one_that_is_there(places: list[Namespace]) -> None:
    """Set a default without recording it, as if the namespace had inherited it from init_net."""
    assert _brobust("cc", "load", NAME, "--pin").returncode == 0
    _set_default(places[0].name, NAME)
    assert _brobust("cc", "unload", NAME).returncode == 0
    assert _new_socket_gets(places[0]) in ("cubic", "reno")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "brb_mars"], "brb_mars"),
        (["load", "brb_bbq", "--param", "alpah=3ms"], "bbq_alpha"),
        (["load", "brb_bbq", "--param", "alpha=3"], "1us to 10000ms"),
        (["load", "brb_bbq", "--param", "alpha"], "PARAMETER=VALUE"),
        (
            ["load", "bbr_robust", "--param", "bbr1_high_gain=2"],
            "bbr_robust has no parameter bbr1_high_gain; it has robust_gain, robust_repair",
        ),
        (["load", "bbr_steady", "--param", "hast=3"], "bbr_steady has no parameter hast; it has steady_beta"),
        (["load", "bbr_steady", "--dry-run", "--param", "growth=2%"], "steady_growth"),
        (["params", "cubic"], "takes no parameters"),
        (["load", NAME, "--netns", "x"], "--default"),
        (["load", NAME, "--default", "--netns", "no-such-namespace"], "not a network namespace"),
        (["load", NAME, "--pin", "--for", "3s"], "--for"),
        (["load", NAME, "--for", "soon"], "--for"),
        (["load", "brb_bbr1_master", "--param", "master_stride=5"], "virtual"),
        (["unload"], "--all"),
        (["unload", "cubic"], "not loaded by brobust"),
        (["params", "cubic"], "brb_cubic"),
        (["compare", "bbr"], "two congestion controls"),
        (["compare", "--case", "the moon"], "--list"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments: list[str], said: str) -> None:
    refused = _brobust("cc", *arguments)
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1 and refused.stderr.startswith("brobust: ")
    assert said in refused.stderr


@needs_kernel
def test_without_privilege_nothing_is_loaded() -> None:
    refused = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c",
         "from brobust import _core; _core.check_load('brb_reno', [])"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "brobust" in refused.stderr and "No module" in refused.stderr:
        pytest.skip("the checkout cannot be read by others")
    assert "run this with sudo" in refused.stderr


def test_parameters_are_listed_with_units() -> None:
    rows = [json.loads(line) for line in _brobust("cc", "params", "brb_bbq", "--json").stdout.splitlines()]
    (alpha,) = [row for row in rows if row["name"] == "bbq_alpha"]
    assert alpha["value"] == "3ms" and alpha["help"]
    assert set(_core.control_names()) <= {name for name, _, _ in _core.loadable()}


def test_a_path_that_leads_to_another_namespace_by_now_is_not_followed() -> None:
    here = namespaces.current()
    with pytest.raises(namespaces.Gone, match="does not exist any more"):
        namespaces.inside(replace(here, inode=here.inode + 1), lambda: pytest.fail("inside another one"))
    with pytest.raises(namespaces.Gone):
        namespaces.inside(replace(here, path="/proc/999999999/ns/net"), lambda: None)


def test_namespaces_are_found_where_they_are_mounted() -> None:
    mountinfo = (
        "22 28 0:21 / /proc rw,nosuid shared:13 - proc proc rw\n"
        "99 28 0:4 net:[4026532281] /run/docker/netns/a\\040b rw shared:7 - nsfs nsfs rw\n"
        "98 28 0:4 mnt:[4026532282] /run/snapd/ns/x.mnt rw - nsfs nsfs rw\n"
    )
    assert namespaces.mounted(mountinfo) == [Path("/run/docker/netns/a b")]


def test_a_namespace_can_be_named_by_a_process() -> None:
    assert namespaces.find(str(os.getpid())).inode == namespaces.current().inode
    with pytest.raises(BadInput, match="not a network namespace"):
        namespaces.find("999999999")


@needs_kernel
def test_programs_show_their_size_and_after_traffic_with_statistics_their_cost(places: list[Namespace]) -> None:
    assert _brobust("cc", "load", NAME, "--pin").returncode == 0
    shown = [json.loads(line) for line in _brobust("cc", "programs", NAME, "--json").stdout.splitlines()]
    assert {"cong_avoid", "ssthresh", "init"} <= {program["callback"] for program in shown}
    assert all(program["verified_instructions"] > 0 for program in shown)
    assert "bpf_stats_enabled" in _brobust("cc", "programs", NAME).stdout
    _brobust("cc", "unload", NAME)
    refused = _brobust("cc", "programs", NAME)
    assert refused.returncode != 0 and f"{NAME} is not loaded" in refused.stderr


@needs_kernel
def test_the_verifier_has_no_more_to_look_at_than_when_it_was_recorded() -> None:
    release, counts = verifier_counts.of_host(["brb_reno", "brb_cubic", "brb_bbr1_robust", "brb_bbr3_robust"])
    if release not in verifier_counts.recorded():
        pytest.skip(f"no counts are recorded for Linux {release}: benchmarks/verifier.py records them")
    assert not verifier_counts.grown(counts, verifier_counts.recorded()[release])


def test_programs_that_have_grown_are_named() -> None:
    before = {"brb_x": {"init": 100, "ssthresh": 1000}}
    assert not verifier_counts.grown({"brb_x": {"init": 190, "ssthresh": 1200}}, before)
    assert len(verifier_counts.grown({"brb_x": {"init": 210, "ssthresh": 1300, "undo_cwnd": 5}}, before)) == 3
    assert verifier_counts.grown({"brb_x": {"init": 600_000}}, {"brb_x": {"init": 590_000}})


def test_the_former_name_of_compare_works_with_a_warning() -> None:
    now, before = _brobust("cc", "compare", "--list"), _brobust("cc", "same", "--list")
    assert now.returncode == before.returncode == 0 and now.stdout == before.stdout and now.stderr == ""
    assert "`brobust cc compare`" in before.stderr and len(before.stderr.splitlines()) == 1
    lines = _brobust("cc", "--help").stdout.splitlines()
    assert [name for name in ("compare", "same") if any(line.startswith(f"  {name} ") for line in lines)] == ["compare"]


def test_parameters_have_min_and_max_and_their_former_names() -> None:
    rows = [json.loads(line) for line in _brobust("cc", "params", "brb_bbq", "--json").stdout.splitlines()]
    assert rows and all((row["min"], row["max"]) == (row["least"], row["most"]) for row in rows)
