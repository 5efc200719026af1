#!/usr/bin/env python3
"""Compare the model of work that takes time (`[programs]`, docs/programs.md) with a server in a real VM:

    sudo .venv/bin/python benchmarks/work_in_vm.py --out DIR

nginx sends pages of 100 kB over TLS to visitors who come at random times, two a second in the mean for 15 s, each with
a new connection and a full handshake (RSA of 3072 bits, so that it takes several timeslices). The path has 20 Mbit/s,
10 ms and four BDP. What a connection and what a byte cost the server is calibrated in the VM with all of its CPU: the
CPU time of the whole guest for pages of one byte and of 1 MB, the least of three times. The rest is predicted: the same
programs in virtual time, with the off-times that the VM's vCPU had, with these costs and without. What a connection
costs the visitor, which virtual time does not model, is calibrated, too, and added to both; its decryption is not,
since it decrypts while more arrives. A run whose vCPU or whose machine was disturbed is repeated, at most --tries
times.

costs.csv      What was calibrated, ns.
requests.csv   Of each cell: the median time from when a page was due until all of it was there, ms, over the requests
               of all runs; in the VM (and in the run with the lowest and the highest), and in virtual time without and
               with the costs.
distance.csv   The median of |ln(virtual time / VM)| over the cells with less than all of the CPU, of which nothing was
               calibrated, without and with the costs.

It needs nginx-light, openssl and `brobust quic build pages`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

import brobust
from brobust import quic
from brobust.backends.vm import ADDRESSES, VmBackend
from brobust.contention import during_run
from brobust.errors import BrobustError
from brobust.host.programs import find_program
from brobust.host.session import Session
from brobust.scenario.grid import scenario
from brobust.testbed import qemu
from brobust.testbed.testbed import Testbed

KERNEL = "debian-6.12"
CCS, SHARES = ("cubic", "bbr"), (1, 0.5, 0.25)
PATH = {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"}
TIMESLICE = "10ms"
PAGES = {"page": 100_000, "small": 1, "large": 1_000_000}  # bytes
CALIBRATIONS = 3
RATE, SECONDS, PATIENCE_S = 2, 15, 5
CONFIGURATION = Path(__file__).parents[1] / "examples" / "nginx-tls.conf"
FILES = ("nginx-tls.conf", "cert.pem", "key.pem")


def visitors(address: str, page: str = "page") -> str:
    """Return the command of the visitors, which prints a line of JSON for each request."""
    when = f"-rate {RATE} -for {SECONDS} -patience {PATIENCE_S}"
    return f"brobust-pages -protocol 1 -objects 1 {when} https://{address}:5201/{page}"


def prepare(directory: Path) -> None:
    shutil.copy(CONFIGURATION, directory)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:3072", "-nodes", "-subj", "/CN=x", "-days", "30",
         "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip
    (directory / "page").write_bytes(bytes(PAGES["page"]))


class Vm:
    """The guests: nginx listens in the sender, and the path's guest has the visitors."""

    def __init__(self, session: Session, testbed: Testbed, directory: Path):
        self._session, self._testbed = session, testbed
        agent = testbed.sender.agent
        for name in FILES:
            text = base64.b64encode((directory / name).read_bytes()).decode()
            agent.run("bash", "-c", f"busybox base64 -d <<<{text} >/{name}")
        for name, size in PAGES.items():
            agent.run("bash", "-c", f"busybox head -c {size} /dev/zero >/{name}")
        agent.run("bash", "-c", "echo root:x:0: >/etc/group")
        agent.run("ip", "link", "set", "lo", "up")
        nginx = agent.spawn("nginx", "-c", f"/{CONFIGURATION.name}")
        listens = (
            "for _ in {1..100}; do [ $(ss -Hltn 'sport = :5201' | wc -l) -ge 1 ] && exit; sleep 0.05; done; exit 1"
        )
        if agent.try_run("bash", "-c", listens).status != 0:
            agent.kill(nginx)
            sys.exit(f"work_in_vm.py: nginx does not listen: {agent.wait(nginx, 10).stderr}")

    def costs(self) -> dict[str, float]:
        """Return what a connection and a byte cost the server, and a connection the visitor, ns of CPU time."""
        self._testbed.reset(scenario({"path": PATH}).path)
        self._testbed.place(during_run.plan(scenario({}).contention))
        self._testbed.keep_busy(False)
        used: dict[str, tuple[float, float]] = {}
        for page in ("small", "large") * CALIBRATIONS:
            before = self._busy_s()
            times, of_visitor = self._visited(page)
            found = (self._busy_s() - before) / len(times), of_visitor / len(times)
            # Whatever disturbs makes CPU time longer.
            used[page] = min(found[0], used.get(page, found)[0]), min(found[1], used.get(page, found)[1])
        server, visitor = used["small"]
        byte = (used["large"][0] - server) / PAGES["large"]
        return {"server_connection": server * 1e9, "server_byte": byte * 1e9, "visitor_connection": visitor * 1e9}

    def requests(self, cc: str, share: float, seed: int) -> tuple[list[float], list[dict[str, Any]], str | None]:
        """Return the times of the requests of a run, ms, the vCPU's off-times, and why the run says nothing; None if
        it does."""
        s = scenario({"backend": "vm", "path": PATH, "flows": [{"cc": cc}],
                      "contention": {"share": share, "timeslice": TIMESLICE, "driver": "deadline"}})  # fmt: skip
        testbed = self._testbed
        testbed.load(cc, record_calls=False)
        testbed.sender.agent.run("bash", "-c", f"echo {cc} >/proc/sys/net/ipv4/tcp_congestion_control")
        testbed.reset(s.path)
        plan = during_run.plan(s.contention)
        testbed.place(plan)
        testbed.keep_busy(True)
        threads = testbed.sender.vcpu_threads, testbed.path.vcpu_threads[0]
        with during_run.applied(s.contention, *threads, plan, self._session, seed, qemu.NICE) as got:
            got.note_begin()
            times, _ = self._visited("page")
        return times, got.rows("vm"), got.columns()["reason"]

    def _visited(self, page: str) -> tuple[list[float], float]:
        """Return the times of the requests, ms, and the CPU time of the visitors, s."""
        timed = f"{visitors(ADDRESSES['sender'], page)}; status=$?; times; exit $status"
        said = self._testbed.path.agent.run("bash", "-c", timed, timeout=60).splitlines()
        # The last line is of what bash waited for: user and system.
        clocks = re.findall(r"(\d+)m([\d.]+)s", said[-1])
        asked = [json.loads(line)["request"] for line in said if line.startswith("{")]
        return (
            [request["completion_ms"] or math.inf for request in asked],
            sum(int(minutes) * 60 + float(seconds) for minutes, seconds in clocks),
        )

    def _busy_s(self) -> float:
        clocks = self._testbed.sender.agent.run("cat", "/proc/stat").split()[1:8]
        user, nice, system, _, _, irq, softirq = map(int, clocks)
        return (user + nice + system + irq + softirq) / 100


def in_virtual_time(
    directory: Path, cc: str, seed: int, offtimes: list[dict[str, Any]], costs: dict[str, float]
) -> list[float]:
    """Return the times of the requests, ms, with the same off-times."""
    contention: dict[str, Any] = {}
    if offtimes:
        recording = directory / "offtimes.csv"
        pl.DataFrame(offtimes).filter(kind="off").select("start_s", "duration_ms").write_csv(recording)
        contention = {"contention": {"replay": str(recording)}}
    work = {"sent_byte_ns": round(costs["server_byte"], 3), "accept_time": f"{costs['server_connection']:.0f}ns"}
    run = {
        "path": PATH, "flows": [{"cc": cc}], "duration": f"{SECONDS + PATIENCE_S}s", **contention,
        "programs": {"sender": f"nginx -c /{CONFIGURATION.name}", "receiver": visitors("{sender}"),
                     "waits": "sender", "files": [*FILES, "page"], **work},
    }  # fmt: skip
    with contextlib.chdir(directory):  # files that are named without it are in the programs' root
        asked = brobust.run(run, repeat=seed).table("requests")
    return [math.inf if time is None else time for time in asked["completion_ms"]]


def compared(directory: Path, repeat: int, tries: int) -> tuple[dict[str, float], pl.DataFrame]:
    """Return the costs, and a row of each cell."""
    prepare(directory)
    cells: dict[tuple[str, float], list[tuple[list[float], list[dict[str, Any]]]]] = {}
    with Session.start() as session, VmBackend(session, lambda line: print(line, file=sys.stderr)) as backend:
        pages = quic.find("pages").program
        backend.bring({"nginx": find_program("nginx", "nginx-light"), "brobust-pages": pages})
        backend.ask_sender("ls", "/bin/nginx", kernel=KERNEL)
        vm = Vm(session, backend.testbed, directory)
        costs = vm.costs()
        print(costs, file=sys.stderr)
        for number in range(repeat):
            for cc in CCS:
                for share in SHARES:
                    for _ in range(tries):
                        times, offtimes, reason = vm.requests(cc, share, number)
                        if reason is None:
                            cells.setdefault((cc, share), []).append((times, offtimes))
                            break
                        print(f"{cc} at {share:.0%}: {reason}", file=sys.stderr)
    of_visitor = costs["visitor_connection"] / 1e6
    rows = []
    for (cc, share), measured in cells.items():
        medians = [statistics.median(times) for times, _ in measured]
        in_vm = [time for times, _ in measured for time in times]
        row = {"cc": cc, "share": share, "n": len(measured), "requests": len(in_vm), "vm": statistics.median(in_vm),
               "vm_low": min(medians), "vm_high": max(medians)}  # fmt: skip
        for name, of_model in (("without", dict.fromkeys(costs, 0.0)), ("with", costs)):
            virtual = [
                time
                for seed, (_, offtimes) in enumerate(measured)
                for time in in_virtual_time(directory, cc, seed, offtimes, of_model)
            ]
            row[name] = statistics.median(virtual) + of_visitor
        rows.append({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})
        print(rows[-1], file=sys.stderr)
    return costs, pl.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="Where the tables are written.")
    parser.add_argument("--repeat", type=int, default=5, help="Runs of each cell.")
    parser.add_argument("--tries", type=int, default=4, help="How often a run is measured at most.")
    given = parser.parse_args()
    if missing := [name for name in ("nginx", "openssl") if shutil.which(name) is None]:
        sys.exit(f"work_in_vm.py: {' and '.join(missing)} not found in PATH; install nginx-light and openssl")
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            costs, cells = compared(Path(scratch), given.repeat, given.tries)
    except BrobustError as error:
        sys.exit(f"work_in_vm.py: {error}")
    pl.DataFrame([{name: round(value, 1) for name, value in costs.items()}]).write_csv(given.out / "costs.csv")
    cells.write_csv(given.out / "requests.csv")
    contended = cells.filter(pl.col("share") < 1).to_dicts()
    distances = {
        name: statistics.median(abs(math.log(row[name] / row["vm"])) for row in contended)
        for name in ("without", "with")
    }
    pl.DataFrame([{"costs": name, "distance": round(far, 3)} for name, far in distances.items()]).write_csv(
        given.out / "distance.csv"
    )


if __name__ == "__main__":
    main()
