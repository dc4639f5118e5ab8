"""A run in rounds as files in one folder.

The same inputs give the same bytes, except for measured times (:data:`MEASURED`) in ``summary.json``; its
``figures_sha256`` omits these.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import msgspec

from bftrain import config, summaries
from bftrain.files import write_text
from bftrain.result_folder import REPORT_FILE, ResultKind
from bftrain.values import wire
from bftrain_datasets import result_tables
from bftrain_replay.provenance import tasks_sha256
from bftrain_replay.rounds.round_result import RoundResult

FORMAT: Final = "bftrain rounds 1"
CSV: Final = result_tables.CSV
MEASURED: Final = frozenset({"wall_s", "shares_wall_s"})
_TABLES: Final = ("tasks", "rounds", "over_time", "users")
KIND: Final = ResultKind(
    title="run in rounds",
    form="bftrain rounds",
    names=frozenset({"summary.json", "config.toml", REPORT_FILE})
    | {f"{name}.{form}" for name in _TABLES for form in result_tables.FORMS},
)


class RoundSource(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs as the caller named them: a cluster or a log, with its hash, and a task file."""

    cluster: str = ""
    log: str = ""
    log_sha256: str = ""
    kinds: str = ""  # a file with the kinds of the log's nodes
    tasks: str = ""


def write(result: RoundResult, folder: Path, origin: RoundSource | None = None, *, form: str = CSV) -> None:
    """Write all files into ``folder``, tables as csv or parquet. Each appears complete or not at all."""
    origin = origin or RoundSource()
    # first: a metric may raise, in which case no file may be written
    figures = summaries.to_json(summary(result, origin))
    tables = {name: getattr(result, f"{name}_table") for name in _TABLES}
    result_tables.write_all(tables, folder, form, FORMAT)
    words = ["bftrain", "rounds", *([origin.log] if origin.log else ["--cluster", origin.cluster])]
    words += [*(["--kinds", origin.kinds] if origin.kinds else []), "--tasks", origin.tasks]
    if form != CSV:
        words += ["--tables", form]
    command = shlex.join([*words, "--config", "THIS_FILE", "-o", "NEW_FOLDER"])
    again = f"# {command}\n" if origin.tasks and command.isprintable() else ""  # only commands that fit on one line
    write_text(folder / "config.toml", again + config.dump(result.settings))
    write_text(folder / "summary.json", figures)


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
