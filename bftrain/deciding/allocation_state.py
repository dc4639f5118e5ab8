"""AllocationState: idle nodes, unfinished tasks and their allocations; each change returns the actions it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from bftrain.deciding.pool import NodePool
from bftrain.deciding.task_table import TaskTable
from bftrain.errors import BadInput, BrokenPlugin
from bftrain.exception_text import raised
from bftrain.ports import OrderedPlacement, Placement
from bftrain.values.actions import Action, Cause, Grow, Release, Shrink, Start, Stop
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSubmitted,
)
from bftrain.values.kinds import ANY_KIND
from bftrain.values.mapped import NOTHING
from bftrain.values.task import TaskSpec


class AllocationState:
    """The books of a Harvester: pool and roster, changed together. ``notes`` collects what was odd."""

    def __init__(self, placement: Placement, max_failures: int) -> None:
        self._placement = placement
        self._max_failures = max_failures
        self._ordered = placement if isinstance(placement, OrderedPlacement) else None
        self.pool = NodePool(self._ordered.position if self._ordered else None)
        self.roster = TaskTable()
        self.notes: list[str] = []

    def knows(self, task: str) -> bool:
        """Say whether a task is unfinished; if not, a note says so."""
        if task in self.roster:
            return True
        self.notes.append(f"task '{task}' is unknown or over")
        return False

    def departing(self, events: Iterable[Event]) -> int:
        """Return how many nodes of the pool leave in these events."""
        left = {node for event in events if isinstance(event, NodesLeft) for node in event.nodes}
        return sum(map(self.pool.__contains__, left))

    def holds_nodes(self, task: str) -> bool:
        """Say whether a task is unfinished and has a node."""
        member = self.roster.get(task)
        return member is not None and member.size > 0

    # -- events

    def take_in(self, events: tuple[Event, ...]) -> tuple[Action, ...]:
        """Take in events of one moment, in their order, departures first; gives what must be done at once."""
        left_last = {
            node: number for number, event in enumerate(events) if isinstance(event, NodesLeft) for node in event.nodes
        }
        actions = self._depart(left_last) if left_last else []
        for number, event in enumerate(events):
            if isinstance(event, NodesJoined):
                # A node that joined and then left is gone; one that left and then joined is ours again
                self._join([node for node in event.nodes if left_last.get(node, -1) < number], event.kind)
            else:
                actions.extend(self._take_in(event))
        return tuple(actions)

    def _depart(self, named: Iterable[str]) -> list[Action]:
        """Release every departed node, then say what that means for the tasks that held them."""
        gone = self.pool.leave(named)
        self._note_if([node for node in named if node not in gone], "left but was not in the pool")
        if not gone:
            return []
        actions: list[Action] = [Release(nodes=tuple(gone))]
        for task, lost in self.roster.lose(gone).items():
            member = self.roster[task]
            if member.size >= member.spec.min_nodes:
                actions.append(Shrink(task=task, nodes=tuple(lost), cause=Cause.PREEMPTED))
                continue
            rest = self.roster.vacate(task)
            self.pool.give_back(rest)
            cause = Cause.BELOW_MINIMUM if rest else Cause.PREEMPTED
            actions.append(Stop(task=task, nodes=(*lost, *rest), cause=cause))
        return actions

    def _take_in(self, event: Event) -> Iterable[Action]:
        match event:
            case TaskSubmitted():
                self._submit(event)
            case TaskMeasured() if self.knows(event.task):
                self.roster[event.task].measured(event)
            case TaskFinished() if self.knows(event.task):
                self.pool.give_back(self.roster.remove(event.task))
            case TaskCancelled() if self.knows(event.task):
                return self._end(event.task, Cause.CANCELLED)
            case TaskFailed() if self.knows(event.task):
                return self._fail(event)
            case TaskPaused() if self.knows(event.task):
                self.roster[event.task].paused = True
                return self._vacated(event.task, Cause.PAUSED)
            case TaskResumed() if self.knows(event.task):
                self.roster[event.task].paused = False
            case _:
                pass  # departures were dealt with first; an unknown task was noted
        return ()

    def _join(self, nodes: list[str], kind: str) -> None:
        known = self.pool.join(nodes, kind)
        self._note_if(known, "joined but was in the pool already")
        self._note_if(
            [node for node in known if self.pool.kind_of(node) != kind], f"is in the pool as another kind than {kind!r}"
        )

    def _submit(self, event: TaskSubmitted) -> None:
        name = event.spec.name
        if name in self.roster:
            self.notes.append(f"task '{name}' was submitted again while it is unfinished")
            return
        self.roster.add(event.spec)
        self.notes.extend(f"task '{name}': {note}" for note in self._worth_knowing(event.spec))

    def _worth_knowing(self, spec: TaskSpec) -> Iterator[str]:
        """Return warnings about a new task: sizes that were never measured, and that it runs on no present node."""
        for kind, curve in spec.curves.items() if spec.curves else ((ANY_KIND, spec.curve),):
            note = curve.note(spec.max_nodes)
            if note:
                yield f"on {kind}: {note}" if kind else note
        if spec.curves and len(self.pool) and not any(spec.curve_on(kind) for kind in self.pool.counts or (ANY_KIND,)):
            yield f"runs on {', '.join(spec.curves)} only, and none of these nodes is idle now: it waits"

    def _fail(self, event: TaskFailed) -> Iterable[Action]:
        member = self.roster[event.task]
        member.failures += 1
        if member.failures >= self._max_failures:
            self.notes.append(f"task '{event.task}' given up after {member.failures} failures: {event.reason}")
            return self._end(event.task, Cause.FAILED)
        return self._vacated(event.task, Cause.FAILED)

    def _vacated(self, task: str, cause: Cause) -> Iterable[Action]:
        nodes = self.roster.vacate(task)
        self.pool.give_back(nodes)
        return (Stop(task=task, nodes=nodes, cause=cause),) if nodes else ()

    def _end(self, task: str, cause: Cause) -> Iterable[Action]:
        nodes = self.roster.remove(task)
        self.pool.give_back(nodes)
        return (Stop(task=task, nodes=nodes, cause=cause),) if nodes else ()

    def _note_if(self, nodes: list[str], what: str) -> None:
        if nodes:
            others = f" and {len(nodes) - 1} others" if len(nodes) > 1 else ""
            self.notes.append(f"node '{nodes[0]}'{others} {what}")

    # -- decisions

    def carry_out(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> Iterator[Action]:
        """Go to the new sizes: every task only gives up or only takes, and all give up before any takes.

        A task that is to have nodes of another kind than it holds gives all of them up, and starts again.
        """
        if self.pool.any_kind_known:
            for name in self.roster.moved(sizes, kinds):
                yield self._shrink(name, self.roster[name].size)
        change = self.roster.changes(sizes)
        for name, difference in change.items():
            if difference < 0:
                yield self._shrink(name, -difference)
        growing = (name for name in change if change[name] > 0)
        # Who needs most chooses first, so that large groups are not broken up for small needs
        for name in sorted(growing, key=lambda name: -change[name]):
            yield self._grow(name, change[name], kinds.get(name, ANY_KIND))

    def follow(self, actions: Iterable[Action]) -> None:
        """Do as a decision did before, node by node."""
        for action in actions:
            match action:
                case Start() | Grow() if action.task in self.roster and all(map(self.pool.is_free, action.nodes)):
                    self.roster.assign(action.task, self.pool.take(action.nodes), self.pool.kind_of(action.nodes[0]))
                case Shrink() | Stop() if set(action.nodes) <= set(self._held(action.task)):
                    self.roster.withdraw(action.task, action.nodes)
                    self.pool.give_back(action.nodes)
                case _:
                    raise BadInput(f"does not follow from the events before: {action}", where="decision")

    def _held(self, task: str) -> Mapping[str, int]:
        member = self.roster.get(task)
        return {} if member is None else member.held

    def _shrink(self, task: str, count: int) -> Action:
        held = self.roster[task].held
        if count == len(held):
            nodes = self.roster.vacate(task)
            self.pool.give_back(nodes)
            return Stop(task=task, nodes=nodes)
        nodes = self._placed(lambda: self._placement.give_up(held, count), count, held.__contains__)
        self.roster.withdraw(task, nodes)
        self.pool.give_back(nodes)
        return Shrink(task=task, nodes=nodes)

    def _grow(self, task: str, count: int, kind: str) -> Action:
        held, ordered = self.roster[task].held, self._ordered

        def choose_nodes() -> Iterable[str]:
            if ordered is None:
                return self._placement.take(held, self.pool.free_of(kind), count)
            return ordered.take_ordered(held, self.pool.ordered_of(kind), count)

        nodes = self._placed(choose_nodes, count, lambda node: self.pool.is_free_as(node, kind))
        action = Grow if held else Start
        self.roster.assign(task, self.pool.take(nodes), kind)
        return action(task=task, nodes=nodes)

    def _placed(
        self, choose_nodes: Callable[[], Iterable[str]], count: int, allowed: Callable[[str], bool]
    ) -> tuple[str, ...]:
        where, fix = f"placement '{self._placement.name}'", "use the built-in 'grouped'"
        try:
            nodes = tuple(choose_nodes())
            fine = len(nodes) == count == len(set(nodes)) and all(map(allowed, nodes))
        except Exception as error:
            raise BrokenPlugin(raised(error), where=where, fix=fix) from error
        if not fine:
            what = f"was asked for {count} nodes and chose {len(nodes)} that are not all different and to be had"
            raise BrokenPlugin(what, where=where, fix=fix)
        return nodes
