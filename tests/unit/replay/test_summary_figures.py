"""Figures of a summary: each is defined once, and all places that show it take it from there."""

from __future__ import annotations

import ast
import functools
import io
import re
from pathlib import Path

import pytest
from msgspec import Struct
from rich.console import Console

import bftrain
from bftrain import compare
from bftrain_replay.commands import replay_result
from bftrain_replay.commands.replay_result import in_words
from bftrain_replay.comparing import compared_figures
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import headline_section
from bftrain_replay.reporting.report_data import of_study
from bftrain_replay.results import summary_figures
from bftrain_replay.results.result import MeasuredTimings, ReplaySummary
from bftrain_replay.results.summary_figures import (
    FIGURES,
    BetterDirection,
    FigurePlace,
    FigureTopic,
    FigureUnit,
    SummaryFigure,
)
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.sweeping import sweep_table
from tests.unit.replay.compared import LOG, TASKS

ROOM = Path(summary_figures.__file__).parents[1]
ELSEWHERE = {
    "results/summary_figures.py",
    *("api.py", "results/result.py", "rounds/round_result.py"),  # short forms for notebooks, below the list
    "commands/schedule.py",  # simulates a scheduler, not a replay
}
# Comparisons compute these from tables of tasks
OF_TABLES = {"tasks_finished_by_all", "waits"}


def test_names_and_labels_are_unique() -> None:
    for given in ([figure.name for figure in FIGURES], [figure.label for figure in FIGURES]):
        assert sorted(given) == sorted(set(given))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_each_is_a_field_of_a_summary_or_computed_from_it(figure: SummaryFigure) -> None:
    kinds: tuple[type[Struct], ...] = (ReplaySummary, MeasuredTimings, RoundSummary)
    fields = {name for kind in kinds for name in kind.__struct_fields__}
    assert figure.value is not None or figure.name.partition(".")[0] in fields | OF_TABLES


@functools.cache  # the files are looked through for each figure
def _texts(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_no_other_file_writes_the_label(figure: SummaryFigure) -> None:
    # Words such as 'tasks' are used for other things too
    labels = {label for label in (figure.label, figure.cluster_label, figure.heading) if " " in label}
    files = {str(path.relative_to(ROOM)): path for path in ROOM.rglob("*.py")}
    assert [name for name in files.keys() - ELSEWHERE if labels & _texts(files[name])] == []


def test_a_line_in_the_list_shows_a_figure_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    new = SummaryFigure(
        name="owed_samples",
        label="work owed, samples",
        unit=FigureUnit.SAMPLES,
        better=BetterDirection.LESS,
        topic=FigureTopic.HARVEST,
        places=frozenset(FigurePlace),
    )
    assert new.name not in {figure.name for figure in FIGURES}
    for module in (replay_result, headline_section, compared_figures):
        monkeypatch.setattr(module, "FIGURES", (*FIGURES, new))
    monkeypatch.setitem(sweep_table._FIGURES, new.column, new)  # noqa: SLF001 - what the module makes of the list
    done = [bftrain.replay(LOG, TASKS, solver=solver) for solver in ("exact", "equal-share")]
    owed = [each.summary["owed_samples"] for each in done]

    screen = io.StringIO()
    Console(file=screen, width=100).print(in_words(done[0].study, "log"))
    printed = next(line for line in screen.getvalue().splitlines() if line.strip().startswith(new.label))
    assert re.split(r"\s{2,}", printed.strip())[1] == new.format(owed[0])

    table = headline_section.compared(of_study(done[0].study, InputSource(log="log")))
    assert next(row for row in table.rows if row[0] == new.label)[1] == new.format(owed[0])

    found = compare(*done, labels=["exact", "equal"])
    row = next(row for row in found.figures if row.name == new.name)
    assert (row.label, list(row.amounts)) == (new.label, owed)
    assert found.to_dict()["figures"]["owed_samples"]["better"] == "less"

    assert sweep_table.metric_of("owed_samples").heading == "Work owed, samples"
    assert sweep_table.metric_of("baseline_owed_samples").title == "baseline: work owed, samples"
