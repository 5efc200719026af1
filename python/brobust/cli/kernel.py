"""The command `brobust kernel`: build and list kernels for virtual time; repair BBR in a kernel tree."""

from __future__ import annotations

import json
import shutil
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brobust.cli import kernel_patch, output
from brobust.cli.lazy import group
from brobust.errors import BadInput, Interrupted
from brobust.kernels import build as building
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.sources import Order, why_default
from brobust.kernels.toolchain import Progress

if TYPE_CHECKING:
    from brobust.report.console import Console

app = group("Build and list kernels for virtual time; repair BBR in a kernel tree.")


@app.command("build")
def build(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help=f"The kernel, such as virtual-6.12 or virtual-6.1. [default: {virtual_kernels.DEFAULT}]",
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Build a copy of this Linux tree instead of Debian's source.")
    ] = None,
    own_name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="With --source: the kernel's name. [default: virtual-VERSION]"),
    ] = None,
    hz: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Timer interrupts per second: 100, 250, 300 or 1000. [default: 250]", show_default=False
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Build even if nothing changed, and use the newest source package.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
    keep_tree: Annotated[
        bool | None,
        typer.Option(
            "--keep-tree/--no-keep-tree",
            help="Keep the build tree (700 MB): after a change in cc/ the next build then takes seconds. "
            "[default: as in the previous build]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Build a kernel for virtual time from Debian's source or from your own tree. This does not need root.

    Examples:
      brobust kernel build virtual-6.1
      brobust kernel build --source ~/linux --name virtual-mine
      brobust run --kernel virtual-mine
    """
    from brobust.report.console import Console

    order = _order(name, source, own_name, hz)
    why = why_default(order) if name is None and source is None else None
    with _ProgressBar(Console(stderr=True), order.name) as progress:
        if why is not None:
            progress.note(why)
        try:
            built = building.build(order, progress, force=force, keep_tree=keep_tree)
        except KeyboardInterrupt:
            root = virtual_kernels.cache_root()
            raise Interrupted(f"interrupted; the next build removes what is half built below {root}") from None
    kernel = built.kernel
    if as_json:
        print(json.dumps({**virtual_kernels.summary(kernel), "cached": built.cached}))
        return
    how = "nothing changed" if built.cached else f"built in {built.seconds:.0f} s"
    print(f"{kernel.name}: Linux {kernel.release}, HZ={kernel.hz}, {how}: {kernel.path}")


def _order(name: str | None, source: Path | None, own_name: str | None, hz: int | None) -> Order:
    if source is None:
        if own_name is not None:
            raise BadInput(f"--name: {own_name!r} needs --source DIR; Debian's kernels have fixed names")
        return Order.of_default(hz) if name is None else Order.of_debian(name, hz)
    if name is not None and own_name is not None and name != own_name:
        raise BadInput(f"--name: {own_name!r} contradicts {name!r}; leave one of them out")
    return Order.of_tree(source, own_name or name, hz)


@app.command("list")
def listed(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per kernel.")] = False) -> None:
    """List the virtual kernels that are built, and the congestion controls of each."""
    built = virtual_kernels.available()
    if as_json:
        for kernel in built:
            print(json.dumps(virtual_kernels.summary(kernel)))
        return
    if not built:
        print(
            f"no kernel is built yet; `{virtual_kernels.build_command(virtual_kernels.DEFAULT)}` builds one "
            f"(about {virtual_kernels.MINUTES} minutes)"
        )
        return
    print(render(built, shutil.get_terminal_size().columns))


app.command("patch")(kernel_patch.patch)


def render(built: list[virtual_kernels.VirtualKernel], width: int) -> str:
    """Return a paragraph for each kernel, in which no name of a congestion control is broken."""
    paragraphs = []
    for kernel in built:
        facts = [
            f"Linux {kernel.release}", f"HZ={kernel.hz}", f"{kernel.path.stat().st_size / 1e6:.1f} MB",
            f"sha256 {kernel.sha256[:8]}", "stale" if kernel.stale else kernel.where,
        ]  # fmt: skip
        controls = " ".join(
            f"{name} (version {version})" if (version := kernel.bbr_versions.get(name, 1)) > 1 else name
            for name in sorted(kernel.congestion_controls)
        )
        lines = [kernel.name, _wrapped(", ".join(facts), width), _wrapped(controls, width)]
        if kernel.stale:  # the command stays on one line, so that it can be copied
            lines.append(f"    `{kernel.build_command}` rebuilds it with the current kernel/virtual")
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def _wrapped(text: str, width: int) -> str:
    indent = " " * 4
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


class _ProgressBar(Progress):
    """Progress of a build: a bar with the phase on a terminal; in a pipe a line per phase, and one each minute."""

    def __init__(self, console: Console, name: str):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console
        self._name = name
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, disable=not console.is_interactive, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(name, total=None)
        self._phase, self._said = "", 0.0

    def __enter__(self) -> _ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def phase(self, text: str) -> None:
        if self._console.is_interactive:
            self._bar.reset(self._task, description=f"{self._name}: {text}", total=None)
        else:
            self._phase, self._said = text, time.monotonic()
            self.note(text)

    def count(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
        now = time.monotonic()
        if not self._console.is_interactive and now - self._said >= output.SAY_SECONDS and done < total:
            self._said = now
            self.note(f"{self._phase}: {done / total:.0%}")

    def note(self, text: str) -> None:
        self._console.print(f"{self._name}: {text}", soft_wrap=True, highlight=False)
