"""The picture on the home page: python docs/scripts/home_picture.py > docs/pictures/harvest.svg.

It is a replay, not a drawing: six hours of a generated machine, one row a node. Grey is what the batch queue ran,
colours are the training tasks that ran in its holes.
"""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import cycle
from typing import TYPE_CHECKING, Final

from bftrain import replay
from bftrain_datasets.log.log_generator import generate_log
from bftrain_datasets.workloads.task_generators import TaskShape, generate_mix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bftrain import EventLog

NODES: Final = 40
BEGIN_S, HOURS = 3.0 * 3600.0, 6
WIDTH, ROW, BAR, AXIS = 720.0, 11.0, 9.2, 26.0  # pixels
BUSY, INK = "#8796a89c", "#7b8794"  # seen through, so that they do on white and on black
TASKS: Final = ("#e69f00", "#0072b2", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")  # safe for the colour-blind
ALT: Final = (
    f"{NODES} nodes over {HOURS} hours. Most of each row is grey: jobs of the batch queue. Nearly every gap between "
    "them is filled with one of six colours: training tasks, which spread over the gaps as these come and go."
)


def picture() -> str:
    """Replay, and draw who held which node when."""
    machine = generate_log(64, 1.0, 2, idle_share=0.2)
    log = machine.select(nodes=slice(0, NODES), window=(BEGIN_S, BEGIN_S + HOURS * 3600))
    tasks = generate_mix(60, 3, shape=TaskShape(max_nodes=12, work_samples=6e7))
    held = replay(log, tasks, max_tasks=len(TASKS)).result.table("allocations")
    colours = dict(zip(dict.fromkeys(held.sort_values("from_s").task), cycle(TASKS)))
    height = NODES * ROW + AXIS
    size = f'viewBox="0 0 {WIDTH:g} {height:g}" font-family="system-ui, sans-serif" font-size="13"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="d">',
        f'<desc id="d">{ALT}</desc>',
        *_bars(log, ((BUSY, node, a, b) for node, a, b in _busy(log))),
        *_bars(log, ((colours[task], node, a, b) for task, node, a, b in held.itertuples(index=False))),
        *_hours(height),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _busy(log: EventLog) -> Iterator[tuple[str, float, float]]:
    """Give the times in which each node was the batch queue's, in seconds from the begin."""
    since = dict.fromkeys(log.node_names, 0.0)
    for time_s, left, joined in log.pool_changes():
        now = time_s - log.start_s
        for node in joined:
            yield node, since.pop(node), now
        since.update(dict.fromkeys(left, now))
    for node, begin in since.items():
        yield node, begin, log.span_s


def _bars(log: EventLog, stretches: Iterable[tuple[str, str, float, float]]) -> Iterator[str]:
    """Draw one path a colour."""
    place = {name: number for number, name in enumerate(log.node_names)}
    paths: dict[str, list[str]] = defaultdict(list)
    for colour, node, begin, end in stretches:
        x, width = (WIDTH * seconds / log.span_s for seconds in (begin, end - begin))
        if width > 0.0:
            paths[colour].append(f"M{x:.1f} {place[node] * ROW:.4g}h{width:.1f}v{BAR:g}h-{width:.1f}z")
    for colour, parts in sorted(paths.items()):
        yield f'<path fill="{colour}" d="{"".join(parts)}"/>'


def _hours(height: float) -> Iterator[str]:
    for hour in range(HOURS + 1):
        anchor = "start" if hour == 0 else "end" if hour == HOURS else "middle"
        place = f'x="{WIDTH * hour / HOURS:g}" y="{height - 6:g}"'
        yield f'<text {place} fill="{INK}" text-anchor="{anchor}">{hour} h</text>'


if __name__ == "__main__":
    sys.stdout.write(picture())
