"""The vm backend handles guests that die and calibrations that fall short; the guests are not real."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from brobust import files
from brobust.backends import base, real_time, vm
from brobust.backends.vm import VmBackend
from brobust.dataset import Dataset, Measured, scenario_columns
from brobust.dataset.iperf3 import FlowResult
from brobust.errors import GuestDied, MissingSupport, RunFailed, WriteFailed
from brobust.host import cpus, network
from brobust.host.session import Session
from brobust.kernels.virtual import VirtualKernel
from brobust.kernels.vm import Kernel
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario
from brobust.scenario.specs import Pacing
from brobust.testbed import accelerator, image
from brobust.testbed import testbed as guests
from brobust.testbed.qemu import Guest

RUN = Run(scenario=scenario({"backend": "vm", "flows": [{"cc": "cubic"}]}), repeat=0)


class Backend(VmBackend):
    """A backend whose guests die on request."""

    def __init__(self) -> None:
        super().__init__(cast(Session, None), self.said)
        self.boots, self.bad_boots = 0, 0
        self.accelerator = "tcg"
        self.sentences: list[str] = []
        self.agent: Any = None

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def _booted(self, kernel_name: str, wanted: str, vcpus: int = 1) -> Any:
        if not self._started:
            self.boots += 1
            if self.boots <= self.bad_boots:
                raise RunFailed("sender guest: Cannot find device eth0")
            guest = SimpleNamespace(
                config=SimpleNamespace(name="sender"),
                dead=False,
                cause_of_death=lambda: "Oops: double fault",
                agent=self.agent,
            )
            guest.died = lambda: guest.dead
            self._started = [cast(Guest, guest)]

        def nothing(*_: object, **__: object) -> None:
            pass

        return SimpleNamespace(
            sender=self._started[0], kernel=SimpleNamespace(name="debian"), accelerator=self.accelerator,
            reset=nothing, place=nothing, keep_busy=nothing, load=nothing,
        )  # fmt: skip


def test_a_full_disk_is_not_remembered_as_a_kvm_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(_: object) -> Path:
        raise WriteFailed("no room is left", "make room")

    monkeypatch.setattr(vm.vm_kernels, "find", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(image, "build", build)
    monkeypatch.setattr(accelerator, "choose", lambda *_: pytest.fail("it tries to boot what could not be made"))
    with pytest.raises(WriteFailed, match="no room is left; make room"):
        VmBackend(cast(Session, None), print)._booted("debian-6.12", "auto", 1)


def test_that_kvm_works_is_believed_until_the_host_boots_again_and_that_it_does_not_for_an_hour(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probes = iter([accelerator.Probe(False, "the host was busy"), accelerator.Probe(True, "a guest booted")])
    monkeypatch.setattr(accelerator, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(accelerator, "probe_kvm", lambda *_: next(probes))
    kernel, session = cast(Kernel, SimpleNamespace(release="6.12.1")), cast(Session, None)
    for _ in range(2):
        assert accelerator.choose("auto", kernel, session) == ("tcg", "KVM does not work here: the host was busy")
    (note,) = (tmp_path / "kvm").iterdir()
    for _ in range(2):
        an_hour_ago = note.stat().st_mtime - 3601
        os.utime(note, (an_hour_ago, an_hour_ago))
        assert accelerator.choose("auto", kernel, session) == ("kvm", "a guest booted")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    monkeypatch.setattr(cpus, "plan", lambda *_, **__: cpus.Plan((1,), frozenset({0})))
    monkeypatch.setattr(real_time, "CALIBRATION_WAIT_SECONDS", 0)
    return Backend()


def _dies(times: int) -> Callable[[Any, Any], Measured]:
    """Return a measurement whose guest dies the first times."""
    left = iter(range(times))

    def measure(run: Run, testbed: Any) -> Measured:
        if next(left, None) is not None:
            testbed.sender.dead = True
            raise RunFailed("sender guest: it died")
        return Measured([{"run": run.id, "outcome": "ok"}])

    return measure


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_run_whose_guest_dies_is_measured_in_new_guests_and_says_how_often(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(backend, "_measured", _dies(times))
    (row,) = base.measured(backend, RUN).runs
    assert (row["outcome"], row["guest_restarts"], backend.boots) == ("ok", times, 1 + times)
    assert len([said for said in backend.sentences if "double fault" in said]) == times


def test_a_run_whose_guests_die_three_times_is_failed_with_their_last_words(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_measured", _dies(3))
    (row,) = base.measured(backend, RUN).runs
    assert (row["outcome"], row["guest_restarts"], backend.boots) == ("failed", 2, 3)
    assert "sender: Oops: double fault" in row["reason"] and "it died" in row["reason"]
    assert not backend._started  # the next run gets new guests


def test_a_run_that_fails_in_living_guests_is_not_repeated(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RunFailed("iperf3 at the sender did not end in time")

    monkeypatch.setattr(backend, "_measured", fail)
    (row,) = base.measured(backend, RUN).runs
    assert (row["outcome"], row["guest_restarts"], backend.boots) == ("failed", 0, 1)
    assert not backend._started  # they may be stuck


def test_guests_that_do_not_get_ready_are_booted_again(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_measured", _dies(0))
    backend.bad_boots = 1
    (row,) = base.measured(backend, RUN).runs
    assert (row["outcome"], row["guest_restarts"], backend.boots) == ("ok", 1, 2)


def test_guests_that_are_asked_before_any_run_are_booted_again_if_they_do_not_get_ready(backend: Backend) -> None:
    backend.agent = SimpleNamespace(run=lambda *command, **_: f"ran {command[0]}")
    backend.bad_boots = 2
    assert (backend.ask_sender("ls", kernel="debian"), backend.boots) == ("ran ls", 3)


def test_a_program_beside_a_run_is_started_again_with_it(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[str] = []
    backend.agent = SimpleNamespace(
        spawn=lambda *command: spawned.append(command[0]) or len(spawned),
        wait=lambda pid, _: SimpleNamespace(status=0, stdout=f"of program {pid}", stderr=""),
    )
    monkeypatch.setattr(backend, "_measured", _dies(1))
    measured, said = backend.measure_beside(RUN, "watch")
    assert measured.runs[0]["guest_restarts"] == 1
    assert said == "of program 2" and spawned == ["watch", "watch"]


def _calibrated(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, udp: list[float], cubic: list[float]
) -> tuple[dict[str, Any], Iterator[float], Iterator[float]]:
    udp_left, cubic_left = iter(udp), iter(cubic)
    monkeypatch.setattr(vm, "_udp_mbps", lambda *_: next(udp_left))
    monkeypatch.setattr(vm, "_cubic_mbps", lambda *_: next(cubic_left))
    return backend._calibrate("debian", "auto", 1, 20_000_000, 10_000_000), udp_left, cubic_left


def test_a_calibration_that_falls_short_is_repeated_and_only_what_fell_short(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, _, _ = _calibrated(backend, monkeypatch, [19.1], [16.3, 16.4, 16.3, 16.2, 19.0])
    assert (record["udp_tries"], record["cubic_tries"]) == (1, 5)
    assert (record["udp_mbps"], record["cubic_mbps"]) == (19.1, 19.0)
    assert backend.boots == 2  # a guest may be stuck from the start


def test_uml_is_calibrated_by_cubic_alone(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "_cubic_mbps", lambda *_: 19.0)
    record = backend._calibrate("virtual-6.12-realtime", "uml", 1, 20_000_000, 10_000_000)
    assert (record["udp_mbps"], record["udp_tries"], record["cubic_mbps"]) == (None, 0, 19.0)


def test_a_machine_that_never_carries_the_path_is_refused_with_the_best_of_all_tries(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingSupport, match=r"carries 19\.1 .* of UDP and 16\.4 of .* less than 90 % of the 19\.1"):
        _calibrated(backend, monkeypatch, [19.1], [16.3, 16.4, 16.2, 16.1, 16.0, 16.1])


def test_guests_that_are_emulated_may_lose_more_of_a_path(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    record, _, _ = _calibrated(backend, monkeypatch, [17.4], [17.3])
    assert (record["udp_tries"], record["cubic_tries"]) == (1, 1)
    backend.accelerator = "kvm"
    with pytest.raises(MissingSupport, match=r"less than 95 % of the 19\.1"):
        _calibrated(backend, monkeypatch, [17.4] * 6, [17.3] * 6)


def test_a_guest_that_dies_while_it_is_calibrated_costs_a_boot_and_no_try(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def udp(testbed: Any, _: Path) -> float:
        calls.append(testbed)
        if len(calls) == 1:
            testbed.sender.dead = True
            raise RunFailed("it died")
        return 19.1

    monkeypatch.setattr(vm, "_udp_mbps", udp)
    monkeypatch.setattr(vm, "_cubic_mbps", lambda *_: 19.1)
    record = backend._calibrate("debian", "auto", 1, 20_000_000, 10_000_000)
    assert record["udp_tries"] == 1 and backend.boots == 2


def test_guests_that_always_die_end_a_calibration_with_their_last_words(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def udp(testbed: Any, _: Path) -> float:
        testbed.sender.dead = True
        raise RunFailed("it died")

    monkeypatch.setattr(vm, "_udp_mbps", udp)
    with pytest.raises(GuestDied, match="double fault"):
        backend._calibrate("debian", "auto", 1, 20_000_000, 10_000_000)
    assert backend.boots == 1 + vm.MAX_RESTARTS


def test_a_kernel_without_the_sysctl_of_a_kept_schedule_is_refused_in_one_line() -> None:
    written: list[str] = []

    def testbed(status: int) -> Any:
        def try_run(*argv: str) -> SimpleNamespace:
            written.append(argv[-1])
            return SimpleNamespace(status=status)

        sender = SimpleNamespace(agent=SimpleNamespace(try_run=try_run))
        return SimpleNamespace(sender=sender, kernel=SimpleNamespace(name="debian-6.12"))

    guests.Testbed.keep_pacing(testbed(0), Pacing.parse("kept lag=50ms"))
    assert "echo 50000 >/proc/sys/net/ipv4/tcp_pacing_lag_us" in written[-1]
    guests.Testbed.keep_pacing(testbed(3), Pacing.parse("kernel"))  # nothing to set, and nothing set by an earlier run
    with pytest.raises(MissingSupport, match=r"^pacing: 'kept' needs .*, which debian-6.12 lacks; give kernel, or"):
        guests.Testbed.keep_pacing(testbed(3), Pacing.parse("kept"))


@pytest.mark.root
@pytest.mark.parametrize("part", ["images", "kvm"])
def test_root_boots_nothing_that_others_could_put_into_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A link there to what only root may read would be handed to a guest, also with a kernel from elsewhere."""
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    monkeypatch.setattr(network, "create", lambda *_: None)
    with VmBackend(cast(Session, None), print):
        os.chown(tmp_path / part, 65534, 65534)
    with pytest.raises(MissingSupport, match=f"/{part} belongs to user 65534"), VmBackend(cast(Session, None), print):
        pass


@pytest.mark.parametrize(
    ("flow", "common"),
    [
        (FlowResult(1.0, cast(int, "many"), None, None, 1, []), {}),
        (FlowResult(1.0, 2**70, None, None, 1, []), {}),
        (FlowResult(1.0, 0, None, None, 1, [(cast(float, "x"), 1.0)]), {}),
        (FlowResult(1.0, 0, None, None, 1, []), {"iperf3": "\ud800"}),
    ],
)
def test_what_a_guest_says_that_fits_no_table_fails_its_run_only(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, flow: FlowResult, common: dict[str, Any], tmp_path: Path
) -> None:
    rows = {**scenario_columns(RUN), "outcome": "ok", "started_at": datetime.now(UTC), **common}
    monkeypatch.setattr(backend, "measure", lambda run: real_time.result(run, rows, [flow], [], []))
    measured = base.measured(backend, RUN)
    assert measured.runs[0]["reason"].startswith("the machines reported what fits no table: ")
    Dataset.create(tmp_path / "data", Grid({"backend": "vm"}), {}).append_all([(RUN.id, measured)])


def test_half_a_character_in_a_guests_answer_fails_its_run_only(tmp_path: Path) -> None:
    failed = base.failed(RUN, str(RunFailed("sender guest: \ud800")), datetime.now(UTC))
    Dataset.create(tmp_path / "data", Grid({"backend": "vm"}), {}).append_all([(RUN.id, failed)])
    assert failed.runs[0]["reason"] == "sender guest: ?"


def test_what_a_killed_process_has_made_half_of_an_image_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    monkeypatch.setattr(image, "find_program", lambda *_: image.INIT)
    monkeypatch.setattr(image, "host_program", lambda: image.INIT)
    monkeypatch.setattr(image, "_fill", lambda root, *_: root.mkdir())
    monkeypatch.setattr(image, "_pack", lambda _, made: made.touch())
    left = tmp_path / "images" / f"{files._TEMPORARY}left"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    built = image.build(cast(VirtualKernel, SimpleNamespace(release="6.12")))
    assert list(left.parent.iterdir()) == [built]


def test_of_the_guests_images_those_used_last_are_kept(tmp_path: Path) -> None:
    """Kernels in directories of their own come and go, and each leaves images of 30 and 60 MB."""
    images = [
        tmp_path / f"{number:02}{kind}" for number in range(image.KEPT_IMAGES + 3) for kind in (".cpio", ".vmlinux")
    ]
    for number, file in enumerate(images):
        file.touch()
        os.utime(file, (number, number))
    image._keep_the_last_used(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(images[6:])


@pytest.mark.parametrize("reported", [{"cwnd_packets": "many"}, {"cwnd_packets": 10**40}, {"cc": {}}, {"time_s": []}])
def test_a_sample_that_no_column_can_have_fails_its_run_and_not_the_series(reported: dict[str, Any]) -> None:
    flow = FlowResult(9.0, 0, 20.0, 20.0, 40000, [(1.0, 9.0)])
    common = {**scenario_columns(RUN), "outcome": "ok"}
    sample = {"run": RUN.id, "flow": 0, "time_s": 0.0, "cc": "cubic", "cwnd_packets": 10}
    assert real_time.result(RUN, common, [flow], [sample], []).samples == [sample]
    with pytest.raises(RunFailed, match=r"^the machines reported what fits no table: "):
        real_time.result(RUN, common, [flow], [{**sample, **reported}], [])
