"""The entry point of `brobust` and of `python -m brobust`.

Importing the command line may take a second, and Ctrl-C in that second must not print a traceback.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    try:
        from brobust import cli
    except KeyboardInterrupt:
        print("brobust: interrupted", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
