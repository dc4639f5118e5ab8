"""Harvester: the decision core: events in, actions out. Replay and live mode use the same class.

It reads no clock, file or socket, and starts no thread: times are part of the events, and equal events
give the same actions. Only the solver may read a clock, to keep its deadline; an optional ``clock``
measures the time to build the table, which counts as solving time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from bftrain.deciding.admission import FirstComeAdmission
from bftrain.deciding.admission_control import AdmissionControl
from bftrain.deciding.allocation_state import AllocationState, HarvesterSnapshot
from bftrain.deciding.expected_spread import ExpectedSpread
from bftrain.deciding.goodput import batches_by_size
from bftrain.deciding.node_stay import NodeStay
from bftrain.deciding.placement import neighbours
from bftrain.deciding.solve_with_fallback import ChosenSizes, choose, keep_running, limits_after
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.errors import BadInput
from bftrain.node_units import host_of
from bftrain.ports import Admission, Objective, Placement, Solver, objective_capabilities, solver_capabilities
from bftrain.values.actions import Action, Plan, Release
from bftrain.values.curve import ANY_KIND
from bftrain.values.decision import Decision, decision_of
from bftrain.values.events import Event, TaskMeasured
from bftrain.values.options import AUTO, HORIZON_S
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.sharing import Entity
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.task import TaskSpec
from bftrain.values.wire import NOTHING, unchecked

_NO_TASKS: Final = Solution(
    sizes={},
    value=0.0,
    bound=0.0,
    termination=Termination.OPTIMAL,
    quality=Quality.PROVEN,
    solver="the solver",
    solver_words="nobody competes",
)


class DecisionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The competing tasks and the nodes at ``time_s``; ``problem`` is ``None`` if no task competes.

    ``named`` are the tasks that the admission returned, ``admitted`` the known tasks among them. ``asked_after`` counts
    the changes before the request, to detect an outdated answer. With ``keeps_running`` no task may start or stop.
    """

    time_s: float
    asked_after: int
    named: tuple[str, ...]
    admitted: tuple[str, ...]
    problem: AllocationProblem | None
    keeps_running: bool = False


class DefaultParts(NamedTuple):
    """Parts that may decide from nodes, sizes and constants of tasks, so that a compiled core can replace them."""

    objective: Objective  # values of one task at a time
    solver: Solver
    horizon_s: float
    fits_costs: bool  # whether costs are fitted to the stay of nodes
    max_tasks: int


class Harvester:
    """Decides the number and names of each task's nodes after every event."""

    def __init__(  # noqa: PLR0913 - one parameter a part
        self,
        *,
        solver: Solver,
        objective: Objective,
        fallback: Solver | None = None,
        admission: Admission | None = None,
        placement: Placement = neighbours,
        horizon_s: float | str = AUTO,
        turn_s: float = 0.0,
        limits: Limits | None = None,
        max_failures: int = 3,
        entities: Mapping[str, Entity] = NOTHING,
        prices: Mapping[str, float] = NOTHING,
        clock: Callable[[], float] | None = None,
        place_of: Callable[[str], str] = host_of,
    ) -> None:
        self._solver = solver
        self._fallback = fallback
        self._tabulator = ValueTableBuilder(objective)
        self._fits_costs = isinstance(horizon_s, str)  # costs fitted to the stay of nodes; otherwise the tasks' costs
        self._horizon_s = HORIZON_S if isinstance(horizon_s, str) else horizon_s
        # Live runs raise the cost of an unfinished start up to this limit, at which the task is still worth starting.
        # Fitted costs have no such limit
        self.longest_start_s = inf if self._fits_costs else self._horizon_s / 2.0
        self._node_stay = NodeStay()
        self._limits = limits or Limits()
        self._place_of, self._placement = place_of, placement
        self._clock = clock or (lambda: 0.0)
        asked = objective_capabilities(objective)
        able = [solver_capabilities(part) for part in (solver, fallback) if part is not None]
        self.uses_history = asked.uses_history or any(part.uses_history for part in able)
        # Whether decisions depend on the tasks' work left; assumed for objectives without capabilities
        self.uses_work_left = asked.uses_work_left or any(part.uses_work_left for part in able)
        # Batches matter where decisions depend on work or history, which count progress
        self.chooses_batches = self.uses_history or self.uses_work_left
        self._entities = entities or NOTHING  # a shared constant that needs no check at every decision
        self._prices = prices or NOTHING
        self._state = AllocationState(placement, max_failures, place_of)
        self._pool, self._tasks = self._state.pool, self._state.task_table
        self._tasks.chooses_batches = self.chooses_batches
        self._tasks.turn_s = turn_s
        self._takes_turns = turn_s > 0.0 and (self.uses_history or asked.level_coupling)
        self._only_measured: bool | None = None  # see HarvesterSnapshot
        self._admission = AdmissionControl(admission or FirstComeAdmission(), self._tasks)
        self.time_s = -inf  # time of the last event or decision
        self._changes = 0  # number of calls that processed events
        self._decisions = 0
        self.competed: tuple[str, ...] = ()  # the task names in the last decision
        self._first: AllocationProblem | None = None  # later problems are changed copies of the first
        self._at_once: list[Action] = []
        self._held: dict[str, tuple[str, ...]] | None = None  # cached until something changes

    @property
    def default_parts(self) -> DefaultParts | None:
        """The parts that a compiled core may replace; ``None`` after the first event, or with special parts."""
        objective, most = self._tabulator.objective, self._admission.oldest_tasks
        special = self.uses_history or self._takes_turns or self._placement is not neighbours
        asked = objective_capabilities(objective)
        of_all = asked.any_coupling or asked.level_coupling or hasattr(objective, "recast")
        if of_all or most is None or special or self._changes or self.time_s > -inf:
            return None
        return DefaultParts(objective, self._solver, self._horizon_s, self._fits_costs, most)

    @property
    def plan(self) -> Plan:
        """The current nodes of each task."""
        return Plan(holdings=self.held)

    @property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """The current nodes of each task with nodes, as an unchecked mapping."""
        if self._held is None:
            self._held = {name: task.nodes for name, task in self._tasks.items() if task.held}
        return self._held

    @property
    def pool(self) -> frozenset[str]:
        """The idle nodes, including allocated nodes."""
        return self._pool.nodes

    @property
    def pool_size(self) -> int:
        """The number of idle nodes, including allocated nodes."""
        return len(self._pool)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Names of running, waiting and paused tasks, by submission."""
        return tuple(self._tasks)

    def spec(self, task: str) -> TaskSpec:
        """Return the latest description of the unfinished ``task``, measurements included."""
        return self._tasks[task].spec

    @property
    def paused(self) -> frozenset[str]:
        """Names of unfinished tasks paused by their owners."""
        return frozenset(name for name, task in self._tasks.items() if task.paused)

    @property
    def pools(self) -> Mapping[str, int]:
        """The number of idle nodes of every kind, including allocated nodes; empty if nodes have no kinds."""
        return self._pool.counts

    def kind_of(self, node: str) -> str:
        """Return the kind of the idle ``node``; empty if it has none."""
        return self._pool.kind_of(node)

    @property
    def owed(self) -> tuple[Action, ...]:
        """The actions that events since the last decision required immediately."""
        return tuple(self._at_once)

    @property
    def snapshot(self) -> HarvesterSnapshot:
        """The state from which another Harvester with the same settings continues identically."""
        return HarvesterSnapshot(
            time_s=None if self.time_s == -inf else self.time_s,
            decisions=self._decisions,
            next_group=self._pool.next_group,
            free=self._state.free_groups(),
            tasks=self._state.unfinished_tasks(),
            competed=self.competed,
            owed=tuple(self._at_once),
            notes=tuple(self._state.notes),
            admission=self._admission.kept,
            node_stay=self._node_stay,
            only_measured=self._only_measured,
        )

    def restore(self, snapshot: HarvesterSnapshot) -> None:
        """Continue from the ``snapshot`` of another Harvester; allowed only before the first event."""
        self._held = None
        self._state.restore(snapshot)
        self.time_s = -inf if snapshot.time_s is None else snapshot.time_s
        self._decisions = snapshot.decisions
        self.competed = tuple(snapshot.competed)
        self._at_once = list(snapshot.owed)
        self._node_stay = snapshot.node_stay
        self._only_measured = snapshot.only_measured
        self._admission.restore(snapshot.admission, snapshot.time_s or 0.0)

    def handle(self, *events: Event) -> tuple[Action, ...]:
        """Process simultaneous ``events`` and decide; return all resulting actions, departures first.

        If deciding fails, ``owed`` still has the actions required immediately.
        """
        at_once = self.absorb(*events)
        return at_once + self.decide(self.time_s).actions

    def absorb(self, *events: Event) -> tuple[Action, ...]:
        """Process simultaneous ``events``, in sequence, without a decision; return the immediate actions.

        Departed nodes are always released first, and tasks below their minimum stop. This method never
        waits for a solver. A finished task requires no action: its processes have already exited.
        """
        now = self.time_s
        for event in events:
            if event.time_s < now:
                what = f"an event of time {event.time_s:g} came after one of time {now:g}"
                raise BadInput(what, where=type(event).__name__, fix="pass events in order of time")
            now = event.time_s
        self.time_s = now
        self._changes += 1
        self._held = None
        self._tasks.now_s = self.time_s
        self._admission.advance_time(self.time_s)
        pool = self.pool_size
        if self._tasks.turn_s and self._only_measured is not False:
            # Remaining work is no news: live runs always report it
            news = [event for event in events if type(event) is not TaskMeasured or event.work_left_samples is None]
            self._only_measured = all(type(event) is TaskMeasured for event in news) if news else self._only_measured
        actions = self._state.process_events(events)
        departures = sum([len(action.nodes) for action in actions if type(action) is Release])
        self._node_stay = self._node_stay.after(now, pool, departures)
        self._at_once.extend(actions)
        self._state.notes.extend(self._admission.on_events(events, self.time_s))
        return actions

    def decide(self, time_s: float) -> Decision:
        """Divide the pool among the competing tasks at ``time_s``, or at the last event's time if that is later."""
        question = self.ask(time_s)
        return self.finish_decision(question, self.answer(question))

    # -- the same in three parts, for callers that receive events while a solver runs

    def ask(self, time_s: float) -> DecisionRequest:
        """Return the decision problem at ``time_s``, without changing anything."""
        time_s = max(self.time_s, time_s)
        counts = self._pool.counts
        chosen = self._admission.chosen(time_s, counts or {ANY_KIND: len(self._pool)})
        named = tuple(chosen)
        admitted = named
        if not chosen.keys() <= self._tasks.keys():
            admitted = tuple([name for name in named if name in self._tasks])
        problem = None
        if admitted:
            fit = self._node_stay.fit(self.pool_size / len(admitted)) if self._fits_costs else None
            history = self.uses_history or self._takes_turns
            entries, turn_s = [self._tasks[name] for name in admitted], self._tasks.turn_s
            tasks = [entry.competing(time_s, history=history, turn_s=turn_s, fit=fit) for entry in entries]
            if any(entry.spec.spread is not None for entry in entries):
                expected = ExpectedSpread(self._pool, self._place_of)
                tasks = list(map(expected.with_expected_speeds, entries, tasks))
            problem = self._problem(self._admission.with_limits(tasks, chosen), counts or NOTHING)
        return DecisionRequest(
            time_s=time_s,
            asked_after=self._changes,
            named=named,
            admitted=admitted,
            problem=problem,
            keeps_running=self._takes_turns and self._only_measured is True,
        )

    def _problem(self, tasks: tuple[CompetingTask, ...], pools: Mapping[str, int]) -> AllocationProblem:
        """Return the problem of these tasks; only the first is checked, because later ones are derived from it here."""
        if self._first is None:
            self._first = AllocationProblem(
                pool=len(self._pool),
                pools=pools,
                horizon_s=self._horizon_s,
                objective=self._tabulator.objective.name,
                tasks=tasks,
                entities=self._entities,
                prices=self._prices,
            )
            return self._first
        frozen = MappingProxyType(dict(pools)) if pools else NOTHING
        return unchecked(self._first, pool=len(self._pool), pools=frozen, tasks=tasks)

    def answer(self, question: DecisionRequest, *, hurry: str = "") -> ChosenSizes:
        """Choose sizes for ``question``. Blocks for the solver; another thread may call it, for one question at a time.

        ``hurry`` is a reason not to wait for the solver: then the fallback's sizes are used.
        """
        if question.problem is None:
            return ChosenSizes(sizes={}, value=0.0, solution=unchecked(_NO_TASKS, solver=self._solver.name))
        begun = self._clock()
        table = self._tabulator.table(question.problem)
        limits = limits_after(self._limits, self._clock() - begun)
        choice = choose(table, limits, self._solver, self._fallback, hurry=hurry)
        return keep_running(table, choice) if question.keeps_running else choice

    def first_turn_due(self, time_s: float) -> bool:
        """Return whether a task waits at ``time_s`` for its first nodes while another has had nodes for over a turn."""
        tasks = [self._tasks[name] for name in self.competed if name in self._tasks] if self._takes_turns else []
        if all(task.held or task.past.held_node_s for task in tasks):
            return False
        seen = (task.competing(time_s, history=True, turn_s=self._tasks.turn_s) for task in tasks if task.held)
        return any(task.held_node_s > task.turn_s * task.size for task in seen)

    def outdated(self, question: DecisionRequest) -> bool:
        """Return whether events arrived after ``question``, which make its answer unusable."""
        return question.asked_after != self._changes

    def finish_decision(self, question: DecisionRequest, choice: ChosenSizes) -> Decision:
        """Apply the sizes of ``choice``; raise an error for an outdated ``question``."""
        if self.outdated(question):
            raise BadInput("events were processed since this question", where="decision", fix="ask again")
        self.time_s = self._tasks.now_s = question.time_s
        self._admission.advance_time(self.time_s)
        self._held = None
        if len(question.admitted) < len(question.named):  # an admission may return unknown tasks; a note reports them
            for name in question.named:
                self._state.knows(name)
        competed, admitted = self.competed, question.admitted
        sizes = choice.sizes
        if tuple(sizes) != admitted:
            sizes = {name: choice.sizes.get(name, 0) for name in admitted}
        kinds = {name: kind for name, kind in choice.kinds.items() if sizes.get(name)} if choice.kinds else NOTHING
        new_sizes = sizes
        if question.problem is not None and not question.problem.pools:  # same size, same nodes
            pairs = zip(question.problem.tasks, sizes.values(), strict=True)
            new_sizes = {task.name: size for task, size in pairs if task.size != size}
        if competed != admitted:
            # Only tasks that the last decision gave nodes can hold any, so waiting ones are skipped
            barred = [name for name in competed if name not in sizes and name in self._tasks and self._tasks[name].held]
            new_sizes = {**new_sizes, **dict.fromkeys(barred, 0)}
        actions = tuple(self._state.carry_out(new_sizes, kinds))
        at_once, notes = self._drain_pending(admitted)
        return decision_of(
            time_s=question.time_s,
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
            kinds=kinds,
            batches=self._batches(sizes) if self.chooses_batches else NOTHING,
        )

    def _batches(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Return the best batch of each running task that reports its batches."""
        found = {}
        for name, size in sizes.items():
            if size and self._tasks[name].spec.batch is not None:
                batches = batches_by_size(self._tasks[name].spec, self._tasks[name].kind)
                if batches and batches[size]:
                    found[name] = batches[size]
        return found or NOTHING

    def follow(self, decision: Decision) -> None:
        """Repeat a recorded ``decision`` without solving, to restore a recorded run."""
        if unknown := next((name for name in decision.sizes if name not in self._tasks), None):
            raise BadInput(f"names the unknown task '{unknown}'", where=f"decision {decision.number}")
        self._held = None
        self._tasks.now_s = decision.time_s
        self._admission.advance_time(decision.time_s)
        self._state.follow(decision.actions)
        self.time_s = decision.time_s
        self._drain_pending(tuple(decision.sizes))
        self._decisions = decision.number

    def _drain_pending(self, competed: tuple[str, ...]) -> tuple[tuple[Action, ...], tuple[str, ...]]:
        self._decisions += 1
        self._only_measured = None
        self.competed = competed
        at_once, self._at_once = tuple(self._at_once), []
        notes, self._state.notes = tuple(self._state.notes), []
        return at_once, notes
