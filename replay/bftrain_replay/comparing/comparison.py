"""Comparison: several replays side by side; ``bftrain.compare`` in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bftrain import text_formats
from bftrain.errors import BadInput, UsageError
from bftrain.short_repr import ShortRepr
from bftrain_replay.api import ReplayOutcome
from bftrain_replay.comparing import folder_labels as naming
from bftrain_replay.comparing.compared_figures import ComparedFigure, FigureGroup, groups_of
from bftrain_replay.comparing.compared_run import (
    ComparedRun,
    RoundSummaryFigures,
    SummaryFigures,
    side_of_folder,
    side_of_replayed,
)
from bftrain_replay.comparing.settings_differences import (
    SettingDifference,
    comparable,
    hindrances,
    making_of,
    measured_of,
    rules_of,
    same_end,
    same_tasks,
)
from bftrain_replay.results.decider_counts import sentence
from bftrain_replay.results.headline import ran_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pandas import DataFrame

_SHOWN_FIGURES: Final = 4  # in the short form


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(ShortRepr):
    """Replays, their figures by group, how they were made, and what must be kept in mind when reading them.

    ``forced`` says why they should not be compared, if that was asked for all the same.
    """

    sides: tuple[ComparedRun, ...]
    groups: tuple[FigureGroup, ...]
    making: SettingDifference
    notes: tuple[str, ...] = ()
    forced: str = ""

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures that stand for it in short."""
        first = {figure.label: " | ".join(figure.said) for figure in self.figures[:_SHOWN_FIGURES]}
        return f"comparison of {' | '.join(self.labels)}", {**first, "figures": f"{len(self.figures):,}"}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the replays."""
        return tuple(side.label for side in self.sides)

    @property
    def figures(self) -> tuple[ComparedFigure, ...]:
        """All figures, in order."""
        return tuple(figure for group in self.groups for figure in group.figures)

    def to_dict(self) -> dict[str, Any]:
        """Give everything for programs (docs/programs.md)."""
        return {
            "replays": [
                {
                    "label": side.label,
                    "folder": side.place or None,
                    "complete": side.summary.complete,
                    "warnings": list(side.summary.warnings),
                    "figures_sha256": side.summary.figures_sha256,
                }
                for side in self.sides
            ],
            "figures": {
                figure.name: {
                    "label": figure.label,
                    "unit": str(figure.unit),
                    "better": str(figure.better) if figure.better else None,
                    "values": list(figure.amounts),
                    "best": [self.labels[place] for place in figure.best],
                }
                for figure in self.figures
            },
            "differs": {name: list(values) for name, values in self.making.differs.items()},
            "same": dict(self.making.same),
            "notes": list(self.notes),
            "forced": self.forced or None,
        }

    def frame(self) -> DataFrame:
        """Give the figures as a pandas DataFrame: one row each, one column a replay."""
        import pandas as pd  # noqa: PLC0415 - heavy, and only who asks for a frame needs it

        return pd.DataFrame(
            [figure.amounts for figure in self.figures],
            index=pd.Index([figure.name for figure in self.figures], name="figure"),
            columns=list(self.labels),
            dtype="float64",
        )

    def write(self, path: str | Path) -> None:
        """Write it as one HTML page that needs nothing else."""
        from bftrain_replay.comparing.comparison_page import write  # noqa: PLC0415 - to draw takes what to compare does not

        write(self, Path(path))


def compare(
    *replays: str | Path | ReplayOutcome | Sequence[str | Path | ReplayOutcome],
    labels: Sequence[str] = (),
    force: bool = False,
) -> Comparison:
    """Put the figures of several replays side by side: folders that ``bftrain replay`` wrote, or what it gave.

    They are given one by one, or as one list. Replays of different logs, or of different parts of one, are refused
    unless ``force``.

    >>> from bftrain import compare, replay
    >>> fast = replay("log.npz", "tasks.toml")
    >>> fair = replay("log.npz", "tasks.toml", objective="max-min")
    >>> list(compare(fast, fair, labels=["fast", "fair"]).frame().columns)
    ['fast', 'fair']
    """
    given = _one_by_one(replays)
    if len(given) < 2:  # noqa: PLR2004 - fewer are no comparison
        raise UsageError("one replay compares with nothing", fix="name the folders of two or more")
    sides = _sides(given, labels)
    hindered = "; ".join(hindrances(sides))
    if hindered and not force:
        raise BadInput(
            f"these replays do not compare: {hindered}",
            where=", ".join(side.label for side in sides),
            fix="--force compares them all the same",
        )
    return Comparison(
        sides=sides,
        groups=groups_of(sides, comparable=not hindered and comparable(sides)),
        making=making_of(sides),
        notes=tuple(_notes(sides)),
        forced=hindered,
    )


def _one_by_one(replays: Sequence[object]) -> tuple[str | Path | ReplayOutcome, ...]:
    """Return the replays out of lists; refuse what is neither a replay nor the name of a folder."""
    found: list[str | Path | ReplayOutcome] = []
    for each in replays:
        if isinstance(each, str | Path | ReplayOutcome):
            found.append(each)
        elif isinstance(each, Sequence):
            found += _one_by_one(each)
        else:
            fix = "give folders that bftrain replay wrote, or what bftrain.replay returned"
            raise UsageError(f"a {type(each).__name__} is no replay", where="compare", fix=fix)
    return tuple(found)


def _sides(replays: Sequence[str | Path | ReplayOutcome], labels: Sequence[str]) -> tuple[ComparedRun, ...]:
    folders = [Path(each) for each in replays if not isinstance(each, ReplayOutcome)]
    if labels or len(folders) == len(replays):
        named = naming.labels_of([Path(str(place)) for place in range(len(replays))] if labels else folders, labels)
    else:
        found = iter(naming.labels_of(folders) if folders else ())
        named = naming.numbered(
            [each.result.settings.solver if isinstance(each, ReplayOutcome) else next(found) for each in replays]
        )
    return tuple(
        side_of_replayed(label, each) if isinstance(each, ReplayOutcome) else side_of_folder(label, Path(each))
        for label, each in zip(named, replays, strict=True)
    )


def _notes(sides: Sequence[ComparedRun]) -> Iterator[str]:
    for side in sides:
        if not side.summary.complete:
            covered = text_formats.duration(side.summary.simulated_s)
            why = side.summary.ended if isinstance(side.summary, RoundSummaryFigures) else "interrupted"
            ended = "was interrupted" if why == "interrupted" else f"ended early ({why})"
            yield f"{side.label} {ended}: its figures are not final, and cover {covered} of the log"
        if isinstance(side.summary, SummaryFigures):
            summary = side.summary
            decided = sentence(summary.solver, summary.decisions, summary.fallback_causes, summary.decided_by)
            if decided:
                yield f"{side.label}: {decided}"
    yield from _doubts(sides)
    yield from _ran_out(sides)
    if not same_tasks(sides):
        yield "they were given different tasks: their figures are not of the same work, and none is marked as best"
    if len(measured_of(sides)) > 1:
        said = ", ".join(each or "all" for each in measured_of(sides))
        yield f"their means are over different tasks ({said}), and none is marked as best"
    if not same_end(sides):
        said = ", ".join(_until(side) for side in sides)
        yield f"they had different times until they were ended ({said}), and none is marked as best"
    if _all_finished(sides):
        yield "every task finished in all of them, so harvests cannot differ: compare when tasks finished"
    if len(rules_of(sides)) > 1:
        yield f"they follow different rules ({', '.join(rules_of(sides))}): what counts as done and lost differs"


def _doubts(sides: Sequence[ComparedRun]) -> Iterator[str]:
    """Name simulated and derived logs, and how much of their idle node-time is doubtful; once if it holds for all."""
    said: dict[str, list[str]] = {}
    for side in sides:
        if isinstance(side.summary, SummaryFigures) and side.summary.doubtful is not None:
            for text in side.summary.doubtful.caveats:
                said.setdefault(text, []).append(side.label)
    for text, labels in said.items():
        yield text if len(labels) == len(sides) else f"{', '.join(labels)}: {text}"


def _ran_out(sides: Sequence[ComparedRun]) -> Iterator[str]:
    """Name the replays whose tasks ran out, unless every task finished in all of them."""
    short = [side.label for side in sides if isinstance(side.summary, SummaryFigures) and ran_out(side.summary)]
    if short and not _all_finished(sides):
        yield f"the tasks ran out in {', '.join(short)}: U compares nothing there; compare harvests"


def _all_finished(sides: Sequence[ComparedRun]) -> bool:
    if any(side.in_rounds for side in sides):
        return False
    return all(0 < side.summary.tasks == side.summary.tasks_finished for side in sides)


def _until(side: ComparedRun) -> str:
    """Say until when it went at most."""
    until_s = side.summary.until_s
    return f"{side.label}: " + ("no bound" if until_s is None else text_formats.duration(until_s))
