#!/usr/bin/env python3
"""Measure the tables of docs/servers.md, which `make evidence` writes, and draw its figure.

.venv/bin/python benchmarks/servers.py each CSV             what each server sends (those that are installed)
.venv/bin/python benchmarks/servers.py tail DIR... CSV PNG  what requests took, of datasets of examples/server.toml
.venv/bin/python benchmarks/servers.py work DIR... CSV      the same if work takes time: its cost names each dataset
.venv/bin/python benchmarks/servers.py pages DIR... CSV     the same of examples/pages.toml: HTTP's version names each
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import brobust
from brobust.dataset import Dataset
from brobust.errors import BrobustError
from brobust.report.plot import styles

PAGE_BYTES = 10_000_000
SEEDS = 5
CURL, GET = "curl -sS -f -o /dev/null", "http://{sender}:{port}"
# ssh wants keys that nobody else can read, and sshd a directory of its own.
SECRETS = "umask 077; /bin/mkdir -p /run/sshd; /bin/cat {key} > /tmp/key; exec"
SSH = "-F none -i /tmp/key -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
USERS = ("/etc/passwd", "/etc/group")
FILES = {
    "nginx.conf": "daemon off; worker_processes 2; user root root; pid /tmp/pid; error_log /dev/null; events { }\n"
    "http { access_log off; sendfile on; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b;\n"
    "fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e; server {\n"
    "listen LISTEN; root /; } }\n",
    "lighttpd.conf": 'server.document-root = "/"\nserver.port = 5201\nserver.errorlog = "/dev/null"\n',
    "apache.conf": "ServerName x\nListen 5201\nPidFile /tmp/pid\nErrorLog /dev/null\nMutex pthread default\n"
    "DocumentRoot /\nUser www-data\nGroup www-data\nLoadModule mpm_event_module MODULES/mod_mpm_event.so\n"
    "LoadModule authz_core_module MODULES/mod_authz_core.so\n".replace("MODULES", "/usr/lib/apache2/modules"),
    "haproxy.conf": "defaults\n mode http\n timeout connect 5s\n timeout client 50s\n timeout server 50s\n"
    "frontend all\n bind :5201\n default_backend nginx\nbackend nginx\n server one 127.0.0.1:8080\n",
    "server.js": "const http = require('http'), fs = require('fs');\nhttp.createServer((asked, answer) => {\n"
    "answer.writeHead(200, {'Content-Length': fs.statSync(asked.url).size});\n"
    "fs.createReadStream(asked.url).pipe(answer); }).listen(+process.argv[2]);\n",
    "server.go": 'package main\nimport ("net/http"; "os")\n'
    'func main() { http.ListenAndServe(":"+os.Args[1], http.FileServer(http.Dir("/"))) }\n',
    "rsyncd.conf": "[all]\npath=/\nread only=yes\nuid=0\ngid=0\nuse chroot=no\nlog file=/dev/stderr\n",
    "sshd.conf": "StrictModes no\nUsePAM no\nPermitRootLogin yes\nAuthorizedKeysFile DIR/client.pub\n"
    "SetEnv LD_LIBRARY_PATH=/lib/programs\n",
}
# What serves and what asks; DIR is where the files above are, with a page.
SERVERS = {
    "nginx, 2 workers, sendfile; curl": ("nginx -c DIR/nginx.conf", f"{CURL} {GET}DIR/page", ()),
    "the same; wget": ("nginx -c DIR/nginx.conf", f"wget -q -O /dev/null {GET}DIR/page", ()),
    "lighttpd; curl": ("lighttpd -D -f DIR/lighttpd.conf", f"{CURL} {GET}DIR/page", ()),
    "Apache, event; curl": (
        "apache2 -DFOREGROUND -f DIR/apache.conf", f"{CURL} {GET}DIR/page", ("/usr/lib/apache2/modules", *USERS),
    ),
    "HAProxy before nginx; curl": (
        "sh -c '/usr/sbin/nginx -c DIR/behind.conf & exec /usr/sbin/haproxy -f DIR/haproxy.conf'",
        f"{CURL} {GET}DIR/page", ("/usr/sbin/nginx", "/usr/sbin/haproxy"),
    ),
    "python3 -m http.server; curl": (
        "/usr/bin/python3 -m http.server {port}", f"{CURL} {GET}DIR/page", (f"/usr/lib/python3.{sys.version_info[1]}",),
    ),
    "Go, net/http; curl": ("DIR/go-server {port}", f"{CURL} {GET}DIR/page", ()),
    "Node; curl": ("node DIR/server.js {port}", f"{CURL} {GET}DIR/page", ()),
    "rsync, daemon": (
        "rsync --daemon --no-detach --port={port} --config=DIR/rsyncd.conf",
        "rsync -q --port={port} rsync://{sender}/allDIR/page /tmp/", (),
    ),
    "OpenSSH": (
        f"sh -c '{SECRETS.format(key='DIR/host')} /usr/sbin/sshd -D -e -f DIR/sshd.conf -h /tmp/key -p {{port}}'",
        f"sh -c '{SECRETS.format(key='DIR/client')} /usr/bin/ssh -q {SSH} root@{{sender}} "
        "/bin/cat DIR/page > /dev/null'",
        ("/usr/sbin/sshd", "/usr/bin/ssh", "/bin/cat", "/bin/mkdir", "/bin/bash", *USERS),
    ),
}  # fmt: skip


def prepare(directory: Path) -> None:
    for name, text in FILES.items():
        (directory / name).write_text(text.replace("DIR", str(directory)).replace("LISTEN", "5201"))
    behind = FILES["nginx.conf"].replace("LISTEN", "127.0.0.1:8080")
    (directory / "behind.conf").write_text(behind)
    (directory / "page").write_bytes(os.urandom(PAGE_BYTES))
    if shutil.which("go"):
        environment = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off"}
        build = ["go", "build", "-o", "go-server", "server.go"]
        subprocess.run(build, cwd=directory, env=environment, check=True)
    if shutil.which("ssh-keygen"):
        for key in ("host", "client"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key], check=True)


def measured(name: str, cc: str, share: float, repeat: int, directory: Path) -> pl.DataFrame:
    """Return the row of a run of 3 s: 20 Mbit/s, 10 ms, a buffer of four BDP."""
    sender, receiver, more = (part if isinstance(part, tuple) else part.replace("DIR", str(directory))
                              for part in SERVERS[name])  # fmt: skip
    files = [str(file) for file in directory.iterdir() if file.name not in ("go-server", "server.go")]
    return brobust.run(
        {
            "path": {"bandwidth": "20mbit", "buffer": "4bdp"}, "duration": "3s", "flows": [{"cc": cc}],
            "contention": {"share": share, "timeslice": "10ms"},
            "programs": {"sender": sender, "receiver": receiver, "waits": "sender", "files": [*files, *more]},
        },
        repeat=repeat,
    ).runs  # fmt: skip


def each(directory: Path, sheet: Path) -> None:
    rows, missing = [], 0
    for name in SERVERS:
        row = {"server; client": name}
        try:
            for cc, share in ((cc, share) for cc in ("cubic", "bbr") for share in (1, 0.25)):
                runs = pl.concat([measured(name, cc, share, repeat, directory) for repeat in range(SEEDS)])
                rates = runs["throughput_mbps"].to_list()
                spread = f" ({min(rates):.1f} to {max(rates):.1f})" if max(rates) - min(rates) >= 0.1 else ""
                row[f"{cc}, {share:.0%}"] = f"{statistics.median(rates):.1f}{spread}"
            again = measured(name, cc, share, 0, directory)
            row["twice the same"] = "yes" if again["packet_hash"][0] == runs["packet_hash"][0] else "no"
        except BrobustError as refusal:
            print(f"{name}: {refusal}", file=sys.stderr)
            missing += 1
            continue
        rows.append(row)
    pl.DataFrame(rows).write_csv(sheet)
    if missing:
        sys.exit(f"servers: {sheet} lacks {missing} of {len(SERVERS)} servers, which could not be measured")


FIGURES = {
    "first_byte_median_ms": "first byte, median", "request_median_ms": "median", "request_p99_ms": "99 %",
}  # fmt: skip


def at(times: pl.Series, per_mille: int) -> str:
    """Return the time that this part of all does not exceed; infinity: it did not end, and nobody knows its time."""
    time = times.sort()[-(-len(times) * per_mille // 1000) - 1]
    return "-" if time == float("inf") else f"{time:.0f}"


Cells = dict[tuple[float, str], pl.DataFrame]


def took(datasets: list[Path]) -> tuple[Cells, list[dict[str, str]]]:
    """Return the runs by share and control, and a row of the table for each."""
    runs = pl.concat([Dataset.open(one).runs() for one in datasets]).filter(pl.col("outcome") == "ok")
    control = (
        pl.when(pl.col("pacing") == "kept").then(pl.col("cc") + ", kept schedule").otherwise("cc").alias("control")
    )
    runs, told = runs.with_columns(control), pl.concat([Dataset.open(one).requests() for one in datasets])
    cells = dict(iter(runs.group_by("share", "control", maintain_order=True)))
    rows = []
    for (share, name), of in sorted(cells.items(), key=lambda one: (-one[0][0], one[0][1])):
        row = {"CPU share": f"{share:.0%}", "control": name}
        for column, heading in FIGURES.items():
            values = of[column].drop_nulls()
            missing = len(values) < len(of)
            middle, low, high = (0, 0, 0) if missing else np.quantile(values.to_numpy(), [0.5, 0, 1])
            row[heading] = "-" if missing else f"{middle:.0f} ({low:.0f} to {high:.0f})"
        every = told.join(of, on="run", how="semi").with_columns(pl.col("completion_ms").fill_null(float("inf")))
        row["99.9 % of all runs"] = at(every["completion_ms"], 999)
        # What is due at the same time is a page, which is there with its last object.
        pages = every.group_by("run", "flow", "due_s").agg(pl.col("completion_ms").max())["completion_ms"]
        row["page, median"], row["page, 99 %"], row["pages"] = at(pages, 500), at(pages, 990), str(len(pages))
        row["answered a second"] = f"{np.median(of['requests_per_s'].to_numpy()):.0f}"
        row["n"], row["requests"] = str(of["run"].n_unique()), str(of["requests"].sum())
        row["unanswered"] = str(int((of["requests"] - of["requests_answered"]).sum()))
        rows.append(row)
    return cells, rows


def tail(datasets: list[Path], sheet: Path, figure: Path) -> None:
    cells, rows = took(datasets)
    pl.DataFrame(rows).write_csv(sheet)
    draw(cells, figure)


def named(what: str, datasets: list[Path], sheet: Path) -> None:
    rows = [{what: of.name.replace("_", " "), **row} for of in datasets for row in took([of])[1]]
    pl.DataFrame(rows).write_csv(sheet)


def draw(rows: Cells, to: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, column, title in zip(
        axes, ("request_median_ms", "request_p99_ms"), ("median", "99th percentile"), strict=True
    ):
        for name, (color, marker, dashes) in styles({name for _, name in rows}).items():
            places = sorted(share for share, of in rows if of == name)
            middles, below, above = [], [], []
            for share in places:
                values = rows[share, name][column].fill_null(float("inf"))
                middle, low, high = np.quantile(values.to_numpy(), [0.5, 0, 1])
                middles.append(middle)
                below.append(middle - low)
                above.append(high - middle)
            style = {"color": color, "marker": marker, "linestyle": dashes}
            axis.errorbar([share * 100 for share in places], middles, [below, above], capsize=3, label=name, **style)
        axis.set(title=title, xlabel="CPU share of the server [%]", yscale="log")
        axis.set_xticks(sorted({100 * share for share, _ in rows}))
        axis.set_yticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
        axis.tick_params(which="minor", left=False, labelleft=False)
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("time of a request [ms]")
    axes[0].legend()
    every = pl.concat(rows.values())
    n, kernels = min(of["run"].n_unique() for of in rows.values()), ", ".join(every["kernel"].unique().sort())
    figure.supxlabel(
        f"n = {n} runs of each, bars from the smallest to the largest; virtual time, {kernels}", fontsize=8
    )
    figure.tight_layout()
    figure.savefig(to, dpi=110)


def main() -> None:
    match sys.argv[1:]:
        case ["each", sheet]:
            with tempfile.TemporaryDirectory(prefix="servers-") as scratch:
                directory = Path(scratch)
                prepare(directory)
                each(directory, Path(sheet))
        case ["work" | "pages" as mode, *datasets, sheet] if datasets:
            named("cost" if mode == "work" else "HTTP", [Path(one) for one in datasets], Path(sheet))
        case ["tail", *datasets, sheet, figure] if datasets:
            tail([Path(one) for one in datasets], Path(sheet), Path(figure))
        case _:
            sys.exit("servers: give `each CSV`, `tail DIR... CSV PNG`, `work DIR... CSV` or `pages DIR... CSV`")


if __name__ == "__main__":
    try:
        main()
    except BrobustError as refusal:
        sys.exit(f"servers: {refusal}")
