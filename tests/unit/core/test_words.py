"""Figures in words."""

from __future__ import annotations

import pytest

from bftrain import words


@pytest.mark.parametrize(
    ("said", "words_for_it"),
    [
        (words.count(1264.53), "1,265"),
        (words.count(21.08), "21.1"),
        (words.count(0.0), "0"),
        (words.large(11.86e9), "11.9 billion"),
        (words.large(130e9), "130 billion"),
        (words.large(950.0), "950"),
        (words.large(999.4e6), "999 million"),
        (words.large(999.6e6), "1.00 billion"),
        (words.large(2.5e18), "2,500 quadrillion"),
        (words.large(-3e9), "-3.00 billion"),
        (words.percent(0.9660), "96.6 %"),
        (words.percent(0.0001), "< 0.1 %"),
        (words.percent(0.0), "0.0 %"),
        (words.percent(None), words.UNKNOWN),
        (words.duration(90.0), "90 s"),
        (words.duration(5400.0), "90 min"),
        (words.duration(90000.0), "25 h"),
        (words.duration(216000.0), "2.5 days"),
        (words.duration(199_000.0), "2.3 days"),
        (words.duration(201_000.0), "2.33 days"),
        (words.duration(3.65e8), "4,225 days"),
        (words.duration(None), words.UNKNOWN),
        (words.milliseconds(0.7512), "0.751 ms"),
        (words.milliseconds(1500.0), "1.5 s"),
        (words.milliseconds(999.7), "1 s"),
        (words.milliseconds(1_234_567.0), "1,230 s"),
        (words.moment(1612915732.5), "2021-02-10 00:08:52 UTC"),
        (words.moment(1e13), "1e+13 s"),
    ],
)
def test_figures_in_words(said: str, words_for_it: str) -> None:
    assert said == words_for_it
