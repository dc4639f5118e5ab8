"""Training under the native launcher."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

from bftrain_elastic.wire.messages import Message
from bftrain_elastic.worker import progress_report
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

PEER: Final = "BFTRAIN_PEER"  # where a worker is reached that has the state: host:port
LOADING: Final = "loading the state"  # the place of a worker that reads the folder
_STUCK_S: Final = 1.0  # how long a worker may take to notice that it was cut off,
_STUCK_STEPS: Final = 3.0  # or so many of its steps, if these are long


class NativeTraining(RegroupedTraining):
    """Training under the native launcher."""

    def run(self) -> None:
        """Train until the script is done, or this worker has to leave."""
        address = os.environ.get(ADDRESS, "127.0.0.1")
        listen_on(address)
        survive_peers()
        warm_up()
        self._store = GroupStore(address)
        self._own.asked = lambda: self._channel.gather
        self._own.leaving = lambda: self._channel.leaving
        self._own.keeps_alone = grace_s() > 0
        self._own.describe = lambda tree: describe(self._store.store, tree)
        prepare(self._state, os.environ.get(PEER, ""))
        self._serve(self._abort)
        self._own.place = "after train"

    def _abort(self) -> None:
        """Cut the connections to the others; called by the channel's thread when one of them is dead.

        Rarely Gloo does not notice that and still waits. Then this thread saves the last commit and ends the worker:
        another one takes its place.
        """
        generation = self._training
        self._own.group.abort()
        if self._own.place == LOADING:  # it waits for a file, and will see later that the others are gone
            return
        deadline = time.monotonic() + max(_STUCK_S, _STUCK_STEPS * self._own.pace_s)
        while self._training == generation != NOTHING and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._training == generation != NOTHING:
            with suppress(Exception):  # also what a broken GPU raises: the worker ends either way
                rescue(self._state)
            os._exit(os.EX_TEMPFAIL)

    def _meeting_point(self) -> list[Any]:
        return [self._store.host, self._store.port]

    def _restore_after_error(self, error: BaseException, place: GroupRank) -> str | None:
        own = self._own
        if isinstance(error, RegroupSignal):
            return ""
        lost_others = place.workers > 1 and isinstance(error, RuntimeError) and lost(error)
        has_copy = own.copy is not None and self._holds_state
        if not isinstance(error, Exception) or not (lost_others or (has_copy and is_caused_by_notice(error))):
            return None
        # Without a step a copy was being made, and the state is as committed; so it is while a group forms
        as_committed = own.copy_step == NO_STEP or (own.place == FORMING_GROUP and not (own.mixed or own.shards))
        if own.copy is not None and self._holds_state and not as_committed:
            restore(self._state, own.copy)
        return reason_left(error, lost_others=lost_others)

    def _leave_group(self, *, broken: bool) -> None:
        leave_group(self._state, broken=broken)

    def _join(self, place: GroupRank, order: Message) -> None:
        group = self._own.group
        store = self._store.store
        if place.rank:
            import torch.distributed as dist

            host, port = order["store"]
            store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=FORMING)
        group.join(place, store)
        group.settle()  # the following takes time in proportion to the size of the state
        if place.rank == 0:
            self._channel.send({"type": "joined", "generation": place.generation})
        tidy(self._state)
        sizes: Message = {}
        if self._own.shards is not None:
            self._own.shards.regroup(self._state, holds=self._holds_state)
            self._holds_state = True
            group.largest(0)
        else:
            sizes = self._agree(place, sync=order["sync"])
        mark_large_values(self._state)
        if place.rank == 0:
            step = {"generation": place.generation, "step": self._own.step}
            self._channel.send({"type": "confirmed", **step, **sizes})
            if place.size > 1 and self._own.shards is None and self._own.copy_step == self._own.step:
                report_in_memory(self._own)
            save_if_only_here(self._state)

    def _agree(self, place: GroupRank, *, sync: bool) -> Message:
        """Synchronize the state of all members, and copy it; return its size in bytes."""
        if not self._holds_state and place.rank == 0:
            self._load()
        self._own.place = FORMING_GROUP
        if place.workers > 1:
            if sync:
                self._spread()
            keep_unless_recent(self._state)
            self._own.group.largest(0)  # all are through
        elif self._own.keeps_alone:
            keep_unless_recent(self._state)
        return {"state_bytes": size_of(capture(self._state))}

    def _load(self) -> None:
        self._own.place = LOADING
        if not load(self._state) and self._own.mixed:
            raise SystemExit(os.EX_TEMPFAIL)  # another worker takes its place, with the script's own first state
        self._holds_state = True

    def _spread(self) -> None:
        """Send the state to the members that lack it."""
        step = self._own.step if self._holds_state else NOTHING
        sources = self._own.group.same_as_first([step, compared_values(self._state).digest()])
        share_state(self._state, sources, fresh=not self._holds_state)
        self._holds_state = True

    def _finish(self, _place: GroupRank) -> None:
        """Handle that the script is done.

        The others report it only when the last state is on disk: if rank 0 dies while it writes, they resume from
        theirs.
        """
        progress_report.flush()
        end_together(self._state)
        self._channel.send({"type": "done", "step": self._own.step})
        with suppress(RuntimeError):
            self._own.group.largest(0)
        leave_group(self._state)
