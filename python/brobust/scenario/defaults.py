"""The values of absent fields where each backend has its own.

They are filled in before a scenario is made, so that a scenario holds, and its hash covers, what is measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from brobust.drivers.modelled import MODELLED
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.scenario.fields import ROWS


@dataclass(frozen=True)
class OnlyKernel:
    """The name of a kernel beside which there is no other, so that nobody has to choose; whether it is built is said
    when it is found."""

    DEFAULT: str

    def default(self) -> str:
        return self.DEFAULT

    def why_default(self, name: str) -> None: ...


# Of hosts of backend lab it is whatever they run: the dataset then has its release. With accelerator uml kernels run in
# real time without QEMU.
RUNNING = OnlyKernel("host")
REAL_TIME = OnlyKernel(virtual_kernels.DEFAULT + virtual_kernels.REAL_TIME)

# Which kernels there are depends on the machine, so these choose; a scenario and a dataset hold the kernel's name.
KERNELS: dict[str, Any] = {"virtual": virtual_kernels, "vm": vm_kernels, "lab": RUNNING}
AS_WRITTEN = "as_written"
"""In the context of a validation: whether the machine is left alone, and its kernels with it."""


def kernels_of(backend: str, accelerator: object) -> Any:
    """Return what names a sender's kernel where nobody else does."""
    return REAL_TIME if backend == "vm" and accelerator == "uml" else KERNELS[backend]


def of_backend(backend: str, table: str) -> dict[str, Any]:
    """Return the default of each field of a table that has another one on another backend; the kernel has none."""
    return {
        row.key: row.default_on.get(backend, row.default)
        for row in ROWS
        if row.default_on and row.table == table and row.name != "kernel"
    }


def filled_in(given: Any, *, as_written: bool) -> Any:
    """Return the fields of a scenario with the backend's own values where they are absent, None or auto. `as_written`:
    with the usual kernel, whether or not this machine has it."""
    backend = given.get("backend", "virtual") if isinstance(given, Mapping) else None
    if not isinstance(backend, str) or backend not in KERNELS:
        return given  # the field's own type refuses it later
    defaults = of_backend(backend, "")
    programs = given.get("programs")
    if isinstance(programs, BaseModel):
        programs = programs.model_dump(exclude_unset=True)
    if backend == "virtual" and isinstance(programs, Mapping) and (programs.get("sender") or programs.get("receiver")):
        defaults["traffic"] = "programs"
    if given.get("kernel") in (None, "auto"):
        kernels = kernels_of(backend, given.get("accelerator"))
        defaults["kernel"] = kernels.DEFAULT if as_written else kernels.default()
    filled: dict[str, Any] = _fill(given, defaults)
    for field in ("contention", "receiver"):
        filled[field] = _contention(given.get(field, {}), backend)
    if isinstance(given.get("senders"), list | tuple):
        filled["senders"] = [_contention(sender, backend) for sender in given["senders"]]
    return filled


def _contention(table: Any, backend: str) -> Any:
    """Return a table of contention with the backend's own values where a field is absent."""
    defaults = of_backend(backend, "contention")
    driver = table.get("driver") if isinstance(table, Mapping) else None
    if backend == "virtual" and isinstance(driver, str) and driver.split(":")[0] in MODELLED:
        defaults["start_jitter"] = 0.0  # periods begin when the host's scheduler begins them
    return _fill(table, defaults)


def _fill(table: Any, defaults: Mapping[str, Any]) -> Any:
    """Return the table, as written or already validated, with these values where the field is absent, None or auto."""
    if isinstance(table, BaseModel):
        table = table.model_dump(mode="json", exclude_unset=True)
    if not isinstance(table, Mapping):
        return table
    lacking = {name: value for name, value in defaults.items() if table.get(name) in (None, "auto")}
    if table.get("replay") is not None and lacking.get("driver") not in (None, "auto"):
        lacking["driver"] = "replay"
    return {**table, **lacking}
