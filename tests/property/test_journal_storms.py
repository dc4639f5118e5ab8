"""The record of any storm leads to the same decisions again, and a restart anywhere changes nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import Harvester, Journal, Rerun, Settings, build_harvester
from bftrain.rerun import restore
from tests.property.storms import Moment, storms
from tests.unit.core import parts

SETTINGS = Settings(max_tasks=4, max_failures=2)

answers = st.lists(
    st.sampled_from([parts.best, parts.split, parts.late_with_sizes, *parts.UNUSABLE]), min_size=1, max_size=4
)


def record(journal: Journal, core: Harvester, storm: list[Moment]) -> None:
    """Record as a live run does: events first, and the decision when there is one."""
    for moment in storm:
        core.absorb(*moment.events)
        journal.append_events(moment.events)
        if moment.decided:
            journal.append_decision(core.decide(moment.events[-1].time_s))


@settings(max_examples=12)
@given(storm=storms(), cut=st.integers(0, 14))
def test_a_restart_anywhere_changes_nothing(storm: list[Moment], cut: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "j")
        with closing(Journal.create(path, SETTINGS)) as journal:
            record(journal, build_harvester(SETTINGS), storm[:cut])
        with closing(Journal.open(path)) as journal:
            record(journal, restore(journal), storm[cut:])
            interrupted = list(journal.steps())
            assert list(Rerun(journal).differences()) == []
        with closing(Journal.create(Path(folder, "k"), SETTINGS)) as journal:
            record(journal, build_harvester(SETTINGS), storm)
            straight = list(journal.steps())
    for one, other in zip(straight, interrupted, strict=True):
        assert one.events == other.events
        assert (one.decision is None) == (other.decision is None)
        assert one.decision is None or (other.decision is not None and one.decision.same_as(other.decision))


@settings(max_examples=20)
@given(storm=storms(), script=answers, fallback=st.sampled_from(["", "greedy", "equal-share"]))
def test_a_run_whose_solver_was_late_or_failed_repeats(
    storm: list[Moment], script: list[parts.Answer], fallback: str
) -> None:
    """The script stands in for the solver only while recording; what it cut short is repeated without it.

    What it solved to the end is what it would solve again, so the rerun is handed the same honest answer.
    """
    chosen = Settings(solver="exact", fallback=fallback)
    cut_short = [answer for answer in script if answer not in {parts.best, parts.split}]
    with TemporaryDirectory() as folder, closing(Journal.create(Path(folder, "j"), chosen)) as journal:
        struck = parts.Scripted(*(cut_short or [parts.late_with_sizes]), name="exact")
        record(journal, build_harvester(chosen, solver=struck), storm)
        assert list(Rerun(journal).differences()) == []
