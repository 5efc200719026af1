"""Contention for the testbed's sender during a run, and what its vCPU threads got, as columns of the run's record."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from brobust import _core, units
from brobust.contention import recordings, verdict
from brobust.drivers import BY_NAME, Driver
from brobust.errors import BadInput, RunFailed
from brobust.host import cpus
from brobust.host.session import Session
from brobust.scenario import Contention

# What threads on one CPU may have of it together. The rest is for overruns, which end at ticks.
MAX_OF_ONE_CPU = 0.9


def check(requested: Contention) -> None:
    """Refuse what the driver could not do on this host."""
    try:
        driver_for(requested).check()
    except _core.ContentionError as error:
        raise BadInput(f"contention: {error}") from None


def driver_for(requested: Contention, nice: int = 0) -> Driver:
    """Return the driver that is to carry out a request, with the recording if it has one. `nice`: the threads' own."""
    offtimes = () if requested.replay is None else recordings.offtimes(requested.replay)
    return BY_NAME[requested.driver](requested, offtimes, nice)


def plan(requested: Contention) -> cpus.Plan:
    """Return where the sender's vCPUs run during the contention; refuse a host with too few CPUs for them."""
    driver = BY_NAME.get(requested.driver)
    takes_turns = requested.active and driver is not None and driver.shares_a_cpu
    if takes_turns and driver is not None and "phase" in driver.takes:
        takes_turns = requested.phase == "out"  # others may want the CPU at the same time
    return cpus.plan(requested.vcpus, max(1, int(MAX_OF_ONE_CPU / requested.share + 1e-9)) if takes_turns else 1)


class ContentionOutcome:
    """What the vCPU threads got during a run. It is filled in when the contention ends."""

    def __init__(self, driver: Driver | None, sleeps: bool = False):
        self._driver = driver
        """None: the threads were to be undisturbed."""
        self._sleeps = sleeps
        """Whether the threads sleep when there is nothing to do: then the share is the most that they may have."""
        self._begin_ns: int | None = None
        self.summaries: list[_core.Summary] = []
        self.path: _core.Summary | None = None
        self.steal = 0.0
        """The largest share of a CPU's time that this machine's hypervisor gave to others."""
        self.trouble: str | None = None
        self.at_begin: Callable[[], None] | None = None
        """What is to happen when the traffic starts."""

    def note_begin(self) -> None:
        """Note that the traffic starts now: timeslices and off-times count from here."""
        self._begin_ns = time.monotonic_ns()
        if self.at_begin is not None:
            self.at_begin()

    def columns(self) -> dict[str, Any]:
        """Return columns of the run record. Of several vCPUs it has the means, and the worst decides the outcome."""
        reason = self._reason()
        outcome = {**verdict.outcome(reason), "steal_share": self.steal}
        if not self.summaries:
            return outcome
        vcpus, contended = self.summaries, self._driver is not None
        timeslice_ns = _mean([vcpu.effective_timeslice_ns for vcpu in vcpus]) if contended else None
        offtime_ns = _mean([vcpu.effective_offtime_ns for vcpu in vcpus]) if contended else None
        return {
            **outcome,
            "effective_share": _mean([vcpu.effective_share for vcpu in vcpus]),
            "effective_timeslice_ms": units.milliseconds(timeslice_ns),
            "effective_offtime_ms": units.milliseconds(offtime_ns),
            "asleep_share": _mean([vcpu.asleep_share for vcpu in vcpus]),
            "timeslices": sum(len(vcpu.timeslices_ns) for vcpu in vcpus) if contended else None,
            "vcpu_shares": " ".join(f"{vcpu.effective_share:.4f}" for vcpu in vcpus),
            "path_waiting_share": self.path.waiting_share if self.path else None,
            "lost_events": sum(s.lost_events for s in self.summaries),
        }

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Return every timeslice and off-time of each vCPU, for the offtimes table."""
        if self._driver is None:
            return []
        begin = self._begin_ns
        return [
            {
                "run": run, "sender": 1, "vcpu": number, "kind": kind, "duration_ms": duration / 1e6,
                "start_s": None if begin is None else (start - begin) / 1e9,
            }
            for number, vcpu in enumerate(self.summaries)
            for start, duration, kind in _intervals(vcpu)
        ]  # fmt: skip

    def _reason(self) -> str | None:
        """Return why the run is unfaithful: the first thing that is not as asked for, and what may be the cause."""
        of_path = None if self.path is None else verdict.of_path(self.path)
        wrong = next(filter(None, [self.trouble, *map(self._deviation, self.summaries), of_path]), None)
        return "; ".join(filter(None, (wrong, verdict.of_machine(self.steal)))) or None

    def _deviation(self, summary: _core.Summary) -> str | None:
        if self._driver is None:
            return verdict.of_undisturbed(summary)
        if self._sleeps:
            return None
        return verdict.of_thread(self._driver, summary, self._begin_ns)


def _mean(of_each: Sequence[float | None]) -> float | None:
    known = [value for value in of_each if value is not None]
    return sum(known) / len(known) if known else None


def _intervals(vcpu: _core.Summary) -> list[tuple[int, int, str]]:
    """Return start, duration (ns) and kind of each timeslice and off-time, in order."""
    slices = zip(vcpu.timeslice_starts_ns, vcpu.timeslices_ns, strict=True)
    offs = zip(vcpu.offtime_starts_ns, vcpu.offtimes_ns, strict=True)
    return sorted([*((*one, "timeslice") for one in slices), *((*one, "off") for one in offs)])


@contextmanager
def applied(
    requested: Contention,
    threads: Sequence[int],
    path_thread: int,
    plan: cpus.Plan,
    session: Session,
    seed: int,
    nice: str,
) -> Iterator[ContentionOutcome]:
    """Hold the threads, each pinned to the CPU that the plan has for it, under the requested contention, and record
    what they get, until the context is left. `seed` decides what is drawn; `nice` is the guests' own, for
    competitors."""
    driver = driver_for(requested, int(nice)) if requested.active else None
    outcome = ContentionOutcome(driver, sleeps=requested.when_idle == "sleep")
    session.hold_cpus(sorted(set(plan.senders)))
    try:
        with ExitStack() as stack:
            if driver is not None:
                places = dict(zip(threads, plan.senders, strict=True))
                start = partial(_start, stack, driver, places, session, seed)
                if driver.counts_from_traffic:
                    outcome.at_begin = start
                else:
                    start()
            recorder = None
            try:
                recorder = _core.Recorder([*threads, path_thread])
            except _core.ContentionError as error:
                outcome.trouble = f"what the vCPU got was not recorded: {error}"
            before = cpus.times()
            yield outcome
            outcome.steal = cpus.steal(_chosen(before, plan), cpus.times())
            if recorder is not None:
                off_ns = driver.off_ns if driver is not None else None
                *outcome.summaries, outcome.path = recorder.stop([*(off_ns for _ in threads), None])
    except _core.ContentionError as error:
        raise RunFailed(str(error)) from None


def _chosen(times: cpus.Times, plan: cpus.Plan) -> cpus.Times:
    return {cpu: times[cpu] for cpu in (f"cpu{number}" for number in {*plan.senders, *plan.others}) if cpu in times}


def _start(stack: ExitStack, driver: Driver, places: dict[int, int], session: Session, seed: int) -> None:
    """Begin now; the contention ends with the stack."""
    stack.enter_context(driver.held(places, session, time.monotonic_ns(), seed))
