#!/usr/bin/env python3
"""How fast the page of `brobust explore` is, in Chromium: its first paint, and from a slider to the picture.

    .venv/bin/python benchmarks/page.py [--repeat 20]

First paint is the browser's own (first-contentful-paint) after a navigation. A move sets the CPU share with the page at
100 Mbit/s and 5 s of virtual time, and ends when the browser draws the frame that has all three charts of every
control. `to the answer` is the part of it from the question until all of its answer has come. Printed: median, minimum
and maximum, ms."""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from spread import shown

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import Browser

BROBUST = Path(sys.executable).with_name("brobust")
SCENARIO = "bandwidth=100&rtt=10&buffer=12&duration=5&timeslice=10"
CONTROLS = ("bbr", "cubic,bbr,bbr_robust")
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
MOVE = """new Promise(done => {
    const slider = pick('share'), before = shown, begun = performance.now();
    slider.value = %d;
    slider.dispatchEvent(new Event('input'));
    const look = () => {
        if (shown === before) return requestAnimationFrame(look);
        requestAnimationFrame(() => {
            const asked = performance.getEntriesByType('resource').filter(one => one.name.endsWith('/run')).at(-1);
            done([performance.now() - begun, asked.duration]);
        });
    };
    look();
})"""
"""Answers how long a move took, and how long the server's answer to it, ms."""


@contextlib.contextmanager
def served() -> Iterator[tuple[str, float]]:
    """Yield the page's address, and how long the command took until it printed it, s."""
    begun = time.perf_counter()
    with subprocess.Popen([BROBUST, "explore"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        yield address, time.perf_counter() - begun
        process.send_signal(signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how fast the page of `brobust explore` is.")
    parser.add_argument("--repeat", type=int, default=20, help="Moves of the slider, and navigations.")
    repeat = parser.parse_args().repeat
    with served() as (address, started), tempfile.TemporaryDirectory() as scratch, Browser(Path(scratch)) as browser:
        print(f"brobust explore, until it prints its address: {started * 1e3:.0f} ms")
        paints = []
        for number in range(repeat):
            browser.open(f"{address}&{number}#{SCENARIO}&cc=bbr")
            browser.wait(PAINTED)
            paints.append(browser.run(PAINTED))
            browser.wait("shown.length")
        print(f"first paint: {shown(paints, 0)} ms, n = {repeat}")
        for controls in CONTROLS:
            browser.open(f"{address}&{controls}#{SCENARIO}&cc={controls}&share=50")
            browser.wait("shown.length")
            moves = [browser.run(MOVE % (number % 20)) for number in range(repeat)]
            whole, answer = ([move[part] for move in moves] for part in (0, 1))
            print(
                f"slider to picture, {controls}: {shown(whole, 0)} ms, n = {repeat}; to the answer {shown(answer, 0)}"
            )


if __name__ == "__main__":
    main()
