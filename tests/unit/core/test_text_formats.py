"""Figures in words."""

from __future__ import annotations

import pytest

from bftrain import text_formats


@pytest.mark.parametrize(
    ("said", "words_for_it"),
    [
        (text_formats.count(1264.53), "1,265"),
        (text_formats.count(21.08), "21.1"),
        (text_formats.count(0.0), "0"),
        (text_formats.large(11.86e9), "11.9 billion"),
        (text_formats.large(130e9), "130 billion"),
        (text_formats.large(950.0), "950"),
        (text_formats.large(999.4e6), "999 million"),
        (text_formats.large(999.6e6), "1.00 billion"),
        (text_formats.large(2.5e18), "2,500 quadrillion"),
        (text_formats.large(-3e9), "-3.00 billion"),
        (text_formats.percent(0.9660), "96.6 %"),
        (text_formats.percent(0.0001), "< 0.1 %"),
        (text_formats.percent(0.0), "0.0 %"),
        (text_formats.percent(None), text_formats.UNKNOWN),
        (text_formats.duration(90.0), "90 s"),
        (text_formats.duration(5400.0), "90 min"),
        (text_formats.duration(90000.0), "25 h"),
        (text_formats.duration(216000.0), "2.5 days"),
        (text_formats.duration(199_000.0), "2.3 days"),
        (text_formats.duration(201_000.0), "2.33 days"),
        (text_formats.duration(3.65e8), "4,225 days"),
        (text_formats.duration(None), text_formats.UNKNOWN),
        (text_formats.milliseconds(0.7512), "0.751 ms"),
        (text_formats.milliseconds(1500.0), "1.5 s"),
        (text_formats.milliseconds(999.7), "1 s"),
        (text_formats.milliseconds(1_234_567.0), "1,230 s"),
        (text_formats.moment(1612915732.5), "2021-02-10 00:08:52 UTC"),
        (text_formats.moment(1e13), "1e+13 s"),
    ],
)
def test_figures_in_words(said: str, words_for_it: str) -> None:
    assert said == words_for_it
