"""`brobust watch --serve`: the latest sweep as metrics of Prometheus. docs/watch.md has their table.

Sweeps go on whether anybody asks for them or not: a verdict needs the samples of a whole window, and a Prometheus that
asks every 15 s would leave it with none.
"""

from __future__ import annotations

import errno
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from brobust import __version__
from brobust.errors import BadInput, MissingSupport
from brobust.watch import CAUSES, Report

MOST_CONTROLS = 16
"""Congestion controls with series of their own, those with most sockets; what is left counts as OTHER."""
OTHER = "other"

MOST_CONNECTIONS = 32
"""That are open at a time. Nobody is asked who he is, so they must not cost more than that, whoever keeps them."""
LONGEST_CONNECTION_SECONDS = 10.0

BITS_PER_MEGABIT = 1e6

HOST = {
    "steal_share": ("brobust_host_steal_ratio", "Of all CPUs' time since the sweep before: somebody else had it"),
    "late_share": ("brobust_host_late_wakes_ratio", "Of the wakes of a thread with priority: more than 2 ms late"),
    "busiest_share": ("brobust_host_busiest_cpu_ratio", "Of the busiest CPU's time since the sweep before: it worked"),
    "pressure_share": ("brobust_host_cpu_pressure_ratio", "Of the last 10 s: some task waited for a CPU (PSI)"),
}
"""Fields of a report's host, and the metric that shows each."""

WHAT_HELPS = {
    errno.EADDRINUSE: "something else listens there (ss -ltnp names it); choose another port",
    errno.EACCES: "ports below 1024 take CAP_NET_BIND_SERVICE; choose another port",
    errno.EADDRNOTAVAIL: "it is none of this host's addresses",
}


class Address(NamedTuple):
    """Where metrics are served."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`127.0.0.1:9775`, `[::1]:9775`, `localhost:9775`; port 0 is a free one."""
        match = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]+)):(\d{1,5})", text)
        if match is None or int(match[3]) > 65535:
            raise BadInput(
                f"--serve: {text!r} is no address with a port; write 127.0.0.1:9775 or [::1]:9775, "
                "or 0.0.0.0:9775 for all addresses of this host, where whoever reaches one may read"
            )
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Metrics(Collector):
    """The latest sweep, and what has been counted since the first."""

    def __init__(self, per_socket: bool) -> None:
        self._per_socket = per_socket
        self._lock = threading.Lock()
        self._latest: Report | None = None
        self._cpu_s = 0.0
        self._interrupted = 0

    def update(self, report: Report) -> None:
        with self._lock:
            self._latest = report
            self._cpu_s += report["cpu_ms"] / 1e3
            self._interrupted += report["interrupted"]

    def collect(self) -> Iterator[Metric]:
        """For a scrape; it comes in a thread of its own."""
        with self._lock:
            report, cpu_s, interrupted = self._latest, self._cpu_s, self._interrupted
        yield InfoMetricFamily("brobust_build", "The brobust that watches", {"version": __version__})
        yield CounterMetricFamily("brobust_sweeps", "Sweeps over all sockets", report["sweep"] if report else 0)
        yield CounterMetricFamily(
            "brobust_sweep_cpu_seconds", "CPU time of all sweeps, the kernel's part included", cpu_s
        )
        yield CounterMetricFamily(
            "brobust_dumps_interrupted", "Dumps of sockets that stayed inconsistent: some may be missing", interrupted
        )
        if report is None:
            return
        yield GaugeMetricFamily("brobust_sweep_seconds", "How long the latest sweep took", report["took_ms"] / 1e3)
        unread_host = report["unread_host"]
        unread = len(report["unread"]) - report["interrupted"] - unread_host
        yield GaugeMetricFamily("brobust_unread_namespaces", "Network namespaces that could not be read", unread)
        yield GaugeMetricFamily("brobust_unread_host_files", "Files about the host's CPUs that could not", unread_host)
        for field, (name, meaning) in HOST.items():
            if report["host"][field] is not None:
                yield GaugeMetricFamily(name, meaning, report["host"][field])
        yield from _sockets(report)
        if self._per_socket:
            yield from _top_sockets(report["flows"])


def _sockets(report: Report) -> Iterator[Metric]:
    """How many there are by control and cause, and how their rates and what they have in flight are spread."""
    number = GaugeMetricFamily("brobust_sockets", "TCP sockets", labels=("cc", "cause"))
    # Gauge histograms, not histograms: a bucket holds the sockets that are there now, and may empty again, whereas
    # counters would count a socket once per sweep. So histogram_quantile() takes them as they are, without rate().
    rate = GaugeHistogramMetricFamily(
        "brobust_socket_rate_bits_per_second", "Acknowledged over the window", labels=("cc", "cause")
    )
    inflight = GaugeHistogramMetricFamily(
        "brobust_socket_inflight_bdp",
        "In flight over the bandwidth-delay product, of sockets with an estimate",
        labels=("cc", "cause"),
    )
    bounds = report["bounds"]
    for group, lines in _groups(report["counts"]).items():
        number.add_metric(group, sum(line["sockets"] for line in lines))
        for family, field, scale in ((rate, "rate_mbps", BITS_PER_MEGABIT), (inflight, "inflight_bdp", 1.0)):
            spread = [line[field] for line in lines]
            total = sum(each["sum"] for each in spread) * scale
            family.add_metric(group, _buckets(bounds[field], [each["counts"] for each in spread], scale), total)
    yield from (number, rate, inflight)


def _groups(counts: list[Report]) -> dict[tuple[str, str], list[Report]]:
    """The lines of a report's `counts` by control and cause.

    Every cause is there for a control that has sockets, so that a series does not end when its last socket goes.
    """
    sockets: Counter[str] = Counter()
    for line in counts:
        sockets[line["cc"]] += line["sockets"]
    by_number = sorted(sockets, key=lambda cc: (-sockets[cc], cc))
    shown = {cc: cc if place < MOST_CONTROLS else OTHER for place, cc in enumerate(by_number)}
    groups: dict[tuple[str, str], list[Report]] = {(cc, cause): [] for cc in shown.values() for cause in CAUSES}
    for line in counts:
        groups[shown[line["cc"]], line["cause"]].append(line)
    return groups


def _buckets(bounds: Sequence[float], spreads: list[list[int]], scale: float) -> list[tuple[str, float]]:
    """The sum of several, with upper bounds, and cumulative as Prometheus has them."""
    numbers = [sum(bucket) for bucket in zip(*spreads, strict=True)] or [0] * (len(bounds) + 1)
    names = [*(floatToGoString(bound * scale) for bound in bounds), "+Inf"]  # type: ignore[no-untyped-call]
    return list(zip(names, accumulate(numbers), strict=True))


def _top_sockets(flows: Iterable[Report]) -> Iterator[Metric]:
    labels = ("local", "remote", "interface", "netns", "cc", "cause")
    for name, meaning, field, scale in (
        ("rate_bits_per_second", "Acknowledged over the window", "rate_mbps", BITS_PER_MEGABIT),
        ("inflight_bdp", "In flight over the bandwidth-delay product, median of the window", "inflight_bdp", 1.0),
        ("deficit_ratio", "Of the samples in which it could send: less than 1 BDP in flight", "deficit_share", 1.0),
    ):
        family = GaugeMetricFamily(f"brobust_top_socket_{name}", f"{meaning}; of the --top sockets", labels=labels)
        for flow in flows:
            if flow[field] is not None:
                family.add_metric([str(flow[label] or "") for label in labels], flow[field] * scale)
        yield family


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""


class _Server(ThreadingWSGIServer):
    """Answers each connection in a thread of its own, of which there are few: a new one takes the place of the oldest.

    So connections that ask nothing, or never read, cost no more than a Prometheus that asks, and do not keep it out.
    """

    request_queue_size = 128

    def __init__(self, address: Address) -> None:
        family, *_, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._since: dict[Any, float] = {}  # by connection, oldest first
        super().__init__(place, _Handler)  # type: ignore[arg-type]  # of IPv6, four parts

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self._end_those_before(time.monotonic(), at_most=1)
            if not self._slots.acquire(timeout=1.0):  # its thread ends as soon as it runs
                self.shutdown_request(request)
                return
        with self._lock:
            self._since[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called by serve_forever() at least every half second."""
        self._end_those_before(time.monotonic() - LONGEST_CONNECTION_SECONDS)

    def _end_those_before(self, then: float, at_most: int = MOST_CONNECTIONS) -> None:
        with self._lock:
            ended = [request for request, since in self._since.items() if since < then][:at_most]
            for request in ended:
                del self._since[request]
                with suppress(OSError):  # whoever waits for it, to read or to write, is woken
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # the other end has gone
            super().handle_error(request, client_address)


@contextmanager
def serving(metrics: Metrics, address: Address) -> Iterator[Address]:
    """Answers Prometheus for as long as it lasts; gives the address, with the port that was found for 0."""
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector("brobust", registry=registry)  # CPU and memory of all of us: what watching costs
    try:
        server = _Server(address)
    except (socket.gaierror, UnicodeError):
        raise BadInput(f"--serve: {address.host!r} is neither an address nor a name that leads to one") from None
    except OSError as error:
        helps = WHAT_HELPS.get(error.errno or 0, "choose another address")
        raise MissingSupport(f"--serve: cannot listen on {address}: {error.strerror}; {helps}") from None
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield Address(str(server.server_address[0]), server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve(reports: Iterable[Report], address: Address, per_socket: bool) -> None:
    """Shows each report until there are no more."""
    metrics = Metrics(per_socket)
    with serving(metrics, address) as served:
        print(f"serving metrics on http://{served}/metrics; Ctrl-C ends", flush=True)
        for report in reports:
            metrics.update(report)
