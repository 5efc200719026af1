"""Shared fixtures. Tests that need root or VMs say so by their marker and are skipped elsewhere with the reason."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import forked
from brobust import cli
from brobust.host import locks

BROBUST = Path(sys.executable).parent / "brobust"

# Few inputs, the same each time; HYPOTHESIS_PROFILE=deep: many, others each time. No deadline: machines are busy.
EVERY = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("quick", max_examples=30, derandomize=True, **EVERY)  # type: ignore[arg-type]
settings.register_profile("deep", max_examples=2000, **EVERY)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Whoever starts the tests in the background of a shell has them, and all that they start, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("vm"):
            item.add_marker(pytest.mark.root)
            if shutil.which("qemu-system-x86_64") is None:
                item.add_marker(pytest.mark.skip(reason="qemu-system-x86_64 is not installed"))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(autouse=True)
def alone_on_the_host(request: pytest.FixtureRequest) -> Iterator[None]:
    """One test at a time of those that are marked `host`, among all workers and all checkouts: they change, or want
    for themselves, what a host has only one of."""
    if request.node.get_closest_marker("host") is None or os.geteuid() != 0:
        yield
        return
    with locks.locked(locks.private_directory(Path("/run/brobust-tests")) / "lock", seconds=280):
        yield


@pytest.fixture
def brobust(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command, run in a directory of the test's own; with other options of subprocess.run the installed one."""

    def call(*arguments: str, cwd: Path = tmp_path, **options: Any) -> subprocess.CompletedProcess[str]:
        if not options:
            return forked.run(arguments, cwd, timeout=280)
        return subprocess.run([BROBUST, *arguments], cwd=cwd, capture_output=True, text=True, timeout=280, **options)

    return call


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which the command refuses, and exit status 2. In this process: a command of its own takes a
    second to start."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    line = capsys.readouterr().err
    assert ended.value.code == 2 and line.count("\n") == 1, line
    return line


def eventually(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Whether it comes true; the time is only for a machine on which it does not."""
    patience = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > patience:
            return False
        time.sleep(0.02)
    return True
