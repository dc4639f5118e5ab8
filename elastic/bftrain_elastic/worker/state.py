"""State: everything in a training that must survive changes of its workers."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bftrain_elastic.errors import BadScript
from bftrain_elastic.wire.worker_messages import ReplicasDiffer, StateInMemory
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.data import BatchShare, decided_batch
from bftrain_elastic.worker.lazy_torch import torch
from bftrain_elastic.worker.process_groups import own_gpu
from bftrain_elastic.worker.state_transfer import broadcast_bytes, move, offer
from bftrain_elastic.worker.state_tree import NamedValues, taken
from bftrain_elastic.worker.state_values import (
    LINEAGE,
    OWN,
    REPORTS_S,
    SAMPLES,
    STEP,
    StateBase,
    StateInternals,
    compared_values,
    copy_is_due,
    has_state_dict,
    inner,
    keep,
    sends_copy,
)

_EVERY: Final = 500  # commits between comparisons in an old group; a new one compares at its commits 2, 4, 8, ...
_SAMPLE: Final = 4096  # elements of a tensor that are compared
_ROUNDINGS: Final = 8.0  # different CPUs may round differently: tolerance in roundings, times the root of the commits
_LARGEST_TOLERANCE: Final = 1e-3  # relative, for each tensor
_SHARDS: Final = frozenset({"FullyShardedDataParallel", "DTensor", "ZeroRedundancyOptimizer", "DeepSpeedEngine"})
_WHOLE: Final = (
    "shard a model by fully_shard, or an optimizer by ZeroRedundancyOptimizer, "
    "in a ShardedTraining, or train unsharded with state.parallel(); with --launcher process a "
    "script writes its shards itself on SIGTERM"
)


class RegroupSignal(BaseException):
    """Leaves the script's ``train`` at a commit; a BaseException, so that ``except Exception`` does not catch it."""


class State(StateBase):
    """Model, optimizer, and other values that survive: ``State(model=..., optimizer=..., position=0, best=1e9)``.

    Each argument becomes an attribute. Objects with ``state_dict`` and ``load_state_dict`` keep their identity; other
    values (numbers, strings, lists, dicts, tensors) are replaced when the state is restored.

    The values of rank 0 count: each commit sends them to all workers with different ones. A best loss or a count that
    only rank 0 keeps therefore survives the loss of its node. Merge knowledge of other ranks with ``torch.distributed``
    before you commit. Keep values that should differ between workers out of the state.

    Models, optimizers and other objects with a ``state_dict`` are not compared: every worker must change them alike.
    Values that contain a tensor above 64 KiB or on a GPU are sent from rank 0 before each planned change of the group,
    and at commits where the workers have changed different ones.
    """

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - any values that the script wants to keep
        self.__dict__[OWN] = StateInternals(self)
        for name, value in values.items():
            if hasattr(type(self), name) or name.startswith("_"):
                raise BadScript(f"the name '{name}' is already used", where="State", fix="choose another name")
            setattr(self, name, value)
        refuse_sharded(values.values())

    @property
    def rank(self) -> int:
        """The rank of this worker in the group, from 0."""
        return inner(self).group.place.rank

    @property
    def workers(self) -> int:
        """The number of workers in the group."""
        return inner(self).group.place.workers

    @property
    def step(self) -> int:
        """The number of completed steps, counted by reports or commits; a step of all workers counts once."""
        return inner(self).progress.step

    @property
    def device(self) -> Any:  # noqa: ANN401 - torch.device
        """The device for tensors: the worker's GPU, or the CPU. Under torchrun it is one of several visible GPUs."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", own_gpu())

    def parallel(self, **options: Any) -> Any:  # noqa: ANN401 - a torch module
        """Return the model for the current group: in DistributedDataParallel, or in a wrapper with the same interface.

        ``options`` are passed to DistributedDataParallel. Both have ``module`` and ``no_sync()``, so gradients can be
        accumulated at any size. Call it again after parameters were frozen, trained again, or replaced.
        """
        own = inner(self)
        if self.workers == 1:
            return single_worker_wrapper()(self.model)
        trains = [(id(one), one.requires_grad) for one in self.model.parameters()]
        if own.group.parallel is None or own.group.wrapped_trains != trains:
            if own.group.parallel is not None:
                own.group.parallel._remove_autograd_hooks()  # noqa: SLF001 - there is no public way
            refuse_sharded([self.model])
            from torch.nn.parallel import DistributedDataParallel

            # All members have the same state already
            own.group.parallel = DistributedDataParallel(self.model, **{"init_sync": False, **options})
            own.group.wrapped_trains = trains
        return own.group.parallel

    @property
    def decided_batch(self) -> int | None:
        """The decided samples per step over all workers of the current group; ``None`` if the script decides."""
        return decided_batch()

    def share(self, samples: int) -> BatchShare:
        """Return this worker's share of a batch of ``samples``: its samples, and the weight of the mean loss over them.

        Example::

            mine, weight = state.share(len(x))
            loss = weight * mse_loss(model(x[mine]), y[mine])
        """
        return BatchShare.of(samples, self.rank, self.workers)

    def commit(self) -> None:
        """Mark a safe point: a place to stop, and to return to if a worker dies.

        All workers must call it. Several workers keep in-memory copies; copies of large states take at most 5 % of run
        time, so some commits have none. One worker also writes the state to the task's folder, unless it did recently.
        """
        own = inner(self)
        own.group.activity = "commit"
        own.group.commits += 1
        now = time.monotonic()
        if own.group.committed_at:  # time between commits; a single long one is soon forgotten
            own.group.pace_s = max(now - own.group.committed_at, own.group.pace_s / 2)
        own.group.committed_at = now
        if own.progress.step == own.progress.commit_step:  # scripts without reports still make progress
            own.progress.step += 1
        own.progress.commit_step = own.progress.step
        if own.group.commits == 1:  # first commit of this group: the state may have been sharded after its creation
            refuse_sharded(vars(self).values())
        if own.group.place.workers > 1:
            progress_report.average(own.group.sums)
            largest = commit_together(self)
        elif own.shards is not None:
            largest = own.group.asked()
            own.shards.commit(self, planned=largest > own.group.place.generation)
        else:
            largest = own.group.asked()
            copies = own.copies.alone or sends_copy(self)
            if copies and copy_is_due(own) and not continues_without_copy(own, largest):
                keep(self)
        compare_replicas(own, [value for value in vars(self).values() if value is not own])
        save_and_report(self, largest)
        if largest > own.group.place.generation:
            raise RegroupSignal
        own.group.activity = "script"

    if TYPE_CHECKING:  # every value is an attribute, and may be set

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401 - a state holds anything

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - called only for what is not there
        raise AttributeError(f"the state has no '{name}': give it to State({name}=...)")


def leave_group(state: State, *, broken: bool = False) -> None:
    """Leave the group, and drop the model wrapped for it."""
    own = inner(state)
    if own.group.parallel is not None:
        # Hooks would wait for the members of a group that is gone
        own.group.parallel._remove_autograd_hooks()  # noqa: SLF001 - there is no public way
    own.group.parallel = None
    own.group.leave(broken=broken)


class CommitAgreement(NamedTuple):
    """The agreed result of a commit: the largest requested generation, and which values differ."""

    asked: int  # larger than the group's generation: the members leave the group
    reports: bool  # rank 0 must report that this commit is in memory
    compared: NamedValues
    differ: bool  # the compared values differ
    copy_due: bool
    large_due: bool  # rank 0 sends its large values: workers changed different ones, or the group dissolves


def agree(state: StateBase, asked: int) -> CommitAgreement:
    """Compare values with all members; ``asked`` is the largest generation that this member was asked to gather for."""
    own, compared = inner(state), compared_values(state)
    place, digest = own.group.place, compared.digest()
    copies = copy_is_due(own)
    reports = copies and place.size > 1 and time.monotonic() - own.progress.reported_at > REPORTS_S
    numbers = [asked, digest, -digest, int(reports), int(copies), *digest_large_values(state, compared)]
    asked, highest, lowest, reporting, copying, large_highest, large_lowest, has_large = own.group.largest_each(numbers)
    large_due = bool(has_large) and (asked > place.generation or large_highest != -large_lowest)
    return CommitAgreement(asked, bool(reporting), compared, highest != -lowest, bool(copying), large_due)


def commit_together(state: StateBase) -> int:
    """Copy the state on all members, with the values of rank 0; return the largest requested generation."""
    own = inner(state)
    agreed = agree(state, own.group.asked())
    compared, first = agreed.compared, own.group.place.rank == 0
    if agreed.large_due:
        take_large_values_of_first(state, everything=agreed.asked > own.group.place.generation)
        compared = compared_values(state)
    if agreed.differ:
        take_values_of_first(state, compared)
        compared = compared_values(state)
    if own.shards is not None:
        own.shards.commit(state, planned=agreed.asked > own.group.place.generation)
    elif agreed.copy_due and not continues_without_copy(own, agreed.asked):
        keep(state, compared)
    if agreed.reports and agreed.asked <= own.group.place.generation:
        own.group.largest(0)  # all members have their copy
        if first:
            report_in_memory(own)
    return agreed.asked


def continues_without_copy(own: StateInternals, asked: int) -> bool:
    """Return whether a commit that dissolves the group needs no copy: members wait, and the next group makes one."""
    return asked > own.group.place.generation and own.copies.recent


def save_and_report(state: StateBase, asked: int) -> None:
    """Save the state at a commit if a save is due, and report saves from time to time; on rank 0."""
    own = inner(state)
    if own.group.place.rank:
        return
    if not continues_without_copy(own, asked):
        own.saver.save_if_due()
        own.saver.send_if_due()
    if time.monotonic() - own.saver.reported_at > REPORTS_S:
        own.saver.report()


def digest_large_values(state: StateBase, compared: NamedValues) -> list[int]:
    """Find the large values that changed; return numbers to reduce by maximum over all members.

    They are the digest of the changed values' names, its negative, and whether rank 0 has any large value.
    """
    own = inner(state)
    others = {OWN, *compared.names}
    values = vars(state).items()
    own.copies.large.update({name: one for name, one in values if name not in others and not has_state_dict(one)})
    digest = own.copies.large.digest
    return [digest, -digest, int(bool(own.copies.large.names) and own.group.place.rank == 0)]


def mark_large_values(state: StateBase) -> None:
    """Record that all members have the same large values: the next commit looks for changes since then."""
    digest_large_values(state, compared_values(state))


def take_large_values_of_first(state: StateBase, *, everything: bool) -> None:
    """Send the large values of rank 0 that any member changed, or ``everything``; called by all members."""
    own = inner(state)
    place, large = own.group.place, own.copies.large
    names: Sequence[str] = large.names
    if not everything:
        names = json.loads(broadcast_bytes(json.dumps(names).encode() if place.rank == 0 else b""))
        changed = own.group.largest_each([int(name in large.changed or name not in large.names) for name in names])
        names = [name for name, differs in zip(names, changed, strict=True) if differs]
    tree = offer(place, large.tree(names) if place.rank == 0 else None)
    move(place, tree)
    if place.rank:
        for name, value in taken(tree, vars(state)).items():
            setattr(state, name, value)
        mark_large_values(state)


def take_values_of_first(state: StateBase, compared: NamedValues) -> None:
    """Send the values of rank 0 to all members; called by all members."""
    own = inner(state)
    tree = offer(own.group.place, compared.tree() if own.group.place.rank == 0 else None)
    move(own.group.place, tree)
    if own.group.place.rank == 0:
        return
    before = dict(json.loads(text) for text in compared.texts)
    after = dict(json.loads(tree.plain)[1])
    values = tree.unfolded()
    own.progress.step = own.progress.commit_step = int(values.pop(STEP))
    own.saver.lineage = int(values.pop(LINEAGE))
    own.progress.samples, own.progress.samples_since = values.pop(SAMPLES)
    for name, value in values.items():
        if after[name] != before.get(name) or tree.tensors:  # unchanged values may be in use
            setattr(state, name, value)


def report_in_memory(own: StateInternals) -> None:
    """Report that all members have a copy of the last commit: the training survives the loss of some nodes."""
    own.progress.reported_at = time.monotonic()
    if own.shards is None:  # a sharded state is on disk only
        own.progress.report(StateInMemory(own.progress.commit_step))


@functools.cache
def single_worker_wrapper() -> Any:  # noqa: ANN401 - a class of torch.nn.Module
    """Return the class that wraps the model of a lone worker, made when torch is needed."""

    class SingleWorkerModel(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        """A wrapper with the interface of ``DistributedDataParallel`` that exchanges no gradients."""

        def __init__(self, module: Any) -> None:  # noqa: ANN401 - torch.nn.Module
            super().__init__()
            self.module = module
            self.training = module.training

        def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the model takes and gives
            """Call the model."""
            return self.module(*args, **kwargs)

        def no_sync(self) -> AbstractContextManager[None]:
            """Accumulate gradients; a single worker exchanges none anyway."""
            return nullcontext()

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the model
            """Return an attribute of the model that the wrapper lacks."""
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("module"), name)

    return SingleWorkerModel


def compare_replicas(own: StateInternals, values: Iterable[Any]) -> None:
    """Report the first member with parameters that differ from rank 0's; all members call this at each commit."""
    commits, place = own.group.commits, own.group.place
    is_due = commits > 1 and (commits & (commits - 1) == 0 if commits < _EVERY else commits % _EVERY == 0)
    if place.workers == 1 or not is_due:
        return
    layout, checksum, tolerance = _checksum(values, commits)
    rows = own.group.gathered([layout, checksum])
    differs = [abs(row[1] - rows[0][1]) > tolerance or row[0] != rows[0][0] for row in rows]
    if place.rank == 0 and True in differs:
        own.progress.report(ReplicasDiffer(own.progress.step, differs.index(True)))


def _checksum(values: Iterable[Any], commits: int) -> tuple[float, float, float]:
    """Return a digest of the parameters' shapes, a checksum of their values, and the checksum's tolerance."""
    parameters = [one for value in with_parts(values) for one in _parameters(value) if one.numel()]
    tensors = list({id(one): one.detach() for one in parameters}.values())
    # Divided tensors cannot be compared
    tensors = [one for one in tensors if type(one) is torch.Tensor and one.layout == torch.strided and not one.is_meta]
    checksum, tolerance = 0.0, 0.0
    for tensor in tensors:
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        stride = math.ceil(real.numel() / _SAMPLE)
        sample = real.reshape(-1)[commits % stride :: stride].to("cpu", torch.float64).nan_to_num()
        size = float(sample.norm()) or 1.0
        checksum += float(sample @ torch.cos(torch.arange(len(sample), dtype=torch.float64))) / size + math.log(size)
        rounding = torch.finfo(real.dtype).eps if real.dtype.is_floating_point else 0.0
        tolerance += min(_ROUNDINGS * rounding * math.sqrt(commits), _LARGEST_TOLERANCE)
    text = " ".join(f"{one.dtype}{tuple(one.shape)}" for one in tensors)
    return float(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little")), checksum, tolerance


def _parameters(value: Any) -> Iterator[Any]:  # noqa: ANN401 - a model, an optimizer, or any other value
    if callable(getattr(value, "parameters", None)):
        yield from value.parameters()
    for group in getattr(value, "param_groups", ()):
        yield from group["params"]


def with_parts(values: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Yield values, and the parts of lists, dicts and objects with a state_dict."""
    for value in values:
        yield value
        if not depth or callable(getattr(value, "parameters", None)):
            continue
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        if inside is None and hasattr(value, "state_dict") and not hasattr(value, "param_groups"):
            inside = vars(value).values() if hasattr(value, "__dict__") else ()
        wrapped = getattr(value, "optimizer", None)  # Accelerate's wrapper
        yield from with_parts([*(inside or ()), *([] if wrapped is None else [wrapped])], depth - 1)


def refuse_sharded(values: Iterable[Any]) -> None:
    """Raise BadScript if a model or optimizer is divided among workers: each must be able to continue alone."""
    for value in with_parts(one for one in values if not getattr(one, "resharded", False)):
        inside = [*value.modules(), *value.parameters()] if callable(getattr(value, "modules", None)) else []
        for one in [value, *inside]:
            if shards := _SHARDS.intersection(kind.__name__ for kind in type(one).__mro__):
                what = f"a {type(value).__name__} is divided among the workers ({', '.join(shards)})"
                raise BadScript(f"{what}: each of a State's values must be whole", where="State", fix=_WHOLE)
