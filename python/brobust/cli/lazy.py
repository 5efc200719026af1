"""Import a command when it is called, and format help as plain text."""

import importlib
import inspect
import re
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from brobust.errors import BadInput

LONG_HELP = 200  # characters: four lines beside a column of options
_RANGE = re.compile(r"\b(\S+)<=x<=(\S+)\b")  # as typer writes it


class Command(TyperCommand):
    """A command whose help shows each panel of options as a section, and at its end what its docstring has below
    "Examples:"; and that refuses a value that another one of the same option would silently replace."""

    def __init__(self, name: str | None, *, help: str | None = None, **options: Any) -> None:
        text, _, self._examples = inspect.cleandoc(help or "").partition("\n\nExamples:\n")
        super().__init__(name, help=text, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for option in given:
                if isinstance(option, TyperOption) and not (option.is_flag or option.multiple):
                    self._check_given_once(option.opts, args)
        return super().parse_args(ctx, args)

    def _check_given_once(self, names: Sequence[str], words: Sequence[str]) -> None:
        values = _values_of(names, words)
        if len(values) > 1:
            lists = set(names) & getattr(self.callback, "take_lists", set())
            remedy = f"write {names[0]} {shlex.quote(','.join(values))}" if lists else "give one of its values"
            raise BadInput(f"{names[0]} is given twice; {remedy}")

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage. An argument that is needed has no braces there: they would be a choice."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name, text = record
                own = "Options"
                if parameter.param_type_name == "argument":
                    name, own = name.partition(" <")[0], "Arguments"  # without its type in Python
                text = _RANGE.sub(r"\1 to \2", text)
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or own, []).append((name, text))
        # Options that need several sentences stand above their text, which then has the whole width.
        texts = [text for records in sections.values() for _, text in records]
        width = 6 if any(len(text) > LONG_HELP for text in texts) else 30
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=width)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self._examples:
            formatter.write(f"\nExamples:\n{self._examples}\n")


def _values_of(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return what these words give for the option of these names: in `--cc bbr` and in `--cc=bbr` that is bbr."""
    values = []
    left = iter(words)
    for word in left:
        if word == "--":  # what follows are arguments
            break
        name, equals, value = word.partition("=")
        if name in names:
            values.append(value if equals else next(left, ""))
    return values


def first_paragraph(help: str | None) -> str:
    return " ".join(inspect.cleandoc(help or "").split("\n\n")[0].split())


def group(help: str, *, commands: Sequence[TyperCommand] = ()) -> typer.Typer:
    """Return a Typer to which commands can be added; `commands` come before those."""
    return _OfCommands(
        cls=group_of(commands), help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False
    )


class _OfCommands(typer.Typer):
    def command(self, name: str | None = None, **options: Any) -> Any:
        return super().command(name, **{"cls": Command, **options})


class Group(TyperGroup):
    """A command with subcommands. The help lists each with the whole first paragraph of its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            # Typer's two options for completion have the default None, which it would import pydantic to convert.
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False
        return parameters

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            shown = [(name, command) for name, command in self.commands.items() if not command.hidden]
            formatter.write_dl([(name, first_paragraph(command.help)) for name, command in shown])


class HostCommand(TyperCommand):
    """A command of the program for operators (crates/command), which reads its arguments itself, --help included.
    `line` is for the list of a group's commands; `under` is the group that has it there."""

    def __init__(self, name: str, line: str = "", under: Sequence[str] = ()) -> None:
        super().__init__(name, help=line)
        self._words = [*under, name]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> NoReturn:
        self.call(args)
        raise typer.Exit

    def call(self, arguments: Sequence[str]) -> None:
        from brobust.host.programs import become_host_program

        become_host_program([*self._words, *arguments])


class Later(TyperCommand):
    """A command that is imported when it is called: the group `app` of a file in cli, or else the function or command
    of its name there."""

    def __init__(self, name: str, line: str, file: str) -> None:
        super().__init__(name, help=line)
        self._module = f"brobust.cli.{file}"

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.imported().make_context(info_name, args, parent, **extra)

    def imported(self) -> Any:
        module = importlib.import_module(self._module)
        found = getattr(module, "app", None) or getattr(module, str(self.name))
        if isinstance(found, TyperCommand):
            return found
        if not isinstance(found, typer.Typer):
            function, found = found, typer.Typer(rich_markup_mode=None, add_completion=False)
            found.command(self.name, cls=Command)(function)
        return get_command(found)


def group_of(commands: Sequence[TyperCommand]) -> type[Group]:
    """Return a class for groups that have these commands, and then those that are added."""

    class WithCommands(Group):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = {**{str(command.name): command for command in commands}, **self.commands}

    return WithCommands
