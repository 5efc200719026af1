"""Commands as processes of their own that need not start: forks of one process which has imported all that they import.

What a command imports takes a second, and the tests give hundreds.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# None of these modules has started a thread that a fork would lose: polars starts its own when it first computes.
IMPORTED = [
    "brobust.backends.virtual", "brobust.backends.vm", "brobust.backends.doctor", "brobust.cli.cc",
    "brobust.cli.compare", "brobust.cli.kernel", "brobust.cli.measuring", "brobust.cli.run", "brobust.cli.sweep",
    "brobust.contention.during_run", "brobust.analysis.claims", "forked", "pytest", "rich.live",
    "typer._adapters",
]  # fmt: skip

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(IMPORTED)


def run(arguments: Sequence[str], directory: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run the command as subprocess.run() would, and return its output."""
    with tempfile.TemporaryDirectory() as said:
        given = (list(arguments), str(directory), dict(os.environ), said)
        process = _FORKS.Process(target=_command, args=given)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(arguments), timeout)
        texts = [(Path(said) / name).read_text() for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess(list(arguments), process.exitcode, *texts)


def _command(arguments: list[str], directory: str, environment: dict[str, str], said: str) -> None:
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        with (Path(said) / name).open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["brobust", *arguments]

    from brobust.__main__ import main

    main()
