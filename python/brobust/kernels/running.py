"""The kernel of senders on hosts of backend lab: whatever they run."""

from __future__ import annotations

DEFAULT = "host"


def default() -> str:
    """Return its name. What the host runs is not known before it is asked; the dataset then has its release."""
    return DEFAULT


def why_default(name: str) -> None:
    """Return nothing: no other kernel could be the default."""
