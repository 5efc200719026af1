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

from brobust import drivers, units
from brobust.cli.lazy import group
from brobust.cli.options import parsed
from brobust.drivers.competitor import MAX_COMPETITORS
from brobust.errors import BadInput, MissingSupport

if TYPE_CHECKING:
    from rich.table import Table

    from brobust.contention.any_vm import Report
    from brobust.contention.vcpus import Machine
    from brobust.drivers import Driver, Places

app = group(
    """Take the CPU away from the vCPU threads of any VM on this host, and say what they really got.

Knows the vCPU threads of QEMU, libvirt, VirtualBox, VMware, Firecracker and cloud-hypervisor by their names (tested:
QEMU and libvirt against the programs themselves; the others against the names that they give their threads). Every
thread is given its policy, nice value, CPUs and cgroup back at the end, on Ctrl-C, and by `brobust doctor --clean`
after kill -9. Exit status 1 if the threads did not get what was asked for.""",
    no_args_is_help=False,
)

PHASES = ("random", "in", "out")
# Options that are not called as the field of the request.
OPTION_OF = {"out_of_phase": "phase"}

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
    timeslice: Annotated[str, typer.Option(help="How long each thread runs at a time.")] = "10ms",
    driver: Annotated[
        str | None,
        typer.Option(
            help=f"{drivers.help_text()} [deadline].", show_default=False,
        ),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(help="Off-times recorded elsewhere: FILE, FILE#THREAD, DATASET#RUN.", show_default=False),
    ] = None,
    phase: Annotated[str, typer.Option(help="Burner, several threads: off their CPUs in or out of phase, or random.")]
        = "random",
    start_jitter: Annotated[
        float, typer.Option(help="Burner: part of the off-time in which a timeslice begins, 0 to 0.5.", min=0, max=0.5)
    ] = 0.0,
    length_jitter: Annotated[
        float, typer.Option(help="Burner: part by which each length is longer or shorter, 0 to 0.5.", min=0, max=0.5)
    ] = 0.0,
    jitter: Annotated[float, typer.Option(hidden=True, min=0, max=0.5)] = 0.0,
    competitors: Annotated[
        int | None, typer.Option(help="Busy processes beside each thread [1 / share - 1].", min=1, max=MAX_COMPETITORS)
    ] = None,
    nice: Annotated[int, typer.Option(help="Nice level of the busy processes.", min=-20, max=19)] = 0,
    for_: For = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep what they got, as `record` does.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Leave the host no CPU of its own, or --nice below -10; needs --for.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what was found and what would be done.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    if context.invoked_subcommand is not None:
        return
    from brobust.contention import any_vm, vcpus

    machine = vcpus.find(qemu=qemu, libvirt=libvirt, pid=pid, threads=threads)
    if jitter:
        print("brobust: --jitter is called --length-jitter, and will be refused in the next release", file=sys.stderr)
    chosen = _driver(share, timeslice, driver, replay, phase, start_jitter, length_jitter or jitter, competitors, nice)
    seconds = _seconds(for_)
    if force and seconds is None and replay is None:
        raise BadInput(
            "--force needs --for, since nobody may get a CPU to end the contention; give for example --for 10s"
        )
    if out is not None:
        _check_out(out)
    places = any_vm.check(chosen, machine, force=force)
    _print_found(machine, chosen, places, as_json)
    if dry_run:
        return
    if os.geteuid() != 0:
        raise MissingSupport("contend needs root, to change how threads are scheduled; run it with sudo, or --dry-run")
    last = _show(any_vm.contend(machine, chosen, places, seconds, out, force=force), as_json)
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
    from brobust.contention import any_vm, vcpus

    _check_out(out)
    machine = vcpus.find(qemu=qemu, libvirt=libvirt, pid=pid, threads=threads)
    last = _show(any_vm.record(machine, _seconds(for_), out), as_json)
    if not as_json:
        print(f"{out}: {len(machine.vcpus)} threads, {last['elapsed_s']:.1f} s, by {last['recorded_by']}")
    if last["interrupted"]:
        raise typer.Exit(130)


def _driver(
    share: str | None, timeslice: str, driver: str | None, replay: str | None, phase: str, start_jitter: float,
    length_jitter: float, competitors: int | None, nice: int,
) -> Driver:  # fmt: skip
    """Return the driver that the options ask for, with their request."""
    from brobust.contention import request
    from brobust.scenario import Contention
    from brobust.scenario.grid import validated

    name = driver or ("replay" if replay is not None else "deadline")
    if name not in drivers.BY_NAME:
        raise BadInput(f"--driver: {name!r} is not one of {', '.join(drivers.BY_NAME)}")
    if phase not in PHASES:
        raise BadInput(f"--phase: {phase!r} is not one of {', '.join(PHASES)}")
    parsed("timeslice", timeslice, units.nanoseconds)
    fields = {
        "driver": name, "share": 1.0 if share is None else _share(share), "timeslice": timeslice, "replay": replay,
        "phase": "0s" if phase == "in" else "random", "start_jitter": start_jitter, "length_jitter": length_jitter,
    }  # fmt: skip
    requested = validated(Contention, fields, "contend")
    options = drivers.Options(competitors, nice, out_of_phase=phase == "out")
    for field, why in drivers.refusals(requested, options):
        raise BadInput(f"--{OPTION_OF.get(field, field).replace('_', '-')}: {why}")
    found = request.driver_for(requested, options)
    if not found.takes_cpu_away:
        beside = ", or --competitors N" if "competitors" in found.takes else ""
        raise BadInput(f"--share is missing: give how much of a CPU each thread is to have, for example 25%{beside}")
    return found


def _share(text: str) -> float:
    share = parsed("share", text, units.fraction)
    if not 0 < share < 1:
        raise BadInput(f"--share: {text} is not between 0 and 1; give for example 0.25 or 25%")
    return share


def _check_out(out: Path) -> None:
    if out.suffix != ".parquet" or not out.parent.is_dir():
        raise BadInput(
            f"--out: {out} is not a .parquet file in a directory that exists; give for example recording.parquet"
        )


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = parsed("for", text, units.nanoseconds) / 1e9
    if seconds < 0.1:
        raise BadInput(f"--for: {text} is too short to see anything; give at least 100ms")
    return seconds


def _print_found(machine: Machine, driver: Driver, places: Places, as_json: bool) -> None:
    vcpu_rows: list[dict[str, Any]] = [
        {"thread": vcpu.tid, "name": vcpu.name, "vcpu": vcpu.number, "cpu": places[vcpu.tid]} for vcpu in machine.vcpus
    ]
    if as_json:
        found = {"pid": machine.pid, "program": machine.program, "name": machine.name, "asked": driver.describe()}
        print(json.dumps({"found": {**found, "threads": vcpu_rows}}), flush=True)
        return
    name = f" {machine.name}" if machine.name else ""
    print(f"{machine.program}{name} (process {machine.pid}): {driver.describe()}", flush=True)
    for row in vcpu_rows:
        where = "" if row["cpu"] is None else f", pinned to CPU {row['cpu']}"
        print(f"  thread {row['thread']} {row['name']}{where}", flush=True)
    if not machine.is_known:
        print(
            f"brobust: {machine.program} is not a known VM: its own threads are held up, but not the timers and "
            "softirqs of this host's TCP",
            file=sys.stderr,
        )


def _show(reports: Generator[Report], as_json: bool) -> Report:
    """Print each report as it comes; return the last one."""
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
    """Let Ctrl-C between two reports end them as it does within one: with the final report."""
    try:
        yield from reports
    except KeyboardInterrupt:
        yield reports.throw(KeyboardInterrupt)


@contextmanager
def _screen(as_json: bool) -> Iterator[Any]:
    """Give a function that prints a report: as a table that is updated on a terminal, as lines into a pipe."""
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
    largest = max(spread["counts"])
    edges = spread["edges_ms"]
    for low, high, count in zip(edges, edges[1:], spread["counts"], strict=False):
        if count:
            yield f"  {low:9.2f} - {high:9.2f} ms {'#' * max(1, round(40 * count / largest)):40} {count}"
