"""`brobust watch` names the owner of each socket, and says whom a CPU limit throttles, in cgroups like a kubelet's."""

import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import BROBUST, Brobust, eventually, json_lines, killed_at_end
from test_watch_metrics import samples, scrape, served

pytestmark = [pytest.mark.root, pytest.mark.host]

TOP = Path("/sys/fs/cgroup")
PERIOD_US, QUOTA_US = 100_000, 1_000
"""The least that the kernel allows: even where others leave it little, a pod uses it up in each period."""
FAST = ("--interval", "200ms", "--window", "4s", "--count", "25", "--top", "100")

SENDER = """
import socket, sys, threading
port, buffer, size, work = map(int, sys.argv[1:])
to = socket.socket()
to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
to.connect(("127.0.0.1", port))
while True:
    for _ in range(work):
        pass
    to.sendall(bytes(size))
"""
BULK = ("65536", "65536", "0")
"""A sender that always has data, while it runs."""
WORKING = ("65536", "1000", "200000")
"""A sender that works for some milliseconds for each kilobyte."""


def _hierarchies() -> list[Path]:
    """Return where a pod's cgroups are: in version 2, or, hybrid, also in version 1, which then limits CPU time."""
    if (TOP / "cgroup.controllers").exists():
        return [TOP]
    both = [TOP / "unified", TOP / "cpu"]
    if not all((path / "cgroup.procs").exists() for path in both):
        pytest.skip(f"{TOP} has neither cgroups of version 2, nor both versions beside each other")
    return both


class Pod:
    """The cgroup of a container as containerd makes it below a kubelet whose cgroup driver is systemd."""

    def __init__(self, number: int) -> None:
        self.name, self.container = f"shop-{number}", f"{number:x}" * 64
        self.uid = f"{number:08x}-8d4a-4f6b-9c0e-1a2b3c4d5e6f"
        slices = ("brobusttest.slice", f"brobusttest-kubepods-burstable-pod{self.uid.replace('-', '_')}.slice")
        self.path = Path(*slices, f"cri-containerd-{self.container}.scope")
        self.cgroups = [top / self.path for top in _hierarchies()]

    def make(self) -> None:
        self.remove()  # a test that was killed leaves its pods, with their limits
        for top in _hierarchies():
            place = top
            for name in self.path.parts:
                if top == TOP:
                    (place / "cgroup.subtree_control").write_text("+cpu")
                place = place / name
                place.mkdir(exist_ok=True)

    def limit(self) -> None:
        """Limit the pod's CPU time. The limit of a pod is that of its containers together, so it is one level up."""
        above = self.cgroups[-1].parent
        if (above / "cpu.max").exists():
            (above / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
        else:
            (above / "cpu.cfs_quota_us").write_text(str(QUOTA_US))

    def remove(self) -> None:
        for cgroup in self.cgroups:
            for place in (cgroup, cgroup.parent, cgroup.parent.parent):
                with suppress(OSError):  # the last one is still used by another pod
                    place.rmdir()

    def log(self, root: Path) -> None:
        """Make what a kubelet makes for the logs."""
        (root / "var/log/pods" / f"web_{self.name}_{self.uid}" / "app").mkdir(parents=True)
        links = root / "var/log/containers"
        links.mkdir(exist_ok=True)
        (links / f"{self.name}_web_app-{self.container}.log").symlink_to("/nowhere")

    def sender(self, port: int, how: tuple[str, ...]) -> AbstractContextManager[subprocess.Popen[str]]:
        join = "; ".join(f"echo $$ > {cgroup}/cgroup.procs" for cgroup in self.cgroups)
        command = ["bash", "-c", f'{join}; exec python3 -c "$@"', "sender", SENDER, str(port), *how]
        return killed_at_end(command)


@contextmanager
def _receiver() -> Iterator[int]:
    """Yield the port of a receiver that discards what it gets."""

    def discard(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(1 << 20):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=discard, args=[listener.accept()[0]], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with the host's cgroups, and a place for a kubelet's files."""
    (tmp_path / "sys").symlink_to("/sys")
    return tmp_path


@contextmanager
def _pods(root: Path, count: int, throttled: int) -> Iterator[tuple[list[Pod], int]]:
    """Yield pods with two senders each, and the port to which they send. The first pods are throttled."""
    pods = [Pod(number) for number in range(1, count + 1)]
    with ExitStack() as stack:
        port = stack.enter_context(_receiver())
        for pod in pods:
            stack.callback(pod.remove)
            pod.make()
            pod.log(root)
            for how in (BULK, WORKING):
                stack.enter_context(pod.sender(port, how))
        assert eventually(lambda: _connections(port) >= 2 * count)
        for pod in pods[:throttled]:
            pod.limit()
        yield pods, port


def _connections(port: int) -> int:
    listed = subprocess.run(["ss", "-tnH", f"dport = :{port}"], capture_output=True, text=True, check=True).stdout
    return listed.count("ESTAB")


def test_throttled_sockets_are_found_and_named_and_no_others(brobust: Brobust, root: Path) -> None:
    with _pods(root, 6, 4) as (pods, port):
        watch = ("watch", "--json", *FAST, "--filter", f"dport {port}", "--host-root", str(root))
        sweep = json_lines(brobust(*watch).stdout)[-1]
    flows = sweep["flows"]
    assert len(flows) == 12
    of = {pod.name: [flow for flow in flows if flow["pod"] == pod.name] for pod in pods}
    for pod in pods:
        assert len(of[pod.name]) == 2
        for flow in of[pod.name]:
            assert (flow["namespace"], flow["container"], flow["cgroup"]) == ("web", "app", f"/{pod.path}")
    found = {flow["local"] for flow in flows if flow["cause"] == "throttled"}
    true = {flow["local"] for pod in pods[:4] for flow in of[pod.name]}
    assert found == true, [(flow["pod"], flow["cause"], flow["throttled_share"]) for flow in flows]
    assert all(0.1 < flow["throttled_share"] <= 1 for flow in flows if flow["local"] in true)
    assert all(flow["throttled_share"] is None for pod in pods[4:] for flow in of[pod.name])
    owners = {owner["pod"]: owner for owner in sweep["owners"]}
    assert owners["shop-1"]["causes"] == {"throttled": 2} and owners["shop-1"]["rate_mbps"] > 0


def test_pods_have_series_and_lines_and_a_throttled_one_is_found_by_once(brobust: Brobust, root: Path) -> None:
    with _pods(root, 1, 1) as ((pod,), port):
        only = ("--filter", f"dport {port}", "--host-root", str(root))
        with served("--per-socket", *only) as address:
            got: dict[Any, float] = {}
            text = ""
            while not got.get(("brobust_pod_sockets", "throttled", "app", "web", "shop-1")):
                got = samples(text := scrape(address))
                time.sleep(0.1)
        once = brobust("watch", "--once", *FAST[:4], *only)
        (root / "var/log/containers" / f"shop-1_web_app-{pod.container}.log").unlink()
        (root / "var/log/pods" / f"web_shop-1_{pod.uid}" / "app").rmdir()
        (root / "var/log/pods" / f"web_shop-1_{pod.uid}").rmdir()
        (unnamed, _) = json_lines(brobust("watch", "--json", *FAST[:4], "--count", "1", *only).stdout)[0]["flows"]
    # The labels are container, namespace, pod.
    assert got["brobust_pod_throttled_ratio", "app", "web", "shop-1"] > 0.1
    assert re.search(r'brobust_top_socket_rate.*namespace="web",pod="shop-1",container="app"', text)
    assert once.returncode == 1 and "throttled" in once.stdout and once.stdout.count("  web/shop-1/app\n") == 2
    assert (unnamed["namespace"], unnamed["pod"], unnamed["container"]) == (None, pod.uid, pod.container[:12])


def test_names_are_found_where_there_are_only_cgroups_of_version_2(tmp_path: Path) -> None:
    """The hierarchy of version 2 is mounted once more, alone. Where the host is hybrid it limits no CPU time."""
    top = tmp_path / "sys/fs/cgroup"
    top.mkdir(parents=True)
    mounted = 'mount -t cgroup2 none "$1" && shift && exec "$@"'
    with _pods(tmp_path, 1, 0) as ((pod,), port):
        watch = ("watch", "--json", *FAST[:4], "--count", "1", "--filter", f"dport {port}", "--host-root", tmp_path)
        inside = ["unshare", "--mount", "bash", "-c", mounted, "mounted", top, BROBUST, *watch]
        done = subprocess.run(inside, capture_output=True, text=True, check=True)
    for flow in json_lines(done.stdout)[0]["flows"]:
        assert (flow["namespace"], flow["pod"], flow["cgroup"]) == ("web", pod.name, f"/{pod.path}")


def test_a_socket_outside_of_pods_has_the_path_of_its_cgroup(brobust: Brobust, tmp_path: Path) -> None:
    with _receiver() as port, socket.create_connection(("127.0.0.1", port)):
        ours = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
        watch = ("watch", "--json", *FAST[:4], "--count", "1", "--filter", f"dport {port}")
        (flow,) = json_lines(brobust(*watch).stdout)[0]["flows"]
        (hidden,) = json_lines(brobust(*watch, "--host-root", str(tmp_path)).stdout)[0]["flows"]
    assert ours and flow["cgroup"] == ours[1] and flow["pod"] is None
    assert hidden["cgroup"] is None and hidden["cgroup_id"] == flow["cgroup_id"] > 0
