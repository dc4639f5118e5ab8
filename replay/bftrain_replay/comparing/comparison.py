"""Comparison: several replays side by side; ``bftrain.compare`` in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bftrain import text_formats
from bftrain.errors import BadInput, UsageError
from bftrain.short_repr import ShortRepr
from bftrain.values import checks
from bftrain_replay.comparing import compared_run
from bftrain_replay.comparing.compared_figures import COMMON_TASKS, ComparedReplays, FigureGroup, groups_of
from bftrain_replay.comparing.compared_run import ComparedRun
from bftrain_replay.run.decider_counts import sentence
from bftrain_replay.run.headline import NO_BOUND, NOT_RANKED, ran_out, u_above_100
from bftrain_replay.run.run import Run
from bftrain_replay.saved_run import load_run

if TYPE_CHECKING:
    from pandas import DataFrame


_SHOWN_FIGURES: Final = 4  # number of figures in the short form


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ShortRepr, ComparedReplays):
    """Replays side by side, as text, as a DataFrame or as a page."""

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        first = {figure.label: " | ".join(figure.texts) for figure in self.figures[:_SHOWN_FIGURES]}
        return f"comparison of {' | '.join(self.labels)}", {**first, "figures": f"{len(self.figures):,}"}

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``bftrain compare --json`` (docs/reference/programs.md)."""
        return {
            "replays": [
                {
                    "label": side.label,
                    "folder": side.place or None,
                    "complete": side.summary["complete"],
                    "warnings": list(side.summary.get("warnings", ())),
                    "figures_sha256": side.summary["figures_sha256"],
                }
                for side in self.sides
            ],
            "figures": {
                figure.name: {
                    "label": figure.label,
                    "unit": str(figure.definition.unit),
                    "better": str(figure.definition.better) if figure.definition.better else None,
                    "values": list(figure.amounts),
                    "best": [self.labels[place] for place in figure.best],
                }
                for figure in self.figures
            },
            "differs": {name: list(values) for name, values in self.settings.differs.items()},
            "same": dict(self.settings.same),
            "notes": list(self.notes),
            "forced": self.forced or None,
        }

    def frame(self) -> DataFrame:
        """Return the figures as a pandas DataFrame: one row per figure, one column per replay."""
        import pandas as pd  # noqa: PLC0415 - heavy, and needed only for DataFrames

        return pd.DataFrame(
            [figure.amounts for figure in self.figures],
            index=pd.Index([figure.name for figure in self.figures], name="figure"),
            columns=list(self.labels),
            dtype="float64",
        )

    def write(self, path: str | Path, *, static: bool = False) -> None:
        """Write it as one self-contained HTML page; a ``static`` page needs no JavaScript."""
        from bftrain_replay.comparing.comparison_page import write  # noqa: PLC0415 - needed only for pages

        write(self, Path(path), static=static)


def compare(
    *replays: str | Path | Run | Sequence[str | Path | Run], labels: Sequence[str] = (), force: bool = False
) -> Comparison:
    """Compare the figures of several replays or runs in rounds: their folders, or the runs themselves.

    Pass ``replays`` one by one, or as one list; ``labels`` rename them. Raises :class:`bftrain.errors.UsageError` for
    fewer than two, and :class:`bftrain.errors.BadInput` for a folder without a result, or for replays of different logs
    or of different parts of one unless ``force``.

    >>> from bftrain import compare, replay
    >>> fast = replay("log.npz", "tasks.toml")
    >>> fair = replay("log.npz", "tasks.toml", objective="max-min")
    >>> list(compare(fast, fair, labels=["fast", "fair"]).frame().columns)
    ['fast', 'fair']
    """
    given = _one_by_one(replays)
    if len(given) < 2:  # noqa: PLR2004 - fewer are no comparison
        raise UsageError("fewer than two replays", fix="name the folders of two or more")
    sides = _sides(given, labels)
    hindrance = "; ".join(compared_run.hindrances(sides))
    if hindrance and not force:
        raise BadInput(
            f"these replays do not compare: {hindrance}",
            where=", ".join(side.label for side in sides),
            fix="--force compares them anyway",
        )
    groups = groups_of(sides, comparable=not hindrance and compared_run.comparable(sides))
    return Comparison(
        sides=sides,
        groups=groups,
        settings=compared_run.compared_settings(sides),
        notes=(*_notes(sides), *_notes_on_u(sides), *_few_common_tasks(sides, groups)),
        forced=hindrance,
    )


def _one_by_one(replays: Sequence[object]) -> tuple[str | Path | Run, ...]:
    """Flatten lists of replays; reject values that are neither a replay nor a folder name."""
    flat: list[str | Path | Run] = []
    for each in replays:
        if isinstance(each, str | Path | Run):
            flat.append(each)
        elif isinstance(each, Sequence):
            flat += _one_by_one(each)
        else:
            fix = "give folders that bftrain replay wrote, or what bftrain.replay returned"
            raise UsageError(f"a {type(each).__name__} is not a replay", where="compare", fix=fix)
    return tuple(flat)


def _sides(replays: Sequence[str | Path | Run], labels: Sequence[str]) -> tuple[ComparedRun, ...]:
    """Return the runs with ``labels``, or labels from their folders; runs in memory are named by solver or policy."""
    folders = [Path(each) for each in replays if not isinstance(each, Run)]
    if labels or len(folders) == len(replays):
        named = _given(labels, len(replays)) if labels else _labels_of(folders)
    else:
        of_folders = iter(_labels_of(folders) if folders else ())
        named = _numbered([_decider(each) if isinstance(each, Run) else next(of_folders) for each in replays])
    runs = (each if isinstance(each, Run) else load_run(each) for each in replays)
    return tuple(map(ComparedRun, named, runs))


def _decider(run: Run) -> str:
    """Return the solver of a replay, or the policy of rounds."""
    return str(run.summary.get("solver") or run.summary.get("policy"))


def _notes(sides: Sequence[ComparedRun]) -> Iterator[str]:
    doubts: dict[str, list[str]] = {}
    for side in sides:
        summary = side.summary
        if not summary["complete"]:
            covered = text_formats.duration(summary["simulated_s"])
            why = summary["ended"] if side.in_rounds else "interrupted"
            ended = "was interrupted" if why == "interrupted" else f"ended early ({why})"
            yield f"{side.label} {ended}: its figures are not final, and cover only {covered}"
        if not side.in_rounds:
            counts = (summary.get(name, {}) for name in ("fallback_causes", "decided_by"))
            decided = sentence(summary["solver"], summary["decisions"], *counts)
            if decided:
                yield f"{side.label}: {decided}"
            for text in (summary.get("doubtful") or {}).get("caveats", ()):
                doubts.setdefault(text, []).append(side.label)
    # A caveat on the log is listed once if all replays have it
    for text, labels in doubts.items():
        yield text if len(labels) == len(sides) else f"{', '.join(labels)}: {text}"
    replays = [(side.label, side.summary) for side in sides if not side.in_rounds]
    short = [
        label for label, each in replays if ran_out(each) or (each["tasks"] and each["tasks"] == each["tasks_finished"])
    ]
    equal = len(short) == len(sides) and len({text_formats.large(each["harvested"]) for _, each in replays}) == 1
    if equal:
        yield "the tasks ran out in every replay, and the harvests are equal: compare completion times instead"
    elif short:
        yield f"the tasks ran out in {', '.join(short)}: U is not comparable there; compare harvests"
    yield from _differences(sides)
    rules = compared_run.rules_of(sides)
    if len(rules) > 1:
        yield f"they follow different rules ({', '.join(rules)}): what counts as done and lost differs"


def _notes_on_u(sides: Sequence[ComparedRun]) -> Iterator[str]:
    replays = [(side.label, side.summary) for side in sides if not side.in_rounds]
    if len({summary["objective"] for _, summary in replays}) > 1:
        yield NOT_RANKED
    above = [label for label, summary in replays if u_above_100(summary)]
    if above:
        yield f"{NO_BOUND} ({', '.join(above)})"


def _few_common_tasks(sides: Sequence[ComparedRun], groups: Sequence[FigureGroup]) -> Iterator[str]:
    """Warn if task times cover less than half of the tasks."""
    common = next((row.amounts[0] for group in groups for row in group.figures if row.name == COMMON_TASKS), None)
    tasks = len(sides[0].tasks)
    if common is not None and 2 * common < tasks and any(side.summary["tasks_finished"] for side in sides):
        text = f"only {text_formats.count(common)} of {text_formats.counted(tasks, 'task')} finished in all runs"
        yield f"{text}: completion times, slowdown and rho are of these alone"


def _differences(sides: Sequence[ComparedRun]) -> Iterator[str]:
    if not compared_run.same_tasks(sides):
        yield "they were given different tasks: their figures are not of the same work, and none is marked as best"
    measured = compared_run.measured_of(sides)
    if len(measured) > 1:
        texts = ", ".join(each or "all" for each in measured)
        yield f"their means are over different tasks ({texts}), and none is marked as best"
    if not compared_run.same_end(sides):
        ends = {side.label: side.cluster["until_s"] for side in sides}
        texts = ", ".join(f"{of}: {'no bound' if at is None else text_formats.duration(at)}" for of, at in ends.items())
        yield f"they were stopped at different times ({texts}), and none is marked as best"


_LONG: Final = 20  # letters; from longer labels the words common to all are dropped
_LARGEST_DEPTH: Final = 64  # folders above a folder


def _given(labels: Sequence[str], count: int) -> tuple[str, ...]:
    """Check the labels of that many replays."""
    names = tuple(label.strip() for label in labels)
    if len(names) != count:
        what = f"{text_formats.counted(len(names), 'label')} for {text_formats.counted(count, 'replay')}"
        raise UsageError(what, where="--label", fix="give one for each")
    twice = checks.repeated(names)
    if twice is not None:
        raise UsageError(f"two replays are called '{twice}'", where="--label", fix="give every one its own")
    if not all(name.isprintable() and name for name in names):
        raise UsageError("a label must not be empty, and must have only printable characters", where="--label")
    return names


def _labels_of(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the shortest distinct parts of the folders' paths."""
    paths = [folder.resolve() for folder in folders]
    twice = checks.repeated([str(path) for path in paths])
    if twice is not None:
        raise UsageError(f"{twice} is given twice", fix="name folders of different replays")
    names = _without_common(["/".join(parts) for parts in _apart([path.parts for path in paths])])
    return tuple(name or str(folder) for name, folder in zip(names, folders, strict=True))


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Append a number to repeated names."""
    taken: list[str] = []
    for name in names:
        further = (f"{name} {number}" for number in count(2))
        taken.append(next(each for each in chain([name], further) if each not in taken))
    return tuple(taken)


def _apart(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Drop the common tail of all paths, then keep the shortest distinct tails."""
    if len(paths) == 1:
        return [paths[0][-1:]]
    while len(paths[0]) > 1 and len({path[-1] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[:-1] for path in paths]
    for depth in range(1, _LARGEST_DEPTH):
        ends = [path[-depth:] for path in paths]
        if len(set(ends)) == len(ends):
            return ends
    return list(paths)


def _without_common(names: list[str]) -> list[str]:
    """Drop the words common to the start or the end of all names if some are long, such as the folders of a sweep."""
    if len(names) == 1 or max(map(len, names)) <= _LONG:
        return names
    separators = ",/ " if all("=" in name for name in names) else "-_.,/ "  # "setting=value" is one word
    words = [re.split(rf"(?<=[{separators}])", name) for name in names]  # each word with the separator behind it
    for _ in range(2):  # first at the start; then, with the words reversed, at the end
        common = len(list(takewhile(lambda at: len(set(at)) == 1, zip(*words, strict=False))))
        words = [each[min(common, len(each) - 1) :][::-1] for each in words]
    shorter = ["".join(each).strip("-_.,/ ") for each in words]
    return shorter if len(set(shorter)) == len(names) and all(shorter) else names
