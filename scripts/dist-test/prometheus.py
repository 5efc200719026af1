"""Start Prometheus with our rules beside the released `brobust watch --serve`, and ask it all that the dashboard asks:

prometheus.py PROMETHEUS TARBALL      # as root: a pod with a CPU limit is among the senders

Printed: how much was asked. What has no answer is an error, since there is something of everything here.
"""

import contextlib
import json
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
SECONDS = 90
CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: brobust
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{cluster: here}}}}]
"""
VARIABLES = {"cluster": "here", "instance": ".*", "namespace": "web", "pod": "shop", "__rate_interval": "30s"}
CGROUPS = Path("/sys/fs/cgroup")
UID, CONTAINER = "00000001-8d4a-4f6b-9c0e-1a2b3c4d5e6f", "1" * 64
SENDER = """
import socket, sys
to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    to.sendall(bytes(65536))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def pod(root: Path) -> Iterator[None]:
    """Run a sender in the cgroup of a container, as a kubelet makes it, that has 1 % of a CPU.

    `root` becomes what `brobust watch --host-root` looks at.
    """
    (root / f"var/log/pods/web_shop_{UID}").mkdir(parents=True)
    (root / "sys").symlink_to("/sys")
    (root / "var/log/containers").mkdir()
    (root / f"var/log/containers/shop_web_app-{CONTAINER}.log").symlink_to("/nowhere")
    second = (CGROUPS / "cgroup.controllers").exists()
    if second:
        (CGROUPS / "cgroup.subtree_control").write_text("+cpu")
    # Where both versions are beside each other, the first limits CPU time.
    tops = [CGROUPS] if second else [CGROUPS / "unified", CGROUPS / "cpu"]
    pods = [top / f"kubepods-pod{UID.replace('-', '_')}.slice" for top in tops]
    groups = [one / f"cri-containerd-{CONTAINER}.scope" for one in pods]

    def receive(server: socket.socket) -> None:
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            pass

    with contextlib.ExitStack() as stack:
        for directory in [*pods, *groups]:
            directory.mkdir()
            stack.callback(directory.rmdir)
        limit = ("cpu.max", "1000 100000") if second else ("cpu.cfs_quota_us", "1000")
        (pods[-1] / limit[0]).write_text(limit[1])
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=receive, args=[server], daemon=True).start()
        join = "; ".join(f"echo $$ >{group}/cgroup.procs" for group in groups)
        command = ["sh", "-c", f'{join}; exec python3 -c "$@"', "sh", SENDER, str(server.getsockname()[1])]
        sender = stack.enter_context(subprocess.Popen(command))
        stack.callback(sender.kill)
        yield


def ask(port: int, what: str, **parameters: str) -> Any:
    """Return what Prometheus answers; None if it is not there yet. It says what is wrong with a query."""
    url = f"http://127.0.0.1:{port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{parameters}: {error.read().decode()[:300]}")
    except OSError:
        return None


def asked(groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the queries of the dashboard and its variables, recorded series, and the series that alerts look at."""
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        if rule["health"] == "err":
            sys.exit(f"rule {rule['name']}: {rule.get('lastError')}")
    board = json.loads((PACKAGING / "brobust-watch.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    lists = [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    queries += [re.sub(r"label_values\((.*), (\w+)\)", r"count by (\2) (\1)", one) for one in lists]
    alerts = [re.sub('"[^"]*"', "", rule["query"]) for rule in rules if rule["type"] == "alerting"]
    return {
        "queries of the dashboard": [re.sub(r"\$(\w+)", lambda name: VARIABLES[name[1]], one) for one in queries],
        "recorded series": [rule["name"] for rule in rules if rule["type"] == "recording"],
        "series of alerts": sorted(
            {name for one in alerts for name in re.findall(r"\bup\b|[\w:]*brobust_[\w:]+", one)}
        ),
    }


def check(port: int) -> str:
    """Ask everything until all of it has an answer, and return how much that was."""
    until = time.monotonic() + SECONDS
    everything: dict[str, list[str]] = {}
    while True:
        if (rules := ask(port, "rules")) and rules["groups"]:
            everything = asked(rules["groups"])
            flat = [query for queries in everything.values() for query in queries]
            silent = [query for query in flat if not ask(port, "query", query=query)["result"]]
            if not silent:
                return ", ".join(f"{len(queries)} {what}" for what, queries in everything.items())
            if time.monotonic() > until:
                sys.exit("no answer in {} s to\n  {}".format(SECONDS, "\n  ".join(silent)))
        elif time.monotonic() > until:
            sys.exit(f"Prometheus did not answer in {SECONDS} s")
        time.sleep(0.5)


def main(prometheus: str, tarball: str) -> None:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        with tarfile.open(tarball) as files:
            program = next(entry for entry in files if entry.name.endswith("/bin/brobust"))
            files.extract(program, directory, filter="tar")
        watched, port = free_port(), free_port()
        configuration = Path(directory, "prometheus.yml")
        configuration.write_text(CONFIGURATION.format(rules=PACKAGING / "prometheus/brobust-rules.yaml", port=watched))
        stack.enter_context(pod(root := Path(directory, "root")))
        # A receiver that does not read: its sender waits for the window.
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.create_connection(server.getsockname()))
        stack.enter_context(server.accept()[0])
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(65536))
        watch = [f"{directory}/{program.name}", "watch", "--serve", f"127.0.0.1:{watched}", "--host-root", str(root)]
        asking = [prometheus, f"--config.file={configuration}", f"--storage.tsdb.path={directory}/data"]
        for command in (watch, [*asking, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            stack.callback(process.terminate)
        print(check(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
