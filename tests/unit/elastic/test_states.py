"""States: taken apart, copied, written, read, and put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bftrain_elastic import State, commits, run, running
from bftrain_elastic.errors import BadCommit, BadScript, Superseded

if TYPE_CHECKING:
    from pathlib import Path

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

    from bftrain_elastic.trees import fold

    value = {"a": [1, 2.5, None, True, "x"], "t": (1, (2,)), 3: {"deep": tensors()}}
    commits.save(tmp_path, fold(value), 12)
    assert commits.step_of(tmp_path) == 12
    found = commits.load(tmp_path)
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
    assert commits.load(tmp_path) is None
    assert commits.step_of(tmp_path) is None


@pytest.mark.parametrize("keep", [0, 5, 12, 40, -1])
def test_a_damaged_state_is_refused_and_says_where(tmp_path: Path, keep: int) -> None:
    from bftrain_elastic.trees import fold

    commits.save(tmp_path, fold(tensors()), 1)
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(whole[:keep])
    with pytest.raises(BadCommit, match="state: is damaged"):
        commits.load(tmp_path)


def test_what_cannot_be_kept_is_named() -> None:
    from bftrain_elastic.trees import fold

    with pytest.raises(BadScript, match=r"state\['a'\]\[1\]: is of type object"):
        fold({"a": [1, object()]})


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
    running.trained.clear()  # in another process
    run(again, train)
    assert (again.position, again.step) == (20, 20)
    monkeypatch.delenv("BFTRAIN_FOLDER")
    straight = fresh()
    run(straight, train)
    for here, there in zip(again.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(here, there)


def test_whoever_was_given_up_cannot_undo_what_others_did_since(tmp_path: Path) -> None:
    """A node is lost to its manager but goes on training; meanwhile the task is started elsewhere."""
    from bftrain_elastic import state as states

    def at(position: int) -> State:
        state = State(position=position)
        states.inner(state).folder = tmp_path
        return state

    lost = at(7)
    states.save(lost)
    other = at(0)
    assert states.load(other)
    assert other.position == 7
    states.save(lost)  # as long as the others have done nothing, nothing is undone
    other.position = 8
    states.save(other)
    lost.position = 9
    with pytest.raises(Superseded, match="went on from here"):
        states.save(lost)
    assert commits.load(tmp_path).tree.unfolded()["position"] == 8  # type: ignore[union-attr]  # it was just written
    again = at(0)
    states.restore(again, states.capture(other))  # as a worker gets it that joins later
    states.save(again)
