"""The run of a result in rounds: what ``bftrain.rounds`` returns.

The same inputs give the same bytes, except for measured times (:data:`MEASURED`) in ``summary.json``; its
``figures_sha256`` omits these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from bftrain import summaries, text_formats
from bftrain.values import wire
from bftrain_datasets.result_tables import ColumnType, TableColumn
from bftrain_replay.drawing.html_page import HtmlPage
from bftrain_replay.rounds.round_result import RoundResult
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.run import tables
from bftrain_replay.run.provenance import tasks_sha256
from bftrain_replay.run.run import MadeContent, Run, RunKind, RunTable

FORMAT: Final = "bftrain rounds 1"
MEASURED: Final = frozenset({"wall_s", "shares_wall_s"})


class RoundSource(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs as the caller named them: a cluster or a log, with its hash, and a task file."""

    cluster: str = ""
    log: str = ""
    log_sha256: str = ""
    kinds: str = ""  # a file with the kinds of the log's nodes
    tasks: str = ""


def run_of(result: RoundResult, origin: RoundSource | None = None) -> Run:
    """Return the run of a result."""
    origin = origin or RoundSource()

    def table(name: str) -> RunTable:
        return RunTable.of(getattr(result, f"{name}_table"))

    words = ["bftrain", "rounds", *([origin.log] if origin.log else ["--cluster", origin.cluster])]
    words += [*(["--kinds", origin.kinds] if origin.kinds else []), "--tasks", origin.tasks]
    content = MadeContent(
        made=result,
        summarise=partial(summary, result, origin),
        given=result.settings,
        tables={name: partial(table, name) for name in COLUMNS},
        command=words if origin.tasks else (),
    )
    return Run(kind=ROUNDS, content=content)


def summary(result: RoundResult, origin: RoundSource | None = None) -> dict[str, Any]:
    """Return the content of ``summary.json``: the figures, then inputs and versions."""
    origin = origin or RoundSource()
    figures: dict[str, Any] = {
        "format": FORMAT,
        **wire.plain(result.summary),
        **wire.plain(result.task_figures),
        "wall_s": result.wall_s,
        "shares_wall_s": result.shares_wall_s,
        "inputs": {
            "cluster": {kind: count for kind, count in result.nodes.items() if not origin.log},
            "log": {"name": origin.log, "sha256": origin.log_sha256},
            "tasks": {"name": origin.tasks, "sha256": tasks_sha256(result.specs)},
        },
        "settings": wire.plain(result.settings),
        "versions": summaries.versions(),
    }
    return summaries.with_sum(figures, MEASURED)


def _page(run: Run, title: str, _early: object) -> HtmlPage:
    from bftrain_replay.rounds import round_page  # noqa: PLC0415 - what draws takes a while to import

    return round_page.page(run, title)


def _shown(summary: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    took, kinds = summary["completion_s"], summary["kinds"].values()
    return f"run in rounds by {summary['policy']}", {
        "ended": summary["ended"].replace("_", " "),
        "round": text_formats.duration(summary["settings"]["round_s"]),
        "nodes": f"{sum(each['nodes'] for each in kinds):,}",
        "simulated": text_formats.duration(summary["simulated_s"]),
        "tasks finished": f"{summary['tasks_finished']:,} of {summary['tasks']:,}",
        "completion, mean": text_formats.duration(took["mean"] if took else None),
    }


_OF_ROUNDS: Final = (TableColumn("moves", ColumnType.WHOLE), TableColumn("measured", ColumnType.TRUTH))
_ONLY_OF_REPLAYS: Final = frozenset({"rescales", "owed_samples", "wasted_starts"})
_TASKS: Final = tuple(
    column for column in tables.TASKS if not column.name.startswith("lost_") and column.name not in _ONLY_OF_REPLAYS
)
_USERS: Final = (
    TableColumn("from_s", ColumnType.NUMBER),
    TableColumn("to_s", ColumnType.NUMBER),
    TableColumn("user", ColumnType.TEXT),
    TableColumn("nodes", ColumnType.NUMBER),
)
COLUMNS: Final[Mapping[str, Sequence[TableColumn]]] = {
    "tasks": (*_TASKS, *_OF_ROUNDS),
    "rounds": (),
    "over_time": tables.OVER_TIME,
    "users": _USERS,
}
ROUNDS: Final = RunKind(
    title="run in rounds", form=FORMAT, columns=COLUMNS, settings=RoundSettings, shown=_shown, page=_page
)
