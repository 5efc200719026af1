"""Names for --cc: the guest kernel's own controls, and ours, which are loaded into it."""

from __future__ import annotations

from brobust.errors import BadInput
from brobust.guests.kernels import Kernel

# Ours by name, with the kernel control each stands on (bpf/).
OURS = {"bbr_robust": "bbr"}


def check(name: str, kernel: Kernel) -> None:
    """Refuse a control that the guest will not have."""
    offered = kernel.congestion_controls()
    available = offered | {ours for ours, needed in OURS.items() if needed in offered}
    if name not in available:
        raise BadInput(
            f"cc: {name!r} is not available with kernel {kernel.name}; it has {', '.join(sorted(available))}"
        )
