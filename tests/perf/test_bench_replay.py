"""How fast a replay goes: the engine alone, and with the decision core on a log like Summit's."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, process_time

import pytest
from msgspec.structs import replace

from bftrain import (
    Action,
    Decision,
    Event,
    NodesJoined,
    NodesLeft,
    Quality,
    Settings,
    SpeedCurve,
    Start,
    TaskSpec,
    Termination,
    build_harvester,
    generate_log,
    generate_mix,
    load_log,
    save_log,
)
from bftrain_datasets.log.eventlog import log_from_pool_changes
from bftrain_replay.simulation.engine import run
from tests.helpers.core_storms import NamedAlone
from tests.helpers.figures import Figures
from tests.helpers.published_study import MIX, TRIALS, save_published_tasks, save_summit
from tests.helpers.replay_case import PIECES, Figured, figured, save_year
from tests.perf.test_bench_report import LARGEST
from tests.perf.test_bench_report import run as command

pytestmark = pytest.mark.bench

MOST_MS = {35: 0.1, 100: 0.15}  # a decision in all, by how many tasks compete
MOST_S = {35: 10.0, 100: 14.0}  # the whole command, of all cores together
TASKS = 35
THRIFTY = Path(__file__).parents[2] / "examples/objectives/thrifty.py"
KEPT = tuple(f"kept{number}" for number in range(TASKS))


class FixedPlan:
    """Starts every task on a node that stays, and then decides nothing any more."""

    uses_work_left = chooses_batches = False

    def __init__(self) -> None:
        self._pool = 0
        self._sizes: dict[str, int] = {}

    def absorb(self, *events: Event) -> tuple[Action, ...]:
        for event in events:
            if isinstance(event, NodesJoined):
                self._pool += len(event.nodes)
            elif isinstance(event, NodesLeft):
                self._pool -= len(event.nodes)
        return ()

    def decide(self, time_s: float) -> Decision:
        actions: tuple[Action, ...] = ()
        if not self._sizes:
            self._sizes = {f"t{number}": 1 for number in range(TASKS)}
            actions = tuple(Start(task=f"t{number}", nodes=(node,)) for number, node in enumerate(KEPT))
        return Decision(
            time_s=time_s,
            number=1,
            pool=self._pool,
            used=TASKS,
            sizes=self._sizes,
            value=0.0,
            bound=None,
            solver="fixed",
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            actions=actions,
        )


def test_the_engine_without_a_solver(figures: Figures) -> None:
    events, group = 50_000, tuple(f"n{number}" for number in range(8))
    flicker = ((1.0 + time_s, *((group, ()) if time_s % 2 == 0 else ((), group))) for time_s in range(events))
    log = log_from_pool_changes([(0.0, KEPT, ()), *flicker])
    curve = SpeedCurve(nodes=(1,), rate=(1.0,))
    tasks = [TaskSpec(name=f"t{number}", curve=curve, max_nodes=64) for number in range(TASKS)]
    begin = perf_counter()
    done = run(log, tasks, FixedPlan())
    rate = len(done.decisions) / (perf_counter() - begin)
    figures.add("engine alone, 8 nodes an event, 35 tasks", rate, "events/s")
    assert rate > 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a log like Summit's: 4,734 nodes, 15 days."""
    made = tmp_path_factory.mktemp("replay")
    log = generate_log(4734, 15, seed=0)
    save_log(log, made / "fortnight.npz")
    save_log(log.select(nodes=slice(0, 1024)), made / "part.npz")
    return made


def shown(figures: Figures, what: str, found: Figured) -> Figured:
    figures.add(f"{what}: time", found.wall_s, "s")
    figures.add(f"{what}: memory at most", found.peak_mb, "MB")
    figures.add(f"{what}: decisions", found.decisions)
    figures.add(f"{what}: a decision, solver not counted", 1e6 * (found.wall_s - found.solve_s) / found.decisions, "us")
    return found


@pytest.mark.parametrize("max_tasks", [10, 35])
def test_two_weeks_of_a_thousand_nodes(figures: Figures, folder: Path, max_tasks: int) -> None:
    found = shown(figures, f"1,024 nodes, {max_tasks} compete", figured(folder / "part.npz", max_tasks=max_tasks))
    assert found.core_s < 10.0
    assert found.peak_mb < 300


def test_two_weeks_of_a_thousand_nodes_of_summit(figures: Figures, tmp_path: Path) -> None:
    log, tasks = tmp_path / "log.npz", tmp_path / "tasks.toml"
    save_summit(tmp_path / "summit.npz")
    save_log(load_log(tmp_path / "summit.npz").select(nodes=slice(0, 1024)), log)
    save_published_tasks(tasks, TRIALS)
    found = shown(figures, "Summit's first 1,024 nodes, 10 compete", figured(log, max_tasks=10, tasks=tasks))
    assert found.finished == 1000
    assert found.core_s < 10.0
    assert found.peak_mb < 300


@pytest.mark.parametrize("max_tasks", [35, 100])
def test_the_whole_of_summit_with_a_queue_that_never_empties(figures: Figures, tmp_path: Path, max_tasks: int) -> None:
    log, tasks = tmp_path / "log.npz", tmp_path / "tasks.toml"
    save_summit(log)
    save_published_tasks(tasks, MIX)
    found = figured(log, max_tasks=max_tasks, tasks=tasks, times=12)
    shown(figures, f"Summit, {max_tasks} compete", found)
    figures.add(f"Summit, {max_tasks} compete: a decision", 1e6 * found.wall_s / found.decisions, "us")
    assert found.finished < found.tasks - max_tasks
    assert found.decisions > 22_883
    assert 1e3 * found.core_s / found.decisions < MOST_MS[max_tasks]
    assert found.peak_mb < 500


@pytest.mark.parametrize("max_tasks", [35, 100])
def test_the_whole_command_on_all_of_summit(figures: Figures, tmp_path: Path, max_tasks: int) -> None:
    log, tasks = tmp_path / "log.npz", tmp_path / "tasks.toml"
    save_summit(log)
    save_published_tasks(tasks, MIX)
    cost = command("replay", log, "--tasks", tasks, "--max-tasks", max_tasks, "--quick", "-q", "-o", tmp_path / "out")
    name = f"Summit, {max_tasks} compete, whole command"
    figures.add(f"{name}: by the clock", cost.wall_s, "s")
    figures.add(f"{name}: time of a core", cost.core_s, "s")
    assert cost.core_s < MOST_S[max_tasks]


@pytest.mark.parametrize("max_tasks", [35, 100])
def test_the_compiled_core_as_a_part_of_the_harvester(figures: Figures, folder: Path, max_tasks: int) -> None:
    log = load_log(folder / "fortnight.npz")
    log = log.select(window=(log.start_s, log.start_s + 86400.0))
    tasks = [replace(spec, name=f"{spec.name}-{number}") for number in range(4) for spec in generate_mix(1001, seed=0)]
    compiled, named = list[float](), list[float]()
    for _ in range(3):
        for took in (compiled, named):
            harvester = build_harvester(Settings(max_tasks=max_tasks))
            begun = process_time()
            done = run(log, tasks, harvester if took is compiled else NamedAlone(harvester))
            took.append((process_time() - begun) / len(done.decisions))
    name = f"{max_tasks} compete: a decision"
    figures.add(f"{name} of the compiled core", 1e6 * min(compiled), "us")
    figures.add(f"{name} of the Harvester", 1e6 * min(named), "us")
    figures.add(f"{name}, compiled as a part of the Harvester's", min(compiled) / min(named))
    assert min(compiled) < 0.4 * min(named)


def test_an_objective_of_ones_own(figures: Figures, folder: Path) -> None:
    log = load_log(folder / "part.npz")
    log = log.select(window=(log.start_s, log.start_s + 86400.0))
    tasks = [replace(spec, name=f"{spec.name}-{number}") for number in range(4) for spec in generate_mix(1001, seed=0)]
    took: dict[str, list[float]] = {"throughput": [], f"{THRIFTY}:thrifty": []}
    for _ in range(3):
        for objective, times in took.items():
            begun = process_time()
            done = run(log, tasks, build_harvester(Settings(objective=objective)))
            times.append((process_time() - begun) / len(done.decisions))
    built_in, own = map(min, took.values())
    figures.add("an objective of one's own: a decision, as a multiple of the built-in's", own / built_in)
    assert own < 2.0 * built_in


def test_a_whole_machine_with_a_queue_that_never_empties(figures: Figures, folder: Path) -> None:
    found = shown(figures, "4,734 nodes, 100 compete", figured(folder / "fortnight.npz", max_tasks=100, times=12))
    assert found.finished < found.tasks - 100
    assert found.core_s < 60.0
    assert found.peak_mb < 500


def test_a_year_of_ten_thousand_nodes(figures: Figures, folder: Path, tmp_path: Path) -> None:
    """By default a month of it, from which the year is inferred; BFTRAIN_BENCH_YEAR=full replays all of it."""
    pieces = PIECES if os.environ.get("BFTRAIN_BENCH_YEAR") == "full" else 10
    share = pieces / PIECES
    save_year(tmp_path / "year.npz", pieces)
    # Longer tasks than the trials, since a year of those would have 300,000 ends of tasks beside its million events
    fortnight = figured(folder / "fortnight.npz", max_tasks=35, work_samples=1e9)
    found = figured(tmp_path / "year.npz", max_tasks=35, work_samples=1e9)
    year = shown(figures, f"{share:.2g} of a year, 10,000 nodes, 35 compete", found)
    figures.add("events in it", year.events)
    figures.add("the whole year at that rate", year.core_s / share, "s")
    ratio = (year.core_s / year.events) / (fortnight.core_s / fortnight.events)
    figures.add("an event, as a multiple of one of a fortnight of 4,734 nodes", ratio)
    assert year.events > 1_000_000 * share
    assert year.finished < year.tasks - 35
    assert year.core_s < 300.0 * share
    assert ratio < 1.3


def test_the_whole_command_on_a_year_of_ten_thousand_nodes(figures: Figures, tmp_path: Path) -> None:
    """By default a month of it: all passes, tables and the page; BFTRAIN_BENCH_YEAR=full replays all of it."""
    pieces = PIECES if os.environ.get("BFTRAIN_BENCH_YEAR") == "full" else 10
    share = pieces / PIECES
    log, tasks = tmp_path / "year.npz", tmp_path / "tasks.toml"
    save_year(log, pieces)
    count = str(round(51_246 * share))
    command("generate", "tasks", "--kind", "trials", "--work", "1e9", "--count", count, "-o", tasks)
    cost = command("replay", log, "--tasks", tasks, "--max-tasks", "35", "--quick", "-o", tmp_path / "out")
    name = f"{share:.2g} of a year, 10,000 nodes, whole command"
    figures.add(f"{name}: by the clock", cost.wall_s, "s")
    figures.add(f"{name}: time of a core", cost.core_s, "s")
    figures.add(f"{name}: memory at most", cost.peak_mb, "MB")
    # Pictures take as much of a shorter log; all else grows with it
    assert cost.peak_mb < 400 + 600 * share
    page = tmp_path / "page.html"
    again = command("report", tmp_path / "out", "-o", page, "-q")
    figures.add(f"{name}, its page from the folder: time of a core", again.core_s, "s")
    figures.add(f"{name}, its page from the folder: memory", again.peak_mb, "MB")
    figures.add(f"{name}, its page", page.stat().st_size / 1e6, "MB")
    assert again.core_s < 8 + 25 * share
    assert again.peak_mb < 400 + 500 * share
    assert page.stat().st_size < LARGEST
