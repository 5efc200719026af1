#!/usr/bin/env python3
"""Makes the pictures of docs/see.md again, of real runs: docs/see-*.png.

    scripts/setup.sh browser && .venv/bin/python scripts/pictures.py [NAME ...]

NAME is the end of a picture's name, such as explore; without it, all are made, in a few minutes. Pages, text and the
notebook are shown by Chromium, as tests drive it (tests/browser.py). Perfetto's UI is in no package registry: the
timeline is drawn here, of nothing but the file that `brobust trace` wrote, read with Perfetto's own classes. The
notebook's picture ends before its sliders, which need a server of notebooks. `recording` needs bbr in this host's
kernel."""

import argparse
import html
import io
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from browser import Browser  # noqa: E402

BROBUST = ROOT / ".venv/bin/brobust"
COLLAPSED = "--cc bbr --share 0.5 --buffer 12bdp --repeat 1"
SHEET = """<!doctype html><meta charset=utf-8><style>body{font:15px/1.5 system-ui;margin:1em 1.4em;max-width:62em}
pre{font:13px/1.5 monospace;white-space:pre-wrap;background:#f5f7f9;padding:.6em .9em;margin:.5em 0}
img,svg{max-width:760px;height:auto}</style>"""


def command(line: str, here: Path) -> str:
    return subprocess.run([BROBUST, *line.split()], cwd=here, check=True, capture_output=True, text=True).stdout


def save(name: str, png: bytes) -> None:
    """Write a picture with 256 colours: screens have few, and a repository keeps each version."""
    from PIL import Image

    file = ROOT / f"docs/see-{name}.png"
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB")


@contextmanager
def served(here: Path, *shown: str) -> Iterator[str]:
    with subprocess.Popen([BROBUST, "explore", *shown], cwd=here, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:  # else an error would wait for ever
            process.terminate()


def page(here: Path, content: str) -> bytes:
    (here / "page.html").write_text(SHEET + content)
    with Browser(here) as browser:
        browser.open((here / "page.html").as_uri(), width=900, height=100)
        browser.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        return browser.picture()


def explain(here: Path) -> None:
    command(f"run {COLLAPSED} --out seen", here)
    lines = [f"$ brobust run {COLLAPSED} --out seen", "$ brobust explain seen", command("explain seen", here).rstrip()]
    save("explain", page(here, f"<pre>{html.escape(chr(10).join(lines))}</pre>"))


def explore(here: Path) -> None:
    asked = "share=50&timeslice=10&bandwidth=100&rtt=10&buffer=1&duration=20&cc=cubic,bbr,brb_bbr3"
    with served(here) as address, Browser(here) as browser:
        for width, dark in ((1280, False), (1280, True), (390, False), (390, True)):
            browser.open(f"{address}&{width}{dark}#{asked}", width, dark=dark)
            browser.wait("shown.length === 3 && document.querySelectorAll('#charts canvas').length === 3")
            save(("explore" if width > 500 else "phone") + ("-dark" if dark else ""), browser.picture())


def dataset(here: Path) -> None:
    grid = "--cc cubic,bbr,bbr_robust,bbr_steady --share 1,0.75,0.5,0.25 --bandwidth 20mbit --buffer 12bdp"
    command(f"run {grid} --samples 10ms --duration 5s --repeat 3 --out data", here)
    with served(here, "data") as address, Browser(here) as browser:
        browser.open(address)
        browser.wait("document.querySelectorAll('.cells button').length === 16")
        browser.run("[...document.querySelectorAll('.cells tr')].find(one => /^bbr$/.test(one.firstChild.textContent))"
                    ".querySelectorAll('button')[1].click()")  # fmt: skip
        browser.run("document.querySelector('.runs button').click()")
        browser.wait("/The cause is/.test(pick('words').textContent)")
        save("dataset", browser.picture())


def notebook(here: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    shown = nbformat.read(ROOT / "examples/why.ipynb", as_version=4)
    shown.cells = shown.cells[:8]
    NotebookClient(shown, kernel_name="python3", resources={"metadata": {"path": str(here)}}).execute()
    parts = []
    for cell in shown.cells:
        text = html.escape(cell.source.lstrip("# ")).replace("\n\n", "\n\n" if cell.cell_type == "code" else "<p>")
        parts.append(f"<pre>{text}</pre>" if cell.cell_type == "code" else f"<p>{text}</p>")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(data["text/html"])
            elif "image/png" in data:
                parts.append(f'<img src="data:image/png;base64,{data["image/png"].strip()}">')
            elif "text" in output:
                parts.append(f"<pre style='background:none'>{html.escape(output['text'])}</pre>")
    save("notebook", page(here, "".join(parts)))


def recording(here: Path) -> None:
    """Record a connection of bbr that writes 25 Mbit/s over loopback; its reader sleeps from the 12th to the 20th s."""
    client = "iperf3 --client 127.0.0.1 --congestion bbr --bitrate 25M --time 60 --cport 5202"
    watch = "watch --json --record minute.jsonl --count 40 --filter"
    with subprocess.Popen(["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL) as reader:
        time.sleep(1)  # until it listens
        with subprocess.Popen(client.split(), stdout=subprocess.DEVNULL) as writer:
            for second, number in ((12, signal.SIGSTOP), (20, signal.SIGCONT)):
                threading.Timer(second, reader.send_signal, [number]).start()
            subprocess.run([BROBUST, *watch.split(), "sport 5202"], cwd=here, check=True, stdout=subprocess.DEVNULL)
            writer.terminate()
        reader.terminate()
    with served(here, "minute.jsonl") as address, Browser(here) as browser:
        browser.open(address)
        browser.wait("document.querySelectorAll('#charts canvas').length > 3")
        save("recording", browser.picture())


def timeline(here: Path) -> None:
    """Draw a tenth of a second of a timeline's tracks, in their order: slices, instants, counters."""
    from matplotlib.figure import Figure
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

    programs = {"sender": "iperf3 -c {receiver} -p {port} -t {seconds} -C {cc}", "receiver": "iperf3 -s -1 -p {port}"}
    lines = ['duration = "2s"', 'samples = "ack"', "packets = true", "repeat = 1", 'traffic = "programs"',
             "[contention]", "share = 0.5", "[path]", 'buffer = "12bdp"', "[[flows]]", 'cc = "bbr_steady"',
             "[programs]", *(f"{end} = {json.dumps(line)}" for end, line in programs.items())]  # fmt: skip
    (here / "run.toml").write_text("\n".join(lines))
    command("run run.toml --out timeline", here)
    command("trace timeline -o run.perfetto-trace", here)
    whole = perfetto.Trace.FromString((here / "run.perfetto-trace").read_bytes())
    tracks, events = {}, defaultdict(list)
    for one in whole.packet:
        if one.HasField("track_descriptor"):
            tracks[one.track_descriptor.uuid] = one.track_descriptor
        elif one.HasField("track_event"):
            events[one.track_event.track_uuid].append((one.timestamp / 1e6, one.track_event))
    begin, end = 1000, 1100
    drawn = [uuid for uuid in tracks if any(begin <= at <= end for at, _ in events[uuid])]
    figure = Figure(figsize=(12.8, 0.36 * len(drawn) + 0.7), layout="constrained")
    rows = figure.subplots(len(drawn), 1, sharex=True)
    for axes, uuid in zip(rows, drawn, strict=True):
        times = [at for at, _ in events[uuid]]
        if (unit := tracks[uuid].counter.unit_name) or events[uuid][0][1].type == 4:
            values = [event.double_counter_value for _, event in events[uuid]]
            axes.step(times, values, where="post", linewidth=1)
            # A counter is written where it changes: what it was at the beginning stands until then.
            before = [value for at, value in zip(times, values, strict=True) if at <= begin][-1:]
            seen = before + [value for at, value in zip(times, values, strict=True) if begin < at <= end]
            low, high = min(seen), max(seen)
            axes.set_ylim(low - 0.2 * (high - low or 1), high + 0.2 * (high - low or 1))
            ends = " to ".join(f"{float(f'{end:.4g}'):,g}" for end in (low, high))
            axes.annotate(ends, (1.005, 0.5), xycoords="axes fraction", fontsize=7, va="center")
        elif events[uuid][0][1].type == 3:
            axes.vlines([at for at in times if begin <= at <= end], 0, 1, linewidth=0.6)
        else:
            begun = None
            for at, event in events[uuid]:
                if event.type == 1:
                    begun = (at, event.name)
                elif begun and at > begin and begun[0] < end:
                    axes.axvspan(begun[0], at, color="C0", alpha=0.55, linewidth=0.3)
                    if at - begun[0] > 4:
                        axes.text(max(begun[0], begin) + 0.3, 0.5, begun[1], fontsize=7, va="center", clip_on=True)
        axes.set_yticks([])
        label = tracks[uuid].name + (f" [{unit}]" if unit else "")
        if label.startswith("thread"):  # below its process and the programs of its end: both ends may have the number
            process = tracks[tracks[uuid].parent_uuid]
            label += tracks[process.parent_uuid].name.removeprefix("programs")
        axes.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    rows[-1].set_xlim(begin, end)
    rows[-1].set_xlabel("ms after the run's start")
    png = io.BytesIO()
    figure.savefig(png, dpi=100)
    save("timeline", png.getvalue())


PICTURES: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (explain, timeline, explore, dataset, notebook, recording)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"one of {', '.join(PICTURES)}")
    names = parser.parse_args().names or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        parser.error(f"{unknown[0]!r} is no picture; give one of {', '.join(PICTURES)}")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="brobust-") as scratch:
            PICTURES[name](Path(scratch))
