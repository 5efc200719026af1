"""A parameter of congestion controls as the horizontal axis of a figure: `alpha` of `brb_bbq:alpha=5ms`.

A dataset has no column for it, since each control has parameters of its own: it stands in the control's name."""

import re
from collections.abc import Iterable

import polars as pl

from brobust import units
from brobust.errors import BadInput

# What a control has that sets the parameter nowhere, where that is one number for all controls.
STANDARD = {"stride": 1.0}

_SETTING = re.compile(r":(\w+)=([^:+,]+)")


def names(controls: Iterable[str]) -> list[str]:
    """Return the parameters that are set in these controls' names, in order of their first setting."""
    return list(dict.fromkeys(name for control in controls for name, _ in _SETTING.findall(control)))


def as_column(measured: pl.DataFrame, parameter: str) -> tuple[pl.DataFrame, str]:
    """Return the runs with the parameter's value as a column of its name, and no longer in the control's name; and its
    unit, ms, Mbit/s or %, or empty.

    A run of a control without this setting is there for each value: as a line to compare with, which is named after
    the default if others of the same control have the setting."""
    every = measured["cc"].unique().to_list()
    found = {control: dict(_SETTING.findall(control)).get(parameter) for control in every}
    plain = {control: re.sub(rf":{parameter}=[^:+,]+", "", control) for control in every}
    numbers = {control: _number(parameter, text) for control, text in found.items() if text is not None}
    kinds = sorted({unit for value, unit in numbers.values() if value})  # 0 may be written without one
    if len(kinds) > 1:
        found_kinds = " and ".join(unit or "no unit" for unit in kinds)
        raise BadInput(f"--x {parameter}: the controls have values with {found_kinds}; plot a dataset of one kind")
    swept = {plain[control] for control in numbers}
    lines, values = {}, {}
    for control in every:
        lines[control] = plain[control]
        if control in numbers or parameter in STANDARD:
            values[control] = numbers[control][0] if control in numbers else STANDARD[parameter]
        elif control in swept:
            lines[control] = f"{control} (default {parameter})"
    with_values = measured.with_columns(
        pl.col("cc").replace_strict(values, default=None, return_dtype=pl.Float64).alias(parameter),
        pl.col("cc").replace_strict(lines),
    )
    without = with_values.filter(pl.col(parameter).is_null()).drop(parameter)
    at_each = without.join(with_values.select(pl.col(parameter).drop_nulls().unique()), how="cross")
    rows = pl.concat([with_values.filter(pl.col(parameter).is_not_null()), at_each.select(with_values.columns)])
    return rows, kinds[0] if kinds else ""


def _number(parameter: str, text: str) -> tuple[float, str]:
    """Return a value as a number, and its unit: times in ms, rates in Mbit/s."""
    for parse, scale, unit in ((units.nanoseconds, 1e6, "ms"), (units.bits_per_second, 1e6, "Mbit/s")):
        try:
            return parse(text) / scale, unit
        except ValueError:
            pass
    try:
        return float(text.removesuffix("%")), "%" if text.endswith("%") else ""
    except ValueError:
        raise BadInput(f"--x {parameter}: its value {text!r} is no number; give a parameter of numbers") from None
