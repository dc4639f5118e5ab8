"""Published experiments, run again: ``bftrain reproduce``. One module for each experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bftrain_replay.reproducing.bftrain_study import STUDY
from bftrain_replay.reproducing.blox import BLOX
from bftrain_replay.reproducing.experiment import Experiment
from bftrain_replay.reproducing.gavel import GAVEL
from bftrain_replay.reproducing.ostrich import OSTRICH
from bftrain_replay.reproducing.pollux import POLLUX

EXPERIMENTS: Final[Mapping[str, Experiment]] = {one.name: one for one in (GAVEL, BLOX, OSTRICH, POLLUX, STUDY)}
