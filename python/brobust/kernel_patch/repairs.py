"""The repairs of kernel trees (kernel/patches), and the files of a tree that each changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brobust import files
from brobust.errors import BadInput
from brobust.kernels import our_files

RULES = our_files.PATCHES


@dataclass(frozen=True)
class File:
    """A file of a tree, and what a repair changes in it."""

    path: str
    """Its path in the tree."""
    rule: str
    """The path of the semantic patch below kernel/patches."""
    mark: str
    """A regular expression that matches the repair's code ..."""
    marks: int
    """... this many times in a repaired file. With fewer matches the repair is incomplete."""
    shape: str
    """What the semantic patch looks for, as a sentence."""
    what: str
    """What the file is, in a few words."""
    explanation: tuple[str, ...]
    """What the repair does in this file, in sentences."""
    details: dict[str, Any] = field(default_factory=dict)
    """What the repair does in this file, for --json."""

    def is_repaired(self, text: str) -> bool:
        """Return whether the file has the whole repair: the new code and its use. Refuse half of it."""
        found = len(re.findall(self.mark, text))
        if 0 < found < self.marks:
            name = re.sub(r"\W+", "", self.mark.removeprefix(r"\b"))
            raise BadInput(f"{self.path}: {name}() is defined, but nothing calls it; remove it, or add the call again")
        return found >= self.marks


@dataclass(frozen=True)
class _Bbr:
    """A version of BBR, and the code that the repair `robust` looks for in it."""

    number: int
    gain: str
    main: str
    shape: str


_VERSIONS = {
    1: _Bbr(1, "2.887", "bbr_main", "bbr_set_pacing_rate() and then bbr_set_cwnd()"),
    2: _Bbr(2, "2.887", "bbr2_main", "bbr_set_pacing_rate(), bbr_set_cwnd(), bbr2_bound_cwnd_for_inflight_model()"),
    3: _Bbr(3, "2.773", "bbr_main", "bbr_set_pacing_rate(), bbr_set_cwnd(), bbr_bound_cwnd_for_inflight_model()"),
}

_BBR, _BBR2 = "net/ipv4/tcp_bbr.c", "net/ipv4/tcp_bbr2.c"


def read(file: Path) -> str:
    """Return a file's text. Bytes that are not UTF-8 survive when it is written again."""
    return files.read(file, files.MAX_TEXT).decode(errors="surrogateescape")


def robust(tree: Path) -> list[File]:
    """Return the files that the repair `robust` (docs/for-kernel.md) changes: each BBR of the tree."""
    found = []
    if (tree / _BBR).is_file():
        found.append(_robust(_BBR, _VERSIONS[_version_of_bbr(read(tree / _BBR))]))
    if (tree / _BBR2).is_file():
        found.append(_robust(_BBR2, _VERSIONS[2]))
    if not found:
        raise BadInput(f"{tree} has no {_BBR}; give an unpacked Linux source")
    return found


def _robust(path: str, bbr: _Bbr) -> File:
    return File(
        path,
        rule=f"robust/bbr{bbr.number}.cocci",
        mark=r"\bbbr_has_inflight_deficit\(",
        marks=2,
        shape=f"{bbr.main}() has to call {bbr.shape}, one after the other",
        what=f"BBR version {bbr.number}",
        explanation=(
            "new bbr_has_inflight_deficit(): true in PROBE_BW if less than one BDP is in flight although data waits",
            f"{bbr.main}(): after such an ACK the pacing rate is {bbr.gain} times the bandwidth, until the next ACK",
            "unchanged: the model, cwnd, pacing_gain, and all modes but PROBE_BW; TSO bursts grow with the pacing rate",
        ),
        details={"bbr_version": bbr.number, "gain": bbr.gain},
    )


@dataclass(frozen=True)
class Series:
    """A series of plain patches (series.py)."""

    mark: str
    """The file that tells whether a tree has it all."""


ROBUST = "robust"  # the repair that is a semantic patch
SERIES = {"kept": Series("net/ipv4/sysctl_net_ipv4.c")}

# What the files are that a series changes, and what it does there, in sentences.
WHAT = {
    "Documentation/networking/ip-sysctl.rst": ("the documentation of sysctls",),
    "include/linux/tcp.h": ("a socket's state", "8 bytes: the lag, and a cap that is learned from losses"),
    "include/net/netns/ipv4.h": ("a network namespace's state",),
    "include/net/tcp.h": ("what TCP's files share",),
    "include/uapi/linux/pkt_sched.h": ("fq's attributes", "new TCA_FQ_PACING_LAG, us; 0 at first: off"),
    "net/ipv4/sysctl_net_ipv4.c": ("sysctls", "new net.ipv4.tcp_pacing_lag_us; 0 at first: off"),
    "net/ipv4/tcp_bbr.c": ("BBR",),
    "net/ipv4/tcp_input.c": (
        "losses",
        "new tcp_pacing_count(): losses next to each other lower the cap on what is in flight while it catches up",
    ),
    "net/ipv4/tcp_output.c": (
        "pacing",
        "new tcp_pacing_resumes(): if only pacing kept the data and the socket is looked at too late, that is a lag",
        "tcp_update_skb_after_send(): gaps are shorter, a 16th at least, until the lag is made up for",
    ),
    "net/sched/sch_fq.c": ("fq", "new fq_flow_catch_up(): the same for flows without departure times of their own"),
}


def _version_of_bbr(text: str) -> int:
    """Return the version of a tcp_bbr.c: from its BBR_VERSION, else from names that only one version has."""
    if defined := re.search(r"^#define\s+BBR_VERSION\s+([0-9]+)", text, re.MULTILINE):
        number = int(defined[1])
    elif "lt_use_bw" in text:  # the policer detector, which version 2 dropped
        number = 1
    elif "bbr_bound_cwnd_for_inflight_model" in text:
        number = 3
    else:
        raise BadInput(
            f"{_BBR} is not a known version of BBR: it does not define BBR_VERSION, and has neither version 1's "
            "lt_use_bw nor version 3's bbr_bound_cwnd_for_inflight_model()"
        )
    if number not in (1, 3):
        raise BadInput(f"{_BBR}: BBR_VERSION is {number}; the repairs are written for 1 and 3")
    return number
