"""Report: a study as one HTML page that needs nothing else, neither network nor scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Final

from bftrain.values import wire
from bftrain_replay import comparison, words
from bftrain_replay.charts import Bar, Curve, bars, step_areas
from bftrain_replay.ledger import Unused
from bftrain_replay.origins import Source, tasks_sha256, versions_with
from bftrain_replay.progress import Loss
from bftrain_replay.result import SECONDS_AN_HOUR, Result, TaskRecord, TaskState
from bftrain_replay.study import Study

TASKS_SHOWN: Final = 500
_WIDTHS: Final = (("wide", 1130, 300), ("medium", 740, 280), ("narrow", 332, 240))
_EPOCH_FROM_S: Final = 1e8  # logs that begin earlier count from some zero of their own, not from 1970

_LOST: Final = (
    (Loss.PREEMPTION, "Lost to preemption", "work to do again after nodes were taken back", "preempted"),
    (Loss.RESCALING, "Lost to rescaling", "waits while tasks changed their size", "rescaling"),
    (Loss.START_UP, "Lost to start-up", "waits while tasks began on fresh nodes", "start"),
    (Loss.UNNOTICED, "Lost unnoticed", "by tasks that had ended before the next event", "start"),
)
_UNUSED: Final = (
    (Unused.NO_TASK, "Unused, no task", "none was left to run"),
    (Unused.TASK_CAP, "Unused, too few compete", "those that may were full, others waited outside (max_tasks)"),
    (Unused.AT_MAXIMUM, "Unused, tasks full", "every task was at its largest size"),
    (Unused.BELOW_MINIMUM, "Unused, too few nodes", "fewer than any waiting task needs"),
    (Unused.NOT_WORTH, "Unused, not worth it", "taking them would have cost more than it gained"),
    (Unused.UNDECIDED, "Unused, undecided", "the decision on them was still to take effect"),
)
_STATES: Final = {
    TaskState.FINISHED: "finished",
    TaskState.RUNNING: "running",
    TaskState.WAITING: "waiting",
    TaskState.NOT_ARRIVED: "not arrived",
}


def render(study: Study, *, title: str = "", source: Source | None = None, measured: bool = True) -> str:
    """Give the page. Without ``measured`` it leaves decision times out and depends on the inputs alone."""
    heading = escape(title or "What the idle nodes could have done")
    style = files("bftrain_replay").joinpath("report.css").read_text(encoding="utf-8")
    sections = (
        _headline(study),
        _comparison(study, measured=measured),
        _nodes_over_time(study),
        _where_it_went(study.result),
        _tasks(study.result.tasks),
        _configuration(study, source or Source()),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{heading}</title>\n<style>\n{style}</style></head>\n"
        f"<body><main><h1>{heading}</h1>\n{_period(study)}\n" + "\n".join(sections) + "\n</main></body></html>\n"
    )


def _period(study: Study) -> str:
    log = study.part
    text = f"{words.count(len(log.node_names))} nodes observed for {words.duration(log.span_s)}"
    if log.start_s >= _EPOCH_FROM_S:
        text += f" from {words.moment(log.start_s)}"
    return f'<p class="soft">{text}; {words.count(len(study.tasks))} training tasks.</p>'


# -- headline


def _headline(study: Study) -> str:
    result = study.result
    notices = []
    if not result.complete:
        notices.append("This replay was stopped before its end: the figures cover a part of the log.")
    elif not study.complete:
        notices.append("It was stopped before the replays to compare with were done: efficiency is not known.")
    notices += result.warnings
    if result.tasks and result.tasks_finished == len(result.tasks):
        notices.append("Every task finished, so the harvest could not be larger; compare when they finished.")
    return "".join(
        (
            f'<p class="lead">{_together(_in_a_sentence(study))}</p>',
            *(f'<p class="warning">{escape(notice)}</p>' for notice in notices),
            f'<dl class="cards">{"".join(_card(*card) for card in _cards(study))}</dl>',
        )
    )


def _in_a_sentence(study: Study) -> str:
    result = study.result
    idle_h = words.count(result.idle_node_s / SECONDS_AN_HOUR)
    sentence = f"The batch queue left <strong>{idle_h} node-hours</strong> idle."
    if result.coverage is not None:
        sentence += f" Training tasks could have held <strong>{words.percent(result.coverage)}</strong> of them"
        sentence += f" and done <strong>{words.large(result.harvested_samples)} samples</strong> of work"
        yardsticks = result.yardsticks
        if yardsticks and result.efficiency is not None:
            sentence += (
                f": {words.percent(result.efficiency)} of what {words.count(yardsticks.dedicated_nodes)} nodes "
                "reserved for them all the time would have done"
            )
        sentence += "."
    return sentence


def _cards(study: Study) -> list[tuple[str, str, str]]:
    result, log = study.result, study.part
    lost_h = sum(result.lost_node_s.values()) / SECONDS_AN_HOUR
    ceiling = study.ceiling.efficiency if study.ceiling else None
    mean = words.count(result.idle_node_s / result.simulated_s) if result.simulated_s else words.UNKNOWN
    return [
        ("Idle", words.percent(log.idle_share), f"of all node-time; {mean} nodes on average"),
        (
            "Used",
            words.percent(result.coverage),
            f"of the idle node-time: {words.count(result.used_node_s / SECONDS_AN_HOUR)} node-hours",
        ),
        (
            "Efficiency",
            words.percent(result.efficiency),
            f"of dedicated nodes; {words.percent(ceiling)} if changes cost nothing",
        ),
        (
            "Lost",
            words.percent(result.lost_share(*Loss)),
            f"of the work: {words.count(lost_h)} node-hours of redone work and waits",
        ),
        ("Tasks finished", words.count(result.tasks_finished), f"of {words.count(len(result.tasks))}"),
        (
            "Given back",
            words.count(sum(task.preemptions for task in result.tasks)),
            "times a task handed nodes back to the batch queue",
        ),
    ]


def _card(name: str, figure: str, note: str) -> str:
    return (
        f'<div class="card"><dt>{escape(name)}</dt><dd class="figure">{escape(figure)}</dd>'
        f'<dd class="note">{_together(escape(note))}</dd></div>'
    )


# -- comparison


def _comparison(study: Study, *, measured: bool) -> str:
    names = list(comparison.columns(study))
    table = _table(["", *names], comparison.rows(study, measured=measured))
    return (
        "<h2>Compared</h2>"
        '<p class="soft">Efficiency U is the harvest as a share of what the same tasks do on the same node-time given '
        "as a constant pool of their own. The ceiling is the same log if rescaling and preemption cost nothing. Losses "
        "are shares of the work that the nodes in use could have done.</p>"
        f'<div class="scroll compare best">{table}</div>'
    )


# -- charts


def _at_all_widths(draw: Callable[[int, int], str]) -> str:
    return "".join(f'<div class="{css}">{draw(width, height)}</div>' for css, width, height in _WIDTHS)


def _nodes_over_time(study: Study) -> str:
    result = study.result
    curves = (
        Curve(name="idle", css="idle", times_s=result.times_s, values=result.pool),
        Curve(name="used", css="used", times_s=result.times_s, values=result.used),
    )
    mean_idle = result.idle_node_s / result.simulated_s if result.simulated_s else 0.0
    mean_used = result.used_node_s / result.simulated_s if result.simulated_s else 0.0
    alt = (
        f"Idle and used nodes over {words.duration(result.simulated_s)}: on average {words.count(mean_idle)} idle, "
        f"{words.count(mean_used)} of them used; at most {words.count(int(result.pool.max()))} idle."
    )
    chart = _at_all_widths(
        lambda width, height: step_areas(curves, result.simulated_s, width=width, height=height, alt=alt, unit="nodes")
    )
    return (
        f"<h2>Idle nodes, and how many of them worked</h2><figure>{chart}"
        '<figcaption class="key"><span><i class="idle"></i>idle, but unused</span>'
        '<span><i class="used"></i>used by tasks</span>'
        "<span>Short peaks are averaged over the width of a step.</span></figcaption></figure>"
    )


def _where_it_went(result: Result) -> str:
    def share(seconds: float) -> str:
        return words.percent(seconds / result.idle_node_s if result.idle_node_s else None)

    lost = [(result.lost_node_s[loss], name, detail, css) for loss, name, detail, css in _LOST]
    unused = [(result.unused_node_s[why], name, detail, "unused") for why, name, detail in _UNUSED]
    useful = result.used_node_s - sum(row[0] for row in lost)
    counts = (useful, "Work that counts", "samples done once and kept", "used")
    rows = [counts, *(row for row in (*lost, *unused) if row[0] > 0.0)]
    items = [
        Bar(
            name=name,
            detail=detail,
            value=seconds,
            words=f"{words.count(seconds / SECONDS_AN_HOUR)} node-h, {share(seconds)}",
            css=css,
        )
        for seconds, name, detail, css in rows
    ]
    alt = "Where the idle node-time went. " + "; ".join(f"{item.name}: {item.words}" for item in items) + "."
    chart = _at_all_widths(lambda width, _: bars(items, width=width, alt=alt))
    return (
        '<h2>Where the idle node-time went</h2><p class="soft">All idle node-hours of the log, each counted once.</p>'
        f"<figure>{chart}</figure>"
    )


# -- tables


def _tasks(tasks: Sequence[TaskRecord]) -> str:
    headings = [
        "task",
        "state",
        "submitted",
        "waited",
        "finished",
        "node-hours",
        "done",
        "lost",
        "starts",
        "rescales",
        "preemptions",
    ]
    shown = tasks[:TASKS_SHOWN]
    rest = len(tasks) - len(shown)
    note = f"The first {len(shown)}; all {words.count(len(tasks))} are in the table of tasks. " if rest else ""
    return (
        f'<h2>Tasks</h2><p class="soft">{note}Times count from the log\'s start.</p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Tasks">'
        f"{_table(headings, map(_task_row, shown))}</div>"
    )


def _task_row(task: TaskRecord) -> tuple[str, ...]:
    lost = sum(getattr(task, f"lost_{loss}_samples") for loss in Loss)
    made = task.done_samples + lost
    done = task.done_samples / task.work_samples if task.work_samples else None
    return (
        task.name,
        _STATES[task.state],
        words.duration(task.submit_s),
        words.duration(task.waited_s if task.state is not TaskState.NOT_ARRIVED else None),
        words.duration(task.finish_s),
        words.count(task.node_s / SECONDS_AN_HOUR),
        words.percent(done) if done is not None else words.large(task.done_samples),
        words.percent(lost / made if made else None),
        words.count(task.starts),
        words.count(task.rescales),
        words.count(task.preemptions),
    )


def _configuration(study: Study, source: Source) -> str:
    settings = [(name, str(value)) for name, value in wire.plain(study.result.settings).items()]
    inputs = [
        ("log", f"{source.log or 'made in memory'} (SHA-256 {study.log.sha256})"),
        ("tasks", f"{source.tasks or 'made in memory'} (SHA-256 {tasks_sha256(study.tasks)})"),
        *versions_with(study.result.settings.solver).items(),
    ]
    return f'<h2>Configuration</h2><div class="scroll plain">{_table(["setting", "value"], [*settings, *inputs])}</div>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        f"{''.join(f'<td>{_together(escape(cell))}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _together(html: str) -> str:
    """Keep a figure and its unit on one line."""
    for unit in ("%", "ms"):
        html = html.replace(f" {unit}", f"&nbsp;{unit}")
    return html
