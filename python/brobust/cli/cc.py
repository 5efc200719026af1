"""The command `brobust cc`: congestion controls of the running kernel and ours; building and verifying ours.

What changes the running kernel is done by the program for operators (crates/command/src/cc).
"""

from brobust.cli import cc_module, conformance
from brobust.cli.lazy import HostCommand, group

OF_HOST_PROGRAM = {
    "list": "List the kernel's congestion controls and ours: whether each is loaded, where it is the default, and how "
    "many sockets use it",
    "params": "List the parameters of one of our congestion controls: default, range and meaning",
    "programs": "List the BPF programs of a loaded congestion control: size, number of runs and time per run",
    "load": "Load one of our congestion controls into the running kernel",
    "unload": "Unload a congestion control",
}
"""The commands that it has, each with its line there. tests/test_cc.py compares them."""

app = group(
    "List congestion controls, load ours into the running kernel, unload them, and verify them.",
    commands=[HostCommand(name, f"{line}.", under=["cc"]) for name, line in OF_HOST_PROGRAM.items()],
)
for command in (cc_module.module, conformance.compare, conformance.replay, conformance.shadow):
    app.command()(command)
