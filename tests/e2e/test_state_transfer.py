"""A state on its way between real processes: it arrives whole, at any size of a group, or is given up in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.members import run_members

pytestmark = pytest.mark.torch

# A member of a group. Its state is of many kinds of tensors; those that lack it begin with other numbers.
MEMBER = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from bftrain_elastic import State
from bftrain_elastic.worker import state_transfer
from bftrain_elastic.worker.process_groups import GroupRank, GroupStore, lost
from bftrain_elastic.worker.state_values import capture, inner

rank, workers, sources, meeting = int(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3]), Path(sys.argv[4])
torch.set_num_threads(1)

def made(has):
    torch.manual_seed(7 if has else rank)
    layer = torch.nn.Conv2d(3, 64, 5).to(memory_format=torch.channels_last)
    model = torch.nn.Sequential(layer, torch.nn.BatchNorm2d(64))
    model.append(torch.nn.ParameterList([torch.nn.Parameter(torch.rand(700_000)) for _ in range(4)]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if has:
        for one in model.parameters():
            one.grad = torch.rand(one.shape)
        optimizer.step()
    best = {"loss": 0.5, "half": torch.ones(3, dtype=torch.bfloat16)}
    more = {"best": best, "none": torch.empty(0, 4)} if has else {}
    return State(model=model, optimizer=optimizer, position=9 if has else 0, **more)

state, wanted = made(rank in sources), capture(made(True))
group = inner(state).group
if rank == 0:
    store = GroupStore("127.0.0.1").store
    meeting.with_suffix(".new").write_text(str(store.port))
    meeting.with_suffix(".new").rename(meeting)
else:
    while not meeting.exists():
        time.sleep(0.01)
    store = dist.TCPStore("127.0.0.1", int(meeting.read_text()), is_master=False, wait_for_workers=False)
group.join(GroupRank(1, rank, workers, workers), store)
begun, parts = time.monotonic(), state.model[2][0].data_ptr()
{before}
try:
    state_transfer.share_state(state, sources, fresh=rank not in sources)
except RuntimeError as error:
    print("lost" if lost(error) else error, time.monotonic() - begun, flush=True)
    os._exit(0)
found, copy = capture(state), inner(state).copy
assert found.plain == wanted.plain, (found.plain, wanted.plain)
assert all(torch.equal(*pair) for pair in zip(found.tensors, wanted.tensors, strict=True))
assert parts == state.model[2][0].data_ptr(), "it is received in place"
assert copy.plain == wanted.plain and all(torch.equal(*pair) for pair in zip(copy.tensors, wanted.tensors, strict=True))
assert not {one.data_ptr() for one in copy.tensors if one.numel()} & {one.data_ptr() for one in found.tensors}
group.largest(0)
print("whole", time.monotonic() - begun, flush=True)
os._exit(0)
"""


def moved(folder: Path, workers: int, sources: list[int], before: str = "") -> list[tuple[str, float]]:
    """Let processes share a state; return for each whether it arrived, and after how many seconds."""
    script = MEMBER.replace("{before}", before)
    words = [(rank, workers, sources, folder / "port") for rank in range(workers)]
    said = [text for _, text in run_members(folder, [script] * workers, words)]
    ends = [text.splitlines()[-1].split() if text else ["nothing"] for text in said]
    assert all(len(end) == 2 for end in ends), said
    return [(word, float(took)) for word, took in ends]


@pytest.mark.parametrize(("workers", "sources"), [(4, [0, 2]), (3, [0])])
def test_members_that_lack_the_state_receive_all_of_it_in_place(
    tmp_path: Path, workers: int, sources: list[int]
) -> None:
    assert {word for word, _ in moved(tmp_path, workers, sources)} == {"whole"}


RECENT = """
from bftrain_elastic.worker.state_values import keep
own, kept = inner(state), None
if rank in sources:
    kept = keep(state)
    own.step += 1
state_transfer.share_state(state, sources, fresh=rank not in sources)
left = own.copy is kept and own.copy_step == own.step - 1
print("kept" if left else "copied" if own.copy_step == own.step else "neither", 0.0, flush=True)
group.largest(0)
os._exit(0)
"""


def test_a_member_with_a_recent_copy_makes_none_while_the_state_is_sent(tmp_path: Path) -> None:
    assert [word for word, _ in moved(tmp_path, 2, [0], RECENT)] == ["kept", "copied"]


PREPARED = """
if rank == 0:
    state_transfer.describe(store, capture(state))
group.largest(0)
if rank:
    state_transfer.prepare(state, "127.0.0.1:" + meeting.read_text())
    there = [one.data_ptr() for one in (*inner(state).prepared.tensors, *inner(state).copy.tensors)]
share = state_transfer.share_state

def share_and_look(state, sources, *, fresh):
    share(state, sources, fresh=fresh)
    if rank:
        all_there = (*capture(state).tensors, *inner(state).copy.tensors)
        found = {one.data_ptr() for one in all_there if one.nbytes > 1_000_000}
        assert found <= set(there), "all arrived where there was memory for it"

state_transfer.share_state = share_and_look
"""


def test_a_state_that_was_described_arrives_in_memory_that_is_there(tmp_path: Path) -> None:
    assert {word for word, _ in moved(tmp_path, 2, [0], PREPARED)} == {"whole"}


SLOW = """
from datetime import timedelta
state_transfer._STANDSTILL, state_transfer._PIECE_BYTES = timedelta(seconds=2.0), 1 << 20
send = dist.isend
def slowly(data, to, tag):
    time.sleep({each} if tag < {until} else {then})
    return send(data, to, tag=tag)
dist.isend = slowly
"""


def test_a_slow_network_may_take_longer_than_the_limit_as_long_as_bytes_move(tmp_path: Path) -> None:
    found = moved(tmp_path, 2, [0], SLOW.format(each=0.12, until=99, then=0))
    assert [word for word, _ in found] == ["whole", "whole"]
    assert min(took for _, took in found) > 2.5, "longer than a piece may take"


def test_a_network_that_stands_still_is_given_up_within_the_limit(tmp_path: Path) -> None:
    found = moved(tmp_path, 2, [0], SLOW.format(each=0, until=3, then=8))
    assert found[1][0] == "lost"
    assert 1.9 < found[1][1] < 8
