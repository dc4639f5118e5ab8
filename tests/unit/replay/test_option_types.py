"""The keyword arguments of ``replay``, ``rounds`` and ``schedule`` are the fields of their settings."""

from __future__ import annotations

import inspect

import pytest

from bftrain import ReplaySettings, RoundSettings, Settings
from bftrain.config import ONLY_IN_REPLAYS
from bftrain_datasets.scheduling.schedule_settings import ScheduleOptions, ScheduleSettings
from bftrain_replay.rounds.round_settings import RoundOptions
from bftrain_replay.simulation.replay_settings import ReplayOptions


def annotations_of(kind: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        for name, given in inspect.get_annotations(one).items():
            found[name] = getattr(given, "__forward_arg__", given)
    return {name: str(given) for name, given in found.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    ("options", "settings", "without"),
    [
        (ReplayOptions, ReplaySettings, {"objective"}),  # which may be a function too
        (RoundOptions, RoundSettings, set()),
        (ScheduleOptions, ScheduleSettings, set()),
    ],
)
def test_options_have_the_names_and_types_of_the_settings(options: type, settings: type, without: set[str]) -> None:
    wanted = annotations_of(settings)
    assert len(wanted) > 10
    assert annotations_of(options) == {name: given for name, given in wanted.items() if name not in without}


def test_the_core_knows_the_names_and_defaults_that_only_replays_have() -> None:
    usual = ReplaySettings()
    names = set(ReplaySettings.__struct_fields__) - set(Settings.__struct_fields__)
    assert {name: getattr(usual, name) for name in names} == ONLY_IN_REPLAYS
