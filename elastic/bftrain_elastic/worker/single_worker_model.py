"""A model on a lone worker with the interface of DistributedDataParallel, so that one script fits all sizes."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def single_worker_model(module: Any) -> Any:  # noqa: ANN401 - torch.nn.Module
    """Wrap a model as ``DistributedDataParallel`` does, for a lone worker."""
    return _wrapper()(module)


@functools.cache
def _wrapper() -> Any:  # noqa: ANN401 - a class of torch.nn.Module
    import torch

    class SingleWorkerModel(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        """A wrapper with the interface of ``DistributedDataParallel`` that exchanges nothing."""

        def __init__(self, module: Any) -> None:  # noqa: ANN401 - torch.nn.Module
            super().__init__()
            self.module = module
            self.training = module.training

        def forward(self, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401 - as the model takes and gives
            """Call the model."""
            return self.module(*inputs, **named)

        def no_sync(self) -> AbstractContextManager[None]:
            """Accumulate gradients: nothing is exchanged anyway."""
            return nullcontext()

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the model
            """Return an attribute of the model that the wrapper lacks."""
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("module"), name)

    return SingleWorkerModel
