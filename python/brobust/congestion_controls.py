"""Names for --cc: the guest kernel's own controls, and ours, which are loaded into it."""

from __future__ import annotations

from brobust import _core
from brobust.errors import BadInput
from brobust.guests.kernels import Kernel

# Ours by name, with the kernel control each stands on: None for those of cc/controls, which need nothing but BPF.
OURS: dict[str, str | None] = {"bbr_robust": "bbr", **dict.fromkeys(_core.control_names())}

# enum cc_mode of cc/cc.h, by number.
MODES = [
    "startup", "drain", "probe_bw", "probe_rtt", "probe_bw_up", "probe_bw_down", "probe_bw_cruise", "probe_bw_refill",
    "slow_start", "avoidance",
]  # fmt: skip


def check(name: str, kernel: Kernel) -> None:
    """Refuse a control that the guest will not have."""
    offered = kernel.congestion_controls()
    available = offered | {ours for ours, needed in OURS.items() if needed is None or needed in offered}
    if name not in available:
        raise BadInput(
            f"cc: {name!r} is not available with kernel {kernel.name}; it has {', '.join(sorted(available))}"
        )
