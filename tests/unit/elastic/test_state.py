"""States: taken apart, copied, written, read, and put together again."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrain_elastic import State, run
from bftrain_elastic.errors import BadCommit, BadScript, Superseded
from bftrain_elastic.worker import checkpoint_file, progress_report, run_loop, state_saving, state_values
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.state_tree import fold

pytestmark = pytest.mark.torch


def tensors() -> dict[str, Any]:
    import torch

    return {
        "float": torch.arange(6.0).reshape(2, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "long": torch.tensor(7),
        "bool": torch.tensor([True, False]),
        "empty": torch.empty(0, 4),
        "turned": torch.arange(6.0).reshape(2, 3).t(),
    }


def test_a_state_comes_back_from_its_folder_as_it_was(tmp_path: Path) -> None:
    import torch

    value = {"a": [1, 2.5, None, True, "x"], "t": (1, (2,)), 3: {"deep": tensors()}}
    checkpoint_file.save(tmp_path, fold(value), 12)
    assert checkpoint_file.step_of(tmp_path) == 12
    found = checkpoint_file.load(tmp_path)
    assert found is not None
    tree, step, _ = found
    back = tree.unfolded()
    assert step == 12
    assert (back["a"], back["t"]) == (value["a"], value["t"])
    for name, tensor in tensors().items():
        other = back[3]["deep"][name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(other, tensor)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


def test_a_folder_without_a_state_has_none(tmp_path: Path) -> None:
    assert checkpoint_file.load(tmp_path) is None
    assert checkpoint_file.step_of(tmp_path) is None


@pytest.mark.parametrize("keep", [0, 5, 12, 40, -1])
def test_a_damaged_state_is_refused_and_says_where(tmp_path: Path, keep: int) -> None:
    checkpoint_file.save(tmp_path, fold(tensors()), 1)
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[:keep])
    with pytest.raises(BadCommit, match="state: is damaged"):
        checkpoint_file.load(tmp_path)


def test_what_cannot_be_kept_is_named() -> None:
    with pytest.raises(BadScript, match=r"state\['a'\]\[1\]: is of type object"):
        fold({"a": [1, object()]})


def test_which_parameters_are_trained_comes_back_with_the_state(tmp_path: Path) -> None:
    import torch

    state, fresh = (State(model=torch.nn.Linear(2, 1), position=0) for _ in range(2))
    state.model.weight.requires_grad = fresh.model.bias.requires_grad = False
    checkpoint_file.save(tmp_path, state_values.capture(state), 1)
    found = checkpoint_file.load(tmp_path)
    assert found is not None
    state_values.restore(fresh, found.tree)
    assert {name: one.requires_grad for name, one in fresh.model.named_parameters()} == {"weight": False, "bias": True}
    assert vars(fresh).keys() == vars(state).keys()


def test_an_optimizer_keeps_the_precision_of_its_values() -> None:
    import torch

    class Master(torch.optim.SGD):  # keeps a copy of 32 bits of each parameter
        def step(self) -> None:  # type: ignore[override]
            for one in self.param_groups[0]["params"]:
                self.state[one]["master"] = torch.full(one.shape, 1 / 3)

    def made() -> State:
        return State(optimizer=Master(torch.nn.Linear(2, 1, dtype=torch.bfloat16).parameters()))

    state, fresh = made(), made()
    state.optimizer.step()
    state_values.restore(fresh, state_values.capture(state))
    assert all(one["master"].eq(torch.tensor(1 / 3)).all() for one in fresh.optimizer.state.values())
    assert len(fresh.optimizer.state) == 2


def test_an_object_that_cannot_take_its_values_is_named() -> None:
    import torch

    def grown(count: int) -> State:
        model = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(2))
        return State(optimizer=torch.optim.Adam([{"params": one.parameters()} for one in model[:count]]))

    with pytest.raises(BadScript, match=r"state\['optimizer'\]: .*different number of parameter groups.*frozen"):
        state_values.restore(grown(1), state_values.capture(grown(2)))


def test_a_name_that_the_state_needs_itself_is_refused() -> None:
    with pytest.raises(BadScript, match="'rank' is taken"):
        State(rank=3)
    with pytest.raises(AttributeError, match="holds no 'positon'"):
        _ = State(position=0).positon


def test_alone_a_script_trains_and_commits_to_the_folder_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("BFTRAIN_FOLDER", str(tmp_path))
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def train(state: State) -> None:
        while state.position < limit:
            loss = (state.model(torch.ones(1, 2)) ** 2).sum()
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.position += 1
            state.commit()

    def fresh() -> State:
        torch.manual_seed(3)
        model = torch.nn.Linear(2, 1)
        return State(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.1), position=0)

    limit = 10
    run(fresh(), train)
    limit = 20
    again = fresh()
    with pytest.raises(BadScript, match="only once under a launcher"):
        run(again, train)
    run_loop.trained.clear()  # in another process
    run(again, train)
    assert (again.position, again.step) == (20, 20)
    monkeypatch.delenv("BFTRAIN_FOLDER")
    straight = fresh()
    run(straight, train)
    for here, there in zip(again.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(here, there)


def test_an_abandoned_worker_cannot_undo_what_others_did_since(tmp_path: Path) -> None:
    """A node is lost to its manager but goes on training; meanwhile the task is started elsewhere."""

    def at(position: int) -> State:
        state = State(position=position)
        state_values.inner(state).folder = tmp_path
        return state

    lost = at(7)
    state_saving.save(lost)
    other = at(0)
    assert state_saving.load(other)
    assert other.position == 7
    state_saving.save(lost)  # as long as the others have done nothing, nothing is undone
    other.position = 8
    state_saving.save(other)
    lost.position = 9
    with pytest.raises(Superseded, match="went on from here"):
        state_saving.save(lost)
    assert checkpoint_file.load(tmp_path).tree.unfolded()["position"] == 8
    again = at(0)
    state_values.restore(again, state_values.capture(other))  # as a worker gets it that joins later
    state_saving.save(again)


def test_what_is_reported_on_disk_has_its_place_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was renamed is found after a loss of power only if its folder was written too."""
    synced: list[str] = []
    real = os.fsync

    def fsync(number: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    checkpoint_file.save(tmp_path, fold({"a": 1}), 3)
    assert [Path(name).name.split(".")[0] for name in synced] == ["state", tmp_path.name]


def test_a_worker_that_is_superseded_while_it_writes_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def others_go_on(number: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        checkpoint_file.save(tmp_path, fold({"a": 2}), 4, lineage=1)
        real(number)

    monkeypatch.setattr(os, "fsync", others_go_on)
    with pytest.raises(Superseded):
        checkpoint_file.save(tmp_path, fold({"a": 1}), 3)
    assert checkpoint_file.step_of(tmp_path) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_numbers_of_a_state_are_found_by_their_names(tmp_path: Path) -> None:
    assert checkpoint_file.numbers_of(tmp_path) == {}
    checkpoint_file.save(tmp_path, state_values.capture(State(evals=3, best=0.5, name="x", on=True, rows=[1])), 3)
    assert checkpoint_file.numbers_of(tmp_path) == {"bftrain.step": 0, "bftrain.lineage": 0, "evals": 3, "best": 0.5}


def test_values_are_compared_but_not_models_nor_what_is_large() -> None:
    import torch

    state = State(model=torch.nn.Linear(2, 1), best={"loss": 1.0}, small=torch.zeros(3), large=torch.zeros(20_000))

    def digest() -> int:
        return state_values.compared_values(state).digest()

    before = digest()
    assert 0 <= before < 2**63
    with torch.no_grad():
        state.model.weight.add_(1)
        state.large.add_(1)
    assert digest() == before
    for change in (lambda: state.best.update(loss=2.0), lambda: state.small[1].add_(1), lambda: setattr(state, "n", 1)):
        change()
        assert digest() != before
        before = digest()
    again = State(model=torch.nn.Linear(2, 1), best=0, small=torch.ones(3), large=torch.ones(20_000), n=7)
    state_values.restore(again, state_values.capture(state))
    assert (again.best, again.n, again.small.tolist()) == ({"loss": 2.0}, 1, [0, 1, 0])
    assert again.large.sum() == 20_000
    assert state_values.compared_values(again).digest() == before


def test_a_state_of_an_earlier_version_counts_its_samples_from_where_it_is() -> None:
    state = State(position=0)
    state_values.restore(state, fold({"bftrain.step": 40, "bftrain.lineage": 2, "position": 40}))
    own = state_values.inner(state)
    assert (state.position, own.samples, own.samples_since) == (40, 0, 40)


def test_a_save_that_fails_is_noted_and_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(position=0)
    calls: list[dict[str, Any]] = []
    own = state_values.inner(state)
    own.folder, own.report = tmp_path, calls.append

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="the state of step 1 is not on disk: .*No space left"):
        state.commit()
    assert calls == [{"type": "not_on_disk", "step": 1, "reason": "[Errno 28] No space left on device"}]
    state.commit()  # it is not tried at once
    monkeypatch.undo()
    own.save_at = 0.0
    state.commit()
    assert [(one["type"], one["step"]) for one in calls[1:]] == [("on_disk", 3)]


def test_small_states_that_are_written_often_are_reported_five_times_a_second(tmp_path: Path) -> None:
    state = State(position=0)
    calls: list[dict[str, Any]] = []
    own = state_values.inner(state)
    own.folder, own.report = tmp_path, calls.append
    begun = time.monotonic()
    for _ in range(50):
        own.save_at = 0.0
        state.commit()
    assert len(calls) <= 2 + 5 * (time.monotonic() - begun)
    state_saving.report_on_disk(own)
    assert calls[-1]["step"] == 50, "the last one is reported before a worker leaves its group"
    state_saving.report_on_disk(own)
    assert [one["step"] for one in calls].count(50) == 1


def test_a_rescue_waits_for_a_copy_that_is_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(position=0)
    own = state_values.inner(state)
    own.folder, own.step = tmp_path, 1
    state_values.keep(state)
    copying, rescued = threading.Event(), threading.Event()
    copied = state_values.copied

    def slowly(*words: Any) -> Any:  # noqa: ANN401 - as the original
        copying.set()
        assert not rescued.wait(0.3), "it waits"
        return copied(*words)

    def rescue() -> None:
        copying.wait(10)
        state_saving.rescue(state)
        rescued.set()

    monkeypatch.setattr(state_values, "copied", slowly)
    own.step, state.position = 2, 2
    thread = threading.Thread(target=rescue)
    thread.start()
    state_values.keep(state)
    thread.join(10)
    assert checkpoint_file.step_of(tmp_path) == 2


def test_a_rescue_and_a_save_write_to_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    kept = os.fsync

    def seen(number: int) -> None:
        names.update(path.name for path in tmp_path.glob("state.*"))
        kept(number)

    monkeypatch.setattr(os, "fsync", seen)
    state = State(position=0)
    state_values.inner(state).folder = tmp_path
    for _ in range(2):
        thread = threading.Thread(target=lambda: state_saving.save(state))
        thread.start()
        state_saving.save(state)
        thread.join(10)
    assert len(names) >= 2


def test_a_number_that_a_script_counts_in_its_own_way_never_goes_back() -> None:
    said: list[bytes] = []
    channel = SimpleNamespace(mention=lambda _kind, text: said.append(text))
    state = State(position=0)
    report = progress_report.GroupReport(channel, state, GroupRank())
    for epoch in (1, 1, 1, 2, 2, 40):
        report(1, None, epoch)
    assert [json.loads(text)["step"] for text in said] == [1, 2, 3, 4, 5, 40]
