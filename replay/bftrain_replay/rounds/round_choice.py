"""Choosing: from a policy's priorities to who runs on which kind in a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import BadInput, BftrainError
from bftrain.exception_text import place
from bftrain_replay.rounds.gang_packing import pack
from bftrain_replay.rounds.round_settings import DRAWN, NO

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_replay.rounds.contenders import CompetingTasks
    from bftrain_replay.rounds.round_policy import RoundPolicy
    from bftrain_replay.rounds.round_settings import RoundSettings

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]


class RoundChoice:
    """Asks the policy, and grants wishes in the order of its priorities."""

    def __init__(self, policy: RoundPolicy, settings: RoundSettings) -> None:
        self._policy = policy
        self._draws = settings.kind_order == DRAWN
        self._overtaking = settings.overtaking != NO
        self._random = np.random.default_rng(settings.seed)

    def choose(self, contenders: CompetingTasks) -> tuple[Places, Places]:
        """Give who runs, and on which kind each, by number."""
        given = self._priorities(contenders)
        task, kind = self._by_task(given, contenders) if given.ndim == 1 else self._by_pair(given, contenders)
        able = contenders.speeds[task, kind] > 0.0
        task, kind = task[able], kind[able]
        nodes = contenders.nodes[task]
        if contenders.free.size == 1 and int(nodes.sum()) <= contenders.free[0]:
            return contenders.place[task], kind  # there is room for all
        granted = pack(task, kind, nodes, contenders.free)
        if not self._overtaking:
            granted = granted[: _before_the_first_left_out(task, granted)]
        return contenders.place[task[granted]], kind[granted]

    def _priorities(self, contenders: CompetingTasks) -> Floats:
        """Ask for a number a task, or a number by task and kind; the larger, the sooner."""
        where = f"policy '{self._policy.name}'"
        try:
            given = np.asarray(self._policy.priorities(contenders), dtype=np.float64)
        except BftrainError:
            raise
        except Exception as error:
            what = f"raised {type(error).__name__} at {contenders.time_s:g} s: {error}{place(error)}"
            raise BadInput(what, where=where) from error
        count, kinds = len(contenders), len(contenders.kinds)
        if given.shape not in {(count,), (count, kinds)}:
            what = f"gave priorities of shape {given.shape} for {count} tasks and {kinds} kinds"
            raise BadInput(what, where=where, fix="give one number a task, or one by task and kind")
        return np.where(np.isnan(given), -np.inf, given)

    @staticmethod
    def _by_task(given: Floats, contenders: CompetingTasks) -> tuple[Places, Places]:
        """Order wishes by task; each would rather have the kind that is faster for it."""
        order = np.argsort(-given, kind="stable")
        order = order[given[order] > -np.inf]
        kinds = contenders.gangs.fastest[contenders.place[order]]
        return np.repeat(order, kinds.shape[1]), kinds.ravel()

    def _by_pair(self, given: Floats, contenders: CompetingTasks) -> tuple[Places, Places]:
        """Order wishes by pair; of equals the task that came first, and the kind that is faster for it."""
        if self._draws:
            kinds = self._random.permutation(given.shape[1])
            task = np.argsort(-given[:, kinds], axis=0, kind="stable").T.ravel()
            kind = np.repeat(kinds, given.shape[0])
        else:
            fastest = contenders.gangs.fastest[contenders.place]
            order = np.argsort(-np.take_along_axis(given, fastest, axis=1).ravel(), kind="stable")
            task, kind = order // given.shape[1], fastest.ravel()[order]
        wanted = given[task, kind] > -np.inf
        return task[wanted], kind[wanted]


def _before_the_first_left_out(task: Places, granted: Places) -> int:
    """Say how many of the wishes granted are of tasks before the first that was granted none."""
    in_order = task[np.sort(np.unique(task, return_index=True)[1])]
    has = np.isin(in_order, task[granted])
    return int(np.argmin(has)) if not has.all() else granted.size
