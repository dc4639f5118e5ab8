"""Training under the native launcher."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

from bftrain_elastic.wire.worker_messages import CopyPlace, FormGroup, GroupConfirmed, GroupJoined, TrainingDone
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.lazy_torch import dist
from bftrain_elastic.worker.process_groups import (
    FORMING,
    GroupRank,
    GroupStore,
    listen_on,
    lost,
    survive_peers,
    warm_up,
)
from bftrain_elastic.worker.regrouped_training import (
    ADDRESS,
    FORMING_GROUP,
    NOTHING,
    RegroupedTraining,
    end_together,
    is_caused_by_notice,
    reason_left,
)
from bftrain_elastic.worker.state import RegroupSignal, leave_group, mark_large_values, report_in_memory
from bftrain_elastic.worker.state_saving import load, rescue, save_if_only_here, tidy
from bftrain_elastic.worker.state_transfer import describe, prepare, share_state
from bftrain_elastic.worker.state_tree import size_of
from bftrain_elastic.worker.state_values import NO_STEP, capture, compared_values, keep_unless_recent, restore
from bftrain_elastic.worker.termination import grace_s

PEER: Final = "BFTRAIN_PEER"  # address of a worker that has the state: host:port
LOADING: Final = "loading the state"  # activity of a worker that reads the folder
# Time for a worker to notice cut connections: the larger of _STUCK_S and _STUCK_STEPS of its steps.
_STUCK_S: Final = 1.0
_STUCK_STEPS: Final = 3.0


class NativeTraining(RegroupedTraining):
    """Training under the native launcher."""

    def run(self) -> None:
        """Train until the script is done, or this worker must leave."""
        address = os.environ.get(ADDRESS, "127.0.0.1")
        listen_on(address)
        survive_peers()
        warm_up()
        self._store = GroupStore(address)
        self._own.group.asked = lambda: self._channel.gather
        self._own.copies.alone = grace_s() > 0
        self._channel.on_copies = self._own.outside.aim
        self._own.saver.describe = lambda tree: describe(self._store.store, tree)
        prepare(self._state, os.environ.get(PEER, ""))
        self._serve(self._abort)
        self._own.group.activity = "after train"

    def _abort(self) -> None:
        """Cut the connections to the other members; called by the channel's thread when a member is dead.

        Rarely, Gloo does not notice that and still waits. Then this thread saves the last commit and exits: a new
        worker takes its place.
        """
        generation = self._training
        self._own.group.abort()
        if self._own.group.activity == LOADING:  # it waits for a file, and will notice the lost members later
            return
        deadline = time.monotonic() + max(_STUCK_S, _STUCK_STEPS * self._own.group.pace_s)
        while self._training == generation != NOTHING and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._training == generation != NOTHING:
            with suppress(Exception):  # including errors of a broken GPU: the worker exits in any case
                rescue(self._state)
            os._exit(os.EX_TEMPFAIL)

    def _meeting_point(self) -> tuple[str, int]:
        return self._store.host, self._store.port

    def _restore_after_error(self, error: BaseException, place: GroupRank) -> str | None:
        own = self._own
        if isinstance(error, RegroupSignal):
            return ""
        lost_others = place.workers > 1 and isinstance(error, RuntimeError) and lost(error)
        has_copy = own.copies.last is not None and self._holds_state
        if not isinstance(error, Exception) or not (lost_others or (has_copy and is_caused_by_notice(error))):
            return None
        # With no step, a copy was being made and the state is as committed; the same is true while a group forms
        as_committed = own.copies.step == NO_STEP or (
            own.group.activity == FORMING_GROUP and not (own.copies.mixed or own.shards)
        )
        if own.copies.last is not None and self._holds_state and not as_committed:
            restore(self._state, own.copies.last)
        return reason_left(error, lost_others=lost_others)

    def _leave_group(self, *, broken: bool) -> None:
        leave_group(self._state, broken=broken)

    def _join(self, place: GroupRank, order: FormGroup) -> None:
        group = self._own.group
        store = self._store.store
        if place.rank:
            store = dist.TCPStore(*order.store, is_master=False, wait_for_workers=False, timeout=FORMING)
        group.join(place, store)
        group.settle()  # the next part takes time in proportion to the state's size
        if place.rank == 0:
            self._channel.send(GroupJoined(place.generation))
        tidy(self._state)
        size = 0
        if self._own.shards is not None:
            self._own.shards.regroup(self._state, holds=self._holds_state)
            self._holds_state = True
            group.largest(0)
        else:
            size = self._agree(place, order)
        mark_large_values(self._state)
        if place.rank == 0:
            self._channel.send(GroupConfirmed(place.generation, self._own.progress.step, size))
            if place.size > 1 and self._own.copies.step == self._own.progress.step:
                report_in_memory(self._own)
            save_if_only_here(self._state)

    def _agree(self, place: GroupRank, order: FormGroup) -> int:
        """Synchronize the state of all members, and copy it; return its size in bytes."""
        if not self._holds_state and place.rank == 0:
            self._load(order.copy)
        self._own.group.activity = FORMING_GROUP
        if place.workers > 1:
            if order.sync:
                self._spread()
            keep_unless_recent(self._state)
            self._own.group.largest(0)  # all members are through
        elif self._own.copies.alone:
            keep_unless_recent(self._state)
        return size_of(capture(self._state))

    def _load(self, copy: CopyPlace | None) -> None:
        self._own.group.activity = LOADING
        if not load(self._state, copy) and self._own.copies.mixed:
            raise SystemExit(os.EX_TEMPFAIL)  # another worker takes its place, with the script's initial state
        self._holds_state = True

    def _spread(self) -> None:
        """Send the state to the members that lack it."""
        step = self._own.progress.step if self._holds_state else NOTHING
        sources = self._own.group.same_as_first([step, compared_values(self._state).digest()])
        share_state(self._state, sources, fresh=not self._holds_state)
        self._holds_state = True

    def _finish(self, _place: GroupRank) -> None:
        """Handle that the script is done.

        The other members report it only when the last state is on disk: if rank 0 dies while it writes, they resume
        from their own copies.
        """
        progress_report.flush()
        end_together(self._state)
        self._channel.send(TrainingDone(self._own.progress.step))
        with suppress(RuntimeError):
            self._own.group.largest(0)
        leave_group(self._state)
