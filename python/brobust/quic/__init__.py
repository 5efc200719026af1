"""QUIC stacks as senders in virtual time: what there is, what each offers, and where it is once it is built.

A stack is a released package of a registry. Ours is only a bulk sender and its receiver around its public interface
(examples/quic). Nothing slow is imported here: `brobust run --help` reads the names.
"""

import hashlib
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from brobust import files
from brobust.errors import BadInput, MissingSupport, meant
from brobust.host.cache import cache_directory
from brobust.host.locks import refuse_foreign_to_root
from brobust.kernels import our_files

PREFIX = "quic:"
# How each switch is written where it has not its default.
CHANGES = {"gso": "gso=off", "txtime": "txtime=on"}
# The rules of our pacer (crates/pacer); the first is the one that we propose.
RULES = ("kept", "none", "half-gap", "quantum", "intervals", "loop")
PACER = "brobust-pacer"
MAX_PROGRAM = 256_000_000  # bytes; the largest has 8 MB
SOURCES = our_files.directory("examples/quic")


@dataclass(frozen=True)
class Qlog:
    """Where a stack's qlog has other units than the format says."""

    bits: float = 1
    """What makes its rates bit/s."""
    milliseconds: float = 1
    """What makes its round-trip times ms."""


@dataclass(frozen=True)
class Stack:
    name: str
    package: str
    version: str
    tool: str
    """The program that builds it: cargo or go."""
    controls: tuple[str, ...]
    late: str
    """What its pacer does with a departure that was missed, in a few words."""
    where: str
    """The file of the package in which that is read."""
    switches: tuple[str, ...] = ("gso",)
    """What can be switched after its name: gso (on unless switched off), txtime (off unless switched on)."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Other programs that its build needs, each with the package of Debian that has it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What its build has in its environment."""
    flags: tuple[str, ...] = ()
    """What else cargo is told."""
    qlog: Qlog | None = Qlog()
    """What its qlog means; None: its program writes none."""
    base: str = ""
    """The stack whose program this is, built with a patch of ours."""
    patched: str = ""
    """The package that a patch of ours changes, and its version."""
    patch: str = "pacer.patch"
    """The file of that patch."""
    patch_of: str = ""
    """The stack whose patch that is; empty: its own."""
    rules: tuple[str, ...] = ()
    """What rule= may say, if the patch puts our pacer in place of the stack's own; the first is meant without it."""

    @property
    def program(self) -> Path:
        return directory(self.name) / f"brobust-{self.name}"

    @property
    def sources(self) -> Mapping[str, Path]:
        """Our files, from which it is built."""
        files = our_files.below(SOURCES / (self.base or self.name))
        if self.base:
            files |= {self.patch: SOURCES / (self.patch_of or self.name) / self.patch}
        if self.rules:
            ours = our_files.below(our_files.directory("crates/pacer/src"))
            files |= {f"{PACER}/src/{name}": path for name, path in ours.items()}
        return {name: path for name, path in files.items() if "target/" not in name}

    @property
    def state(self) -> str:
        """Whether it is here: built, stale (our files have changed since) or missing."""
        try:
            built = files.read_json(directory(self.name) / "built.json")
            whole = hashlib.sha256(files.read(self.program, MAX_PROGRAM)).hexdigest() == built["sha256"]
        except (BadInput, OSError, KeyError, TypeError):
            return "missing"
        if not whole:
            return "missing"
        return "built" if built.get("sources") == our_files.hash_of(self.sources) else "stale"


_STACKS = (
    Stack(
        "quinn", "quinn", "0.11.12", "cargo", ("bbr", "cubic", "reno"),
        "it keeps what 2 ms of its window are, at least 10 and at most 256 packets; it paces at 1.25 windows per "
        "round-trip time, also with bbr", "quinn-proto 0.11.19 src/connection/pacing.rs",
        needs={"cc": "gcc"}, qlog=Qlog(milliseconds=1000),
    ),
    Stack(
        "s2n-quic", "s2n-quic", "1.91.0", "cargo", ("bbr", "cubic"),
        "it keeps one burst: with bbr 1 ms of its pacing rate, 2 to 10 packets; with cubic 10 packets, at 1.25 windows "
        "per round-trip time", "s2n-quic-core 0.91.0 src/recovery/pacing.rs, src/recovery/bbr/pacing.rs",
        needs={"cc": "gcc"}, variables={"AWS_LC_SYS_NO_JITTER_ENTROPY": "1"}, qlog=None,
    ),
    Stack(
        "quic-go", "github.com/quic-go/quic-go", "0.65.0", "go", ("reno",),
        "it keeps 10 packets, or 2 ms of its pacing rate if that is more, which is 1.25 windows per round-trip time",
        "quic-go 0.65.0 internal/congestion/pacer.go",
    ),
    Stack(
        "quiche", "quiche", "0.30.0", "cargo", ("bbr", "cubic", "reno"),
        "it keeps nothing with bbr (version 2), but with txtime=on it is ahead of its schedule by an eighth of the "
        "round-trip time, 1 to 5 ms; cubic and reno do not pace", "quiche 0.30.0 src/recovery/gcongestion/pacer.rs, "
        "src/recovery/congestion/recovery.rs",
        switches=("gso", "txtime"), needs={"cmake": "cmake", "c++": "g++"}, qlog=Qlog(bits=8),
    ),
    Stack(
        "tquic", "tquic", "1.6.0", "cargo", ("bbr", "bbr3", "cubic", "copa"),
        "it keeps what 1 ms of its window are, at least 10 and at most 128 packets",
        "tquic 1.6.0 src/congestion_control/pacing.rs",
        switches=(), needs={"cmake": "cmake", "c++": "g++"},
    ),
    Stack(
        "ngtcp2", "ngtcp2-sys", "0.2.0", "cargo", ("bbr", "cubic", "reno"),
        "it keeps all: it adds up how late packets were, and shortens later waits by up to half until that is made up "
        "for", "ngtcp2 1.25.0 lib/ngtcp2_conn.c (in ngtcp2-sys 0.2.0)",
        needs={"cmake": "cmake", "cc": "gcc", "clang": "clang libclang-dev"},
        variables={"AWS_LC_SYS_NO_JITTER_ENTROPY": "1"}, flags=("--ignore-rust-version",),
    ),
    Stack(
        "quinn-pacer", "quinn", "0.11.12", "cargo", ("bbr", "cubic", "reno"),
        "with our pacer (docs/pacer.md): by its rule, it keeps what the CPU kept, or what rule= says; with bbr it "
        "paces at bbr's rate, else at 1.25 windows per round-trip time", "crates/pacer/src/rules.rs",
        needs={"cc": "gcc", "patch": "patch"}, base="quinn", patched="quinn-proto 0.11.19",
        qlog=Qlog(milliseconds=1000), rules=RULES,
    ),
    Stack(
        "s2n-quic-pacer", "s2n-quic", "1.91.0", "cargo", ("bbr",),
        "with our pacer (docs/pacer.md): by its rule, it keeps what the CPU kept, or what rule= says; it paces at its "
        "estimate", "crates/pacer/src/rules.rs",
        needs={"cc": "gcc", "patch": "patch"}, variables={"AWS_LC_SYS_NO_JITTER_ENTROPY": "1"},
        base="s2n-quic", patched="s2n-quic-core 0.91.0", qlog=None, rules=RULES,
    ),
    Stack(
        "noq", "noq", "1.4.0", "cargo", ("bbr3", "cubic", "reno"),
        "it keeps what 2 ms of its rate are, at least 10 packets, but no more than 10 ms; with bbr3 it paces at its "
        "estimate, else at 1.25 windows per round-trip time", "noq-proto 1.4.0 src/connection/pacing.rs",
        needs={"cc": "gcc"}, qlog=None,
    ),
    Stack(
        "x-net", "golang.org/x/net", "0.62.0", "go", ("reno",),
        "it keeps 10 packets; it paces at 1.25 windows per round-trip time", "golang.org/x/net 0.62.0 quic/pacer.go",
        switches=(), qlog=None,
    ),
)  # fmt: skip
STACKS: dict[str, Stack] = {stack.name: stack for stack in _STACKS}


def _kept(name: str, controls: tuple[str, ...], patched: str) -> Stack:
    """Return a stack whose own pacer makes up for absences, by a small patch that its maintainers could take."""
    base, kept = STACKS[name], f"{name}-kept"
    late = f"with a patch of ours for {name} (docs/quic.md), it makes up for the CPU's absences, of up to 100 ms"
    return replace(
        base, name=kept, controls=controls, late=late, where=f"examples/quic/{kept}/{base.patch}",
        needs={**base.needs, "patch": "patch"}, base=name, patched=patched,
    )  # fmt: skip


STACKS |= {
    stack.name: stack
    for stack in (
        _kept("quiche", ("bbr",), "quiche 0.30.0"),
        _kept("noq", ("bbr3",), "noq-proto 1.4.0"),
        _kept("tquic", ("bbr", "bbr3"), "tquic 1.6.0"),
        _kept("ngtcp2", ("bbr",), "ngtcp2-sys 0.2.0"),
        _kept("s2n-quic", ("bbr",), "s2n-quic-core 0.91.0"),
        replace(
            STACKS["quinn-pacer"],
            name="quinn-rate",
            controls=("bbr",),
            rules=(),
            patch="rate.patch",
            late="as quinn; a patch of ours has its bbr measure the delivery rate (docs/quic.md)",
            where="examples/quic/quinn-rate/rate.patch",
        ),
    )
}
NAMES = tuple(f"{PREFIX}{name}" for name in STACKS)

_H3 = replace(STACKS["quinn"], name="quinn-h3", package="h3-quinn", version="0.0.10", controls=("bbr", "cubic"))
_PAGES = replace(STACKS["quic-go"], name="pages")
# No bulk senders, but programs for [programs], by the names of their files: servers of HTTP/3, and what asks for pages.
WEB = {
    f"brobust-{one.name}": one
    for one in (
        _H3, _PAGES,
        replace(
            STACKS["quinn-pacer"], name="quinn-h3-pacer", package=_H3.package, version=_H3.version,
            controls=_H3.controls, base=_H3.name, patch_of="quinn-pacer",
        ),
    )
}  # fmt: skip
# Those of them that have sockets of IPv4 only.
OVER_IPV4 = ("brobust-quinn-h3", "brobust-quinn-h3-pacer")


def find(name: str) -> Stack:
    every = STACKS | {one.name: one for one in WEB.values()}
    found = WEB.get(name) or every.get(name.removeprefix(PREFIX))  # as commands and as traffic have it
    if found is None:
        raise BadInput(f"{name!r} is not a QUIC stack that brobust knows; {_those_that_there_are(name, every)}")
    return found


def _those_that_there_are(name: str, known: Collection[str], prefix: str = "") -> str:
    """Return what a refused name was probably meant to be, else all names."""
    near = meant(name.removeprefix(PREFIX), known)
    return f"did you mean {prefix}{near}?" if near else f"there are {', '.join(f'{prefix}{one}' for one in known)}"


def web_program(name: str) -> str | None:
    """Return the file of a program of WEB by its name; None: it is none of them, or not built."""
    one = WEB.get(name)
    return str(_executable(one)) if one is not None and one.state == "built" else None


def _executable(stack: Stack) -> Path:
    refuse_foreign_to_root(directory(stack.name), cache_directory())
    return stack.program


def directory(name: str) -> Path:
    return cache_directory() / "quic" / name


def of_traffic(traffic: str) -> tuple[Stack, tuple[str, ...]] | None:
    """Return the stack that `quic:NAME [gso=off] [txtime=on]` names, and the words after it; None for other traffic."""
    if not traffic.startswith(PREFIX):
        return None
    name, *words = traffic.removeprefix(PREFIX).split()
    return STACKS[name], tuple(words)


def named(traffic: object) -> list[Stack]:
    """Return the stacks that one value or a list of values names as traffic, which nobody has checked yet."""
    names = [str(one).partition(" ")[0] for one in (traffic if isinstance(traffic, list) else [traffic])]
    return [stack for stack in STACKS.values() if f"{PREFIX}{stack.name}" in names]


def traffic(given: object) -> str:
    """Return a stack as traffic in the one way of writing it; refuse what names none."""
    name, *words = str(given).removeprefix(PREFIX).split() or [""]
    if f"brobust-{name}" in WEB:
        raise ValueError(
            f"{str(given)!r} is no traffic, but a program for [programs]: brobust-{name} (docs/servers.md)"
        )
    if name not in STACKS:
        raise ValueError(f"{str(given)!r} names no QUIC stack; {_those_that_there_are(name, STACKS, PREFIX)}")
    rule, words = _rule(STACKS[name], words)
    switches = STACKS[name].switches
    known = [f"{switch}={value}" for switch in switches for value in ("on", "off")]
    if any(word not in known for word in words) or len({word.split("=")[0] for word in words}) < len(words):
        allowed = [" and ".join(CHANGES[switch] for switch in switches)] if switches else []
        raise ValueError(f"{str(given)!r}: after {name} there may be {', or '.join([*allowed, 'nothing'])}")
    return " ".join([f"{PREFIX}{name}", *rule, *(CHANGES[switch] for switch in switches if CHANGES[switch] in words)])


def _rule(stack: Stack, words: list[str]) -> tuple[list[str], list[str]]:
    """Return the word that says the rule of our pacer, none for other stacks, and the other words."""
    if not stack.rules:
        return [], words
    rules = [word for word in words if word.startswith("rule=")] or [f"rule={stack.rules[0]}"]
    if len(rules) > 1 or rules[0].removeprefix("rule=") not in stack.rules:
        raise ValueError(f"{' '.join(words)!r}: after {stack.name} there may be one rule=, of {', '.join(stack.rules)}")
    return rules, [word for word in words if word not in rules]


def check_built(stacks: Collection[Stack]) -> None:
    lacking = {stack.name: state for stack in stacks if (state := stack.state) != "built"}
    if not lacking:
        return
    how = "not built" if set(lacking.values()) == {"missing"} else "built from other files than are here now"
    if len(set(lacking.values())) > 1:
        how = f"not built, or {how}"
    build = f"`brobust quic build {' '.join(lacking)}` builds {'it' if len(lacking) == 1 else 'them'}"
    names = " and ".join(f"{PREFIX}{name}" for name in lacking)
    raise MissingSupport(f"traffic: {names} {'is' if len(lacking) == 1 else 'are'} {how}; {build}")


def commands(stack: Stack, words: Collection[str], *, qlog: bool = False) -> tuple[str, str]:
    """Return the commands at the sender and at the receiver. Refuse a stack that is not built."""
    check_built([stack])
    program = shlex.quote(str(_executable(stack)))
    gso = "off" if "gso=off" in words or "gso" not in stack.switches else "on"
    rest = "".join(f" {word.removeprefix('rule=')}" for word in words if word.startswith("rule="))
    rest += " txtime" if "txtime=on" in words else ""
    if qlog and stack.qlog is not None:
        rest += " qlog"
    return f"{program} send {{receiver}} {{port}} {{seconds}} {{cc}} {gso}{rest}", f"{program} receive {{port}}"
