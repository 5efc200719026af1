"""What a user meets who errs: one clear line, exit status 2, nothing left behind."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Brobust = Callable[..., subprocess.CompletedProcess[str]]


def _refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("brobust: ")
    for word in words:
        assert word in line


@pytest.mark.root
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cc", "reno2"], ["cc", "'reno2'", "bbr_robust"]),
        (["--share", "0"], ["share", "greater than 0"]),
        (["--share", "1.2"], ["share", "1.2"]),
        (["--timeslice", "3s", "--share", "0.5"], ["period", "SCHED_DEADLINE"]),
        (["--driver", "burner", "--share", "0.01"], ["sched_rt_runtime_us"]),
        (["--kernel", "debian-2.4"], ["'debian-2.4'", "available"]),
        (["--bandwidth", "20"], ["bandwidth", "no unit", "20mbit"]),
        (["--cc", "bbr,,cubic"], ["--cc", "empty element"]),
        (["--repeat", "x"], ["--repeat"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["nowhere.toml"], ["nowhere.toml", "cannot be read"]),
        (["--resume"], ["--resume", "no dataset"]),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    brobust: Brobust, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    _refused(brobust("run", *arguments), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_without_root_the_vm_backend_says_what_it_needs(tmp_path: Path) -> None:
    # The same code as the command, as user nobody: the checkout itself may not be readable for that user.
    code = (
        "import os, sys\n"
        "from brobust.cli import main\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "main(['run', '--out', '/tmp/never'])\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    _refused(done, "needs root", "sudo")


def test_a_scenario_file_that_is_not_toml_is_refused(brobust: Brobust, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("not = = toml")
    _refused(brobust("run", "s.toml"), "s.toml", "not a TOML file")


def test_plot_of_something_else_is_refused(brobust: Brobust, tmp_path: Path) -> None:
    _refused(brobust("plot", str(tmp_path)), "holds no dataset")


def test_clean_finds_nothing_on_a_clean_host(brobust: Brobust, tmp_path: Path) -> None:
    done = brobust("doctor", "--clean", "--dry-run", env={**os.environ, "BROBUST_RUNTIME": str(tmp_path / "run")})
    assert (done.returncode, done.stdout) == (0, "nothing left behind\n")


def test_help_names_every_option_of_a_run(brobust: Brobust) -> None:
    said = brobust("run", "--help").stdout
    for option in (
        "cc", "bandwidth", "rtt", "buffer", "loss", "share", "timeslice", "driver", "flows", "duration", "repeat",
        "seed", "kernel", "backend", "out", "json", "resume", "start", "accelerator", "samples",
    ):  # fmt: skip
        assert f"--{option}" in said
