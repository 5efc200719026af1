"""Real senders in real VMs: the paper's effect, its repair, and what the drivers really did.

Every comparison is between medians of one series on one machine, with room to spare: ratios and orderings, never
absolute times. The default path is 20 Mbit/s, which a TCG guest can carry.
"""

import contextlib
import json
import signal
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from brobust.backends.real_time import min_carried_share
from brobust.dataset import Dataset
from brobust.errors import GuestDied
from brobust.host import cpus
from brobust.host.session import Session
from brobust.kernels import vm as vm_kernels
from brobust.series import validation
from brobust.testbed import accelerator, image
from brobust.testbed.qemu import Guest, GuestConfig
from conftest import BROBUST, eventually, json_lines, scheduling_of

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]

SCHED_DEADLINE = 6
PAYLOAD_MBPS = 20 * 1448 / 1514
PATH = ["--backend", "vm", "--bandwidth", "20mbit", "--rtt", "10ms", "--buffer", "4bdp"]


def _series(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [BROBUST, "run", *PATH, *arguments, "--json", "--out", directory / "data"],
        cwd=directory, capture_output=True, text=True, check=False, timeout=380,
    )  # fmt: skip
    runs = json_lines(done.stdout)
    _refuse_failed(runs, done)
    return runs


def _refuse_failed(runs: list[dict[str, Any]], done: subprocess.CompletedProcess[str]) -> None:
    """On a busy machine each run may be unfaithful; then the command says so with its exit status, too."""
    assert runs and all(run["outcome"] in ("ok", "unfaithful") for run in runs), (runs, done.stderr)
    assert (done.returncode == 0) == any(run["outcome"] == "ok" for run in runs), (runs, done.stderr)


def _has_its_share(run: dict[str, Any]) -> bool:
    """What this machine's own hypervisor takes away is on no thread's account, but passes in its timeslices."""
    return 0.8 * run["share"] <= run["effective_share"] <= 1.2 * run["share"] + run["steal_share"]


def _median(runs: list[dict[str, Any]], cc: str, share: float) -> float:
    rates = [run["throughput_mbps"] for run in runs if (run["cc"], run["share"]) == (cc, share)]
    assert rates
    return statistics.median(rates)


@pytest.fixture(scope="module")
def linux_6_12(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    directory = tmp_path_factory.mktemp("linux-6.12")
    runs = _series(directory, "--share", "1,0.5,0.25", "--duration", "5s", "--repeat", "1", "--samples", "50ms")
    return runs, directory / "data"


@pytest.fixture(scope="module")
def faithful(
    linux_6_12: tuple[list[dict[str, Any]], Path], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """The same runs, each with its dataset. One whose vCPU had another share than was asked for, because this machine
    was busy with something else, says nothing of BBR: it is measured again. So is one from which nothing was to be
    taken and that was disturbed; of three such the fastest was disturbed least. (With contention a run that is
    unfaithful for another reason, such as a path's guest that waits on a slow machine, still tells what is asked
    here, and is so again and again.)"""
    runs, data = linux_6_12
    found = {(run["cc"], run["share"]): {**run, "data": data} for run in runs}
    for _ in range(2):
        for share in (1, 0.5, 0.25):
            of_share = [run for run in found.values() if run["share"] == share]
            bad = [run["cc"] for run in of_share if _disturbed(run) or not _has_its_share(run)]
            if not bad:
                continue
            again = tmp_path_factory.mktemp("again")
            cells = ["--cc", ",".join(bad), "--share", str(share), "--duration", "5s", "--samples", "50ms"]
            for measured in _series(again, *cells, "--repeat", "1"):
                run = found[measured["cc"], share]
                if not _disturbed(run) or measured["outcome"] == "ok" or _faster(measured, run):
                    found[measured["cc"], share] = {**measured, "data": again / "data"}
    return [*found.values()]


def _disturbed(run: dict[str, Any]) -> bool:
    """On slow machines each undisturbed run is unfaithful, since the path's guest waits; that it carries less says that
    something else was busy."""
    return bool(run["share"] == 1 and run["outcome"] == "unfaithful" and run["throughput_mbps"] < 0.85 * PAYLOAD_MBPS)


def _faster(run: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(run["throughput_mbps"] > other["throughput_mbps"])


@pytest.mark.virtual
def test_virtual_time_with_the_recorded_offtimes_comes_to_the_same(
    faithful: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Far from the thresholds; `brobust validate` and docs/fidelity.md have the rest. A machine whose guests carry less
    than the path must pass (of 19.1 Mbit/s 17.3 were seen now and then, 14.1 by CUBIC at a quarter of a slow CPU, and
    14.9 where the path's guest waited for its CPU 28 % of the time), a model that is off by a factor of 2 must not."""
    ratios = _virtual_to_vm(faithful)
    for run in faithful:
        if run["cc"] == "cubic" or (run["cc"], run["share"]) == ("bbr", 1):
            assert 1 / 1.6 < ratios[run["cc"], run["share"]] < 1.6, ratios
    # Where BBR has collapsed, single runs differ by up to a factor of 1.9, and by 2.6 where the machine lacked CPU: two
    # cells are taken together, and more runs if these are off.
    collapsed = [_collapsed(ratios)]
    while not 0.6 < statistics.geometric_mean(collapsed) < 1.7 and len(collapsed) < 3:  # docs/fidelity.md: 1.15
        again = tmp_path / str(len(collapsed))
        again.mkdir()
        runs = _series(again, "--cc", "bbr", "--share", "0.5,0.25", "--duration", "5s", "--repeat", "1")
        collapsed.append(_collapsed(_virtual_to_vm([{**run, "data": again / "data"} for run in runs])))
    assert 0.6 < statistics.geometric_mean(collapsed) < 1.7, (collapsed, ratios)


def _virtual_to_vm(runs: list[dict[str, Any]]) -> dict[tuple[str, float], float]:
    """Return, for each control and share, throughput in virtual time with the recorded off-times over that on vm."""
    of_vm = {(run["data"], run["run"]): run for run in runs}
    return {
        (run["cc"], run["share"]): again.runs["throughput_mbps"][0] / run["throughput_mbps"]
        for data in {run["data"] for run in runs}
        for name, again in validation.replay_in_virtual_time(Dataset.open(data))
        if (run := of_vm.get((data, name)))
    }


def _collapsed(ratios: dict[tuple[str, float], float]) -> float:
    return statistics.geometric_mean([ratios["bbr", 0.5], ratios["bbr", 0.25]])


def test_undisturbed_all_three_fill_the_path(
    linux_6_12: tuple[list[dict[str, Any]], Path], faithful: list[dict[str, Any]]
) -> None:
    carried = json.loads((linux_6_12[1] / "calibration.jsonl").read_text())["cubic_mbps"]
    for cc in ("cubic", "bbr", "bbr_steady"):
        (run,) = [run for run in faithful if (run["cc"], run["share"]) == (cc, 1)]
        assert run["throughput_mbps"] >= (0.85 if run["outcome"] == "ok" else 0.65) * carried, run


def test_with_half_the_cpu_bbr_collapses_cubic_does_not_and_the_repair_helps(faithful: list[dict[str, Any]]) -> None:
    assert _median(faithful, "cubic", 0.5) >= 2 * _median(faithful, "bbr", 0.5), faithful
    assert _median(faithful, "bbr_steady", 0.5) >= 1.8 * _median(faithful, "bbr", 0.5), faithful


def test_with_a_quarter_of_the_cpu_cubic_is_five_times_as_fast_as_bbr_and_the_kept_schedule_four_times(
    faithful: list[dict[str, Any]],
) -> None:
    assert _median(faithful, "cubic", 0.25) >= 5 * _median(faithful, "bbr", 0.25), faithful
    assert _median(faithful, "bbr_steady", 0.25) >= 4 * _median(faithful, "bbr", 0.25), faithful  # measured: 13.4, 1.2


def test_every_run_says_what_the_vcpu_got_and_is_unfaithful_if_that_is_not_what_was_asked_for(
    linux_6_12: tuple[list[dict[str, Any]], Path], faithful: list[dict[str, Any]]
) -> None:
    runs, _ = linux_6_12
    for run in runs:
        assert run["lost_events"] == 0, run
        assert run["outcome"] == ("unfaithful" if run["reason"] else "ok")
        assert 0 <= run["steal_share"] < 1 and (run["steal_share"] <= 0.1 or run["outcome"] == "unfaithful"), run
    for run in faithful:
        assert _has_its_share(run), run
    contended = [run for run in faithful if run["share"] < 1]
    assert 0 < len(contended) < len(runs)
    for run in contended:
        more = run["steal_share"] * 10 / run["share"]  # as above, of each period
        assert 7.5 < run["effective_timeslice_ms"] < 12.5 + more, run


def test_a_run_object_has_what_scripts_rely_on(linux_6_12: tuple[list[dict[str, Any]], Path]) -> None:
    runs, _ = linux_6_12
    promised = {
        "cc", "bandwidth_mbps", "rtt_ms", "share", "timeslice_ms", "driver", "throughput_mbps", "retransmits",
        "effective_share", "effective_timeslice_ms", "backend", "kernel", "accelerator", "repeat", "seed", "outcome",
    }  # fmt: skip
    assert all(promised <= set(run) for run in runs)
    assert len(runs) == 9


def test_the_dataset_holds_runs_throughput_samples_offtimes_and_calibration(
    linux_6_12: tuple[list[dict[str, Any]], Path],
) -> None:
    runs, directory = linux_6_12
    dataset = Dataset.open(directory)
    assert set(dataset.runs()["run"]) == {run["run"] for run in runs}
    over_time = dataset.throughput().group_by("run").agg(pl.col("throughput_mbps").mean())
    for run in runs:
        mean = over_time.filter(pl.col("run") == run["run"])["throughput_mbps"].item()
        assert mean == pytest.approx(run["throughput_mbps"], rel=0.1, abs=0.3)
    assert set(dataset.offtimes()["run"]) == {run["run"] for run in runs if run["share"] < 1}
    (line,) = (directory / "calibration.jsonl").read_text().splitlines()
    calibration = json.loads(line)
    share = min_carried_share(calibration["accelerator"])
    assert min(calibration["udp_mbps"], calibration["cubic_mbps"]) >= share * calibration["ceiling_mbps"]


def test_samples_show_the_inflight_deficit(faithful: list[dict[str, Any]]) -> None:
    """Claim R14: at 25 % share there is less in flight than BBR allows, though its estimate has collapsed, too.

    Measured by cwnd, which is some 16 packets then, of which two are in flight. In BDPs by BBR's estimate these two are
    0.6 or 1.7, as a round trip of 10 ms was ever seen in one timeslice or not: a BDP is about a packet."""

    def of_cwnd(share: float) -> float:
        (run,) = [run for run in faithful if (run["cc"], run["share"]) == ("bbr", share)]
        samples = Dataset.open(run["data"]).samples()
        steady = samples.filter((pl.col("run") == run["run"]) & (pl.col("time_s") > 2))
        assert steady.height > 10
        assert steady["delivered_packets"].drop_nulls().n_unique() > 10
        return float((steady["inflight_packets"] / steady["cwnd_packets"]).median())  # type: ignore[arg-type]

    assert of_cwnd(1.0) >= 0.25
    assert of_cwnd(0.25) < of_cwnd(1.0) / 2


def _names(directory: str) -> list[str]:
    return [entry.name for entry in Path(directory).iterdir()] if Path(directory).is_dir() else []


def _leavings() -> list[str]:
    """Return everything that a run could have left on the host."""
    named = psutil.process_iter(["cmdline"])
    found = [
        f"guest {p.pid}"
        for p in named
        if "-name" in (argv := p.info["cmdline"] or []) and any(w.startswith("brobust-") for w in argv)
    ]
    found += [f"namespace {n}" for n in _names("/run/netns") if n.startswith("brobust")]
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    found += [f"link {line}" for line in links.splitlines() if line.startswith(("tap", "wire"))]
    qdiscs = subprocess.run(["tc", "qdisc"], capture_output=True, text=True, check=True).stdout
    found += [f"qdisc {line}" for line in qdiscs.splitlines() if "netem" in line or "tbf" in line]
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            name, after_name = stat.read_text().split("(", 1)[1].rsplit(")", 1)
            policy = int(after_name.split()[38])  # proc(5)
            if policy == SCHED_DEADLINE and not name.startswith("sugov"):  # the kernel's own
                found.append(f"deadline thread {name}")
    found += [f"session {name}" for name in _names("/run/brobust") if not name.endswith("lock")]
    found += [f"bpf {name}" for name in _names("/sys/fs/bpf/brobust")]
    return found


@pytest.fixture
def left_behind() -> Callable[[], list[str]]:
    """What is on the host that was not there when the test began: others, too, may have left or run something."""
    before = _leavings()
    return lambda: [thing for thing in _leavings() if thing not in before]


def test_a_killed_run_leaves_nothing_after_clean_and_the_series_is_completed(
    tmp_path: Path, left_behind: Callable[[], list[str]]
) -> None:
    command = [
        BROBUST, "run", *PATH, "--cc", "cubic", "--share", "0.5", "--duration", "2s", "--repeat", "2",
        "--json", "--out", "data",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        first = json.loads(run.stdout.readline())
        # In the second run now, with contention.
        assert eventually(lambda: any("deadline" in thing for thing in left_behind()), pause=0.1), left_behind()
        run.send_signal(signal.SIGKILL)
    kept = Dataset.open(tmp_path / "data").runs()
    assert kept["run"].to_list() == [first["run"]]

    clean = subprocess.run([BROBUST, "doctor", "--clean"], capture_output=True, text=True, check=False)
    assert clean.returncode == 0, clean.stderr
    assert left_behind() == []

    resume = [BROBUST, "run", "--resume", "--out", "data", "--json"]
    resumed = subprocess.run(resume, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert len(json_lines(resumed.stdout)) == 1, resumed.stderr
    both = Dataset.open(tmp_path / "data").runs()
    _refuse_failed(both.rows(named=True), resumed)
    assert both.height == 2 and both.filter(run=first["run"]).equals(kept)
    assert left_behind() == []


def test_ctrl_c_in_the_first_run_leaves_nothing(tmp_path: Path, left_behind: Callable[[], list[str]]) -> None:
    command = [BROBUST, "run", *PATH, "--cc", "cubic", "--share", "0.5", "--duration", "30s", "--out", "data"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        assert eventually(lambda: any("guest" in thing for thing in left_behind()), pause=0.2)
        run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        said = run.stderr.read()
    assert run.returncode == 130
    assert said == "brobust: interrupted before the first run was complete, so nothing is kept; repeat the command\n"
    assert not (tmp_path / "data").exists()  # so the same command can be given again
    assert left_behind() == []


def test_contend_holds_each_vcpu_of_a_guest_in_phase_and_out_of_phase(tmp_path: Path) -> None:
    kernel = vm_kernels.find("debian-6.12")
    with Session.start() as session:
        chosen, _ = accelerator.choose("auto", kernel, session)
        config = GuestConfig("contended", tap="", mac="", vcpus=2)
        with _booted(config, kernel, chosen, session) as guest:
            # These vCPUs take all CPUs, and other work on this machine would take its part of their shares.
            cpus.weigh_session(guest.process.pid, "-19")
            guest.agent.spawn("brobust", "spin")
            threads = [scheduling_of(thread) for thread in guest.vcpu_threads]
            together = {phase: _together(tmp_path, "brobust-contended", phase) for phase in ("in", "out")}
            assert [scheduling_of(thread) for thread in guest.vcpu_threads] == threads
    # Each is off for half of the time: both at once, or one after the other.
    assert together["in"] >= 0.4 and together["out"] <= 0.2, together


def _booted(config: GuestConfig, kernel: vm_kernels.Kernel, chosen: str, session: Session) -> Guest:
    """Boot a guest. One with two vCPUs that is emulated dies now and then while Linux replaces its own instructions
    (`Oops: int3`): `brobust run` then boots another, and so does this."""
    guest = Guest.start(config, kernel, image.build(kernel), chosen, session)
    try:
        guest.wait_booted()
    except GuestDied:
        guest.stop()
        guest = Guest.start(config, kernel, image.build(kernel), chosen, session)
        guest.wait_booted()
    return guest


def _together(directory: Path, name: str, phase: str) -> float:
    """Return the part of the time in which two vCPUs of a guest were both off their CPUs."""
    trace = directory / f"{phase}.parquet"
    contend = ["--qemu", name, "--driver", "burner", "--share", "50%", "--timeslice", "40ms", "--phase", phase]
    first = ["nice", "-n", "-19", BROBUST, "contend", *contend, "--force", "--for", "3s", "-o", trace, "--json"]
    with subprocess.Popen(first, stdout=subprocess.PIPE, text=True, start_new_session=True) as command:
        cpus.weigh_session(command.pid, "-19")  # beside these vCPUs it would start too late
        said, _ = command.communicate(timeout=60)
    last = json_lines(said)[-1]
    assert [row["vcpu"] for row in last["threads"]] == [0, 1]
    assert all(row["share"] == pytest.approx(0.5, abs=0.15) for row in last["threads"]), last
    recorded = pl.read_parquet(trace).filter(pl.col("kind") == "off")
    # Recording begins before contention does, on a busy machine seconds before.
    begin = recorded["start_s"].to_list()[0] + 0.25
    moments = pl.DataFrame({"at": [begin + n / 1000 for n in range(2000)]})
    off = [
        moments.join_where(
            one, pl.col("at") >= pl.col("start_s"), pl.col("at") < pl.col("start_s") + pl.col("duration_ms") / 1000
        )
        for one in recorded.partition_by("vcpu")
    ]
    return len(set(off[0]["at"]) & set(off[1]["at"])) / len(moments)
