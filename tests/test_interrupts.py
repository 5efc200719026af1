"""Ctrl-C, SIGTERM and SIGHUP end a command once, where Python does not lose the exception.

interrupts.py of commit bc74388 shot at whole commands at random moments.
"""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from brobust.host import children
from conftest import eventually, have_ended

BEGIN = """
import signal, threading, time, weakref
from brobust import interrupts
interrupts.catch()
def shoot(number=signal.SIGINT): signal.raise_signal(number)
"""
WAIT = """
try:
    code()
    time.sleep(20)
    print("lost")
except KeyboardInterrupt:
    print("ended")
"""
CODE = {
    "anywhere": "def code(): shoot()",
    "SIGTERM": "def code(): shoot(signal.SIGTERM)",
    "SIGHUP": "def code(): shoot(signal.SIGHUP)",
    "in __del__": """
        class Some:
            def __del__(self):
                shoot()
                print("whole")
        def code(): Some()
        """,
    "in a weak reference's callback": """
        class Some: pass
        def code():
            some = Some()
            kept = weakref.ref(some, lambda _: shoot())
            del some
            print("whole")
        """,
    "in an import": """
        def code():
            import shot
            print("whole")
        """,
    "in what polars calls": """
        import polars
        table = polars.DataFrame(schema={"time": polars.Datetime("us")})
        def code():
            begin = polars.Datetime.__init__
            def begin_and_shoot(*given):
                begin(*given)
                shoot()
            polars.Datetime.__init__ = begin_and_shoot
            table.dtypes
            print("whole")
        """,
    "in what pydantic calls": """
        from typing import Annotated
        from pydantic import BaseModel, PlainSerializer
        class Some(BaseModel): value: Annotated[int, PlainSerializer(lambda value: shoot())]
        some = Some(value=1)
        def code():
            some.model_dump()
            print("whole")
        """,
    "where it is caught and forgotten": """
        def code():
            try: shoot()
            except BaseException: print("whole")
        """,
    "where a lock has been taken": """
        class Lock:
            held = False
            def acquire(self): raise AssertionError
            def release(self): raise AssertionError
            def __enter__(self): self.held = True; shoot()
            def __exit__(self, *_): self.held = False
        lock = Lock()
        def code():
            with threading.Condition(lock): pass
            print("whole" if not lock.held else "held for ever")
        """,
    "in what must be finished first": """
        @interrupts.finished_first
        def work(): shoot(); print("whole")
        def code(): work()
        """,
}


def _said(tmp_path: Path, code: str) -> str:
    (tmp_path / "shot.py").write_text("import __main__\n__main__.shoot()\ndone = True\n")
    program = BEGIN + textwrap.dedent(code) + "\ninterrupts.release()\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@pytest.mark.parametrize("where", CODE)
def test_an_interrupt_is_never_lost(tmp_path: Path, where: str) -> None:
    whole = "" if where in ("anywhere", "SIGTERM", "SIGHUP") else "whole\n"
    later = "interrupts.AGAIN_SECONDS = 0.5\n"  # on a busy machine the next attempt would come within print()
    assert _said(tmp_path, later + textwrap.dedent(CODE[where]) + WAIT) == whole + "ended\n"


def test_a_second_one_does_not_disturb_the_clean_up(tmp_path: Path) -> None:
    code = """
    try:
        shoot()
    except KeyboardInterrupt:
        for _ in range(20):
            shoot(signal.SIGTERM)
            time.sleep(0.01)
        print("clean")
    """
    assert _said(tmp_path, code) == "clean\n"


@pytest.mark.parametrize(("error", "status"), [("Interrupted", 130), ("MissingSupport", 2)])
def test_who_was_told_of_it_is_not_told_again_by_what_comes_after(error: str, status: int) -> None:
    script = BEGIN + textwrap.dedent(f"""
        from brobust import cli, errors
        def app(**_):
            try: shoot()
            except KeyboardInterrupt: raise errors.{error}("something is not undone") from None
        cli.app = app
        cli.output.end = lambda: time.sleep(0.3)  # a slow machine, where the exception is forgotten long before the end
        cli.main([])
        """)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (status, "brobust: something is not undone\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGHUP"])
def test_what_nohup_or_a_shell_in_the_background_ignores_stays_ignored(tmp_path: Path, number: str) -> None:
    code = f"""
    signal.signal(signal.{number}, signal.SIG_IGN)
    interrupts.catch()
    shoot(signal.{number})
    print("goes on")
    """
    assert _said(tmp_path, code) == "goes on\n"


def test_before_the_command_line_is_imported_ctrl_c_ends_it_without_a_traceback() -> None:
    program = "import signal\nimport brobust.__main__\nsignal.raise_signal(signal.SIGINT)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_what_comes_when_python_becomes_the_program_for_operators_ends_that() -> None:
    program = (
        "import signal\nfrom brobust import interrupts\nfrom brobust.host import programs\ninterrupts.catch()\n"
        "hold = interrupts.hold_for_exec\n"
        "def and_shoot():\n    hold()\n    signal.raise_signal(signal.SIGTERM)\n"
        "interrupts.hold_for_exec = and_shoot\n"
        "programs.become_host_program(['watch', '--json', '--count', '100'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")


def test_a_program_ends_with_all_that_it_has_started() -> None:
    shell = ["sh", "-c", "sleep 1000 & echo started; wait"]
    with pytest.raises(KeyboardInterrupt), children.group(shell, stdout=subprocess.PIPE) as leader:
        assert leader.stdout is not None and leader.stdout.readline() == "started\n"
        (sleeping,) = psutil.Process(leader.pid).children()
        raise KeyboardInterrupt
    assert leader.returncode == -signal.SIGTERM
    assert eventually(lambda: have_ended([sleeping]))
