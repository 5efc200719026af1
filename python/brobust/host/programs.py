"""Find programs of this host."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import brobust
from brobust import interrupts
from brobust.errors import MissingSupport, last_line


def host_program() -> Path:
    """Return the path of brobust-host, the program for operators (crates/command), which this package brings."""
    path = Path(brobust.__file__).parent / "bin" / "brobust-host"
    if not path.is_file():
        raise MissingSupport(f"{path} is missing; run `make setup`, or install brobust again")
    return path


def become_host_program(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by brobust-host with these arguments: `brobust watch` is the same wherever it came from."""
    program = host_program()
    interrupts.hold_for_exec()
    os.execv(program, ["brobust", *arguments])


def ask_host_program(*arguments: str) -> list[dict[str, Any]]:
    """Return what a command of brobust-host answers with --json, an object per line. Raise MissingSupport with its
    refusal."""
    done = subprocess.run([host_program(), *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingSupport(last_line(done.stderr, "brobust-host was killed"))
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_program(name: str, package: str) -> Path:
    """Return the path of a program, or name the package that has it."""
    found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        raise MissingSupport(f"{name} is not installed; run `make setup` or `apt-get install {package}`")
    return Path(found).resolve()
