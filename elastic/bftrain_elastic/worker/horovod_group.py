"""A Horovod group that comes and goes while its process stays: it meets where the agent says, and can be cut off."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from bftrain_elastic.worker.horovod_rendezvous import HorovodRendezvous, NotAllCame, all_came, host_name
from bftrain_elastic.worker.native_errors import instead_of_abort
from bftrain_elastic.worker.open_sockets import cut, sockets
from bftrain_elastic.worker.process_groups import FORMING, GroupRank


class HorovodGroup:
    """The group that this process is a member of, and the meeting point at which it would lead the next one."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._meeting = HorovodRendezvous(address)
        self._workers = 1
        self._before: set[int] = set()  # the sockets that were open before the group formed
        self._aborted = False  # a member of the group that is forming is dead

    @property
    def meeting_point(self) -> list[Any]:
        """Return the host and port at which others find this process if it leads the next group."""
        return [self._meeting.host, self._meeting.port]

    def form(self, place: GroupRank, store: Sequence[Any], rescue: Callable[[], object]) -> None:
        """Become a member of a new group; ``rescue`` is called if Horovod ends the process meanwhile."""
        import horovod.torch as hvd
        from horovod.common.exceptions import HorovodInternalError

        hvd.shutdown()
        self._workers = place.workers
        self._before, self._aborted = sockets(), False
        host, port = store if place.rank else (self._address, self._meeting.port)
        os.environ.update(environment(place, host, port))
        try:
            if place.workers > 1:
                all_came((host, port), place.rank, place.workers, FORMING.total_seconds(), lambda: self._aborted)
            with instead_of_abort(rescue):
                hvd.init()
        except (ValueError, NotAllCame) as error:  # Horovod raises the first when others do not come
            raise HorovodInternalError(str(error)) from error

    def leave(self) -> None:
        """Leave the group; a new one finds nothing of it."""
        import horovod.torch as hvd

        hvd.shutdown()
        self._before = set()
        self._meeting.close()
        self._meeting = HorovodRendezvous(self._address)

    def largest(self, number: int) -> int:
        """Return the largest of all members' numbers."""
        if self._workers == 1:
            return number
        import horovod.torch as hvd
        import torch

        return int(hvd.allreduce(torch.tensor([number]), op=hvd.Max, name="bftrain.largest").item())

    def largest_each(self, numbers: Sequence[float], dtype: str) -> list[Any]:
        """Return the largest that any member has of each number."""
        import horovod.torch as hvd
        import torch

        box = torch.tensor(numbers, dtype=getattr(torch, dtype))
        found: list[Any] = hvd.allreduce(box, op=hvd.Max, name=f"bftrain.largest.{dtype}").tolist()
        return found

    def abort(self) -> None:
        """Cut the connections to all members, of which one is dead, so that none waits for it. From any thread."""
        self._aborted = True
        self._meeting.refuse()
        self.cut()

    def cut(self) -> None:
        """Cut the connections to all members, which may wait for this one."""
        if self._before:
            cut(sockets() - self._before)

    def close(self) -> None:
        """Lead no group any more."""
        self._meeting.close()


def end_without_horovod() -> None:
    """Let the process end without Horovod's farewell, for which it would wait for members that may not answer."""
    with suppress(ImportError, AttributeError):
        from horovod.torch import mpi_ops

        atexit.unregister(mpi_ops._basics.shutdown)  # noqa: SLF001 - there is no public way


def environment(place: GroupRank, host: str, port: int) -> dict[str, str]:
    """Return what Horovod reads when it forms a group; every worker counts as a host of its own."""
    meeting = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": host, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)} if port else {}
    return {
        "HOROVOD_HOSTNAME": host_name(place.rank, place.workers),
        "HOROVOD_RANK": str(place.rank),
        "HOROVOD_SIZE": str(place.workers),
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": str(place.rank),
        "HOROVOD_CROSS_SIZE": str(place.workers),
        **meeting,
    }
