"""The cases in which controls are compared: paths, losses, contention and applications, by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brobust import backends
from brobust.errors import BadInput
from brobust.scenario import Scenario
from brobust.scenario.grid import override
from brobust.scenario.grid import scenario as one_scenario

_PATHS: dict[str, dict[str, Any]] = {
    "1mbit 20ms": {"bandwidth": "1mbit", "rtt": "20ms", "buffer": "20p"},
    "5mbit 100ms": {"bandwidth": "5mbit", "rtt": "100ms"},
    "20mbit 10ms": {"bandwidth": "20mbit", "rtt": "10ms"},
    "20mbit 40ms, 4 BDP": {"bandwidth": "20mbit", "rtt": "40ms", "buffer": "4bdp"},
    "50mbit 5ms, half a BDP": {"bandwidth": "50mbit", "rtt": "5ms", "buffer": "0.5bdp"},
    "100mbit 10ms, 12 BDP": {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "12bdp"},
    "100mbit 200ms": {"bandwidth": "100mbit", "rtt": "200ms"},
    "200mbit 1ms": {"bandwidth": "200mbit", "rtt": "1ms"},
    "1gbit 20ms": {"bandwidth": "1gbit", "rtt": "20ms"},
}
_LOSSES = ("0.1%", "1%", "5%")
_CONTENTION: dict[str, dict[str, Any]] = {
    "10 of 40 ms": {"timeslice": "10ms", "share": 0.25},
    "10 of 20 ms": {"timeslice": "10ms", "share": 0.5},
    "1 of 4 ms": {"timeslice": "1ms", "share": 0.25},
    "20 of 29 ms, jittered": {"timeslice": "20ms", "share": 0.7, "start_jitter": 0.25},
}
_APPLICATIONS = ("rate 5mbit", "rate 19mbit", "onoff 200ms 300ms", "onoff 1s 50ms", "onoff 20ms 30ms", "idle 2s 3s")
_VIRTUAL_BASE: dict[str, Any] = {
    "path": {"bandwidth": "20mbit", "rtt": "20ms", "buffer": "2bdp"},
    "duration": "12s",  # beyond the first PROBE_RTT at 10 s
}


def _all_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, path in _PATHS.items():
        duration = "4s" if path["bandwidth"] == "1gbit" else "12s"
        yield name, {"path": path, "duration": duration}
        yield f"{name}, 10 of 20 ms", {
            "path": path, "duration": duration, "contention": _CONTENTION["10 of 20 ms"],
        }  # fmt: skip
    for loss in _LOSSES:
        yield f"loss {loss}", {"path": {"loss": loss}}
        yield f"loss {loss}, 1 of 4 ms", {"path": {"loss": loss}, "contention": _CONTENTION["1 of 4 ms"]}
        yield f"loss {loss} at 100mbit", {"path": {"loss": loss, "bandwidth": "100mbit"}}
    for name, contention in _CONTENTION.items():
        yield name, {"contention": contention}
        yield f"{name}, fq", {"contention": contention, "qdisc": "fq"}
        yield f"{name}, 100mbit", {"contention": contention, "path": {"bandwidth": "100mbit", "buffer": "12bdp"}}
    for pattern in _APPLICATIONS:
        yield pattern, {"flows": {"pattern": pattern}}
        yield f"{pattern}, 10 of 20 ms", {"flows": {"pattern": pattern}, "contention": _CONTENTION["10 of 20 ms"]}
    yield "rate falls and rises", {"path": {"bandwidth_changes": [["3s", "4mbit"], ["7s", "40mbit"]]}}
    yield "rate drops to a twentieth", {"path": {"bandwidth_changes": [["4s", "1mbit"]]}}
    yield "RTT rises", {"path": {"rtt_changes": [["4s", "80ms"]]}}
    yield "RTT falls", {"path": {"rtt": "80ms", "rtt_changes": [["4s", "10ms"]]}}
    yield "fq", {"qdisc": "fq"}
    yield "2 flows", {"flows": {"count": 2}}
    yield "8 flows, shallow", {"flows": {"count": 8}, "path": {"buffer": "0.5bdp"}}
    yield "codel", {"path": {"aqm": "codel"}}
    yield "red", {"path": {"aqm": "red", "buffer": "4bdp"}}
    yield "a queue of 4 packets", {"path": {"bandwidth": "10mbit", "buffer": "4p"}}
    yield "a policer", {"path": {"bandwidth": "10mbit", "buffer": "0B", "burst": "15kB"}}
    yield "receive coalescing", {"nic": {"coalesce": "1ms"}, "path": {"bandwidth": "100mbit"}}
    yield "ACKs half a second apart", {"nic": {"coalesce": "500ms"}, "duration": "20s"}
    yield "slow CPU", {"cpu": {"frequency": "100MHz"}, "path": {"bandwidth": "100mbit"}}
    yield "30 s", {"duration": "30s"}


VIRTUAL: dict[str, dict[str, Any]] = dict(_all_cases())

# One case of each kind, for `make test`.
VIRTUAL_QUICK = (
    "20mbit 10ms", "50mbit 5ms, half a BDP, 10 of 20 ms", "loss 1%", "loss 5%, 1 of 4 ms", "20 of 29 ms, jittered",
    "onoff 200ms 300ms", "rate 19mbit, 10 of 20 ms", "idle 2s 3s", "rate falls and rises", "RTT rises", "fq",
    "8 flows, shallow", "a queue of 4 packets", "receive coalescing",
)  # fmt: skip

# The cases that the testbed can measure. The application of 1 mbit has nothing in flight most of the time, so each of
# its writes is a restart from idle (CA_EVENT_TX_START).
VM: dict[str, dict[str, Any]] = {
    "clean": {"path": {"buffer": "4bdp"}},
    "loss 1%": {"path": {"loss": "1%"}},
    "shallow": {"path": {"buffer": "0.5bdp"}},
    "deep": {"path": {"buffer": "12bdp"}},
    "RTT 80 ms": {"path": {"rtt": "80ms"}},
    "5 mbit": {"path": {"bandwidth": "5mbit"}},
    "a queue of 4 packets": {"path": {"bandwidth": "10mbit", "buffer": "4p"}},
    "8 flows": {"flows": {"count": 8}},
    "application of 5 mbit": {"flows": {"pattern": "rate 5mbit"}},
    "application of 1 mbit, idle restarts": {"flows": {"pattern": "rate 1mbit"}},
    "rate falls and rises": {"path": {"bandwidth_changes": [["3s", "4mbit"], ["7s", "20mbit"]]}},
    "RTT rises and falls": {"path": {"rtt_changes": [["3s", "60ms"], ["8s", "10ms"]]}},
    "10 of 20 ms": {"path": {"buffer": "4bdp"}, "contention": {"share": 0.5, "timeslice": "10ms"}},
    "1 of 4 ms": {"path": {"buffer": "4bdp"}, "contention": {"share": 0.25, "timeslice": "1ms", "driver": "burner"}},
}
VM_QUICK = ("loss 1%", "10 of 20 ms")
_VM_BASE: dict[str, Any] = {"backend": "vm", "path": {"bandwidth": "20mbit", "rtt": "10ms"}, "duration": "12s"}

_OF_BACKEND = {"virtual": (VIRTUAL, _VIRTUAL_BASE), "vm": (VM, _VM_BASE)}


Point = tuple[str, str, Mapping[str, Any] | None]
"""A control, a case, and values for fields that the case does not set itself."""


def checked(backend: str, points: Sequence[Point]) -> list[Scenario]:
    """Return a scenario for each of these; refuse those that cannot be measured here."""
    fields = [_fields(backend, *point) for point in points]
    backends.check_written([one_scenario(one, as_written=True) for one in fields])
    scenarios = [one_scenario(one) for one in fields]
    backends.check(scenarios)
    return scenarios


def _fields(backend: str, control: str, case: str, over: Mapping[str, Any] | None) -> dict[str, Any]:
    cases, base = _OF_BACKEND[backend]
    if case not in cases:
        raise BadInput(f"--case: no case of backend {backend} is called {case!r}; --list lists them")
    return override(override({**base, "flows": [{"cc": control}]}, over or {}), cases[case])
