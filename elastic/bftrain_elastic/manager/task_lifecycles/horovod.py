"""The horovod course: as the native one; what moves its workers from group to group is in their own process."""

from __future__ import annotations

from typing import ClassVar

from bftrain_elastic.manager.task_lifecycles.native import NativeLifecycle


class HorovodLifecycle(NativeLifecycle):
    """One task under the horovod launcher."""

    launcher: ClassVar = "horovod"
    entrance: ClassVar = "a function under hvd.elastic.run"
