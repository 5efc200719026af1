"""Options that several commands have: those of scenario fields, made from their descriptions; values with a unit."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from brobust.errors import BadInput
from brobust.scenario.description import COMMAND, COUNT, OUTPUT, SWITCH, Field
from brobust.scenario.fields import DEFAULT_GRID, FIELDS, grid_default

Value = TypeVar("Value")
Command = Callable[..., None]


def jobs_option(panel: str | None = None) -> Any:
    text = "Number of runs to measure side by side. [default: one per CPU; 1 on vm]"
    return typer.Option(metavar="N", help=text, show_default=False, rich_help_panel=panel)


def without_option() -> Any:
    text = (
        "Leave out this table, to save room in very many runs: throughput or offtimes (docs/data.md); may be repeated."
    )
    return typer.Option(metavar="TABLE", help=text, show_default=False)


def report_option(what: str) -> Any:
    """Return the option --report, of commands that tell strangers of this machine: `what` is in the report."""
    text = f"Also write {what} as TOML, without names, addresses or serial numbers."
    return typer.Option(metavar="FILE", help=text)


def parsed(option: str, text: str, parse: Callable[[object], Value]) -> Value:
    """Return what `parse` (of units.py) makes of the text; refuse, with the option's name, what it cannot read."""
    try:
        return parse(text)
    except ValueError as error:
        raise BadInput(f"--{option}: {error}") from None


def takes_fields(*names: str, grid: Mapping[str, Any] = DEFAULT_GRID) -> Callable[[Command], Command]:
    """Give a command the options of these scenario fields; of all of them, in panels, where none is named. Its own are
    then in the last one, if they do not say another.

    The command's function has a parameter `fields`. It receives what was given, as a grid has it: tables of values,
    with lists where commas were. `grid` is what the command measures where no option says something else.
    """
    rows = [FIELDS[name] for name in names] or list(FIELDS.values())

    def decorate(function: Command) -> Command:
        def command(**given: Any) -> None:
            function(fields=grid_fields({row.name: given.pop(row.parameter) for row in rows}), **given)

        own = [one for one in inspect.signature(function, eval_str=True).parameters.values() if one.name != "fields"]
        first = [one for one in own if _is_argument(one)]
        rest = [one for one in own if one not in first]
        for one in rest if not names else ():
            (option,) = one.annotation.__metadata__
            option.rich_help_panel = option.rich_help_panel or OUTPUT
        shown = [_parameter(row, grid_default(row, grid), not names) for row in rows]
        parameters = [*first, *shown, *rest]
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        )
        command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
        command.__annotations__ = {}
        lists = (row for row in rows if (row.is_axis or isinstance(row.default, list)) and row.kind is not COMMAND)
        command.take_lists = {row.option for row in lists}  # type: ignore[attr-defined]
        return command

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(one, typer.models.ArgumentInfo) for one in parameter.annotation.__metadata__)


def _parameter(row: Field, default: object, in_panel: bool) -> inspect.Parameter:
    kind: Any = bool if row.kind is SWITCH else int if row.kind is COUNT and not row.is_axis else str
    option = typer.Option(
        f"{row.option}/--no-{row.key}" if row.kind is SWITCH else row.option,
        help=help_of(row, default),
        metavar=None if row.kind is SWITCH else "|".join(filter(None, (row.kind.placeholder, row.or_word))),
        show_default=False,
        rich_help_panel=row.panel if in_panel else None,
    )
    return inspect.Parameter(
        row.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def help_of(row: Field, default: object) -> str:
    """Return the help of a field's option: its description, and in brackets where it applies, whether it takes a list,
    its range and default."""
    only = f"only on {row.only_on}" if row.only_on else ""
    one = "one value" if row.takes_one_value and row.kind is not SWITCH else ""
    return f"{row.help} [{'; '.join(filter(None, (only, one, row.range(), f'default: {row.default_text(default)}')))}]"


def grid_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields as those of a grid: in their tables, with lists where an axis has commas, and without
    those that were not given."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            table, _, key = name.rpartition(".")
            inner = fields.setdefault(table, {}) if table else fields
            row = FIELDS[name]
            may_be_list = isinstance(value, str) and (row.is_axis or row.takes_one_value) and row.kind is not COMMAND
            values = listed(row.option, value) if may_be_list else [value]
            inner[key] = values if len(values) > 1 else values[0]  # Grid says what takes one value
    return fields


def listed(option: str, text: str) -> list[str]:
    """Return the values between an option's commas; refuse empty ones."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts:
        raise BadInput(f"{option}: {text!r} has an empty element; write for example a,b")
    return parts
