"""`brobust`, and `python -m brobust`. The commands take a second to import: Ctrl-C in it is answered like any other."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    try:
        from brobust import cli
    except KeyboardInterrupt:
        print("brobust: interrupted", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
