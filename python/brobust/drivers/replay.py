"""Driver `replay`: the burner at recorded off-times. It ends with the recording."""

from __future__ import annotations

from typing import Any

from brobust.drivers.burner import Burner


class Replay(Burner):
    name = "replay"
    takes = frozenset({"replay"})
    promise = "recording"
    counts_from_traffic = True

    def _phase(self, phase: int) -> dict[str, Any]:
        return {}  # the recording says when
