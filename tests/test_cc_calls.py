"""Every call of a control in a virtual kernel is made again in this process (brobust.conformance.calls)."""

import os
import shutil
from pathlib import Path

import pytest

from brobust import _core
from brobust.conformance import calls
from brobust.kernels import our_files

pytestmark = pytest.mark.virtual


def test_every_control_decides_the_same_in_a_kernel_and_here() -> None:
    replayed = list(calls.replay(["loss 5%, 1 of 4 ms", "8 flows, shallow"], _core.control_names()))
    assert [(r.control, r.first) for r in replayed if r.differences or r.lost] == []
    assert all(r.acks > 300 for r in replayed), replayed


def test_parameters_are_those_of_the_recording() -> None:
    (with_them,) = calls.replay(["20mbit 10ms"], ["brb_bbq:alpha=1ms:drain_to_bdp=on"])
    assert with_them.differences == 0 and with_them.calls > 1000


def test_a_control_that_was_changed_since_this_process_was_compiled_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(our_files.CC / "controls", tmp_path / "controls")
    monkeypatch.setattr(our_files, "CC", tmp_path)
    for file in (tmp_path / "controls").iterdir():
        os.utime(file, (0, 0))
    assert not calls.is_older_than_cc()
    (tmp_path / "controls/brb_reno.c").touch()
    assert calls.is_older_than_cc()
