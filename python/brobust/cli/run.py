"""`brobust run`: measure a scenario, or a grid of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brobust.errors import BadInput

if TYPE_CHECKING:
    from brobust.scenario import Grid

DATA = Path("brobust-data")


# Panels of the help.
PATH, FLOWS, CPU, SENDER, RUNS, DATA_PANEL = (
    "Path", "Flows", "CPU contention", "Sender", "Runs", "Dataset and output",
)  # fmt: skip


def _list(panel: str, name: str, text: str) -> Any:
    """A field that takes a list, as nearly all do: the command's help says so once."""
    return typer.Option(f"--{name}", help=text, show_default=False, rich_help_panel=panel)


def _one(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, show_default=False, rich_help_panel=panel)


def run(
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO.toml", help="Scenario file.")] = None,
    bandwidth: Annotated[str | None, _list(PATH, "bandwidth", "Bottleneck rate with unit [20mbit].")] = None,
    rtt: Annotated[str | None, _list(PATH, "rtt", "Round-trip time with unit [10ms].")] = None,
    buffer: Annotated[str | None, _list(PATH, "buffer", "Bottleneck buffer: 1bdp, 60kB or 100p [1bdp].")] = None,
    loss: Annotated[str | None, _list(PATH, "loss", "Random loss, 0.001 or 0.1% [0].")] = None,
    aqm: Annotated[str | None, _list(PATH, "aqm", "none, red, codel or fq_codel, with options [none].")] = None,
    bandwidth_changes: Annotated[
        str | None, _one(PATH, "Bandwidth during the run, 5s:50mbit,10s:20mbit; no grid.", "--bandwidth-changes")
    ] = None,
    rtt_changes: Annotated[
        str | None, _one(PATH, "Round-trip time during the run, 5s:40ms,10s:10ms; no grid.", "--rtt-changes")
    ] = None,
    cc: Annotated[str | None, _list(FLOWS, "cc", "Congestion control [cubic,bbr,bbr_robust].")] = None,
    flows: Annotated[str | None, _list(FLOWS, "flows", "Parallel flows [1].")] = None,
    start: Annotated[str | None, _list(FLOWS, "start", "When the flows start [0s].")] = None,
    stop: Annotated[str | None, _list(FLOWS, "stop", "When they stop [at the end].")] = None,
    flow_rtt: Annotated[str | None, _list(FLOWS, "flow-rtt", "Their own round-trip time [the path's].")] = None,
    flow_rtt_changes: Annotated[
        str | None, _one(FLOWS, "Their own round-trip time during the run, as --rtt-changes.", "--flow-rtt-changes")
    ] = None,
    pattern: Annotated[
        str | None, _list(FLOWS, "pattern", "bulk, 'rate 5mbit', 'onoff 1s 500ms' or 'idle 3s 2s' [bulk].")
    ] = None,
    sender: Annotated[str | None, _list(FLOWS, "sender", "Sender that they are on, 1 to 16 [1].")] = None,
    share: Annotated[str | None, _list(CPU, "share", "CPU share of the sender, 0.25 or 25% [1,0.5,0.25].")] = None,
    timeslice: Annotated[str | None, _list(CPU, "timeslice", "Timeslice with unit [10ms].")] = None,
    driver: Annotated[
        str | None, _list(CPU, "driver", "auto, none, replay, and on vm deadline, burner, quota or competitor [auto].")
    ] = None,
    phase: Annotated[str | None, _list(CPU, "phase", "When the first period begins, 5ms or random [random].")] = None,
    start_jitter: Annotated[
        str | None,
        _list(CPU, "start-jitter", "Part of its off-time in which a timeslice may begin [virtual: 0.25, vm: 0]."),
    ] = None,
    length_jitter: Annotated[
        str | None, _list(CPU, "length-jitter", "Part by which each timeslice and off-time is longer or shorter [0].")
    ] = None,
    jitter: Annotated[str | None, typer.Option("--jitter", hidden=True)] = None,
    contention_start: Annotated[
        str | None, _list(CPU, "contention-start", "When the CPU begins to be taken away [0s].")
    ] = None,
    contention_stop: Annotated[str | None, _list(CPU, "contention-stop", "When that ends [at the end].")] = None,
    alternate: Annotated[
        str | None, _list(CPU, "alternate", "Take the CPU away for this time, leave it for as long, and so on [off].")
    ] = None,
    receiver_share: Annotated[str | None, _list(CPU, "receiver-share", "CPU share of the receiver [1].")] = None,
    replay: Annotated[
        str | None, _list(CPU, "replay", "Recorded off-times: DATASET, DATASET#RUN, .csv or .parquet [none].")
    ] = None,
    cpu_frequency: Annotated[
        str | None, _list(SENDER, "cpu-frequency", "Model the CPU's cost at this frequency, 576MHz [off].")
    ] = None,
    timer_cycles: Annotated[str | None, _list(SENDER, "timer-cycles", "Cycles per timer.")] = None,
    rx_packet_cycles: Annotated[str | None, _list(SENDER, "rx-packet-cycles", "Cycles per packet received.")] = None,
    tx_skb_cycles: Annotated[str | None, _list(SENDER, "tx-skb-cycles", "Cycles per skb sent.")] = None,
    tx_byte_cycles: Annotated[str | None, _list(SENDER, "tx-byte-cycles", "Cycles per byte sent.")] = None,
    coalesce: Annotated[str | None, _list(SENDER, "coalesce", "Receive interrupt coalescing [0s].")] = None,
    tx_completion: Annotated[
        str | None, _list(SENDER, "tx-completion", "Time from sending a packet to its being freed [5us].")
    ] = None,
    tso_max_size: Annotated[
        str | None, _list(SENDER, "tso-max-size", "Largest TSO packet that the NIC takes [65.536kB].")
    ] = None,
    qdisc: Annotated[str | None, _list(SENDER, "qdisc", "none (TCP paces by itself) or fq [none].")] = None,
    tso_sizing: Annotated[
        str | None, _list(SENDER, "tso-sizing", "Who sizes TSO packets: kernel, rate, control [kernel].")
    ] = None,
    traffic: Annotated[
        str | None, _list(SENDER, "traffic", "brobust (virtual), iperf3 [brobust; vm: iperf3].")
    ] = None,
    duration: Annotated[str | None, _list(RUNS, "duration", "Length of a run [10s].")] = None,
    repeat: Annotated[int | None, _one(RUNS, "Repeats of every cell [3].", "--repeat")] = None,
    seed: Annotated[str | None, _list(RUNS, "seed", "Seed, also of the shuffled order [1].")] = None,
    backend: Annotated[str | None, _list(RUNS, "backend", "virtual or vm [virtual].")] = None,
    kernel: Annotated[
        str | None,
        _list(RUNS, "kernel",
              "virtual-6.12; on vm debian-6.12, debian-6.1, host, a release in /boot, or BZIMAGE:MODULES "
              "[virtual-6.12, debian-6.12]."),
    ] = None,
    accelerator: Annotated[str | None, _list(RUNS, "accelerator", "For vm: auto, kvm or tcg [auto].")] = None,
    jobs: Annotated[int | None, _one(RUNS, "Runs side by side [virtual: as many as CPUs, vm: 1].", "--jobs")] = None,
    samples: Annotated[
        str | None,
        _list(DATA_PANEL, "samples", "Sample the sockets at this interval, or at every ack; on vm costs CPU [off]."),
    ] = None,
    packets: Annotated[
        bool | None, _one(DATA_PANEL, "Keep every packet, also as pcap [off].", "--packets/--no-packets")
    ] = None,
    out: Annotated[Path | None, _one(DATA_PANEL, f"Dataset directory [{DATA}/DATE-TIME].", "--out")] = None,
    resume: Annotated[
        bool, _one(DATA_PANEL, "Complete a broken series (of --out, or the latest).", "--resume")
    ] = False,
    as_json: Annotated[
        bool, _one(DATA_PANEL, "One JSON object per run as it finishes, nothing else.", "--json")
    ] = False,
) -> None:  # fmt: skip
    """Measure throughput under CPU contention.

    Flags override the file. Every field of the file has a flag, and takes a comma-separated list where not said
    otherwise: the lists' cross product is measured. Defaults stand in square brackets.
    """
    from brobust.cli.measuring import measure, require, show
    from brobust.dataset import Dataset
    from brobust.series import runner

    flags = grid_fields(
        path={"bandwidth": bandwidth, "rtt": rtt, "buffer": buffer, "loss": loss, "aqm": aqm},
        contention={
            "share": share, "timeslice": timeslice, "driver": driver, "phase": phase,
            "start_jitter": start_jitter, "length_jitter": length_jitter, "jitter": jitter, "replay": replay,
            "start": contention_start, "stop": contention_stop, "alternate": alternate,
        },
        receiver={"share": receiver_share},
        flows={
            "cc": cc, "count": flows, "start": start, "stop": stop, "rtt": flow_rtt, "pattern": pattern,
            "sender": sender,
        },
        cpu={
            "frequency": cpu_frequency, "timer_cycles": timer_cycles, "rx_packet_cycles": rx_packet_cycles,
            "tx_skb_cycles": tx_skb_cycles, "tx_byte_cycles": tx_byte_cycles,
        },
        nic={"coalesce": coalesce, "tx_completion": tx_completion, "tso_max_size": tso_max_size},
        duration=duration, seed=seed, kernel=kernel, backend=backend, accelerator=accelerator, samples=samples,
        qdisc=qdisc, tso_sizing=tso_sizing, traffic=traffic,
    )  # fmt: skip
    for table_name, field, value in (
        ("path", "bandwidth_changes", bandwidth_changes),
        ("path", "rtt_changes", rtt_changes),
        ("flows", "rtt_changes", flow_rtt_changes),
    ):
        if value is not None:  # its commas are between changes, not between points of a grid
            flags.setdefault(table_name, {})[field] = value
    for field, given in (("repeat", repeat), ("packets", packets)):
        if given is not None:
            flags[field] = given
    if resume:
        directory = out or _latest()
        dataset = Dataset.open(directory)
        grid = dataset.grid()
        if (scenario is not None or flags) and _grid(scenario, flags).fields != grid.fields:
            raise BadInput(f"--resume: {directory} was begun with another scenario; give no scenario options with it")
        _check(grid, jobs)
    else:
        grid = _grid(scenario, flags)
        _check(grid, jobs)
        directory = out or DATA / datetime.now().strftime("%Y%m%d-%H%M%S")
        dataset = Dataset.create(directory, grid, runner.host())
    measure(grid, dataset, as_json, jobs)
    if not as_json:
        show(dataset)
    require(grid, dataset)


def _check(grid: Grid, jobs: int | None) -> None:
    from brobust import backends
    from brobust.series import runner

    runner.check_jobs(jobs, grid.scenarios)
    backends.check(grid.scenarios, jobs)


def grid_fields(**given: Any) -> dict[str, Any]:
    """Flags as fields of a grid: absent ones left out, commas as lists, numbers as TOML would have them."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            inner = grid_fields(**value)
            if inner:
                fields[name] = inner
        elif value is not None:
            parts = [part.strip() for part in value.split(",")]
            if "" in parts:
                raise BadInput(f"--{name}: {value!r} has an empty element; write for example a,b")
            fields[name] = parts if len(parts) > 1 else parts[0]
    return fields


def _grid(scenario: Path | None, flags: dict[str, Any]) -> Grid:
    from brobust.scenario import Grid

    return Grid.from_file(scenario, flags) if scenario is not None else Grid.from_flags(flags)


def _latest() -> Path:
    datasets = sorted(path.parent for path in DATA.glob("*/dataset.json"))
    if not datasets:
        raise BadInput(f"--resume: no dataset in ./{DATA}; give its directory with --out")
    return datasets[-1]
