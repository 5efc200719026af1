"""What the limits of this process forbid is refused in one line, before anything starts."""

import subprocess
import sys
import threading

import pytest

from brobust import process_limits
from brobust.errors import MissingSupport


@pytest.mark.parametrize(
    ("limit", "call", "said"),
    [
        ("--sigpending=10000", "process_limits.allow_timers(3)", "allowed"),
        ("--sigpending=3", "process_limits.allow_timers(10000)", "ulimit -i: no more than 3 signals may wait, "),
        (
            "--data=400000000",
            "process_limits.allow_polars('one')",
            "ulimit -d: no program may have more than 400 MB of data",
        ),
        (
            "--as=1000000000",
            "process_limits.allow_polars('one')",
            "ulimit -v: no program may have more than 1 GB of add",
        ),
    ],
)
def test_what_a_limit_of_a_process_forbids_is_refused_beforehand(limit: str, call: str, said: str) -> None:
    """Without a timer a kernel sent other packets and said nothing; `brobust plot` with 1 GB of addresses hung."""
    program = f"from brobust import process_limits, errors\ntry:\n    {call}\n    print('allowed')\n"
    program += "except errors.MissingSupport as refused:\n    print(refused)\n"
    done = subprocess.run(["prlimit", limit, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(said), done.stdout


def test_who_may_start_too_few_threads_is_told_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 11, a run was measured and never ended. It is tried once: loops of brobust.run start no threads for it."""
    process_limits.allow_tasks.cache_clear()
    before, start = threading.active_count(), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() - before >= 11:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(MissingSupport, match=r"^no more than 11 threads and .*, and up to 24 are needed; .* ulimit -u"):
        process_limits.allow_tasks(24)
    assert threading.active_count() == before
    process_limits.allow_tasks(11)
    monkeypatch.delattr(threading, "Thread")
    process_limits.allow_tasks(11)
