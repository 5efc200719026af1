"""The command `brobust trace`: a run or a recording as a timeline for Perfetto."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from brobust import extras, files
from brobust.errors import BadInput, printable
from brobust.units import show_count

DATASET = Annotated[Path, typer.Argument(metavar="DIR", help="A dataset directory that `brobust run` wrote.")]
RUN = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="The run, by the beginning of its id. [default: the only one]", show_default=False
    ),
]
# What a run records only where it was asked to, and the option that asks.
OPTIONS = {"packets": "--packets", "samples": "--samples ack"}
IN_REAL_TIME = {"samples": "--samples 10ms"}
# Names of captures, which other programs write: a timeline must not have one.
CAPTURES = (".pcap", ".cap")


def trace(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE",
            help="A dataset directory, or a recording of `brobust contend record` or `brobust watch --record`.",
        ),
    ],
    run: RUN = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Draw this recording into the same timeline; may be repeated."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The file to write; FILE.pcapng: a run's packets, for Wireshark."
        ),
    ] = Path("run.perfetto-trace"),
) -> None:
    """Write a run, or what was recorded on a host, as a timeline for ui.perfetto.dev.

    Of a run it has timeslices, packets, cwnd, rates, RTTs and phases; of recordings what each thread did, the host's
    load, and of each socket verdicts, cwnd, data in flight, rates and RTTs. The page ui.perfetto.dev opens the file in
    the browser and sends it nowhere. Recordings that say when they began keep their distance in time; a run begins with
    the first one, as a replay of it does.

    With -o FILE.pcapng it is a capture of the run's packets for Wireshark instead, with comments: the timeslice of each
    packet, and why it is late.

    Examples:
      brobust trace data                           # the only run of a dataset
      brobust trace data 4f1 -o run.pcapng         # one of several, for Wireshark
      brobust trace sweeps.jsonl --beside threads.parquet
    """
    if out.suffix.lower() in CAPTURES:
        raise BadInput(
            f"-o {out}: this would be a timeline for Perfetto; for packets give -o {out.with_suffix('.pcapng')}"
        )
    from brobust.dataset import Dataset, find, recordings

    chosen = None if files.is_file(source) else find(Dataset.open(source), run)
    if chosen is None and run is not None:
        raise BadInput(f"RUN {run!r}: {source} is a file, which has no runs; give DIR RUN, or FILE")
    shown = recordings.read(source) if chosen is None else chosen
    with_it = [recordings.read(file) for file in beside or []]
    what = source.name if chosen is None else f"run {chosen.id}"
    if out.suffix.lower() == ".pcapng":
        from brobust.report import capture

        if chosen is None or with_it:
            raise BadInput(f"-o {out}: a recording has no packets; give -o FILE.perfetto-trace, or DIR RUN alone")
        _say(out, what, capture.write(chosen, out))
        return
    extras.require("trace")
    from brobust.report import trace as timeline

    counts = timeline.write(shown, out, with_it)
    _say(out, what, counts)
    if chosen is not None:
        recorded_by = OPTIONS if chosen.runs["backend"][0] == "virtual" else IN_REAL_TIME
        if lacking := [name for name in recorded_by if not counts[name]]:
            options = " ".join(recorded_by[name] for name in lacking)
            print(f"not recorded: {', '.join(lacking)}; `brobust run {options}` records them")
    for one in (shown, *with_it):
        if isinstance(one, recordings.Threads) and one.begin_unix_s is None:
            name = printable(one.name)
            print(f"{name} does not say when it began (brobust 0.2.0 wrote it): it is drawn from 0 s")
    print("open it at https://ui.perfetto.dev (it stays in your browser)")


def _say(out: Path, what: str, counts: Mapping[str, int]) -> None:
    listed = [show_count(number, name.removesuffix("s")) for name, number in counts.items()]
    print(printable(f"{out}: {what}, {', '.join(listed)}"))
