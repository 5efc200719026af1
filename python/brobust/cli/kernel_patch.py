"""The command `brobust kernel patch`: add a repair of BBR to a kernel tree."""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.utils import format_datetime, localtime
from pathlib import Path
from typing import Annotated

import typer

from brobust import files
from brobust.errors import BadInput, MissingSupport, printable
from brobust.kernel_patch import apply as patching
from brobust.kernel_patch import compiling, series
from brobust.kernel_patch.apply import Change
from brobust.kernel_patch.compiling import Compiled
from brobust.kernel_patch.repairs import KEPT, ROBUST
from brobust.kernel_patch.series import Patch
from brobust.kernels import vm as vm_kernels
from brobust.units import show_count


def patch(
    tree: Annotated[
        Path, typer.Argument(metavar="TREE", help="Linux source with BBR version 1 (mainline), or google's 2 or 3.")
    ],
    repair: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="robust changes BBR alone (2BRobust; versions 1, 2, 3); kept is a series for the stack, fq and BBR, "
            "off by default.",
        ),
    ] = "robust",
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether the repair would apply; change nothing.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print a unified diff; do not change the tree.")] = False,
    format_patch: Annotated[
        bool, typer.Option("--format-patch", help="Print a patch with a message, for `git am`; do not change the tree.")
    ] = False,
    cover_letter: Annotated[
        bool,
        typer.Option(
            "--cover-letter",
            help="With --repair kept --format-patch: begin with a cover letter; `git am --empty=drop` skips it.",
        ),
    ] = False,
    kdir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Compile with these headers or this prepared tree, or for debian-6.12 or debian-6.1. [default: TREE]",
        ),
    ] = None,
    module: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also link the module, and write tcp_bbr.ko into DIR.")
    ] = None,
    guest: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --kdir debian-…: also write a guest kernel for the vm backend, with the module, into DIR.",
        ),
    ] = None,
) -> None:
    """Repair BBR in a kernel tree (docs/for-kernel.md), compile what changed, and explain the change.

    Examples:
      brobust kernel patch ~/linux --check
      brobust kernel patch ~/linux --diff >robust.patch
      brobust kernel patch ~/linux --repair kept
    """
    _check_options(check, diff, format_patch, module, guest, kdir)
    if repair not in (ROBUST, KEPT):
        raise BadInput(f"--repair: {repair!r} is not a repair; give {ROBUST} or {KEPT}")
    is_series = repair == KEPT
    if cover_letter and not (is_series and format_patch):
        raise BadInput(f"--cover-letter goes before a series of patches; give it with --repair {KEPT} --format-patch")
    if (module or guest) and is_series:
        raise BadInput(f"--repair {repair} changes the kernel itself, not a module; leave out --module and --guest")
    patches = series.plan(tree) if is_series else []
    changes = series.together(tree, patches) if is_series else patching.plan(tree)
    todo = [change for change in changes if not change.repaired_already]
    show = diff or format_patch
    sentence, compiled, kernels = "", None, None
    if not check and (module or guest or (todo and not show)):
        headers = compiling.headers_for(tree, kdir)
        if isinstance(headers, str):
            if module or guest:
                raise MissingSupport(f"--{'module' if module else 'guest'}: {headers}")
            sentence = f"not compiled: {headers}"
        else:
            with _modules(module, guest) as directory, _refusing():
                wanted = changes if directory else todo
                compiled = compiling.compile_changes(tree, wanted, headers, directory, built_in=is_series)
                if guest is not None:
                    bbr = [file for file in compiled.modules if file.stem == "tcp_bbr"]
                    kernels = f"{kdir},{vm_kernels.with_modules(vm_kernels.find(kdir or ''), bbr, guest).name}"
    if show:
        _show(tree, todo, format_patch, patches, cover_letter)
    elif not check:
        patching.write(tree, series.marks_last(changes) if is_series else changes)
    _print(changes, check, show, sentence, compiled, kernels)


def _check_options(
    check: bool, diff: bool, format_patch: bool, module: Path | None, guest: Path | None, kdir: str | None
) -> None:
    if check + diff + format_patch > 1:
        raise BadInput("--check, --diff and --format-patch exclude each other; give one of them")
    if check and (module or guest):
        raise BadInput("--check changes and builds nothing; leave out --module and --guest")
    if kdir is not None and (check or diff or format_patch) and not (module or guest):
        raise BadInput("--kdir: nothing is compiled here, so it has no use; leave it out")
    if guest is not None and not (kdir or "").startswith("debian-"):
        raise BadInput("--guest adds the module to one of Debian's guest kernels; name it with --kdir debian-6.12")


@contextmanager
def _modules(module: Path | None, guest: Path | None) -> Iterator[Path | None]:
    """Yield the directory for modules: none, or the user's, or a temporary one if only the guest kernel needs them."""
    if module is not None or guest is None:
        yield module
        return
    with files.temporary_directory() as scratch:
        yield scratch


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn a disk's error into a refusal."""
    try:
        with files.writing_to(Path(tempfile.gettempdir())):
            yield
    except OSError as error:
        raise MissingSupport(f"the module cannot be built: {error}") from None


def _show(tree: Path, todo: Sequence[Change], mailed: bool, patches: Sequence[Patch], cover_letter: bool) -> None:
    """Print the changes: as a diff, or `mailed`, as patches with their messages, perhaps after a cover letter."""
    if not todo:
        return
    if mailed:
        author, date = patching.author(tree), format_datetime(localtime())
        text = series.mails(patches, author, date) if patches else patching.mail(todo, author, date)
        if cover_letter:
            text = series.cover_letter(patches, author, date) + text
    else:
        text = "".join(change.diff for change in todo)
    if sys.stdout.isatty():  # a tree may be a stranger's; in a file or a pipe is what `patch` takes
        text = "".join(letter if letter in "\n\t" else printable(letter) for letter in text)
    sys.stdout.buffer.write(text.encode(errors="surrogateescape"))


def _print(
    changes: Sequence[Change], check: bool, show: bool, sentence: str, compiled: Compiled | None, kernels: str | None
) -> None:
    from brobust.report.console import Console

    # A diff on standard output may be piped into another program, so everything else goes to stderr then.
    write = Console(stderr=show, soft_wrap=True, highlight=False).print
    for change in changes:
        what = f"{change.name} ({change.what})"
        if change.repaired_already:
            write(f"{what}: already repaired, nothing to do")
        elif check:
            added = show_count(change.count("+"), "line")
            write(f"{what}: the repair applies, {added} added, {change.count('-')} removed")
        elif not show:
            write(f"{what}: repaired\n{change.stat}")
            for line in change.explanation:
                write(f"  {line}")
    if sentence:
        write(sentence)
    if compiled is not None:
        warned = f", {show_count(len(compiled.warnings), 'warning') if compiled.warnings else 'no warnings'}"
        write(
            f"compiled {', '.join(compiled.objects)} for Linux {compiled.release} in {compiled.seconds:.0f} s{warned}"
        )
        for line in compiled.warnings:
            write(f"  {line}")
        for file in compiled.modules if kernels is None else []:
            write(f"{file}: unsigned{'' if compiled.has_btf else ', and without BTF: BPF programs cannot call it'}")
    if kernels is not None:
        write(f"to measure it: brobust run --backend vm --cc bbr --kernel {kernels}")
