"""Report: a replay as one page, and its charts as files."""

from __future__ import annotations

from html import escape
from typing import Final

import msgspec

from bftrain import text_formats
from bftrain_datasets.log.idle_doubts import COUNTS, SIMULATED
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlPage, HtmlText, PageSection
from bftrain_replay.reporting.alternatives_section import advice, sensitivity
from bftrain_replay.reporting.completion import completion, task_table, tasks_shown
from bftrain_replay.reporting.configuration import configuration
from bftrain_replay.reporting.headline_section import cards, compared, gains, lead, notices
from bftrain_replay.reporting.losses import meanings, waterfall
from bftrain_replay.reporting.over_time import holders, nodes, strip
from bftrain_replay.reporting.task_sizes import decision_times, idle_pieces, model_table, sizes
from bftrain_replay.reporting.user_shares import campaigns, shares_so_far, users_over_time
from bftrain_replay.run import headline
from bftrain_replay.run.run import Run

_SEEN: Final = {SIMULATED: "in a simulated schedule", COUNTS: "derived from counts"}
_YARDSTICKS: Final = (
    '<p class="soft">Efficiency U is the harvest as a share of what the same tasks do on the same node-time given as a '
    "constant pool of their own. U without costs is the same if starting, rescaling and preemption cost nothing; it is "
    "no bound, a replay can come out above it, because no solver knows the future. Losses are shares of the work that "
    "the nodes in use could have done.</p>"
)


class OwnParts(msgspec.Struct, frozen=True, kw_only=True):
    """The page parts about the replay alone, ready before the comparison replays."""

    over_time: tuple[ChartFigure, ...]
    completion: tuple[PageSection, ...]
    more: tuple[ChartFigure, ...]


def own_parts(run: Run) -> OwnParts:
    """Make the parts of a page that show the replay alone, which takes most of the time."""
    of_users = [users_over_time(run), shares_so_far(run)]
    over_time = [strip(run), nodes(run), sizes(run), *of_users, holders(run)]
    ends = [completion(run), campaigns(run)]
    more = [idle_pieces(run), decision_times(run)]
    return OwnParts(
        over_time=tuple(chart for chart in over_time if chart is not None),
        completion=tuple(section for section in ends if section is not None),
        more=tuple(chart for chart in more if chart is not None),
    )


def page(run: Run, title: str = "", own: OwnParts | None = None) -> HtmlPage:
    """Build the page; ``own`` are parts made earlier (default: make them here)."""
    own = own or own_parts(run)
    # A note on partial figures stands before all figures
    part = headline.note(run.end_s, run.log.span_s, complete=run.summary["complete"]).rstrip()
    # A summary of the replayed inputs
    summary, log = run.summary, run.log
    seen = _SEEN.get((summary.get("doubtful") or {}).get("source", ""), "observed")
    text = f"{text_formats.counted(len(log.node_names), run.node)} {seen} for {text_formats.duration(run.end_s)}"
    if run.moments.on_calendar:
        text += f" from {text_formats.moment(log.start_s)}"
    tasks = text_formats.counted(summary["tasks"], "training task")
    return HtmlPage(
        title=title or f"What the idle {run.node}s could have done",
        subtitle=f"{text}; {tasks}; solver {summary['solver']}, objective {summary['objective']}.",
        lead=HtmlText(f"<strong>{part}</strong> {lead(run)}" if part else lead(run)),
        warnings=notices(run),
        cards=cards(run),
        sections=(
            *(part for part in (sensitivity(run),) if part is not None),
            *_losses(run),
            PageSection(
                heading="Over time",
                intro="Drag over any of these pictures to look closer: all of them follow. A double click shows all. "
                "Press / to follow a task or a user, or click on one; the address of the page keeps what is shown."
                + _named_only(run),
                parts=own.over_time,
            ),
            PageSection(
                heading="Compared",
                parts=(
                    HtmlText(f'<p class="says">{escape(gains(run))}</p>'),
                    compared(run),
                    HtmlText(run.words(_YARDSTICKS)),
                ),
            ),
            *own.completion,
            PageSection(heading="Idle times and decisions", parts=own.more),
            _tasks(run),
            PageSection(heading="Configuration", parts=tuple(configuration(run.summary))),
        ),
        users_of=_users_of(run),
        unnamed=run.others,
    )


def _users_of(run: Run) -> dict[str, str]:
    """Return the users of followable tasks: in a long replay, the tasks that the page names."""
    users = {task["name"]: task["user"] or "" for task in run.task_rows}
    if not run.others:
        return users
    held = run.holdings.tasks
    shown = [*(held[place] for place in run.named.tolist()), *(task["name"] for task in tasks_shown(run.task_rows))]
    return {name: users[name] for name in dict.fromkeys(shown)}


def _losses(run: Run) -> tuple[PageSection, ...]:
    """Return the section on losses; empty without idle node-time."""
    fall, table = waterfall(run), meanings(run)
    if fall is None:
        return ()
    counted = f"All idle {run.node}-hours of the log, each counted once"
    intro = f"{counted}: from the top, each step takes away what one cause cost, "
    return (
        PageSection(
            heading=f"Where the idle {run.node}-time went",
            intro=f"{intro}and what remains is work that counts.",
            parts=(fall,) if table is None else (fall, table),
        ),
        PageSection(heading="What would be better", parts=(advice(run),)),
    )


def _named_only(run: Run) -> str:
    if not run.others:
        return ""
    return (
        f" The {len(run.named):,} tasks with the most {run.node}-time can be followed, and a user by these; the "
        f"figures and the other pictures are of all {len(run.task_rows):,} tasks."
    )


def _tasks(run: Run) -> PageSection:
    tasks, shown = run.task_rows, tasks_shown(run.task_rows)
    left_out = ""
    if len(shown) < len(tasks):
        left_out = (
            f"The {len(shown):,} of {len(tasks):,} with the most {run.node}-time; all are in the table of tasks. "
        )
    intro = "Times count from the log's start; lost is a share of a task's work. A heading sorts by its column."
    models = model_table(tasks, run.node)
    if models is not None:
        intro = f"First by model, which is a task's name up to its number; then task by task. {intro}"
    parts = (*(() if models is None else (models,)), task_table(shown, run.node))
    return PageSection(heading="Tasks", intro=left_out + intro, parts=parts)
