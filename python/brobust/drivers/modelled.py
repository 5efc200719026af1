"""What virtual time knows of the schedulers that the drivers use on a host (crates/timeline): `deadline:hz=1000`.

On a host a driver gives a vCPU what the host's kernel makes of the request: turns end at its ticks, and an overrun is
charged to the next turn. A scenario on virtual may ask for the same by the driver's name, and say with it what decides
there: the host's tick rate, and whether the vCPU is always busy or sleeps when it has nothing to do.

`late` is no driver of a host's: a vCPU whose host lets it run for as long as it likes, but wakes it up late.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from brobust import units

MODELLED = ("deadline", "quota", "competitor", "late")
"""Schedules that virtual time can follow beside exact timeslices, which are those of a host's burner."""
DEFAULT_HZ = 250
"""CONFIG_HZ of Debian's and Ubuntu's generic kernels."""
MIN_HZ, MAX_HZ = 24, 1000


def _settings(name: str) -> str:
    if name == "late":
        return ":chance=P, a part above 0 and at most 100%, and :timers"
    return f":hz=N, {MIN_HZ} to {MAX_HZ}" + (", and :idle" if name == "deadline" else "")


def _fraction_or_0(text: str) -> float:
    try:
        return units.fraction(text)
    except ValueError:
        return 0


@dataclass(frozen=True)
class Modelled:
    """A driver as virtual time models it. `idle`: the vCPU sleeps when it has nothing to do; otherwise it is busy. A
    vCPU that is late always does. `chance`: the part of its wake-ups at which it is late; `timers`: of those alone
    that a timer causes."""

    name: str
    hz: int = DEFAULT_HZ
    idle: bool = False
    chance: float = 1.0
    timers: bool = False

    @property
    def sleeps(self) -> bool:
        """Whether the vCPU sleeps when it has nothing to do: when it may run then depends on when it wakes up."""
        return self.idle or self.name == "late"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` writes; None for a driver that virtual time does not model. Raise ValueError for settings
        that it does not have."""
        name, *settings = text.split(":")
        if name not in MODELLED:
            return None
        given: dict[str, Any] = {}
        for setting in settings:
            key, _, value = setting.partition("=")
            if key in given:
                raise ValueError(f"{text!r} has {key} twice; give it once")
            if key == "hz" and name != "late" and value.isdecimal() and MIN_HZ <= int(value) <= MAX_HZ:
                given[key] = int(value)
            elif key == "chance" and name == "late" and 0 < (part := _fraction_or_0(value)) <= 1:
                given[key] = part
            elif setting == {"deadline": "idle", "late": "timers"}.get(name):
                given[key] = True
            else:
                raise ValueError(f"{text!r} has the setting {setting!r}; {name} takes {_settings(name)}")
        return cls(name, **given)

    def __str__(self) -> str:
        hz = f":hz={self.hz}" if self.hz != DEFAULT_HZ else ""
        percent = Decimal(f"{self.chance * 100:.12g}")  # written without an exponent
        chance = f":chance={percent:f}%" if self.chance < 1 else ""
        return self.name + hz + (":idle" if self.idle else "") + chance + (":timers" if self.timers else "")

    def schedule(self, timeslice_ns: int, period_ns: int, seed: int) -> dict[str, Any]:
        """Return the schedule in the form that crates/timeline reads."""
        given: dict[str, Any] = {"timeslice": timeslice_ns, "period": period_ns, "seed": seed}
        if self.name == "late":
            return {"kind": "late", **given, "chance": self.chance, "timers": self.timers}
        if self.idle:
            return {"kind": "on_wake_up", **given}
        kind = "fair" if self.name == "competitor" else self.name
        return {"kind": kind, **given, "tick": round(1e9 / self.hz)}
