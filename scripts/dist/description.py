#!/usr/bin/env python3
"""Print README.md as a package index shows it: `description.py README.md`.

There its links to files of the repository lead nowhere, so a page becomes the command that opens it, a figure its
title, and any other file its name.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)\s]+)\)")


def description(readme: str) -> str:
    """Return the text without relative links."""

    def replaced(link: re.Match[str]) -> str:
        picture, shown, target = link.groups()
        path, _, anchor = target.partition("#")
        if picture:
            return f"*(Figure, in `brobust docs`: {shown}.)*"
        if path.startswith("docs/") and path.endswith(".md"):
            command = f"`brobust docs {Path(path).stem.lower()}`"
            return command if shown == path else f"{shown} ({command})"
        return shown if anchor and not path else f"{shown} (`{path}`)"

    return LINK.sub(replaced, readme)


if __name__ == "__main__":
    print(description(Path(sys.argv[1]).read_text()), end="")
