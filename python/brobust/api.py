"""`brobust.run`: one scenario from Python, on any backend, without a dataset; and what limits a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, SupportsIndex

from brobust import backends, quic, units
from brobust.analysis import summary
from brobust.backends.base import Backend, in_threads
from brobust.backends.support import program_knows_cc
from brobust.dataset import Measured, OfRun, OneRun, columns_of, frame
from brobust.errors import BadInput, BrobustError, RunFailed
from brobust.lazily import pl
from brobust.scenario import Grid, Run, Scenario
from brobust.scenario.grid import override
from brobust.scenario.grid import scenario as one_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from brobust.analysis.explain import Explanation

# A run is measured again for an explanation if it lasts at most so long, and about so many packets arrive.
TRY_SECONDS, TRY_PACKETS = 120, 1_000_000
MAX_REPEAT = 2**32 - 1  # as large as a seed, to which it is added
STOP_SECONDS = 0.2
"""How often a run looks whether it shall end."""


class Result(OfRun):
    """One measured run. Each table of docs/data.md is a frame, made when it is first asked for: `runs`, `throughput`,
    `samples`, `offtimes`, `packets`, `transfers`, `requests`, `connections`, `programs`, `calls`. `pcap` is the packets
    as pcap if they were requested, `run` the scenario and the number of the repeat."""

    def __init__(self, run: Run, measured: Measured):
        self.run = run
        self._measured = measured

    def table(self, name: str) -> pl.DataFrame:
        columns = columns_of(name)
        return frame(getattr(self._measured, name), columns)

    @property
    def pcap(self) -> bytes | None:
        return self._measured.pcap

    def plot(self) -> Figure:
        """Return throughput, in flight, bandwidth estimate and timeslices over time, as a figure of matplotlib. In
        flight and estimate need `samples` in the scenario."""
        from brobust import extras

        extras.require("Result.plot")
        from brobust.report import over_time

        return over_time.figure(self)

    def explain(self, flow: int = 0, tries: bool = True) -> str:
        """Return in about five sentences what limits a flow. With `tries`, runs in virtual time are measured again with
        one thing changed at a time."""
        from brobust.report import explanation

        return " ".join(explanation.sentences(explain(self, self.run, flow, tries)))

    def __repr__(self) -> str:
        """The run as a Python shell shows it: what was measured, and what the flows of each control carried."""
        of_each = self.runs.group_by("cc", maintain_order=True).agg(summary.together())
        carried = ", ".join(f"{cc} {mbps:.2f} Mbit/s" for cc, mbps in of_each.iter_rows())
        return f"<brobust run {self.run.id}: {self.run.scenario.describe()}: {carried}>"

    def _repr_html_(self) -> str:
        """Return the run as notebooks show it: a table of its flows, and its figure where matplotlib is there."""
        from brobust.report import over_time

        return over_time.html(self, self.run.scenario.describe())


def run(scenario: Scenario | Mapping[str, Any], *, repeat: int = 0, stop: Event | None = None) -> Result:
    """Measure one scenario: `brobust.run` says how, and imports this file only when it is called."""
    if not isinstance(scenario, Scenario):
        scenario = _of_fields(scenario)
    number = _whole(repeat)
    if number is None or not 0 <= number <= MAX_REPEAT:
        raise BadInput(f"repeat: {repeat!r} is not a whole number from 0 to {MAX_REPEAT}")
    if stop is not None and scenario.backend in backends.ALONE:
        raise BadInput(f"stop: Ctrl-C ends a run on backend {scenario.backend}, and nothing else; leave it out")
    requested = Run(scenario=scenario, repeat=number)
    backends.check([scenario], jobs=1)
    with backends.opened(scenario.backend, lambda _: None) as backend, _stopped_by(stop, backend):
        backend.calibrate([scenario])
        return Result(requested, backend.measure(requested))


@contextmanager
def _stopped_by(stop: Event | None, backend: Backend) -> Iterator[None]:
    """End what the backend measures once this is set."""
    ended = Event()

    def watch(stop: Event) -> None:
        while not ended.is_set():
            if stop.wait(STOP_SECONDS):
                backend.stop()
                return

    if stop is not None:
        Thread(target=watch, args=(stop,), name="stop", daemon=True).start()
    try:
        yield
    finally:
        ended.set()  # which nobody waits for: a run may take less than the watching thread sleeps


def _whole(number: object) -> int | None:
    """Return a whole number, which may be numpy's; None for anything else."""
    return index(number) if isinstance(number, SupportsIndex) and not isinstance(number, bool) else None


def _of_fields(fields: Mapping[str, Any]) -> Scenario:
    """Return the scenario of these fields; refuse what only a file of `brobust run` may have."""
    if isinstance(fields, Mapping) and "repeat" in fields:
        raise BadInput("repeat: it is no field of one run; brobust.run(fields, repeat=N) measures repeat N, from 0")
    try:
        return one_scenario(fields)
    except BadInput as refusal:
        try:
            Grid(fields)
        except (BadInput, TypeError, ValueError):  # what does not fit is no list
            raise refusal from None
        raise BadInput(f"{refusal}; brobust.run measures one scenario: call it for each value of a list") from None


def explain(
    run: OfRun, requested: Run | None, flow: int = 0, tries: bool | None = None, backend: Backend | None = None
) -> Explanation:
    """Return what limits a flow of a run (docs/see.md).

    `requested` is what the run was to measure; None: it is not known. With it and `tries`, a run in virtual time that
    is not too large is measured again: with all that can be recorded, and with one thing changed at a time.
    `tries` None: unless that would start programs that a dataset names, which may be a stranger's.
    `backend` is one that is open already.
    """
    from brobust.analysis import explain as rules

    number = _whole(flow)
    if number is None or number not in run.runs["flow"]:
        raise BadInput(f"flow: {flow!r} is not in the run, which has flows 0 to {run.runs.height - 1}")
    flow = number
    changes = () if requested is None else requested.scenario.path.bandwidth_changes
    if requested is None or (why := _why_not_tried(run, requested, tries)) is not None:
        why = "its scenario is not in the dataset, or is of another version" if requested is None else why
        return dataclasses.replace(rules.explain(run, flow, {}, changes), not_tried=why)
    if backend is None:
        with backends.opened("virtual", lambda _: None) as opened:
            return explain(run, requested, flow, tries, opened)
    again = _measured_again(run, requested, backend)
    if again is None:
        why = "the kernel here sends other packets than the run's"
        if any(contention.replay for contention in requested.scenario.contentions):
            why += ", or what it replays has changed"
        return dataclasses.replace(rules.explain(run, flow, {}, changes), not_tried=why)
    first = rules.explain(again, flow, {}, changes)
    if first.causes and first.causes[0] in rules.DECIDE:
        return first
    of_causes = {name: change for name in first.signs if (change := _without(name, requested.scenario, flow))}
    without = _tried(requested, flow, of_causes.values(), backend)
    known = {name: rules.speed(without[option]) for name, (option, _) in of_causes.items() if option in without}
    found = rules.explain(again, flow, known, changes)
    tried = without | _tried(requested, flow, _repairs(found, requested.scenario), backend)
    return dataclasses.replace(
        found,
        tried={option: float(row["throughput_mbps"]) for option, row in tried.items()},
        tried_request_ms={option: row["request_median_ms"] for option, row in tried.items() if row.get("requests")},
    )


def _why_not_tried(run: OfRun, requested: Run, tries: bool | None) -> str | None:
    if tries is False:
        return "tries are switched off (--no-try)"
    if requested.scenario.backend != "virtual":
        return f"it was measured in real time, on backend {requested.scenario.backend}"
    if tries is None and isinstance(run, OneRun) and requested.scenario.traffic == "programs":
        return "the dataset names programs, which would run here; `brobust explain --try` runs them, if you trust them"
    seconds = run.runs["duration_s"][0]
    if seconds > TRY_SECONDS:
        return f"it has {seconds:g} s, more than {TRY_SECONDS} s"
    packets = run.runs.select(summary.payload().sum()).item() / 8e-6 / units.PAYLOAD_BYTES
    if packets > TRY_PACKETS:
        return f"it has {packets:,.0f} packets, more than {TRY_PACKETS:,}"
    try:
        backends.check([requested.scenario], jobs=1)
    except BadInput as error:  # for example, the file that it replays is gone
        return str(error)
    return None


def _measured_again(run: OfRun, requested: Run, backend: Backend) -> OfRun | None:
    """Return the run with samples of every ACK and its packets, measured again if it has not recorded them, though it
    might have. None: it is another run here."""
    has_all = requested.scenario.samples == "ack" and not run.samples.is_empty() and run.pcap is not None
    # A QUIC stack that is sampled writes its qlog, which takes time of its CPU: that is another run.
    has_all |= quic.of_traffic(requested.scenario.traffic) is not None
    asked = _changed(requested, {} if has_all else {"samples": "ack", "packets": True})
    again = Result(asked, backend.measure(asked))
    # Of protocols that are not TCP, earlier datasets have 0 retransmissions where nobody knows them.
    same = pl.col("throughput_mbps", "rtt_mean_ms"), pl.col("retransmits").fill_null(0)
    if not again.runs.select(same).equals(run.runs.select(same)):
        return None
    return run if has_all else again


# What is changed: the option of `brobust run` that says it, and the fields.
Change = tuple[str, dict[str, Any]]


def _changed(requested: Run, change: Mapping[str, Any]) -> Run:
    fields = requested.scenario.model_dump(mode="json", exclude_unset=True)
    fields.setdefault("flows", [{}])  # those that a change of --cc changes
    return Run(scenario=one_scenario(override(fields, change)), repeat=requested.repeat)


def _without(cause: str, s: Scenario, flow: int) -> Change | None:
    """Return the change that takes a cause away; None if no field does."""
    sender = s.each_flow[flow].sender
    larger = f"{max(4 * s.path.buffer_bytes, 2 * round(s.path.bandwidth * s.path.rtt / 8e9))}B"
    buffers, buffer_options = {"buffer": larger}, f"--buffer {larger}"
    if (second := s.path.second_buffer_bytes) is not None:
        larger = f"{max(4 * second, 2 * round((s.path.second_bandwidth or 0) * s.path.rtt / 8e9))}B"
        buffers["second_buffer"], buffer_options = larger, f"{buffer_options} --second-buffer {larger}"
    changes: dict[str, Change] = {
        "cpu": ("--share 1", {"contention": {"share": 1}}),
        "receiver": ("--receiver-share 1", {"receiver": {"share": 1}}),
        "work": _without_work(s),
        "loss": ("--loss 0", {"path": {"loss": 0}}),
        "buffer": (buffer_options, {"path": buffers}),
        "cross": ("--cross-load 0", {"cross_traffic": {"load": 0}}),
    }
    if cause == "cpu" and sender > 1:
        return None  # of several senders: a list, whose other entries stay
    if cause == "cpu" and s.contention.replay is not None:
        return "no --replay", {"contention": {"replay": None}}
    return changes.get(cause)


def _without_work(s: Scenario) -> Change:
    nothing: dict[str, object] = {name: "0s" if name == "accept_time" else 0 for name in s.programs.work}
    options = [f"--{name.replace('_', '-')} {value}" for name, value in nothing.items()]
    if s.cpu.frequency is not None:
        options.append("no --cpu-frequency")
    return " ".join(options), {"cpu": {"frequency": None}, "programs": nothing}


# What may be loaded in place of a control. A kernel that lacks one of them leaves it out.
REPAIRED = {
    "bbr": ("bbr_steady", "bbr_robust"),
    "brb_bbr1": ("brb_bbr1_steady", "brb_bbr1_robust"),
    "brb_bbr2": ("brb_bbr2_robust",),
    "brb_bbr3": ("brb_bbr3_steady", "brb_bbr3_robust"),
}


def _repairs(found: Explanation, s: Scenario) -> list[Change]:
    """Return what may help against what was found, for a run with one group of flows."""
    if len(s.flows) > 1 or not found.causes:
        return []
    changes: list[Change] = []
    if "cpu" in found.causes:
        of_first = s.flows[0].sender == 1 and s.contention.replay is None
        if of_first and s.contention.timeslice > 1_000_000:
            changes.append(("--timeslice 1ms", {"contention": {"timeslice": "1ms"}}))
        changes += [(f"--cc {cc}", {"flows": {"cc": cc}}) for cc in REPAIRED.get(found.cc, ())]
        if s.pacing.name == "kernel" and found.pacing_rate_mbps is not None and "cubic" not in found.cc:
            changes.append(("--pacing kept", {"pacing": "kept"}))
            if s.qdisc == "none":
                changes.append(("--qdisc fq", {"qdisc": "fq"}))
    elif {"loss", "buffer"} & set(found.causes) and "bbr" not in found.cc:
        changes.append(("--cc bbr", {"flows": {"cc": "bbr"}}))
    return changes


def _tried(requested: Run, flow: int, changes: Collection[Change], backend: Backend) -> dict[str, dict[str, Any]]:
    """Return by option the flow's row with each change. What cannot be measured is left out."""

    def one(option: str, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        try:
            changed = _changed(requested, {**fields, "samples": None, "packets": False})
            backends.check([changed.scenario], jobs=1)
            measured = backend.measure(changed)
        except RunFailed:
            if "cc" in fields.get("flows", {}) and program_knows_cc(requested.scenario):
                return option, None  # the program has no such control
            raise
        except BrobustError:  # the kernel has no such control, or the fields do not go together
            return option, None
        return option, measured.runs[flow]

    return {option: row for option, row in in_threads(backend, one, changes) if row is not None}
