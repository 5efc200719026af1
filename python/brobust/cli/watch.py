"""The command `brobust watch`: which sockets of this host are short of CPU.

The program for operators does the work (crates/command). On a terminal its sweeps are shown here, as a table.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from brobust.cli.lazy import HostCommand
from brobust.errors import CutShort, MissingSupport, printable
from brobust.host.programs import host_program
from brobust.watch import Sweep

NO_TABLE = ("--json", "--once", "--serve", "--explain", "--help", "-h")
"""The options whose output is no table."""


class Watch(HostCommand):
    """`brobust watch`: a table on a terminal, and what the program for operators writes anywhere else."""

    def call(self, arguments: Sequence[str]) -> None:
        if not _is_for_a_table(arguments):
            super().call(arguments)
        with _program(arguments) as (process, errors):
            from brobust.watch import view  # imports textual, which takes half a second: only for a terminal

            sweeps = _read(process, errors)
            if process.poll():  # it has refused the arguments meanwhile: there is no table to show
                list(sweeps)
            view.follow(sweeps)


watch = Watch("watch")


def _is_for_a_table(arguments: Sequence[str]) -> bool:
    # The view reads keys from standard input, and textual draws on standard error.
    are_terminals = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    has_other_output = any(argument.split("=")[0] in NO_TABLE for argument in arguments)
    return are_terminals and os.environ.get("TERM", "dumb") != "dumb" and not has_other_output


class _LastLines:
    """The last lines of a stream, which is read all the time: a program stands still once a pipe is full."""

    def __init__(self, stream: Iterable[str] | None):
        self._lines: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._lines.extend, args=(stream or (),), daemon=True)
        self._reader.start()

    def at_its_end(self) -> str:
        """Return the lines, once the stream has ended."""
        self._reader.join()
        return "".join(self._lines).strip()


@contextmanager
def _program(arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], _LastLines]]:
    """Let the program for operators sweep while the context lasts."""
    command = [host_program(), "watch", *arguments, "--json"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        errors = _LastLines(process.stderr)
        try:
            yield process, errors
        finally:
            process.terminate()  # the view may end before the sweeps do
            errors.at_its_end()  # else the stream would be closed while a thread reads it


def _harmless(value: Any) -> Any:
    """Escape what a terminal would act on: cgroups, pods and network namespaces are named by others."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _harmless(part) for key, part in value.items()}
    return [_harmless(part) for part in value] if isinstance(value, list) else value


def _read(process: subprocess.Popen[str], errors: _LastLines) -> Iterator[Sweep]:
    """Yield each sweep that the program writes. Raise its refusal if it ends with one."""
    assert process.stdout is not None
    for line in process.stdout:
        yield _harmless(json.loads(line))
    said, status = errors.at_its_end(), process.wait()
    if status == 130:
        raise KeyboardInterrupt
    if status in (1, 2):
        refusal = MissingSupport(said.removeprefix("brobust: "))
        refusal.exit_status = status  # 1: what --record writes can be written no longer
        raise refusal
    if status < 0:
        raise CutShort(f"brobust-host was killed by {signal.Signals(-status).name}", "look for the reason (dmesg)")
    if status != 0:
        raise RuntimeError(f"brobust-host ended with status {status}: {said}")
