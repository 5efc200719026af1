"""The command `brobust explore`: a page in which each move of a slider is a run in virtual time."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from brobust import files
from brobust.cli import output
from brobust.errors import BadInput


def explore(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR|FILE",
            help="A dataset, or a recording of `brobust watch --record`, to look into as well. [default: none]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="TCP port on 127.0.0.1. [default: a free one]", show_default=False
        ),
    ] = 0,
) -> None:
    """Open a page with sliders for share, timeslice, bandwidth, RTT, buffer and loss; each move is a real run.

    The page is on this machine only (127.0.0.1), and its address has a token without which nothing is answered. It ends
    with the command: Ctrl-C, or the end of the terminal. A dataset is shown along any two of its axes, down to a run; a
    recording by its sockets, those that were short of CPU first.

    Examples:
      brobust explore
      brobust explore data --port 8080   # on a server: ssh -L 8080:127.0.0.1:8080
    """
    from brobust import backends
    from brobust.dataset import Dataset, recordings
    from brobust.explore.answers import Answers
    from brobust.explore.server import Server
    from brobust.scenario import Scenario

    recorded = recordings.read(source) if source is not None and files.is_file(source) else None
    if isinstance(recorded, recordings.Threads):
        command = f"brobust trace {shlex.quote(str(source))}"
        raise BadInput(f"{source}: has threads, and the page shows sockets; `{command}` shows threads")
    opened = None if source is None or recorded is not None else Dataset.open(source)
    backends.check([Scenario()], jobs=1)
    answers = Answers(opened, recorded)
    with Server(answers, port) as server:
        print(server.url, flush=True)
        output.open_page(server.url)
        try:
            server.serve_forever()
        finally:
            answers.stop()
