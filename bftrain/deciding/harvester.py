"""Harvester: the decision core. Events go in, actions come out; replay and live drive the same object.

It reads no clock, no file and no socket, and starts no thread: time comes with the events, and the same events
give the same actions. Only the solver behind its port may look at a clock, to keep its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from bftrain.deciding.admission import FirstCome
from bftrain.deciding.choice import Choice, choose
from bftrain.deciding.placement import grouped
from bftrain.deciding.pool import NodePool
from bftrain.deciding.roster import Roster
from bftrain.deciding.tabulate import Tabulator
from bftrain.errors import BadInput, BrokenPlugin
from bftrain.ports import Admission, Objective, Placement, Solver
from bftrain.values.actions import Action, Cause, Grow, Release, Shrink, Start, Stop
from bftrain.values.decision import Decision
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskSubmitted,
)
from bftrain.values.plan import Plan
from bftrain.values.problem import AllocationProblem
from bftrain.values.solution import Limits, Quality, Solution, Termination


class Harvester:
    """Decides at every event which task holds how many nodes, and which."""

    def __init__(
        self,
        *,
        solver: Solver,
        objective: Objective,
        fallback: Solver | None = None,
        admission: Admission | None = None,
        placement: Placement = grouped,
        horizon_s: float = 120.0,
        limits: Limits | None = None,
        max_failures: int = 3,
    ) -> None:
        self._solver = solver
        self._fallback = fallback
        self._admission = admission or FirstCome()
        self._placement = placement
        self._tabulator = Tabulator(objective)
        self._horizon_s = horizon_s
        self._limits = limits or Limits()
        self._max_failures = max_failures
        self._pool = NodePool()
        self._roster = Roster()
        self._time_s = float("-inf")
        self._decisions = 0
        self._competed: list[str] = []
        self._at_once: list[Action] = []
        self._notes: list[str] = []

    # -- what the outside may ask

    @property
    def plan(self) -> Plan:
        """Which task holds which nodes now."""
        held = {task: tuple(self._roster[task].held) for task in self._roster}
        return Plan(holdings={task: nodes for task, nodes in held.items() if nodes})

    @property
    def pool_size(self) -> int:
        """How many nodes are idle now, held by tasks or not."""
        return len(self._pool)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Names of the tasks that run or wait, in the order they were submitted."""
        return tuple(self._roster)

    @property
    def time_s(self) -> float:
        """Time of the last event or decision."""
        return self._time_s

    @property
    def uses_work_left(self) -> bool:
        """Whether decisions depend on the tasks' work left; an objective that does not say is taken to use it."""
        return bool(getattr(self._tabulator.objective, "uses_work_left", True))

    @property
    def owed(self) -> tuple[Action, ...]:
        """The actions that events since the last decision demanded at once."""
        return tuple(self._at_once)

    # -- what the outside tells

    def handle(self, *events: Event) -> tuple[Action, ...]:
        """Take in events of one moment and decide: all actions that follow, departures first.

        If deciding fails, ``owed`` still has what must be done at once.
        """
        at_once = self.absorb(*events)
        return at_once + self.decide(self._time_s).actions

    def absorb(self, *events: Event) -> tuple[Action, ...]:
        """Take in events of one moment, in their order, without deciding; gives what must be done at once.

        Nodes that left are released first, whatever else happened, and tasks below their minimum pause. Nothing
        here waits for a solver. A finished task leads to no action: its processes have ended by themselves.
        """
        self._advance(events)
        left_last = {
            node: number for number, event in enumerate(events) if isinstance(event, NodesLeft) for node in event.nodes
        }
        actions = self._depart(left_last) if left_last else []
        for number, event in enumerate(events):
            if isinstance(event, NodesJoined):
                # A node that joined and then left is gone; one that left and then joined is ours again
                self._join([node for node in event.nodes if left_last.get(node, -1) < number])
            else:
                actions.extend(self._take_in(event))
        self._at_once.extend(actions)
        return tuple(actions)

    def decide(self, time_s: float) -> Decision:
        """Divide the pool anew over the tasks that compete; a decision is never earlier than the events before it."""
        time_s = self._time_s = max(self._time_s, time_s)
        named = dict.fromkeys(self._admission.admit(iter(self._roster), len(self._pool)))
        admitted = [name for name in named if name in self._roster or self._knows(name)]
        choice = self._choose(admitted, time_s)
        sizes = {name: choice.sizes.get(name, 0) for name in admitted}
        # Only those that the last decision gave nodes to can hold some, so the waiting ones need not be looked at
        barred = [name for name in self._competed if name not in sizes and self._holds_nodes(name)]
        actions = tuple(self._carry_out({**sizes, **dict.fromkeys(barred, 0)}))
        self._competed = admitted
        at_once, self._at_once = tuple(self._at_once), []
        notes, self._notes = tuple(self._notes), []
        self._decisions += 1
        return Decision(
            time_s=time_s,
            number=self._decisions,
            pool=len(self._pool),
            used=sum(sizes.values()),
            sizes=sizes,
            value=choice.value,
            bound=choice.solution.bound,
            solver=choice.solution.solver,
            termination=choice.solution.termination,
            quality=choice.quality,
            solver_words=choice.solution.solver_words,
            fallback=choice.fallback,
            solve_s=choice.solution.wall_s,
            at_once=at_once,
            actions=actions,
            notes=notes,
        )

    # -- taking events in

    def _advance(self, events: Iterable[Event]) -> None:
        now = self._time_s
        for event in events:
            if event.time_s < now:
                raise BadInput(
                    f"an event of time {event.time_s:g} came after one of time {now:g}",
                    where=type(event).__name__,
                    fix="hand events in by their time",
                )
            now = event.time_s
        self._time_s = now

    def _depart(self, named: Iterable[str]) -> list[Action]:
        """Release every departed node, then say what that means for the tasks that held them."""
        gone = self._pool.leave(named)
        self._note_if([node for node in named if node not in gone], "left but was not in the pool")
        if not gone:
            return []
        actions: list[Action] = [Release(nodes=tuple(gone))]
        for task, lost in self._roster.lose(gone).items():
            member = self._roster[task]
            if member.size >= member.spec.min_nodes:
                actions.append(Shrink(task=task, nodes=tuple(lost), cause=Cause.PREEMPTED))
                continue
            rest = self._roster.vacate(task)
            self._pool.give_back(rest)
            cause = Cause.BELOW_MINIMUM if rest else Cause.PREEMPTED
            actions.append(Stop(task=task, nodes=(*lost, *rest), cause=cause))
        return actions

    def _take_in(self, event: Event) -> Iterable[Action]:
        match event:
            case TaskSubmitted():
                self._submit(event)
            case TaskMeasured() if self._knows(event.task):
                self._roster[event.task].measured(event)
            case TaskFinished() if self._knows(event.task):
                self._pool.give_back(self._roster.remove(event.task))
            case TaskCancelled() if self._knows(event.task):
                return self._end(event.task, Cause.CANCELLED)
            case TaskFailed() if self._knows(event.task):
                return self._fail(event)
            case _:
                pass  # departures were dealt with first; an unknown task was noted by _knows
        return ()

    def _join(self, nodes: list[str]) -> None:
        self._note_if(self._pool.join(nodes), "joined but was in the pool already")

    def _submit(self, event: TaskSubmitted) -> None:
        name = event.spec.name
        if self._roster.get(name) is not None:
            self._notes.append(f"task '{name}' was submitted again while it is unfinished")
            return
        self._roster.add(event.spec)
        note = event.spec.curve.note(event.spec.max_nodes)
        if note:
            self._notes.append(f"task '{name}': {note}")

    def _fail(self, event: TaskFailed) -> Iterable[Action]:
        member = self._roster[event.task]
        member.failures += 1
        if member.failures >= self._max_failures:
            self._notes.append(f"task '{event.task}' given up after {member.failures} failures: {event.reason}")
            return self._end(event.task, Cause.FAILED)
        nodes = self._roster.vacate(event.task)
        self._pool.give_back(nodes)
        return (Stop(task=event.task, nodes=nodes, cause=Cause.FAILED),) if nodes else ()

    def _end(self, task: str, cause: Cause) -> Iterable[Action]:
        nodes = self._roster.remove(task)
        self._pool.give_back(nodes)
        return (Stop(task=task, nodes=nodes, cause=cause),) if nodes else ()

    def _knows(self, task: str) -> bool:
        if self._roster.get(task) is not None:
            return True
        self._notes.append(f"task '{task}' is unknown or over")
        return False

    def _holds_nodes(self, task: str) -> bool:
        member = self._roster.get(task)
        return member is not None and member.size > 0

    def _note_if(self, nodes: list[str], what: str) -> None:
        if nodes:
            others = f" and {len(nodes) - 1} others" if len(nodes) > 1 else ""
            self._notes.append(f"node '{nodes[0]}'{others} {what}")

    # -- deciding

    def _choose(self, admitted: list[str], time_s: float) -> Choice:
        if not admitted:
            return _nothing_to_decide(self._solver.name)
        problem = AllocationProblem(
            pool=len(self._pool),
            horizon_s=self._horizon_s,
            objective=self._tabulator.objective.name,
            tasks=tuple(self._roster[name].competing(time_s) for name in admitted),
        )
        return choose(self._tabulator.table(problem), self._limits, self._solver, self._fallback)

    def _carry_out(self, sizes: Mapping[str, int]) -> Iterable[Action]:
        """Go to the new sizes: every task only gives up or only takes, and all give up before any takes."""
        change = self._roster.changes(sizes)
        for name, difference in change.items():
            if difference < 0:
                yield self._shrink(name, -difference)
        growing = (name for name in change if change[name] > 0)
        # Who needs most chooses first, so that large groups are not broken up for small needs
        for name in sorted(growing, key=lambda name: -change[name]):
            yield self._grow(name, change[name])

    def _shrink(self, task: str, count: int) -> Action:
        held = self._roster[task].held
        if count == len(held):
            nodes = self._roster.vacate(task)
            self._pool.give_back(nodes)
            return Stop(task=task, nodes=nodes)
        nodes = self._placed(lambda: self._placement.give_up(held, count), count, held.__contains__)
        self._roster.withdraw(task, nodes)
        self._pool.give_back(nodes)
        return Shrink(task=task, nodes=nodes)

    def _grow(self, task: str, count: int) -> Action:
        held = self._roster[task].held
        nodes = self._placed(lambda: self._placement.take(held, self._pool.free, count), count, self._pool.is_free)
        kind = Grow if held else Start
        self._roster.assign(task, self._pool.take(nodes))
        return kind(task=task, nodes=nodes)

    def _placed(
        self, choose_nodes: Callable[[], Iterable[str]], count: int, allowed: Callable[[str], bool]
    ) -> tuple[str, ...]:
        where, fix = f"placement '{self._placement.name}'", "use the built-in 'grouped'"
        try:
            nodes = tuple(choose_nodes())
            fine = len(nodes) == count == len(set(nodes)) and all(map(allowed, nodes))
        except Exception as error:
            raise BrokenPlugin(f"raised {type(error).__name__}: {error}", where=where, fix=fix) from error
        if not fine:
            what = f"was asked for {count} nodes and chose {len(nodes)} that are not all different and to be had"
            raise BrokenPlugin(what, where=where, fix=fix)
        return nodes


def _nothing_to_decide(solver: str) -> Choice:
    solution = Solution(
        sizes={},
        value=0.0,
        bound=0.0,
        termination=Termination.OPTIMAL,
        quality=Quality.PROVEN,
        solver=solver,
        solver_words="nobody competes",
    )
    return Choice(sizes={}, value=0.0, solution=solution)
