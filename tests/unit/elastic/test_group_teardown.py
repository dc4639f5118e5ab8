"""Groups of torch.distributed that were left: taken down at once, or in a thread beside the next one."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from bftrain_elastic.worker import group_teardown, process_groups

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")


def test_slow_groups_end_beside_what_follows_in_the_order_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    free, ended = threading.Event(), list[str]()

    class Group:
        def __init__(self, name: str) -> None:
            self.name = name

        def shutdown(self) -> None:
            assert free.wait(10)
            ended.append(self.name)

    c10d = torch.distributed.distributed_c10d
    names = {Group("0"): "0", Group("1"): "1"}
    lists = ("pg_map", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg", "pg_coalesce_state")
    world = SimpleNamespace(pg_names=names, group_count=2, **{name: {} for name in lists})
    monkeypatch.setattr(c10d, "_world", world)
    monkeypatch.setattr(c10d, "_update_default_pg", lambda _: None)
    monkeypatch.setattr(c10d, "_unregister_all_process_groups", lambda: None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    group_teardown.destroy_in_background()
    assert (ended, names, world.group_count) == ([], {}, 0), "torch has no group any more, and the next may form"
    free.set()
    group_teardown._threads.pop().join(10)  # noqa: SLF001 - what the next group but one would wait for
    assert ended == ["1", "0"]


@pytest.mark.parametrize(
    ("gpu", "broken", "how"), [(True, False, "beside"), (True, True, "at once"), (False, False, "at once")]
)
def test_only_whole_groups_on_gpus_end_beside_the_next(
    monkeypatch: pytest.MonkeyPatch, *, gpu: bool, broken: bool, how: str
) -> None:
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(process_groups, "destroy_in_background", lambda: done.append("beside"))
    monkeypatch.setattr(process_groups, "destroy_groups", lambda: done.append("at once"))
    group = process_groups.ProcessGroup()
    group._joined = True  # noqa: SLF001 - as a group of torch's would set it
    monkeypatch.setattr(group, "abort", lambda: None)
    group.leave(broken=broken)
    assert done == [how]
