"""BatchScaling: the allowed batch sizes of a task, and the lower worth of a sample in a larger batch."""

from __future__ import annotations

import msgspec

from bftrain.values import checks


class BatchScaling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """The batch sizes of a task, in samples per step over all its nodes, and its gradient noise scale.

    A sample in a batch of ``initial`` counts fully. In a batch ``M`` it counts ``(noise_scale + initial) /
    (noise_scale + M)``: the noisier the gradients, the less is lost by averaging more of them. The batch
    may be any from ``initial`` to ``largest``; without ``largest`` each node processes ``per_node`` samples a step at
    any size. The speeds of the task were measured with ``per_node`` samples per step and node (default: ``initial``).
    ``fixed_share`` of such a step took the same time for any batch, at the size with the highest speed per node.
    """

    initial: int
    noise_scale: float
    largest: int | None = None
    per_node: int | None = None
    fixed_share: float = 0.0

    def __post_init__(self) -> None:
        initial = checks.integer(self, "initial", at_least=1)
        checks.number(self, "noise_scale", at_least=0.0)
        if self.largest is not None and checks.integer(self, "largest", at_least=1) < initial:
            checks.reject(self, "largest", f"is {self.largest}, below initial = {initial}")
        if self.per_node is not None:
            checks.integer(self, "per_node", at_least=1)
        if checks.number(self, "fixed_share", at_least=0.0) >= 1.0:
            checks.reject(self, "fixed_share", f"must be below 1, not {self.fixed_share:g}")

    def efficiency(self, batch: float, noise_scale: float | None = None) -> float:
        """Return the weight of a sample in a ``batch``, optionally at another ``noise_scale`` (both in samples)."""
        noise = self.noise_scale if noise_scale is None else noise_scale
        return (noise + self.initial) / (noise + max(batch, self.initial))

    @property
    def measured(self) -> int:
        """Samples per node and step with which the speeds were measured."""
        return self.initial if self.per_node is None else self.per_node


def check_batch(task: msgspec.Struct, batch: BatchScaling | None, max_nodes: int) -> None:
    """Raise an error unless the largest batch of a task has a sample for each of its nodes."""
    checks.instance(task, "batch", BatchScaling | None)
    if batch is not None and batch.largest is not None and batch.largest < max_nodes:
        what = f"has largest = {batch.largest}, below one sample per node for max_nodes = {max_nodes}"
        checks.reject(task, "batch", what, "lower max_nodes, or raise largest")
