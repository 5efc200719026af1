"""Read the file that names the hosts of backend lab. docs/lab.md describes it for users."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from brobust import files, units
from brobust.errors import BadInput
from brobust.scenario import Scenario
from brobust.scenario.grid import one_line

MIN_CUT_AFTER, MAX_CUT_AFTER = 2_000_000_000, 600_000_000_000  # ns


def _destination(given: str) -> str:
    # ssh would take it for an option, and a shell for more than one word.
    if given.startswith("-") or not given or any(letter.isspace() for letter in given):
        raise ValueError(f"{given!r} is no destination of ssh; give HOST or USER@HOST, as in `ssh USER@HOST`")
    return given


def _address(given: str) -> str:
    try:
        return str(ipaddress.IPv4Address(given))
    except ValueError:
        raise ValueError(f"{given!r} is no IPv4 address; give the one that the measured packets have") from None


def _name(given: str) -> str:
    # Names of interfaces (dev_valid_name() in net/core/dev.c) and of namespaces become words of a shell.
    if not given or len(given) > 64 or given.startswith("-") or not all(c.isalnum() or c in "_.-@" for c in given):
        raise ValueError(f"{given!r} is no name; letters, digits, _ . - and @ are allowed")
    return given


def _cut_after(given: object) -> int:
    time = units.nanoseconds(given)
    if not MIN_CUT_AFTER <= time <= MAX_CUT_AFTER:
        raise ValueError(f"{units.show_time(time)} is not allowed; give 2s to 600s")
    return time


Name = Annotated[str, AfterValidator(_name)]


class Table(BaseModel):
    """A table of the file: a key that it does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Machine(Table):
    ssh: Annotated[str, AfterValidator(_destination)]
    sudo: bool = False
    """Whether our program is started by `sudo -n` there."""


class End(Machine):
    """A host whose socket sends or receives."""

    address: Annotated[str, AfterValidator(_address)]
    """Its address on the measured path."""
    namespace: Name | None = None
    """The network namespace of ip-netns(8) that has this address; None: that of the login."""


class Sender(End):
    max_steal: Annotated[float, BeforeValidator(units.fraction), Field(ge=0, le=1)] = 0.1
    """Part of a CPU's time that its hypervisor may give to others, or of its timers that may be late, before an
    undisturbed run counts as unfaithful."""


class PathHost(Machine):
    """A host that forwards between sender and receiver, and is the bottleneck."""

    namespace: Name | None = None
    to_sender: Name | None = None
    """Its interface towards the sender; None: the one that its routes name."""
    to_receiver: Name | None = None


class Hypervisor(Machine):
    """The host on which the sender is a VM, and which VM that is, as `brobust contend` is told."""

    qemu: str | None = Field(default=None, min_length=1)
    libvirt: str | None = Field(default=None, min_length=1)
    pid: int | None = Field(default=None, ge=2)
    threads: str | None = Field(default=None, pattern=r"^[0-9]+(,[0-9]+)*$")
    """Ids of its vCPU threads; None: those that its hypervisor names so."""

    @property
    def which(self) -> list[str]:
        """The options of `brobust contend`."""
        given = {"--qemu": self.qemu, "--libvirt": self.libvirt, "--pid": self.pid}
        which = [word for option, value in given.items() if value is not None for word in (option, str(value))]
        return which if self.threads is None else [*which, "--threads", self.threads]


class Hosts(Table):
    """Who measures. Without a path the receiver is the bottleneck, too."""

    sender: Sender
    receiver: End
    path: PathHost | None = None
    hypervisor: Hypervisor | None = None
    ssh_config: str | None = Field(default=None, min_length=1)
    """A file for `ssh -F`, relative to this one; None: the user's own."""
    cut_after: Annotated[int, BeforeValidator(_cut_after)] = 20_000_000_000
    """A connection on which nothing comes for so long (ns) is cut: the series ends, and the host undoes everything."""

    def broken_rules(self) -> Iterator[str]:
        ends = {"sender": self.sender, "receiver": self.receiver}
        places = {(end.ssh, end.namespace): name for name, end in ends.items()}
        if len(places) < 2:
            where = f"{self.sender.ssh}" + (f", namespace {self.sender.namespace}" if self.sender.namespace else "")
            yield f"receiver: it is where the sender is ({where}); give another host, or another namespace of it"
        if self.path is not None and (name := places.get((self.path.ssh, self.path.namespace))) is not None:
            yield f"path: it is where the {name} is ({self.path.ssh}); leave [path] out, and the receiver is the path"
        if self.sender.address == self.receiver.address:
            yield f"receiver.address: {self.receiver.address} is the sender's, too; give that of the receiver"
        named = [] if (there := self.hypervisor) is None else [there.qemu, there.libvirt, there.pid]
        if there is not None and len([one for one in named if one is not None]) != 1:
            yield "hypervisor: say which VM the sender is, by one of qemu, libvirt and pid"


def read(file: str) -> Hosts:
    given = files.read_toml(Path(file))
    try:
        hosts = Hosts.model_validate(given)
    except ValidationError as error:
        raise BadInput(f"{file}: {_one_line(error.errors()[0])}") from None
    if (broken := next(hosts.broken_rules(), None)) is not None:
        raise BadInput(f"{file}: {broken}")
    return hosts


def _one_line(error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    match error["type"]:
        case "extra_forbidden":
            return f"{field}: no such key; docs/lab.md lists all keys"
        case "missing":
            return f"{field}: it is missing; docs/lab.md shows the shortest file"
    return one_line(field, error)


def refusals(hosts: Hosts, scenario: Scenario) -> Iterator[str]:
    """Yield what of a scenario cannot be measured on these hosts, by what is written in the file."""
    if scenario.contention.active and hosts.hypervisor is None:
        yield (
            f"contention.share: {scenario.contention.share:g} takes the sender's CPU away, which only the host on "
            "which it is a VM can do; name that host as [hypervisor] in the hosts file, or give share 1"
        )
