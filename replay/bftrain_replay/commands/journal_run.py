"""Runs ``bftrain journal replay`` and prints its results."""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path
from typing import Final

from bftrain.cli.output import Output
from bftrain.errors import BadInput
from bftrain.journal import Journal
from bftrain.live.daemon.task_store import all_kept
from bftrain.live.model.schemas import LiveTaskRecord
from bftrain.rerun import Difference
from bftrain.text_formats import counted
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.replay_run import show
from bftrain_replay.commands.run_folder import RunFolder
from bftrain_replay.journal_replay import JournalEvents, recorded, rerun
from bftrain_replay.run.provenance import InputSource
from bftrain_replay.study_run import REPLAY, run_of

_SHOWN_DIFFERENCES: Final = 10


def replay_journal(
    path: Path, folder: Path | None, out: Output, *, baseline: str, tables: str, overwrite: bool
) -> None:
    """Replay a journal, print its figures, and write them into ``folder``, if any."""
    source = InputSource(log=str(path), baseline=baseline)
    with RunFolder.of(REPLAY, folder, tables, overwrite=overwrite) as place, Journal.open(path) as journal:
        events = recorded(journal)
        with watched(out, events.log.span_s) as watch:
            reported = reported_samples(journal, events)
            done = rerun(journal, events, baseline=baseline, reported=reported, watch=watch)
        place.write(run_of(done.study, source), complete=done.study.complete)
    more = {"steps": done.steps, "different": [difference.step for difference in done.differences]}
    show(done.study, source, out, title=str(path), **more)
    place.end(out, complete=done.study.complete)
    exit_on_differences(done.differences, done.steps, path, out)
    out.say(f"{counted(done.steps, 'step')}, every decision the same")


def reported_samples(journal: Journal, events: JournalEvents) -> dict[str, float]:
    """Return the samples that tasks reported, by their name in the replay; only live runs record them."""
    reported: defaultdict[str, deque[LiveTaskRecord]] = defaultdict(deque)
    for kept in all_kept(journal):
        reported[kept.name].append(kept)
    return {
        spec.name: reported[name].popleft().progress.harvested
        for name, spec in zip(events.names, events.tasks, strict=True)
        if reported[name]
    }


def exit_on_differences(found: tuple[Difference, ...], steps: int, path: Path, out: Output) -> None:
    """Print the first differences; raise if there are any."""
    for difference in found[:_SHOWN_DIFFERENCES]:
        out.say(
            f"step {difference.step}: recorded {dict(difference.recorded.sizes)} worth {difference.recorded.value:g}, "
            f"now {dict(difference.decided.sizes)} worth {difference.decided.value:g}"
        )
    if found:
        raise BadInput(f"{len(found):,} of {steps:,} decisions differ", where=str(path))
