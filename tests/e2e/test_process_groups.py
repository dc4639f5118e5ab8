"""Process groups of real processes: they form after any history of their members."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.members import run_members

pytestmark = pytest.mark.torch

# A member of a group of two; ``before`` is what happened to it earlier. It ends as workers do: Python's own end of a
# process destroys what threads of torch may still use, and now and then that aborts the process.
MEMBER = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from bftrain_elastic.worker import process_groups as groups
from bftrain_elastic.worker.group_teardown import destroy_groups, destroy_in_background
from bftrain_elastic.worker.process_groups import GroupRank, GroupStore, ProcessGroup

rank, meeting = int(sys.argv[1]), Path(sys.argv[2])
group = ProcessGroup()

def refused(generation):
    "Try to form a group that no other process joins."
    groups.FORMING = timedelta(seconds=0.5)
    try:
        group.join(GroupRank(generation, 1, 2, 2), GroupStore("127.0.0.1").store)
    except RuntimeError:
        group.leave(broken=True)
    else:
        raise AssertionError("a group of one formed as one of two")
    groups.FORMING = timedelta(seconds=20)

def alone(*, subgroups):
    "Be in a group of one, as warm_up() or a script may be."
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for _ in range(subgroups):
        dist.new_group([0])

{before}
if rank == 0:
    own = GroupStore("127.0.0.1")
    store = own.store
    meeting.with_suffix(".new").write_text(str(own.port))
    meeting.with_suffix(".new").rename(meeting)
else:
    while not meeting.exists():
        time.sleep(0.01)
    store = dist.TCPStore("127.0.0.1", int(meeting.read_text()), is_master=False, wait_for_workers=False)
group.join(GroupRank(7, rank, 2, 2), store)
print(group.largest(10 + rank), torch.distributed.distributed_c10d._world.group_count, flush=True)
group.leave()
os._exit(0)
"""


def pair(folder: Path, first: str, second: str) -> list[tuple[int, str]]:
    """Let two processes form a group; give the exit code and the output of each."""
    scripts = [MEMBER.replace("{before}", before) for before in (first, second)]
    return run_members(folder, scripts, [(rank, folder / "port") for rank in range(2)])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("", "refused(3)", id="one group that did not form"),
        pytest.param("groups.warm_up(); refused(3); refused(5)", "groups.warm_up()", id="two that did not form"),
        pytest.param("", "alone(subgroups=2); destroy_groups(); refused(3)", id="after subgroups"),
        pytest.param("", "for _ in range(4): alone(subgroups=2); destroy_in_background()", id="while groups end"),
    ],
)
def test_an_old_member_forms_a_group_with_a_fresh_one(tmp_path: Path, first: str, second: str) -> None:
    ended = pair(tmp_path, first, second)
    assert [code for code, _ in ended] == [0, 0], ended
    assert all("11 1" in text.splitlines() for _, text in ended), ended


SCRIPT = """
import os, sys
from datetime import timedelta
import torch.distributed as dist
from bftrain_elastic.worker import process_groups as groups
from bftrain_elastic.worker.group_teardown import destroy_groups, destroy_in_background
from bftrain_elastic.worker.process_groups import GroupRank, GroupStore, ProcessGroup
"""


def alone(folder: Path, script: str) -> str:
    """Run a script; give what it wrote."""
    ((code, said),) = run_members(
        folder, [f"{SCRIPT}{script}\nsys.stdout.flush(); os._exit(0)  # as workers end"], [()]
    )
    assert code == 0, said
    return said


def test_a_group_that_cannot_be_closed_is_forgotten_all_the_same(tmp_path: Path) -> None:
    said = alone(
        tmp_path,
        """
c10d = dist.distributed_c10d
def broken(*_):
    raise RuntimeError("cannot be closed")
dist.destroy_process_group = c10d._abort_process_group = broken
for _ in range(3):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.new_group([0])
    destroy_groups()
    print(dist.is_initialized(), len(c10d._world.pg_names), c10d._world.group_count)
""",
    )
    assert said.split("\n")[:3] == ["False 0 0"] * 3


def test_a_thousand_groups_leave_one_hook_for_exceptions(tmp_path: Path) -> None:
    """Torch wraps sys.excepthook whenever a group forms; a training has thousands."""
    said = alone(
        tmp_path,
        """
before = sys.excepthook
group = ProcessGroup()
store = GroupStore("127.0.0.1").store
real = dist.init_process_group
def init(backend, **words):
    real(backend, store=dist.HashStore(), rank=0, world_size=1)
dist.init_process_group = init
for generation in range(5):
    group.join(GroupRank(generation, 0, 2, 2), store)
    assert sys.excepthook is not before
    group.leave()
    assert sys.excepthook is before
group.join(GroupRank(9, 0, 2, 2), store)
own = sys.excepthook = lambda *_: None
group.leave()
assert sys.excepthook is own, "what the script set stays"
groups.warm_up()
assert sys.excepthook is own
print("well")
""",
    )
    assert said == "well\n"
