"""Options that take seconds or a word take the word in large and small letters, and say which one was meant."""

from __future__ import annotations

import click
import pytest

from bftrain.cli.seconds_or_word import SecondsOrWord
from bftrain.config import Settings
from bftrain_replay.simulation.replay_settings import ReplaySettings


@pytest.mark.parametrize("word", ["auto", "Auto", "AUTO"])
def test_a_word_may_be_in_large_letters(word: str) -> None:
    assert SecondsOrWord("auto").convert(word, None, None) == "auto"
    assert Settings(horizon_s=word).horizon_s == "auto"


def test_so_may_a_measured_latency() -> None:
    assert SecondsOrWord("measured").convert("Measured", None, None) == "measured"
    assert ReplaySettings(decision_latency_s="Measured").decision_latency_s == "measured"


def test_a_number_is_a_number() -> None:
    assert SecondsOrWord("auto").convert("1.5", None, None) == 1.5


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("Outo", "'Outo' is neither a number of seconds nor 'auto' (did you mean 'auto'?)"),
        ("soon", "'soon' is neither a number of seconds nor 'auto'"),
    ],
)
def test_what_is_neither_is_named_with_what_was_meant(typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        SecondsOrWord("auto").convert(typed, None, None)
    assert refused.value.message == said
