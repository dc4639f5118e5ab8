"""Training in one group, resumed from the last commit in the folder, under launchers that form no new groups."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.worker_messages import StateInMemory, TrainingDone, TrainingStopped
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.lazy_torch import dist
from bftrain_elastic.worker.process_groups import GroupRank, GroupStore, listen_on, lost
from bftrain_elastic.worker.regrouped_training import ADDRESS, REASON_LETTERS, SIZE, end_together, reason_left
from bftrain_elastic.worker.state import RegroupSignal, State, leave_group
from bftrain_elastic.worker.state_saving import load, report_on_disk, rescue, save, tidy
from bftrain_elastic.worker.state_transfer import share_state
from bftrain_elastic.worker.state_values import NO_STEP, inner
from bftrain_elastic.worker.termination import follows_sigterm, on_sigterm


def train_in_one_group(state: State, train: Callable[[State], None], channel: AgentChannel | None) -> None:
    """Train in the group that the environment names, resumed from the last commit in the folder."""
    workers, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = GroupRank(0, rank, workers, int(os.environ.get(SIZE, str(workers))))
    own = inner(state)
    if channel is not None:
        # When a node leaves, all restart from disk: copies in memory are lost
        own.progress.report = lambda message: None if isinstance(message, StateInMemory) else channel.mention(message)
        own.copies.alone = own.saver.folder is not None
        channel.position = lambda: (own.group.activity, own.group.commits)
        channel.listen()
        progress_report.use(progress_report.GroupReport(channel, state, place))
    asked: list[int] = []  # SIGTERM stops the training at the next commit, where all workers learn of it
    if own.saver.folder is not None:
        own.group.asked = lambda: len(asked)
    with on_sigterm(lambda: asked.append(1)) if own.saver.folder is not None else nullcontext():
        try:
            said = _train_once(state, train, place)
        except Exception as error:
            if workers > 1 and channel is not None and isinstance(error, RuntimeError) and lost(error):
                sys.stderr.write(f"bftrain: the other workers are lost: {str(error)[:REASON_LETTERS]}\n")
                with suppress(Exception):  # including errors of a broken GPU: the worker exits in any case
                    rescue(state)  # their latest common commit: rank 0 may be dead
                sys.stderr.flush()
                os._exit(os.EX_TEMPFAIL)  # the remaining group could wait for the other members
            if channel is not None and not isinstance(error, ElasticError) and follows_sigterm(math.inf):
                _end_on_order(state, channel, error)
            raise
        if channel is not None:
            channel.send((TrainingDone if said == "done" else TrainingStopped)(own.progress.step))
        own.group.activity = "after train"
        if said == "stopped":
            raise SystemExit(0)


def _train_once(state: State, train: Callable[[State], None], place: GroupRank) -> str:
    """Train in the only group; return ``done``, or ``stopped`` if a stop was requested."""
    own = inner(state)
    own.group.activity, said = "forming", "done"
    own.group.join(place, _named_store(place) if place.workers > 1 else None)
    own.group.settle()
    if place.rank == 0:
        tidy(state)
    if own.shards is not None:
        own.shards.regroup(state, holds=False)
    elif place.rank == 0:
        load(state)
    if place.workers > 1 and own.shards is None:
        share_state(state, [0], fresh=True)
    own.group.activity = "script"
    try:
        train(state)
    except RegroupSignal:
        said = "stopped"
    own.group.activity = "the end of train"
    progress_report.flush()
    end_together(state)
    leave_group(state)
    return said


def _end_on_order(state: State, channel: AgentChannel, error: Exception) -> None:
    """Exit after a SIGTERM broke the script, with the latest commit on disk; return if there is no commit."""
    own = inner(state)
    if own.copies.last is None:
        return
    if own.copies.step == NO_STEP:  # a copy was being made
        save(state)
    else:
        rescue(state)
    report_on_disk(own)  # including earlier saves
    sys.stderr.write(f"bftrain: {reason_left(error, lost_others=False)}\n")
    channel.send(TrainingStopped(own.progress.commit_step if own.copies.step == NO_STEP else own.copies.step))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the remaining group could wait for the other members


def _named_store(place: GroupRank) -> Any:  # noqa: ANN401 - torch.distributed.Store
    """Return the store named in torchrun's environment; rank 0 opens it, on that address only."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listen_on(os.environ.get(ADDRESS, address))
    if place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return GroupStore(address, port).store
    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)
