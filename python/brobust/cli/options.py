"""Values of options that have a unit, read alike by every command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from brobust.errors import BadInput

Value = TypeVar("Value")


def parsed(option: str, text: str, parse: Callable[[object], Value]) -> Value:
    """What `parse` (of units.py) makes of the text, or a refusal that names the option."""
    try:
        return parse(text)
    except ValueError as error:
        raise BadInput(f"--{option}: {error}") from None
