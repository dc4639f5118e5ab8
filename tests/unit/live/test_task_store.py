"""What a live run remembers besides events: tasks, drained nodes and facts survive; private files stay private."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import BadConfig, BadInput, Journal, Run, Settings
from bftrain.live.model.callers import ApiToken
from bftrain.live.model.site_config import load
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress
from bftrain.live.schedulers.local import LocalSettings, SlotTimetable
from bftrain.live.tasks.task_store import TaskStore
from tests.unit.core.samples import spec


def record(number: int, name: str) -> LiveTaskRecord:
    return LiveTaskRecord(
        number=number, name=name, uid=1, user="ada", launcher="fake", spec=spec(name), guessed=False,
        run=Run(argv=("run",)), submitted_s=0.0,
    )  # fmt: skip


def test_tasks_nodes_and_facts_survive_and_names_are_free_again(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", Settings()) as journal:
        task_store = TaskStore(journal)
        task_store.add(record(1, "a"))
        with pytest.raises(BadInput, match="a task 'a' is there already"):
            task_store.add(record(2, "a"))
        task_store.change(replace(record(1, "a"), state=LiveTaskState.DONE))
        task_store.add(record(2, "a"))
        task_store.progressed("a", Progress(step=7))
        task_store.drain(["n1", "n2"], "ada", 1.0)
        task_store.undrain(["n2"])
        task_store.record_fact("port", "80")
        assert TaskStore(journal).unfinished == (), "nothing is written before the first record"
        task_store.write()
        again = TaskStore(journal)
        assert [(one.number, one.progress.step) for one in again.unfinished] == [(2, 7)]
        assert [one.state for one in again.over] == [LiveTaskState.DONE]
        assert (again.next_number, again.drained, again.fact("port"), again.fact("x")) == (3, {"n1"}, "80", "")
        found = [again.find(name) for name in ("a", "#1", "#9", "b")]
        assert [one and one.number for one in found] == [2, 1, None, None]
        assert (again.free_name("a", ""), again.free_name("a", "@ann")) == ("a-2", "a@ann")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = ApiToken(tmp_path / "token")
    text = (tmp_path / "token").read_text().strip()
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert token.admits(f"Bearer {text}")
    assert not token.admits(f"Bearer {text}x")
    assert not token.admits(text)
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(BadConfig, match="others than us can read or write it"):
        ApiToken(tmp_path / "token")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[api]\ntcp = "0.0.0.0:80"\n', "0.0.0.0 can be reached by others"),
        ('[api]\nmode = "777"\n', "must be 600, 660 or 666"),
        ("[agents]\nlisen = 1\n", "unknown key 'lisen'"),
        ("[scheduler]\nnodes = 1\n", "has no name"),
    ],
)
def test_a_site_is_checked_as_a_whole(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(BadInput, match=words):
        load(tmp_path / "site.toml")


def test_slots_that_were_idle_for_longest_become_busy_first() -> None:
    table = SlotTimetable(LocalSettings(nodes=3, idle="2@0,1@5,3@8", loop_s=10.0))
    seen = [sorted(table.idle_at(at_s)) for at_s in (0.0, 5.0, 8.0, 10.0, 15.0)]
    assert seen == [["slot1", "slot2"], ["slot2"], ["slot1", "slot2", "slot3"], ["slot1", "slot3"], ["slot1"]]
