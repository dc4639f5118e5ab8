"""Parts that a point names: those that are not out of a file of one's own must be there before any work is done."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from bftrain.parts import admissions, metrics, python_file
from bftrain_replay.rounds.find_policy import find_policy
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.sweeping.sweep_options import ADMISSION, METRICS, POLICY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain_replay.simulation.replay_settings import ReplaySettings


def check_part(option: str, settings: ReplaySettings | RoundSettings) -> None:
    """Refuse what the option names in these settings if there is no such part, or it cannot be made as is said."""
    for name in _named(option, settings):
        _check(option, name)


def _named(option: str, settings: ReplaySettings | RoundSettings) -> Iterator[str]:
    """Name the parts; what a file of one's own does is found out by those who use it."""
    said = str(getattr(settings, option, ""))
    for name in said.split(",") if option == METRICS else (said,):
        admission = name.partition(",")[0].partition("=")[0]
        if name and python_file.parts(admission if option == ADMISSION else name.strip())[0] is None:
            yield name.strip()


@cache
def _check(option: str, name: str) -> None:
    """Make it once, however many points name it."""
    if option == POLICY:
        find_policy(RoundSettings(policy=name))
    elif option == ADMISSION:
        admissions.resolve_admission(name, 1)
    else:
        metrics.resolve(name)
