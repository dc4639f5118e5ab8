"""``bftrain replay --journal``: a live run, decided again and shown like any replay."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from bftrain.cli.output import Output
from bftrain.errors import BadInput, Interrupted
from bftrain_replay.commands.replay_progress import watched
from bftrain_replay.commands.replay_run import leave_if_interrupted, show

if TYPE_CHECKING:
    from bftrain.journal import Journal
    from bftrain.live.model.task_record import LiveTaskRecord
    from bftrain.rerun import Difference
    from bftrain_replay.commands.replay_request import ReplayRequest
    from bftrain_replay.journal_replay import JournalReplay
    from bftrain_replay.resume.journal_events import JournalEvents

_SHOWN_DIFFERENCES = 10


def replay_journal(path: Path, asked: ReplayRequest, out: Output) -> None:
    """Replay a journal, show its figures, and write them into the folder that was asked for, if any."""
    from bftrain.journal import Journal
    from bftrain.result_folder import ResultFolder
    from bftrain_replay import replay_folder
    from bftrain_replay.provenance import InputSource
    from bftrain_replay.resume.journal_events import recorded

    folder, written = asked.folder, False
    replay_folder.check_tables(asked.tables)
    source = InputSource(log=str(path), baseline=asked.baseline)
    place = nullcontext() if folder is None else ResultFolder(folder, replay_folder.KIND, overwrite=asked.overwrite)
    with place as result, Journal.open(path) as journal:
        done = _again(journal, recorded(journal), asked.baseline, out)
        if result is not None and (done.study.complete or not result.holds_finished):
            result.replace(lambda draft: replay_folder.write(done.study, draft, source, tables=asked.tables))
            written = True
    more = {"steps": done.steps, "different": [difference.step for difference in done.differences]}
    show(done.study, source, out, title=str(path), **more)
    if not done.study.complete and folder is None:
        raise Interrupted("interrupted; what is shown covers a part")
    leave_if_interrupted(done.study, folder or path, written=written)
    if folder is not None:
        out.say(f"result: {folder}")
    say_differences(done.differences, done.steps, path, out)
    out.say(f"{done.steps:,} steps, every decision the same")


def _again(journal: Journal, events: JournalEvents, baseline: str, out: Output) -> JournalReplay:
    from bftrain_replay.journal_replay import rerun

    with watched(out, events.log.span_s) as watch:
        return rerun(journal, events, baseline=baseline, reported=reported_samples(journal, events), watch=watch)


def reported_samples(journal: Journal, events: JournalEvents) -> dict[str, float]:
    """Give how many samples tasks reported, as far as a live run wrote it down."""
    from bftrain.live.tasks.task_store import all_kept

    reported: defaultdict[str, deque[LiveTaskRecord]] = defaultdict(deque)
    for kept in all_kept(journal):
        reported[kept.name].append(kept)
    return {
        spec.name: reported[name].popleft().progress.harvested
        for name, spec in zip(events.names, events.tasks, strict=True)
        if reported[name]
    }


def say_differences(found: tuple[Difference, ...], steps: int, path: Path, out: Output) -> None:
    """End as a failure if any decision differs, and say how."""
    for difference in found[:_SHOWN_DIFFERENCES]:
        out.say(
            f"step {difference.step}: recorded {dict(difference.recorded.sizes)} worth {difference.recorded.value:g}, "
            f"now {dict(difference.decided.sizes)} worth {difference.decided.value:g}"
        )
    if found:
        raise BadInput(f"{len(found):,} of {steps:,} decisions differ", where=str(path))
