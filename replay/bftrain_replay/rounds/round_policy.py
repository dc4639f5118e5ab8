"""The port (protocol) of round policies, which choose the tasks of the next round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import parts, registry
from bftrain.assembly import shares_of
from bftrain.errors import BadInput, BftrainError, UnknownName, raised
from bftrain.ports import SharingPolicy
from bftrain.values.sharing import Shares, SharingProblem, SharingTask
from bftrain_replay.rounds.gavel_shares import (
    ALLOX,
    BY_FIRST_KIND,
    DIRECT,
    FINISH_TIMES,
    MAKESPANS,
    WATER_FILLING,
    filled_shares,
    finish_time_shares,
    makespan_shares,
    max_min_shares,
    queue_shares,
    shares_like_gavel,
)
from bftrain_replay.rounds.pair_shares import PairModels, PairShares, PairWish, PairWishes
from bftrain_replay.rounds.published_policies import ranked
from bftrain_replay.rounds.round_inputs import CompetingTasks, Floats, Ints
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_solvers.sharing.rising import ShareDemands

_DEFICIT_WEIGHT: Final = 1e-14  # weight of a second of deficit; only decides between equal priorities
_PACKING_GAIN: Final = 1.5  # minimum sum of relative speeds for a pair; two tasks at full speed reach 2
_NO_SHARE: Final = 1e9  # seconds; leftovers rank behind all shares, ordered by their (smaller) deficits


@runtime_checkable
class RoundPolicy(Protocol):
    """Chooses the tasks that run in a round. A factory makes one for every run.

    Set ``steady = True`` on a policy that changes priorities only when tasks or nodes arrive or leave: the rounds
    between such changes are simulated in one step. So are rounds in which all tasks run on nodes of one kind, unless a
    stateful policy sets ``every_round = True``. A policy that delays all tasks sets ``due_s`` to the time of its next
    decision (infinite: no delay), otherwise the engine reports a stall.
    """

    @property
    def name(self) -> str:
        """The registered name."""

    def priorities(self, contenders: CompetingTasks) -> NDArray[np.float64]:
        """Return a number for each task, or for each task and kind; larger ones run first, -inf never."""


@runtime_checkable
class SizingPolicy(RoundPolicy, Protocol):
    """Also chooses each task's number of nodes, before priorities. A new size counts as a new start."""

    def sizes(self, contenders: CompetingTasks) -> NDArray[np.float64]:
        """Return each task's number of nodes, from its ``min_nodes`` to its ``max_nodes``."""


@runtime_checkable
class PairingPolicy(RoundPolicy, Protocol):
    """Lets tasks share nodes: pair wishes are granted together with single-task wishes, kind by kind."""

    def pairs(self, contenders: CompetingTasks) -> Sequence[PairWish] | PairWishes:
        """Return wishes of pairs, one by one or in columns; called after ``priorities``."""


@contextmanager
def policy_errors(where: str) -> Iterator[None]:
    """Report the exceptions of a policy as bad input; ``where`` names the policy and the round."""
    try:
        yield
    except BftrainError:
        raise
    except Exception as error:
        raise BadInput(raised(error), where=where, fix="repair the policy") from error


@dataclass(frozen=True)
class OrderedPolicy:
    """A policy that orders tasks by a key. ``steady``: only arriving or leaving tasks or nodes change its order."""

    name: str
    keys: Callable[[CompetingTasks], Floats]
    steady: bool = False

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Return a number for each task; the smallest key is served first, ties by arrival."""
        return -self.keys(contenders)


def _received(contenders: CompetingTasks) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        by_weight = contenders.received_node_s / contenders.weight
    return np.where(contenders.weight > 0.0, by_weight, np.finfo(np.float64).max)  # tasks of weight 0 rank last


def fifo() -> OrderedPolicy:
    """First come, first served policy."""
    return OrderedPolicy("fifo", lambda contenders: contenders.submit_s, steady=True)


class ResettingPolicy:
    """A policy that plans again when tasks or nodes have changed, with a minimum interval between these resets.

    ``due_s`` is the time of a postponed reset (infinite: no reset is postponed).
    """

    def __init__(self, settings: RoundSettings) -> None:
        self.due_s = math.inf
        self.interval_s = settings.least_interval_s
        self._like_gavel = settings.like_gavel
        self.reset_s = -math.inf
        self._version = -1

    def changed_since(self, version: int) -> bool:
        """Return whether tasks or nodes have changed since the last reset."""
        return version != self._version

    def resets(self, contenders: CompetingTasks) -> bool:
        """Return whether to plan again now; the caller then does so."""
        if contenders.version == self._version:
            return False
        self.due_s = self.reset_s + self.interval_s
        if contenders.time_s < self.due_s:
            return False
        self._version, self.reset_s, self.due_s = contenders.version, contenders.time_s, math.inf
        if self._like_gavel and not self.reset_s:
            self.reset_s = -math.inf  # Gavel's simulator ignores a reset at time 0
        return True


class FifoLikeGavel(ResettingPolicy):
    """FIFO by the rules of Gavel's simulator.

    Each reset assigns all tasks in arrival order to the fastest kind with enough free nodes, and stops at the first
    task for which no kind has enough. It skips a task that can use none of the kinds with enough. Tasks keep their kind
    until the next reset.
    """

    name = "fifo"
    steady = True  # priorities are constant between resets

    def __init__(self, settings: RoundSettings) -> None:
        super().__init__(settings)
        self._kind: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # each task's kind; -1: no kind

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Return 0 for the assigned kind of each task, minus infinity for all other kinds."""
        if self.resets(contenders):
            self._assign(contenders)
        kinds = np.arange(len(contenders.kinds))
        return np.where(self._kind[contenders.place][:, None] == kinds, 0.0, -math.inf)

    def _assign(self, contenders: CompetingTasks) -> list[int]:
        """Assign kinds; return the indices of the unexamined tasks."""
        self._kind = np.full(len(contenders.gangs), -1, dtype=np.intp)
        free, queue = contenders.free.tolist(), list[int](contenders.place.tolist())
        tasks = zip(queue, contenders.nodes.tolist(), contenders.speeds.tolist(), strict=True)
        for number, (place, nodes, speeds) in enumerate(tasks):
            if not any(free):
                return queue[number:]
            kinds = [kind for kind, left in enumerate(free) if left >= nodes]
            if not kinds:
                return queue[number + 1 :]
            fastest = max(kinds, key=speeds.__getitem__)
            if speeds[fastest] > 0.0:
                self._kind[place] = fastest
                free[fastest] -= nodes
        return []


class PackedFifoLikeGavel(FifoLikeGavel):
    """FIFO by the rules of Gavel's simulator, with pairs.

    Each unexamined task joins the one with which it packs best, in arrival order, up to the first that packs with none.
    """

    name = "fifo-packed"

    def __init__(self, settings: RoundSettings) -> None:
        super().__init__(settings)
        self._pairs: dict[tuple[int, int], tuple[int, tuple[float, float]]] = {}  # kind and speeds of each pair
        self._models: PairModels | None = None

    def pairs(self, contenders: CompetingTasks) -> list[PairWish]:
        """Return a wish for each pair with both tasks present."""
        number = {place: each for each, place in enumerate(contenders.place.tolist())}
        return [
            PairWish(0.0, number[one], number[other], kind, speeds)
            for (one, other), (kind, speeds) in self._pairs.items()
            if one in number and other in number
        ]

    def _assign(self, contenders: CompetingTasks) -> list[int]:
        queue, gangs = super()._assign(contenders), contenders.gangs
        self._models = models = self._models or models_of(contenders)
        self._pairs = {}
        alone = contenders.place[self._kind[contenders.place] >= 0]
        while queue and models is not None:
            place = queue.pop(0)
            mates = alone[gangs.nodes[alone] == gangs.nodes[place]]
            kinds = self._kind[mates]
            speeds = models.speeds[models.model[mates], models.model[place], kinds]
            own = np.column_stack((gangs.speeds[mates, kinds], gangs.speeds[place, kinds]))
            gains = np.divide(speeds, own, out=np.zeros_like(speeds), where=own > 0.0).sum(axis=1)
            if gains.max(initial=0.0) <= _PACKING_GAIN:
                break
            best = int(gains.argmax())
            mate = int(mates[best])
            self._pairs[mate, place] = int(kinds[best]), (float(speeds[best, 0]), float(speeds[best, 1]))
            self._kind[mate], alone = -1, alone[alone != mate]
        return queue


class BlindFifoLikeGavel(ResettingPolicy):
    """FIFO on any kind, as in Gavel's simulator: jobs never change their kind.

    A finished task hands its slot to the first waiting task. Other new tasks get the alphabetically last kind on the
    free list. A full kind stays on that list, and a random kind with room is removed instead. A kind may therefore have
    more tasks than nodes; its tasks then take turns.
    """

    name = "fifo-blind"
    every_round = True  # joined rounds would end at times with other last digits

    def __init__(self, settings: RoundSettings) -> None:
        super().__init__(settings)
        self._random = Random(settings.seed)  # noqa: S311 - Gavel's generator, so that the same kinds are drawn
        self._admits = bool(settings.admission)  # an admission may let waiting tasks run between resets
        self._kind: dict[int, int] = {}
        self._kind_of: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # kind of all tasks; -1: no kind
        self._since_s: Floats = np.zeros(0)  # service at the last reset
        self._owed_s: Floats = np.zeros(0)  # seconds promised to each task so far, minus seconds received
        self._counted_s = 0.0  # time up to which seconds are promised

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Return a number for the assigned kind of each task: the largest for the task with the least service."""
        here, count = contenders.place, len(contenders.gangs)
        if not self._since_s.size:
            self._since_s, self._owed_s = np.zeros((2, count))
            self._kind_of = np.full(count, -1, dtype=np.intp)
        service_s = contenders.service_s.sum(axis=1)
        if self.resets(contenders):
            self._owed_s[list(self._kind)] += contenders.time_s - self._counted_s
            rows = np.arange(count) if self._admits else here
            all_s = contenders.progress.service_s[rows].sum(axis=1)
            self._owed_s[rows] -= all_s - self._since_s[rows]
            self._since_s[rows], self._counted_s = all_s, contenders.time_s
            self._assign(contenders)
            self._kind_of[here] = [self._kind.get(place, -1) for place in here.tolist()]
        received_s = service_s - self._since_s[here] + contenders.round_s / 2.0
        own = self._kind_of[here]
        turn = len(here) + ranked(received_s, -self._owed_s[here])
        return np.where(own[:, None] == np.arange(len(contenders.kinds)), turn[:, None], -math.inf)

    def _assign(self, contenders: CompetingTasks) -> None:
        nodes = dict(zip(contenders.place.tolist(), contenders.nodes.tolist(), strict=True))
        speeds = dict(zip(contenders.place.tolist(), contenders.speeds.tolist(), strict=True))
        queue, free = [place for place in nodes if place not in self._kind], contenders.free.tolist()
        for place, kind in sorted(self._kind.items()):
            if place in nodes:
                free[kind] -= nodes[place]
                continue
            if queue and nodes[queue[0]] <= free[kind] and speeds[queue[0]][kind] > 0.0:
                self._kind[queue[0]] = kind
                free[kind] -= nodes[queue.pop(0)]
            del self._kind[place]
        listed = sorted((kind for kind, count in enumerate(free) if count > 0), key=lambda kind: contenders.kinds[kind])
        while queue and listed:
            place, kind = queue.pop(0), listed[-1]
            fitting = [number for number, each in enumerate(listed) if free[each] >= nodes[place]]
            if not fitting:
                return
            drawn = fitting[self._random.randrange(len(fitting))]
            if speeds[place][kind] > 0.0:
                self._kind[place] = kind
                free[kind] -= nodes[place]
                if not free[kind]:
                    listed.pop(drawn)


def las() -> OrderedPolicy:
    """Least attained service first: the fewest node-seconds received, by weight."""
    return OrderedPolicy("las", _received)


def srtf() -> OrderedPolicy:
    """Shortest remaining time first, on each task's fastest kind."""
    return OrderedPolicy("srtf", lambda contenders: contenders.left_s)


class ByShares(ResettingPolicy):
    """Applies a sharing policy. If that ``needs_work``, every task must have an amount of work.

    Shares are recomputed no more than once per interval. A task that arrives between two computations has no share.
    Under Gavel's conventions it waits for the next computation, at ``due_s`` (infinite: not before tasks or nodes
    arrive or leave).
    """

    steady = False

    def __init__(self, policy: SharingPolicy, settings: RoundSettings) -> None:
        super().__init__(settings)
        self.name = policy.name
        self.needs_work = bool(getattr(policy, "needs_work", False))
        self.computed = 0  # how often
        self.wall_s = 0.0
        self._policy = policy
        self._settings = settings
        self._shares: Floats = np.zeros((0, 0))
        self._shared: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # tasks that may have shares
        self._service_s: Floats = np.zeros((0, 0))  # service of all tasks at the last arrival or departure
        self._there: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # tasks present at that moment
        self._is_new: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # tasks that arrived later or have not arrived
        self._pairs = PairShares(0, 0)
        self._models: PairModels | None = None  # models of all tasks, with pair speeds
        self._kept: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # only kind of each task with a single-kind share
        self._alone_s: Floats = np.zeros(0)  # time that each task's work so far would take on 1/n of the cluster
        self._alone_speed: Floats = np.zeros(0)  # its speed there since the last reset
        self._left: Floats = np.zeros(0)  # work left at the last reset
        # Gavel's deficits: time promised over all resets, minus time received
        self._deficit_s: Floats = np.zeros((0, 0))
        self._counted_s = 0.0  # time up to which deficits are counted
        self._worst = 1.0  # the largest rho of finish-time at the last reset

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Return a number by task and kind: share over time received.

        Half a round counts as received at the start, so the shares alone decide the first rounds. Pairs without a share
        rank last and use nodes that would be idle: tasks with a weight go first, then the task with the least service.
        """
        if self.resets(contenders):
            self._reset(contenders)
        place = contenders.place
        share = self._shares[place]
        received = self._alone_time_s(contenders, place) - self._service_s[place] + contenders.round_s / 2.0
        ahead = share / received
        if self._settings.like_gavel:
            deficit_s = self._deficit_s[place]
            ahead *= 1.0 + _DEFICIT_WEIGHT * deficit_s
            behind = _NO_SHARE - deficit_s
        else:
            # Upper bound of the time received since the reset: all elapsed time, plus half a round on each kind
            most_s = contenders.time_s + contenders.round_s * received.shape[1]
            weightless = np.where(contenders.weight > 0.0, 0.0, most_s)
            behind = received.sum(axis=1, keepdims=True) + weightless[:, None]
        return np.where(share > 0.0, ahead, -behind)

    def recompute(self, contenders: CompetingTasks) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Compute shares if they are due; return the new columns of tasks and of pairs, for compiled rounds."""
        if not self.resets(contenders):
            return {}, {}
        self._reset(contenders)
        self._pairs.count_received(contenders.progress, contenders.place)
        tasks = {"shares": self._shares, "deficit_s": self._deficit_s, "service_then_s": self._service_s}
        return {**tasks, "is_new": self._is_new}, self._pairs.columns

    def shares(self, contenders: CompetingTasks) -> Floats:
        """Return the shares by task and kind; 0 for a task that arrived after the last computation."""
        if self.resets(contenders):
            self._reset(contenders)
        return self._shares[contenders.place]

    def blocked(self, contenders: CompetingTasks) -> NDArray[np.bool_]:
        """Return the tasks that get nodes but do not run: with Gavel, the arrivals since the last reset."""
        if not self._settings.like_gavel:
            return np.zeros(len(contenders), dtype=bool)
        return self._is_new[contenders.place]

    def pairs(self, contenders: CompetingTasks) -> PairWishes:
        """Return a wish for each current pair with a share, ranked by share over time received."""
        self._pairs.count_received(contenders.progress, contenders.place)
        return self._pairs.wishes(contenders, _DEFICIT_WEIGHT if self._settings.like_gavel else 0.0)

    def _take_pairs(self, found: Shares, place_of: Mapping[str, int], contenders: CompetingTasks) -> None:
        """Store the shares of pairs, and the speeds at which they run."""
        kinds, pairs = _names(contenders), () if found.pairs is msgspec.UNSET else found.pairs
        places = np.array([[place_of[name] for name in pair.tasks] for pair in pairs], dtype=np.intp).reshape(-1, 2)
        shares = np.array([[pair.shares.get(kind, 0.0) for kind in kinds] for pair in pairs]).reshape(-1, len(kinds))
        self._replace_pairs(np.sort(places, axis=1), shares, contenders)

    def _replace_pairs(self, places: Ints, shares: Floats, contenders: CompetingTasks) -> None:
        """Replace the shares of pairs."""
        speeds = np.zeros((*shares.shape, 2))
        if places.size:
            self._models = self._models or models_of(contenders)
        if self._models is not None:
            one, other = self._models.model[places].T
            speeds = self._models.speeds[one, other]
        self._pairs.replace(places, shares, speeds, contenders.place, contenders.progress.pairs)

    def _reset(self, contenders: CompetingTasks) -> None:
        """Count the time that tasks have received, and compute all shares again."""
        if not self._left.size:
            self._left = contenders.gangs.work.copy()
            self._alone_s, self._alone_speed = np.zeros_like(self._left), np.zeros_like(self._left)
            self._kept = np.full(self._left.size, -1)
            self._shares = np.zeros_like(contenders.progress.service_s)
            self._deficit_s, self._service_s = np.zeros_like(self._shares), np.zeros_like(self._shares)
            self._pairs = PairShares(*self._shares.shape)
            self._is_new = np.ones(len(self._left), dtype=bool)
        # With admission, waiting tasks may have run since the last reset
        rows = contenders.place if not self._settings.admission else np.arange(len(self._left))
        self._count_alone(contenders, rows)
        self._count_deficits(contenders, rows)
        if not np.array_equal(contenders.place, self._there):
            # After a change of nodes alone, received time still counts: with a log, nodes may change every round
            self._service_s[rows] = self._alone_time_s(contenders, rows)
            contenders.progress.pairs.forget_readings()
            self._there = contenders.place
            self._is_new[self._there] = False
        kinds_kept = (
            contenders.progress.kind[rows] if not self._settings.like_gavel else self._shares[rows].argmax(axis=1)
        )
        self._kept[rows] = np.where(self._shares[rows].max(axis=1, initial=0.0) >= 1.0, kinds_kept, -1)
        self._shares[self._shared] = 0.0
        self._shared = contenders.place
        fits = contenders.nodes[:, None] <= contenders.free
        able = np.flatnonzero(((contenders.speeds > 0.0) & fits).any(axis=1))
        if self._settings.like_gavel and self.name in DIRECT and able.size and contenders.weight[able].any():
            self._set_central_shares(contenders, able)
            return
        problem = self._problem(contenders, able)
        if problem is None:
            return
        begun_s = perf_counter()
        found = shares_of(self._policy, problem, f", {contenders.when}")
        self.wall_s += perf_counter() - begun_s
        self.computed += 1
        kinds = _names(contenders)
        shares = np.array([[found.shares[task.name].get(kind, 0.0) for kind in kinds] for task in problem.tasks])
        if self._settings.like_gavel:
            speeds = np.where(fits, self._speeds(contenders), 0.0)
            shares = shares_like_gavel(self.name, shares, _market(contenders, able, speeds[able]))
        self._shares[contenders.place[able]] = shares
        places = contenders.place[able].tolist()
        self._take_pairs(found, dict(zip(found.shares, places, strict=True)), contenders)

    def _set_central_shares(self, contenders: CompetingTasks, able: Ints) -> None:
        """Set the shares of a policy that only uses speeds, weights or work, without building a problem."""
        begun_s = perf_counter()
        market, places, models = _market(contenders, able, self._speeds(contenders)[able]), contenders.place[able], None
        if self.name.endswith("-packed"):
            models = self._models_of(contenders, places)
        if self.name in MAKESPANS:
            found = makespan_shares(market, contenders.left_samples[able], models)
        elif self.name in FINISH_TIMES:
            left = contenders.left_samples[able]
            age_s = np.maximum(0.0, contenders.time_s - contenders.submit_s[able])
            alone_s = self._alone_s[places] + left / self._alone_speed[places]
            found, self._worst = finish_time_shares(market, left, age_s, alone_s, self._worst)
        elif self.name in WATER_FILLING:
            found = filled_shares(self.name, market, contenders.weight[able])
        elif self.name == ALLOX:
            found = queue_shares(market, contenders.left_samples[able], self._kept[places])
        else:
            found = max_min_shares(self.name, market, contenders.weight[able], models)
        self._shares[places] = found.alone
        if models is not None:
            one, other = np.triu_indices(places.size, 1)
            one, other = np.array([one, other])[:, market.nodes[one] == market.nodes[other]]
            shares = found.together[found.group[one], found.group[other]]
            self._replace_pairs(places[np.column_stack((one, other))], shares, contenders)
        self.wall_s += perf_counter() - begun_s
        self.computed += 1

    def _models_of(self, contenders: CompetingTasks, places: Ints) -> PairModels | None:
        """Return the models of these tasks with the speeds of pairs, or ``None`` without pairs."""
        self._models = self._models or models_of(contenders)
        return self._models and PairModels(self._models.model[places], self._models.speeds)

    def _count_deficits(self, contenders: CompetingTasks, rows: Ints) -> None:
        """Add the time promised since the last reset; subtract the time received alone."""
        passed_s = contenders.time_s - self._counted_s
        received_s = self._alone_time_s(contenders, rows) - self._service_s[rows]
        self._deficit_s[rows] += self._shares[rows] * passed_s - received_s
        self._pairs.count_received(contenders.progress, contenders.place)
        self._pairs.count_deficits(passed_s)
        self._counted_s = contenders.time_s

    @staticmethod
    def _alone_time_s(contenders: CompetingTasks, rows: Ints) -> Floats:
        """Return the time by kind that tasks have received alone."""
        alone_s: Floats = contenders.progress.service_s[rows] - contenders.progress.paired_s[rows]
        return alone_s

    def _speeds(self, contenders: CompetingTasks) -> Floats:
        """Return the speeds that the policy sees: all kinds are like the first one if it knows no difference."""
        if self.name not in BY_FIRST_KIND:
            return contenders.speeds
        first = contenders.speeds[:, :1]
        return np.where(first > 0.0, first, contenders.speeds)

    def _count_alone(self, contenders: CompetingTasks, rows: Ints) -> None:
        """Add the hypothetical time of the work since the last reset on 1/n of the cluster."""
        left, speed = contenders.progress.left[rows], self._alone_speed[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            took_s = (self._left[rows] - left) / speed
        self._alone_s[rows] += np.where((speed > 0.0) & np.isfinite(took_s), took_s, 0.0)
        self._left[rows], self._alone_speed[rows] = left, 0.0
        speeds, count = self._speeds(contenders), max(1, len(contenders))
        part = np.where(speeds > 0.0, contenders.free / contenders.nodes[:, None] / count, 0.0)
        part /= np.maximum(1.0, part.sum(axis=1, keepdims=True))
        self._alone_speed[contenders.place] = (speeds * part).sum(axis=1)

    def _problem(self, contenders: CompetingTasks, able: Ints) -> SharingProblem | None:
        if not able.size:
            return None
        kinds, place, weight = _names(contenders), contenders.place[able], contenders.weight[able]
        if not weight.any():  # tasks of weight 0 share equally if no others can run
            weight = np.ones_like(weight)
        age_s = (contenders.time_s - contenders.submit_s[able]).tolist()
        left, alone_s = contenders.left_samples[able].tolist(), self._alone_s[place].tolist()
        specs, nodes = [contenders.gangs.specs[each] for each in place], contenders.gangs.nodes[place].tolist()
        models, pairs = contenders.gangs.pairs.between([spec.name for spec in specs], nodes)
        tasks = []
        for number, row in enumerate(self._speeds(contenders)[able].tolist()):
            spec = specs[number]
            tasks.append(
                SharingTask(
                    name=spec.name,
                    speeds=dict(zip(kinds, row, strict=True)),
                    nodes=nodes[number],
                    weight=float(weight[number]),
                    entity=spec.user,
                    work_left_samples=left[number] if math.isfinite(left[number]) else None,
                    age_s=max(0.0, age_s[number]),
                    alone_s=alone_s[number],
                    deadline_in_s=None if spec.deadline_s is None else spec.deadline_s - contenders.time_s,
                    model=models[number],
                    kind=kinds[kept] if (kept := int(self._kept[place[number]])) >= 0 else "",
                )
            )
        prices = {
            name: self._settings.prices.get(kind, 1.0) for name, kind in zip(kinds, contenders.kinds, strict=True)
        }
        return SharingProblem(
            nodes=dict(zip(kinds, contenders.free.tolist(), strict=True)),
            policy=self.name,
            tasks=tuple(tasks),
            entities=self._settings.entities,
            prices=prices,
            pairs=pairs,
        )


def models_of(contenders: CompetingTasks) -> PairModels | None:
    """Return the models of all tasks and their pair speeds, or ``None`` without pairs."""
    gangs = contenders.gangs
    models, pairs = gangs.pairs.between([spec.name for spec in gangs.specs], gangs.nodes.tolist())
    return PairModels.of(models, gangs.nodes, pairs, _names(contenders)) if pairs else None


def _market(contenders: CompetingTasks, able: Ints, speeds: Floats) -> ShareDemands:
    nodes, counts = contenders.nodes[able].astype(np.float64), contenders.free.astype(np.float64)
    return ShareDemands(speeds, nodes, counts)


def _names(contenders: CompetingTasks) -> tuple[str, ...]:
    """Return the kind names; nodes of a uniform cluster have no kind name."""
    return tuple(kind or "node" for kind in contenders.kinds)


def find_policy(settings: RoundSettings) -> RoundPolicy:
    """Make the policy that the settings name.

    A name is a registered round or sharing policy, or ``path/to/file.py:name``: a policy, or a function that returns
    one. Parameters may follow, as for an admission: ``tiresias=7200``.
    """
    name = parts.name_of(settings.policy)
    for own in (FifoLikeGavel, PackedFifoLikeGavel, BlindFifoLikeGavel):
        if name == own.name and (settings.like_gavel or own is BlindFifoLikeGavel):
            return own(settings)
    where = f"policy '{name}'"
    file, attribute = parts.split_name(name)
    found = _registered(name) if file is None else parts.load_from_file(file, attribute, where)
    fix = "define a class with name and priorities(contenders), which docs/how-to/rounds.md describes"
    found = parts.with_settings(found, settings.policy, where)
    found = parts.policy_of(found, RoundPolicy | SharingPolicy, where, fix)
    if isinstance(found, SharingPolicy):
        return ByShares(found, settings)
    assert isinstance(found, RoundPolicy)  # noqa: S101 - policy_of has looked
    return found


def _registered(name: str) -> object:
    """Load a policy of either port. Installed packages are searched only for names that are not built in."""
    ports: tuple[registry.Port, ...] = ("rounds", "sharing")
    for port in ports:
        if name in registry.BUILT_IN[port]:
            return registry.load(port, name)
    known = {name: part for port in reversed(ports) for name, part in registry.parts(port).items() if not part.problem}
    if name not in known:
        raise UnknownName.among("policy of rounds", name, known)
    return known[name].load()
