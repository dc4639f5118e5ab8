"""Glossary: the meaning of every figure, in the words that pages, documents and ``bftrain explain`` share."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from bftrain.errors import UnknownName, fold, near

_RESULTS: Final = "docs/results.md"
_FAIR: Final = "docs/results.md#how-long-and-how-fair"
_YARDSTICKS: Final = "docs/semantics.md#yardsticks"
_NODE_TIME: Final = "docs/semantics.md#node-time"
_ROUNDS: Final = "docs/rounds.md"
_ASSESS: Final = "docs/assess.md"


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
        (
            "idle_node_h",
            "node-hours in which nodes were idle: free for tasks until the batch scheduler wants them back",
        ),
        ("used_node_h", "idle node-hours in which a task held the node"),
        ("coverage", "the share of the idle node-time in which a task held the node", "used_node_h / idle_node_h"),
        ("harvested", "samples that tasks did on idle nodes, without those that were lost", "", "harvest"),
        (
            "harvest_node_h",
            "node-hours of work that counts: those that tasks held, less those that were lost",
            "used_node_h - sum of lost node-hours",
            "work that counts",
        ),
        (
            "harvest_share",
            "the share of the idle node-time that became work that counts",
            "harvest_node_h / idle_node_h",
        ),
        (
            "efficiency",
            (
                "what was harvested, as a share of what the same tasks would do on the same node-time as nodes of"
                " their own: a constant pool, without costs. It says nothing where there was too little work"
            ),
            "harvested / dedicated_samples",
            "U",
        ),
        (
            "dedicated_nodes",
            "nodes of the constant pool that U compares with: as many as were idle on average",
            "round(idle node-time / time)",
            "dedicated pool",
            "dedicated_samples",
        ),
        (
            "ceiling_efficiency",
            (
                "the harvest of the same log if starts, rescaling and preemption cost nothing, as a share of what"
                " the constant pool does. A yardstick, no proven bound"
            ),
            "ceiling_samples / dedicated_samples",
            "ceiling",
            "without costs",
            "ceiling_samples",
        ),
        (
            "harvested_of_ceiling",
            "the harvest, as a share of the harvest if nothing cost anything",
            "harvested / ceiling_samples",
        ),
        (
            "doubtful_share",
            (
                "the share of the idle node-time that the records do not prove: it may have been downtime, or "
                "work of jobs whose rows could not be used"
            ),
            "doubtful_node_h / idle_node_h",
            "doubtful",
            "sure",
        ),
        ("simulated_s", "how much of the log was replayed"),
    ),
    *_entries(
        GlossaryTopic.UNUSED,
        _NODE_TIME,
        ("unused.no_task", "every task that had arrived was finished"),
        ("unused.task_cap", "those that may compete were full, others waited outside (max_tasks)"),
        ("unused.at_maximum", "every task was at its largest size"),
        ("unused.below_minimum", "fewer were left than any waiting task needs"),
        ("unused.not_worth", "taking them would have cost more than it gained"),
        ("unused.undecided", "the decision on them was still to take effect"),
        ("unused.other_kind", "tasks that wanted more run on other kinds of nodes, or held some"),
    ),
    *_entries(
        GlossaryTopic.LOST,
        _NODE_TIME,
        ("lost", "node-time that tasks held and that became no work that counts, as a share of the idle node-time"),
        ("lost.start_up", "waits while tasks began on fresh nodes"),
        ("lost.rescaling", "waits while running tasks changed their size"),
        ("lost_to_changes", "waits while tasks began on fresh nodes or changed their size"),
        ("lost.preemption", "work to be done again after nodes were taken back"),
        ("lost.unnoticed", "spent by tasks that had ended, until the next event"),
        ("lost.spread", "not done, since tasks ran more slowly where they lay on more hosts or racks than needed"),
    ),
    *_entries(
        GlossaryTopic.TASKS,
        _FAIR,
        ("tasks", "how many tasks there are"),
        ("tasks_finished", "tasks whose whole work was done by the end"),
        ("tasks_unfinished", "tasks that came, have an end, and had not reached it when the replay ended"),
        ("tasks_finished_by_all", "tasks that finished in each of the compared replays"),
        ("completion_s", "from the submission of a task to the end of its work, of those that finished"),
        (
            "completion_at_least_s",
            (
                "mean completion time if every task that did not finish had finished just when the replay ended: "
                "the true mean is no smaller"
            ),
        ),
        ("response_s", "from the submission of a task to its first node"),
        ("waited_s", "how long a task that had arrived held no node"),
        ("late_s", "how much later than their deadlines tasks finished, of those that missed them"),
        (
            "slowdown",
            "how many times as long a task took as if the whole machine were its own",
            "(finish_s - submit_s) / shortest_s",
        ),
        (
            "rho",
            (
                "finish-time fairness: the time that a task took over the time with an even n-th part of the idle"
                " nodes, without costs. At most 1: it lost nothing by sharing; above 1: it paid for the others"
            ),
            "(finish_s - submit_s) / alone_s",
            "finish-time fairness",
        ),
        ("rho_over_1", "the share of the finished tasks that an even division would have served better"),
        (
            "makespan_s",
            "from the first submission to the end of the last task; unknown unless all finished",
            "",
            "makespan",
        ),
        ("deadlines_missed", "tasks that were not done at their deadline"),
        ("cost", "node-hours that tasks held, each at the price of its kind of node"),
        ("waits", "how often a task that had arrived held no node"),
        ("starts", "how often tasks began on nodes after they had none"),
        ("wasted_starts", "starts after which a task lost all its nodes before its start-up was complete"),
        ("rescales", "decided changes of a running task's size, stops included"),
        ("preemptions", "how often the batch scheduler took nodes from a task"),
        (
            "stretch",
            "how many times as long a user's campaign took as with all idle nodes to itself",
            "(end_s - created_s) / least_s",
            "campaign stretch",
        ),
    ),
    *_entries(
        GlossaryTopic.ROUNDS,
        _ROUNDS,
        ("rounds", "rounds that were simulated"),
        ("responsiveness_s", "from the submission of a task to the end of the first round in which it ran"),
        ("moves", "starts on another kind of node right after running on one"),
        ("taken", "preemptions because nodes left during a round"),
    ),
    *_entries(
        GlossaryTopic.DECISIONS,
        _RESULTS,
        ("decisions", "how many times sizes were chosen"),
        ("fallbacks", "decisions whose sizes did not come from the chosen solver, because it failed or was late"),
        ("infeasible_decisions", "decisions in which the solver proved that no plan satisfies the objective"),
        ("solve_ms", "time of the solver for one decision, on the machine that replayed"),
        ("decide_ms", "time from an event until all actions are known, on the machine that replayed"),
        ("wall_s", "how long the replay took, on the machine that replayed"),
        (
            "horizon_s",
            "how far ahead a decision counts speed: a rescale must win back its cost within so long",
            "",
            "horizon",
        ),
    ),
    *_entries(
        GlossaryTopic.SITE,
        _ASSESS,
        (
            "weekly",
            "node-hours of work that counts in a week: the median of resamples, and the interval with 90 % of them",
            "block bootstrap over weeks",
            "interval",
        ),
        ("saturation", "how the harvest of a week grows with the number of tasks that may compete", "", "max_tasks"),
        ("notice", "seconds between the announcement of a departure and the departure: time to save", "", "lead time"),
        ("handback_delay_s", "seconds from when the scheduler wants a node until a task has left it", "", "handback"),
        (
            "extra_wait_s",
            "how much later batch jobs begin if nodes are handed back with a delay; lateness passes on from job to job",
        ),
        (
            "extra_energy",
            "energy of the nodes at work beyond what they draw idle",
            "held node-hours * (busy - idle watts)",
            "energy",
            "kwh",
        ),
    ),
)
GLOSSARY_OF: Final = {entry.key: entry for entry in GLOSSARY}


def entry_of(figure: str) -> GlossaryEntry | None:
    """Return the entry of a figure by its key; parts of a spread, such as ``rho.p95``, have that of the whole.

    >>> entry_of("rho.p95").key
    'rho'
    """
    while figure not in GLOSSARY_OF and "." in figure:
        figure = figure.rpartition(".")[0]
    return GLOSSARY_OF.get(figure)


def meaning_of(figure: str) -> str:
    """Return the meaning of a figure as a sentence; "" if the glossary does not have it."""
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
