"""Options that take seconds or a word take the word in large and small letters, and say which one was meant."""

from __future__ import annotations

import click
import pytest

from bftrain import ReplaySettings, Settings
from bftrain.cli.settings import DurationType, SecondsOrWord


@pytest.mark.parametrize("word", ["auto", "Auto", "AUTO"])
def test_a_word_may_be_in_large_letters(word: str) -> None:
    assert SecondsOrWord("auto").convert(word, None, None) == "auto"
    assert Settings(horizon_s=word).horizon_s == "auto"


def test_so_may_a_measured_latency() -> None:
    assert SecondsOrWord("measured").convert("Measured", None, None) == "measured"
    assert ReplaySettings(decision_latency_s="Measured").decision_latency_s == "measured"


def test_a_number_is_a_number() -> None:
    assert SecondsOrWord("auto").convert("1.5", None, None) == 1.5
    assert SecondsOrWord("auto").convert("2min", None, None) == 120.0
    assert DurationType().convert("1h30min", None, None) == 5400.0


def test_a_length_of_time_may_have_a_least_one() -> None:
    assert DurationType(min=0).convert("0", None, None) == 0.0
    with pytest.raises(click.BadParameter, match=r"0\.0 is not in the range x>0"):
        DurationType(min=0, min_open=True).convert("0s", None, None)
    with pytest.raises(click.BadParameter, match="'2mn' is not a duration"):
        DurationType().convert("2mn", None, None)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("Outo", "'Outo' is neither a duration nor 'auto' (did you mean 'auto'?): write seconds, or such as"),
        ("soon", "'soon' is neither a duration nor 'auto': write seconds, or such as"),
    ],
)
def test_what_is_neither_is_named_with_what_was_meant(typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        SecondsOrWord("auto").convert(typed, None, None)
    assert refused.value.message.startswith(said)
