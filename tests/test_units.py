"""Quantities are read as people write them, and refused with a sentence that shows how to."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brobust import units


@pytest.mark.parametrize(
    ("text", "bps"), [("20mbit", 20_000_000), ("1.5 Gbit", 1_500_000_000), ("64kbit", 64_000), ("9bit", 9)]
)
def test_bit_rates_are_decimal(text: str, bps: int) -> None:
    assert units.bits_per_second(text) == bps


@pytest.mark.parametrize(("text", "ns"), [("10ms", 10_000_000), ("1s", 10**9), ("0.5us", 500), ("3µs", 3000)])
def test_durations(text: str, ns: int) -> None:
    assert units.nanoseconds(text) == ns


@pytest.mark.parametrize(("text", "value"), [("25%", 0.25), ("0.25", 0.25), (0.25, 0.25), ("1", 1.0), (".5", 0.5)])
def test_fractions(text: object, value: float) -> None:
    assert units.fraction(text) == value


@pytest.mark.parametrize("text", ["20", "mbit", "20 apples", "", "-1mbit", "1e3mbit"])
def test_a_bit_rate_without_a_known_unit_is_refused_with_an_example(text: str) -> None:
    why = {"20": "has no unit", "20 apples": "has the unknown unit 'apples'"}.get(text, "is not a bit rate")
    with pytest.raises(ValueError, match=f"'{text}' {why}; write for example 20mbit"):
        units.bits_per_second(text)


def test_a_buffer_is_bytes_or_bandwidth_delay_products() -> None:
    assert units.Buffer.parse("2bdp").bytes(20_000_000, 10_000_000) == 50_000
    assert units.Buffer.parse("60kB").bytes(20_000_000, 10_000_000) == 60_000
    assert units.Buffer.parse("64KiB").bytes(1, 1) == 65_536
    assert units.Buffer.parse("100p").bytes(1, 1) == 151_400
    assert units.Buffer.parse("2SP").bytes(1, 1) == 131_072


@pytest.mark.parametrize("text", ["1234567B", "0.1bdp", "16p"])
def test_a_shown_buffer_reads_back(text: str) -> None:
    assert str(units.Buffer.parse(text)) == text


@pytest.mark.parametrize(("text", "hz"), [("576MHz", 576_000_000), ("2.4GHz", 2_400_000_000), ("100hz", 100)])
def test_frequencies(text: str, hz: int) -> None:
    assert units.hertz(text) == hz
    assert units.hertz(units.show_frequency(hz)) == hz


@given(st.integers(min_value=1, max_value=10**12))
def test_a_shown_rate_reads_back(bps: int) -> None:
    assert units.bits_per_second(units.show_rate(bps)) == bps


@given(st.integers(min_value=0, max_value=10**13))
def test_a_shown_duration_reads_back(ns: int) -> None:
    assert units.nanoseconds(units.show_time(ns)) == ns


@given(st.integers(min_value=0, max_value=10**12))
def test_a_shown_size_reads_back(size: int) -> None:
    assert units.size_bytes(units.show_size(size)) == size


@pytest.mark.parametrize(
    ("show", "number", "shown"),
    [
        (units.show_rate, 10**9, "1gbit"),
        (units.show_rate, 999_999_999, "999.999999mbit"),
        (units.show_rate, 10**6, "1mbit"),
        (units.show_rate, 1000, "1kbit"),
        (units.show_rate, 999, "999bit"),
        (units.show_time, 10**9, "1s"),
        (units.show_time, 10**6, "1ms"),
        (units.show_time, 1000, "1us"),
        (units.show_time, 999, "999ns"),
        (units.show_size, 10**6, "1MB"),
        (units.show_size, 1000, "1kB"),
        (units.show_frequency, 10**9, "1GHz"),
        (units.show_frequency, 10**6, "1MHz"),
        (units.show_percent, 0.125, "12.5%"),
    ],
)
def test_a_quantity_is_shown_in_the_largest_unit_of_which_it_has_one(
    show: Callable[[float], str], number: float, shown: str
) -> None:
    """The hash of a scenario depends on it."""
    assert show(number) == shown


@pytest.mark.parametrize(
    ("number", "digits", "shown"),
    [
        (1912.4, 3, "1910"),
        (752.3, 3, "752"),
        (999.7, 3, "1000"),
        (18.94, 3, "18.9"),
        (0.00001, 2, "0.00001"),
        (0, 3, "0"),
    ],
)
def test_what_was_measured_is_shown_with_few_digits_and_without_an_exponent(
    number: float, digits: int, shown: str
) -> None:
    assert units.show_measured(number, digits) == shown
