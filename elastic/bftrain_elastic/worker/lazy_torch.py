"""``torch`` and Horovod, imported on first use: scripts without torch start fast without it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - anything of the module
        return getattr(import_module(self._name), attribute)


torch: Any = _LazyModule("torch")
dist: Any = _LazyModule("torch.distributed")
hvd: Any = _LazyModule("horovod.torch")
