"""BatchScaling: with which batches a task may train, and how much less a sample of a larger batch is worth."""

from __future__ import annotations

import msgspec

from bftrain.values import checks


class BatchScaling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """The batches of a task, in samples of one step over all its nodes, and its gradient noise scale.

    A sample of a batch of ``initial`` counts whole. Of a batch ``M`` it counts ``(noise_scale + initial) /
    (noise_scale + M)``: the larger the noise of the gradients, the less is lost by averaging more of them. The batch
    may be any from ``initial`` to ``largest``; without ``largest`` each node does ``per_node`` samples a step at any
    size. The speeds of the task were measured with ``per_node`` samples a step on each node; ``initial`` if not given.
    ``fixed_share`` of such a step took the same for any batch, at the size at which a node did most.
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

    @property
    def measured(self) -> int:
        """The samples of a node in a step with which the speeds were measured."""
        return self.initial if self.per_node is None else self.per_node


def check_batch(task: msgspec.Struct, batch: BatchScaling | None, max_nodes: int) -> None:
    """Hold the field ``batch`` of a task to enough samples for its nodes."""
    if batch is None:
        return
    checks.instance(task, "batch", BatchScaling)
    if batch.largest is not None and batch.largest < max_nodes:
        what = f"has largest = {batch.largest}, less than a sample for each of max_nodes = {max_nodes}"
        checks.reject(task, "batch", what, "lower max_nodes, or raise largest")
