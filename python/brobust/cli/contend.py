"""`brobust contend` is a command of the program for operators (crates/command/src/contend)."""

from __future__ import annotations

from brobust.cli.lazy import HostCommand

command = HostCommand(
    "contend", "Take the CPU away from the vCPU threads of any VM on this host, and say what they really got."
)
