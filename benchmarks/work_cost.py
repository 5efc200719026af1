#!/usr/bin/env python3
"""Measure on this host what a server's work costs, for the fields of [programs] that let it take time:

    .venv/bin/python benchmarks/work_cost.py --repeat 5 > work.toml

- `sent_byte_ns`, `received_byte_ns`: encryption and decryption of records of 16 KiB by this Python's OpenSSL, without
  sockets; Python's own part of a call is in it.
- `accept_time`: the server's part of a full handshake, with a certificate of ECDSA on P-256 that `openssl` makes.
- `call_time`: the mean of write(), epoll_wait() and read() of one byte through a pair of sockets, by a C program.

It is the CPU time of one thread, not the time that passes; median of the repeats, the smallest and the largest. A busy
host makes CPU time longer, too, since threads share caches and cores: keep it quiet. What is printed is a table for a
scenario's file, with its source.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from brobust.host import machine

RECORD = bytes(16384)
RECORDS = 2000
HANDSHAKES = 100
CALLS = 300_000
LOOP = r"""
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct timespec used;
    int ends[2], queue = epoll_create1(0);
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || epoll_ctl(queue, EPOLL_CTL_ADD, ends[1], &event))
        return 1;
    for (int i = 0; i < CALLS / 3; i++)
        if (write(ends[0], &byte, 1) != 1 || epoll_wait(queue, &event, 1, -1) != 1 || read(ends[1], &byte, 1) != 1)
            return 1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    printf("%.1f\n", (used.tv_sec * 1e9 + used.tv_nsec) / CALLS);
    return 0;
}
"""


class Connection:
    """Two ends of TLS in this process, and the CPU time that the server's end has taken, ns."""

    def __init__(self, of_server: ssl.SSLContext, of_client: ssl.SSLContext):
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = of_server.wrap_bio(up, down, server_side=True)
        self.client = of_client.wrap_bio(down, up)
        self.used = 0
        ends = [lambda: self.client.do_handshake(), lambda: self.by_server(self.server.do_handshake)]
        while ends:
            ends = [shake for shake in ends if not _done(shake)]

    def by_server(self, call: Callable[[], object]) -> object:
        before = time.thread_time_ns()
        try:
            return call()
        finally:
            self.used += time.thread_time_ns() - before

    def byte_ns(self, *, sent: bool) -> float:
        """Return the server's CPU time of each byte that it sends or receives, ns."""
        before = self.used
        for _ in range(RECORDS):
            if sent:
                self.by_server(lambda: self.server.write(RECORD))
                self.client.read(len(RECORD))
            else:
                self.client.write(RECORD)
                self.by_server(lambda: self.server.read(len(RECORD)))
        return (self.used - before) / RECORDS / len(RECORD)


def _done(call: Callable[[], object]) -> bool:
    try:
        call()
    except ssl.SSLWantReadError:
        return False
    return True


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what server and client use: a certificate of the server's own, which the client does not check."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-days", "1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificate, key)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


def accept_ns(given: tuple[ssl.SSLContext, ssl.SSLContext]) -> float:
    return sum(Connection(*given).used for _ in range(HANDSHAKES)) / HANDSHAKES


def loop_of_calls(directory: Path) -> Callable[[], float]:
    """Return what measures the CPU time of a system call, ns."""
    program = directory / "calls"
    subprocess.run(
        ["cc", "-O2", f"-DCALLS={CALLS}", "-x", "c", "-", "-o", str(program)], input=LOOP, text=True, check=True
    )
    return lambda: float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, choices=range(1, 101), metavar="N", help="1 to 100; 5")
    repeat = parser.parse_args().repeat
    if missing := [program for program in ("openssl", "cc") if shutil.which(program) is None]:
        sys.exit(f"work_cost.py: {' and '.join(missing)} not found in PATH; install openssl and gcc")
    with tempfile.TemporaryDirectory() as scratch:
        both = contexts(Path(scratch))
        calls = loop_of_calls(Path(scratch))
        cipher, version, _ = Connection(*both).server.cipher() or ("?", "?", 0)
        measured: dict[str, list[float]] = {"sent": [], "received": [], "accept": [], "call": []}
        for _ in range(repeat):
            measured["sent"].append(Connection(*both).byte_ns(sent=True))
            measured["received"].append(Connection(*both).byte_ns(sent=False))
            measured["accept"].append(accept_ns(both))
            measured["call"].append(calls())

    def shown(name: str) -> tuple[float, str]:
        values = measured[name]
        return statistics.median(values), f"{min(values):.3g} to {max(values):.3g} ns"

    command = f"benchmarks/work_cost.py --repeat {repeat}"
    print(
        f"# {command}, {datetime.now(UTC):%d %B %Y}: {machine.cpu()}, Linux {platform.release()}, {ssl.OPENSSL_VERSION}"
    )
    print(f"# CPU time of a thread; median of n = {repeat}, and the smallest and the largest\n[programs]")
    for name, key in (("sent", "sent_byte_ns"), ("received", "received_byte_ns")):
        value, of_all = shown(name)
        print(f"{key} = {value:.3g}  # {version} {cipher}, records of 16 KiB: {of_all}")
    value, of_all = shown("accept")
    print(f'accept_time = "{value:.0f}ns"  # the server\'s part of a full handshake, ECDSA on P-256: {of_all}')
    value, of_all = shown("call")
    note = "" if value >= 100 else "; the smallest that a scenario takes"
    print(f'call_time = "{max(value, 100):.0f}ns"  # write, epoll_wait, read of a byte: {of_all}{note}')


if __name__ == "__main__":
    main()
