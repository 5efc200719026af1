"""The program of a session's guardian. Its arguments are the session's directory, and after how many seconds of silence
(0: never) the process counts as stuck."""

from __future__ import annotations

import sys
from pathlib import Path

from brobust.host import guardian, session


def main(directory: Path, silence_seconds: float) -> None:
    """Wait for the end of the session's process, and undo the session if the process has not."""
    session.ROOT = directory.parent
    end = guardian.wait_for_end(silence_seconds or None)
    if end == "dismissed":
        return
    problems = session.undo(directory)
    if end == "stuck":
        print(
            f"brobust: process {directory.name.partition('-')[0]} was stopped or stuck for {silence_seconds:g} s; it "
            "was killed, and its contention has ended",
            file=sys.stderr,
        )
    if problems:
        print(f"brobust: not undone: {'; '.join(problems)}; `brobust doctor --clean` tries again", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
