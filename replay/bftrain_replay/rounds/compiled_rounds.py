"""Rounds as rows, and compiled rounds: ``rounds.c`` simulates the rounds between two computations of shares.

Results equal the engine's own rounds to the last bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain_solvers.knapsack.compiled_knapsack import CompiledStruct, compiled_function, fields_of


class RoundStep(NamedTuple):
    """Some consecutive rounds. The last figures are counts of tasks; ``used_node_s`` and ``samples`` are sums."""

    first_round: int
    rounds: int
    from_s: float
    to_s: float
    pool: int
    used_node_s: float
    samples: float
    running: int
    waiting: int
    started: int
    stopped: int
    taken: int
    done: int


_NAME: Final = "bftrain_rounds"
_MOST_STEPS: Final = 256
ORDERS: Final = 256  # orders of kinds drawn in advance


class _State(CompiledStruct):
    """The struct ``Rounds`` of rounds.c."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = fields_of(
        (ctypes.c_int64, "tasks kinds users drawn at_boundary never_alike first_measured after_measured most_steps"),
        (ctypes.c_int64, "most_pairs"),
        (ctypes.c_double, "round_s limit_s interval_s most_backlog_s"),
        (ctypes.c_void_p, "submit_s speeds best nodes owner fastest left service_s node_s paired_s done_samples"),
        (ctypes.c_void_p, "start_s end_s seen_s kind partner starts moves preemptions"),
        (ctypes.c_void_p, "shares deficit_s service_then_s is_new count held_node_s pool_node_s orders"),
        (ctypes.c_int64, "rows"),
        (ctypes.c_void_p, "row_one row_other row_kind row_shares row_deficit_s row_speeds row_received_s row_pair"),
        (ctypes.c_void_p, "pair_tasks pair_counted pair_s pair_read_s pair_before_s"),
        (ctypes.c_int64, "here_count come round changes dirty idle_rounds unmeasured overload too_long"),
        (ctypes.c_int64, "orders_left pairs"),
        (ctypes.c_double, "now_s due_s reset_s"),
        (ctypes.c_void_p, "here"),
        (ctypes.c_int64, "steps"),
        (ctypes.c_void_p, "step_rows step_users run run_kind mate run_row is_here granted row_of wish reached needs_s"),
        (ctypes.c_void_p, "samples run_nodes held_s wish_priority row_priority"),
    )


class CompiledRounds:
    """The state of a run; attributes of ``state`` are numbers, and its ``bind`` sets arrays."""

    def __init__(self, function: Callable[..., int], tasks: int, kinds: int, users: int) -> None:
        self.state = state = _State(tasks=tasks, kinds=kinds, users=users, most_steps=_MOST_STEPS)
        self._function, self._arrays = function, state.arrays
        whole = ("here", "run", "run_kind", "mate", "run_row", "is_here", "granted", "row_of")
        state.bind(**{name: np.zeros(tasks + 1, dtype=np.int64) for name in whole})
        state.bind(**{name: np.zeros(tasks + 1) for name in ("reached", "needs_s", "samples", "run_nodes", "held_s")})
        state.bind(step_rows=np.zeros((_MOST_STEPS, len(RoundStep._fields))), step_users=np.zeros((_MOST_STEPS, users)))
        self.bind_pairs({})

    @classmethod
    def of(cls, tasks: int, kinds: int, users: int) -> CompiledRounds | None:
        """Return the state of a run; ``None`` without compiled code."""
        function = compiled_function(_NAME)
        return None if function is None else cls(function, tasks, kinds, users)

    def bind_pairs(self, columns: dict[str, NDArray[Any]]) -> None:
        """Set the shares of pairs."""
        self.state.bind(**columns)
        self.state.rows = rows = columns["row_one"].size if columns else 0
        self._arrays["row_of"][:] = -1
        if "wish" not in self._arrays or rows > self._arrays["row_priority"].size:
            size = self.state.tasks + 2 * rows + 1
            self.state.bind(
                wish=np.zeros(size, dtype=np.int64), wish_priority=np.zeros(size), row_priority=np.zeros(2 * rows)
            )

    @property
    def here(self) -> NDArray[np.intp]:
        """The tasks that have arrived and not finished."""
        return self._arrays["here"][: self.state.here_count].copy()

    def set_here(self, tasks: NDArray[np.intp]) -> None:
        """Set the tasks that have arrived and not finished."""
        self._arrays["here"][: tasks.size], self.state.here_count = tasks, tasks.size

    def simulate(self, steps: list[RoundStep], node_s_by_user: list[NDArray[np.float64]]) -> None:
        """Simulate until Python has to do something; append the steps and the node-seconds of every user in them."""
        state = self.state
        state.steps = state.changes = 0
        self._function(ctypes.byref(state))
        count = state.steps
        for row in self._arrays["step_rows"][:count].tolist():
            first, rounds, from_s, to_s, pool, used, samples, *counts = row
            cells = int(first), int(rounds), from_s, to_s, int(pool), used, samples, *map(int, counts)
            steps.append(RoundStep._make(cells))
        node_s_by_user.extend(self._arrays["step_users"][:count].copy())
