"""docs/new-control.md: it shows the file that is built, and its commands are executed."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from brobust import _core
from brobust.errors import BrobustError
from brobust.host.programs import ask_host_program
from conftest import BROBUST

ROOT = Path(__file__).parent.parent
SECTION = (ROOT / "docs/new-control.md").read_text()
COMMANDS = [line.strip() for line in SECTION.split("```")[-1].splitlines() if line.startswith("    ")]


def _run(command: str, directory: Path) -> str:
    words = shlex.split(command)
    words = [str(BROBUST), *words[1:]] if words[0] == "brobust" else words
    where = directory if words[0] == str(BROBUST) else ROOT
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False, timeout=850)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def _of(word: str) -> list[str]:
    found = [command for command in COMMANDS if command.startswith(word)]
    assert found, word
    return found


def test_what_the_page_shows_of_the_example_is_in_the_file_that_is_built() -> None:
    shown = re.findall(r"```c\n(.*?)```", SECTION, re.DOTALL)
    built = (ROOT / "cc/controls/brb_vegas.c").read_text()
    assert len(shown) > 2 and [code for code in shown if code not in built] == []


def test_every_control_is_in_the_table() -> None:
    table = (ROOT / "docs/algorithms.md").read_text()
    rows = "\n".join(line for line in table.splitlines() if line.startswith("| `"))
    named, compiled = set(re.findall(r"`(brb_\w+)`", rows)), set(_core.control_names())
    assert compiled - named == set(), "the table of docs/algorithms.md has a row for each control of cc/controls"
    assert named - compiled == set(), "the table names what was not compiled: `make setup` compiles cc/controls"


@pytest.mark.compiles
@pytest.mark.timeout(900)  # cargo waits until the Rust tests beside this are compiled
def test_its_parameters_are_listed_and_its_promises_kept(tmp_path: Path) -> None:
    (params,) = _of("brobust cc params")
    assert "vegas_alpha" in _run(params, tmp_path)
    (fuzz,) = _of("cargo run")
    assert re.search(r"^brb_vegas: \d{4,} calls kept every promise", _run(fuzz, tmp_path), re.MULTILINE)


@pytest.mark.compiles
@pytest.mark.timeout(900)
def test_a_control_with_a_mistake_is_named_last(tmp_path: Path) -> None:
    """By the compiler's first error, below all that cargo says, or by its name, where a call ends the fuzzer."""
    for name in ("Cargo.toml", "Cargo.lock", "crates", "cc"):
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copied(ROOT / name, tmp_path / name)
    for control in (tmp_path / "cc/controls").glob("*.c"):
        if control.name != "brb_vegas.c":  # which would be compiled for nothing
            control.unlink()
    _bring_others_crates(tmp_path / "target")
    vegas = (ROOT / "cc/controls/brb_vegas.c").read_text()
    for first, mistake in (("", "unknown();"), ("brb_aaa: ", "acked /= conn->ca_state - conn->ca_state;")):
        text = vegas.replace("brb_vegas", "brb_aaa").replace("vegas_", "aaa_")
        begin = "\tif (cc_in_slow_start(conn) &&"
        assert text.count(begin) == 1
        text = text.replace(begin, f"\t{mistake}\n{begin}")
        (tmp_path / "cc/controls/brb_aaa.c").write_text(text)
        command = ["cargo", "run", "--offline", "-p", "brobust-cc", "--example", "fuzz", "--", "14000"]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and done.stdout == first, done
        said = [line for line in done.stderr.splitlines() if not line.startswith("warning: build failed, waiting")]
        assert first or re.search(r"brb_aaa\.c:\d+:\d+: error: ", said[-1]), said


def _bring_others_crates(target: Path) -> None:
    """Copy what cargo has compiled here of others' crates that the fuzzer needs. It compiles what is not here."""
    here = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    tree = ["cargo", "tree", "--offline", "--locked", "-p", "brobust-cc", "-e", "normal,build", "--prefix", "none"]
    listed = subprocess.run(tree, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    needed = {line.split()[0].replace("-", "_") for line in listed.splitlines() if not line.startswith("brobust")}
    for part in ("build", "deps", ".fingerprint"):
        for made in (here / part).glob("*"):
            crate = made.name.rpartition("-")[0].replace("-", "_")
            if {crate, crate.removeprefix("lib")} & needed:
                there = target / "debug" / part / made.name
                there.parent.mkdir(parents=True, exist_ok=True)
                # With its date, by which cargo tells that it is current.
                (shutil.copytree if made.is_dir() else shutil.copy2)(made, there)


@pytest.mark.virtual
def test_it_runs_in_virtual_time_and_queues_what_it_is_told_to(tmp_path: Path) -> None:
    run, plot = _of("brobust run") + _of("brobust plot")
    _run(run, tmp_path)
    runs = pl.read_parquet(tmp_path / "vegas/runs/*.parquet").filter(pl.col("share") == 1)
    assert runs["throughput_mbps"].min() > 0.95 * 50 * 1448 / 1514  # type: ignore[operator]
    samples = pl.read_parquet(tmp_path / "vegas/samples/*.parquet").join(runs.select("run"), on="run")
    by_run = samples.filter(pl.col("time_s") > 6).group_by("run").agg(pl.col("rtt_ms").median())
    rtt = dict(by_run.join(runs.select("run", "cc"), on="run").select("cc", "rtt_ms").iter_rows())
    # A packet is 0.24 ms at 50 Mbit/s.
    assert 10 < rtt["brb_vegas"] < 12.5 < 15 < rtt["brb_vegas:alpha=20:beta=40"] < 22 < rtt["brb_reno"], rtt
    assert {"slow_start", "avoidance"} <= set(samples["mode"].unique())
    assert _run(plot, tmp_path) and list((tmp_path / "vegas").rglob("*.png"))


@pytest.mark.virtual
def test_it_is_the_same_in_the_kernel_and_here(tmp_path: Path) -> None:
    (replay,) = _of("brobust cc replay")
    assert ", 0 differ" in _run(replay, tmp_path)


@pytest.mark.host
def test_it_is_loaded_and_leaves_nothing(tmp_path: Path) -> None:
    try:
        ask_host_program("cc", "load", "brb_vegas", "--dry-run")
    except BrobustError as refusal:
        pytest.skip(str(refusal))
    for command in _of("brobust cc load"):
        _run(command, tmp_path)
    (row,) = (row for row in ask_host_program("cc", "list") if row["name"] == "brb_vegas")
    assert row["state"] == "not loaded"
