"""Create the wire between the two guests: a bridge and two taps in a separate network namespace.

The namespace keeps the host's addresses, routes and firewall out of the experiment. When it is deleted, taps and bridge
disappear with it.
"""

import subprocess

from brobust.errors import MissingSupport, last_line
from brobust.host.session import Session

# Only the bottleneck may drop packets, so this queue is long enough for all.
TAP_QUEUE_PACKETS = 10_000


def create(session: Session, taps: list[str]) -> str:
    """Create the namespace with a bridge and these taps, and return its name."""
    name = session.record_namespace()
    _ip(["netns", "add", name])
    # Without forwarding delay, spanning tree and multicast queries the bridge behaves like a wire.
    _ip(["-n", name, "link", "add", "wire", "type", "bridge", "stp_state", "0", "forward_delay", "0",
         "mcast_snooping", "0"])  # fmt: skip
    _ip(["-n", name, "link", "set", "wire", "up"])
    for tap in taps:
        _ip(["-n", name, "tuntap", "add", tap, "mode", "tap", "vnet_hdr"])
        _ip(["-n", name, "link", "set", tap, "txqueuelen", str(TAP_QUEUE_PACKETS), "master", "wire", "up"])
    return name


def _ip(arguments: list[str]) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MissingSupport("ip is not installed; run `make setup` or `apt-get install iproute2`") from None
    if done.returncode != 0:
        why = f"ip {' '.join(arguments)} failed: {last_line(done.stderr)}"
        raise MissingSupport(f"{why}; `brobust doctor` says what this host lacks")
