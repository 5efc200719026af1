"""The repair `robust` of kernel trees (kernel/patches/robust): the versions of BBR, and what it changes in each."""

import re
from dataclasses import dataclass
from pathlib import Path

from brobust import files
from brobust.errors import BadInput
from brobust.kernels import our_files

RULES = our_files.PATCHES
ROBUST, KEPT = "robust", "kept"
"""The repairs: semantic patches for BBR alone, and a series of plain patches (series.py)."""

FUNCTION = "bbr_has_inflight_deficit"
"""What the repair adds to a BBR, and calls."""


@dataclass(frozen=True)
class Bbr:
    """A BBR of a tree, and the code that the repair looks for in it."""

    version: int
    path: str
    """Its path in the tree."""
    gain: str
    """What the repair multiplies the bandwidth by."""
    main: str
    """The function that sets rate and window ..."""
    shape: str
    """... and what it has to call, one after the other."""

    @property
    def what(self) -> str:
        return f"BBR version {self.version}"

    @property
    def rule(self) -> str:
        """Return the path of the semantic patch below kernel/patches."""
        return f"{ROBUST}/bbr{self.version}.cocci"

    @property
    def explanation(self) -> tuple[str, ...]:
        return (
            f"new {FUNCTION}(): true in PROBE_BW if less than one BDP is in flight although data waits",
            f"{self.main}(): after such an ACK the pacing rate is {self.gain} times the bandwidth, until the next ACK",
            "unchanged: the model, cwnd, pacing_gain, and all modes but PROBE_BW; TSO bursts grow with the pacing rate",
        )

    def is_repaired(self, text: str) -> bool:
        """Return whether the file has the whole repair: the new function and its use. Refuse half of it."""
        found = len(re.findall(rf"\b{FUNCTION}\(", text))
        if found == 1:
            raise BadInput(
                f"{self.path}: {FUNCTION}() is defined, but nothing calls it; remove it, or add the call again"
            )
        return found > 1


_BBR, _BBR2 = "net/ipv4/tcp_bbr.c", "net/ipv4/tcp_bbr2.c"
_LATER = "bbr_set_pacing_rate(), bbr_set_cwnd()"
_VERSIONS = {
    1: Bbr(1, _BBR, "2.887", "bbr_main", "bbr_set_pacing_rate() and then bbr_set_cwnd()"),
    2: Bbr(2, _BBR2, "2.887", "bbr2_main", f"{_LATER}, bbr2_bound_cwnd_for_inflight_model()"),
    3: Bbr(3, _BBR, "2.773", "bbr_main", f"{_LATER}, bbr_bound_cwnd_for_inflight_model()"),
}


def read(file: Path) -> str:
    """Return a file's text. Bytes that are not UTF-8 survive when it is written again."""
    return files.read(file, files.MAX_TEXT).decode(errors="surrogateescape")


def robust(tree: Path) -> list[Bbr]:
    """Return each BBR of the tree, which the repair `robust` (docs/for-kernel.md) changes."""
    found = []
    if (tree / _BBR).is_file():
        found.append(_VERSIONS[_version_of_bbr(read(tree / _BBR))])
    if (tree / _BBR2).is_file():
        found.append(_VERSIONS[2])
    if not found:
        raise BadInput(f"{tree} has no {_BBR}; give an unpacked Linux source")
    return found


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
