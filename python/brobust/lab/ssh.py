"""Reach a host by the system's ssh, put our program there, and start its agent (crates/command/src/lab.rs).

ssh is a process of OpenSSH, since only that has all of the user's configuration, keys, agents and jump hosts. One
connection carries everything to a host, so there is nothing to multiplex; what the user's configuration says about
multiplexing is not used, so that no other session keeps ours alive or ends it.

The program is copied into memory (/dev/shm) and removes its file as soon as it runs. It undoes all that was changed
when its standard input ends, whoever dies, or when nothing comes for `cut_after`.
"""

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brobust.errors import MissingSupport, RunFailed, printable
from brobust.host.children import killed_with_parent
from brobust.host.programs import host_program
from brobust.lab.hosts import Machine
from brobust.testbed.agent import Agent

CONNECT_SECONDS = 10  # of TCP
LOGIN_SECONDS = 60.0  # then, on a busy host
UPLOAD_SECONDS = 120.0  # without progress
MAX_UPLOAD_SECONDS = 600.0
END_SECONDS = 30.0
ERRORS_SECONDS = 1.0  # after the end of ssh, which a ProxyCommand may outlive
SEND, READY, NO = "brobust-send", '{"ready"', "brobust-no"
MAX_NOISE = 1 << 16  # bytes that a login may print before our script speaks
MAX_ERRORS = 1 << 16  # of what is printed to standard error, so many bytes are kept, the last ones

# Nothing but a POSIX shell and the tools of every Linux is needed until our program runs. It is not exec'ed: a program
# that cannot start leaves the shell to remove it.
_SCRIPT = """
echo  # a login may have printed words without the end of their line
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH; umask 077
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "brobust-no $(uname -sm): it needs Linux on x86-64"; exit 1; }
# What a host that was switched off has kept of a copy that never ran: directories that nobody but us can have made.
find /dev/shm /run /tmp "$HOME" -maxdepth 1 -type d -name '.brobust-lab.????????' -user "$(id -u)" -mmin +60 \
  -exec rm -rf {} + 2>/dev/null
# Who gave up while the login took its time is gone when we speak: PIPE. A shell that a signal ends runs no EXIT trap.
copy=; trap 'rm -rf "$copy"' EXIT; trap 'exit 1' HUP INT PIPE TERM
for place in /dev/shm /run /tmp "$HOME"; do
  copy=$(mktemp -d "$place/.brobust-lab.XXXXXXXX" 2>/dev/null) || continue
  program=$copy/brobust-host
  # Programs may be started there, and there is room.
  printf '#!/bin/sh\\n' >"$program" && chmod 700 "$program" && "$program" && head -c SIZE /dev/zero >"$program" && break
  rm -rf "$copy"; copy=
done 2>/dev/null
no="/dev/shm, /run, /tmp and ~ have no room for a program of SIZE bytes, or let none be started"
[ -n "$copy" ] || { echo "brobust-no $no"; exit 1; }
echo "brobust-send $(cat /proc/sys/kernel/random/boot_id) $SSH_CONNECTION"
head -c SIZE >"$program" || exit
# With these, each bash that our program starts would read .bashrc and the like, and print what that prints.
unset SSH_CLIENT SSH2_CLIENT BASH_ENV ENV
SUDO"$program" lab agent --remove "$copy" OPTIONS
"""


class Connection:
    """A host with our agent on it, from `start` to `close`."""

    def __init__(self, name: str, machine: Machine):
        self.name = f"{name} ({machine.ssh})"
        self.machine = machine
        self.agent: Agent
        self.program: str
        """The path of our program there, while the agent runs."""
        self.boot_id = ""
        """What Linux calls this boot of the host: two hosts with the same one are the same."""
        self.peers: tuple[str, str] | None = None
        """The addresses of the ssh connection: where it comes from, as the host sees it, and the host's own."""
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = b""
        self._is_ready = False
        self._ended = threading.Event()
        self._alive: threading.Thread | None = None

    def start(self, config: Path | None, cut_after: float, beside_others: bool) -> None:
        """Begin to connect; call this in the main thread, with which ssh ends. `cut_after` is in seconds."""
        if shutil.which("ssh") is None:
            raise MissingSupport("ssh is not installed; `apt-get install openssh-client`, or the like")
        self._cut_after = cut_after
        self._file = ["-F", str(config)] if config is not None else []
        options = {
            "BatchMode": "yes", "ConnectTimeout": CONNECT_SECONDS, "ControlMaster": "no", "ControlPath": "none",
            "ClearAllForwardings": "yes", "ServerAliveInterval": max(1, int(cut_after / 4)), "ServerAliveCountMax": 3,
            "LogLevel": "ERROR",
            # As scp does: a host gets neither the user's agent nor display, whatever the configuration gives to logins.
            "ForwardAgent": "no", "ForwardX11": "no", "RemoteCommand": "none",
        }  # fmt: skip
        command = ["ssh", "-T", *self._file]
        command += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        script = self._script(["--silence", f"{cut_after:g}", *(["--beside-others"] if beside_others else [])])
        self._wire, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # Ctrl-C is for us: a session of its own keeps the terminal's signals from ssh.
                killed_with_parent([*command, "--", self.machine.ssh, _for_any_shell(script)]),
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        self._listening = threading.Thread(target=self._listen, name=f"errors-{self.name}", daemon=True)
        self._listening.start()

    def _script(self, options: Sequence[str]) -> str:
        sudo = "sudo -n " if self.machine.sudo else ""
        size = str(host_program().stat().st_size)
        return _SCRIPT.replace("SIZE", size).replace("SUDO", sudo).replace("OPTIONS", shlex.join(options))

    def wait_ready(self) -> None:
        """Copy our program there, and wait until its agent answers; refuse a host where that is not possible."""
        self._wire.settimeout(CONNECT_SECONDS + LOGIN_SECONDS)
        self.boot_id, *connection = self._said(SEND).removeprefix(SEND).split() or [""]
        if len(connection) == 4:
            self.peers = (connection[0], connection[2])
        self._wire.settimeout(UPLOAD_SECONDS)
        too_slow = threading.Timer(MAX_UPLOAD_SECONDS, self.give_up)
        too_slow.daemon = True
        too_slow.start()
        try:
            with host_program().open("rb") as program:
                self._wire.sendfile(program)
            self.program = str(json.loads(self._said(READY))["ready"])
        except (OSError, ValueError, KeyError, RecursionError):
            raise self._refusal("it did not start our program") from None
        finally:
            too_slow.cancel()
        self._wire.settimeout(None)
        self.agent = Agent(self.name, self._wire, when_lost="the connection was cut")
        self._is_ready = True
        self._alive = threading.Thread(target=self._stay_alive, name=f"alive-{self.name}", daemon=True)
        self._alive.start()

    def _said(self, word: str) -> str:
        """Return the first line that begins with this word, if it comes within the timeout of our end. What a login
        prints before is left out."""
        deadline = time.monotonic() + (self._wire.gettimeout() or 0.0)
        line, before = bytearray(), ""
        for _ in range(MAX_NOISE):
            try:
                self._wire.settimeout(max(deadline - time.monotonic(), 0.001))  # of all letters together
                letter = self._wire.recv(1)  # nothing of what follows may be taken
            except TimeoutError:
                raise self._refusal(f"it does not answer{before}") from None
            except OSError:
                letter = b""
            if not letter:
                raise self._refusal(f"it has closed the connection{before}")
            if letter != b"\n":
                line += letter
                continue
            text = line.decode(errors="replace")
            if text.startswith(NO):
                raise MissingSupport(f"{self.name}: {printable(text.removeprefix(NO).strip())}")
            if text.startswith(word):
                return text
            before = f", the last that it printed is: {printable(text.strip())}" if text.strip() else before
            line.clear()
        raise self._refusal("its login prints without end")

    def _refusal(self, otherwise: str) -> MissingSupport:
        """Return the refusal of this host, with what ssh or our program says if it has ended."""
        assert self._process is not None
        self._wire.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        status = self._process.poll()
        said = "" if status is None else self._last_error()  # before its end a login may have printed anything
        of_ssh, how = "ssh: " if status == 255 else "", ""
        if status == 255 or not self.boot_id:
            how = f"; `{shlex.join(['ssh', *self._file, self.machine.ssh, 'true'])}` must work without a password"
        return MissingSupport(f"{self.name}: {of_ssh}{said or otherwise}{how}")

    def _listen(self) -> None:
        """Read what ssh and the host print to standard error, which need not end."""
        assert self._process is not None and self._process.stderr is not None
        with self._process.stderr as errors:
            while block := os.read(errors.fileno(), MAX_ERRORS):
                self._errors = (self._errors + block)[-MAX_ERRORS:]

    def _last_error(self) -> str:
        """Return the last line of what was printed to standard error, of our program's lines if there are any."""
        assert self._process is not None
        if self._process.poll() is not None:
            self._listening.join(ERRORS_SECONDS)
        lines = [line for line in self._errors.decode(errors="replace").splitlines() if line.strip()]
        ours = [line.removeprefix("brobust: ") for line in lines if line.startswith("brobust: ")]
        return printable((ours or lines or [""])[-1].strip())

    def _stay_alive(self) -> None:
        """Tell the agent that we are there, until one of us is not."""
        while not self._ended.wait(self._cut_after / 4):
            try:
                self.agent.ping(self._cut_after)
            except RunFailed:
                return

    @property
    def is_lost(self) -> bool:
        return self._is_ready and self.agent.is_lost

    def give_up(self) -> None:
        """End `wait_ready` in another thread. Nothing is changed on a host before that has ended, so ssh need not wait
        for what the host still does."""
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)
        if self._process is not None and self._process.poll() is None and not self._is_ready:
            os.killpg(self._process.pid, signal.SIGTERM)  # a ProxyCommand would go on without ssh

    def close(self) -> str | None:
        """End the connection: the agent undoes everything. Return what went wrong with that, if something did."""
        if self._process is None:
            return None
        self._ended.set()
        was_lost = self.is_lost
        if not self._is_ready:
            self.give_up()
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_WR)
        try:
            status = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            status = self._process.wait()
        if self._is_ready:
            self.agent.close()
        self._wire.close()
        if self._alive is not None:
            self._alive.join()
        said = self._last_error()
        if status != 0 and self._is_ready and not was_lost:
            return f"{self.name}: {said or 'the connection was cut'}"
        return None


def _for_any_shell(script: str) -> str:
    """Return a command that every login shell hands on to sh: csh takes no lines in quotes, and looks there for ! and
    \\, as fish does for the latter."""
    letters = map(chr, script.encode())
    plain = "".join(
        one if one.isascii() and (one.isalnum() or one in " /.,:=_-") else f"\\{ord(one):03o}" for one in letters
    )
    return f"""sh -c 'eval "$(printf "{plain}")"'"""


def same_machine(connections: Sequence[Connection]) -> str | None:
    """Return a sentence about two connections to the same host, whose agents exclude each other; None without such."""
    for one, other in itertools.combinations(connections, 2):
        if one.boot_id and one.boot_id == other.boot_id:
            return f"{one.machine.ssh} and {other.machine.ssh} are the same machine; give both the same ssh and sudo"
    return None


def facts(agent: Agent) -> dict[str, Any]:
    """Return what a reader of the data must know about a host."""
    shown = agent.run("sh", "-c", "uname -r; uname -n; grep -m1 '^model name' /proc/cpuinfo; nproc").splitlines()
    model = next((line.split(":", 1)[1].strip() for line in shown if line.startswith("model name")), "unknown")
    return {"host": shown[1], "kernel_release": shown[0], "cpu": model, "cpus": int(shown[-1])}
