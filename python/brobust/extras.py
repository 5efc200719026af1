"""What `pip install brobust` leaves out: the extra `study` brings figures as files, reports, timelines, and clusters.

The packages it brings are imported only after `require`, so one that is absent is refused before anything is measured.
"""

import importlib.util
import sys

from brobust.errors import MissingSupport

# The packages of the extra in pyproject.toml.
STUDY = ("matplotlib", "jinja2", "distributed", "perfetto")


def missing() -> list[str]:
    """Return the packages of the extra that are not installed."""
    return [package for package in STUDY if importlib.util.find_spec(package) is None]


def require(what: str) -> None:
    """Refuse `what` (a command or an option, as the user typed it) unless the extra is installed."""
    if missing():
        raise MissingSupport(f"{what} needs the extra `study`, which is not installed: {install_command()}")


def install_command() -> str:
    """Return the command that adds the extra to the environment which runs now. `uv tool` and `uv venv` make
    environments without pip."""
    if importlib.util.find_spec("pip") is not None:
        return f"{sys.executable} -m pip install 'brobust[study]'"
    return f"uv pip install --python {sys.executable} 'brobust[study]'"
