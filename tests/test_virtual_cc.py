"""brb_bbq does what it is for, in virtual time. (For the repairs see test_steady.py and test_virtual.py.)"""

from __future__ import annotations

import pytest

import brobust

pytestmark = pytest.mark.virtual


def test_bbq_gives_the_flow_with_the_short_rtt_twice_what_bbr_leaves_it() -> None:
    share = {}
    for cc in ("brb_bbr1", "brb_bbq"):
        flows = [{"cc": cc, "rtt": "10ms"}, {"cc": cc, "rtt": "50ms"}]
        path = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "4bdp"}
        short, long = brobust.run({"path": path, "flows": flows, "duration": "15s"}).runs["throughput_mbps"]
        share[cc] = short / (short + long)
    assert share["brb_bbr1"] < 0.2, share  # measured over 30 s, 3 repeats: 0.12 to 0.13
    assert share["brb_bbq"] > 2 * share["brb_bbr1"], share  # 0.40 to 0.43
