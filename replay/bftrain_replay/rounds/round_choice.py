"""From a policy's priorities to the tasks that run on each kind in a round."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NoReturn, TypeVar

import numpy as np

from bftrain.errors import BadInput
from bftrain_replay.rounds.pair_shares import PairWishes
from bftrain_replay.rounds.round_inputs import CompetingTasks, Floats, Ints
from bftrain_replay.rounds.round_policy import PairingPolicy, RoundPolicy, SizingPolicy, policy_errors
from bftrain_replay.rounds.round_settings import BY_PRIORITY, DRAWN, LISTED, RoundSettings
from bftrain_replay.simulation.replay_settings import NO

T = TypeVar("T")

_WISHES_PER_BATCH: Final = 300  # wishes converted to lists at a time: nodes mostly run out early


def pack(task: Ints, kind: Ints, nodes: Ints, free: Ints) -> Ints:
    """Return the indices of the granted wishes, in order.

    Each wish asks for some ``nodes`` of a ``kind`` for a ``task``; ``free`` are the nodes of each kind. Wishes are
    granted in turn if enough nodes are left and the task has no earlier grant.
    """
    room, has, granted = free.tolist(), set[int](), []
    left = sum(room)
    for first in range(0, task.size, _WISHES_PER_BATCH):
        columns = (column[first : first + _WISHES_PER_BATCH].tolist() for column in (task, kind, nodes))
        for place, (who, where, count) in enumerate(zip(*columns, strict=True), first):
            if count <= room[where] and who not in has:
                room[where] -= count
                has.add(who)
                granted.append(place)
                left -= count
                if not left:
                    return np.array(granted, dtype=np.intp)
    return np.array(granted, dtype=np.intp)


class RoundChoice:
    """Calls the policy and grants wishes by priority."""

    def __init__(self, policy: RoundPolicy, settings: RoundSettings, tasks: int, kinds: int) -> None:
        self._policy = policy
        self._kinds = kinds
        self._sizing = policy if isinstance(policy, SizingPolicy) else None
        self._pairing = policy if isinstance(policy, PairingPolicy) else None
        self._blocked = getattr(policy, "blocked", None)
        self._kind_order = settings.order_of_kinds
        self._leftovers_by_kind = settings.like_gavel  # Gavel fills one kind before the next
        self._overtaking = settings.overtaking != NO
        self.any_pairs = False  # whether any tasks of the last choice share nodes
        self.partner = np.full(tasks, -1, dtype=np.intp)  # each running task's partner on the same nodes
        self.speed = np.zeros(tasks)  # speed of each task with its partner
        self._random = Random(settings.seed + 5)  # noqa: S311 - Gavel's generator, so that the same orders are drawn
        self._orders = np.zeros((0, kinds), dtype=np.intp)  # drawn orders of kinds that are not used yet

    def orders(self, count: int = 1) -> Ints:
        """Return at least this many of the next orders of kinds, drawn at random."""
        if (more := count - len(self._orders)) > 0:
            drawn = np.tile(np.arange(self._kinds), (more, 1))
            for order in drawn:
                self._random.shuffle(order)
            self._orders = np.concatenate((self._orders, drawn))
        return self._orders

    def use_orders(self, count: int) -> None:
        """Move on to the next orders."""
        self._orders = self._orders[count:]

    def _next_order(self) -> Ints:
        order: Ints = self.orders()[0]
        self.use_orders(1)
        return order

    def keeps_kinds(self, kind: Ints) -> bool:
        """Return whether the next round assigns the same kinds, given that all tasks run on these."""
        if self._kinds == 1:
            return True
        # Gavel fills the first kind first: tasks that all fit there stay
        return self._leftovers_by_kind and self._kind_order == LISTED and not kind.any()

    def choose(self, contenders: CompetingTasks) -> tuple[Ints, Ints]:
        """Return the running tasks and their kind numbers."""
        if self._sizing is not None:
            self._resize(self._sizing, contenders)
        given = self._priorities(contenders)
        if self.any_pairs:
            self.partner[:], self.any_pairs = -1, False
        wishes = None if self._pairing is None else self._wishes(self._pairing, contenders)
        if wishes is None:
            run, kind = self._alone(given, contenders)
        else:
            run, kind = self._with_pairs(given, wishes, contenders)
        if self._blocked is not None and (blocked := self._blocked(contenders)).any():
            runs = ~blocked[run]
            run, kind = run[runs], kind[runs]
        return contenders.place[run], kind

    def _alone(self, given: Floats, contenders: CompetingTasks) -> tuple[Ints, Ints]:
        """Grant wishes of single tasks; return the task numbers and their kinds."""
        if given.ndim == 1:  # one priority per task: each task prefers its faster kind
            order = np.argsort(-given, kind="stable")
            order = order[given[order] > -np.inf]
            kinds = contenders.gangs.fastest[contenders.place[order]]
            task, kind = np.repeat(order, kinds.shape[1]), kinds.ravel()
        else:
            task, kind = self._by_task_and_kind(given, contenders)
        able = contenders.speeds[task, kind] > 0.0
        task, kind = task[able], kind[able]
        return self._granted(task, kind, contenders)

    def _granted(self, task: Ints, kind: Ints, contenders: CompetingTasks) -> tuple[Ints, Ints]:
        """Return the tasks, by number, and the kinds of the granted wishes."""
        nodes = contenders.nodes[task]
        if contenders.free.size == 1 and int(nodes.sum()) <= contenders.free[0]:
            return task, kind  # there is room for all
        granted = pack(task, kind, nodes, contenders.free)
        if not self._overtaking:
            tasks = task[np.sort(np.unique(task, return_index=True)[1])]  # order: first wish
            waits = ~np.isin(tasks, task[granted])
            if waits.any():
                granted = granted[np.isin(task[granted], tasks[: int(np.argmax(waits))])]
        return task[granted], kind[granted]

    def _with_pairs(self, given: Floats, wishes: PairWishes, contenders: CompetingTasks) -> tuple[Ints, Ints]:
        """Grant single-task and pair wishes in one order; return the task numbers and their kinds."""
        count, kinds = len(contenders), len(contenders.kinds)
        rank = np.zeros(kinds, dtype=np.intp)
        if self._kind_order != BY_PRIORITY:
            rank = self._next_order() if self._kind_order == DRAWN else np.arange(kinds)
        given = np.broadcast_to(given.reshape(count, -1), (count, kinds))
        task, kind = np.nonzero((given > -np.inf) & (contenders.speeds > 0.0))
        priority = np.concatenate((given[task, kind], wishes.priority))
        one, other = np.concatenate((task, wishes.one)), np.concatenate((np.full(task.size, -1), wishes.other))
        kind = np.concatenate((kind, wishes.kind))
        block = rank[kind] + kinds * ((priority < 0.0) & (not self._leftovers_by_kind))
        nodes, free, runs = contenders.nodes.tolist(), contenders.free.tolist(), dict[int, int]()
        by_kind, has = self._kind_order != BY_PRIORITY, np.zeros(count + 1, dtype=bool)  # the last place: no partner
        for number in range(2 * kinds):
            if len(runs) == count:
                break
            turns = np.flatnonzero(block == number)
            turns = turns[~(has[one[turns]] | has[other[turns]])]
            turns = turns[np.argsort(-priority[turns], kind="stable")]
            columns = (column[turns].tolist() for column in (one, other, kind))
            for turn, first, second, where in zip(turns.tolist(), *columns, strict=True):
                if first in runs or second in runs or nodes[first] > free[where]:
                    continue
                free[where] -= nodes[first]
                runs[first] = where
                if second >= 0:
                    runs[second], self.any_pairs = where, True
                    places = contenders.place[[first, second]]
                    self.partner[places], self.speed[places] = places[::-1], wishes.speeds[turn - task.size]
                if by_kind and not free[where]:
                    break  # all turns of this block are of this kind
            has[list(runs)] = True
        return np.array(list(runs), dtype=np.intp), np.array(list(runs.values()), dtype=np.intp)

    def _wishes(self, policy: PairingPolicy, contenders: CompetingTasks) -> PairWishes | None:
        """Ask the policy for pairs of tasks that share nodes."""
        wishes = self._called(policy.pairs, contenders)
        if isinstance(wishes, PairWishes):
            return wishes if wishes.one.size else None
        tasks, kinds, nodes = range(len(contenders)), range(len(contenders.kinds)), contenders.nodes
        for wish in wishes:
            priority, one, other, kind, speeds = wish
            there = one in tasks and other in tasks and kind in kinds and one != other
            numbers = np.isfinite(speeds).all() and min(speeds) >= 0.0 and not np.isnan(priority)
            if not (there and numbers and nodes[one] == nodes[other]):
                fix = "pair two tasks of the same gang by number, on a kind by number, each at a finite speed"
                self._reject(contenders, f"gave the pair {tuple(wish)}", fix)
        return PairWishes.of(wishes) if wishes else None

    def _resize(self, policy: SizingPolicy, contenders: CompetingTasks) -> None:
        """Ask the policy for the sizes of all tasks."""
        given = self._asked(policy.sizes, contenders)
        least = np.array([task.min_nodes for task in contenders.tasks])
        most = np.array([task.max_nodes for task in contenders.tasks])
        fix = "give one whole number a task, from its min_nodes to its max_nodes"
        if given.shape != least.shape:
            self._reject(contenders, f"gave sizes of shape {given.shape} for {least.size} tasks", fix)
        wrong = np.flatnonzero(~((least <= given) & (given <= most) & (given % 1 == 0)))
        if wrong.size:
            task = contenders.tasks[wrong[0]]
            runs = f"which runs on {task.min_nodes} to {task.max_nodes}"
            self._reject(contenders, f"gave task '{task.name}', {runs}, the size {given[wrong[0]]:g}", fix)
        contenders.gangs.resize(contenders.place, given.astype(np.intp))

    def _where(self, contenders: CompetingTasks) -> str:
        return f"policy '{self._policy.name}', {contenders.when}"

    def _reject(self, contenders: CompetingTasks, what: str, fix: str) -> NoReturn:
        raise BadInput(what, where=self._where(contenders), fix=fix)

    def _called(self, question: Callable[[CompetingTasks], T], contenders: CompetingTasks) -> T:
        with policy_errors(self._where(contenders)):
            return question(contenders)

    def _asked(self, question: Callable[[CompetingTasks], Floats], contenders: CompetingTasks) -> Floats:
        given = self._called(question, contenders)
        try:
            return np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            self._reject(contenders, f"gave {type(given).__name__} {given!r:.60}", "give an array of numbers")

    def _priorities(self, contenders: CompetingTasks) -> Floats:
        """Ask for a number for each task, or for each task and kind; the largest is served first."""
        given = self._asked(self._policy.priorities, contenders)
        count, kinds = len(contenders), len(contenders.kinds)
        if given.shape not in {(count,), (count, kinds)}:
            what = f"gave priorities of shape {given.shape} for {count} tasks and {kinds} kinds"
            self._reject(contenders, what, "give one number a task, or one by task and kind")
        if np.isnan(given).any():
            name = contenders.tasks[np.argwhere(np.isnan(given))[0][0]].name
            self._reject(contenders, f"gave task '{name}' the priority NaN", "give a number, -inf to let it wait")
        return given

    def _by_task_and_kind(self, given: Floats, contenders: CompetingTasks) -> tuple[Ints, Ints]:
        """Order wishes by kind if kinds have an order, then by priority and arrival, then by the task's faster kind.

        Negative priorities use nodes that would be idle. They rank last: within their kind with Gavel's conventions,
        otherwise after the wishes for all kinds.
        """
        if self._kind_order != BY_PRIORITY:
            count = given.shape[1]
            kinds = self._next_order() if self._kind_order == DRAWN else np.arange(count)
            task = np.argsort(-given[:, kinds], axis=0, kind="stable").T.ravel()
            kind = np.repeat(kinds, given.shape[0])
            if not self._leftovers_by_kind:
                order = np.argsort(given[task, kind] < 0.0, kind="stable")
                task, kind = task[order], kind[order]
        else:
            fastest = contenders.gangs.fastest[contenders.place]
            order = np.argsort(-np.take_along_axis(given, fastest, axis=1).ravel(), kind="stable")
            task, kind = order // given.shape[1], fastest.ravel()[order]
        wanted = given[task, kind] > -np.inf
        return task[wanted], kind[wanted]
