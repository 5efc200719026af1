"""The command line: one file per command. A refusal is one line on stderr and exit status 2, never a traceback.

Exit statuses: 0 done and nothing found, 1 found something or measured no run that is ok, 2 bad input or missing
support, 70 a mistake in brobust (the EX_SOFTWARE of sysexits.h; BROBUST_DEBUG=1 shows the traceback), 130 interrupted.

The file of a command is imported when that command is called, and imports polars, rich and the like only where it uses
them: `brobust --help` answers at once.
"""

from __future__ import annotations

import io
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

import brobust
from brobust.cli.lazy import group_of
from brobust.errors import BrobustError, UnreadableFile, debugging, printable, said

SHOW_WARNING = warnings.showwarning

# Where each command is, and the line that says what it does: the first one of its own help.
COMMANDS = {
    "run": ("brobust.cli.run:run", "Measure throughput under CPU contention."),
    "plot": (
        "brobust.cli.plot:plot",
        "Draw throughput against CPU share (or what else varies) as PNG and SVG, and in the terminal.",
    ),
    "demo": (
        "brobust.cli.demo:demo",
        "Take the CPU away from a sender of cubic, bbr, bbr_robust, and draw what is left of its throughput.",
    ),
    "sweep": (
        "brobust.cli.sweep:sweep",
        "Measure what a study asks for: every cell of its grids, repeated and shuffled. What is there already stays.",
    ),
    "reproduce": (
        "brobust.cli.sweep:reproduce",
        "Measure a paper's figures again, draw them, decide its claims, and write all that as one HTML file.",
    ),
    "compare": (
        "brobust.cli.compare:compare",
        "Compare the throughput of two datasets cell by cell; exit status 1 if one is worse in B.",
    ),
    "report": (
        "brobust.cli.report:report",
        "Write what was reproduced as one self-contained HTML file: figures beside claims and verdicts.",
    ),
    "doctor": (
        "brobust.cli.doctor:doctor",
        "Say what this machine can do, line by line, each with its remedy. Exit status 2 if VMs cannot be run.",
    ),
    "validate": (
        "brobust.cli.validate:command",
        "Measure the same cells on real VMs and in virtual time, and say how far they agree (about 5 minutes).",
    ),
    "watch": (
        "brobust.cli.watch:command",
        "Follow all TCP sockets of this host and say what limits each: CPU, network, windows or application.",
    ),
    "contend": (
        "brobust.cli.contend:app",
        "Take the CPU away from the vCPU threads of any VM on this host, and say what they really got.",
    ),
    "kernel": (
        "brobust.cli.kernel:app",
        "Build and list the kernels of the backend `virtual`; repair BBR in a kernel tree.",
    ),
    "cc": (
        "brobust.cli.cc:app",
        "Congestion controls: list them, load ours into the running kernel, take them out.",
    ),
}  # fmt: skip

app = typer.Typer(
    name="brobust",
    cls=group_of(COMMANDS),
    help="Measure, explain, detect and repair TCP BBR's collapse when the sender's CPU is taken away.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than all else that the help needs
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(brobust.__version__)
        raise typer.Exit


@app.callback()
def _global(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the `brobust` command."""
    # SIGTERM, and the end of an ssh session, end a run as Ctrl-C does: guests, namespaces and contention must not stay.
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # under nohup it goes on
        signal.signal(signal.SIGHUP, _interrupt)
    warnings.showwarning = _warn
    for stream in (sys.stdout, sys.stderr):  # a file name need not be UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = app(args=arguments, standalone_mode=False)
    except BrobustError as error:
        status = _refuse(str(error), error.exit_status)
    except TyperException as error:
        status = _refuse(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        status = _refuse("interrupted", 130)
    except BrokenPipeError:  # the reader of a pipe has had enough
        sys.stderr.close()
        status = 0
    except (SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of Rust code is no Exception
        if debugging():
            raise
        status = _refuse(said(error), 2 if isinstance(error, OSError) else 70)
    sys.exit(status if isinstance(status, int) else 0)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _refuse(sentence: str, status: int) -> int:
    print(f"brobust: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    return status


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, (UnreadableFile, FutureWarning)):
        _refuse(str(message), 0)
    else:
        SHOW_WARNING(message, category, *where, **more)
