"""CompiledAllocation: the nodes of a replay and their tasks as numbers, changed by compiled code.

It makes the default decisions of :class:`bftrain.deciding.harvester.Harvester`, with the knapsack next to it: see
``compiled/allocation.c``. Nodes are their places in the log; tasks are numbered by the caller, from 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import Fault
from bftrain_solvers.knapsack.compiled_knapsack import ROOM, CompiledStruct, compiled_library, fields_of

STORED_AT_ONCE: Final = 4096  # finished allocations

# The actions, by the numbers of allocation.c
START, GROW, SHRINK, STOP, PREEMPTED_SHRINK, PREEMPTED_STOP, BELOW_MINIMUM_STOP = range(7)


class _State(CompiledStruct):
    """The struct ``Allocation`` of allocation.c."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = fields_of(
        (ctypes.c_void_p, "number_of log_place position name_rank is_slot owner next previous since free"),
        (ctypes.c_int64, "words"),
        (ctypes.c_void_p, "around idle nearness minimum row_class first last size decided lost changing"),
        (ctypes.c_void_p, "worth greatest costs_s largest"),
        (ctypes.c_int64, "stride"),
        (ctypes.c_double, "horizon_s"),
        (ctypes.c_void_p, "competing sizes present numbers entries table room"),
        (ctypes.c_int64, "numbers_of_room"),
        (ctypes.c_void_p, "last_price actions size_changes from_s to_s of_task on_node"),
        (ctypes.c_int64, "records recorded action_count change_count competing_count pool used"),
    )


class CompiledAllocation:
    """Idle nodes, tasks and their nodes, and the values from which sizes are chosen.

    ``positions`` are those of :mod:`bftrain.deciding.placement`. Values count over ``horizon_s``; a row of them has
    ``stride`` sizes from 0 on. With ``records``, finished allocations are kept for :meth:`finished`, which has to be
    called after each :meth:`carry_out`. ``state`` and ``arrays`` are the fields of the struct: callers read ``pool``,
    ``used`` and ``entries``, write ``sizes`` that they choose themselves, and bind the arrays by class.
    """

    def __init__(
        self,
        names: Sequence[str],
        positions: Sequence[int],
        is_slot: Sequence[bool],
        *,
        tasks: int,
        competing: int,
        stride: int,
        horizon_s: float,
        records: bool,
    ) -> None:
        library = compiled_library()
        if library is None:
            raise Fault("there is no compiled code")
        count, words = len(names), (len(names) + 63) // 64
        self.state = state = _State(
            words=words, stride=stride, horizon_s=horizon_s, numbers_of_room=ROOM, records=records
        )
        self.arrays, self._at = state.arrays, ctypes.addressof(state)
        by_name = sorted(range(count), key=names.__getitem__)
        by_position = sorted(by_name, key=positions.__getitem__)
        rank, number_of = (np.empty(count, dtype=np.int64) for _ in range(2))
        rank[by_name] = number_of[by_position] = np.arange(count)
        order = np.array(by_position, dtype=np.int64)
        position, slots = np.array(positions, dtype=np.int64)[order], np.array(is_slot, dtype=np.int64)[order]
        state.bind(number_of=number_of, log_place=order, name_rank=rank[order], position=position, is_slot=slots)
        state.bind(owner=np.full(count, -2), free=np.zeros(words, dtype=np.uint64), since=np.zeros(count))
        self._bind_integers(count, "next", "previous", "around", "idle", "nearness")
        state.bind(**{name: np.full(tasks, -1) for name in ("first", "last")})
        self._bind_integers(tasks, "minimum", "row_class", "size", "decided", "lost", "changing")
        self._bind_integers(competing, "competing", "sizes", "present", "numbers")
        state.bind(entries=np.zeros(competing), table=np.empty(competing * stride), room=np.empty(ROOM, dtype=np.int64))
        self._bind_integers(4, "last_price")
        self._bind_integers(3 * competing, "actions")
        self._bind_integers(2 * competing, "size_changes")
        rows = STORED_AT_ONCE + 2 * count if records else 0
        state.bind(from_s=np.empty(rows), to_s=np.empty(rows))
        state.bind(of_task=np.empty(rows, dtype=np.int32), on_node=np.empty(rows, dtype=np.int32))
        self._leave = _function(library, "bftrain_leave", ctypes.c_void_p, ctypes.c_int64, ctypes.c_double)
        self._join = _function(library, "bftrain_join", ctypes.c_void_p, ctypes.c_int64)
        self._release = _function(library, "bftrain_release", ctypes.c_int64, ctypes.c_double)
        self._choose = _function(library, "bftrain_choose")
        self._carry_out = _function(library, "bftrain_carry_out", ctypes.c_double)

    def _bind_integers(self, size: int, *names: str) -> None:
        self.state.bind(**{name: np.zeros(size, dtype=np.int64) for name in names})

    def leave(self, address: int, count: int, now_s: float) -> list[int]:
        """Remove ``count`` nodes (log places at ``address``); return actions as kind, task, nodes, kind, ..."""
        if self._leave(self._at, address, count, now_s):
            raise Fault("a node left that was not idle", where=f"at {now_s!r} s")
        return self._actions()

    def join(self, address: int, count: int, now_s: float) -> None:
        """Add ``count`` nodes to the pool (log places at ``address``)."""
        if self._join(self._at, address, count):
            raise Fault("a node joined that was idle already", where=f"at {now_s!r} s")

    def release(self, task: int, now_s: float) -> int:
        """Free all nodes of a finished task; return the size that the last decision chose for it."""
        self._release(self._at, task, now_s)
        decided = self.arrays["decided"]
        size, decided[task] = int(decided[task]), 0
        return size

    def compete(self, tasks: Sequence[int]) -> None:
        """Set the competing tasks; all tasks with nodes are among them."""
        self.state.competing_count = len(tasks)
        self.arrays["competing"][: len(tasks)] = tasks

    def choose(self) -> bool:
        """Choose the sizes of the competing tasks; False if the problem is too large or its numbers are extreme."""
        return not self._choose(self._at)

    def sizes(self) -> list[int]:
        """Return the chosen sizes of the competing tasks."""
        sizes: list[int] = self.arrays["sizes"][: self.state.competing_count].tolist()
        return sizes

    def carry_out(self, now_s: float) -> list[int]:
        """Change to the chosen sizes; return actions as kind, task, nodes, kind, ..."""
        if self._carry_out(self._at, now_s):
            raise Fault("more nodes were divided than there are", where=f"at {now_s!r} s")
        return self._actions()

    def size_changes(self) -> list[int]:
        """Return the sizes that differ from those of the decision before, as task, size, task, ..."""
        changes: list[int] = self.arrays["size_changes"][: 2 * self.state.change_count].tolist()
        return changes

    def finished(self, least: int) -> tuple[NDArray[Any], ...] | None:
        """Return and forget finished allocations: tasks, nodes, starts and ends; ``None`` if they are too few."""
        count = self.state.recorded
        if count < least:
            return None
        self.state.recorded = 0
        return tuple(self.arrays[name][:count].copy() for name in ("of_task", "on_node", "from_s", "to_s"))

    def _actions(self) -> list[int]:
        count = self.state.action_count
        actions: list[int] = self.arrays["actions"][: 3 * count].tolist() if count else []
        return actions


def _function(library: ctypes.PyDLL, name: str, *more: Any) -> Any:  # noqa: ANN401 - types of ctypes
    function = library[name]
    function.argtypes = (ctypes.c_void_p, *more)
    function.restype = ctypes.c_int
    return function
