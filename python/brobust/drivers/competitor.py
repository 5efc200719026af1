"""Driver `competitor`: busy processes beside each thread on its CPU. The host's scheduler decides who runs when."""

from collections.abc import Iterator

from brobust.drivers.base import Driver
from brobust.drivers.request import Request

MAX_COMPETITORS = 64
# Largest difference between the share asked for and that of one of n equals.
SHARE_PRECISION = 0.005


class Competitor(Driver):
    name = "competitor"
    takes = frozenset({"share"})

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        share = requested.share
        beside = round(1 / share) - 1
        is_one_of_equals = 1 <= beside <= MAX_COMPETITORS and abs(1 / (beside + 1) - share) < SHARE_PRECISION
        if requested.active and not is_one_of_equals:
            why = f"driver competitor gives one of n equals its part, not {share:g} ({100 * share:g}%)"
            yield "share", f"{why}; give 1/2 (50%), 1/3 (33.3%), 1/4 (25%), ..."
