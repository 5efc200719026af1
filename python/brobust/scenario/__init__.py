"""What to measure: one scenario type for every backend, and the grid that a file or command line spans.

A *grid* is what the user writes: any field may be a list. A *scenario* is one point of it, with plain numbers.
"""

from brobust.scenario.grid import DEFAULT_GRID, Grid
from brobust.scenario.model import (
    RX_PACKET_CYCLES,
    TIMER_CYCLES,
    TSO_RTT_LOG,
    TX_BYTE_CYCLES,
    TX_SKB_CYCLES,
    Contention,
    Cpu,
    Flows,
    Nic,
    Path,
    Run,
    Scenario,
)
from brobust.scenario.specs import Aqm, Pattern

__all__ = [
    "DEFAULT_GRID",
    "RX_PACKET_CYCLES",
    "TIMER_CYCLES",
    "TSO_RTT_LOG",
    "TX_BYTE_CYCLES",
    "TX_SKB_CYCLES",
    "Aqm",
    "Contention",
    "Cpu",
    "Flows",
    "Grid",
    "Nic",
    "Path",
    "Pattern",
    "Run",
    "Scenario",
]
