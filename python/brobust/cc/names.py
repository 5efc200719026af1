"""The names that --cc takes: the kernel's own controls and ours, and the parameters of ours.

`brb_bbq:alpha=5ms:beta=1%` means brb_bbq with two of its parameters set.
"""

from collections.abc import Iterable

from brobust import _core, files
from brobust.errors import BadInput, meant
from brobust.kernels import our_files
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.kernels.vm import Kernel

# Our controls, each with the kernel's control that it wraps; those of cc/controls wrap none and need only BPF.
OURS: dict[str, str | None] = dict(_core.controls())

# The kernel's own, of all versions (net/ipv4/tcp_*.c). A tree of the user's own may have others.
LINUX = {
    "bbr", "bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla", "illinois", "lp", "nv", "reno", "scalable",
    "vegas", "veno", "westwood", "yeah",
}  # fmt: skip

# The names of enum cc_mode and enum cc_ca_state (cc/cc.h), by number.
MODES = _core.MODES
CA_STATES = _core.CA_STATES


def name_of(control: str) -> str:
    """Return the name without settings, as a socket has it."""
    return control.partition(":")[0]


def check_ours(controls: Iterable[str]) -> None:
    """Refuse what is none of the controls of cc/controls."""
    ours = _core.control_names()
    if others := [control for control in controls if name_of(control) not in ours]:
        raise BadInput(f"{others[0]!r} is no congestion control of ours; {_instead(others[0], ours, 'give')}")


def _instead(name: str, known: Iterable[str], there: str) -> str:
    """Return what may help somebody who gave a control that is not among those that are known: it is new and was not
    compiled yet, or its name is a slip; else all of them, after the words `there`."""
    file = our_files.CC / "controls" / f"{name}.c"
    if files.is_file(file):
        return f"{file} is there, but this command was compiled without it: `make setup` compiles it"
    known = sorted(known)
    if near := f"brb_{name}" if f"brb_{name}" in known else meant(name, known):
        return f"did you mean {near}?"
    return f"{there} {', '.join(known)}"


def settings_of(control: str) -> list[tuple[str, int]]:
    """Return the parameters that are set, by their full names, with the numbers that the kernel gets."""
    name, _, settings = control.partition(":")
    if not settings:
        return []
    if name not in OURS:
        instead = _instead(name, OURS, "ours are")
        raise BadInput(f"cc: {name!r} is no control of ours, and others take no parameters; {instead}")
    given = [setting.partition("=") for setting in settings.split(":")]
    if malformed := [parameter for parameter, equals, value in given if not (parameter and equals and value)]:
        raise BadInput(f"cc: {malformed[0]!r} in {control!r} is not a setting; write {name}:PARAMETER=VALUE")
    try:
        return _core.control_settings(name, [(parameter, value) for parameter, _, value in given])
    except ValueError as error:
        raise BadInput(f"cc: {error}") from None


def parameters(controls: Iterable[str]) -> list[str]:
    """Return the parameters that are set of these controls, as they stand on a kernel's command line."""
    every = ((name_of(control), *setting) for control in sorted(set(controls)) for setting in settings_of(control))
    return [f"{control}.{name}={value}" for control, name, value in every]


def check_written(control: str, kernel: str) -> None:
    """Refuse a control that no kernel of this name has, wherever it runs, and bad settings."""
    name = name_of(control)
    is_debian = virtual_kernels.debian_series(kernel) is not None or vm_kernels.is_debian(kernel)
    if is_debian and name not in LINUX and name not in OURS:
        instead = _instead(name, LINUX | OURS.keys(), "there are")
        raise BadInput(f"cc: {name!r} is a congestion control neither of Linux nor of brobust; {instead}")
    settings_of(control)


def check(control: str, kernel: Kernel) -> None:
    """Refuse a control that guests with this kernel do not have."""
    offered = kernel.congestion_controls()
    available = offered | {ours for ours, needed in OURS.items() if needed is None or needed in offered}
    check_offered(control, available, kernel.name)


def check_offered(control: str, offered: Iterable[str], kernel: str) -> None:
    """Refuse a control that the kernel does not offer, or bad settings."""
    name = name_of(control)
    if name not in offered:
        raise BadInput(f"cc: {name!r} is not available with kernel {kernel}; it has {', '.join(sorted(offered))}")
    settings_of(control)


def check_together(controls: Iterable[str]) -> None:
    """Refuse two flows that set the same control's parameters differently: a kernel has one set of them."""
    chosen: dict[str, str] = {}
    for control in controls:
        other = chosen.setdefault(name_of(control), control)
        if settings_of(other) != settings_of(control):
            raise BadInput(
                f"cc: {other!r} and {control!r} in one run: a kernel has only one set of parameters per control; "
                "measure them in two runs"
            )
