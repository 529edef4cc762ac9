import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.reporting.names import label, order
from testbed.reporting.units import (
    byte_unit,
    bytes_text,
    count_text,
    range_text,
    saving_text,
    time_text,
    time_unit,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (7, "7 B"),
        (999, "999 B"),
        (1_000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),  # never "1000 kB"
        (25_000_000, "25.0 MB"),
        (1.5e9, "1.50 GB"),
        (3e15, "3000 TB"),
        (2.5, "2.50 B"),  # a mean over seeds
    ],
)
def test_bytes(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.456, "0.46 s"),
        (9.996, "10.0 s"),
        (42, "42.0 s"),
        (119.4, "119 s"),
        (119.6, "1.99 min"),
        (150, "2.50 min"),
        (7200, "2.00 h"),
        (360_000, "100 h"),
    ],
)
def test_seconds(seconds, text):
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("percent", "text"),
    [(25, "25.00 %"), (36.664, "36.66 %"), (-5, "-5.00 %"), (-1e-9, "0.00 %"), (None, "–")],
)
def test_savings(percent, text):
    assert saving_text(percent) == text


@pytest.mark.parametrize(("count", "text"), [(31, "31"), (31.0, "31"), (41 / 3, "13.7")])
def test_counts(count, text):
    assert count_text(count) == text


@given(st.floats(1, 1e14))
def test_the_printed_bytes_are_within_half_a_percent(count):
    number, name = bytes_text(count).split()
    size = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[name]
    assert float(number) * size == pytest.approx(count, rel=0.0051)


@given(st.floats(0, 1e9))
def test_units_keep_numbers_short(largest):
    assert largest / byte_unit(largest).size < 1000
    if largest < 3600 * 119:
        assert largest / time_unit(largest).size < 120


def test_methods_have_fixed_names_and_order():
    assert [label(m) for m in ("fsosa", "retrain", "finetune", "mine")] == [
        "F-SOSA-U/I",
        "Retrain",
        "Fine-tune",
        "mine",
    ]
    assert order(["zeta", "finetune", "alpha", "fsosa", "zeta"]) == (
        "fsosa",
        "finetune",
        "alpha",
        "zeta",
    )


@pytest.mark.parametrize(
    ("counts", "text"),
    [([7], "7"), ([2, 2, 2], "2"), ([30, 4, 12], "4 to 30"), ([1000, 999], "999 to 1,000")],
)
def test_counts_of_several_are_one_number_or_two(counts, text):
    assert range_text(iter(counts)) == text
