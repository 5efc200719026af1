"""Write the reference of the command line and of `import brobust` as Markdown: DIRECTORY/commands.md and python.md.

    .venv/bin/python scripts/site/reference.py DIRECTORY

The command line's is what `--help` prints, whoever answers: Typer's commands, or the program for operators, which
`brobust` runs for some of its commands. Both list their subcommands below the line "Commands:".
"""

import argparse
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import brobust
from brobust import api, cli, errors
from brobust.dataset import TABLES, Dataset

ROOT = Path(__file__).resolve().parent.parent.parent
HOST_PROGRAM = ROOT / "python/brobust/bin/brobust-host"


def help_of(*words: str) -> str:
    """Return what `brobust` prints for these words and --help, 100 columns wide.

    A fork of this process answers, which has imported the command line: some forty commands would take as many times as
    long to start as to answer. For some the fork becomes the program for operators."""
    ours, its = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(its, 1)  # for the program for operators
        sys.stdout = os.fdopen(its, "w")
        os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
        sys.argv = ["brobust", *words, "--help"]
        try:
            cli.main()
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 0)
    os.close(its)
    with os.fdopen(ours) as said:
        shown = said.read()
    if (status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) != 0:
        raise SystemExit(f"brobust {' '.join(words)} --help: exit status {status}")
    return shown.rstrip()


def subcommands(text: str) -> list[str]:
    """Return the names that a help lists below "Commands:"."""
    listed = re.search(r"^Commands:\n(.*?)(?:^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^  ([a-z][\w-]*)", listed[1], re.MULTILINE) if listed else []


def helps(words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the help of a command, then those of its subcommands."""
    text = help_of(*words)
    yield words, text
    for name in subcommands(text):
        yield from helps((*words, name))


def commands() -> Iterator[str]:
    """Yield the lines of the command line's reference."""
    of_host = subprocess.run([HOST_PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    host = ", ".join(f"`{name}`" for name in subcommands(of_host) if name != "help")
    yield "# Every command\n"
    yield "What `--help` prints. Exit statuses: 0 the command did its work and found nothing wrong; 1 it found"
    yield "something, or no run is ok; 2 bad input or missing support, in one line on standard error; 130 interrupted;"
    yield "70 a mistake in brobust itself.\n"
    yield f"The package for operators, brobust-host, has {host}.\n"
    for words, text in helps(()):
        yield f"{'#' * min(2 + (len(words) > 1), 3)} {' '.join(('brobust', *words))}\n"
        yield f"```text\n{text}\n```\n"


def described(documented: object) -> str:
    """Return a docstring; the pages that it names become links."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", str(inspect.getdoc(documented)))


def function(called: object, name: str) -> str:
    """Return a section about a function: its signature and its docstring."""
    shown = re.sub(r"\bcls, |'|brobust\.(\w+\.)*", "", str(inspect.signature(called)))
    return f"## {name}\n\n```python\n{name}{shown}\n```\n\n{described(called)}\n"


def python() -> Iterator[str]:
    """Yield the lines of the reference of `import brobust`."""
    yield f"# Python\n\n{described(brobust)}\n"
    yield function(brobust.run, "brobust.run")
    yield f"## Result\n\n{described(api.Result)}\n"
    yield "| field | type |\n|---|---|"
    yield "| `run` | `Run` |"
    yield "| `pcap` | `bytes` or `None` |"
    yield from (f"| `{name}` | `pl.DataFrame` |" for name in TABLES)
    yield f"\n{function(Dataset.open, 'brobust.dataset.Dataset.open')}"
    tables = ", ".join(f"`{name}()`" for name in TABLES)
    yield f"A dataset's {tables} are polars frames with the columns of [data.md](data.md).\n"
    yield "## brobust.errors\n"
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, Exception):
            yield f"- **{name}**, a kind of {error.__mro__[1].__name__}: {' '.join(described(error).split())}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, lines in (("commands.md", commands()), ("python.md", python())):
        (directory / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
