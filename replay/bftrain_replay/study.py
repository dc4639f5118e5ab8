"""Study: one log and one set of tasks, replayed with its yardsticks and, if wanted, a simple baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed

from bftrain.assembly import build_harvester, find_solver
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.errors import Fault, UsageError
from bftrain.objective_file import resolve_objective
from bftrain.ports import Objective
from bftrain.values.task import TaskSpec
from bftrain_datasets.eventlog import EventLog
from bftrain_replay.allocations import Allocations
from bftrain_replay.answers import Answers
from bftrain_replay.engine import run
from bftrain_replay.oddities import odd_decisions, odd_inputs
from bftrain_replay.pace import Pace
from bftrain_replay.result import Result, Yardsticks, result_of
from bftrain_replay.selection import Selection, select
from bftrain_replay.semantics import as_replayed, semantics_of
from bftrain_replay.settings import ReplaySettings
from bftrain_replay.yardsticks import dedicated_log, dedicated_nodes, ideally, without_costs

# Told which replay is in hand, the seconds simulated and the decisions made in it; says whether to go on
Watch = Callable[[str, float, int], bool]

CEILING = "ceiling"
DEDICATED = "dedicated pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The replay asked for, and what it is compared with: ``None`` where that was not asked for or not reached.

    ``log`` is the one that was given, ``part`` the window and nodes of it that were replayed.
    """

    log: EventLog
    part: EventLog
    tasks: tuple[TaskSpec, ...]
    result: Result
    baseline: Result | None = None
    ceiling: Result | None = None
    complete: bool = True


def study(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    *,
    baseline: str = "",
    objective: Objective | None = None,
    watch: Watch | None = None,
    answers: Answers | None = None,
) -> Study:
    """Replay ``log`` against ``tasks`` with ``settings``, with the ceiling and the dedicated pool as yardsticks.

    ``baseline`` names a second solver to replay with; ``objective`` replaces the one the settings name. Once
    ``watch`` says no, the replay in hand ends where it is and the others are left out; ``answers`` let it go on later.
    """
    settings = ReplaySettings.of(settings)
    metric = check_parts(settings, baseline, objective)
    passes, chosen = _Passes(metric, watch, answers), select(log, settings)
    part = chosen.log
    paying, free, ideal = as_replayed(tasks, settings), without_costs(tasks), ideally(settings, metric)
    main = passes.replay(settings.solver, chosen, paying, settings, Allocations(part.node_names))
    if main is None:
        raise Fault("the first replay did not begin", where="study")
    simple = passes.replay(baseline, chosen, paying, changed(settings, solver=baseline)) if baseline else None
    ceiling = passes.replay(CEILING, chosen, free, ideal)
    dedicated = None
    pool = dedicated_log(part)
    if pool is not None:
        # Whoever sees completions at events only sees them at the same times in the dedicated pool
        dedicated = passes.replay(DEDICATED, replace(chosen, log=pool), free, ideal)
    made = {settings.solver: main, baseline: simple, f"{ideal.solver} in the {CEILING}": ceiling}
    warnings = (*odd_inputs(part, tasks), *odd_decisions(made))
    yardsticks = _yardsticks(part, ceiling, dedicated) if ceiling and passes.going else None

    def held_against(result: Result) -> Result:
        return replace(result, yardsticks=yardsticks, warnings=warnings)

    return Study(
        log=log,
        part=part,
        tasks=tuple(tasks),
        result=held_against(main),
        # The figures of a part of the log compare with nothing
        baseline=held_against(simple) if simple and simple.complete else None,
        ceiling=held_against(ceiling) if ceiling and ceiling.complete else None,
        complete=passes.going,
    )


def check_parts(settings: Settings, baseline: str = "", objective: Objective | None = None) -> Objective:
    """Find every part that a study needs before any work is done; gives the objective."""
    if baseline == settings.solver:
        raise UsageError(f"the baseline '{baseline}' is the solver itself", fix="name another solver")
    objective = objective or resolve_objective(settings.objective)
    for solver in filter(None, (settings.solver, baseline)):
        build_harvester(changed(settings, solver=solver), objective=objective)
    return objective


def _yardsticks(log: EventLog, ceiling: Result, dedicated: Result | None) -> Yardsticks:
    return Yardsticks(
        dedicated_nodes=dedicated_nodes(log),
        dedicated_samples=dedicated.harvested_samples if dedicated else 0.0,
        ceiling_samples=ceiling.harvested_samples,
    )


class _Passes:
    """Replays one after the other until told to stop."""

    def __init__(self, objective: Objective, watch: Watch | None, answers: Answers | None) -> None:
        self._objective = objective
        self._watch = watch
        self._answers = answers
        self.going = True

    def replay(
        self,
        name: str,
        chosen: Selection,
        tasks: Sequence[TaskSpec],
        settings: ReplaySettings,
        allocations: Allocations | None = None,
    ) -> Result | None:
        """Replay, unless told to stop before."""
        if not self.going:
            return None

        def keep_going(simulated_s: float, decisions: int) -> bool:
            if self._answers is not None:
                self._answers.check()
            self.going = self._watch is None or self._watch(name, simulated_s, decisions)
            return self.going

        harvester = self._harvester(name, settings)
        semantics, pace = semantics_of(settings, chosen.event_times_s), Pace.of(settings)
        done = run(
            chosen.log,
            tasks,
            harvester,
            semantics=semantics,
            pace=pace,
            keep_going=keep_going,
            allocations=allocations,
        )
        result = result_of(done, settings)
        if self._answers is None:
            return result
        self._answers.check()
        return replace(result, wall_s=result.wall_s + self._answers.repeated_s)

    def _harvester(self, name: str, settings: ReplaySettings) -> Harvester:
        """Build the decision core; its solvers answer as they did before an interruption."""
        answers = self._answers
        if answers is None:
            return build_harvester(settings, objective=self._objective)
        answers.begin(name)
        return build_harvester(
            settings,
            solver=answers.through(find_solver(settings.solver)),
            fallback=answers.through(find_solver(settings.fallback)) if settings.fallback else None,
            objective=self._objective,
        )
