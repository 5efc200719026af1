"""What virtual time knows of the schedulers that the drivers use on a host (crates/timeline): `deadline:hz=1000`.

On a host a driver gives a vCPU what the host's kernel makes of the request: turns end at its ticks, and an overrun is
charged to the next turn. A scenario on virtual may ask for the same by the driver's name, and say with it what decides
there: the host's tick rate, and whether the vCPU is always busy or sleeps when it has nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MODELLED = ("deadline", "quota", "competitor")
"""Drivers whose schedule virtual time can follow; the burner's is its own, exact one."""
DEFAULT_HZ = 250
"""CONFIG_HZ of Debian's and Ubuntu's generic kernels."""
MIN_HZ, MAX_HZ = 24, 1000
FORM = "deadline, quota or competitor, with :hz=N for the host's tick rate (250), and deadline with :idle"


@dataclass(frozen=True)
class Modelled:
    """A driver as virtual time models it. `idle`: the vCPU sleeps when it has nothing to do; otherwise it is busy."""

    name: str
    hz: int = DEFAULT_HZ
    idle: bool = False

    @classmethod
    def parse(cls, text: str) -> Modelled | None:
        """Read what `str` writes; None for a driver that virtual time does not model. Raise ValueError for settings
        that it does not have."""
        name, *settings = text.split(":")
        if name not in MODELLED:
            return None
        hz, idle = DEFAULT_HZ, False
        for setting in settings:
            key, _, value = setting.partition("=")
            if key == "hz" and value.isdecimal() and MIN_HZ <= int(value) <= MAX_HZ:
                hz = int(value)
            elif setting == "idle" and name == "deadline":
                idle = True
            else:
                raise ValueError(f"{text!r} has the setting {setting!r}; give {FORM}; hz is {MIN_HZ} to {MAX_HZ}")
        return cls(name, hz, idle)

    def __str__(self) -> str:
        return self.name + (f":hz={self.hz}" if self.hz != DEFAULT_HZ else "") + (":idle" if self.idle else "")

    def schedule(self, timeslice_ns: int, period_ns: int, seed: int) -> dict[str, Any]:
        """Return the schedule in the form that crates/timeline reads."""
        given = {"timeslice": timeslice_ns, "period": period_ns, "seed": seed}
        if self.idle:
            return {"kind": "on_wake_up", **given}
        kind = "fair" if self.name == "competitor" else self.name
        return {"kind": kind, **given, "tick": round(1e9 / self.hz)}
