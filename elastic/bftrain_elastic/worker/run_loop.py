"""run: a script's training, in one group after another."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.native_training import NativeTraining
from bftrain_elastic.worker.sharded_training import ShardedCommits, ShardedTraining
from bftrain_elastic.worker.single_training import train_in_one_group
from bftrain_elastic.worker.state import State
from bftrain_elastic.worker.state_values import inner

FOLDER: Final = "BFTRAIN_FOLDER"  # folder of the commits
LAUNCHER: Final = "BFTRAIN_LAUNCHER"  # launcher that started this worker
trained: Final[set[str]] = set()  # folders that this process has trained in


def run(state: State, train: Callable[[State], None]) -> None:
    """Call ``train(state)`` once for every group of this worker, until it returns.

    Without a manager there is one group: a single worker, or the group in torchrun's environment. SIGTERM does not stop
    a worker in here: it follows its agent's order, or it leaves ``train`` at the next commit and saves.
    """
    folder = os.environ.get(FOLDER)
    inner(state).saver.folder = Path(folder) if folder else None
    if folder:
        once(folder)
    if parts := {name: one for name, one in vars(state).items() if isinstance(one, ShardedTraining)}:
        inner(state).shards = ShardedCommits(state, parts)
    channel = AgentChannel.from_environment()
    if channel is not None and os.environ.get(LAUNCHER) == "native":
        NativeTraining(state, partial(train, state), channel).run()
    else:
        train_in_one_group(state, train, channel)


def once(folder: str) -> None:
    """Raise if a script trains twice in one folder: a folder has one state and belongs to one task."""
    if folder in trained:
        fix = "train it all in one, and keep in the state how far it is"
        raise BadScript("a script can train only once under a launcher", where="run", fix=fix)
    trained.add(folder)
