"""The commands of iperf3 as programs in virtual kernels (traffic = "iperf3"), as a check on our own source and sink."""

import subprocess
from functools import cache

from brobust.host import programs

# 0.1 s is iperf3's shortest interval. Each flow has its own server, which ends with its client.
SENDER = "-c {receiver} -p {port} --cport {sender_port} -C {cc} -t {seconds} -J -i 0.1"
RECEIVER = "-s -1 -J -i 0.1 -p {port}"
# The time that iperf3 may need beyond the run's duration, to connect and to exchange results: as in the testbed. ns.
LINGER = 45_000_000_000


def commands(ip_version: int) -> tuple[str, str]:
    program = programs.find_program("iperf3", "iperf3")
    return f"{program} -{ip_version} {SENDER}", f"{program} -{ip_version} {RECEIVER}"


@cache
def version() -> str:
    """Return iperf3's version, such as `3.12`."""
    program = programs.find_program("iperf3", "iperf3")
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
