"""Driver `replay`: the burner at recorded off-times. It ends with the recording."""

from collections.abc import Sequence
from typing import Any

from brobust.drivers import schedules
from brobust.drivers.base import Driver


class Replay(Driver):
    name = "replay"
    carried_out_by = "burner"
    takes = frozenset({"replay"})
    promise = "recording"
    counts_from_traffic = True

    def schedules(self, count: int, seed: int) -> Sequence[dict[str, Any]]:
        return [schedules.schedule(self.requested, seed, self.offtimes)] * count
