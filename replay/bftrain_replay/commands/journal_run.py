"""Runs ``bftrain journal replay`` and prints its results."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from bftrain.cli.output import Output
from bftrain.errors import BadInput, Interrupted
from bftrain.journal import Journal
from bftrain.live.daemon.task_store import all_kept
from bftrain.live.model.schemas import LiveTaskRecord
from bftrain.rerun import Difference
from bftrain.result_folder import ResultFolder
from bftrain.text_formats import counted
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.replay_run import exit_if_interrupted, show
from bftrain_replay.journal_replay import JournalEvents, recorded, rerun
from bftrain_replay.run.provenance import InputSource
from bftrain_replay.study_run import REPLAY, run_of

_SHOWN_DIFFERENCES: Final = 10


def replay_journal(
    path: Path, folder: Path | None, out: Output, *, baseline: str, tables: str, overwrite: bool
) -> None:
    """Replay a journal, print its figures, and write them into ``folder``, if any."""
    written = False
    source = InputSource(log=str(path), baseline=baseline)
    place = nullcontext() if folder is None else ResultFolder(folder, REPLAY.folder, overwrite=overwrite)
    with place as result, Journal.open(path) as journal:
        events = recorded(journal)
        with watched(out, events.log.span_s) as watch:
            reported = reported_samples(journal, events)
            done = rerun(journal, events, baseline=baseline, reported=reported, watch=watch)
        if result is not None and (done.study.complete or not result.holds_finished):
            result.replace(lambda draft: run_of(done.study, source).write_into(draft, tables))
            written = True
    more = {"steps": done.steps, "different": [difference.step for difference in done.differences]}
    show(done.study, source, out, title=str(path), **more)
    if not done.study.complete and folder is None:
        raise Interrupted("interrupted; these figures cover a part")
    exit_if_interrupted(done.study, folder or path, written=written)
    if folder is not None:
        out.say(f"result: {folder}")
    exit_on_differences(done.differences, done.steps, path, out)
    out.say(f"{counted(done.steps, 'step')}, every decision the same")


def reported_samples(journal: Journal, events: JournalEvents) -> dict[str, float]:
    """Return how many samples tasks reported, as far as a live run recorded it."""
    reported: defaultdict[str, deque[LiveTaskRecord]] = defaultdict(deque)
    for kept in all_kept(journal):
        reported[kept.name].append(kept)
    return {
        spec.name: reported[name].popleft().progress.harvested
        for name, spec in zip(events.names, events.tasks, strict=True)
        if reported[name]
    }


def exit_on_differences(found: tuple[Difference, ...], steps: int, path: Path, out: Output) -> None:
    """Exit as a failure if any decision differs, and print the differences."""
    for difference in found[:_SHOWN_DIFFERENCES]:
        out.say(
            f"step {difference.step}: recorded {dict(difference.recorded.sizes)} worth {difference.recorded.value:g}, "
            f"now {dict(difference.decided.sizes)} worth {difference.decided.value:g}"
        )
    if found:
        raise BadInput(f"{len(found):,} of {steps:,} decisions differ", where=str(path))
