"""The command line: one file per command. A refusal is one line on stderr and exit status 2, never a traceback.

Exit statuses: 0 done and nothing found, 1 found something, 2 bad input or missing support, 70 a mistake in brobust (the
EX_SOFTWARE of sysexits.h; BROBUST_DEBUG=1 shows the traceback), 130 interrupted.
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
from brobust.cli import cc, compare, contend, demo, doctor, kernel, plot, report, run, sweep, validate, watch
from brobust.errors import BrobustError, UnreadableFile, debugging, printable, said

SHOW_WARNING = warnings.showwarning

app = typer.Typer(
    name="brobust",
    help="Measure, explain, detect and repair TCP BBR's collapse when the sender's CPU is taken away.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # panels in the help; brackets in it are brackets
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("plot")(plot.plot)
app.command("demo")(demo.demo)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(sweep.reproduce)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.command("validate")(validate.command)
app.command("watch")(watch.watch)
app.add_typer(contend.app, name="contend")
app.add_typer(kernel.app, name="kernel")
app.add_typer(cc.app, name="cc")


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
    if issubclass(category, UnreadableFile):
        _refuse(str(message), 0)
    else:
        SHOW_WARNING(message, category, *where, **more)
