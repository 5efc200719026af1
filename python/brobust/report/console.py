"""The console on which tables and progress are printed."""

from typing import Any

from rich.console import Console as RichConsole
from rich.table import Table
from rich.text import Text

from brobust.errors import printable

WIDEST = 1000  # columns of text: more than any table has


class Console(RichConsole):
    """A console that prints text unchanged: a bracket in the name of a file, a kernel or a process is not markup, and
    an escape sequence does nothing to the terminal."""

    _has_chosen_colors = False

    def __init__(self, **options: Any):
        super().__init__(**{"markup": False, "emoji": False, **options})
        self._has_chosen_colors = True
        self.is_interactive = self.is_terminal and not self.is_dumb_terminal

    @property
    def is_terminal(self) -> bool:
        """Whether there is a terminal to draw on. FORCE_COLOR, which rich takes for one, as many a service for
        continuous integration sets it, asks for colors, and not for a progress bar in a log."""
        return super().is_terminal and (not self._has_chosen_colors or self.file.isatty())

    def on_broken_pipe(self) -> None:
        """Go on where nobody reads standard error any more. Rich would end the command, and let nobody read standard
        output either; of that the command itself has to know (cli/output.py)."""
        if not self.stderr:
            raise  # rich calls this where it has caught the BrokenPipeError
        self.quiet = True

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string. Rich calls this for every string that it is given."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)

    def print_whole(self, table: Table) -> None:
        """Print a table that may be wider than the terminal. Rich would leave out its last columns, where the numbers
        are; a terminal breaks the lines, and a file or a pager takes them as they are."""
        needed = self.measure(table, options=self.options.update(width=WIDEST)).maximum
        self.width = max(self.width, needed)
        self.print(table)
