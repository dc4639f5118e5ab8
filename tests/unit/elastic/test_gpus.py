"""What is done where there are GPUs, shown with stand-ins: there is none here.

The tests look at the settings that torch receives, and that nothing starts CUDA where it must not be started.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bftrain_elastic import State
from bftrain_elastic.agent.agent_settings import AgentGpus, visible_gpus

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


@pytest.mark.parametrize(("count", "local_rank", "own"), [(1, None, 0), (1, "3", 0), (4, "3", 3), (4, None, 0)])
def test_a_worker_uses_the_gpu_it_sees_or_under_torchrun_the_one_of_its_local_rank(
    monkeypatch: pytest.MonkeyPatch, count: int, local_rank: str | None, own: int
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert State().device == torch.device("cuda", own)
