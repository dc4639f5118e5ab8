"""Settings of pilots in Slurm."""

from __future__ import annotations

from bftrain.live.schedulers.pilot_manager import PilotSettings
from bftrain.values import checks


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
        if not self.partition and not self.qos:
            checks.reject(
                self, "partition", "is missing", "name the partition, or the qos, whose jobs Slurm may preempt"
            )
