"""Glossary: the meaning of every figure, in the words that pages, documents and ``bftrain explain`` share."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from bftrain.errors import UnknownName, fold, near

_RESULTS: Final = "docs/reference/results.md"
_FAIR: Final = "docs/reference/results.md#task-durations-and-fairness"
_YARDSTICKS: Final = "docs/explanation/semantics.md#yardsticks"
_NODE_TIME: Final = "docs/explanation/semantics.md#node-time"
_ROUNDS: Final = "docs/how-to/rounds.md"
_ASSESS: Final = "docs/how-to/assess.md"


class GlossaryTopic(StrEnum):
    """Headings of the glossary."""

    HARVEST = "Harvest"
    UNUSED = "Why idle nodes stayed unused"
    LOST = "How work was lost"
    TASKS = "Tasks"
    ROUNDS = "Time shared in rounds"
    DECISIONS = "Decisions and run time"
    SITE = "For a site"


class GlossaryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A figure: its ``key`` in files, its meaning and formula, and further reading; ``also`` are other names."""

    key: str
    meaning: str
    topic: GlossaryTopic
    formula: str = ""
    page: str = _RESULTS
    also: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The meaning as a sentence."""
        return f"{self.meaning[:1].upper()}{self.meaning[1:]}."


def _entries(topic: GlossaryTopic, page: str, *rows: tuple[str, ...]) -> Iterator[GlossaryEntry]:
    """Yield entries from rows: key, meaning, formula, other names."""
    for key, meaning, *more in rows:
        formula, *also = more or ("",)
        yield GlossaryEntry(key=key, meaning=meaning, topic=topic, formula=formula, page=page, also=tuple(also))


GLOSSARY: Final = (
    *_entries(
        GlossaryTopic.HARVEST,
        _YARDSTICKS,
        ("idle_node_h", "node-hours of idle nodes: free for tasks until the batch scheduler needs them"),
        ("used_node_h", "idle node-hours that tasks used"),
        ("coverage", "the share of idle node-time that tasks used", "used_node_h / idle_node_h"),
        ("harvested", "samples that tasks did on idle nodes, without lost work", "", "harvest"),
        (
            "harvest_node_h",
            "node-hours of useful work: used minus lost",
            "used_node_h - sum of lost node-hours",
            "work that counts",
        ),
        ("harvest_share", "the share of idle node-time that became useful work", "harvest_node_h / idle_node_h"),
        (
            "efficiency",
            (
                "the harvest, as a share of the work of the same tasks on a constant pool with the same node-time and"
                " no costs. Meaningless if tasks ran out"
            ),
            "harvested / dedicated_samples",
            "U",
        ),
        (
            "dedicated_nodes",
            "size of the constant pool of U: the mean number of idle nodes",
            "round(idle node-time / time)",
            "dedicated pool",
            "dedicated_samples",
        ),
        (
            "ceiling_efficiency",
            (
                "the harvest of the same log if starts, rescaling and preemption were free, as a share of the work of"
                " the constant pool. A reference, not a proven bound"
            ),
            "ceiling_samples / dedicated_samples",
            "ceiling",
            "without costs",
            "ceiling_samples",
        ),
        ("harvested_of_ceiling", "the harvest, as a share of the harvest without costs", "harvested / ceiling_samples"),
        (
            "harvested_of_bound",
            (
                "the harvest, as a share of a proven bound: no scheduler does more samples "
                "with max_tasks tasks at a time, even if it knows the future"
            ),
            "harvested / bound_samples",
            "proven bound",
            "bound_samples",
        ),
        (
            "harvested_of_one_each",
            "the harvest, relative to identical tasks without costs, one on each idle node",
            "harvested / one_each_samples",
            "one_each_samples",
        ),
        (
            "doubtful_share",
            (
                "the share of idle node-time that the records do not prove: it may be downtime, or work of jobs "
                "with unusable rows"
            ),
            "doubtful_node_h / idle_node_h",
            "doubtful",
            "sure",
        ),
        ("simulated_s", "replayed seconds of the log"),
    ),
    *_entries(
        GlossaryTopic.UNUSED,
        _NODE_TIME,
        ("unused.no_task", "every task that had arrived was finished"),
        ("unused.task_cap", "competing tasks were full while more tasks waited (max_tasks)"),
        ("unused.at_maximum", "every task was at its largest size"),
        ("unused.below_minimum", "fewer were left than any waiting task needs"),
        ("unused.not_worth", "using them would have cost more than it gained"),
        ("unused.undecided", "the decision was pending"),
        ("unused.other_kind", "tasks that wanted more needed other kinds of nodes"),
    ),
    *_entries(
        GlossaryTopic.LOST,
        _NODE_TIME,
        ("lost", "used node-time without useful work, as a share of idle node-time"),
        ("lost.start_up", "waiting for tasks to start on new nodes"),
        ("lost.rescaling", "waiting for running tasks to change size"),
        ("lost_to_changes", "waiting for tasks to start or change size"),
        ("lost.preemption", "work repeated after the scheduler took nodes back"),
        ("lost.unnoticed", "node-time of finished tasks until the next event"),
        ("lost.spread", "work not done by tasks on more hosts or racks than needed, where they are slower"),
    ),
    *_entries(
        GlossaryTopic.TASKS,
        _FAIR,
        ("tasks", "number of tasks"),
        ("tasks_finished", "tasks that finished their work"),
        ("tasks_unfinished", "arrived tasks with a limited amount of work that they did not finish"),
        ("tasks_finished_by_all", "tasks that finished in each of the compared replays"),
        ("completion_s", "time from submission to completion, of finished tasks"),
        (
            "completion_at_least_s",
            (
                "mean completion time if every unfinished task had finished when the replay stopped: a lower bound "
                "of the true mean"
            ),
        ),
        ("response_s", "time from submission to the first node"),
        ("waited_s", "time after arrival without nodes"),
        ("late_s", "delay beyond the deadline, of tasks that missed it"),
        ("slowdown", "completion time relative to having the whole machine", "(finish_s - submit_s) / shortest_s"),
        (
            "rho",
            (
                "finish-time fairness: completion time over the time with an equal share of the idle nodes and no"
                " costs. Up to 1: sharing had no cost; above 1: the task paid for other tasks"
            ),
            "(finish_s - submit_s) / alone_s",
            "finish-time fairness",
        ),
        ("rho_over_1", "the share of finished tasks that would have been faster with an equal share"),
        (
            "makespan_s",
            "time from the first submission to the last completion; unknown unless all finished",
            "",
            "makespan",
        ),
        ("deadlines_missed", "tasks that missed their deadline"),
        ("cost", "used node-hours times the price of their node kind"),
        ("waits", "waiting periods after arrival"),
        ("starts", "starts from zero nodes"),
        ("wasted_starts", "starts that failed because the task lost all its nodes before its start-up was complete"),
        ("rescales", "decided changes of a running task's size, stops included"),
        ("preemptions", "times that the batch scheduler took nodes from a task"),
    ),
    *_entries(
        GlossaryTopic.ROUNDS,
        _ROUNDS,
        ("rounds", "simulated rounds"),
        ("responsiveness_s", "time from submission until the task's first round is over"),
        ("moves", "starts on another node kind right after the previous round"),
        ("taken", "preemptions by nodes that left during a round"),
    ),
    *_entries(
        GlossaryTopic.DECISIONS,
        _RESULTS,
        ("decisions", "number of decisions"),
        ("fallbacks", "decisions without sizes from the chosen solver, because it failed or was late"),
        ("infeasible_decisions", "decisions for which the solver proved that no plan exists"),
        ("solve_ms", "solver time per decision, on the replaying machine"),
        ("decide_ms", "time from an event until all actions are known, on the replaying machine"),
        ("wall_s", "duration of the replay, on the replaying machine"),
        ("horizon_s", "planning horizon of a decision: a rescale must recover its cost within it", "", "horizon"),
    ),
    *_entries(
        GlossaryTopic.SITE,
        _ASSESS,
        (
            "weekly",
            "useful node-hours per week: median and 90 % interval of resamples",
            "block bootstrap over weeks",
            "interval",
        ),
        ("saturation", "weekly harvest by number of competing tasks", "", "max_tasks"),
        ("notice", "seconds from the announcement of a departure to the departure: time to save", "", "lead time"),
        ("handback_delay_s", "seconds from a request for a node until its task has left", "", "handback"),
        ("extra_wait_s", "delay of batch jobs if nodes are returned late; delays pass on from job to job"),
        (
            "extra_energy",
            "energy of used nodes beyond their power when unused: idle, or off where they are powered down",
            "used node-hours * (busy - unused watts)",
            "energy",
            "kwh",
        ),
    ),
)
GLOSSARY_OF: Final = {entry.key: entry for entry in GLOSSARY}


def entry_of(figure: str) -> GlossaryEntry | None:
    """Return a figure's entry by its key; parts of a spread, such as ``rho.p95``, share the entry of the spread.

    >>> entry_of("rho.p95").key
    'rho'
    """
    while figure not in GLOSSARY_OF and "." in figure:
        figure = figure.rpartition(".")[0]
    return GLOSSARY_OF.get(figure)


def meaning_of(figure: str) -> str:
    """Return the meaning of a figure as a sentence; "" if it is not in the glossary."""
    entry = entry_of(figure)
    return "" if entry is None else entry.sentence


def find_entry(text: str, labels: dict[str, str]) -> GlossaryEntry:
    """Find an entry by its key, another name, or one of the ``labels`` (label of a figure -> its key).

    Raises:
        UnknownName: None is called so; it names the nearest.

    """
    names = {fold(label): key for label, key in labels.items()}
    names |= {fold(name): entry.key for entry in GLOSSARY for name in (entry.key, *entry.also)}
    found = entry_of(names.get(fold(text.strip()), text.strip()))
    if found is None:
        raise UnknownName(f"no figure is called '{text}'", fix=near(text, names) or "bftrain explain lists all")
    return found
