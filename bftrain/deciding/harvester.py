"""Harvester: the decision core. Events go in, actions come out; replay and live drive the same object.

It reads no clock, no file and no socket, and starts no thread: time comes with the events, and the same events
give the same actions. Only the solver behind its port may look at a clock, to keep its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bftrain.deciding import snapshot as standings
from bftrain.deciding.admission import FirstComeAdmission
from bftrain.deciding.admission_control import AdmissionControl
from bftrain.deciding.allocation_state import AllocationState
from bftrain.deciding.decision_request import DecisionRequest
from bftrain.deciding.neighbours import neighbours
from bftrain.deciding.node_stay import AUTO, NodeStay, fixed_horizon_s
from bftrain.deciding.snapshot import HarvesterSnapshot
from bftrain.deciding.solve_with_fallback import ChosenSizes, choose
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.errors import BadInput
from bftrain.ports import Admission, ChoosingAdmission, Objective, Placement, Solver
from bftrain.values.actions import Action
from bftrain.values.capabilities import objective_capabilities, solver_capabilities
from bftrain.values.decision import Decision
from bftrain.values.events import Event
from bftrain.values.kinds import ANY_KIND
from bftrain.values.mapped import NOTHING
from bftrain.values.plan import Plan
from bftrain.values.problem import AllocationProblem
from bftrain.values.sharing import Entity
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.task import TaskSpec


class Harvester:
    """Decides at every event which task holds how many nodes, and which."""

    def __init__(  # noqa: PLR0913 - one parameter a part
        self,
        *,
        solver: Solver,
        objective: Objective,
        fallback: Solver | None = None,
        admission: Admission | ChoosingAdmission | None = None,
        placement: Placement = neighbours,
        horizon_s: float | str = AUTO,
        limits: Limits | None = None,
        max_failures: int = 3,
        entities: Mapping[str, Entity] = NOTHING,
        prices: Mapping[str, float] = NOTHING,
    ) -> None:
        self._solver = solver
        self._fallback = fallback
        self._tabulator = ValueTableBuilder(objective)
        self._fits_costs = isinstance(horizon_s, str)  # to how long nodes stay; otherwise costs count as tasks say
        self._horizon_s = fixed_horizon_s(horizon_s)
        self._node_stay = NodeStay()
        self._limits = limits or Limits()
        asked = objective_capabilities(objective)
        able = [solver_capabilities(part) for part in (solver, fallback) if part is not None]
        self._history = asked.uses_history or any(part.uses_history for part in able)
        self._work_left = asked.uses_work_left or any(part.uses_work_left for part in able)
        self._entities = entities or NOTHING  # which is known not to need a check at every decision
        self._prices = prices or NOTHING
        self._holdings = AllocationState(placement, max_failures)
        self._gate = AdmissionControl(admission or FirstComeAdmission(), self._holdings.roster)
        self._time_s = float("-inf")
        self._changes = 0  # how often events were taken in
        self._decisions = 0
        self._competed: list[str] = []
        self._at_once: list[Action] = []
        self._held: dict[str, tuple[str, ...]] | None = None  # until something changes

    # -- what the outside may ask

    @property
    def plan(self) -> Plan:
        """Which task holds which nodes now."""
        return Plan(holdings=self.held)

    @property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """The same as a table that is not checked again: tasks that hold nodes, and these."""
        if self._held is None:
            roster = self._holdings.roster
            held = {task: tuple(roster[task].held) for task in roster}
            self._held = {task: nodes for task, nodes in held.items() if nodes}
        return self._held

    @property
    def pool(self) -> frozenset[str]:
        """The nodes that are idle now, held by tasks or not."""
        return self._holdings.pool.nodes

    @property
    def pool_size(self) -> int:
        """How many nodes are idle now, held by tasks or not."""
        return len(self._holdings.pool)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Names of the tasks that run, wait or are paused, in the order they were submitted."""
        return tuple(self._holdings.roster)

    def spec(self, task: str) -> TaskSpec:
        """What is known of an unfinished task now, measurements included."""
        return self._holdings.roster[task].spec

    @property
    def paused(self) -> frozenset[str]:
        """Names of the unfinished tasks that their owners have paused."""
        willing = set(self._holdings.roster.willing())
        return frozenset(name for name in self._holdings.roster if name not in willing)

    @property
    def pools(self) -> Mapping[str, int]:
        """How many nodes of every kind are idle now, held by tasks or not; nothing where nodes have no kinds."""
        return self._holdings.pool.counts

    def kind_of(self, node: str) -> str:
        """Give the kind of an idle node; empty if it has none."""
        return self._holdings.pool.kind_of(node)

    @property
    def time_s(self) -> float:
        """Time of the last event or decision."""
        return self._time_s

    @property
    def uses_work_left(self) -> bool:
        """Whether decisions depend on the tasks' work left; an objective that does not say is taken to use it."""
        return self._work_left

    @property
    def owed(self) -> tuple[Action, ...]:
        """The actions that events since the last decision demanded at once."""
        return tuple(self._at_once)

    @property
    def standing(self) -> HarvesterSnapshot:
        """Where things stand: what another Harvester with the same settings needs to go on from here."""
        return HarvesterSnapshot(
            time_s=None if self._time_s == float("-inf") else self._time_s,
            decisions=self._decisions,
            next_group=self._holdings.pool.next_group,
            free=standings.free_of(self._holdings),
            tasks=standings.tasks_of(self._holdings),
            competed=tuple(self._competed),
            owed=tuple(self._at_once),
            notes=tuple(self._holdings.notes),
            admission=self._gate.kept,
            node_stay=self._node_stay,
        )

    def take_up(self, standing: HarvesterSnapshot) -> None:
        """Go on from where another one stood; only for one that has heard of nothing yet."""
        self._held = None
        standings.take_up(standing, self._holdings)
        self._time_s = float("-inf") if standing.time_s is None else standing.time_s
        self._decisions = standing.decisions
        self._competed = list(standing.competed)
        self._at_once = list(standing.owed)
        self._node_stay = standing.node_stay
        self._gate.take_up(standing.admission, standing.time_s or 0.0)

    # -- what the outside tells

    def handle(self, *events: Event) -> tuple[Action, ...]:
        """Take in events of one moment and decide: all actions that follow, departures first.

        If deciding fails, ``owed`` still has what must be done at once.
        """
        at_once = self.absorb(*events)
        return at_once + self.decide(self._time_s).actions

    def absorb(self, *events: Event) -> tuple[Action, ...]:
        """Take in events of one moment, in their order, without deciding; gives what must be done at once.

        Nodes that left are always released first, and tasks below their minimum pause. Nothing
        here waits for a solver. A finished task leads to no action: its processes have ended by themselves.
        """
        self._advance(events)
        self._node_stay = self._node_stay.after(self._time_s, self.pool_size, self._holdings.departing(events))
        self._changes += 1
        self._held = None
        self._holdings.roster.now_s = self._time_s
        self._gate.passed(self._time_s)
        actions = self._holdings.take_in(events)
        self._at_once.extend(actions)
        self._holdings.notes.extend(self._gate.happened(events, self._time_s))
        return actions

    def decide(self, time_s: float) -> Decision:
        """Divide the pool again over the tasks that compete; a decision is never earlier than the events before it."""
        question = self.ask(time_s)
        return self.settle(question, self.answer(question))

    # -- the same in three parts, for callers that receive events while a solver runs

    def ask(self, time_s: float) -> DecisionRequest:
        """Say what is to be decided at ``time_s``. Changes nothing."""
        roster = self._holdings.roster
        time_s = max(self._time_s, time_s)
        chosen = self._gate.chosen(time_s, self._holdings.pool.counts or {ANY_KIND: len(self._holdings.pool)})
        named = tuple(chosen)
        admitted = roster.known(named)
        problem = None
        if admitted:
            fit = self._node_stay.fit(self.pool_size / len(admitted)) if self._fits_costs else None
            problem = AllocationProblem(
                pool=len(self._holdings.pool),
                pools=self._holdings.pool.counts or NOTHING,
                horizon_s=self._horizon_s,
                objective=self._tabulator.objective.name,
                tasks=self._gate.limited(roster.competing(admitted, time_s, history=self._history, fit=fit), chosen),
                entities=self._entities,
                prices=self._prices,
            )
        return DecisionRequest(
            time_s=time_s, asked_after=self._changes, named=named, admitted=admitted, problem=problem
        )

    def answer(self, question: DecisionRequest, *, hurry: str = "") -> ChosenSizes:
        """Choose sizes. This may take as long as the solver; another thread may do it, one question at a time.

        ``hurry`` is a reason why the solver cannot be waited for: then the fallback's sizes are taken.
        """
        if question.problem is None:
            return _nothing_to_decide(self._solver.name)
        table = self._tabulator.table(question.problem)
        return choose(table, self._limits, self._solver, self._fallback, hurry=hurry)

    def outdated(self, question: DecisionRequest) -> bool:
        """Say whether events were taken in since a question was asked, so that its answer is worth nothing."""
        return question.asked_after != self._changes

    def settle(self, question: DecisionRequest, choice: ChosenSizes) -> Decision:
        """Decide as was chosen; refused for an outdated question."""
        if self.outdated(question):
            raise BadInput("events were taken in since this was asked", where="decision", fix="ask again")
        self._time_s = self._holdings.roster.now_s = question.time_s
        self._gate.passed(self._time_s)
        self._held = None
        if len(question.admitted) < len(question.named):  # an admission may name unknown tasks; a note says so
            for name in question.named:
                self._holdings.knows(name)
        sizes = {name: choice.sizes.get(name, 0) for name in question.admitted}
        # Only those that the last decision gave nodes to can hold some, so the waiting ones need not be looked at
        barred = [name for name in self._competed if name not in sizes and self._holdings.holds_nodes(name)]
        kinds = {name: kind for name, kind in choice.kinds.items() if sizes.get(name)} if choice.kinds else NOTHING
        actions = tuple(self._holdings.carry_out({**sizes, **dict.fromkeys(barred, 0)}, kinds))
        at_once, notes = self._begin_again(question.admitted)
        return Decision(
            time_s=question.time_s,
            number=self._decisions,
            pool=len(self._holdings.pool),
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
        )

    def follow(self, decision: Decision) -> None:
        """Repeat a recorded decision without solving, to restore a recorded run."""
        self._held = None
        self._holdings.roster.now_s = decision.time_s
        self._gate.passed(decision.time_s)
        self._holdings.follow(decision.actions)
        self._time_s = decision.time_s
        self._begin_again(tuple(decision.sizes))
        self._decisions = decision.number

    def _begin_again(self, competed: tuple[str, ...]) -> tuple[tuple[Action, ...], tuple[str, ...]]:
        """Close the books of one decision; gives what was owed and noted."""
        self._decisions += 1
        self._competed = list(competed)
        at_once, self._at_once = tuple(self._at_once), []
        notes, self._holdings.notes = tuple(self._holdings.notes), []
        return at_once, notes

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


def _nothing_to_decide(solver: str) -> ChosenSizes:
    solution = Solution(
        sizes={},
        value=0.0,
        bound=0.0,
        termination=Termination.OPTIMAL,
        quality=Quality.PROVEN,
        solver=solver,
        solver_words="nobody competes",
    )
    return ChosenSizes(sizes={}, value=0.0, solution=solution)
