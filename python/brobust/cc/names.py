"""Names for --cc: the kernel's own controls, and ours, which are loaded into it or built in; and their parameters.

`brb_bbq:alpha=5ms:beta=1%` is brb_bbq with two of its parameters set.
"""

from __future__ import annotations

from collections.abc import Iterable

from brobust import _core
from brobust.errors import BadInput
from brobust.kernels.vm import Kernel

# Ours by name, with the kernel control each stands on: None for those of cc/controls, which need nothing but BPF.
OURS: dict[str, str | None] = {
    "bbr_robust": "bbr",
    "bbr_steady": "bbr",
    "bbr_shadow": "bbr",
    "cubic_shadow": "cubic",
    **dict.fromkeys(_core.control_names()),
}

# These have code of cc/controls beside the kernel's own, and take its parameters, those that begin so.
_PARAMETERS_OF = {
    "bbr_robust": ("brb_bbr1_robust", "robust_"),
    "bbr_steady": ("brb_bbr1_steady", "steady_"),
    "bbr_shadow": ("brb_bbr1", ""),
    "cubic_shadow": ("brb_cubic", ""),
}

# What to know before a control becomes a default (docs/repair.md, "Random loss").
WARNINGS = dict.fromkeys(
    ("bbr_steady", "brb_bbr1_steady", "brb_bbr3_steady"),
    "loses nine tenths of its rate with 0.5 % of random loss once the CPU is taken away; not for lossy paths",
)

# The names of enum cc_mode and enum cc_ca_state (cc/cc.h), by number.
MODES = _core.MODES
CA_STATES = _core.CA_STATES


def name_of(control: str) -> str:
    """The name without settings: what a socket is given."""
    return control.partition(":")[0]


def settings_of(control: str) -> list[tuple[str, int]]:
    """Whole names of the parameters that are set, with the numbers that a kernel is given."""
    name, _, settings = control.partition(":")
    if not settings:
        return []
    given = [setting.partition("=") for setting in settings.split(":")]
    if malformed := [parameter for parameter, equals, value in given if not (parameter and equals and value)]:
        raise BadInput(f"cc: {malformed[0]!r} of {control!r} is no setting; write {name}:PARAMETER=VALUE")
    try:
        return _core.control_settings(
            name, *_parameters_of(name), [(parameter, value) for parameter, _, value in given]
        )
    except ValueError as error:
        raise BadInput(f"cc: {error}") from None


def params(name: str) -> list[tuple[str, str, str, str, str]]:
    """The parameters of a control: name, value without a setting, least, most (with units), what it is."""
    host, prefix = _parameters_of(name)
    return [found for found in _core.control_params(host) if found[0].startswith(prefix)]


def _parameters_of(name: str) -> tuple[str, str]:
    """The control of cc/controls whose parameters these are, and how they begin."""
    host, prefix = _PARAMETERS_OF.get(name, (name, ""))
    if host not in _core.control_names():
        ours = ", ".join([*_core.control_names(), *_PARAMETERS_OF])
        raise BadInput(f"cc: {name} takes no parameters; those of ours do: {ours}")
    return host, prefix


def check(control: str, kernel: Kernel) -> None:
    """Refuse a control that the guest will not have."""
    offered = kernel.congestion_controls()
    available = offered | {ours for ours, needed in OURS.items() if needed is None or needed in offered}
    check_offered(control, available, kernel.name)


def check_offered(control: str, offered: Iterable[str], kernel: str) -> None:
    name = name_of(control)
    if name not in offered:
        raise BadInput(f"cc: {name!r} is not available with kernel {kernel}; it has {', '.join(sorted(offered))}")
    settings_of(control)


def check_together(controls: Iterable[str]) -> None:
    """One kernel has one set of values for each control."""
    chosen: dict[str, str] = {}
    for control in controls:
        other = chosen.setdefault(name_of(control), control)
        if settings_of(other) != settings_of(control):
            raise BadInput(
                f"cc: {other!r} and {control!r} in one run: a kernel has one set of parameters for a control; "
                "measure them in two runs"
            )
