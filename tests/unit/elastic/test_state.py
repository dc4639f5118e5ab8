"""States of scripts that run alone: what is committed comes back, whole and once; what cannot be kept is named."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import struct
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic import State, run
from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import state_transfer
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.state_tree import StateTree

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytest.importorskip("torch._dynamo")  # for seconds, by an optimizer's first step: forks have it then
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

FORK = multiprocessing.get_context("fork")


def alone(script: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the script returns
    """Run a script in a process of its own, as ``run`` demands; return its result."""
    error, found = _ended(script)
    assert not error, error
    return found


def error_of(script: Callable[[], Any]) -> str:
    """Return the error with which a script ends: its type and words."""
    error, _ = _ended(script)
    return error.splitlines()[-1] if error else "none"


def _ended(script: Callable[[], Any]) -> tuple[str, Any]:
    ours, theirs = multiprocessing.Pipe()
    child = FORK.Process(target=_tell, args=(script, theirs))
    child.start()
    theirs.close()
    ended: tuple[str, Any] = pickle.loads(ours.recv_bytes())  # noqa: S301 - of our own process
    child.join()
    return ended


def _tell(script: Callable[[], Any], other: Connection) -> None:
    try:
        other.send_bytes(pickle.dumps(("", script())))
    except Exception:  # noqa: BLE001 - the test looks at any error
        other.send_bytes(pickle.dumps((traceback.format_exc(), None)))
    os._exit(0)  # without what the tests' own process does at its end


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a task; scripts commit to it."""
    place = tmp_path / "task"
    place.mkdir()
    monkeypatch.setenv("BFTRAIN_FOLDER", str(place))
    return place


def keep(**values: Any) -> None:  # noqa: ANN401 - any values
    """Run a script that commits these values once."""
    alone(lambda: run(State(**values), State.commit))


def kept(**values: Any) -> State:  # noqa: ANN401 - any values
    """Return a state that began with these values and took up what its folder has; in this process only."""
    state = State(**values)
    seen: dict[str, Any] = {}

    def script() -> dict[str, Any]:
        run(state, lambda now: seen.update({name: getattr(now, name) for name in values}))
        return seen

    return State(**alone(script))


def tensors() -> dict[str, Any]:
    return {
        "float": torch.arange(6.0).reshape(2, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "long": torch.tensor(7),
        "bool": torch.tensor([True, False]),
        "empty": torch.empty(0, 4),
        "turned": torch.arange(6.0).reshape(2, 3).t(),
    }


def test_a_state_comes_back_from_its_folder_as_it_was(folder: Path) -> None:
    value = {"a": [1, 2.5, None, True, "x"], "t": (1, (2,)), 3: {"deep": tensors()}}
    keep(value=value, position=12)
    back = kept(value=0, position=0)
    assert (back.value["a"], back.value["t"], back.position) == (value["a"], value["t"], 12)
    for name, tensor in tensors().items():
        other = back.value[3]["deep"][name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(other, tensor)
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*")), "it is for its owner alone"


def test_a_state_of_an_earlier_version_with_numbered_tensors_is_read(folder: Path) -> None:
    keep(weights=torch.zeros(1))
    (file,) = (path for path in folder.rglob("*") if path.is_file())
    plain = '["dict",[["bftrain.step",["is",3]],["weights",["dict",[["w",["tensor",0]]]]],["position",["is",3]]]]'
    header = {"step": 3, "lineage": 9, "plain": plain, "tensors": [["float32", [2], "cpu"]]}
    text = json.dumps(header).encode()
    file.write_bytes(b"BFTRAIN1" + len(text).to_bytes(8, "little") + text + struct.pack("<2f", 1.5, -2.0))
    back = kept(weights={"w": torch.zeros(2)}, position=0)
    assert (back.position, back.weights["w"].tolist()) == (3, [1.5, -2.0])


@pytest.mark.parametrize("keep_bytes", [0, 5, 12, 40, -1])
def test_a_damaged_state_is_refused_and_says_where(folder: Path, keep_bytes: int) -> None:
    keep(**tensors())
    (file,) = (path for path in folder.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:keep_bytes])
    found = error_of(lambda: run(State(**tensors()), State.commit))
    assert re.search(f"BadCommit: .*{file.name}: is damaged", found), found


def test_what_cannot_be_kept_is_named(folder: Path) -> None:
    found = error_of(lambda: run(State(a=[1, object()]), State.commit))
    assert "BadScript: state['a'][1]: is of type object" in found
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_an_optimizer_keeps_its_precision_and_a_model_which_parameters_are_trained(folder: Path) -> None:
    class Master(torch.optim.SGD):  # keeps a copy of 32 bits of each parameter
        def step(self) -> None:  # type: ignore[override]
            for one in self.param_groups[0]["params"]:
                self.state[one]["master"] = torch.full(one.shape, 1 / 3)

    def made() -> State:
        model = torch.nn.Linear(2, 1, dtype=torch.bfloat16)
        return State(model=model, optimizer=Master(model.parameters()))

    def first() -> None:
        state = made()
        state.optimizer.step()
        state.model.weight.requires_grad = False
        run(state, State.commit)

    def second() -> tuple[list[Any], dict[str, bool]]:
        state = made()
        run(state, lambda _: None)
        masters = [one["master"].tolist() for one in state.optimizer.state.values()]
        return masters, {name: one.requires_grad for name, one in state.model.named_parameters()}

    alone(first)
    third = torch.tensor(1 / 3).item()
    assert alone(second) == ([[[third, third]], [third]], {"weight": False, "bias": True})
    assert folder.exists()


@pytest.mark.usefixtures("folder")
def test_an_object_that_cannot_take_its_values_is_named() -> None:
    def grown(count: int) -> State:
        model = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(2))
        return State(optimizer=torch.optim.Adam([{"params": one.parameters()} for one in model[:count]]))

    alone(lambda: run(grown(2), State.commit))
    found = error_of(lambda: run(grown(1), State.commit))
    assert re.search(r"BadScript: state\['optimizer'\]: .*different number of parameter groups.*freeze", found), found


def test_names_that_no_state_has_are_refused() -> None:
    with pytest.raises(BadScript, match="'rank' is already used"):
        State(rank=3)
    with pytest.raises(AttributeError, match="has no 'positon'"):
        _ = State(position=0).positon


def test_alone_a_model_offers_what_it_offers_in_a_group() -> None:
    state = State(model=torch.nn.Linear(2, 1).eval())
    parallel = state.parallel()
    with parallel.no_sync():
        parallel(torch.ones(1, 2)).sum().backward()
    assert parallel.module is state.model
    assert state.model.weight.grad is not None
    assert (parallel.in_features, parallel.training) == (2, False)
    with pytest.raises(AttributeError, match="out_feature"):
        _ = parallel.out_feature


def trained(limit: int) -> tuple[int, int, list[float]]:
    """Train up to a position, from where the folder is; return position, step and weights."""
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1)
    state = State(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.1), position=0)

    def train(state: State) -> None:
        while state.position < limit:
            loss = (state.model(torch.ones(1, 2)) ** 2).sum()
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.position += 1
            state.commit()

    run(state, train)
    return state.position, state.step, [one.tolist() for one in model.parameters()]


def test_a_training_goes_on_from_its_folder_as_if_it_had_never_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alone(lambda: trained(10))[:2] == (10, 10)
    again = alone(lambda: trained(20))
    assert again[:2] == (20, 20)
    assert "only once under a launcher" in error_of(lambda: [trained(21), trained(22)])
    monkeypatch.delenv("BFTRAIN_FOLDER")
    assert alone(lambda: trained(20)) == again
    assert folder.exists()


@pytest.mark.usefixtures("folder")
def test_an_abandoned_worker_cannot_undo_what_others_did_since() -> None:
    """A node is lost to its manager but goes on training; meanwhile the task is started elsewhere."""
    committed, superseded = FORK.Event(), FORK.Event()

    def lost() -> None:
        def train(state: State) -> None:
            state.position = 7
            state.commit()
            committed.set()
            superseded.wait(60)
            state.position = 9

        run(State(position=0), train)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(error_of, lost)
        assert committed.wait(60)
        alone(lambda: run(State(position=0), lambda state: [setattr(state, "position", 8), state.commit()]))
        superseded.set()
    assert re.search("Superseded: .*a later run of this task", ended.result())
    assert kept(position=0).position == 8


def test_what_is_reported_on_disk_has_its_place_there(folder: Path) -> None:
    """A file that was renamed is found after a loss of power only if its folder was written too."""

    def script() -> list[str]:
        synced: list[str] = []
        real, rename = os.fsync, os.replace
        os.fsync = lambda number: (synced.append(str(Path(f"/proc/self/fd/{number}").readlink())), real(number))[1]
        os.replace = lambda *names, **more: (synced.append("renamed"), rename(*names, **more))[1]  # type: ignore[assignment]
        run(State(position=1), State.commit)
        return synced

    synced = alone(script)
    assert synced[-1] == str(folder)
    file = next(name for name in synced if name.startswith(f"{folder}/"))
    assert synced.index(file) < len(synced) - 1


@pytest.mark.usefixtures("folder")
def test_a_save_that_fails_is_remarked_on_and_the_training_goes_on() -> None:
    def script() -> int:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        real, os.fsync = os.fsync, full
        state = State(position=0)

        def train(state: State) -> None:
            with pytest.warns(RuntimeWarning, match="the state of step 1 is not on disk: .*No space left"):
                state.commit()
            os.fsync = real
            state.position = 5

        run(state, train)
        return int(state.position)

    assert alone(script) == 5
    assert kept(position=0).position == 5


def test_the_batch_that_was_decided_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFTRAIN_BATCH", "0")
    assert State().decided_batch is None


class _Group:
    """A group of members that need not receive anything."""

    new_group = broadcast = staticmethod(lambda *_, **__: _Group())

    def wait(self, _: object) -> None: ...


def test_a_copy_of_a_moved_state_is_made_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_transfer, "dist", _Group)
    tree = StateTree("", {"one": torch.ones(4), "two": torch.full((300_000,), 2.0), "three": torch.full((4,), 3.0)})
    copy = StateTree("", {name: torch.zeros_like(one) for name, one in reversed(tree.tensors.items())})
    state_transfer.move(GroupRank(workers=2), tree, copy=copy)
    assert {name: one.unique().item() for name, one in copy.tensors.items()} == {"one": 1.0, "two": 2.0, "three": 3.0}


def test_a_member_without_part_in_a_move_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_transfer, "dist", _Group)
    monkeypatch.setattr(torch, "cat", lambda _: pytest.fail("a copy"))
    tree, moved = StateTree("", {"one": torch.ones(4), "two": torch.ones(300_000)}), list[int]()
    state_transfer.move(GroupRank(rank=1, workers=3), tree, sources=(0, 1), moved=moved.append)
    assert moved == [1_200_000, 1_200_016]
