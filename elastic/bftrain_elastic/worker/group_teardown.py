"""Taking torch.distributed's groups down: at once, or in a thread while the next group forms.

NCCL may need half a second to free what a group holds on a GPU, and nothing that follows has to wait for that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

# A group's destructor holds Python's lock while it waits for Gloo's threads, and these may just be waiting for that
# lock to let go of a tensor. So groups that were left are kept until their threads have long been idle.
_left: Final[deque[object]] = deque(maxlen=2)
_threads: Final[deque[threading.Thread]] = deque()
_AT_ONCE: Final = 2  # groups that may be taken down beside the present one: each holds memory of the GPU
_PATIENCE_S: Final = 30.0  # how long a new group waits for that; a group in a CUDA graph may never end


def destroy_groups() -> None:
    """Destroy all of torch's groups, including subgroups of the script and broken ones."""
    import torch.distributed as dist

    c10d = dist.distributed_c10d
    _left.append(list(c10d._world.pg_names))  # noqa: SLF001 - there is no public way to subgroups
    for end in (dist.destroy_process_group, c10d._abort_process_group, _forget):  # noqa: SLF001 - as above
        if not dist.is_initialized():
            break
        with suppress(RuntimeError, ValueError, AssertionError):  # a broken group cannot be closed properly
            end()
    restart_group_count()


def destroy_in_background() -> None:
    """Make torch forget all of its groups, and let a thread shut them down in the order in which torch does it."""
    import torch.distributed as dist

    names = dist.distributed_c10d._world.pg_names  # noqa: SLF001 - there is no public way to subgroups
    groups = sorted(names, key=names.__getitem__, reverse=True)
    if not all(hasattr(one, "shutdown") for one in groups):  # an older torch
        destroy_groups()
        return
    _left.append(groups)
    _forget()
    restart_group_count()
    thread = threading.Thread(target=_shut_down, args=(groups,), name="bftrain-groups", daemon=True)
    thread.start()
    _threads.append(thread)
    while len(_threads) > _AT_ONCE:
        _threads.popleft().join(_PATIENCE_S)


def _shut_down(groups: Sequence[Any]) -> None:
    for one in groups:
        with suppress(RuntimeError):  # the others have left already
            one.shutdown()


def restart_group_count() -> None:
    """Reset torch's count of groups, so that the next group is numbered as in a fresh process.

    Members of a group look for each other in the store under the number of the group, which every process counts by
    itself. torch resets the count when a group is destroyed, but not after one that did not form.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - there is no public way


def _forget() -> None:
    """Clear torch's lists of groups, as destroy_process_group does when nothing goes wrong."""
    import torch.distributed as dist

    c10d = dist.distributed_c10d
    world = c10d._world  # noqa: SLF001 - there is no public way
    c10d._update_default_pg(None)  # noqa: SLF001 - as above
    for known in ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg"):
        getattr(world, known).clear()
    world.pg_coalesce_state.clear()
    c10d._unregister_all_process_groups()  # noqa: SLF001 - as above
