"""Records of optimizer steps: digests of each worker's inputs and weights, for ``bftrain check``.

Workers that have the same weights and get the same inputs do the same work. The check compares the records of all
workers; a normal training makes no records.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "BFTRAIN_STEP_RECORDS"  # the environment variable with the folder for records
_MOST: Final = 200  # maximum number of records of a process
_SAMPLE: Final = 4096  # sampled elements of a tensor
_CALLERS: Final = ("transformers", "lightning", "accelerate")  # callers of the optimizer that need a different fix
# Frames of these files are not part of the script
_NOT_THE_SCRIPT: Final = (str(Path(__file__).parents[1]), str(Path(os.__file__).parent), "<")

Untyped = Any  # modules, tensors and optimizers: torch is imported only where a script uses it


def record_steps(folder: str) -> None:
    """Record all later steps of this process, each as a line of JSON in a file of ``folder``."""
    from torch.nn import Module
    from torch.optim.optimizer import register_optimizer_step_post_hook

    recorder, call = StepRecorder(Path(folder)), Module.__call__

    @functools.wraps(call)
    def recorded(module: Untyped, *args: Untyped, **kwargs: Untyped) -> Untyped:
        recorder.enter(module, (args, kwargs))
        try:
            return call(module, *args, **kwargs)
        finally:
            recorder.depth -= 1

    setattr(Module, "__call__", recorded)  # noqa: B010 - a hook of torch does not get the named arguments
    register_optimizer_step_post_hook(lambda *_: recorder.step())


class StepRecorder:
    """Digests the inputs and weights of each step; ``depth`` counts nested module calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._where = ("", "")  # line of the script, and package, that called the optimizer
        self.depth = 0
        self._begin(1)

    def _begin(self, workers: int) -> None:
        self._workers = workers
        self._inputs, self._weights = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8)
        self._rows_differ: list[bool] = []  # one entry per input that has several rows
        self._collectives: int | None = None  # count before the step's first forward pass

    def enter(self, module: Untyped, inputs: Untyped) -> None:
        """Record the call of a module; only the outermost one counts, and only while it trains."""
        import torch
        from torch.utils._pytree import tree_leaves

        self.depth += 1
        if self.depth > 1 or torch.compiler.is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        with suppress(Exception):  # an unreadable tensor, as inside of vmap, must not stop the script
            self._digest(module, [one for one in tree_leaves(inputs) if _is_plain(one)])

    def _digest(self, module: Untyped, tensors: list[Untyped]) -> None:
        if (workers := _workers()) != self._workers:  # a forward pass in the previous group led to no step
            self._begin(workers)
        if self._collectives is None:
            self._collectives = _collectives()
        for one in tensors:
            self._inputs.update(_bytes(one))
        if tensors and tensors[0].dim() and len(tensors[0]) > 1:
            self._rows_differ.append(bool((tensors[0][1:] != tensors[0][:1]).any()))
        # fully_shard leaves each worker another part of the same weights
        if not any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            for one in module.parameters():
                self._weights.update(_bytes(getattr(one, "_local_tensor", one)))

    def step(self) -> None:
        """Write the record of a step of an optimizer, in a group of several workers."""
        if self._workers > 1 and self._collectives is not None and self._count < _MOST:
            self._count += 1
            self._where = self._where if any(self._where) else _caller()
            record = {
                "inputs": self._inputs.hexdigest(),
                "weights": self._weights.hexdigest(),
                "rows_differ": any(self._rows_differ) if self._rows_differ else None,
                "exchanges": _collectives() > self._collectives,
                "where": self._where,
            }
            self._folder.mkdir(exist_ok=True)
            with (self._folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        self._begin(self._workers)


def _is_plain(value: Untyped) -> bool:
    import torch

    return type(value) is torch.Tensor and value.layout == torch.strided and not value.is_meta and value.numel() > 0


def _bytes(tensor: Untyped) -> bytes:
    """Return the shape and a sample of the elements."""
    import torch

    flat = tensor.detach().reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLE)].contiguous().cpu().view(torch.uint8)
    return f"{tuple(tensor.shape)}".encode() + bytes(sample.numpy())


def _workers() -> int:
    from bftrain_elastic.worker.data import group_rank

    return max(int(os.environ.get("WORLD_SIZE", "1")), group_rank()[1])


def _collectives() -> int:
    """Return the number of collectives of this process, over all its process groups."""
    import torch.distributed as dist

    count = 0
    for group in dist.distributed_c10d._world.pg_map if dist.is_initialized() else ():  # noqa: SLF001 - no public way
        with suppress(RuntimeError):  # MPI does not count
            count += int(group._get_sequence_number_for_group())  # noqa: SLF001 - as above
    return count


def _caller() -> tuple[str, str]:
    """Return the script's line that led to this step, and the package that called the optimizer for it."""
    frame, package = sys._getframe(1), os.environ.get("BFTRAIN_LAUNCHER", "")  # noqa: SLF001 - for a traceback
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if "site-packages" not in file and not file.startswith(_NOT_THE_SCRIPT):
            return f"{Path(file).name}:{frame.f_lineno}", package
        package = next((name for name in _CALLERS if f"{name}/" in file), package)
        frame = frame.f_back
    return "", package
