"""Settings of pilots in Slurm."""

from __future__ import annotations

import re
from typing import Final

from bftrain.live.schedulers.pilot_manager import PilotSettings
from bftrain.values import checks

# What we choose ourselves for sbatch: pilots elsewhere than was checked would be in others' way, or never be found
_OURS: Final = ("partition", "qos", "nodes", "job-name", "comment", "array", "requeue", "time", "clusters")
_WORD: Final = re.compile(r"--(\w[\w-]+)(?:=.*)?|-([pqNJatM]).*", re.DOTALL)


def _chosen_by_us(word: str) -> bool:
    """Return whether a word for sbatch, perhaps shortened as in ``--part=main``, contradicts our own."""
    found = _WORD.fullmatch(word)
    return found is not None and (found[2] is not None or any(name.startswith(found[1]) for name in _OURS))


class SlurmSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in Slurm; "" is Slurm's default."""

    partition: str = ""
    qos: str = ""
    account: str = ""
    options: tuple[str, ...] = ()  # more words for sbatch, such as --gres=gpu:4
    arrays: bool = True  # submit many pilots as one job array

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("partition", "qos", "account"):
            if getattr(self, name):
                checks.text(self, name)
        checks.texts(self, "options")
        if word := next(filter(_chosen_by_us, self.options), ""):
            what, fix = (
                f"'{word}' contradicts how pilots are submitted",
                "leave it out: partition, qos and lengths_s are keys",
            )
            checks.reject(self, "options", what, fix)
        if not self.partition and not self.qos:
            checks.reject(
                self, "partition", "is missing", "name the partition, or the qos, whose jobs Slurm may preempt"
            )
