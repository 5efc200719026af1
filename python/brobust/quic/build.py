"""Build QUIC stacks: each package comes from its registry by the registry's own client, in the versions of our lock
file, and only the program is kept."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from brobust import files
from brobust.errors import MissingSupport
from brobust.host import children
from brobust.host.cache import cache_directory, scratch_beside
from brobust.host.locks import locked_after_others, refuse_foreign_to_root
from brobust.kernels import our_files
from brobust.kernels.toolchain import BuildFailed, check_room
from brobust.quic import PACER, Stack, directory

# What installs each tool, for a refusal.
HOW = {"cargo": "install Rust with rustup (https://rustup.rs)", "go": "install Go (https://go.dev/dl)"}


def check(stack: Stack) -> None:
    """Refuse in one line to build a stack if a tool that this needs is missing."""
    if shutil.which(stack.tool) is None:
        raise MissingSupport(f"quic build {stack.name}: it needs {stack.tool}, which is not here; {HOW[stack.tool]}")
    for program, package in stack.needs.items():
        if shutil.which(program) is None:
            raise MissingSupport(
                f"quic build {stack.name}: it needs {program}, which is not here; apt-get install {package}"
            )


def build(stack: Stack, note: Callable[[str], None], every: float | None = None) -> float:
    """Build a stack, unless it is here and nothing has changed. Return how long that took, s; 0: nothing had. `note`
    is told what is begun, and then how far it is, each time that so many seconds (`every`) have passed."""
    if stack.state == "built":
        return 0
    check(stack)
    kept = directory(stack.name)
    files.make_directory(kept)
    refuse_foreign_to_root(kept, cache_directory())
    began = time.monotonic()
    alone = locked_after_others(
        kept / "lock", lambda holder: note(f"{stack.name}: waiting for {holder}, which builds it")
    )
    with alone, scratch_beside(stack.program) as scratch:
        if stack.state == "built":  # another process was faster
            return 0
        log = kept / "build.log"
        note(f"{stack.name}: building {stack.package} {stack.version} with {stack.tool}; its log is {log}")
        sources = stack.sources
        tree = our_files.copy(sources, scratch / "tree")
        log.unlink(missing_ok=True)
        command, variables, program = _command(stack, tree, scratch / "made")
        variables = {**variables, "TMPDIR": str(scratch)}  # go leaves its directory there when it is interrupted
        if stack.patched:
            command += ["--config", _patch(stack, tree, scratch / "patched", log)]

        def say() -> None:
            """Say for how long it has been built, and what cargo is at; go says nothing."""
            last = log.read_text(errors="replace").strip().rpartition("\n")[2].strip()
            note("; ".join(filter(None, [f"{stack.name}: {time.monotonic() - began:.0f} s so far", last])))

        _run(stack, command, Path("/"), variables, log, say, every)
        about = {"sources": our_files.hash_of(sources), "sha256": hashlib.sha256(program.read_bytes()).hexdigest()}
        program.replace(stack.program)
        files.write(kept / "built.json", json.dumps(about))
    return time.monotonic() - began


def _command(stack: Stack, tree: Path, made: Path) -> tuple[list[str], Mapping[str, str], Path]:
    """Return the command that builds the stack, its environment's own variables, and the program that it makes. Cargo,
    rustup and go obey files in all directories above the one in which they run (.cargo/config.toml names programs,
    go.work other sources), and above a cache in /tmp anybody may put some: so they run in /, and go looks for none."""
    name = f"brobust-{stack.base or stack.name}"
    if stack.tool == "go":
        program = made / name
        command = ["go", "build", "-C", str(tree), "-buildvcs=false", "-trimpath", "-ldflags", "-s -w"]
        return [*command, "-o", str(program), "."], {"GOWORK": "off"}, program
    lock = "--offline" if stack.patched else "--locked"  # what is patched is not in the lock file: nothing else comes
    return (
        ["cargo", "build", "--manifest-path", str(tree / "Cargo.toml"), "--release", lock, *stack.flags],
        {"CARGO_TARGET_DIR": str(made), "RUSTFLAGS": "", **stack.variables},
        made / "release" / name,
    )


def _patch(stack: Stack, tree: Path, patched: Path, log: Path) -> str:
    """Copy the package that the stack's patch changes, as the lock file's hash has it, beside our pacer if the
    patch uses that, apply the patch, and return the setting by which cargo takes the copy."""
    package, version = stack.patched.split()
    target = "x86_64-unknown-linux-gnu"
    command = ["cargo", "metadata", "--manifest-path", str(tree / "Cargo.toml"), "--locked", "--format-version", "1"]
    found = json.loads(_run(stack, [*command, "--filter-platform", target], Path("/"), {}, log))["packages"]
    manifest = next(one["manifest_path"] for one in found if (one["name"], one["version"]) == (package, version))
    shutil.copytree(Path(manifest).parent, patched / package)
    if stack.rules:
        (tree / PACER).rename(patched / PACER)
        about = f'[package]\nname = "{PACER}"\nversion = "0.0.0"\nedition = "2021"\n'
        (patched / PACER / "Cargo.toml").write_text(about)
    # A crate packed on Windows ends its lines with CR LF; the patch is one for the maintainers' tree, which does not.
    for name in re.findall(r"^--- a/(\S+)", (tree / stack.patch).read_text(), re.MULTILINE):
        file = patched / package / name
        if file.exists():  # else the patch makes it
            file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n"))
    _run(stack, ["patch", "-p1", "--batch", "--fuzz=0", "-i", str(tree / stack.patch)], patched / package, {}, log)
    return f'patch.crates-io.{package}.path="{patched / package}"'


def _run(
    stack: Stack, command: list[str], where: Path, variables: Mapping[str, str], log: Path,
    say: Callable[[], None] = lambda: None, every: float | None = None,
) -> str:  # fmt: skip
    """Run a step of a build and return its output; refuse in one line if it fails. The log gets what it says, in
    English: what went wrong is found by its words. Meanwhile `say` is called each `every` seconds."""
    environment = {**os.environ, "LC_ALL": "C", **variables}
    with log.open("a") as errors:
        to_log = command[1] != "metadata"
        with children.group(
            command, cwd=where, env=environment, stdin=subprocess.DEVNULL,
            stdout=errors if to_log else subprocess.PIPE, stderr=errors,
        ) as child:  # fmt: skip
            while True:
                try:
                    said = child.communicate(timeout=every)[0]
                    break
                except subprocess.TimeoutExpired:
                    say()
    if child.returncode != 0:
        check_room(log.read_text(errors="replace"), log.parent)
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["no message"]
        error = next((line for line in lines if re.search(r"\berror\b", line)), lines[-1]).strip()
        raise BuildFailed(f"quic build {stack.name}: {command[0]} failed: {error}; its log is {log}", lines[-15:])
    return said or ""
