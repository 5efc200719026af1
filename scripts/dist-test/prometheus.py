"""Start Prometheus with our rules beside the released `brobust watch --serve`, and ask it all that the dashboard asks:

prometheus.py PROMETHEUS TARBALL
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
SECONDS = 60
CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: brobust
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{cluster: here}}}}]
"""
# What a panel asks for which there is nothing here: no pods, and no BPF.
VARIABLES = {"cluster": ".*", "instance": ".*", "namespace": ".*", "pod": ".*", "__rate_interval": "30s"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


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


def queries() -> list[str]:
    board = json.loads((PACKAGING / "brobust-watch.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return [re.sub(r"\$(\w+)", lambda name: VARIABLES[name[1]], query) for query in asked]


def check(port: int) -> str:
    """Wait until the rules have recorded something of the sockets that send here; then ask everything."""
    until = time.monotonic() + SECONDS
    while not (ask(port, "query", query="instance:brobust_senders:sum > 0") or {}).get("result"):
        if time.monotonic() > until:
            sys.exit(f"nothing was recorded in {SECONDS} s; targets: {ask(port, 'targets')}")
        time.sleep(0.5)
    for group in ask(port, "rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] not in ("ok", "unknown"):
                sys.exit(f"rule {rule['name']}: {rule.get('lastError')}")
    answered = sum(bool(ask(port, "query", query=query)["result"]) for query in queries())
    clusters = ask(port, f"label/{'cluster'}/values")
    if clusters != ["here"] or answered < len(queries()) // 2:
        sys.exit(f"{answered} of {len(queries())} queries have an answer; clusters {clusters}")
    return f"{answered} of {len(queries())} queries of the dashboard have an answer"


def main(prometheus: str, tarball: str) -> None:
    with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as server:
        with tarfile.open(tarball) as files:
            program = next(entry for entry in files if entry.name.endswith("/bin/brobust"))
            files.extract(program, directory, filter="tar")
        watched, asked = free_port(), free_port()
        configuration = Path(directory, "prometheus.yml")
        configuration.write_text(CONFIGURATION.format(rules=PACKAGING / "prometheus/brobust-rules.yaml", port=watched))
        options = [f"--config.file={configuration}", f"--storage.tsdb.path={directory}/data"]
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        sender.setblocking(False)
        watch = [f"{directory}/{program.name}", "watch", "--serve", f"127.0.0.1:{watched}"]
        asking = [prometheus, *options, f"--web.listen-address=127.0.0.1:{asked}", "--log.level=error"]
        started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in (watch, asking)]
        try:
            # A receiver that does not read: its sender waits for the window, and is a sender.
            try:
                while True:
                    sender.send(bytes(65536))
            except BlockingIOError:
                pass
            print(check(asked))
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
            receiver.close()
            sender.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
