"""Whether a worker that has followed a training holds the state of the others: all of it, beside its first step.

When it joins, members wait; so a sample of what optimizers step is compared then, and all of the rest. Digests of the
whole are computed in a thread while the first step begins, until an optimizer changes something, and compared at the
first commit.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from bftrain_elastic.worker.process_groups import LEAST, ProcessGroup
from bftrain_elastic.worker.shard_keeper import StateBase
from bftrain_elastic.worker.state_transfer import share_state
from bftrain_elastic.worker.state_tree import StateTree, Tensor, digest_of, places_of, size_of, version_of
from bftrain_elastic.worker.state_values import capture, inner

_DIGEST_BITS: Final = 56  # so that the number and its negative fit into 64 bits
_LEFT_OUT: Final = -1  # stands for the digest of a tensor that is not compared


class JoinCheck:
    """Digests of the tensors that optimizers step, at the places of the first member's tree."""

    def __init__(self, state: StateBase, shared: StateTree, stepped: Collection[Tensor], *, computes: bool) -> None:
        """Start to compute them if this is the first member or a new one; the others only take part in comparing."""
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        places, known = places_of(shared.plain), {one.data_ptr() for one in stepped}
        self._count = len(places)
        self._digests: Future[list[int]] | None = None
        self._hook: Any = register_optimizer_step_pre_hook(lambda *_: self._wait())
        if computes:
            mine = capture(state)
            here = dict(zip(places_of(mine.plain), mine.tensors, strict=True))
            thread = ThreadPoolExecutor(1, "bftrain-digests")
            self._digests = thread.submit(lambda: [_digest_at_rest(here.get(at), known) for at in places])
            thread.shutdown(wait=False)

    def close(self) -> None:
        """Stop to delay the steps of optimizers."""
        self._wait()
        self._hook.remove()

    def differs(self, group: ProcessGroup) -> bool:
        """Return whether a tensor differs between members; called by all of them."""
        mine = self._digests.result() if self._digests is not None else []
        numbers = [*mine, *(-one for one in mine)] or [LEAST] * (2 * self._count)
        found = group.largest_each(numbers) if numbers else []
        pairs = zip(found[: self._count], found[self._count :], strict=True)
        return any(-low not in {high, _LEFT_OUT} for high, low in pairs)

    def _wait(self) -> None:
        if self._digests is not None:
            self._digests.exception()


def check_join(state: StateBase) -> None:
    """Report a new worker that joined with another state, and give it that of the first one; called by all members."""
    own = inner(state)
    check, own.join_check = own.join_check, None
    if check is not None:
        check.close()
        if check.differs(own.group):
            _, sent = share_state(state, [0], fresh=False, ahead=True)
            if own.group.place.rank == 0:
                relative = sent / max(size_of(capture(state)), 1)
                own.report({"type": "drift", "step": own.step, "relative": relative})
    own.unproven = False


def _digest_at_rest(tensor: Tensor | None, known: Collection[int]) -> int:
    if tensor is None:
        return 0
    if tensor.data_ptr() not in known:
        return _LEFT_OUT
    before = version_of(tensor)
    found = digest_of(tensor) % (1 << _DIGEST_BITS)
    return found if version_of(tensor) == before else _LEFT_OUT  # the script itself changes it before a step
