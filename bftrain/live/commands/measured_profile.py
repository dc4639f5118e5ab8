"""Profiles of tasks for replays, made from the measurements of ``bftrain train``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bftrain.errors import BadInput

if TYPE_CHECKING:
    from bftrain.cli.output import Output
    from bftrain.taskfiles.records import Profile

_MEASURED: Final = "bftrain train, on one machine"


def profile_saver(path: Path | None, name: str, out: Output) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes the profile of a trial, after checking that ``path`` can be written.

    No-op without it.
    """
    if path is None:
        return lambda _: None
    from bftrain.taskfiles.profile_files import check_profiles_name, save_profiles

    check_profiles_name(path)

    def save(result: Mapping[str, Any]) -> None:
        save_profiles([_profile(name, result)], path)
        out.say(f"profile: {path} (bftrain tasks generate -o tasks.toml --kind trials --profiles {path})")

    return save


def _profile(name: str, result: Mapping[str, Any]) -> Profile:
    """Build a profile from a trial: the median speed of each size and the median cost of each change."""
    if not result["speed"]:
        fix = "train longer, or at fewer sizes: --for, --script"
        raise BadInput("no speed was measured, so there is no profile", where=name, fix=fix)
    from bftrain.taskfiles.records import Profile
    from bftrain.values.curve import SpeedCurve

    curve = SpeedCurve(nodes=tuple(map(int, result["speed"])), rate=tuple(result["speed"].values()))
    costs = {f"{change}_cost_s": median(found) for change, found in result["cost_s"].items() if found}
    measured = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0, **costs}
    return Profile(name=name, curve=curve, source=_MEASURED, **measured)
