"""`brobust contend`: take the CPU away from the vCPU threads of any VM on this host; record what they get."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brobust import units
from brobust.cli.lazy import group
from brobust.cli.options import parsed
from brobust.errors import BadInput, MissingSupport

if TYPE_CHECKING:
    from rich.table import Table

    from brobust.contention.any_vm import Asked, Report
    from brobust.contention.vcpus import Machine

app = group(
    """Take the CPU away from the vCPU threads of any VM on this host, and say what they really got.

Knows the vCPU threads of QEMU, libvirt, VirtualBox, VMware, Firecracker and cloud-hypervisor by their names (tested:
QEMU and libvirt against the programs themselves; the others against the names that they give their threads). Every
thread is given its policy, nice value, CPUs and cgroup back at the end, on Ctrl-C, and by `brobust doctor --clean`
after kill -9. Exit status 1 if the threads did not get what was asked for.""",
    no_args_is_help=False,
)

MOST_COMPETITORS = 64

Qemu = Annotated[str | None, typer.Option(metavar="NAME", help="QEMU's -name.", show_default=False)]
Libvirt = Annotated[str | None, typer.Option(metavar="DOMAIN", help="libvirt's domain.", show_default=False)]
Pid = Annotated[int | None, typer.Option(metavar="PID", help="Process of the VM, or any other.", show_default=False)]
Threads = Annotated[str, typer.Option(help="auto (its vCPUs), or thread ids: 4711,4712.")]
For = Annotated[str | None, typer.Option("--for", help="How long [until Ctrl-C].", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a second, and one at the end.")]


@app.callback(invoke_without_command=True)
def contend(
    context: typer.Context,
    qemu: Qemu = None,
    libvirt: Libvirt = None,
    pid: Pid = None,
    threads: Threads = "auto",
    share: Annotated[str | None, typer.Option(help="CPU of each thread, 0.25 or 25%.", show_default=False)] = None,
    timeslice: Annotated[str, typer.Option(help="How long each runs at a time.")] = "10ms",
    driver: Annotated[
        str | None,
        typer.Option(
            help="deadline (SCHED_DEADLINE), burner (a real-time thread on its CPU), quota (cgroup), competitor (busy "
            "processes on its CPU), replay [deadline].",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(help="Off-times recorded elsewhere: FILE, FILE#THREAD, DATASET#RUN.", show_default=False),
    ] = None,
    phase: Annotated[str, typer.Option(help="Several threads by burner: off their CPUs in or out of phase, or random.")]
        = "random",
    start_jitter: Annotated[
        float, typer.Option(help="Burner: part of the off-time in which a timeslice begins, 0 to 0.5.", min=0, max=0.5)
    ] = 0.0,
    length_jitter: Annotated[
        float, typer.Option(help="Burner: part by which each length is longer or shorter, 0 to 0.5.", min=0, max=0.5)
    ] = 0.0,
    jitter: Annotated[float, typer.Option(hidden=True, min=0, max=0.5)] = 0.0,
    competitors: Annotated[
        int | None, typer.Option(help="Busy processes beside each thread [1 / share - 1].", min=1, max=MOST_COMPETITORS)
    ] = None,
    nice: Annotated[int, typer.Option(help="Their nice level.", min=-20, max=19)] = 0,
    for_: For = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep what they got, as `record` does.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Leave the host no CPU of its own, or --nice below -10; needs --for.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what was found and what would be done.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    if context.invoked_subcommand is not None:
        return
    from brobust.contention import any_vm as contending
    from brobust.contention import vcpus

    machine = vcpus.find(qemu=qemu, libvirt=libvirt, pid=pid, threads=threads)
    if jitter:
        print("brobust: --jitter is called --length-jitter, and will be refused in the next release", file=sys.stderr)
    asked = _asked(share, timeslice, driver, replay, phase, start_jitter, length_jitter or jitter, competitors, nice)
    seconds = _seconds(for_)
    if force and seconds is None and replay is None:
        raise BadInput("--force needs --for: it may be that nobody gets a CPU to end it; give for example --for 10s")
    if out is not None:
        _check_out(out)
    on_cpu = contending.check(asked, machine, force=force)
    _say_found(machine, asked, on_cpu, as_json)
    if dry_run:
        return
    if os.geteuid() != 0:
        raise MissingSupport("contend needs root, to change how threads are scheduled; run it with sudo, or --dry-run")
    last = _show(contending.contend(machine, asked, on_cpu, seconds, out, force=force), as_json)
    if last["interrupted"] and seconds is not None:
        raise typer.Exit(130)
    if any(row["unfaithful"] for row in last["threads"]):
        raise typer.Exit(1)


@app.command("record")
def record(
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file; `--replay` takes it.")],
    qemu: Qemu = None,
    libvirt: Libvirt = None,
    pid: Pid = None,
    threads: Threads = "auto",
    for_: Annotated[str, typer.Option("--for", help="How long.")] = "60s",
    as_json: Json = False,
) -> None:
    """Record when threads run, sleep and wait for a CPU, for `contend --replay` and `run --replay`.

    Changes nothing. As root by a BPF program, every switch exactly; without privilege by what the kernel counts in
    /proc, off-times exact in length and to a millisecond in when they were.
    """
    from brobust.contention import any_vm as contending
    from brobust.contention import vcpus

    _check_out(out)
    machine = vcpus.find(qemu=qemu, libvirt=libvirt, pid=pid, threads=threads)
    last = _show(contending.record(machine, _seconds(for_), out), as_json)
    if not as_json:
        print(f"{out}: {len(machine.vcpus)} threads, {last['elapsed_s']:.1f} s, by {last['recorded_by']}")
    if last["interrupted"]:
        raise typer.Exit(130)


def _asked(
    share: str | None, timeslice: str, driver: str | None, replay: str | None, phase: str, start_jitter: float,
    length_jitter: float, competitors: int | None, nice: int,
) -> Asked:  # fmt: skip
    from brobust.contention import drivers
    from brobust.contention.any_vm import DRIVERS, PHASES, Asked

    driver = driver or ("replay" if replay is not None else "deadline")
    if driver not in DRIVERS:
        raise BadInput(f"--driver: {driver!r} is not one of {', '.join(DRIVERS)}")
    if phase not in PHASES:
        raise BadInput(f"--phase: {phase!r} is not one of {', '.join(PHASES)}")
    if (driver == "replay") != (replay is not None):
        raise BadInput("--driver replay and --replay FILE go together, and with no other driver")
    if driver != "burner" and (phase != "random" or start_jitter or length_jitter):
        raise BadInput(
            f"--phase, --start-jitter and --length-jitter are the burner's; {driver} decides by itself: "
            "give --driver burner"
        )
    if driver != "competitor" and (competitors is not None or nice):
        raise BadInput("--competitors and --nice go with --driver competitor")
    if driver == "replay" and share is not None:
        raise BadInput("--replay says when the CPU is away, so --share does not go with it")
    fraction = _share(share) if share is not None else 1.0
    if driver == "competitor":
        if (share is None) == (competitors is None):
            raise BadInput("--driver competitor takes --competitors N, or --share for as many as leave it that")
        number = competitors if competitors is not None else drivers.competitors_for(fraction, most=MOST_COMPETITORS)
        if number is None:
            raise BadInput(f"--share: no number of equals leaves {share}; give 1/2 (50%), 1/3 (33.3%), 1/4 (25%), ...")
        return Asked(driver, competitors=number, nice=nice)
    if driver != "replay" and share is None:
        raise BadInput("--share is missing: how much of a CPU each thread is to have, for example 25%")
    slices = parsed("timeslice", timeslice, units.nanoseconds)
    return Asked(driver, fraction, slices, start_jitter, length_jitter, phase, replay=replay)


def _share(text: str) -> float:
    share = parsed("share", text, units.fraction)
    if not 0 < share < 1:
        raise BadInput(f"--share: {text} is not between 0 and 1; give for example 0.25 or 25%")
    return share


def _check_out(out: Path) -> None:
    if out.suffix != ".parquet" or not out.parent.is_dir():
        raise BadInput(f"--out: {out} is no .parquet file in a directory that exists; give for example trace.parquet")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = parsed("for", text, units.nanoseconds) / 1e9
    if seconds < 0.1:
        raise BadInput(f"--for: {text} is too short to see anything; give at least 100ms")
    return seconds


def _say_found(machine: Machine, asked: Asked, on_cpu: dict[int, int], as_json: bool) -> None:
    vcpu_rows: list[dict[str, Any]] = [
        {"thread": vcpu.tid, "name": vcpu.name, "vcpu": vcpu.number, "cpu": on_cpu.get(vcpu.tid)}
        for vcpu in machine.vcpus
    ]
    if as_json:
        found = {"pid": machine.pid, "program": machine.program, "name": machine.name, "asked": asked.describe()}
        print(json.dumps({"found": {**found, "threads": vcpu_rows}}), flush=True)
        return
    name = f" {machine.name}" if machine.name else ""
    print(f"{machine.program}{name} (process {machine.pid}): {asked.describe()}", flush=True)
    for row in vcpu_rows:
        where = "" if row["cpu"] is None else f", on CPU {row['cpu']} meanwhile"
        print(f"  thread {row['thread']} {row['name']}{where}", flush=True)
    if not machine.is_known:
        print(
            f"brobust: {machine.program} is no VM that we know: its own threads are held up, but not the timers and "
            "softirqs of this host's TCP",
            file=sys.stderr,
        )


def _show(reports: Generator[Report], as_json: bool) -> Report:
    """Each report as it comes; the last one is returned."""
    last: Report = {}
    with _screen(as_json) as show:
        for report in _through_interrupts(reports):
            last = report
            if as_json:
                print(json.dumps(report), flush=True)
            elif not report["summary"]:
                show(report)
    if not as_json:
        _print_summary(last)
    return last


def _through_interrupts(reports: Generator[Report]) -> Iterator[Report]:
    """Ctrl-C between two reports ends them as one within: with the last."""
    try:
        yield from reports
    except KeyboardInterrupt:
        yield reports.throw(KeyboardInterrupt)


@contextmanager
def _screen(as_json: bool) -> Iterator[Any]:
    """A table that is kept up to date on a terminal, lines in a pipe."""
    if as_json or not sys.stdout.isatty():
        yield lambda report: print(*map(_line, report["threads"]), sep="\n", flush=True)
        return
    from rich.live import Live

    from brobust.report.console import Console

    with Live(console=Console(), auto_refresh=False, transient=True) as live:
        yield lambda report: live.update(_table(report), refresh=True)


def _cells(row: Report) -> tuple[str, str, str, str, str]:
    return (
        row["name"], f"{row['share']:.1%}", _length(row["timeslice_ms"]), _length(row["offtime_ms"]),
        f"{row['asleep_share']:.0%}",
    )  # fmt: skip


def _length(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.2f} ms"


def _line(row: Report) -> str:
    name, share, timeslice, offtime, asleep = _cells(row)
    return f"{name} (thread {row['thread']}): {share} of its CPU, timeslice {timeslice}, off {offtime}, asleep {asleep}"


def _table(report: Report) -> Table:
    from rich.table import Table

    table = Table(title=f"{report['elapsed_s']:.0f} s; the last second", box=None, caption="Ctrl-C ends")
    for number, heading in enumerate(("thread", "share", "timeslice", "off-time", "asleep")):
        table.add_column(heading, justify="right" if number else "left")
    for row in report["threads"]:
        table.add_row(*_cells(row))
    return table


def _print_summary(report: Report) -> None:
    print(f"in {report['elapsed_s']:.1f} s, seen by {report['recorded_by']}:")
    for row in report["threads"]:
        print(_line(row))
        for what in ("timeslices", "offtimes"):
            if row.get(what):
                print(*_bars(what, row[what]), sep="\n")
        if row.get("unfaithful"):
            print(f"  not what was asked for: {row['unfaithful']}")


def _bars(what: str, spread: Report) -> Iterator[str]:
    yield (
        f"  {spread['count']} {what}: median {spread['median_ms']:.2f} ms, a tenth below {spread['p10_ms']:.2f}, "
        f"a tenth above {spread['p90_ms']:.2f}"
    )
    most = max(spread["counts"])
    edges = spread["edges_ms"]
    for low, high, count in zip(edges, edges[1:], spread["counts"], strict=False):
        if count:
            yield f"  {low:9.2f} - {high:9.2f} ms {'#' * max(1, round(40 * count / most)):40} {count}"
