"""Our controls are compared with the kernel's own, packet by packet in virtual time (brobust.conformance.packets)."""

import re

import pytest

from brobust.backends.base import Backend
from brobust.conformance import cases, packets
from brobust.dataset import Measured
from brobust.errors import RunFailed
from brobust.scenario.grid import scenario

pytestmark = pytest.mark.virtual


def test_our_controls_send_the_kernels_packets_to_the_nanosecond() -> None:
    compared = list(packets.compare(list(packets.EQUIVALENTS.items()), cases.VIRTUAL_QUICK))
    differences = [f"{c.first} and {c.second}, {c.case}: {c.difference}" for c in compared if c.difference]
    assert not differences, "\n".join(differences)
    assert len(compared) == len(packets.EQUIVALENTS) * len(cases.VIRTUAL_QUICK)
    assert all(c.megabytes > 0.5 for c in compared)


def test_the_first_packet_that_differs_is_shown_with_both_states() -> None:
    """The comparison can fail: the repair changes packets from the first deficit in PROBE_BW on."""
    (compared,) = packets.compare([("bbr", "brb_bbr1_robust")], ["10 of 20 ms"])
    assert compared.difference is not None
    first, bbr, robust, *states = compared.difference.splitlines()
    assert first.startswith("packet ") and "differs" in first
    assert "bbr:" in bbr and "brb_bbr1_robust:" in robust
    assert all(re.search(r"pacing_rate_mbps \d+\.?\d{0,5},", state) for state in states) and len(states) == 2


def test_a_run_that_cannot_be_compared_says_why() -> None:
    backend = Backend()
    backend.measure = lambda run: Measured([{"outcome": "unfaithful", "reason": "no byte arrived"}])  # type: ignore[method-assign]
    with pytest.raises(RunFailed, match=r": unfaithful: no byte arrived$"):
        packets._measure(backend, scenario({}), packets=False)


def test_packets_that_differ_in_the_bits_of_ecn_only_are_told_from_the_same() -> None:
    """DCTCP marks its packets as ECN-capable, and without a mark it is Reno."""
    (compared,) = packets.compare([("reno", "dctcp")], ["20mbit 10ms"])
    assert "the same times and lengths, but other bits" in (compared.difference or "")


def test_cases_are_many_and_of_every_kind() -> None:
    assert len(cases.VIRTUAL) >= 50
    assert set(cases.VIRTUAL_QUICK) <= set(cases.VIRTUAL)
