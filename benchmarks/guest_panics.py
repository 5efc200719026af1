#!/usr/bin/env python3
"""Measure how often emulated guests panic, and which settings change that:

    sudo .venv/bin/python benchmarks/guest_panics.py --minutes 10 [--guests 4] [--only "max; qemu64"] [--churn]

Guests like the vm backend's sender carry flows of cubic, bbr and bbr_robust, each over a path on its own loopback
device, while the vCPU thread is limited to a share of a CPU. With --churn a control is loaded and unloaded all the
time, which patches the running kernel's code. Settings take turns, one round each from boot to boot, until each has had
its minutes.

--out keeps every panic with the end of its console, and every round as a line of rounds.jsonl; a later call with the
same directory adds to the table. Everything runs at nice 19. The interval of a rate is the exact 95 % interval of a
Poisson count. A *stall* is a round that ended with an error although the guest lives: usually a time-out, at nice 19
beside other work.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A separate directory: a brobust that measures at the same time is not refused because of it, and does not clean it.
os.environ["BROBUST_RUNTIME"] = tempfile.mkdtemp(prefix="guest-panics-")

import psutil
from scipy.stats import chi2

from brobust import _core
from brobust.drivers import schedules
from brobust.errors import BrobustError
from brobust.host.session import Session
from brobust.kernels import vm as vm_kernels
from brobust.testbed import accelerator, image, qemu
from brobust.testbed.qemu import Guest, GuestConfig

Command = list[str]
BOOT_SECONDS = 180.0
"""Longer than usual, for guests at nice 19 beside other work."""
FLOW_SECONDS = 5


def _value(command: Command, option: str, change: Callable[[str], str]) -> Command:
    at = command.index(option) + 1
    return [*command[:at], change(command[at]), *command[at + 1 :]]


def _cpu(model: str) -> Callable[[Command], Command]:
    return lambda command: _value(command, "-cpu", lambda _: model)


def _append(words: str) -> Callable[[Command], Command]:
    return lambda command: _value(command, "-append", lambda line: f"{line} {words}")


def _machine(change: Callable[[str], str]) -> Callable[[Command], Command]:
    return lambda command: _value(command, "-machine", change)


SETTINGS: dict[str, Callable[[Command], Command]] = {
    "max": _cpu("max"),
    "timer check": lambda command: _value(
        command, "-append", lambda line: line.replace(" no_timer_check", "")
    ),
    "qemu64": _cpu("qemu64"),
    "Nehalem": _cpu("Nehalem"),
    "Haswell": _cpu("Haswell-noTSX"),
    "max,la57=off": _cpu("max,la57=off"),
    "max,no smap/smep": _cpu("max,smap=off,smep=off"),
    "max,no xsave": _cpu("max,xsave=off"),
    "max,no pku": _cpu("max,pku=off,pks=off"),
    "nokaslr": _append("nokaslr"),
    "nosmp": _append("nosmp"),
    "lapic=notscdeadline": _append("lapic=notscdeadline"),
    "preempt=none": _append("preempt=none"),
    "no hpet": _machine(lambda text: f"{text},hpet=off"),
    "machine pc": _machine(lambda text: text.replace("q35", "pc")),
    "thread=single": lambda command: ["-accel" if w == "-accel" else w for w in _machine(
        lambda text: text.replace(",accel=tcg", ""))(command)] + ["-accel", "tcg,thread=single"],
    "1 GB": lambda command: _value(command, "-m", lambda _: "1024"),
}  # fmt: skip


@dataclass
class Round:
    """What a guest did between two boots."""

    setting: str
    kernel: str
    guest_minutes: float
    cpu_minutes: float
    flows: int
    panics: int
    stalls: int
    words: str


PATH = "modprobe -a sch_tbf sch_netem; tc qdisc replace dev lo root handle 1: netem delay 5ms limit 10000; \
tc qdisc replace dev lo parent 1: handle 2: tbf rate {mbps}mbit burst 64k limit 100000; ip link set lo mtu 1500"
CHURN = "while :; do brobust-guest cc load brb_reno; brobust-guest cc unload brb_reno; done"


def one_round(name: str, setting: str, args: argparse.Namespace, session: Session) -> Round:
    kernel = vm_kernels.find(args.kernel)
    begun, flows, panics, stalls, words = time.monotonic(), 0, 0, 0, ""
    config = GuestConfig(name, tap="", mac="")
    with Guest.start(config, kernel, image.build(kernel), "tcg", session) as guest:
        try:
            if args.starve_boot:
                with held(appeared(guest), args, session):
                    guest.wait_booted(BOOT_SECONDS)
            guest.wait_booted(BOOT_SECONDS)
            ask = guest.agent.run
            ask("modprobe", "tcp_bbr", timeout=60)
            ask("bash", "-c", PATH.format(mbps=args.mbps), timeout=60)
            ask("brobust-guest", "cc", "load", "bbr_robust", timeout=120)
            for command in [["brobust-guest", "spin"]] * (not args.idle) + [["bash", "-c", CHURN]] * args.churn:
                guest.agent.spawn(*command)
            with held(guest.vcpu_threads[0], args, session):
                for control in itertools.cycle(("bbr", "cubic", "bbr_robust")):
                    if time.monotonic() - begun > args.round:
                        break
                    guest.agent.spawn("iperf3", "-s", "-1", "-p", "5201")
                    client = f"sleep 1; exec iperf3 -c 127.0.0.1 -p 5201 -C {control} -t {FLOW_SECONDS}"
                    ask("bash", "-c", client, timeout=FLOW_SECONDS + 120)
                    flows += 1
        except BrobustError as error:
            if guest.died():
                panics, words = 1, guest.cause_of_death()
            else:
                stalls, words = 1, str(error)
            (args.out / f"{setting}-{time.time():.0f}").write_text(guest.console.text)
        spent = psutil.Process(guest.process.pid).cpu_times() if guest.process.poll() is None else None
        cpu_minutes = (spent.user + spent.system) / 60 if spent else 0.0
    return Round(
        setting, kernel.release, (time.monotonic() - begun) / 60, cpu_minutes, flows, panics, stalls, words
    )  # fmt: skip


def appeared(guest: Guest) -> int:
    """Return the vCPU's thread as soon as it exists."""
    while True:
        with contextlib.suppress(BrobustError, OSError):
            return qemu.vcpu_threads(guest.process.pid)[0]
        time.sleep(0.002)


@contextlib.contextmanager
def held(thread: int, args: argparse.Namespace, session: Session) -> Iterator[None]:
    slice_ns = round(args.slice_ms * 1e6)
    period_ns = round(slice_ns / args.share)
    if args.share >= 1:
        yield
    elif args.driver == "deadline":
        slices = json.dumps(schedules.slices(slice_ns, period_ns))
        deadline = _core.Contention("deadline", [(thread, None, slices)])
        deadline.start()
        while not deadline.settle():
            deadline.start()
        try:
            yield
        finally:
            with contextlib.suppress(_core.ContentionError):  # the thread has ended
                deadline.stop()
    else:
        groups = session.hold_groups([thread], slice_ns, period_ns)
        try:
            yield
        finally:
            session.release_groups(groups)


def changed(command: Callable[..., Command], settings: dict[int, str]) -> Callable[..., Command]:
    """Return a function that makes QEMU's command line with the setting of the thread that calls it."""

    def make(*args: object) -> Command:
        line = SETTINGS[settings[threading.get_ident()]](command(*args))
        line = _value(line, "-name", lambda name: name.replace("brobust-", "guest-panics-"))
        return _value(line, "-append", lambda words: words.replace(" quiet", ""))

    return make


def interval(count: int, minutes: float) -> tuple[float, float]:
    """Return the exact 95 % interval of a Poisson rate, per thousand minutes."""
    low = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    return 1000 * low / minutes, 1000 * chi2.ppf(0.975, 2 * count + 2) / 2 / minutes


def table(rounds: list[dict[str, Any]]) -> str:
    lines = [
        "| setting | guest-minutes | CPU-minutes | boots | flows | panics | stalls | panics per 1000 guest-minutes |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for key in dict.fromkeys((r["setting"], r["options"], r["kernel"]) for r in rounds):
        mine = [r for r in rounds if (r["setting"], r["options"], r["kernel"]) == key]
        minutes, cpu, flows, panics, stalls = (
            sum(r[name] for r in mine) for name in ("guest_minutes", "cpu_minutes", "flows", "panics", "stalls")
        )
        low, high = interval(panics, minutes)
        lines.append(
            f"| {', '.join(key)} | {minutes:.1f} | {cpu:.1f} | {len(mine)} | {flows} | {panics} | {stalls} "
            f"| {1000 * panics / minutes:.0f} ({low:.0f} to {high:.0f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="guest-minutes for each setting")
    parser.add_argument("--only", default="", help=f"settings, separated by semicolons; of {'; '.join(SETTINGS)}")
    parser.add_argument("--guests", type=int, default=4, help="guests at once")
    parser.add_argument("--share", type=float, default=0.25, help="of a CPU, for the vCPU")
    parser.add_argument("--slice-ms", type=float, default=10)
    parser.add_argument("--mbps", type=float, default=20)
    parser.add_argument("--round", type=float, default=90, help="seconds from boot to boot")
    parser.add_argument("--kernel", default="debian-6.12")
    parser.add_argument("--idle", action="store_true", help="let the guest sleep: no `brobust-guest spin`")
    parser.add_argument("--driver", choices=("quota", "deadline"), default="quota", help="deadline is above nice 19")
    parser.add_argument("--starve-boot", action="store_true", help="hold the vCPU to its share from its start on")
    parser.add_argument("--churn", action="store_true", help="load and unload a control all the time")
    parser.add_argument("--out", type=Path, default=Path("guest-panics"))
    args = parser.parse_args()
    os.nice(19)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args.out.mkdir(parents=True, exist_ok=True)
    log = args.out / "rounds.jsonl"
    chosen = [word.strip() for word in args.only.split(";")] if args.only else list(SETTINGS)
    options = f"{args.driver}, share {args.share:g} in slices of {args.slice_ms:g} ms"
    options += "".join(f", {name}" for name in ("idle", "churn", "starve_boot") if getattr(args, name))
    print(f"QEMU {accelerator.qemu_version()}, {args.kernel}, {options}", file=sys.stderr)
    spent: dict[str, float] = dict.fromkeys(chosen, 0.0)
    lock = threading.Lock()
    of_thread: dict[int, str] = {}
    qemu._command = changed(qemu._command, of_thread)
    qemu.NICE = "0"  # as this process is
    image.build(vm_kernels.find(args.kernel))

    def work(number: int, session: Session) -> None:
        while due := [s for s in chosen if spent[s] < args.minutes]:
            with lock:
                setting = min(due, key=lambda s: spent[s])
                spent[setting] += args.round / 60  # as if it were over, so that another takes the next
            of_thread[threading.get_ident()] = setting
            done = one_round(f"guest{number}", setting, args, session)
            with lock:
                spent[setting] += done.guest_minutes - args.round / 60
                line = json.dumps({"options": options, **vars(done)})
                with log.open("a") as out:
                    print(line, file=out)
                print(line, file=sys.stderr, flush=True)

    try:
        with Session.start() as session:
            threads = [threading.Thread(target=work, args=(n, session), daemon=True) for n in range(args.guests)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        shutil.rmtree(os.environ["BROBUST_RUNTIME"], ignore_errors=True)
    print(table([json.loads(line) for line in log.read_text().splitlines()]))


if __name__ == "__main__":
    main()
