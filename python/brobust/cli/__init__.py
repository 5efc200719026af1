"""The command line: one file per command. A refusal is one line on stderr and exit status 2, never a traceback.

Exit statuses: 0 the command did its work and found nothing wrong; 1 it found something, no run is ok, or what it found
cannot be written (a full disk); 2 bad input or missing support; 70 a mistake in brobust (EX_SOFTWARE in sysexits.h;
BROBUST_DEBUG=1 shows the traceback); 130 interrupted.

A command's file is imported when the command is called, and imports polars, rich and the like only in the functions
that use them, so `brobust --help` answers at once.
"""

import errno
import io
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from brobust import SCHEMA_VERSION, interrupts
from brobust.cli import output
from brobust.cli.lazy import HostCommand, Later, group_of
from brobust.errors import BadInput, BrobustError, Remark, debugging, one_line, printable, shortened
from brobust.files import why_not_written

SHOW_WARNING = warnings.showwarning
INTERRUPTED = 130

# What pydantic says of a value of an option, as a user would say it.
_IN_OUR_WORDS = {
    "int_parsing": "give a whole number", "float_parsing": "give a number",
    "less_than_equal": "give {le:g} or less", "greater_than_equal": "give {ge:g} or more",
}  # fmt: skip

# The line of each command in `brobust --help`, which is the first paragraph of its own help.
COMMANDS = {
    "run": "Measure throughput under CPU contention.",
    "plot": "Draw throughput against the CPU share, or another axis that varies, as PNG, as SVG and in the terminal.",
    "trace": "Write a run, or what was recorded on a host, as a timeline for ui.perfetto.dev.",
    "explain": "Say in about five sentences, with numbers, what limits a flow of a run.",
    "explore": "Open a page with sliders for share, timeslice, bandwidth, RTT, buffer and loss; each move is a real "
    "run.",
    "demo": "Take the CPU away from senders of cubic, bbr and bbr_steady, and draw what is left of their throughput.",
    "sweep": "Measure all cells of a study's grids, repeated and shuffled. Runs that the dataset holds are not "
    "repeated.",
    "reproduce": "Measure a paper's figures again, or a study of your own, draw them, decide the claims, and write an "
    "HTML report.",
    "compare": "Compare the throughput of two datasets cell by cell; exit with status 1 if a cell is worse in B.",
    "report": "Write a reproduction as one self-contained HTML file: claims, verdicts and what decides them, figures.",
    "doctor": "Say what this machine can do, and how to get what it lacks; exit with status 2 if it cannot run VMs.",
    "validate": "Measure the same cells in real time and in virtual time, and say how well they agree (about 5 "
    "minutes).",
    "watch": "Follow all TCP sockets of this host and say what limits each: CPU, network, windows or application.",
    "contend": "Take the CPU away from the vCPU threads of any VM on this host, and say what they really got.",
    "docs": "Open this documentation in a browser, or say where it is.",
    "kernel": "Build and list kernels for virtual time; repair BBR in a kernel tree.",
    "quic": "Build and list QUIC stacks, which send and receive in virtual time.",
    "cc": "List congestion controls, load ours into the running kernel, unload them, and verify them.",
}


def _command(name: str, line: str) -> TyperCommand:
    if name == "contend":
        return HostCommand(name, line)
    return Later(name, line, file="sweep" if name == "reproduce" else name)


app = typer.Typer(
    name="brobust",
    cls=group_of([_command(name, line) for name, line in COMMANDS.items()]),
    help="Measure, explain, detect and repair TCP BBR's collapse when the sender's CPU is taken away.\n\n"
    "Begin with `brobust demo --backend virtual`, which takes ten seconds. `brobust COMMAND --help` says more of a "
    "command, and `brobust docs` opens the documentation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich takes longer than everything else that the help needs
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(requested: bool) -> None:
    if requested:
        from brobust import __version__, _core
        from brobust.kernels import virtual

        kernels = [f"{kernel.name} (Linux {kernel.release})" for kernel in virtual.available()]
        typer.echo(f"brobust {__version__}")
        typer.echo(f"virtual kernels: {', '.join(kernels) or 'none'}")
        typer.echo(f"dataset schema: {SCHEMA_VERSION}")
        typer.echo(f"BPF controls: {', '.join(name for name, _ in _core.controls())}")
        raise typer.Exit


@app.callback()
def _global(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the versions of brobust, its virtual kernels and its datasets, and its BPF controls.",
        callback=_version,
        is_eager=True,
    ),
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    warnings.showwarning = _warn
    warnings.filterwarnings("default", category=Remark)  # whatever PYTHONWARNINGS says of warnings of code
    output.open_closed_streams()
    for stream in (sys.stdout, sys.stderr):  # because a file name need not be UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_words(sys.argv[1:] if arguments is None else arguments)
        status = app(args=arguments, standalone_mode=False)
        if status == INTERRUPTED:  # typer makes it of Ctrl-C without a word
            _refuse("interrupted", INTERRUPTED)
        output.flush()
    except BrobustError as error:
        with suppress(OSError):
            for line in error.last_lines:
                print(f"  {printable(line)}", file=sys.stderr)
        status = _refuse(str(error), error.exit_status)
    except TyperException as error:
        status = _refuse(_said(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        status = _refuse("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of the pipe has closed it, as `head` does
        status = 0
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        status = 0  # typer has made it of a pipe that is closed
    except GeneratorExit:
        raise
    except BaseException as error:  # not Exception: a panic of Rust code is not one
        if debugging():
            raise
        if isinstance(error, OSError) and error.errno == errno.EIO and error.filename is None:  # the terminal is gone
            status = _refuse("interrupted", INTERRUPTED)
        elif isinstance(error, MemoryError):
            status = _refuse("no memory is left for this; end other programs, or raise ulimit -v", 2)
        else:
            status = _refuse_system(error) if isinstance(error, OSError) else _refuse(one_line(error), 70)
    output.end()
    sys.exit(status if isinstance(status, int) else 0)


def _check_words(words: Sequence[str]) -> None:
    """Refuse an empty word, such as a shell makes of "$DIR" without a value: as a path it would be this directory."""
    for before, word in zip(["", *words], words, strict=False):
        if word == "" or re.fullmatch(r"--[a-z-]+=", word):
            of = word.removesuffix("=") or (before if before.startswith("-") else "an argument")
            raise BadInput(f"{of}: '' is empty; give a value, or leave it out")


def _said(error: TyperException) -> str:
    """Return what typer says of the words. Where pydantic, which converts values for it, refuses one, it names the
    option and what is allowed, and leaves out what was given."""
    said, context = error.format_message(), getattr(error, "ctx", None)
    of_pydantic = getattr(error.__cause__, "errors", None)
    says_no_more = said.endswith(".")  # else it says which command was meant
    if says_no_more and context is not None and said.startswith(("No such command", "Missing argument")):
        return f"{said[:-1]}; `{context.command_path} --help` says what there is"
    if of_pydantic is None:
        return said
    (first, *_) = of_pydantic()
    if first["type"] == "value_error":
        return said.replace("Value error, ", "")
    allowed = _IN_OUR_WORDS.get(first["type"], "").format(**first.get("ctx", {}))
    said = said.replace(first["msg"], allowed) if allowed else said
    return f"{said} (given: {first['input']})"


def _refuse(sentence: str, status: int) -> int:
    if status:  # the command ends by this; with 0 it goes on
        interrupts.end_quietly()
    with suppress(OSError):  # where nobody can be told, there is the exit status
        line = printable(" ".join(shortened(sentence).split()))  # which writes some letters as several
        print(f"brobust: {shortened(line)}", file=sys.stderr)
    return status


def _refuse_system(error: OSError) -> int:
    failed = why_not_written(error)
    if failed is not None and error.filename is None and error.errno != errno.EMFILE:
        failed = output.failed(error)  # what writes files says which one it was
    return _refuse(one_line(error), 2) if failed is None else _refuse(str(failed), failed.exit_status)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, Remark):
        _refuse(str(message), 0)
    else:
        SHOW_WARNING(printable(str(message)), category, *where, **more)  # matplotlib names a letter that no font has
