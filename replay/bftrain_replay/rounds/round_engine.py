"""The round engine: chooses the running tasks and their node kinds for each round. All state is in columns.

Rounds start at multiples of their length; with Gavel's conventions, when the previous round ends. Rounds that cannot
change are simulated in one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import Fault
from bftrain.values.wire import NOTHING
from bftrain_replay.rounds.compiled_rounds import ORDERS, CompiledRounds, RoundStep
from bftrain_replay.rounds.round_admission import RoundAdmission
from bftrain_replay.rounds.round_beliefs import SpeedBeliefs
from bftrain_replay.rounds.round_choice import RoundChoice, pack
from bftrain_replay.rounds.round_inputs import (
    CompetingTasks,
    Floats,
    Ints,
    TaskGangs,
    TaskProgressColumns,
    TrainingPhases,
    round_at,
)
from bftrain_replay.rounds.round_nodes import NodeChange, NodeHolders, NodeSupply
from bftrain_replay.rounds.round_policy import ByShares, RoundPolicy, SizingPolicy
from bftrain_replay.rounds.round_resources import HostResources, Share
from bftrain_replay.rounds.round_settings import BOUNDARY, DRAWN, GAVEL, GAVEL_IDEAL, RoundSettings

# Called with the simulated seconds and the number of finished tasks up to the last measured one; False stops the run
Watch = Callable[[float, int], bool]

ALL_DONE: Final = "all_done"
MEASURED_DONE: Final = "measured_done"
UNTIL: Final = "until"
LOG_END: Final = "log_end"
OVERLOAD: Final = "overload"
STALLED: Final = "stalled"
INTERRUPTED: Final = "interrupted"

_ROUNDING: Final = 1.0 - 1e-12  # a task that lacks less is done
_PATIENCE: Final = 1000  # idle rounds without arrivals before the run counts as stalled
_WATCH_EVERY: Final = 64  # steps between calls of ``watch``
# Columns that compiled rounds change
_COUNTED: Final = (
    "start_s", "end_s", "seen_s", "starts", "moves", "preemptions", "done_samples", "held_node_s", "pool_node_s",
)  # fmt: skip
# Numbers that compiled rounds continue, by their names there
_CONTINUED: Final[Mapping[str, str]] = {
    "_arrived": "come",
    "_round": "round",
    "now_s": "now_s",
    "_idle_rounds": "idle_rounds",
    "_unmeasured": "unmeasured",
}
_ALONE: Final = -1  # the partner of a task that has none


class _RunSpeeds(NamedTuple):
    """The speeds of the running tasks: on their hosts, and on the fewest hosts possible."""

    reached: Floats
    compact: Floats


class RoundEngine:
    """One run. Results: columns by task and by kind, ``steps``, and the stop reason ``ended``."""

    def __init__(
        self,
        gangs: TaskGangs,
        supply: NodeSupply,
        policy: RoundPolicy,
        settings: RoundSettings,
        shares: Mapping[str, Share] = NOTHING,
    ) -> None:
        count, kinds = len(gangs), len(gangs.kinds)
        self.gangs = gangs
        self._phases = TrainingPhases(settings.phases, gangs)
        self._beliefs = SpeedBeliefs(gangs, settings)
        self.progress = TaskProgressColumns(gangs)
        self.start_s, self.end_s = np.full(count, np.nan), np.full(count, np.nan)
        self.seen_s = np.full(count, np.nan)  # end of each task's first round
        self.starts, self.moves, self.preemptions, self.taken = (np.zeros(count, dtype=np.intp) for _ in range(4))
        self.done_samples, self.start_up_samples, self.spread_samples = np.zeros((3, count))
        self.batch_s = np.zeros(count)  # integral of the batch size over the time with nodes
        self.held_node_s, self.pool_node_s = np.zeros(kinds), np.zeros(kinds)
        self.pools: list[tuple[float, Ints]] = []  # (start time, number of nodes by kind)
        self.steps: list[RoundStep] = []
        self.node_s_by_user: list[Floats] = []  # node-seconds of every user in each step
        self.users = tuple(sorted({spec.user for spec in gangs.specs}))
        places = {user: place for place, user in enumerate(self.users)}
        self._owner = np.array([places[spec.user] for spec in gangs.specs], dtype=np.intp)
        self.now_s, self.ended = 0.0, ""
        self._supply, self._settings = supply, settings
        self.knows_hosts = supply.host_of is not None
        self._policy, self._steady = policy, bool(getattr(policy, "steady", False))
        self._asks_always = (
            isinstance(policy, SizingPolicy) or bool(settings.pairs) or bool(getattr(policy, "every_round", False))
        )
        self._chooser = RoundChoice(policy, settings, count, kinds)
        self._admission = RoundAdmission(gangs, self.progress, settings) if settings.admission else None
        self.resources = HostResources(policy, policy.name, gangs, shares) if shares else None
        self.resource_s = np.zeros((count, 2))  # integral over time of the CPU cores and memory per node
        self._holders = NodeHolders(supply, count, settings.chosen_placement)
        self._round = 0
        self._here: Ints = np.zeros(0, dtype=np.intp)  # tasks that arrived and have not finished
        self._running = np.zeros(count, dtype=bool)  # working memory, to allocate it once
        self._had_pairs = False  # whether the previous step had pairs
        self._arrived = 0
        self._version = 0
        self._choice: tuple[Ints, Ints] | None = None
        self._admitted: Ints = np.zeros(0, dtype=np.intp)
        self._idle_rounds = 0  # consecutive idle rounds with a waiting task
        until_s = math.inf if settings.until_s is None else settings.until_s
        self._limit_s = min(supply.end_s, until_s)
        first, last = settings.measured(count)
        self.measured = slice(first, last + 1)
        self._unmeasured = len(self.end_s[self.measured])  # measured tasks that have not finished
        self._starts_cost = bool(gangs.start_cost_s.any())
        self._counts_batches = isinstance(policy, SizingPolicy) or bool(gangs.batches.any())
        self._compiled = self._compiled_rounds()

    def _compiled_rounds(self) -> CompiledRounds | None:
        """Return the state for compiled rounds, where they can carry out this run."""
        gangs, settings, supply, progress = self.gangs, self._settings, self._supply, self.progress
        drawn = settings.order_of_kinds == DRAWN
        extras = settings.admission or settings.phases or settings.speed_error or (drawn and settings.pairs)
        plain = not (extras or self.resources or self._starts_cost or self._counts_batches or self.knows_hosts)
        if not (settings.like == GAVEL and isinstance(self._policy, ByShares) and plain and supply.stays):
            return None
        if (found := CompiledRounds.of(len(gangs), len(gangs.kinds), len(self.users))) is None:
            return None
        state = found.state
        state.bind(submit_s=gangs.submit_s, speeds=gangs.speeds, best=gangs.speeds.max(axis=1), nodes=gangs.nodes)
        state.bind(fastest=gangs.fastest, owner=self._owner, left=progress.left, service_s=progress.service_s)
        state.bind(node_s=progress.node_s, paired_s=progress.paired_s, kind=progress.kind, partner=progress.partner)
        state.bind(**{name: getattr(self, name) for name in _COUNTED}, count=np.array([*supply.most.values()]))
        state.drawn, state.at_boundary, state.never_alike = drawn, settings.finish == BOUNDARY, bool(settings.pairs)
        state.first_measured, state.after_measured = self.measured.start, self.measured.stop
        state.round_s, state.limit_s, state.most_backlog_s = settings.round_s, self._limit_s, settings.max_backlog_s
        state.interval_s = self._policy.interval_s
        return found

    def _compiled_steps(self, compiled: CompiledRounds) -> None:
        """Simulate rounds by compiled code until shares are due, or the run may end."""
        policy, state, times = self._policy, compiled.state, self.progress.pairs
        assert isinstance(policy, ByShares)  # noqa: S101 - as in _compiled_rounds
        tasks: Mapping[str, NDArray[Any]] = NOTHING
        if self._here.size:
            tasks, pairs = policy.recompute(self._contenders(self._here))
            state.bind(**tasks)
            if tasks:
                compiled.bind_pairs(pairs)
        if (state.never_alike and times.make_room(len(self.gangs))) or not state.most_pairs:
            state.bind(pair_tasks=times.tasks, pair_counted=times.counted, pair_s=times.joint_s)
            state.bind(pair_read_s=times.read_s, pair_before_s=times.before_s)
            state.most_pairs = len(times.tasks)
        orders = self._chooser.orders(ORDERS if state.drawn else 0)
        state.orders_left = len(orders)
        state.bind(orders=np.ascontiguousarray(orders))
        compiled.set_here(self._here)
        for own, name in _CONTINUED.items():
            setattr(state, name, getattr(self, own))
        state.pairs, state.due_s, state.reset_s = times.count, policy.due_s, policy.reset_s
        state.dirty = policy.changed_since(self._version)
        compiled.simulate(self.steps, self.node_s_by_user)
        self._chooser.use_orders(len(orders) - state.orders_left)
        for own, name in _CONTINUED.items():
            setattr(self, own, getattr(state, name))
        policy.due_s = state.due_s
        self._version += state.changes
        times.take_new(state.pairs)
        if state.changes:
            self._here = compiled.here
        if state.overload:
            self.ended = OVERLOAD
        elif state.too_long:
            self._compiled = None  # more rounds than compiled code can count
        elif not (state.steps or tasks or self._why_to_end()):
            raise Fault("compiled rounds made no progress", where=round_at(self.now_s, self._settings.round_s))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Admission warnings about arrived tasks."""
        return () if self._admission is None else tuple(self._admission.remarks)

    def run(self, watch: Watch | None = None) -> None:
        """Simulate rounds until the run finishes."""
        turn = 0
        while True:
            while self._supply.next_s <= self.now_s:
                self._take_away(self._change(self._supply.take()))
            self._arrivals()
            self.ended = self.ended or self._why_to_end()
            if self.ended:
                return
            turn += 1
            if watch is not None and turn % _WATCH_EVERY == 0:
                done = np.count_nonzero(~np.isnan(self.end_s[: self.measured.stop]))
                if not watch(self.now_s, int(done)):
                    self.ended = INTERRUPTED
                    return
            if self._settings.like == GAVEL_IDEAL:
                self._ideal_step()
            elif self._compiled is not None:
                self._compiled_steps(self._compiled)
            else:
                self._step()

    def _why_to_end(self) -> str:
        all_arrived = self._arrived == len(self.gangs)
        if all_arrived and not self._here.size:
            return ALL_DONE
        if self._settings.measure and not self._unmeasured:
            return MEASURED_DONE
        if self.now_s >= self._limit_s:
            return LOG_END if self._limit_s == self._supply.end_s else UNTIL
        no_further_event = all_arrived and self._supply.next_s == math.inf and self._due_s == math.inf
        if self._idle_rounds >= _PATIENCE and no_further_event:
            return STALLED
        return ""

    @property
    def _due_s(self) -> float:
        """The time at which the policy looks at the tasks again."""
        return float(getattr(self._policy, "due_s", math.inf))

    @property
    def _next_arrival_s(self) -> float:
        """The submission time of the next task; infinite after the last one."""
        return float(self.gangs.submit_s[self._arrived]) if self._arrived < len(self.gangs) else math.inf

    def _arrivals(self) -> None:
        if self.now_s < self._next_arrival_s:
            return
        arrived = int(np.searchsorted(self.gangs.submit_s, self.now_s, side="right"))
        self._here = np.concatenate((self._here, np.arange(self._arrived, arrived)))
        if self._admission is not None:
            self._admission.arrived(np.arange(self._arrived, arrived), self.now_s)
        self._arrived = arrived
        self._changed()
        if arrived < len(self.gangs) and self._backlog_s() > self._settings.max_backlog_s:
            self.ended = OVERLOAD  # the queue would empty without further arrivals

    def _backlog_s(self) -> float:
        """Return the seconds for which waiting tasks could keep all nodes busy, starting with the most work.

        The policy's choice does not matter: one long task that waits for short ones is not a queue.
        """
        gangs, all_nodes = self.gangs, max(1, sum(self._supply.most.values()))
        here = self._here[np.isfinite(self.progress.left[self._here])]
        node_s = self.progress.left[here] / gangs.speeds[here].max(axis=1) * gangs.nodes[here]
        if node_s.sum() <= self._settings.max_backlog_s * all_nodes:
            return 0.0  # skips the search for runnable tasks
        order = np.argsort(-node_s, kind="stable")
        kinds = gangs.fastest[here[order]]
        task, kind = np.repeat(order, kinds.shape[1]), kinds.ravel()
        able = gangs.speeds[here[task], kind] > 0.0
        task, kind = task[able], kind[able]
        free = np.array(list(self._supply.most.values()), dtype=np.intp)
        runs = task[pack(task, kind, gangs.nodes[here[task]], free)]
        return float(node_s.sum() - node_s[runs].sum()) / all_nodes

    def _changed(self) -> None:
        """Let the policy choose again, since tasks, speeds or nodes have changed."""
        self._version += 1
        self._choice = None
        self._idle_rounds = 0

    def _change(self, change: NodeChange) -> Ints:
        """Apply a change of nodes; return the tasks that lose nodes, and their partners."""
        preempted = self._holders.change(change)
        partners = self.progress.partner[preempted]
        preempted = np.unique(np.concatenate((preempted, partners[partners >= 0])))
        self.pools.append((change.time_s, self._holders.count))
        self._changed()
        return preempted

    def _take_away(self, preempted: Ints) -> None:
        """Count a preemption by leaving nodes; these tasks have no nodes now."""
        self.progress.kind[preempted] = -1
        self.preemptions[preempted] += 1
        self.taken[preempted] += 1

    # -- a step: one round, or several identical ones

    def _step(self) -> None:
        run, kind = self._chosen()
        mates = self._chooser.partner[run] if self._chooser.any_pairs else None
        started, stopped = self._launch(run, kind, mates)
        if self.resources is not None:
            when = round_at(self.now_s, self._settings.round_s)
            self.resources.divide(run, kind, self._holders, self._version + self.starts.sum(), when)
        speeds = self._speeds(run, kind, mates)
        nodes = self.gangs.nodes[run].astype(np.float64)
        if mates is not None:
            nodes[mates >= 0] *= 0.5  # each task of a pair gets half
        needs_s = self._needs_s(run, speeds.reached)
        turn_s, length_s = self._turns(speeds.reached, needs_s)
        rounds = self._rounds_alike(run, kind, needs_s / turn_s, length_s)
        begin_s, first = self.now_s, self._round
        self._round += rounds
        end_s = begin_s + rounds * length_s if self._settings.like_gavel else self._round * length_s
        self.now_s = min(end_s, self._limit_s)
        self.seen_s[started] = np.fmin(self.seen_s[started], min(begin_s + length_s, self.now_s))
        pool, waiting, before = int(self._holders.count.sum()), self._here.size - run.size, self.held_node_s.sum()
        has_s = np.minimum(rounds * turn_s, self._limit_s - begin_s)
        taken = self._until_taken(run, needs_s, begin_s, has_s)
        samples, done, held_s = self._advance(run, speeds, needs_s, has_s)
        if self._settings.finish == BOUNDARY:
            held_s = np.minimum(has_s, self.now_s - begin_s)
        elif self._settings.like_gavel:
            held_s = (begin_s + held_s) - begin_s  # Gavel subtracts times; the last digit decides which task waits
        self._add_held(run, kind, held_s, nodes)
        if mates is not None:
            self._count_pairs(run, kind, held_s)
        self._observe(run, kind)
        if self._admission is not None:
            self._admission.advance_time(self.now_s, round(float(nodes.sum())))
        finished = int(np.count_nonzero(done))
        if finished:
            self._finish(run[done], begin_s + held_s[done])
        idle = self._here.size and not speeds.reached.any()  # a gang's speed may be 0 on its nodes
        self._idle_rounds = self._idle_rounds + rounds if idle else 0
        used = float(self.held_node_s.sum() - before)
        counts = (run.size, waiting, started.size, stopped, taken, finished)
        self.steps.append(RoundStep(first, rounds, begin_s, self.now_s, pool, used, samples, *counts))
        self._add_by_user(run, held_s * nodes)

    def _add_by_user(self, tasks: Ints, node_s: Floats) -> None:
        self.node_s_by_user.append(np.bincount(self._owner[tasks], node_s, len(self.users)).astype(np.float64))

    def _observe(self, run: Ints, kind: Ints) -> None:
        """Let policies learn speeds of tasks that have worked, and switch tasks to their next phase."""
        learnt = False
        if self._beliefs.learns:
            worked = self.progress.overhead_s[run] <= 0.0
            learnt = self._beliefs.learn(run[worked], kind[worked], self.now_s)
        if (self._phases.any and self._phases.advance(run, self.progress.left)) or learnt:
            self._changed()

    def _speeds(self, run: Ints, kind: Ints, mates: Ints | None) -> _RunSpeeds:
        """Return each task's speed, alone or with its partner, on its current hosts."""
        compact = self.gangs.speeds[run, kind]
        if self.resources is not None:
            compact = compact * self.resources.gain[run]
        if mates is not None:
            compact = np.where(mates >= 0, self._chooser.speed[run], compact)
        if not self.knows_hosts:
            return _RunSpeeds(compact, compact)
        reached = compact.copy()
        hosts = self._holders.hosts[run if mates is None else np.where(mates >= 0, np.minimum(run, mates), run)]
        for index in np.flatnonzero(hosts > 1).tolist():
            place, where = int(run[index]), int(kind[index])
            if (spread := self.gangs.specs[place].spread) is not None:
                alone, size = self.gangs.speeds[place, where], int(self.gangs.nodes[place])
                reached[index] *= spread.speed(size, int(hosts[index]), alone, self.gangs.kinds[where]) / alone
        return _RunSpeeds(reached, compact)

    def _needs_s(self, run: Ints, speed: Floats) -> Floats:
        """Return each task's remaining run time in seconds."""
        needs_s = np.full(run.size, math.inf)
        np.divide(self.progress.left[run], speed, out=needs_s, where=speed > 0.0)
        return needs_s + self.progress.overhead_s[run] if self._starts_cost else needs_s

    def _chosen(self) -> tuple[Ints, Ints]:
        """Return the running tasks and their kinds, unchanged from the previous round where possible."""
        if not self._here.size or not self._holders.count.any():
            none = self._here[:0]
            return none, none
        if self._choice is None and self._admission is not None:
            self._admitted = self._admission.chosen(self._here, self.now_s, self._holders.count)
        competing = self._here if self._admission is None else self._admitted
        if not competing.size:
            self._choice = competing, competing
        elif self._choice is None or not self._steady or self._due_s <= self.now_s:
            self._choice = self._chooser.choose(self._contenders(competing))
        return self._choice

    def _contenders(self, competing: Ints) -> CompetingTasks:
        return CompetingTasks(
            gangs=self._beliefs.gangs,
            progress=self.progress,
            place=competing,
            free=self._holders.count,
            time_s=self.now_s,
            round_s=self._settings.round_s,
            version=self._version,
        )

    def _ideal_step(self) -> None:
        """Apply the shares exactly until tasks arrive or nodes change, or for one round after the last arrival.

        Finished tasks leave at the end of the step, as in Gavel.
        """
        here, begin_s, gangs = self._here, self.now_s, self.gangs
        shares = self._ideal_shares(here)
        more_arrive = self._arrived < len(gangs)
        self.now_s = min(
            self._next_arrival_s if more_arrive else begin_s + self._settings.round_s,
            self._supply.next_s,
            self._limit_s,
        )
        passed_s = self.now_s - begin_s
        samples = np.minimum((gangs.speeds[here] * shares).sum(axis=1) * passed_s, self.progress.left[here])
        done = samples >= self.progress.left[here] * _ROUNDING
        self.done_samples[here] += samples
        self.progress.left[here] -= samples
        self.progress.service_s[here] += shares * passed_s
        node_s = shares * (passed_s * gangs.nodes[here])[:, None]
        self.progress.node_s[here] += node_s.sum(axis=1)
        self.held_node_s += node_s.sum(axis=0)
        self.pool_node_s += self._holders.count * passed_s
        runs = shares.any(axis=1)
        self.start_s[here[runs]] = np.fmin(self.start_s[here[runs]], begin_s)
        if done.any():
            self._finish(here[done], np.full(int(done.sum()), self.now_s))
        self._idle_rounds = self._idle_rounds + 1 if here.size and not runs.any() else 0
        pool, waiting = int(self._holders.count.sum()), int((~runs).sum())
        counts = (int(runs.sum()), waiting, 0, 0, 0, int(done.sum()))
        self.steps.append(
            RoundStep(self._round, 1, begin_s, self.now_s, pool, float(node_s.sum()), float(samples.sum()), *counts)
        )
        self._round += 1
        self._add_by_user(here, node_s.sum(axis=1))

    def _ideal_shares(self, here: Ints) -> Floats:
        """Return the shares of these tasks, reduced where nodes have left since the policy computed them."""
        assert isinstance(self._policy, ByShares)  # noqa: S101 - simulate has looked
        count, nodes = self._holders.count, self.gangs.nodes[here][:, None]
        shares = np.where(nodes <= count, self._policy.shares(self._contenders(here)), 0.0)
        used = (shares * nodes).sum(axis=0)
        fitting: Floats = np.divide(count, used, out=np.ones(used.size), where=used * _ROUNDING > count)
        return shares * fitting

    def _launch(self, run: Ints, kind: Ints, mates: Ints | None) -> tuple[Ints, int]:
        """Stop tasks that lost their nodes and start new ones; return the started tasks and the number stopped."""
        progress, nodes, before = self.progress, self.gangs.nodes[run], self.progress.kind[run]
        fresh = (before != kind) | (progress.nodes[run] != nodes)
        if mates is not None or self._had_pairs:
            fresh |= progress.partner[run] != (_ALONE if mates is None else mates)
        held = self._here[progress.kind[self._here] >= 0]
        if held.size == run.size and not fresh.any():
            return run[:0], 0  # no change
        self._running[run] = True
        stops = held[~self._running[held]]
        self._running[run] = False
        moved = run[fresh & (before >= 0)]
        self._holders.release(np.concatenate((stops, moved)))
        # The first task of a pair counts the nodes for both
        own_nodes = nodes if mates is None else np.where((mates < 0) | (run < mates), nodes, 0)
        elsewhere = self._holders.give(run, kind, own_nodes, fresh)
        if elsewhere is not None:
            fresh |= elsewhere if mates is None else elsewhere | np.isin(mates, run[elsewhere])
            moved = run[fresh & (before >= 0)]
        started = run[fresh]
        self.preemptions[stops] += 1
        self.moves[moved] += 1
        self.starts[started] += 1
        progress.kind[stops] = -1
        if mates is not None or self._had_pairs:
            progress.partner[stops], progress.partner[run] = _ALONE, _ALONE if mates is None else mates
            self._had_pairs = mates is not None
        progress.kind[run], progress.nodes[run] = kind, nodes
        progress.overhead_s[started] = self.gangs.start_cost_s[started]
        self.start_s[started] = np.fmin(self.start_s[started], self.now_s)
        return started, stops.size

    def _turns(self, speed: Floats, needs_s: Floats) -> tuple[Floats, float]:
        """Return the run time of each task in a full round, and the length of the round.

        As in Gavel, tasks do whole samples, a round ends with its last task, and a round without tasks lasts until the
        next event.
        """
        round_s = self._settings.round_s
        turn_s = np.full(speed.size, round_s)
        if not self._settings.like_gavel:
            return turn_s, round_s
        np.divide(np.floor(speed * round_s), speed, out=turn_s, where=speed * round_s >= 1.0)
        if speed.size:
            return turn_s, float(np.minimum(turn_s, needs_s).max())
        events_s = (self._next_arrival_s, self._due_s, self._supply.next_s)
        next_s = min((event_s for event_s in events_s if event_s > self.now_s), default=math.inf)
        return turn_s, next_s - self.now_s if next_s < math.inf else round_s

    def _rounds_alike(self, run: Ints, kind: Ints, needs: Floats, length_s: float) -> int:
        """Return the number of identical rounds ahead; only the final round may have an event.

        ``needs`` are the rounds of ``length_s`` that each task needs. As in Gavel, the round in which a task finishes
        may be shorter than the rounds before.
        """
        all_run = run.size == self._here.size and self._chooser.keeps_kinds(kind) and not self._asks_always
        alike = self._steady or all_run or not self._holders.count.any()
        if not alike or self._phases.any or self._beliefs.teaches(run, kind):
            return 1
        event_s, due_s = min(self._limit_s, self._supply.next_s, self._next_arrival_s), self._due_s
        least = float(needs.min(initial=math.inf)) * _ROUNDING
        if event_s == due_s == least == math.inf:
            return _PATIENCE  # no event is possible
        if self._settings.like_gavel:
            due = max(1.0, (due_s - self.now_s) / length_s)
            return max(1, math.ceil(min((event_s - self.now_s) / length_s, due, least - 1.0)))
        until_s = min(event_s, max(due_s, self.now_s + length_s), self.now_s + least * length_s)
        last = math.ceil(until_s / length_s)  # exact: rounding must not add or drop a round
        last += (last * length_s < until_s) - ((last - 1) * length_s >= until_s)
        return max(1, last - self._round)

    def _until_taken(self, run: Ints, needs_s: Floats, begin_s: float, has_s: Floats) -> int:
        """Shorten the run time of tasks whose nodes leave; return their number."""
        then_s, taken = begin_s, 0
        while self._supply.next_s < self.now_s:
            change = self._supply.take()
            self.pool_node_s += self._holders.count * (change.time_s - then_s)
            then_s = change.time_s
            preempted = self._change(change)
            own = np.isin(run, preempted)
            has_s[own] = np.minimum(has_s[own], then_s - begin_s)
            own &= needs_s * _ROUNDING > then_s - begin_s  # tasks that finish before the change are unaffected
            self._take_away(run[own])
            taken += int(own.sum())
        self.pool_node_s += self._holders.count * (self.now_s - then_s)
        return taken

    def _advance(
        self, run: Ints, speeds: _RunSpeeds, needs_s: Floats, has_s: Floats
    ) -> tuple[float, NDArray[np.bool_], Floats]:
        """Advance all tasks; return the samples done, the finished tasks, and the seconds each ran."""
        progress, speed = self.progress, speeds.reached
        done = needs_s * _ROUNDING <= has_s
        ran_s = works_s = np.where(done, needs_s, has_s)
        if self._starts_cost:
            starting_s = np.minimum(ran_s, progress.overhead_s[run])
            works_s = ran_s - starting_s
            progress.overhead_s[run] -= starting_s
            self.start_up_samples[run] += starting_s * speed
        samples = works_s * speed
        if self._settings.like_gavel:
            samples = np.where(done | (speed * self._settings.round_s < 1.0), samples, np.rint(samples))
        self.done_samples[run] += samples
        progress.left[run] = np.where(done, 0.0, progress.left[run] - samples)
        if self.knows_hosts:
            self.spread_samples[run] += np.maximum(0.0, speeds.compact - speed) * ran_s
        return float(samples.sum()), done, ran_s

    def _add_held(self, run: Ints, kind: Ints, held_s: Floats, nodes: Floats) -> None:
        """Add the time that tasks held ``nodes``, and the resources they used."""
        held_node_s = held_s * nodes
        self.progress.service_s[run, kind] += held_s
        self.progress.node_s[run] += held_node_s
        self.held_node_s += np.bincount(kind, held_node_s, self.held_node_s.size)
        if self._counts_batches:
            self.batch_s[run] += held_s * self.gangs.batches[run, kind]
        if self.resources is not None:
            self.resource_s[run] += held_s[:, None] * self.resources.amounts[run]

    def _count_pairs(self, run: Ints, kind: Ints, held_s: Floats) -> None:
        """Add the paired time: for each pair, the time of the task that ran longer."""
        progress, paired = self.progress, np.flatnonzero(self._chooser.partner[run] >= 0)
        progress.paired_s[run[paired], kind[paired]] += held_s[paired]
        longest: dict[tuple[int, int], tuple[int, float]] = {}
        for index in paired.tolist():
            one, other = sorted((int(run[index]), int(self._chooser.partner[run[index]])))
            before_s = longest.get((one, other), (0, 0.0))[1]
            longest[one, other] = int(kind[index]), max(before_s, float(held_s[index]))
        for pair, (where, ran_s) in longest.items():
            row = progress.pairs.add(*pair)
            progress.pairs.joint_s[row, where] += ran_s

    def _finish(self, done: Ints, end_s: Floats) -> None:
        if self._admission is not None:
            self._admission.done(done, self.now_s)
        self.end_s[done] = end_s
        self._unmeasured -= int(np.count_nonzero((done >= self.measured.start) & (done < self.measured.stop)))
        self.progress.kind[done] = -1
        self._holders.release(done)
        self._here = self._here[np.isnan(self.end_s[self._here])]
        self._changed()
