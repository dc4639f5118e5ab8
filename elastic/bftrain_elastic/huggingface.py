"""The Trainer of Transformers as an elastic task under the launcher ``process``.

A change of size stops the script at a step, and starts it again from the checkpoint that Trainer saves there.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from bftrain_elastic.trainers import StopRequest, per_worker
from bftrain_elastic.worker import progress_report

__all__ = ["ElasticCallback", "last_checkpoint", "per_worker"]
Untyped = Any  # objects that Trainer passes to its callbacks


def last_checkpoint(folder: str) -> str | None:
    """Return the last complete checkpoint of Trainer in ``folder``; ``None`` if there is none."""
    numbers = {path: path.name.removeprefix("checkpoint-") for path in Path(folder).glob("checkpoint-*")}
    steps = {int(number): path for path, number in numbers.items() if number.isdecimal()}
    for _, path in sorted(steps.items(), reverse=True):
        with suppress(OSError, ValueError):  # Trainer writes this file last, and may be killed while it does
            json.loads((path / "trainer_state.json").read_bytes())
            return str(path)
    return None


class ElasticCallback(TrainerCallback):  # type: ignore[misc]  # Transformers may not be installed
    """Reports each step, and makes Trainer save a checkpoint when the task must stop.

    Example::

        from bftrain_elastic.huggingface import ElasticCallback, last_checkpoint, per_worker

        args = TrainingArguments(output_dir=folder, per_device_train_batch_size=per_worker(48))
        trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[ElasticCallback()])
        trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    """

    _request: StopRequest  # set while training

    def __init__(self) -> None:
        self._unreported: tuple[int, int] | None = None  # samples and number of a step whose loss may still be logged
        self._stops = False

    def on_train_begin(self, *_: Untyped, **__: Untyped) -> None:
        """Watch for SIGTERM."""
        self._request = StopRequest()

    def on_step_end(self, args: Untyped, state: Untyped, control: Untyped, **_: Untyped) -> Untyped:
        """Make Trainer save after this step if the task must stop."""
        samples = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
        self._unreported = (samples, state.global_step)
        self._stops = self._request.agreed()
        control.should_save |= self._stops
        return control

    def on_log(self, *_: Untyped, logs: Untyped = None, **__: Untyped) -> None:
        """Report the step with the loss that Trainer logs for it."""
        if logs and "loss" in logs:
            self._report(float(logs["loss"]))

    def on_save(self, _args: Untyped, state: Untyped, *_: Untyped, **__: Untyped) -> None:
        """Exit if the task must stop."""
        if self._stops:
            self._report(None)
            self._request.stop(state.global_step)

    def on_step_begin(self, *_: Untyped, **__: Untyped) -> None:
        """Report the step before, if no loss was logged for it."""
        self._report(None)

    def on_train_end(self, _args: Untyped, state: Untyped, *_: Untyped, **__: Untyped) -> None:
        """Report that the work is done."""
        self._report(None)
        if state.is_world_process_zero:
            progress_report.finish()

    def _report(self, loss: float | None) -> None:
        if self._unreported is not None:
            (samples, step), self._unreported = self._unreported, None
            progress_report.report(samples, loss, step=step)
