"""A report of a machine can be sent to strangers, and one of a stranger can be taken in."""

import copy
import getpass
import platform
import re
import socket
import tomllib
from pathlib import Path
from typing import Any

import add_report
import evidence
import polars as pl
import pytest
import tomli_w

from brobust.analysis import agreement
from brobust.backends.doctor import CheckResult, for_report
from brobust.cli import app
from brobust.host import machine
from brobust.report import validation as drawing
from conftest import Brobust, json_lines

ROOT = Path(__file__).parent.parent


def _runs(cc: str = "bbr", kernel: str = "debian-6.12", rate: float = 10.0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "run": ["r0", "r1"], "flow": 0, "kernel": kernel, "cc": cc, "timeslice_ms": [10.0, None],
            "share": [0.5, 1.0], "outcome": ["ok", "unfaithful"], "throughput_mbps": rate, "settled_mbps": rate * 2,
            "retransmits": 3, "rtt_mean_ms": 12.0, "bandwidth_mbps": 20.0, "rtt_ms": 10.0, "buffer_bytes": 100_000,
            "driver": ["burner", "none"], "duration_s": 5.0, "accelerator": "tcg", "qemu": "7.2.22", "iperf3": "3.12",
            "wall_s": 60.0,
        }
    )  # fmt: skip


def _validation(hosts: dict[str, dict[str, Any]] | None = None, **runs: Any) -> dict[str, Any]:
    both = _runs(**runs)
    cells = agreement.compare(both, _runs(**{**runs, "rate": 12.0}), "vm" if hosts is None else "lab")
    found = agreement.agreement(cells)
    return {**drawing.for_report(cells, found, found, both, "none", hosts), "load_before": 0.5}


@pytest.fixture
def report(tmp_path: Path) -> dict[str, Any]:
    machine.write(tmp_path / "report.toml", validation=_validation())
    return tomllib.loads((tmp_path / "report.toml").read_text())


def test_a_report_has_the_figures_and_the_machine(report: dict[str, Any]) -> None:
    found = report["validation"]
    assert (found["accelerator"], found["kernel"], found["driver"]) == ("tcg", "debian-6.12", "burner, none")
    assert (found["runs"], found["runs_unfaithful"], found["cells"], found["minutes"]) == (2, 1, 2, 2.0)
    assert found["median_abs_ln_ratio"] == pytest.approx(0.1823, abs=1e-4)
    assert {cell["share"]: cell["vm_throughput_mbps"] for cell in found["cell"]} == {0.5: 10.0, 1.0: 10.0}
    assert report["machine"]["architecture"] == platform.machine() and report["machine"]["cpus"] >= 1
    assert list(add_report.problems(report)) == []


def test_a_report_names_neither_machine_nor_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "6.9.1-alice-7-cloud-amd64")
    home = "/home/alice"
    checks = [
        CheckResult("root", "missing", "user 4711"),
        CheckResult("cache", "ok", f"{home}/.cache"),
        CheckResult("tick", "missing", f"{home}/config: no such file"),
        CheckResult("cpus", "ok", "2 usable"),
    ]
    machine.write(
        tmp_path / "report.toml", checks=for_report(checks), validation=_validation(cc="alice_cc", kernel="6.9.1-alice")
    )
    text = (tmp_path / "report.toml").read_text()
    assert "alice" not in text
    without_check = re.sub(r"(?m)^root = .*", "", text)
    for secret in ("4711", str(tmp_path), str(ROOT), socket.gethostname(), getpass.getuser()):
        assert not re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", without_check), secret
    assert 'kernel = "6.9.1-cloud-amd64"' in text and 'cpus = "ok: 2 usable"' in text and 'cc = "own"' in text


@pytest.mark.parametrize(
    ("release", "public"),
    [
        ("6.12.9+deb12-cloud-amd64", "6.12.9-deb12-cloud-amd64"),
        ("5.14.0-427.el9_4.x86_64", "5.14.0-el9"),
        ("6.6.1-rt15-lowlatency", "6.6.1-rt-lowlatency"),
        ("6.9.1-smart-kvmhost-2", "6.9.1"),
        ("alices", "unknown"),
    ],
)
def test_of_a_kernel_s_release_whole_words_of_distributions_are_kept(release: str, public: str) -> None:
    assert machine.public_release(release) == public


def test_beside_a_report_json_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("brobust.backends.doctor.all_checks", lambda: [CheckResult("cpus", "ok", "2 usable")])
    app(["doctor", "--json", "--report", str(tmp_path / "report.toml")], standalone_mode=False)
    assert [one["check"] for one in json_lines(capsys.readouterr().out)] == ["cpus"]
    assert 'cpus = "ok: 2 usable"' in (tmp_path / "report.toml").read_text()


@pytest.mark.parametrize("command", ["doctor", "validate"])
def test_where_no_report_can_be_written_is_said_before_anything_is_measured(
    brobust: Brobust, tmp_path: Path, command: str
) -> None:
    for name, reason in ((".", "this is a directory"), ("gone/report.toml", "there is no directory gone")):
        done = brobust(command, "--report", name)
        [line] = done.stderr.splitlines()
        assert done.returncode == 2 and reason in line and not done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_is_added_is_a_row_of_the_page_once(copied: Path, report: dict[str, Any], tmp_path: Path) -> None:
    report["machine"]["cpu"] = "A Processor, model 3"
    (tmp_path / "sent.toml").write_text(tomli_w.dumps(report))
    before = len(list((copied / "docs/data/machines").glob("*.toml")))
    for _ in range(2):
        add_report.main([str(tmp_path / "sent.toml")])
    assert len(list((copied / "docs/data/machines").glob("*.toml"))) == before + 1
    page = (copied / "docs/fidelity.md").read_text()
    [row] = [line for line in page.splitlines() if "A Processor, model 3" in line]
    assert "| tcg, debian-6.12 | 2 x 1 | 0.182 | 0.182 | 0.182, 0.182 | 0.5 |" in row
    assert list(evidence.problems()) == []


def test_a_report_of_a_lab_is_a_row_with_its_sender_and_names_no_host(copied: Path, tmp_path: Path) -> None:
    sender = {
        "ssh": "alice@web-1", "host": "web-1", "device": "eth7", "cpu": "A Sender", "cpus": 7,
        "kernel_release": "6.1.0-alice-amd64",
    }  # fmt: skip
    sent = tmp_path / "sent.toml"
    hosts = {"sender": sender, "path": {**sender, "cpu": "A Router"}}
    machine.write(sent, validation={**_validation(hosts), "accelerator": None})
    assert not re.search("alice|web-1|eth7", sent.read_text())
    add_report.main([str(sent)])
    assert "| lab, a sender with 7 CPUs of A Sender, 6.1.0-amd64 | 2 x 1 |" in (copied / "docs/fidelity.md").read_text()
    report = tomllib.loads(sent.read_text())
    assert {cell["lab_throughput_mbps"] for cell in report["validation"]["cell"]} == {10.0}
    del report["validation"]["host"][0]
    assert list(add_report.problems(report)) == [
        "validation has neither the accelerator of VMs nor the sender of a lab"
    ]


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        (("schema",), 2, "schema is 2"),
        (("date",), "today", "date is 'today'"),
        (("owner",), "alice", "owner is in no report"),
        (("machine", "host"), "web-1", "machine.host is in no report"),
        (("machine", "cpu"), "at 192.0.2.7", "may be an address"),
        (("machine", "product"), "of alice@example.org", "may be an address"),
        (("machine", "product"), "/home/alice", "a path or markup"),
        (("machine", "cpu"), "a | b", "markup"),
        (("machine", "cpu"), "a\n\n# b", "markup"),
        (("machine", "cpus"), "2", "another type"),
        (("validation", "kernel"), "x" * 201, "may be"),
        (("validation", "cell"), [{"name": "alice"}], "validation.cell.name is in no report"),
        (("validation", "cells"), 0, "validation.cells is 0, and no number of cells"),
        (("validation", "runs"), 2.5, "validation.runs is 2.5"),
        (("validation",), [], "validation is no table"),
        (("checks",), {"root": "ok"}, "neither checks nor validation, or both"),
    ],
)
def test_what_is_no_report_or_names_somebody_is_refused(
    report: dict[str, Any], where: tuple[str, ...], value: Any, reason: str
) -> None:
    changed = copy.deepcopy(report)
    table = changed
    for key in where[:-1]:
        table = table[key]
    table[where[-1]] = value
    assert any(reason in problem for problem in add_report.problems(changed))


def test_a_processor_with_an_at_sign_and_a_dashed_name_is_no_address(report: dict[str, Any]) -> None:
    report["machine"]["cpu"] = "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz"
    assert list(add_report.problems(report)) == []
