"""The kernel of senders that run in real time without QEMU (accelerator uml), if the user names none."""

from __future__ import annotations

from brobust.kernels import virtual

DEFAULT = virtual.DEFAULT + virtual.REAL_TIME


def default() -> str:
    """Return its name, also if it is not built yet: `virtual.find` then says how to build it."""
    return DEFAULT


def why_default(name: str) -> None:
    """Return nothing: no other kernel could be the default."""
