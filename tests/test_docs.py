"""The documentation names files that exist: every relative link, its anchor, and every path in backticks."""

import functools
import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from brobust.cli import app
from brobust.cli.lazy import HostCommand
from brobust.host.programs import host_program

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "benchmarks").glob("*.md")],
    key=lambda page: page.relative_to(ROOT).as_posix(),
)
# What begins like this in backticks or after a space is a path of the repository.
ROOMS = ("python", "crates", "cc", "kernel", "docs", "tests", "benchmarks", "scripts", "packaging", "examples")
# Placeholders, and what a build leaves there.
NOT_OURS = {"cc/controls/NAME.c", "python/brobust/kernels/bin"}
# Sources of the Linux kernel, which we have no copy of.
LINUX = ("net/", "drivers/", "tcp_", "arch/um/brobust")
SOURCE = r"[\w./-]+\.(?:rs|py|pyi|c|h|cocci|patch|sh)"


def _prose(page: Path) -> str:
    """Return the page without its blocks of code, which name files that a reader is to write."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def _links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def _paths(page: Path) -> Iterator[str]:
    rooms = "|".join(ROOMS)
    for path in re.findall(rf"(?<![\w/~.-])(?:{rooms})/[\w./*{{}},-]*", _prose(page)):
        yield path.rstrip(".,/")


def _sources(page: Path) -> Iterator[str]:
    """Yield the source files in backticks that need not begin with one of our rooms: `steady.h`, `src/lib.rs`."""
    for path in re.findall(rf"`({SOURCE})`", _prose(page)):
        if not path.startswith((*ROOMS, *LINUX, "/", "~", ".")):
            yield path


@functools.cache
def _files() -> tuple[str, ...]:
    return tuple(path.as_posix() for room in ROOMS for path in (ROOT / room).rglob("*"))


def _missing_source(path: str) -> bool:
    """A file of that name, in any room; with a directory before it, in that place of the repository."""
    return not ((ROOT / path).exists() if "/" in path else any(file.endswith(f"/{path}") for file in _files()))


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def _missing_link(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return True
    return bool(anchor) and anchor not in map(_anchor, re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE))


def _missing_path(path: str) -> bool:
    if path in NOT_OURS or any(path.startswith(f"{known}/") for known in NOT_OURS):
        return False
    alternatives = re.fullmatch(r"(.*)\{(.*)\}(.*)", path)
    if alternatives:
        before, middle, after = alternatives.groups()
        return any(_missing_path(f"{before}{part}{after}") for part in middle.split(","))
    return not (list(ROOT.glob(path)) if "*" in path else (ROOT / path).exists())


def test_the_pages_are_found() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "architecture.md", "glossary.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_files_that_exist(page: Path) -> None:
    links = [target for target in _links(page) if _missing_link(page, target)]
    paths = [path for path in _paths(page) if _missing_path(path)]
    sources = [path for path in _sources(page) if _missing_source(path)]
    assert (links, paths, sources) == ([], [], [])


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("[a](gone.md)", ["gone.md"]),
        ("[a](here.md#no-such-heading) and [b](here.md#a-heading-2)", ["here.md#no-such-heading"]),
        ("`cc/gone.h`, cc/cc.h and /usr/cc/other.h", ["cc/gone.h"]),
        ("`crates/{virtual,gone}/src` and python/brobust/*.py", ["crates/{virtual,gone}/src"]),
        ("`src/gone.rs`, `gone.h`, `cc.h`, `net/ipv4/tcp_bbr.c`", ["src/gone.rs", "gone.h"]),
        ("[a](https://example.org/docs/gone.md)", []),
    ],
)
def test_a_file_that_is_missing_is_found(tmp_path: Path, text: str, missing: list[str]) -> None:
    (tmp_path / "here.md").write_text("## A heading 2\n")
    page = tmp_path / "page.md"
    page.write_text(text)
    found = [target for target in _links(page) if _missing_link(page, target)]
    found += [path for path in _paths(page) if _missing_path(path)]
    found += [path for path in _sources(page) if _missing_source(path)]
    assert found == missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_number_that_is_made_of_data_begins_no_line(page: Path) -> None:
    """A line that begins with a comment is HTML: nothing on it is set, and it ends the paragraph."""
    assert re.findall(r"^ *<!-- made: [a-z0-9-]+ -->.+", page.read_text(), re.MULTILINE) == []


def test_every_page_is_listed_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES if ROOT / "docs" in page.parents]
    assert [page for page in pages if f"]({page})" not in readme] == []


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `brobust` of every command that a page shows: in backticks, or on a line of a block."""
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    for shown in [*(" ".join(span.split()) for span in spans), *lines]:
        if found := re.match(r"\s*(?:sudo )?(?:\.venv/bin/)?brobust ([a-z].*)", re.split(r"[|#&\\]|\s\[", shown)[0]):
            yield found[1].split()


def _unknown(words: list[str]) -> str | None:
    """Return the first command or option that brobust does not have, or None."""
    command: Any = get_command(app)
    context = command.make_context("brobust", ["doctor"], resilient_parsing=True)
    for word in words:
        command = command.imported() if hasattr(command, "imported") else command
        if isinstance(command, HostCommand):
            return _unknown_to_program(words)
        if word.startswith("--"):
            parameters = command.get_params(context)
            if word.partition("=")[0] not in {
                name for known in parameters for name in known.opts + known.secondary_opts
            }:
                return word
        elif hasattr(command, "list_commands"):
            if word in command.list_commands(context):
                command = command.get_command(context, word)
            elif not command.invoke_without_command:
                return word
    return None


def _unknown_to_program(words: list[str]) -> str | None:
    """The same for a command of the program for operators."""
    commands = tuple(itertools.takewhile(lambda word: not word.startswith("-"), words))
    if (said := _help(commands)) is None:
        return " ".join(commands)
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    return next((option for option in options if not re.search(rf"{option}\b", said)), None)


@functools.cache
def _help(commands: tuple[str, ...]) -> str | None:
    asked = subprocess.run([host_program(), *commands, "--help"], capture_output=True, text=True)
    return asked.stdout if asked.returncode == 0 else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_commands_and_options_that_exist(page: Path) -> None:
    assert [(unknown, " ".join(words)) for words in _commands(page.read_text()) if (unknown := _unknown(words))] == []


def test_a_command_that_is_gone_is_found() -> None:
    text = "`brobust ru --cc bbr` and\n\n    sudo brobust run --cc bbr --sharee 1   # --gone\n    brobust cc list\n"
    text += "    brobust watch --jason\n    brobust watch --json --top 5\n"
    assert [_unknown(words) for words in _commands(text)] == ["ru", "--sharee", None, "--jason", None]
