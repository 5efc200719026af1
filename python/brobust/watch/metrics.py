"""Serve the latest sweep as Prometheus metrics (`brobust watch --serve`). docs/watch.md lists the metrics.

Sweeps go on whether anybody scrapes them or not: a cause is found from the samples of a whole window, and sweeping only
when Prometheus asks, every 15 s, would leave no samples in it.
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
from brobust.watch import CAUSES, Flow, Sweep

MAX_CONTROLS = 16
"""This many congestion controls, those with the most sockets, have their own time series; the others count as OTHER."""
OTHER = "other"

MAX_CONNECTIONS = 32
"""This many connections may be open at a time. Anybody may connect, so the number bounds what connections can cost."""
MAX_CONNECTION_SECONDS = 10.0

BITS_PER_MEGABIT = 1e6

HOST = {
    "steal_share": (
        "brobust_host_steal_ratio", "Part of all CPUs' time since the last sweep in which the hypervisor ran others",
    ),
    "late_share": (
        "brobust_host_late_wakes_ratio", "Part of a high-priority thread's wake-ups that were more than 2 ms late",
    ),
    "busiest_share": (
        "brobust_host_busiest_cpu_ratio", "Part of the busiest CPU's time since the last sweep in which it worked",
    ),
    "pressure_share": (
        "brobust_host_cpu_pressure_ratio", "Part of the last 10 s in which some task waited for a CPU (PSI)",
    ),
}  # fmt: skip
"""The fields of a sweep's `host`, and the metric that shows each."""

WHAT_HELPS = {
    errno.EADDRINUSE: "another program listens there (ss -ltnp names it); choose another port",
    errno.EACCES: "ports below 1024 need CAP_NET_BIND_SERVICE; choose another port",
    errno.EADDRNOTAVAIL: "this host does not have that address",
}


class Address(NamedTuple):
    """The address and port at which metrics are served."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `127.0.0.1:9775`, `[::1]:9775` or `localhost:9775`. With port 0 the kernel chooses a free port."""
        match = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]+)):(\d{1,5})", text)
        if match is None or int(match[3]) > 65535:
            raise BadInput(
                f"--serve: {text!r} is not an address with a port; write 127.0.0.1:9775 or [::1]:9775, "
                "or 0.0.0.0:9775 for all addresses of this host, where anybody who can reach one can read the metrics"
            )
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Metrics(Collector):
    """The latest sweep, and counters over all sweeps since the start."""

    def __init__(self, per_socket: bool) -> None:
        self._per_socket = per_socket
        self._lock = threading.Lock()
        self._latest: Sweep | None = None
        self._cpu_s = 0.0
        self._interrupted = 0

    def update(self, sweep: Sweep) -> None:
        """Make this the latest sweep, and add to the counters."""
        with self._lock:
            self._latest = sweep
            self._cpu_s += sweep["cpu_ms"] / 1e3
            self._interrupted += sweep["interrupted"]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for one scrape. Each scrape has its own thread."""
        with self._lock:
            sweep, cpu_s, interrupted = self._latest, self._cpu_s, self._interrupted
        yield InfoMetricFamily("brobust_build", "The version of brobust that watches", {"version": __version__})
        yield CounterMetricFamily("brobust_sweeps", "Sweeps over all sockets", sweep["sweep"] if sweep else 0)
        yield CounterMetricFamily(
            "brobust_sweep_cpu_seconds", "CPU time of all sweeps, including the kernel's part", cpu_s
        )
        yield CounterMetricFamily(
            "brobust_dumps_interrupted",
            "Dumps that were inconsistent at every attempt, so that sockets may be missing",
            interrupted,
        )
        if sweep is None:
            return
        yield GaugeMetricFamily("brobust_sweep_seconds", "How long the latest sweep took", sweep["took_ms"] / 1e3)
        unread_host = sweep["unread_host"]
        unread = len(sweep["unread"]) - sweep["interrupted"] - unread_host
        yield GaugeMetricFamily("brobust_unread_namespaces", "Network namespaces that could not be read", unread)
        yield GaugeMetricFamily("brobust_unread_host_files", "Files on CPU load that could not be read", unread_host)
        for field, (name, meaning) in HOST.items():
            if sweep["host"][field] is not None:
                yield GaugeMetricFamily(name, meaning, sweep["host"][field])
        yield from _sockets(sweep)
        if self._per_socket:
            yield from _top_sockets(sweep["flows"])


def _sockets(sweep: Sweep) -> Iterator[Metric]:
    """Yield the number of sockets by control and cause, and the distributions of their rates and of in flight / BDP."""
    number = GaugeMetricFamily("brobust_sockets", "TCP sockets", labels=("cc", "cause"))
    # These are gauge histograms, not histograms: a bucket holds the sockets that exist now and may become empty again;
    # counters would count a socket once per sweep. So histogram_quantile() takes them directly, without rate().
    rate = GaugeHistogramMetricFamily(
        "brobust_socket_rate_bits_per_second", "Rate of acknowledged data over the window", labels=("cc", "cause")
    )
    inflight = GaugeHistogramMetricFamily(
        "brobust_socket_inflight_bdp",
        "Data in flight divided by the bandwidth-delay product, for sockets with an estimate",
        labels=("cc", "cause"),
    )
    bounds = sweep["bounds"]
    for group, lines in _groups(sweep["counts"]).items():
        number.add_metric(group, sum(line["sockets"] for line in lines))
        for family, field, scale in ((rate, "rate_mbps", BITS_PER_MEGABIT), (inflight, "inflight_bdp", 1.0)):
            spread = [line[field] for line in lines]
            total = sum(each["sum"] for each in spread) * scale
            family.add_metric(group, _buckets(bounds[field], [each["counts"] for each in spread], scale), total)
    yield from (number, rate, inflight)


def _groups(counts: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the lines of a sweep's `counts` by control and cause.

    A control that has sockets gets an entry for every cause, so that a time series does not end with its last socket.
    """
    sockets: Counter[str] = Counter()
    for line in counts:
        sockets[line["cc"]] += line["sockets"]
    by_number = sorted(sockets, key=lambda cc: (-sockets[cc], cc))
    shown = {cc: cc if place < MAX_CONTROLS else OTHER for place, cc in enumerate(by_number)}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {(cc, cause): [] for cc in shown.values() for cause in CAUSES}
    for line in counts:
        groups[shown[line["cc"]], line["cause"]].append(line)
    return groups


def _buckets(bounds: Sequence[float], spreads: list[list[int]], scale: float) -> list[tuple[str, float]]:
    """Return the sum of several distributions as (upper bound, cumulative count), which is Prometheus' form."""
    numbers = [sum(bucket) for bucket in zip(*spreads, strict=True)] or [0] * (len(bounds) + 1)
    names = [*(floatToGoString(bound * scale) for bound in bounds), "+Inf"]  # type: ignore[no-untyped-call]
    return list(zip(names, accumulate(numbers), strict=True))


def _top_sockets(flows: Iterable[Flow]) -> Iterator[Metric]:
    labels = ("local", "remote", "interface", "netns", "cc", "cause")
    for name, meaning, field, scale in (
        ("rate_bits_per_second", "Rate of acknowledged data over the window", "rate_mbps", BITS_PER_MEGABIT),
        ("inflight_bdp", "Data in flight divided by the BDP, median of the window", "inflight_bdp", 1.0),
        ("deficit_ratio", "Part of the samples able to send with less than 1 BDP in flight", "deficit_share", 1.0),
    ):
        family = GaugeMetricFamily(f"brobust_top_socket_{name}", f"{meaning}; for the --top sockets", labels=labels)
        for flow in flows:
            if flow[field] is not None:
                family.add_metric([str(flow[label] or "") for label in labels], flow[field] * scale)
        yield family


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Write no log of the requests."""


class _Server(ThreadingWSGIServer):
    """A server that answers each connection in its own thread. Their number is bounded: if it is reached, a new
    connection replaces the oldest.

    So connections that ask for nothing, or never read, cost no more than Prometheus does, and do not keep it out.
    """

    request_queue_size = 128

    def __init__(self, address: Address) -> None:
        family, *_, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._slots = threading.Semaphore(MAX_CONNECTIONS)
        self._lock = threading.Lock()
        self._since: dict[Any, float] = {}  # when each connection began, oldest first
        super().__init__(place, _Handler)  # type: ignore[arg-type]  # an IPv6 address has four parts

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self._end_those_before(time.monotonic(), at_most=1)
            if not self._slots.acquire(timeout=1.0):  # the oldest connection's thread ends as soon as it runs
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
        """End connections that have been open for too long. serve_forever() calls this at least every half second."""
        self._end_those_before(time.monotonic() - MAX_CONNECTION_SECONDS)

    def _end_those_before(self, then: float, at_most: int = MAX_CONNECTIONS) -> None:
        with self._lock:
            ended = [request for request, since in self._since.items() if since < then][:at_most]
            for request in ended:
                del self._since[request]
                with suppress(OSError):  # this wakes the thread that waits to read from it or to write to it
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # the other end has gone
            super().handle_error(request, client_address)


@contextmanager
def serving(metrics: Metrics, address: Address) -> Iterator[Address]:
    """Answer Prometheus while the context lasts; yield the address, with the port that the kernel chose for 0."""
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector("brobust", registry=registry)  # CPU time and memory of this process: what watching costs
    try:
        server = _Server(address)
    except (socket.gaierror, UnicodeError):
        raise BadInput(f"--serve: {address.host!r} is neither an address nor a host name that has one") from None
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


def serve(sweeps: Iterable[Sweep], address: Address, per_socket: bool) -> None:
    """Serve the sweeps, one after the other, until there are no more."""
    metrics = Metrics(per_socket)
    with serving(metrics, address) as served:
        print(f"serving metrics on http://{served}/metrics; stop it with Ctrl-C", flush=True)
        for sweep in sweeps:
            metrics.update(sweep)
