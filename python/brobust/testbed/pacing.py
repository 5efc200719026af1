"""The sender's sysctl for how much of the time in which its CPU was away it makes up for (kernel/patches/kept)."""

from __future__ import annotations

from brobust.errors import MissingSupport
from brobust.scenario.specs import Pacing

LAG = "ipv4/tcp_pacing_lag_us"  # us, 0: for none; below /proc/sys/net


def cannot_keep(pacing: Pacing, sender: str) -> MissingSupport:
    """Return the refusal of a pacing that needs the sysctl, where the sender's kernel does not have it."""
    return MissingSupport(
        f"pacing: {str(pacing)!r} needs net.ipv4.tcp_pacing_lag_us, which {sender} lacks; give kernel, or boot a "
        "kernel with `brobust kernel patch TREE --repair kept` there (docs/for-kernel.md)"
    )
