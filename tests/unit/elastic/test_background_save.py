"""Large states are written beside the training: it never waits, and what is written is of one commit."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic import State
from bftrain_elastic.errors import Superseded
from bftrain_elastic.worker import background_save, checkpoint_file, state_saving, state_values
from bftrain_elastic.worker.background_save import BackgroundJob, SavingStopped
from bftrain_elastic.worker.state import RegroupSignal
from bftrain_elastic.worker.state_tree import as_bytes

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch

PATIENCE_S = 30.0


class SlowDisk:
    """A disk that writes as long as it may: until ``free`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.writing = threading.Event(), threading.Event()

        def slowly(tensor: Any) -> Any:  # noqa: ANN401 - torch.Tensor
            self.writing.set()
            assert self.free.wait(PATIENCE_S)
            return as_bytes(tensor)

        monkeypatch.setattr(checkpoint_file, "as_bytes", slowly)


def large(folder: Path, *, keeps: bool) -> tuple[State, list[dict[str, Any]]]:
    """Return a state of two tensors of 3 MB whose numbers are those of its step, and what it reports."""
    state = State(model=torch.nn.Linear(800_000, 1, bias=False), twin=torch.zeros(800_000), position=0)
    own, said = state_values.inner(state), []
    own.folder, own.report, own.keeps_alone = folder, said.append, keeps
    return state, said


def step(state: State) -> None:
    with torch.no_grad():
        state.model.weight.fill_(state.step + 1)
        state.twin.fill_(state.step + 1)
    state.commit()


def steps_until_it_writes(state: State, disk: SlowDisk) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not disk.writing.is_set():
        assert time.monotonic() < deadline
        step(state)


def on_disk(folder: Path) -> tuple[int, set[float]]:
    """Return the step of what a folder holds, and all different numbers in its tensors."""
    found = checkpoint_file.load(folder)
    assert found is not None
    return found.step, {float(one) for tensor in found.tree.tensors for one in tensor.unique()}


@pytest.mark.parametrize("keeps", [False, True], ids=["alone", "with a copy at each commit"])
def test_steps_go_on_while_a_commit_is_written_and_do_not_get_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps: bool
) -> None:
    disk = SlowDisk(monkeypatch)
    state, said = large(tmp_path, keeps=keeps)
    for _ in range(3):
        steps_until_it_writes(state, disk)
        own = state_values.inner(state)
        written = own.saving.step
        for _ in range(5):
            own.copy_at = 0.0
            step(state)
        assert own.saving.busy
        if keeps:
            assert {float(one) for one in own.copy.tensors[0].unique()} == {own.step}, "there is a newer copy"
        disk.free.set()
        assert own.saving.wait(PATIENCE_S)
        assert on_disk(tmp_path) == (written, {written})
        assert [one["step"] for one in said if one["type"] == "on_disk"][-1] == written
        disk.free.clear()
        disk.writing.clear()
        own.save_at = 0.0
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_last_save_ends_one_that_is_under_way_and_nothing_older_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    state, _ = large(tmp_path, keeps=False)
    steps_until_it_writes(state, disk)
    step(state)
    threading.Timer(0.1, disk.free.set).start()
    state_saving.save(state)
    assert on_disk(tmp_path) == (state.step, {state.step})
    assert not state_values.inner(state).saving.busy


def test_without_memory_for_a_copy_the_training_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_saving, "fits_in_memory", lambda _bytes: False)
    state, said = large(tmp_path, keeps=False)
    step(state)
    assert [one["step"] for one in said if one["type"] == "on_disk"] == [1]
    assert on_disk(tmp_path) == (1, {1})


def test_what_goes_wrong_in_the_thread_is_said_at_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    state, said = large(tmp_path, keeps=False)
    own = state_values.inner(state)
    steps_until_it_writes(state, disk)
    monkeypatch.setattr("os.fsync", lambda _number: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    disk.free.set()
    own.saving.wait(PATIENCE_S)
    with pytest.warns(RuntimeWarning, match="is not on disk: .*No space left"):
        step(state)
    assert said[-1]["type"] == "not_on_disk"
    monkeypatch.undo()
    own.save_at = 0.0
    step(state)
    own.saving.wait(PATIENCE_S)
    checkpoint_file.save(tmp_path, own.copy, 99, lineage=1)
    own.save_at = 0.0
    step(state)
    own.saving.wait(PATIENCE_S)
    with pytest.raises(Superseded):
        step(state)


def test_a_job_that_is_stopped_ends_where_it_looks() -> None:
    job, looked = BackgroundJob(), []

    def work() -> None:
        while True:
            looked.append(1)
            job.go_on()
            time.sleep(0.001)

    job.start(work)
    job.stop(PATIENCE_S)
    assert looked
    assert not job.busy
    job.raise_error()
    with pytest.raises(SavingStopped):
        job.go_on()


def test_memory_is_what_the_machine_has_free_and_no_limit_forbids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_save, "free_memory", lambda: 1000)
    monkeypatch.setattr(background_save, "left_by_limits", list)
    assert background_save.fits_in_memory(500)
    assert not background_save.fits_in_memory(501)
    monkeypatch.setattr(background_save, "left_by_limits", lambda: [100])
    assert not background_save.fits_in_memory(60)
    monkeypatch.undo()
    assert background_save.free_memory() > 1_000_000
    monkeypatch.setattr(background_save, "_CGROUP", tmp_path)
    (tmp_path / "memory.current").write_text("30\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert list(background_save.left_by_limits()) == []
    (tmp_path / "memory.max").write_text("100\n")
    assert list(background_save.left_by_limits()) == [70]


def test_large_states_are_copied_a_twentieth_of_the_time_and_small_ones_at_each_commit(tmp_path: Path) -> None:
    small, (state, _) = State(position=0), large(tmp_path, keeps=True)
    own = state_values.inner(state)
    own.folder = None  # or it is copied to be written
    state_values.inner(small).keeps_alone = True
    for one in (state, small, state, small):
        one.commit()
    assert (own.copy_step, state.step) == (1, 2)
    assert state_values.inner(small).copy_step == 2
    own.copy_at = time.monotonic()
    state.commit()
    assert own.copy_step == 3


def test_a_change_of_the_group_waits_for_no_copy_where_one_is_recent(tmp_path: Path) -> None:
    state, said = large(tmp_path, keeps=True)
    own = state_values.inner(state)
    own.save_at = time.monotonic() + PATIENCE_S
    step(state)
    assert own.copy_step == 1
    own.copy_at, own.save_at, own.asked = 0.0, 0.0, lambda: 1
    with pytest.raises(RegroupSignal):
        step(state)
    state_values.keep_unless_recent(state)
    assert own.copy_step == 1
    state_saving.save_if_only_here(state)  # room is made first
    assert own.saving.wait(PATIENCE_S)
    state_saving.save_if_only_here(state)
    assert own.saving.wait(PATIENCE_S)
    assert on_disk(tmp_path) == (1, {1}), "what is there already is written at once"
    own.asked = lambda: 0
    step(state)
    assert own.copy_step == 3
    assert own.saving.wait(PATIENCE_S)
    assert on_disk(tmp_path) == (3, {3})
    assert [one["step"] for one in said if one["type"] == "on_disk"] == [1, 3]


@pytest.mark.parametrize("why", ["small", "none", "old"])
def test_a_change_of_the_group_makes_a_copy_where_none_is_recent(why: str, tmp_path: Path) -> None:
    state = State(position=0) if why == "small" else large(tmp_path, keeps=True)[0]
    own = state_values.inner(state)
    if why != "none":
        state_values.keep(state)
    own.step += 1
    own.copied_at -= 1000.0 * (why == "old")
    state_values.keep_unless_recent(state)
    assert own.copy_step == own.step
