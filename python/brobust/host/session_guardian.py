"""The guardian of a session, as a program: DIRECTORY, and after how many seconds of silence (0: never) it is stuck."""

from __future__ import annotations

import sys
from pathlib import Path

from brobust.host import guardian, session


def main(directory: Path, silence_seconds: float) -> None:
    session.ROOT = directory.parent
    end = guardian.wait_for_end(silence_seconds or None)
    if end == "dismissed":
        return
    problems = session.undo(directory)
    if end == "stuck":
        print(
            f"brobust: process {directory.name.partition('-')[0]} was stopped or stuck for {silence_seconds:g} s; it "
            "has been killed and its contention ended",
            file=sys.stderr,
        )
    if problems:
        print(f"brobust: not undone: {'; '.join(problems)}; see `brobust doctor --clean`", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
