"""What is done where there are GPUs, shown with stand-ins: there is none here.

The tests look at the settings that torch receives, and that nothing starts CUDA where it must not be started.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrain_elastic import State
from bftrain_elastic.agent.agent_gpus import AgentGpus, visible_gpus
from bftrain_elastic.worker import checkpoint_file, process_groups, state_tree, state_values
from bftrain_elastic.worker.process_groups import GroupRank, ProcessGroup

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")


@pytest.mark.parametrize(
    ("visible", "devices", "expected"),
    [
        (None, [], []),
        (None, ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia7"], ["0", "1", "2"]),
        ("", ["nvidia0"], []),
        ("-1", ["nvidia0"], []),
        ("2,3", [], ["2", "3"]),
        ("GPU-5c0, MIG-77/1/0", [], ["GPU-5c0", "MIG-77/1/0"]),
    ],
)
def test_gpus_are_counted_without_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None, devices: list[str], expected: list[str]
) -> None:
    for name in devices:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus(tmp_path) == expected


@pytest.mark.parametrize(
    ("first", "slot", "seen"),
    [(0, 0, "a"), (0, 1, "b"), (1, 0, "b"), (2, 1, "d"), (4, 0, "a of another host"), (6, 1, "d of another host")],
)
def test_agents_of_one_machine_share_its_gpus(first: int, slot: int, seen: str) -> None:
    variables = AgentGpus(("a", "b", "c", "d"), first).environment(slot, all_gpus=False)
    assert variables["CUDA_VISIBLE_DEVICES"] + " of another host" * ("NCCL_HOSTID" in variables) == seen


def test_workers_on_one_gpu_seem_to_be_on_different_hosts() -> None:
    """NCCL says 'Duplicate GPU detected' otherwise."""
    hosts = [AgentGpus(("0",), first).environment(0, all_gpus=False).get("NCCL_HOSTID") for first in range(3)]
    assert hosts[0] is None
    assert len(set(hosts)) == 3


def test_a_launcher_that_is_shown_all_gpus_finds_its_own_first() -> None:
    gpus = ("0", "1", "2")
    assert AgentGpus(gpus, 0).environment(0, all_gpus=True) == {}
    assert AgentGpus(gpus, 2).environment(0, all_gpus=True) == {"CUDA_VISIBLE_DEVICES": "2,0,1"}
    assert AgentGpus((), 2).environment(0, all_gpus=False) == {}


def test_what_the_nursery_imports_does_not_ask_cuda_anything() -> None:
    """Forks of a process that has started CUDA cannot use it."""
    text = """
import importlib, sys, torch
from bftrain_elastic.agent.prefork_server import LATER, PRELOADED
asked = []
for module, names in ((torch.cuda, ("is_available", "device_count", "init", "_lazy_init", "current_device")),
                      (torch._C, ("_cuda_getDeviceCount", "_cuda_init"))):
    for name in names:
        if hasattr(module, name):
            setattr(module, name, lambda *a, name=name, **k: asked.append(name) or 0)
for module in (*PRELOADED, *sum(LATER.values(), ())):
    try:
        importlib.import_module(module)
    except ImportError as error:
        assert "horovod" in str(error), error
assert "torch._dynamo" in sys.modules
sys.exit(f"asked for {asked}" if asked else 0)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Cuda:
    """A machine with GPUs, as far as torch is asked about it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, free: int = 0) -> None:
        self.device: int | None = None
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda number: setattr(self, "device", number))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 80 << 30))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)


@pytest.mark.parametrize(("count", "local_rank", "own"), [(1, None, 0), (1, "3", 0), (4, "3", 3), (4, None, 0)])
def test_a_worker_uses_the_gpu_it_sees_or_under_torchrun_the_one_of_its_local_rank(
    monkeypatch: pytest.MonkeyPatch, count: int, local_rank: str | None, own: int
) -> None:
    cuda = Cuda(monkeypatch, count)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert State().device == torch.device("cuda", own)
    process_groups.use_own_device()
    assert cuda.device == own


def test_without_a_gpu_it_is_the_cpu() -> None:
    assert State().device == torch.device("cpu")
    process_groups.use_own_device()


class Distributed:
    """What torch.distributed was asked to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch.distributed as dist

        self.asked: list[tuple[str, Any]] = []
        self.breaks = False
        world = SimpleNamespace(abort=lambda: self.asked.append(("abort", None)))
        monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: self.asked.append(("init", backend)))
        monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=world))
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "PrefixStore", lambda prefix, _store: prefix)
        monkeypatch.setattr(dist, "destroy_process_group", self.destroy)
        monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: self.asked.append(("forget", None)))

    def destroy(self) -> None:
        self.asked.append(("destroy", None))
        if self.breaks:
            raise RuntimeError("NCCL communicator was aborted on rank 0")


@pytest.mark.parametrize("gpu", [True, False])
def test_nccl_where_there_is_cuda_and_gloo_otherwise(monkeypatch: pytest.MonkeyPatch, *, gpu: bool) -> None:
    if gpu:
        Cuda(monkeypatch, 1)
    asked = Distributed(monkeypatch).asked
    group = ProcessGroup()
    group.join(GroupRank(1, 0, 3, 3), None)
    # What is agreed on at a commit is a number on the CPU: Gloo carries it, and sees at once when a member is gone
    assert asked == [("init", "cpu:gloo,cuda:nccl" if gpu else "gloo")]
    group.abort()
    assert asked[1:] == ([("abort", None)] if gpu else [])


def test_a_group_that_cannot_be_closed_is_forgotten_so_that_another_can_be_formed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Cuda(monkeypatch, 1)
    distributed = Distributed(monkeypatch)
    distributed.breaks = True
    group = ProcessGroup()
    group.join(GroupRank(1, 0, 3, 3), None)
    group.leave(broken=True)
    assert [what for what, _ in distributed.asked] == ["init", "abort", "destroy", "forget"]


def test_nccl_does_not_end_a_process_whose_neighbour_died_unless_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    process_groups.survive_peers()
    process_groups.listen_on("127.0.0.1")
    assert os.environ == {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "=lo",
    }
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
    process_groups.survive_peers()
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


@pytest.mark.parametrize(
    ("error", "others"),
    [
        ("NCCL communicator was aborted on rank 1. Original reason for failure was: remote process exited", True),
        ("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:1234", True),
        ("CUDA out of memory. Tried to allocate 20.00 MiB", False),
        ("CUDA error: device-side assert triggered", False),
        ("peer access is not supported between these two devices", False),
        ("could not restore the data set", False),
    ],
)
def test_the_death_of_another_is_distinguished_from_a_mistake(error: str, *, others: bool) -> None:
    assert process_groups.lost(RuntimeError(error)) is others


class OnGpu:
    """A tensor that says it is on a GPU."""

    def __init__(self, mb: int) -> None:
        self.device = SimpleNamespace(type="cuda")
        self._bytes = mb << 20

    def numel(self) -> int:
        return self._bytes // 4

    def element_size(self) -> int:
        return 4


@pytest.mark.parametrize(("mb", "free_mb", "elsewhere"), [(100, 1000, False), (300, 1000, True), (0, 0, False)])
def test_a_copy_of_the_state_stays_on_the_gpu_only_if_it_leaves_room(
    monkeypatch: pytest.MonkeyPatch, mb: int, free_mb: int, *, elsewhere: bool
) -> None:
    Cuda(monkeypatch, 1, free=free_mb << 20)
    assert state_tree.too_large([OnGpu(mb), torch.ones(1000)]) is elsewhere


class OfGpu(torch.Tensor):  # type: ignore[misc]  # torch is imported if it is here
    """A tensor that says that it is on a GPU."""

    device = torch.device("cuda", 0)


def test_a_tensor_of_a_gpu_is_saved_in_pieces_of_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_file, "_PIECE_BYTES", 96)
    values = torch.arange(100.0)
    room: list[Any] = []
    monkeypatch.setattr(torch, "empty", lambda size, dtype: room.append(torch.zeros(size, dtype=dtype)) or room[0])
    written = io.BytesIO()
    checkpoint_file._write(written, values.as_subclass(OfGpu), lambda: None)  # noqa: SLF001 - no GPU is here
    assert written.getvalue() == values.numpy().tobytes()
    assert [one.numel() for one in room] == [96]


def test_what_is_restored_needs_no_memory_but_what_the_state_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> State:
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        return State(model=model, optimizer=optimizer, position=0, best=torch.ones(2))

    one, other = made(), made()
    one.position, one.best = 7, torch.full((2,), 3.0)
    tree = state_tree.copied(state_values.capture(one), None)
    tensors = [tensor.data_ptr() for tensor in state_values.capture(other).tensors]
    monkeypatch.setattr(state_tree, "_twin", lambda *_, **__: pytest.fail("a copy was made"))
    state_values.restore(other, tree)
    after = state_values.capture(other)
    assert [tensor.data_ptr() for tensor in after.tensors] == tensors
    assert other.position == 7
    assert all(torch.equal(here, there) for here, there in zip(after.tensors, tree.tensors, strict=True))
    one.best.zero_()
    assert other.best.tolist() == [3.0, 3.0]


def test_a_state_that_is_built_otherwise_is_restored_too() -> None:
    model = torch.nn.Linear(3, 2)
    tree = state_tree.copied(state_values.capture(State(first=torch.zeros(2), second=torch.ones(2), model=model)), None)
    other = State(second=torch.full((2,), 5.0), first=torch.full((2,), 6.0), model=torch.nn.Linear(3, 2))
    state_values.restore(other, tree)
    assert (other.first.tolist(), other.second.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert torch.equal(other.model.weight, model.weight)
